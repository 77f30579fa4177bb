package registry_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/errs"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// large is a text of 3 KB, with letters that take more than a byte.
var large = strings.Repeat("three kilobytes — ", 171)

// largeWorld calls every RPC on epics and tasks whose texts are large wherever they may be.
type largeWorld struct {
	*testing.T
	c registryv1.RegistryServiceClient
}

func (w *largeWorld) epic() *registryv1.Epic {
	w.Helper()
	e, err := w.c.CreateEpic(w.Context(), &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "goal", Description: large, ResultSummary: large}})
	require.NoError(w, err)
	w.wholeEpic(e)
	return e
}

func (w *largeWorld) wholeEpic(e *registryv1.Epic) {
	w.Helper()
	require.Equal(w, large, e.GetDescription())
	require.Equal(w, large, e.GetResultSummary())
}

func (w *largeWorld) task() *registryv1.Task {
	w.Helper()
	v, err := w.c.CreateTask(w.Context(), &registryv1.CreateTaskRequest{Task: &registryv1.Task{EpicId: w.epic().GetId(), Title: "work",
		Description: large, ResultSummary: large, ErrorMessage: large, Requirements: &graphv1.Payload{Json: []byte(`{"big":"` + large + `"}`)},
		Notes: []*registryv1.Note{{Author: "ada", Text: large}}}})
	require.NoError(w, err)
	w.wholeTask(v)
	return v
}

func (w *largeWorld) wholeTask(v *registryv1.Task) {
	w.Helper()
	require.Equal(w, large, v.GetDescription())
	require.Equal(w, large, v.GetResultSummary())
	require.Equal(w, large, v.GetErrorMessage())
	require.JSONEq(w, `{"big":"`+large+`"}`, string(v.GetRequirements().GetJson()))
	require.NotEmpty(w, v.GetNotes())
	for _, n := range v.GetNotes() {
		require.Equal(w, large, n.GetText())
	}
}

// claimed is a task that a run works on.
func (w *largeWorld) claimed() *registryv1.Task {
	w.Helper()
	v := w.task()
	got, err := w.c.ClaimTask(w.Context(), &registryv1.ClaimTaskRequest{TaskId: v.GetId(), RunId: "run_" + v.GetId()})
	require.NoError(w, err)
	w.wholeTask(got.GetTask())
	return v
}

// TestLargeValues calls every RPC of the registry with large texts. An RPC without a case fails it.
func TestLargeValues(t *testing.T) {
	t.Parallel()
	cases := largeCases()
	t.Run("Cases/EveryRPCHasOne", func(t *testing.T) {
		var have []string
		for _, m := range registryv1.RegistryService_ServiceDesc.Methods {
			have = append(have, m.MethodName)
		}
		slices.Sort(have)
		require.Equal(t, have, slices.Sorted(maps.Keys(cases)), "each RPC has a case here")
	})
	for name, config := range onBothStores() {
		t.Run(name, func(t *testing.T) {
			c := serve(t, config(t))
			for _, name := range slices.Sorted(maps.Keys(cases)) {
				t.Run(name, func(t *testing.T) { cases[name](&largeWorld{t, c}) })
			}
		})
	}
}

func largeCases() map[string]func(*largeWorld) {
	other := strings.Repeat("another text — ", 210)
	return map[string]func(*largeWorld){
		"CreateEpic": func(w *largeWorld) {
			req := &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "goal", Description: large, ResultSummary: large}, RequestId: w.Name()}
			one, err := w.c.CreateEpic(w.Context(), req)
			require.NoError(w, err)
			two, err := w.c.CreateEpic(w.Context(), req)
			require.NoError(w, err)
			require.Empty(w, cmp.Diff(one, two, protocmp.Transform()))
			w.wholeEpic(two)
		},
		"GetEpic": func(w *largeWorld) {
			got, err := w.c.GetEpic(w.Context(), &registryv1.GetEpicRequest{EpicId: w.epic().GetId()})
			require.NoError(w, err)
			w.wholeEpic(got)
		},
		"ListEpics": func(w *largeWorld) {
			e := w.epic()
			list, err := w.c.ListEpics(w.Context(), &registryv1.ListEpicsRequest{PageSize: 1000})
			require.NoError(w, err)
			i := slices.IndexFunc(list.GetEpics(), func(x *registryv1.Epic) bool { return x.GetId() == e.GetId() })
			require.GreaterOrEqual(w, i, 0)
			w.wholeEpic(list.GetEpics()[i])
		},
		"SearchEpics": func(w *largeWorld) {
			e := w.epic()
			for _, query := range []string{"goal", ""} {
				found, err := w.c.SearchEpics(w.Context(), &registryv1.SearchEpicsRequest{Query: query, PageSize: 1000})
				require.NoError(w, err)
				i := slices.IndexFunc(found.GetMatches(), func(m *registryv1.EpicMatch) bool { return m.GetEpic().GetId() == e.GetId() })
				require.GreaterOrEqual(w, i, 0, "%q", query)
				w.wholeEpic(found.GetMatches()[i].GetEpic())
			}
		},
		"ForecastEpic": func(w *largeWorld) {
			task := w.task()
			f, err := w.c.ForecastEpic(w.Context(), &registryv1.ForecastEpicRequest{EpicId: task.GetEpicId()})
			require.NoError(w, err)
			require.Equal(w, task.GetId(), f.GetTaskForecasts()[0].GetTaskId())
			require.NotEmpty(w, f.GetTaskForecasts()[0].GetUnknown())
		},
		"ImportEpic": func(w *largeWorld) {
			document, err := json.Marshal(map[string]any{"title": "goal", "description": large, "result_summary": large, "tasks": []any{}})
			require.NoError(w, err)
			r, err := w.c.ImportEpic(w.Context(), &registryv1.ImportEpicRequest{Document: string(document)})
			require.NoError(w, err)
			w.wholeEpic(r.GetEpic())
		},
		"UpdateEpic": func(w *largeWorld) {
			got, err := w.c.UpdateEpic(w.Context(), &registryv1.UpdateEpicRequest{Epic: &registryv1.Epic{Id: w.epic().GetId(), Description: other, ResultSummary: other}})
			require.NoError(w, err)
			require.Equal(w, other, got.GetDescription())
			require.Equal(w, other, got.GetResultSummary())
		},
		"TransitionEpic": func(w *largeWorld) {
			got, err := w.c.TransitionEpic(w.Context(), &registryv1.TransitionEpicRequest{EpicId: w.epic().GetId(),
				State: registryv1.EpicState_EPIC_STATE_CANCELED, ResultSummary: other})
			require.NoError(w, err)
			require.Equal(w, other, got.GetResultSummary())
			require.Equal(w, large, got.GetDescription())
		},
		"RunEpic": func(w *largeWorld) {
			got, err := w.c.RunEpic(w.Context(), &registryv1.RunEpicRequest{EpicId: w.epic().GetId(), WorkflowSlug: strings.Repeat("w", 256)})
			require.NoError(w, err)
			require.Equal(w, large, got.GetDescription())
		},
		"DeleteEpic": func(w *largeWorld) {
			_, err := w.c.DeleteEpic(w.Context(), &registryv1.DeleteEpicRequest{EpicId: w.epic().GetId()})
			require.NoError(w, err)
		},
		"CreateTask": func(w *largeWorld) { w.task() },
		"GetTask": func(w *largeWorld) {
			got, err := w.c.GetTask(w.Context(), &registryv1.GetTaskRequest{TaskId: w.task().GetId()})
			require.NoError(w, err)
			w.wholeTask(got)
		},
		"ListTasks": func(w *largeWorld) {
			list, err := w.c.ListTasks(w.Context(), &registryv1.ListTasksRequest{EpicId: w.task().GetEpicId()})
			require.NoError(w, err)
			require.Len(w, list.GetTasks(), 1)
			w.wholeTask(list.GetTasks()[0])
		},
		"UpdateTask": func(w *largeWorld) {
			got, err := w.c.UpdateTask(w.Context(), &registryv1.UpdateTaskRequest{Task: &registryv1.Task{Id: w.task().GetId(), Description: other,
				Requirements: &graphv1.Payload{Json: []byte(`"` + other + `"`)}, Notes: []*registryv1.Note{{Text: other}}}})
			require.NoError(w, err)
			require.Equal(w, other, got.GetDescription())
			require.JSONEq(w, `"`+other+`"`, string(got.GetRequirements().GetJson()))
			require.Equal(w, other, got.GetNotes()[len(got.GetNotes())-1].GetText())
			require.Equal(w, large, got.GetErrorMessage())
		},
		"TransitionTask": func(w *largeWorld) {
			got, err := w.c.TransitionTask(w.Context(), &registryv1.TransitionTaskRequest{TaskId: w.task().GetId(), State: registryv1.TaskState_TASK_STATE_CANCELED,
				ResultSummary: large, ErrorMessage: large, Note: large})
			require.NoError(w, err)
			w.wholeTask(got)
			require.Len(w, got.GetNotes(), 2)
		},
		"DeleteTask": func(w *largeWorld) {
			_, err := w.c.DeleteTask(w.Context(), &registryv1.DeleteTaskRequest{TaskId: w.task().GetId()})
			require.NoError(w, err)
		},
		"ClaimTask": func(w *largeWorld) { w.claimed() },
		"ConfirmClaim": func(w *largeWorld) {
			v := w.claimed()
			got, err := w.c.ConfirmClaim(w.Context(), &registryv1.ConfirmClaimRequest{TaskId: v.GetId(), RunId: "run_" + v.GetId()})
			require.NoError(w, err)
			w.wholeTask(got)
		},
		"SettleClaim": func(w *largeWorld) {
			v := w.claimed()
			got, err := w.c.SettleClaim(w.Context(), &registryv1.SettleClaimRequest{TaskId: v.GetId(), RunId: "run_" + v.GetId(),
				State: registryv1.TaskState_TASK_STATE_FAILED, ResultSummary: other, ErrorMessage: other})
			require.NoError(w, err)
			require.Equal(w, other, got.GetResultSummary())
			require.Equal(w, other, got.GetErrorMessage())
			require.Equal(w, large, got.GetDescription())
		},
		"LeaseOrders": func(w *largeWorld) { w.lease() },
		"AcknowledgeOrders": func(w *largeWorld) {
			_, err := w.c.AcknowledgeOrders(w.Context(), &registryv1.AcknowledgeOrdersRequest{Orders: w.lease()})
			require.NoError(w, err)
		},
		"RecordUsage": func(w *largeWorld) { w.usage() },
		"RecordChanges": func(w *largeWorld) {
			got, err := w.c.RecordChanges(w.Context(), &registryv1.RecordChangesRequest{Runs: []*registryv1.RunChange{{RunId: strings.Repeat("r", 64), Seq: 1,
				Kind: registryv1.RunChangeKind_RUN_CHANGE_KIND_STARTED, Workflow: strings.Repeat("w", 100) + "@1", Reason: strings.Repeat("x", 128)}},
				Threads: []*registryv1.ThreadChange{{ThreadId: strings.Repeat("t", 256), Kind: registryv1.ThreadChangeKind_THREAD_CHANGE_KIND_CREATED, Sequence: math.MaxInt64,
					Agent: strings.Repeat("a", 256), Title: strings.Repeat("t", 512), UserId: strings.Repeat("u", 1024), ParentThreadId: strings.Repeat("p", 256),
					PartOf: strings.Repeat("p", 256)}}})
			require.NoError(w, err)
			require.Equal(w, int32(2), got.GetRecorded())
		},
		"PriceUsage": func(w *largeWorld) {
			got, err := w.c.PriceUsage(w.Context(), &registryv1.PriceUsageRequest{Entries: []*registryv1.UsageEntry{{RunId: "r", Model: "who", InputTokens: 1}}})
			require.NoError(w, err)
			require.Len(w, got.GetEntries(), 1)
		},
		"ListUsage": func(w *largeWorld) {
			list, err := w.c.ListUsage(w.Context(), &registryv1.ListUsageRequest{TaskId: w.usage().GetId()})
			require.NoError(w, err)
			require.Len(w, list.GetEntries(), 1)
		},
		"ReportUsage": func(w *largeWorld) {
			task := w.usage().GetId()
			for _, by := range []registryv1.ReportKey{registryv1.ReportKey_REPORT_KEY_NODE, registryv1.ReportKey_REPORT_KEY_MODEL} {
				got, err := w.c.ReportUsage(w.Context(), &registryv1.ReportUsageRequest{TaskId: task, By: []registryv1.ReportKey{by, registryv1.ReportKey_REPORT_KEY_DAY}})
				require.NoError(w, err)
				require.Len(w, got.GetRows(), 1)
				require.EqualValues(w, 3, got.GetTotal().GetInputTokens())
			}
		},
		"GetNamespaceUsage": func(w *largeWorld) {
			w.usage()
			got, err := w.c.GetNamespaceUsage(w.Context(), &registryv1.GetNamespaceUsageRequest{})
			require.NoError(w, err)
			require.Positive(w, got.GetCalls())
		},
		"ListEvents": func(w *largeWorld) {
			v := w.task()
			list, err := w.c.ListEvents(w.Context(), &registryv1.ListEventsRequest{EpicId: v.GetEpicId()})
			require.NoError(w, err)
			require.Len(w, list.GetEvents(), 3)
			w.wholeEpic(list.GetEvents()[0].GetEpicCreated())
			w.wholeTask(list.GetEvents()[1].GetTaskCreated())
		},
		"CreatePrice": func(w *largeWorld) { w.price("create") },
		"SetBudget":   func(w *largeWorld) { w.budget() },
		"GetBudget": func(w *largeWorld) {
			b := w.budget()
			got, err := w.c.GetBudget(w.Context(), &registryv1.GetBudgetRequest{Name: b.GetName()})
			require.NoError(w, err)
			require.Empty(w, cmp.Diff(b, got, protocmp.Transform()))
		},
		"ReserveUsage": func(w *largeWorld) {
			_, call := w.reserved(1)
			call.Visit = 3
			req := &registryv1.ReserveUsageRequest{Calls: []*registryv1.UsageEntry{call}}
			most := int64(1 << 60)
			for i := range 64 {
				req.Runs = append(req.Runs, &registryv1.RunBudget{RunId: fmt.Sprintf("%064d", i), Hard: &registryv1.Caps{Tokens: &most}, Calls: []int32{0}})
			}
			got, err := w.c.ReserveUsage(w.Context(), req)
			require.NoError(w, err)
			require.Nil(w, got.GetReservations()[0].GetRefusal())
			req.Runs[63].Calls = []int32{1}
			_, err = w.c.ReserveUsage(w.Context(), req)
			requireError(w.T, err, errs.InvalidArgument, "CALL_UNKNOWN")
			req.Runs[63].Calls = []int32{0, 0}
			_, err = w.c.ReserveUsage(w.Context(), req)
			requireError(w.T, err, errs.InvalidArgument, "TOO_MANY_RUNS")
			req.Runs, req.Unlimited = nil, []int32{1}
			_, err = w.c.ReserveUsage(w.Context(), req)
			requireError(w.T, err, errs.InvalidArgument, "CALL_UNKNOWN")
			req.Unlimited, req.Incarnations = nil, []int64{1, 1}
			_, err = w.c.ReserveUsage(w.Context(), req)
			requireError(w.T, err, errs.InvalidArgument, "INCARNATIONS_INVALID")
		},
		"ReleaseUsage": func(w *largeWorld) {
			name, call := w.reserved(2)
			_, err := w.c.ReleaseUsage(w.Context(), &registryv1.ReleaseUsageRequest{Calls: []*registryv1.UsageEntry{call}})
			require.NoError(w, err)
			got, err := w.c.GetBudget(w.Context(), &registryv1.GetBudgetRequest{Name: name})
			require.NoError(w, err)
			require.Zero(w, got.GetReservedTokens())
		},
		"ImportPrices": func(w *largeWorld) {
			req := &registryv1.ImportPricesRequest{}
			for i := range 1000 {
				req.Prices = append(req.Prices, &registryv1.Price{Provider: "import", Model: strings.Repeat("m", 250) + strconv.Itoa(i), ValidFrom: timestamppb.New(time.Unix(0, 0))})
			}
			for _, added := range []int32{1000, 0} {
				got, err := w.c.ImportPrices(w.Context(), req)
				require.NoError(w, err)
				require.Equal(w, []int32{added, 1000 - added}, []int32{got.GetAdded(), got.GetUnchanged()})
			}
		},
		"ListPrices": func(w *largeWorld) {
			w.price("list")
			list, err := w.c.ListPrices(w.Context(), &registryv1.ListPricesRequest{Provider: "list"})
			require.NoError(w, err)
			require.Len(w, list.GetPrices(), 1)
		},
	}
}

// lease is the order to cancel a run whose large task was canceled. A database of its own leases it.
func (w *largeWorld) lease() []*registryv1.Order {
	w.Helper()
	v := w.task()
	_, err := w.c.ClaimTask(w.Context(), &registryv1.ClaimTaskRequest{TaskId: v.GetId(), RunId: "run_" + v.GetId(), Database: v.GetId()})
	require.NoError(w, err)
	_, err = w.c.TransitionTask(w.Context(), &registryv1.TransitionTaskRequest{TaskId: v.GetId(), State: registryv1.TaskState_TASK_STATE_CANCELED, Note: large})
	require.NoError(w, err)
	got, err := w.c.LeaseOrders(w.Context(), &registryv1.LeaseOrdersRequest{Database: v.GetId()})
	require.NoError(w, err)
	require.Len(w, got.GetOrders(), 1)
	return got.GetOrders()
}

// usage books a call of a large task.
func (w *largeWorld) usage() *registryv1.Task {
	w.Helper()
	v := w.task()
	_, err := w.c.RecordUsage(w.Context(), &registryv1.RecordUsageRequest{Entries: []*registryv1.UsageEntry{{RunId: "run_" + v.GetId(), NodeId: strings.Repeat("n", 512),
		TaskId: v.GetId(), Model: "who", InputTokens: 3}}})
	require.NoError(w, err)
	return v
}

func (w *largeWorld) price(provider string) {
	w.Helper()
	_, err := w.c.CreatePrice(w.Context(), &registryv1.CreatePriceRequest{Price: &registryv1.Price{Provider: provider, Model: strings.Repeat("m", 256), ValidFrom: timestamppb.Now()}})
	require.NoError(w, err)
}

// budget caps the epic of a large task.
func (w *largeWorld) budget() *registryv1.Budget {
	w.Helper()
	cap64 := int64(1 << 50)
	b, err := w.c.SetBudget(w.Context(), &registryv1.SetBudgetRequest{Budget: &registryv1.Budget{Name: "epic/" + w.epic().GetId(), Hard: &registryv1.Caps{Tokens: &cap64}}})
	require.NoError(w, err)
	return b
}

// reserved is a call with long names that has a reservation, and the budget that it has it from.
func (w *largeWorld) reserved(visit int32) (string, *registryv1.UsageEntry) {
	w.Helper()
	b := w.budget()
	call := &registryv1.UsageEntry{RunId: strings.Repeat("r", 64), NodeId: strings.Repeat("n", 512), Visit: visit, EpicId: strings.TrimPrefix(b.GetName(), "epic/"),
		Provider: strings.Repeat("p", 128), Model: strings.Repeat("m", 256), InputTokens: 1 << 40, OutputTokens: 7}
	got, err := w.c.ReserveUsage(w.Context(), &registryv1.ReserveUsageRequest{Calls: []*registryv1.UsageEntry{call}})
	require.NoError(w, err)
	require.True(w, got.GetReservations()[0].GetCapped())
	require.Nil(w, got.GetReservations()[0].GetRefusal())
	after, err := w.c.GetBudget(w.Context(), &registryv1.GetBudgetRequest{Name: b.GetName()})
	require.NoError(w, err)
	require.EqualValues(w, 1<<40+7, after.GetReservedTokens())
	return b.GetName(), call
}
