package rpc

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/attempttoken"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/workgraph"
)

var (
	at  = time.Date(2026, 5, 1, 10, 0, 0, 5000, time.UTC)
	ref = workgraph.Ref{Node: "n", Visit: 2}
)

func durable(ev workgraph.Event) feed.Event {
	ev.Seq, ev.At = 9, at
	return feed.Event{RunID: "run_1", RootID: "run_0", Durable: &record.Durable{Event: ev, StartTime: at.Add(-time.Second), Actor: "llm"}}
}

func TestEvent(t *testing.T) {
	raw := func(s string) []json.RawMessage { return []json.RawMessage{json.RawMessage(s)} }
	visit := &executorv1.VisitRef{NodeId: "n", Visit: 2}
	fail := workgraph.Errorf(workgraph.Retryable, "BUSY", "later")
	fail.Usage = []workgraph.Usage{{InputTokens: 4}}
	runError := &executorv1.RunError{Type: executorv1.ErrorType_ERROR_TYPE_RETRYABLE, Reason: "BUSY", Message: "later", NodeId: "n", Visit: 2}
	ended := func(change func(*executorv1.AttemptEnded)) *executorv1.RunEvent {
		m := &executorv1.AttemptEnded{Visit: visit, Attempt: 1, StartTime: stamp(at.Add(-time.Second)), Actor: "llm"}
		change(m)
		return &executorv1.RunEvent{Event: &executorv1.RunEvent_AttemptEnded{AttemptEnded: m}}
	}
	step := func(op workgraph.Op, d *workgraph.Detail) []workgraph.Step {
		return []workgraph.Step{{Op: op, Node: "n", Visit: 2, Detail: d}, {Op: workgraph.OpEnter, Node: "next", Visit: 1}, {Op: workgraph.OpSkip, Node: "not", Visit: 1}}
	}
	for name, c := range map[string]struct {
		ev   workgraph.Event
		want *executorv1.RunEvent
	}{
		"RunStarted": {workgraph.Event{Kind: workgraph.RunStarted, Version: 1, Steps: step(workgraph.OpEdge, nil)},
			&executorv1.RunEvent{Event: &executorv1.RunEvent_RunStarted{RunStarted: &executorv1.RunStarted{GraphHash: "hash", MachineVersion: 1, StartNodes: []string{"next"}}}}},
		"Intent": {workgraph.Event{Kind: workgraph.AttemptStarted, Ref: ref, Attempt: 3, Generation: 2},
			&executorv1.RunEvent{Event: &executorv1.RunEvent_AttemptIntended{AttemptIntended: &executorv1.AttemptIntended{Visit: visit, Attempt: 3, EffectKey: "run_1/n/2/0/2"}}}},
		"IntentWithoutGeneration": {workgraph.Event{Kind: workgraph.AttemptStarted, Ref: ref, Attempt: 1},
			&executorv1.RunEvent{Event: &executorv1.RunEvent_AttemptIntended{AttemptIntended: &executorv1.AttemptIntended{Visit: visit, Attempt: 1}}}},
		"Completed": {workgraph.Event{Kind: workgraph.AttemptEnded, Ref: ref, Attempt: 1, Outcome: &workgraph.Outcome{Values: raw(`1`), Usage: []workgraph.Usage{{OutputTokens: 2}}},
			Steps: step(workgraph.OpComplete, &workgraph.Detail{Values: raw(`2`)})},
			ended(func(m *executorv1.AttemptEnded) {
				m.State, m.Values = executorv1.VisitState_VISIT_STATE_COMPLETED, []*graphv1.Payload{{Json: []byte(`2`)}}
				m.Usage = &executorv1.Usage{OutputTokens: 2, Calls: 1, UnpricedCalls: 1}
				m.ReadyNodes = []string{"next"}
			})},
		"Retried": {workgraph.Event{Kind: workgraph.AttemptEnded, Ref: ref, Attempt: 1, Error: fail, Steps: step(workgraph.OpRetry, &workgraph.Detail{Due: at})},
			ended(func(m *executorv1.AttemptEnded) {
				m.State, m.Error, m.RetryTime = executorv1.VisitState_VISIT_STATE_BACKING_OFF, runError, stamp(at)
				m.Usage = &executorv1.Usage{InputTokens: 4, Calls: 1, UnpricedCalls: 1}
				m.ReadyNodes = []string{"next"}
			})},
		"Unclear": {workgraph.Event{Kind: workgraph.AttemptEnded, Ref: ref, Attempt: 1, Error: workgraph.Errorf(workgraph.Unknown, "LOST", ""),
			Steps: []workgraph.Step{{Op: workgraph.OpReconcile, Node: "n", Visit: 2}}},
			ended(func(m *executorv1.AttemptEnded) {
				m.State = executorv1.VisitState_VISIT_STATE_NEEDS_RECONCILIATION
				m.Error = &executorv1.RunError{Type: executorv1.ErrorType_ERROR_TYPE_UNKNOWN, Reason: "LOST", NodeId: "n", Visit: 2}
			})},
		"Waiting": {workgraph.Event{Kind: workgraph.AttemptEnded, Ref: ref, Attempt: 1, Outcome: &workgraph.Outcome{Values: raw(`1`)},
			Steps: []workgraph.Step{{Op: workgraph.OpWait, Node: "n", Visit: 2, Detail: &workgraph.Detail{Due: at}}}},
			ended(func(m *executorv1.AttemptEnded) { m.State = executorv1.VisitState_VISIT_STATE_WAITING })},
		"Timer":  {workgraph.Event{Kind: workgraph.TimerFired, Ref: ref}, &executorv1.RunEvent{Event: &executorv1.RunEvent_TimerFired{TimerFired: &executorv1.TimerFired{Visit: visit}}}},
		"Resume": {workgraph.Event{Kind: workgraph.RunResumed}, &executorv1.RunEvent{Event: &executorv1.RunEvent_RunResumed{RunResumed: &executorv1.RunResumed{}}}},
		"Cancel": {workgraph.Event{Kind: workgraph.CancelRequested, Reason: "why"},
			&executorv1.RunEvent{Event: &executorv1.RunEvent_CancelRequested{CancelRequested: &executorv1.CancelRequested{Reason: "why"}}}},
		"Reconciled": {workgraph.Event{Kind: workgraph.Reconciled, Ref: ref, Error: workgraph.Errorf(workgraph.NotPerformed, "", ""), By: "ada",
			Steps: []workgraph.Step{{Op: workgraph.OpStart, Node: "n", Visit: 2}}},
			&executorv1.RunEvent{Event: &executorv1.RunEvent_Reconciled{Reconciled: &executorv1.Reconciled{Visit: visit, By: "ada",
				State: executorv1.VisitState_VISIT_STATE_HELD}}}},
		"ReconciledPerformed": {workgraph.Event{Kind: workgraph.Reconciled, Ref: ref, Outcome: &workgraph.Outcome{Values: raw(`1`)},
			Steps: []workgraph.Step{{Op: workgraph.OpComplete, Node: "n", Visit: 2}}},
			&executorv1.RunEvent{Event: &executorv1.RunEvent_Reconciled{Reconciled: &executorv1.Reconciled{Visit: visit, Performed: true,
				State: executorv1.VisitState_VISIT_STATE_COMPLETED}}}},
		"Failed": {workgraph.Event{Kind: workgraph.RunEnded, End: &workgraph.RunEnd{Status: workgraph.StatusFailed, Reason: workgraph.ReasonNodeFailed, Failed: &ref, Error: fail}},
			&executorv1.RunEvent{Event: &executorv1.RunEvent_RunEnded{RunEnded: &executorv1.RunEnded{State: executorv1.RunState_RUN_STATE_FAILED,
				Reason: workgraph.ReasonNodeFailed, Error: runError}}}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.Seq, c.want.Time, c.want.RunId, c.want.RootRunId = 9, stamp(at), "run_1", "run_0"
			require.Empty(t, cmp.Diff(c.want, eventMessage(durable(c.ev), "acme", "hash", attempttoken.Keys{}), protocmp.Transform()))
		})
	}
	changes := map[string]struct {
		ev   workgraph.Event
		want []*executorv1.VisitChange
	}{
		"SkippedStart": {workgraph.Event{Kind: workgraph.RunStarted, Steps: []workgraph.Step{{Op: workgraph.OpSkip, Node: "n", Visit: 2, Note: "CONDITION_FALSE"}}},
			[]*executorv1.VisitChange{{Visit: visit, State: executorv1.VisitState_VISIT_STATE_SKIPPED, Reason: "CONDITION_FALSE"}}},
		"SkippedForAKey": {workgraph.Event{Kind: workgraph.RunStarted, Steps: []workgraph.Step{{Op: workgraph.OpSkip, Node: "n", Visit: 2, Note: "missing: no such key: rows"}}},
			[]*executorv1.VisitChange{{Visit: visit, State: executorv1.VisitState_VISIT_STATE_SKIPPED, Reason: "KEY_MISSING", Message: "no such key: rows"}}},
		"Rejected": {workgraph.Event{Kind: workgraph.InterruptClosed, Ref: ref, Closed: &workgraph.ClosedInterrupt{ID: "int_1", Decision: workgraph.Rejected},
			Steps: step(workgraph.OpFail, &workgraph.Detail{Error: fail})},
			[]*executorv1.VisitChange{{Visit: visit, State: executorv1.VisitState_VISIT_STATE_FAILED, Error: runError},
				{Visit: &executorv1.VisitRef{NodeId: "not", Visit: 1}, State: executorv1.VisitState_VISIT_STATE_SKIPPED}}},
		"Woken": {workgraph.Event{Kind: workgraph.TimerFired, Ref: ref, Steps: []workgraph.Step{{Op: workgraph.OpComplete, Node: "n", Visit: 2}}},
			[]*executorv1.VisitChange{{Visit: visit, State: executorv1.VisitState_VISIT_STATE_COMPLETED}}},
		"Deadline": {workgraph.Event{Kind: workgraph.DeadlineReached, Steps: []workgraph.Step{{Op: workgraph.OpDrain, Note: "DEADLINE"}, {Op: workgraph.OpDrop, Node: "n", Visit: 2}}},
			[]*executorv1.VisitChange{{Visit: visit, State: executorv1.VisitState_VISIT_STATE_CANCELED}}},
		"LastItem": {workgraph.Event{Kind: workgraph.AttemptEnded, Ref: workgraph.Ref{Node: "n", Visit: 2, Item: 3}, Outcome: &workgraph.Outcome{Values: raw(`1`)},
			Steps: []workgraph.Step{{Op: workgraph.OpItem, Node: "n", Visit: 2, Item: 3}, {Op: workgraph.OpComplete, Node: "n", Visit: 2}}},
			[]*executorv1.VisitChange{{Visit: visit, State: executorv1.VisitState_VISIT_STATE_COMPLETED}}},
		"OfItsOwn": {workgraph.Event{Kind: workgraph.AttemptEnded, Ref: ref, Error: fail, Steps: []workgraph.Step{{Op: workgraph.OpFail, Node: "n", Visit: 2}}}, nil},
		"LastWord": {workgraph.Event{Kind: workgraph.GraphAmended, Steps: []workgraph.Step{{Op: workgraph.OpReset, Node: "n", Visit: 2}, {Op: workgraph.OpSkip, Node: "n", Visit: 2}}},
			[]*executorv1.VisitChange{{Visit: visit, State: executorv1.VisitState_VISIT_STATE_SKIPPED}}},
	}
	for name, c := range changes {
		t.Run("Changes/"+name, func(t *testing.T) {
			ms := eventMessages(durable(c.ev), "acme", "hash", attempttoken.Keys{})
			require.False(t, ms[0].GetVisitsChanged() != nil && ms[0].GetSeq() != 0)
			require.Empty(t, cmp.Diff(c.want, ms[0].GetVisitsChanged().GetVisits(), protocmp.Transform()))
		})
	}
	t.Run("Interrupt/TellsWhatIsToBeApproved", func(t *testing.T) {
		ms := eventMessages(durable(workgraph.Event{Kind: workgraph.AttemptEnded, Ref: ref, Attempt: 1,
			Outcome: &workgraph.Outcome{Wait: &workgraph.Wait{Interrupt: &workgraph.Interrupt{ID: "int_1", Approve: json.RawMessage(`{"amount":7}`)}}},
			Steps:   []workgraph.Step{{Op: workgraph.OpWait, Node: "n", Visit: 2, Detail: &workgraph.Detail{Binds: "b"}}}}), "acme", "hash", attempttoken.Keys{})
		asked := ms[0].GetInterruptOpened()
		require.JSONEq(t, `{"amount":7}`, string(asked.GetApprove().GetJson()))
		require.Equal(t, workgraph.ApproveHash(json.RawMessage(`{"amount":7}`), "b"), asked.GetApproveHash())
	})
	t.Run("EveryPause/IsExplained", func(t *testing.T) {
		for _, reason := range []string{workgraph.ReasonMaxVisits, workgraph.ReasonReconciliation, "KILLED_OWNERS", workgraph.ReasonParentPaused,
			agent.ReasonNoProgress, agent.ReasonStep, agent.ReasonBranchDepth, agent.ReasonBranches} {
			require.NotEmpty(t, eventMessage(durable(workgraph.Event{Kind: workgraph.RunPaused, Reason: reason}), "acme", "", attempttoken.Keys{}).GetRunPaused().GetMessage())
		}
	})
	t.Run("Ephemeral/TellsOneThing", func(t *testing.T) {
		eph := func(e feed.Ephemeral) *executorv1.RunEvent {
			e.Ref, e.Attempt, e.At = ref, 1, at
			return eventMessage(feed.Event{RunID: "run_1", RootID: "run_0", Ephemeral: &e}, "acme", "", attempttoken.Keys{})
		}
		require.Equal(t, "llm", eph(feed.Ephemeral{Started: true, Actor: "llm"}).GetAttemptStarted().GetActor())
		require.Equal(t, "hi", eph(feed.Ephemeral{Text: "hi"}).GetTokenDelta().GetText())
		require.Equal(t, "0.5", string(eph(feed.Ephemeral{Progress: json.RawMessage("0.5")}).GetAttemptProgress().GetProgress().GetJson()))
		require.Zero(t, eph(feed.Ephemeral{Text: "hi"}).GetSeq())
		require.Nil(t, eph(feed.Ephemeral{}))
	})
	t.Run("EveryStatus/HasAWord", func(t *testing.T) {
		for _, s := range []workgraph.VisitStatus{workgraph.VisitPending, workgraph.VisitHeld, workgraph.VisitRunning, workgraph.VisitCanceling, workgraph.VisitBackoff,
			workgraph.VisitWaiting, workgraph.VisitReconciliation, workgraph.VisitCompleted, workgraph.VisitAbstained, workgraph.VisitFailed, workgraph.VisitSkipped, workgraph.VisitCanceled} {
			require.NotZero(t, visitState(s), s)
		}
	})
	t.Run("Etag/RoundTrip", func(t *testing.T) {
		n, err := parseEtag(etag(12))
		require.NoError(t, err)
		require.Equal(t, int64(12), n)
		for _, bad := range []string{"12", `"x"`, `"-1"`, `"0"`} {
			_, err := parseEtag(bad)
			require.Error(t, err, bad)
		}
	})
}
