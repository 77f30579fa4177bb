package mcpserver

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/delegation"
	"github.com/epigraph-run/epigraph/internal/delegation/delegationpb"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// delegated are the arguments of a tool over epics or tasks.
type delegated struct {
	delegation.Arguments

	Request string `json:"request_id"`
}

// delegationTools are the tools over epics and tasks. Those of agents are the same, but for request_id.
func delegationTools() []*tool {
	acts := map[string]func(context.Context, *call, *delegated) (any, error){
		delegation.EpicCreate: createEpic, delegation.EpicStatus: epicStatus, delegation.EpicUpdate: updateEpic, delegation.EpicSearch: searchEpics,
		delegation.TaskCreate: createTask, delegation.TaskList: listTasks, delegation.TaskUpdate: updateTask, delegation.TaskCancel: cancelTask,
	}
	var out []*tool
	for _, t := range delegation.Tools() {
		does, schema := acts[t.Name], t.Schema()
		if !t.Reads {
			schema = t.Schema(requestProperty)
		}
		out = append(out, &tool{name: t.Name, description: t.Description, schema: schema, reads: t.Reads, repeats: !t.Reads, destroys: t.Destroys, does: func(ctx context.Context, c *call) (any, error) {
			var a delegated
			if err := c.read(&a); err != nil {
				return nil, err
			}
			return does(ctx, c, &a)
		}})
	}
	return out
}

// refusal is the error of arguments with faults, or nil.
func refusal(f delegation.Faults) error {
	if len(f) == 0 {
		return nil
	}
	return badArguments("%s", f)
}

func createEpic(ctx context.Context, c *call, a *delegated) (any, error) {
	e, faults := a.NewEpic()
	if err := refusal(faults); err != nil {
		return nil, err
	}
	got, err := asked(ctx, c.Server, c.Registry.CreateEpic, &registryv1.CreateEpicRequest{Epic: delegationpb.EpicTo(&e), RequestId: a.Request})
	if err != nil {
		return nil, err
	}
	e = delegationpb.EpicFrom(got)
	return delegation.EpicCreated(&e), nil
}

func epicStatus(ctx context.Context, c *call, a *delegated) (any, error) {
	id, faults := a.EpicOf()
	if err := refusal(faults); err != nil {
		return nil, err
	}
	return c.epicWithTasks(ctx, id)
}

func (s *Server) epicWithTasks(ctx context.Context, id string) (map[string]any, error) {
	e, err := s.epic(ctx, id)
	if err != nil {
		return nil, err
	}
	tasks, _, err := s.tasks(ctx, delegation.Filter{EpicID: id, Limit: delegation.MaxFound})
	if err != nil {
		return nil, err
	}
	return delegation.EpicWithTasks(e, tasks), nil
}

func (s *Server) epic(ctx context.Context, id string) (*delegation.Epic, error) {
	got, err := asked(ctx, s, s.Registry.GetEpic, &registryv1.GetEpicRequest{EpicId: id})
	if err != nil {
		return nil, err
	}
	e := delegationpb.EpicFrom(got)
	return &e, nil
}

// updateEpic makes two requests at most. They are known by their method and id, so one id serves both.
func updateEpic(ctx context.Context, c *call, a *delegated) (any, error) {
	e, change, faults := a.ChangedEpic()
	if err := refusal(faults); err != nil {
		return nil, err
	}
	got, err := delegation.Apply(change, func() (*registryv1.Epic, error) {
		return asked(ctx, c.Server, c.Registry.UpdateEpic, delegationpb.EpicChange(&e, change.Fields, a.Request))
	}, func() (*registryv1.Epic, error) {
		return asked(ctx, c.Server, c.Registry.TransitionEpic, delegationpb.EpicMove(&e, a.Request))
	})
	if err != nil {
		return nil, err
	}
	e = delegationpb.EpicFrom(got)
	return delegation.EpicChanged(&e), nil
}

func searchEpics(ctx context.Context, c *call, a *delegated) (any, error) {
	s, faults := a.Search()
	if err := refusal(faults); err != nil {
		return nil, err
	}
	matches, err := delegationpb.FoundEpics(ctx, s, func(ctx context.Context, r *registryv1.SearchEpicsRequest) (*registryv1.SearchEpicsResponse, error) {
		return asked(ctx, c.Server, c.Registry.SearchEpics, r)
	})
	if err != nil {
		return nil, err
	}
	var found []delegation.Epic
	for _, m := range matches {
		found = append(found, delegationpb.MatchFrom(m))
	}
	return delegation.EpicsFound(found), nil
}
