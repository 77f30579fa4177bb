package registry_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/errs"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// TestRepeats sends every request that has a request id again: at once, and when what it is about has ended.
// It is answered as it was the first time, and refused with another body.
func TestRepeats(t *testing.T) {
	t.Parallel()
	for name, config := range onBothStores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, config(t))
			ctx := t.Context()
			epic := func(t *testing.T) *registryv1.Epic {
				e, err := c.CreateEpic(ctx, &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "goal"}})
				require.NoError(t, err)
				return e
			}
			// one makes a request, says how its body becomes another, and ends what it is about.
			type one func(t *testing.T, id string) (req proto.Message, change func(), end func(made string))
			cancel := func(epicID string) {
				_, err := c.TransitionEpic(ctx, &registryv1.TransitionEpicRequest{EpicId: epicID, State: registryv1.EpicState_EPIC_STATE_CANCELED})
				require.NoError(t, err)
			}
			table := map[string]one{
				"CreateEpic": func(_ *testing.T, id string) (proto.Message, func(), func(string)) {
					req := &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "new"}, RequestId: id}
					return req, func() { req.Epic.Title = "other" }, cancel
				},
				"ImportEpic": func(_ *testing.T, id string) (proto.Message, func(), func(string)) {
					req := &registryv1.ImportEpicRequest{Document: `{"title": "new", "tasks": []}`, RequestId: id}
					return req, func() { req.Document = `{"title": "other", "tasks": []}` }, cancel
				},
				"UpdateEpic": func(t *testing.T, id string) (proto.Message, func(), func(string)) {
					e := epic(t)
					req := &registryv1.UpdateEpicRequest{Epic: &registryv1.Epic{Id: e.GetId(), Title: "new", Etag: e.GetEtag()}, RequestId: id}
					return req, func() { req.Epic.Title = "other" }, cancel
				},
				"TransitionEpic": func(t *testing.T, id string) (proto.Message, func(), func(string)) {
					req := &registryv1.TransitionEpicRequest{EpicId: epic(t).GetId(), State: registryv1.EpicState_EPIC_STATE_ACTIVE, RequestId: id}
					return req, func() { req.ResultSummary = "other" }, cancel
				},
				"RunEpic": func(t *testing.T, id string) (proto.Message, func(), func(string)) {
					req := &registryv1.RunEpicRequest{EpicId: epic(t).GetId(), Parallel: 2, RequestId: id}
					return req, func() { req.Parallel = 3 }, cancel
				},
				"CreateTask": func(t *testing.T, id string) (proto.Message, func(), func(string)) {
					e := epic(t)
					req := &registryv1.CreateTaskRequest{Task: &registryv1.Task{EpicId: e.GetId(), Title: "new"}, RequestId: id}
					return req, func() { req.Task.Title = "other" }, func(string) { cancel(e.GetId()) }
				},
				"UpdateTask": func(t *testing.T, id string) (proto.Message, func(), func(string)) {
					v := newTask(t, c, &registryv1.Task{Title: "work"})
					req := &registryv1.UpdateTaskRequest{Task: &registryv1.Task{Id: v.GetId(), Title: "new", Etag: v.GetEtag()}, RequestId: id}
					return req, func() { req.Task.Title = "other" }, func(string) { cancel(v.GetEpicId()) }
				},
				"TransitionTask": func(t *testing.T, id string) (proto.Message, func(), func(string)) {
					v := newTask(t, c, &registryv1.Task{Title: "work"})
					req := &registryv1.TransitionTaskRequest{TaskId: v.GetId(), State: registryv1.TaskState_TASK_STATE_RUNNING, RequestId: id}
					return req, func() { req.Note = "other" }, func(string) { cancel(v.GetEpicId()) }
				},
				"SetBudget": func(t *testing.T, id string) (proto.Message, func(), func(string)) {
					e, n := epic(t), int64(5)
					req := &registryv1.SetBudgetRequest{Budget: &registryv1.Budget{Name: "epic/" + e.GetId(), Hard: &registryv1.Caps{Tokens: &n}}, RequestId: id}
					return req, func() { req.Budget.Soft = &registryv1.Caps{Tokens: &n} }, func(string) { cancel(e.GetId()) }
				},
				"CreatePrice": func(_ *testing.T, id string) (proto.Message, func(), func(string)) {
					req := &registryv1.CreatePriceRequest{Price: &registryv1.Price{Provider: "p", Model: id, ValidFrom: timestamppb.Now()}, RequestId: id}
					return req, func() { req.Price.InputPerMillion = 1 }, func(string) {}
				},
			}
			service := registryv1.File_epigraph_registry_v1_registry_proto.Services().ByName("RegistryService")
			for i := range service.Methods().Len() {
				method := service.Methods().Get(i)
				if method.Input().Fields().ByName("request_id") == nil {
					require.NotContains(t, table, string(method.Name()))
					continue
				}
				name := string(method.Name())
				does, known := table[name]
				require.True(t, known, "%s has a request_id: say here how it is sent twice", name)
				t.Run(name, func(t *testing.T) {
					req, change, end := does(t, "req-"+name)
					first, err := invoke(t, c, name, req)
					require.NoError(t, err)
					other := proto.Clone(req)
					change()
					req, other = other, req
					again := func() {
						t.Helper()
						got, err := invoke(t, c, name, req)
						require.NoError(t, err)
						require.Equal(t, first, got)
						_, err = invoke(t, c, name, other)
						require.Equal(t, "REQUEST_ID_REUSED", errs.ReasonOf(err), "%v", err)
					}
					again()
					end(first)
					again()
				})
			}
		})
	}
}

// invoke calls a method and returns the id, or the name, of what it answers.
func invoke(t *testing.T, c registryv1.RegistryServiceClient, method string, req proto.Message) (string, error) {
	t.Helper()
	out := reflect.ValueOf(c).MethodByName(method).Call([]reflect.Value{reflect.ValueOf(t.Context()), reflect.ValueOf(req)})
	if err, failed := out[1].Interface().(error); failed {
		return "", err
	}
	if named, ok := out[0].Interface().(interface{ GetName() string }); ok {
		return named.GetName(), nil
	}
	answer, ok := out[0].Interface().(interface{ GetId() string })
	require.True(t, ok)
	return answer.GetId(), nil
}
