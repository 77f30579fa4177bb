package command

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/turns"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/attempttoken"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// requireRefused compares the kind and the reason of an error.
func requireRefused(t *testing.T, err error, kind errs.Kind, reason string) *errs.Error {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, reason, errs.ReasonOf(err), "%v", err)
	require.True(t, errs.Is(err, kind), "got %v", err)
	return errs.From(err)
}

func TestStartRequestEndsAt(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	for _, c := range []struct {
		name string
		req  StartRequest
		want time.Time
	}{
		{"NoLimit", StartRequest{}, time.Time{}},
		{"Timeout", StartRequest{Timeout: time.Hour}, in(time.Hour)},
		{"TimeoutFromALaterStart", StartRequest{Timeout: time.Hour, StartTime: in(2 * time.Hour)}, in(3 * time.Hour)},
		{"TimeoutFromAPastStart", StartRequest{Timeout: time.Hour, StartTime: in(-2 * time.Hour)}, in(time.Hour)},
		{"Deadline", StartRequest{Deadline: in(time.Minute)}, in(time.Minute)},
		{"TheEarlierIsTheDeadline", StartRequest{Timeout: time.Hour, Deadline: in(time.Minute)}, in(time.Minute)},
		{"TheEarlierIsTheTimeout", StartRequest{Timeout: time.Minute, Deadline: in(time.Hour)}, in(time.Minute)},
		{"InMicroseconds", StartRequest{Deadline: in(1500 * time.Nanosecond)}, in(time.Microsecond)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, c.req.EndsAt(now))
		})
	}
}

func TestStartRequestPropagates(t *testing.T) {
	t.Parallel()
	attachments := []byte(`[{"id":"a"}]`)
	t.Run("WithoutAttachmentsTheInput", func(t *testing.T) {
		t.Parallel()
		req := StartRequest{Input: workgraph.Input{Named: map[string]json.RawMessage{"city": json.RawMessage(`"Rome"`)}}}
		require.Equal(t, req.Input, req.Propagates())
	})
	t.Run("AttachmentsAreANamedArgument", func(t *testing.T) {
		t.Parallel()
		req := StartRequest{Attachments: attachments, Input: workgraph.Input{Named: map[string]json.RawMessage{"city": json.RawMessage(`"Rome"`)}}}
		require.Equal(t, map[string]json.RawMessage{"city": json.RawMessage(`"Rome"`), "attachments": attachments}, req.Propagates().Named)
		require.Len(t, req.Input.Named, 1, "the input of the run stays as it is")
	})
	t.Run("AttachmentsAlone", func(t *testing.T) {
		t.Parallel()
		req := StartRequest{Attachments: attachments}
		require.Equal(t, map[string]json.RawMessage{"attachments": attachments}, req.Propagates().Named)
	})
	t.Run("ArgumentOfTheSameNameWins", func(t *testing.T) {
		t.Parallel()
		own := json.RawMessage(`"mine"`)
		req := StartRequest{Attachments: attachments, Input: workgraph.Input{Named: map[string]json.RawMessage{"attachments": own}}}
		require.Equal(t, own, req.Propagates().Named["attachments"])
	})
}

func TestCheckLabels(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range maxLabels + 1 {
		many["k"+strings.Repeat("x", i%60)+string(rune('a'+i%26))] = ""
	}
	require.Greater(t, len(many), maxLabels)
	for _, c := range []struct {
		name   string
		labels map[string]string
		fault  string
	}{
		{"None", nil, ""},
		{"Plain", map[string]string{"team": "blue", "a.b/c_d-1": "", "0": "é"}, ""},
		{"LongestKeyAndValue", map[string]string{strings.Repeat("k", maxLabelKey): strings.Repeat("é", maxLabelLength)}, ""},
		{"EmptyKey", map[string]string{"": "x"}, "is no key of a label"},
		{"UpperCase", map[string]string{"Team": "x"}, "is no key of a label"},
		{"SignAtTheBeginning", map[string]string{"-a": "x"}, "is no key of a label"},
		{"SignAtTheEnd", map[string]string{"a.": "x"}, "is no key of a label"},
		{"LongKey", map[string]string{strings.Repeat("k", maxLabelKey+1): "x"}, "is no key of a label"},
		{"LongValue", map[string]string{"a": strings.Repeat("é", maxLabelLength+1)}, "at most 256 characters"},
		{"NUL", map[string]string{"a": "\x00"}, "NUL not among them"},
		{"NotUTF8", map[string]string{"a": "\xff"}, "at most 256 characters"},
		{"TooMany", many, "a run has 64 labels at most"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := CheckLabels(c.labels)
			if c.fault == "" {
				require.NoError(t, err)
				return
			}
			e := requireRefused(t, err, errs.InvalidArgument, ReasonLabelsInvalid)
			require.Contains(t, e.Message, c.fault)
			require.Equal(t, "labels", e.Violations[0].Field)
		})
	}
}

func TestCheckBudget(t *testing.T) {
	t.Parallel()
	n := func(v int64) *int64 { return &v }
	require.NoError(t, CheckBudget(nil))
	require.NoError(t, CheckBudget(&workgraph.Budget{Tokens: n(0), NanoUSD: n(1)}))
	requireRefused(t, CheckBudget(&workgraph.Budget{Tokens: n(-1)}), errs.InvalidArgument, ReasonBudgetInvalid)

	e := requireRefused(t, budgetUsedUp("run_1", &workgraph.Budget{Tokens: n(10)}, workgraph.Spent{Tokens: 12}), errs.FailedPrecondition, workgraph.ReasonBudget)
	require.Equal(t, []string{"12", "10"}, []string{e.Meta["used_tokens"], e.Meta["budget_tokens"]})
	require.NotContains(t, e.Meta, "used_nano_usd", "there is no such cap")
	e = requireRefused(t, budgetUsedUp("run_1", &workgraph.Budget{NanoUSD: n(5)}, workgraph.Spent{NanoUSD: 7}), errs.FailedPrecondition, workgraph.ReasonBudget)
	require.Equal(t, []string{"7", "5"}, []string{e.Meta["used_nano_usd"], e.Meta["budget_nano_usd"]})
	require.Contains(t, e.HintText(), "run_1")
}

func TestCheckPayload(t *testing.T) {
	t.Parallel()
	h := &Handler{maxPayload: 16}
	for _, c := range []struct{ name, raw, reason string }{
		{"None", ``, ""},
		{"AtTheLimit", `"` + strings.Repeat("x", 14) + `"`, ""},
		{"OverTheLimit", `"` + strings.Repeat("x", 15) + `"`, journal.ReasonPayloadTooLarge},
		{"NotJSON", `{"a":`, "PAYLOAD_INVALID"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, err := range []error{h.checkPayload("message", json.RawMessage(c.raw)), h.checkSignal(&Signal{Name: "go", Payload: json.RawMessage(c.raw)})} {
				if c.reason == "" {
					require.NoError(t, err)
				} else {
					requireRefused(t, err, errs.InvalidArgument, c.reason)
				}
			}
		})
	}
	for _, name := range []string{"", strings.Repeat("x", 257)} {
		requireRefused(t, h.checkSignal(&Signal{Name: name}), errs.InvalidArgument, ReasonSignalInvalid)
	}
}

func TestCheckAnswer(t *testing.T) {
	t.Parallel()
	schema := json.RawMessage(`{"type":"object","properties":{"color":{"enum":["red","blue"]}},"required":["color"]}`)
	approve := json.RawMessage(`{"amount":7}`)
	for _, c := range []struct {
		name      string
		interrupt journal.Interrupt
		answer    AnswerRequest
		reason    string
		field     string
		want      string
	}{
		{"WithoutASchema", journal.Interrupt{}, AnswerRequest{Answer: json.RawMessage(`"red"`)}, "", "", `"red"`},
		{"NothingIsNull", journal.Interrupt{}, AnswerRequest{}, "", "", `null`},
		{"Fits", journal.Interrupt{Schema: schema}, AnswerRequest{Answer: json.RawMessage(`{"color":"red"}`)}, "", "", `{"color":"red"}`},
		{"DoesNotFit", journal.Interrupt{Schema: schema}, AnswerRequest{Answer: json.RawMessage(`{"color":"green"}`)}, ReasonAnswerInvalid, "answer/color", ""},
		{"Missing", journal.Interrupt{Schema: schema}, AnswerRequest{}, ReasonAnswerInvalid, "answer", ""},
		{"UnusableSchema", journal.Interrupt{Schema: json.RawMessage(`{"type":7}`)}, AnswerRequest{Answer: json.RawMessage(`1`)}, "", "", `1`},
		{"TooLarge", journal.Interrupt{}, AnswerRequest{Answer: json.RawMessage(`"` + strings.Repeat("x", 64) + `"`)}, journal.ReasonPayloadTooLarge, "", ""},
		{"DecisionOnAQuestion", journal.Interrupt{}, AnswerRequest{Decision: workgraph.Approved}, ReasonAnswerInvalid, "decision", ""},
		{"HashOnAQuestion", journal.Interrupt{}, AnswerRequest{ApproveHash: "x"}, ReasonAnswerInvalid, "approve_hash", ""},
		{"ApprovalWithoutADecision", journal.Interrupt{Approve: approve}, AnswerRequest{Answer: json.RawMessage(`true`)}, ReasonAnswerInvalid, "decision", ""},
		{"Approval", journal.Interrupt{Approve: approve}, AnswerRequest{Decision: workgraph.Rejected}, "", "", ``},
		{"ApprovalOfTheValue", journal.Interrupt{Approve: approve, Binds: "b"},
			AnswerRequest{Decision: workgraph.Approved, ApproveHash: workgraph.ApproveHash(json.RawMessage(`{ "amount": 7 }`), "b")}, "", "", ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := &Handler{maxPayload: 64, computing: turns.New(1)}
			c.interrupt.ID = "int_1"
			err := h.checkAnswer(t.Context(), &c.interrupt, &c.answer)
			if c.reason == "" {
				require.NoError(t, err)
				require.Equal(t, c.want, string(c.answer.Answer))
				return
			}
			e := requireRefused(t, err, errs.InvalidArgument, c.reason)
			if c.field != "" {
				require.Equal(t, c.field, e.Violations[0].Field)
				require.Equal(t, "int_1", e.Meta["interrupt_id"])
			}
		})
	}
	t.Run("ApprovalOfAnotherValue", func(t *testing.T) {
		t.Parallel()
		h := &Handler{maxPayload: 64}
		q := journal.Interrupt{Approve: approve, Binds: "b"}
		for _, hash := range []string{workgraph.ApproveHash(approve, "other"), workgraph.ApproveHash(json.RawMessage(`{"amount":8}`), "b")} {
			e := requireRefused(t, h.checkAnswer(t.Context(), &q, &AnswerRequest{Decision: workgraph.Approved, ApproveHash: hash}), errs.FailedPrecondition, ReasonApproveHash)
			require.Equal(t, workgraph.ApproveHash(approve, "b"), e.Meta["approve_hash"])
		}
	})
}

func TestVerifySender(t *testing.T) {
	t.Parallel()
	keys := attempttoken.NewKeys([]byte("key"))
	token := func(run, node string) string {
		return keys.Sign(attempttoken.Token{Namespace: "acme", RunID: run, Node: node, Visit: 1, Attempt: 1})
	}
	for _, c := range []struct {
		name   string
		req    MessageRequest
		state  journal.State
		kind   errs.Kind
		reason string
	}{
		{"Outside", MessageRequest{From: "ada"}, journal.StateRunning, 0, ""},
		{"NameOfANode", MessageRequest{From: "ask"}, journal.StateRunning, errs.PermissionDenied, ReasonSenderReserved},
		{"NameOfTheInput", MessageRequest{From: workgraph.InputSender}, journal.StateRunning, errs.PermissionDenied, ReasonSenderReserved},
		{"NameOfAnExpandedNode", MessageRequest{From: "ask#1/x"}, journal.StateRunning, errs.PermissionDenied, ReasonSenderReserved},
		{"TokenOfAnotherRun", MessageRequest{From: "ask", Token: token("run_2", "ask")}, journal.StateRunning, errs.PermissionDenied, ReasonSenderReserved},
		{"TokenOfAnotherNode", MessageRequest{From: "ask", Token: token("run_1", "pay")}, journal.StateRunning, errs.PermissionDenied, ReasonSenderReserved},
		{"TokenThatIsNone", MessageRequest{From: "ask", Token: "t1.x"}, journal.StateRunning, errs.InvalidArgument, attempttoken.ReasonInvalid},
		{"TokenAfterTheEnd", MessageRequest{From: "ask", Token: token("run_1", "ask")}, journal.StateCompleted, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := &Handler{tokens: keys}
			c.req.Namespace, c.req.RunID = "acme", "run_1"
			call, err := h.verifySender(t.Context(), journal.Run{ID: "run_1", Status: journal.Status{State: c.state}}, map[string]workgraph.Node{"ask": {ID: "ask"}, "pay": {ID: "pay"}}, &c.req)
			if c.reason != "" {
				requireRefused(t, err, c.kind, c.reason)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.req.Token != "", call.Node == c.req.From, "a call of the node, or nobody of the run")
		})
	}
}

func TestAmendRefusal(t *testing.T) {
	t.Parallel()
	t.Run("NamesEveryPlace", func(t *testing.T) {
		t.Parallel()
		err := amendRefusal("run_1", &workgraph.AmendRefused{Refusals: workgraph.Faults{
			{Code: "ENDED", Node: "a", Field: "actor", Message: "it has ended", Hint: "leave it"}, {Code: "ENDED", From: "a", To: "b", Message: "it was decided"}}})
		e := requireRefused(t, err, errs.FailedPrecondition, ReasonAmendRefused)
		require.Contains(t, e.Message, "in 2 places")
		require.Equal(t, "leave it", e.HintText())
		require.Equal(t, "graph.nodes[a].actor", e.Violations[0].Field)
		require.Equal(t, "graph.edges[a -> b]", e.Violations[1].Field)
	})
	t.Run("EndedRun", func(t *testing.T) {
		t.Parallel()
		requireRefused(t, amendRefusal("run_1", workgraph.ErrEnded), errs.FailedPrecondition, journal.ReasonRunEnded)
	})
	t.Run("AnythingElse", func(t *testing.T) {
		t.Parallel()
		e := requireRefused(t, amendRefusal("run_1", errors.New("it is draining")), errs.FailedPrecondition, ReasonAmendRefused)
		require.Contains(t, e.Message, "it is draining")
	})
	t.Run("AnotherRevision", func(t *testing.T) {
		t.Parallel()
		e := requireRefused(t, revisionMismatch("run_1", 1, 3), errs.Conflict, ReasonRevisionMismatch)
		require.Equal(t, "3", e.Meta["graph_revision"])
	})
}

func TestApprovedElsewhere(t *testing.T) {
	t.Parallel()
	row := journal.Run{ID: "run_2"}
	before := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "ok"}}}
	after := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "other"}}}
	require.NoError(t, refuseApproved(row, ReasonAmendRefused))
	require.NoError(t, checkApproved(row, before, after), "nothing was approved")

	m, err := json.Marshal(record.Metadata{Approved: &record.Approval{Run: "run_1", At: workgraph.Ref{Node: "ask", Visit: 1}}})
	require.NoError(t, err)
	row.Metadata = m
	e := requireRefused(t, refuseApproved(row, ReasonAmendRefused), errs.FailedPrecondition, ReasonAmendRefused)
	require.Contains(t, e.HintText(), "fork run run_1 from ask")
	requireRefused(t, checkApproved(row, before, after), errs.FailedPrecondition, ReasonForkChangesApproved)
	require.NoError(t, checkApproved(row, before, before.Clone()), "the graph is the same")
}

func TestRefusedCommand(t *testing.T) {
	t.Parallel()
	pending := journal.StateRefuses("run_1", journal.CommandPause, journal.StatePending)
	requireRefused(t, refusedCommand(pending), errs.FailedPrecondition, ReasonNotStarted)
	for _, err := range []error{nil, journal.StateRefuses("run_1", journal.CommandPause, journal.StateCompleted), journal.RunEnded("run_1")} {
		require.Equal(t, err, refusedCommand(err))
	}
}

func TestBulkNarrow(t *testing.T) {
	t.Parallel()
	can := []journal.State{journal.StateFailed, journal.StateCanceled}
	for _, c := range []struct {
		name   string
		filter journal.Filter
		want   []journal.State
		any    bool
	}{
		{"WithoutStates", journal.Filter{UserID: "ada"}, can, true},
		{"Some", journal.Filter{States: []journal.State{journal.StateRunning, journal.StateFailed}}, can[:1], true},
		{"None", journal.Filter{States: []journal.State{journal.StateRunning}}, nil, false},
		{"EmptyFilterIsRefusedLater", journal.Filter{}, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := BulkRequest{Filter: c.filter}
			require.Equal(t, c.any, r.narrow(can))
			require.Equal(t, c.want, r.Filter.States)
		})
	}
	t.Run("EveryFieldMakesItNotEmpty", func(t *testing.T) {
		t.Parallel()
		require.True(t, (&BulkRequest{}).empty())
		for _, f := range []journal.Filter{{States: can}, {TaskID: "x"}, {UserID: "x"}, {Labels: map[string]string{"a": "b"}}, {CreatedAfter: time.Unix(1, 0)},
			{CreatedBefore: time.Unix(1, 0)}, {ScheduleID: "x"}, {Reason: "x"}} {
			require.False(t, (&BulkRequest{Filter: f}).empty(), "%+v", f)
		}
	})
	t.Run("EmptyFilterIsRefused", func(t *testing.T) {
		t.Parallel()
		_, err := (&Handler{}).bulk(t.Context(), BulkRequest{}, nil, nil)
		requireRefused(t, err, errs.InvalidArgument, ReasonFilterEmpty)
	})
}

func TestSameOutcome(t *testing.T) {
	t.Parallel()
	values := func(raw ...string) *workgraph.Outcome {
		o := &workgraph.Outcome{}
		for _, v := range raw {
			o.Values = append(o.Values, json.RawMessage(v))
		}
		return o
	}
	require.True(t, sameOutcome(nil, nil))
	require.True(t, sameOutcome(values(`{"a": 1}`), values(`{"a":1}`)), "white space does not matter")
	require.False(t, sameOutcome(values(`1`), nil))
	require.False(t, sameOutcome(values(`1`), values(`2`)))
	require.False(t, sameOutcome(values(`1`), values(`1`, `1`)))
	declined := workgraph.Errorf(workgraph.Permanent, "DECLINED", "no")
	require.True(t, sameError(nil, nil))
	require.True(t, sameError(declined, workgraph.Errorf(workgraph.Permanent, "DECLINED", "no")))
	require.False(t, sameError(declined, nil))
	require.False(t, sameError(declined, workgraph.Errorf(workgraph.NotPerformed, "DECLINED", "no")))
	require.False(t, sameError(declined, workgraph.Errorf(workgraph.Permanent, "DECLINED", "never")))
}

func TestUnapplied(t *testing.T) {
	t.Parallel()
	require.Empty(t, Unapplied(nil))
	require.Equal(t, []string{string(journal.CommandCancel), string(journal.CommandSignal)},
		Unapplied([]journal.CommandKind{journal.CommandCancel, journal.CommandChildEnded, journal.CommandSignal}), "ends of children are not the client's")
}

func FuzzCheckLabels(f *testing.F) {
	f.Add("team", "blue")
	f.Add("a.b/c_d-1", "\x00")
	f.Add("", "\xff")
	f.Fuzz(func(t *testing.T, key, value string) {
		err := CheckLabels(map[string]string{key: value})
		plain := len(key) >= 1 && len(key) <= maxLabelKey && strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789._/-") == "" &&
			!slices.Contains([]byte("._/-"), key[0]) && !slices.Contains([]byte("._/-"), key[len(key)-1])
		if !plain {
			requireRefused(t, err, errs.InvalidArgument, ReasonLabelsInvalid)
		}
		if err == nil {
			require.NotContains(t, value, "\x00")
		}
	})
}

func TestStartOf(t *testing.T) {
	t.Parallel()
	row := journal.Run{ID: "run_1", Namespace: "acme", TaskID: "tk_1", Labels: map[string]string{"team": "blue"}, Priority: 2,
		Args: []byte(`[1]`), Named: []byte(`{"city":"Rome"}`), Context: []byte(`{"x":1}`)}
	t.Run("TakesTheParameters", func(t *testing.T) {
		t.Parallel()
		req, err := startOf(row)
		require.NoError(t, err)
		require.Equal(t, "tk_1", req.TaskID)
		require.Equal(t, 2, req.Priority)
		require.Equal(t, []json.RawMessage{json.RawMessage(`1`)}, req.Input.Args)
		require.Equal(t, []string{"city"}, slices.Collect(maps.Keys(req.Input.Named)))
		require.Nil(t, req.Graph)
		require.Empty(t, req.BusinessKey)
		require.Empty(t, req.ID)
	})
	for name, spoil := range map[string]func(*journal.Run){
		"Args": func(r *journal.Run) { r.Args = []byte(`{`) }, "Named": func(r *journal.Run) { r.Named = []byte(`[]`) }, "Metadata": func(r *journal.Run) { r.Metadata = []byte(`{`) },
	} {
		t.Run("Unreadable/"+name, func(t *testing.T) {
			t.Parallel()
			r := row
			spoil(&r)
			_, err := startOf(r)
			require.Error(t, err)
		})
	}
}
