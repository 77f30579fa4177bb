package cli

import (
	"context"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// maxQuery is how many characters of a title the registry is asked for.
const maxQuery = 256

// task creates a task for the run in the named epic, and the epic if it does not exist. undo removes both,
// for a run that was refused; a command that is meant to be repeated leaves them for the next time.
func (c *runStart) task(ctx context.Context, s *services, title string) (made *registryv1.Task, undo func(context.Context), err error) {
	undo = func(context.Context) {}
	epic := c.Epic
	if !strings.HasPrefix(epic, "ep_") {
		if epic, err = openEpic(ctx, s, c.Epic); err != nil {
			return nil, undo, err
		}
	}
	if c.newEpic = epic == ""; c.newEpic {
		e, err := s.registry.CreateEpic(ctx, &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: c.Epic}, RequestId: suffixed(c.RequestID, "-epic")})
		if err != nil {
			return nil, undo, err
		}
		epic = e.GetId()
	}
	made, err = s.registry.CreateTask(ctx, &registryv1.CreateTaskRequest{Task: &registryv1.Task{EpicId: epic, Title: title}, RequestId: suffixed(c.RequestID, "-task")})
	if err != nil {
		return nil, undo, err
	}
	if c.RequestID == "" {
		undo = func(ctx context.Context) { // only an empty task may be left over
			_, _ = s.registry.DeleteTask(ctx, &registryv1.DeleteTaskRequest{TaskId: made.GetId()})
			if c.newEpic {
				_, _ = s.registry.DeleteEpic(ctx, &registryv1.DeleteEpicRequest{EpicId: epic})
			}
		}
	}
	return made, undo, nil
}

// openEpic is the id of the open epic with exactly this title, or empty if there is none.
func openEpic(ctx context.Context, s *services, title string) (string, error) {
	req := &registryv1.ListEpicsRequest{PageSize: maxPage, States: []registryv1.EpicState{
		registryv1.EpicState_EPIC_STATE_PLANNING, registryv1.EpicState_EPIC_STATE_ACTIVE, registryv1.EpicState_EPIC_STATE_PAUSED}}
	if r := []rune(title); len(r) <= maxQuery {
		req.Query = title
	} else {
		req.Query = string(r[:maxQuery])
	}
	var found []string
	for {
		page, err := s.registry.ListEpics(ctx, req)
		if err != nil {
			return "", err
		}
		for _, e := range page.GetEpics() {
			if e.GetTitle() == title {
				found = append(found, e.GetId())
			}
		}
		if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0], nil
	}
	return "", errs.New(errs.FailedPrecondition, "EPIC_AMBIGUOUS", "%d open epics are called %q", len(found), title).
		Hint("name one by its id: " + strings.Join(found[:min(len(found), 5)], ", "))
}

// paysFrom says which task and which epic the usage of the run is booked on.
func (c *runStart) paysFrom(r *executorv1.Run) string {
	switch {
	case c.made == nil || c.made.GetId() != r.GetTaskId(): // that of a run that was there
		return "task " + r.GetTaskId()
	case c.newEpic:
		return "task " + c.made.GetId() + " in the new epic " + c.made.GetEpicId()
	}
	return "task " + c.made.GetId() + " in the epic " + c.made.GetEpicId()
}
