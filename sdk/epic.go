package epigraph

import (
	"context"
	"iter"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// everything is the mask that replaces a whole resource.
var everything = []string{"*"}

// CreateEpic creates an epic, which needs a title. Fields that the registry sets, such as the state and what
// was spent, are ignored.
func (c *Client) CreateEpic(ctx context.Context, e *registryv1.Epic) (*registryv1.Epic, error) {
	return c.Registry.CreateEpic(ctx, &registryv1.CreateEpicRequest{Epic: e})
}

// Epics returns the epics that match the filter, newest first; nil matches all of the namespace. An error is
// the last pair.
func (c *Client) Epics(ctx context.Context, filter *registryv1.ListEpicsRequest) iter.Seq2[*registryv1.Epic, error] {
	return all(func(token string) ([]*registryv1.Epic, string, error) {
		req := copyOf(filter)
		req.PageToken = token
		m, err := c.Registry.ListEpics(ctx, req)
		return m.GetEpics(), m.GetNextPageToken(), err
	})
}

// Epic reads an epic with its totals.
func (c *Client) Epic(ctx context.Context, id string) (*registryv1.Epic, error) {
	return c.Registry.GetEpic(ctx, &registryv1.GetEpicRequest{EpicId: id})
}

// UpdateEpic reads the epic, lets change alter it, and writes it. If somebody changed it meanwhile the reason
// is ETAG_MISMATCH.
func (c *Client) UpdateEpic(ctx context.Context, id string, change func(*registryv1.Epic)) (*registryv1.Epic, error) {
	e, err := c.Epic(ctx, id)
	if err != nil {
		return nil, err
	}
	change(e)
	return c.Registry.UpdateEpic(ctx, &registryv1.UpdateEpicRequest{Epic: e, UpdateMask: &fieldmaskpb.FieldMask{Paths: everything}})
}

// TransitionEpic moves an epic to another state; summary is the result of an epic that ends. Runs of a
// canceled epic are canceled.
func (c *Client) TransitionEpic(ctx context.Context, id string, to registryv1.EpicState, summary string) (*registryv1.Epic, error) {
	return c.Registry.TransitionEpic(ctx, &registryv1.TransitionEpicRequest{EpicId: id, State: to, ResultSummary: summary})
}

// DeleteEpic removes an epic with its tasks.
func (c *Client) DeleteEpic(ctx context.Context, id string) error {
	_, err := c.Registry.DeleteEpic(ctx, &registryv1.DeleteEpicRequest{EpicId: id})
	return err
}

// CreateTask adds a task to the epic that its field epic_id names. The task needs a title. A run that is
// started with the option Task works on it.
func (c *Client) CreateTask(ctx context.Context, t *registryv1.Task) (*registryv1.Task, error) {
	return c.Registry.CreateTask(ctx, &registryv1.CreateTaskRequest{Task: t})
}

// Tasks returns the tasks that match the filter, oldest first; nil matches all of the namespace. An error is
// the last pair.
func (c *Client) Tasks(ctx context.Context, filter *registryv1.ListTasksRequest) iter.Seq2[*registryv1.Task, error] {
	return all(func(token string) ([]*registryv1.Task, string, error) {
		req := copyOf(filter)
		req.PageToken = token
		m, err := c.Registry.ListTasks(ctx, req)
		return m.GetTasks(), m.GetNextPageToken(), err
	})
}

// GetTask reads a task with what it used.
func (c *Client) GetTask(ctx context.Context, id string) (*registryv1.Task, error) {
	return c.Registry.GetTask(ctx, &registryv1.GetTaskRequest{TaskId: id})
}

// UpdateTask reads the task, lets change alter it, and writes it. If somebody changed it meanwhile the reason
// is ETAG_MISMATCH.
func (c *Client) UpdateTask(ctx context.Context, id string, change func(*registryv1.Task)) (*registryv1.Task, error) {
	t, err := c.GetTask(ctx, id)
	if err != nil {
		return nil, err
	}
	change(t)
	return c.Registry.UpdateTask(ctx, &registryv1.UpdateTaskRequest{Task: t, UpdateMask: &fieldmaskpb.FieldMask{Paths: everything}})
}

// TransitionTask moves a task to another state; note says why. The run of a canceled task is canceled.
func (c *Client) TransitionTask(ctx context.Context, id string, to registryv1.TaskState, note string) (*registryv1.Task, error) {
	return c.Registry.TransitionTask(ctx, &registryv1.TransitionTaskRequest{TaskId: id, State: to, Note: note})
}

// DeleteTask removes a task.
func (c *Client) DeleteTask(ctx context.Context, id string) error {
	_, err := c.Registry.DeleteTask(ctx, &registryv1.DeleteTaskRequest{TaskId: id})
	return err
}
