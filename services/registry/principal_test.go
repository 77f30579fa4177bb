package registry_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// TestPrincipal writes by one key what another has made, by every method that writes, and reads back which of
// them it was.
func TestPrincipal(t *testing.T) {
	key := func(name string) grpckit.APIKey {
		return grpckit.APIKey{Name: name, Namespace: "acme", Secret: conf.NewSecret("secret-of-" + name), Scopes: access.Scopes()}
	}
	for name, config := range onBothStores() {
		t.Run(name, func(t *testing.T) {
			var log testkit.LogBuffer
			tel := obs.Noop()
			tel.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			as, _ := serveAs(t, config(t), grpckit.AuthConfig{ServiceToken: conf.NewSecret("of-services"), Keys: []grpckit.APIKey{key("ada"), key("ben")}}, tel)
			// deleted returns the caller that removed a resource. Only the log has it.
			deleted := func(t *testing.T, kind, id string) string {
				var by []string
				for _, d := range log.Deletions(t, "deleted") {
					if d.Kind == kind && d.ID == id {
						require.Equal(t, "acme", d.Namespace)
						by = append(by, d.Principal)
					}
				}
				require.Len(t, by, 1)
				return by[0]
			}
			ada, ben, ctx := as("secret-of-ada"), as("secret-of-ben"), t.Context()
			const me, forged = "key:ben", "key:root"
			epic := func(t *testing.T) *registryv1.Epic {
				e, err := ada.CreateEpic(ctx, &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "goal"}})
				require.NoError(t, err)
				require.Equal(t, "key:ada", e.GetPrincipal())
				return e
			}
			task := func(t *testing.T) *registryv1.Task {
				v, err := ada.CreateTask(ctx, &registryv1.CreateTaskRequest{Task: &registryv1.Task{EpicId: epic(t).GetId(), Title: "work"}})
				require.NoError(t, err)
				require.Equal(t, "key:ada", v.GetPrincipal())
				return v
			}
			readEpic := func(t *testing.T, id string) string {
				e, err := ada.GetEpic(ctx, &registryv1.GetEpicRequest{EpicId: id})
				require.NoError(t, err)
				return e.GetPrincipal()
			}
			readTask := func(t *testing.T, id string) string {
				v, err := ada.GetTask(ctx, &registryv1.GetTaskRequest{TaskId: id})
				require.NoError(t, err)
				for _, n := range v.GetNotes() {
					require.Equal(t, me, n.GetPrincipal(), "whose note it is")
				}
				return v.GetPrincipal()
			}
			notes := []*registryv1.Note{{Author: "root", Text: "hm", Principal: forged}}
			const service = "epigraph.registry.v1.RegistryService/"
			// nil stands for methods that read, or that only services may call.
			table := map[string]func(t *testing.T) string{
				"GetEpic": nil, "ForecastEpic": nil, "ListEpics": nil, "SearchEpics": nil, "GetTask": nil, "ListTasks": nil, "ListUsage": nil, "PriceUsage": nil, "GetNamespaceUsage": nil, "ReportUsage": nil, "ListPrices": nil, "ListEvents": nil, "WatchEvents": nil,
				"ClaimTask": nil, "ConfirmClaim": nil, "SettleClaim": nil, "LeaseOrders": nil, "AcknowledgeOrders": nil, "RecordChanges": nil,
				"GetBudget": nil, "ReserveUsage": nil, "ReleaseUsage": nil,

				"CreateEpic": func(t *testing.T) string {
					e, err := ben.CreateEpic(ctx, &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "goal", Principal: forged}})
					require.NoError(t, err)
					return readEpic(t, e.GetId())
				},
				"ImportEpic": func(t *testing.T) string {
					r, err := ben.ImportEpic(ctx, &registryv1.ImportEpicRequest{Document: `{"title": "goal", "tasks": [{"id": 1, "title": "work"}]}`})
					require.NoError(t, err)
					list, err := ada.ListTasks(ctx, &registryv1.ListTasksRequest{EpicId: r.GetId()})
					require.NoError(t, err)
					require.Equal(t, me, readTask(t, list.GetTasks()[0].GetId()))
					return readEpic(t, r.GetId())
				},
				"UpdateEpic": func(t *testing.T) string {
					e, err := ben.UpdateEpic(ctx, &registryv1.UpdateEpicRequest{Epic: &registryv1.Epic{Id: epic(t).GetId(), Title: "other", Principal: forged}})
					require.NoError(t, err)
					return readEpic(t, e.GetId())
				},
				"RunEpic": func(t *testing.T) string {
					e, err := ben.RunEpic(ctx, &registryv1.RunEpicRequest{EpicId: epic(t).GetId(), Parallel: 2})
					require.NoError(t, err)
					return readEpic(t, e.GetId())
				},
				"TransitionEpic": func(t *testing.T) string {
					v := task(t)
					e, err := ben.TransitionEpic(ctx, &registryv1.TransitionEpicRequest{EpicId: v.GetEpicId(), State: registryv1.EpicState_EPIC_STATE_CANCELED})
					require.NoError(t, err)
					require.Equal(t, me, readTask(t, v.GetId()), "who canceled its task")
					return readEpic(t, e.GetId())
				},
				"CreateTask": func(t *testing.T) string {
					v, err := ben.CreateTask(ctx, &registryv1.CreateTaskRequest{Task: &registryv1.Task{EpicId: epic(t).GetId(), Title: "work", Principal: forged, Notes: notes}})
					require.NoError(t, err)
					require.Len(t, v.GetNotes(), 1)
					return readTask(t, v.GetId())
				},
				"UpdateTask": func(t *testing.T) string {
					v, err := ben.UpdateTask(ctx, &registryv1.UpdateTaskRequest{Task: &registryv1.Task{Id: task(t).GetId(), Title: "other", Principal: forged, Notes: notes}})
					require.NoError(t, err)
					require.Len(t, v.GetNotes(), 1)
					require.Equal(t, "root", v.GetNotes()[0].GetAuthor())
					return readTask(t, v.GetId())
				},
				"TransitionTask": func(t *testing.T) string {
					v, err := ben.TransitionTask(ctx, &registryv1.TransitionTaskRequest{TaskId: task(t).GetId(), State: registryv1.TaskState_TASK_STATE_CANCELED, Note: "enough"})
					require.NoError(t, err)
					require.Len(t, v.GetNotes(), 1)
					return readTask(t, v.GetId())
				},
				"DeleteEpic": func(t *testing.T) string {
					id := epic(t).GetId()
					_, err := ben.DeleteEpic(ctx, &registryv1.DeleteEpicRequest{EpicId: id})
					require.NoError(t, err)
					return deleted(t, "epic", id)
				},
				"DeleteTask": func(t *testing.T) string {
					id := task(t).GetId()
					_, err := ben.DeleteTask(ctx, &registryv1.DeleteTaskRequest{TaskId: id})
					require.NoError(t, err)
					return deleted(t, "task", id)
				},
				"SetBudget": func(t *testing.T) string {
					name, n := "task/"+task(t).GetId(), int64(5)
					b, err := ben.SetBudget(ctx, &registryv1.SetBudgetRequest{Budget: &registryv1.Budget{Name: name, Hard: &registryv1.Caps{Tokens: &n}, Principal: forged}})
					require.NoError(t, err)
					require.Equal(t, me, b.GetPrincipal())
					b, err = ada.GetBudget(ctx, &registryv1.GetBudgetRequest{Name: name})
					require.NoError(t, err)
					return b.GetPrincipal()
				},
				"CreatePrice": func(t *testing.T) string {
					_, err := ben.CreatePrice(ctx, &registryv1.CreatePriceRequest{Price: &registryv1.Price{Provider: "p", Model: "m", ValidFrom: timestamppb.Now(), Principal: forged}})
					require.NoError(t, err)
					list, err := ada.ListPrices(ctx, &registryv1.ListPricesRequest{Provider: "p"})
					require.NoError(t, err)
					return list.GetPrices()[0].GetPrincipal()
				},
				"ImportPrices": func(t *testing.T) string {
					_, err := ben.ImportPrices(ctx, &registryv1.ImportPricesRequest{Prices: []*registryv1.Price{{Provider: "i", Model: "m", ValidFrom: timestamppb.Now(), Principal: forged}}})
					require.NoError(t, err)
					list, err := ada.ListPrices(ctx, &registryv1.ListPricesRequest{Provider: "i"})
					require.NoError(t, err)
					return list.GetPrices()[0].GetPrincipal()
				},
				"RecordUsage": func(t *testing.T) string {
					_, err := ben.RecordUsage(ctx, &registryv1.RecordUsageRequest{Entries: []*registryv1.UsageEntry{{RunId: "run_ben", Model: "m", By: "root", Principal: forged}}})
					require.NoError(t, err)
					list, err := ada.ListUsage(ctx, &registryv1.ListUsageRequest{RunId: "run_ben"})
					require.NoError(t, err)
					require.Equal(t, "root", list.GetEntries()[0].GetBy())
					return list.GetEntries()[0].GetPrincipal()
				},
			}
			for _, method := range access.Methods() {
				name, ours := strings.CutPrefix(method, service)
				if !ours {
					continue
				}
				does, known := table[name]
				require.True(t, known, "say how it is told who called %s", name)
				if does != nil {
					require.Equal(t, me, does(t), name)
				}
			}

			call := &registryv1.UsageEntry{RunId: "run_1", NodeId: "n", Visit: 1, Attempt: 1, Model: "m", By: "me", Principal: forged, Source: registryv1.UsageSource_USAGE_SOURCE_EXECUTOR}
			mine, err := ada.RecordUsage(ctx, &registryv1.RecordUsageRequest{Entries: []*registryv1.UsageEntry{call}})
			require.NoError(t, err)
			require.Equal(t, registryv1.UsageSource_USAGE_SOURCE_CLIENT, mine.GetEntries()[0].GetSource())
			require.Equal(t, []string{"me", "key:ada"}, []string{mine.GetEntries()[0].GetBy(), mine.GetEntries()[0].GetPrincipal()})
			used := &registryv1.UsageEntry{RunId: "run_1", NodeId: "n", Visit: 1, Attempt: 1, Model: "m", InputTokens: 7}
			_, err = ben.RecordUsage(ctx, &registryv1.RecordUsageRequest{Entries: []*registryv1.UsageEntry{used}})
			requireError(t, err, errs.InvalidArgument, "REQUEST_ID_REUSED")
			theirs, err := as("of-services").RecordUsage(grpckit.WithNamespace(ctx, "acme"), &registryv1.RecordUsageRequest{Entries: []*registryv1.UsageEntry{used}})
			require.NoError(t, err)
			require.EqualValues(t, 7, theirs.GetEntries()[0].GetInputTokens(), "nobody took its place")
			require.Equal(t, registryv1.UsageSource_USAGE_SOURCE_EXECUTOR, theirs.GetEntries()[0].GetSource())

			// A service says within which run it calls. What a key says of that is not heard.
			causes := map[string]string{}
			for _, token := range []string{"of-services", "secret-of-ben"} {
				within := access.WithRun(grpckit.WithNamespace(ctx, "acme"), "run_7")
				e, err := as(token).CreateEpic(within, &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: token}})
				require.NoError(t, err)
				events, err := ada.ListEvents(ctx, &registryv1.ListEventsRequest{EpicId: e.GetId()})
				require.NoError(t, err)
				require.Len(t, events.GetEvents(), 1)
				causes[token] = events.GetEvents()[0].GetCausedByRunId()
			}
			require.Equal(t, map[string]string{"of-services": "run_7", "secret-of-ben": ""}, causes)
		})
	}
}
