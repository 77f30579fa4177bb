package triggertest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
	"github.com/epigraph-run/epigraph/workflow"
)

func hook(id, path string) workflow.Trigger {
	return workflow.Trigger{ID: id, Type: "webhook", Path: path, Signature: "standard"}
}

func cron(id, line string) workflow.Trigger {
	return workflow.Trigger{ID: id, Type: "cron", Cron: line, Overlap: "skip"}
}

// following looks at all activations, whenever they were last looked at.
type following struct{ trigger.Store }

// Unchecked implements trigger.Store.
func (f following) Unchecked(ctx context.Context, _ time.Time, limit int) ([]trigger.Activation, error) {
	return f.Store.Unchecked(ctx, dbkit.Now().Add(time.Hour), limit)
}

func (b *bench) follow(t *testing.T) {
	t.Helper()
	require.NoError(t, controller(t, following{b.Store}, b.runs, b.shelf).Follow(t.Context()))
}

func (b *bench) states(t *testing.T, name string) map[string]string {
	t.Helper()
	list, err := b.List(t.Context(), "n", name, "", 100)
	require.NoError(t, err)
	out := map[string]string{}
	for i := range list {
		out[list[i].Spec.ID] = fmt.Sprintf("%s@%d", list[i].State, list[i].Version)
	}
	return out
}

func (d Driver) activations(t *testing.T) {
	t.Run("KeepIDsAndSecrets", func(t *testing.T) {
		b := d.bench(t)
		b.shelf.put("shop", "wf_2", 1, hook("a", ""), hook("b", "x/y"), cron("c", "@daily"))
		a, first, err := b.c.Activate(t.Context(), "n", "shop")
		require.NoError(t, err)
		require.Equal(t, "shop 1 ACTIVE", fmt.Sprintf("%s %d %s", a.Ref, a.Version, a.State))
		require.True(t, a.Settled)
		require.Equal(t, []string{"@daily"}, b.shelf.crons())
		require.Equal(t, "shop/a", first[0].Path)
		require.True(t, first[0].Fresh)
		require.Greater(t, len(first[0].Secret), 40)
		b.shelf.put("shop", "wf_2", 2, hook("b", "shop/a"), hook("a", "x/y"), cron("d", "@hourly"))
		_, second, err := b.c.Activate(t.Context(), "n", "shop")
		require.NoError(t, err)
		require.Equal(t, first[0].ID, second[1].ID)
		require.Equal(t, first[0].Secret, second[1].Secret)
		require.False(t, second[1].Fresh)
		require.Equal(t, []string{"@hourly"}, b.shelf.crons())
		require.Equal(t, map[string]string{"a": "ACTIVE@2", "b": "ACTIVE@2", "c": "ENDED@1", "d": "ACTIVE@2"}, b.states(t, "shop"))
		x, err := b.ByPath(t.Context(), "n", "x/y")
		require.NoError(t, err)
		require.Equal(t, first[0].ID, x.ID)
		_, err = b.ByPath(t.Context(), "other", "x/y")
		require.Equal(t, trigger.ReasonNotFound, errs.ReasonOf(err))
	})
	t.Run("BeginAgainWithNewSecrets", func(t *testing.T) {
		b := d.bench(t)
		secret := func(id string) string {
			b.shelf.put("shop", id, 1, hook("a", ""))
			_, list, err := b.c.Activate(t.Context(), "n", "shop")
			require.NoError(t, err)
			require.True(t, list[0].Fresh)
			return list[0].Secret
		}
		first := secret("wf_2")
		_, err := b.c.Deactivate(t.Context(), "n", "shop")
		require.NoError(t, err)
		second := secret("wf_2")
		require.NotEqual(t, first, second, "it was off")
		require.NotEqual(t, second, secret("wf_3"), "another workflow has the name")
	})
	t.Run("TakeAwayASchedule", func(t *testing.T) {
		b := d.bench(t)
		_, err := b.c.Deactivate(t.Context(), "n", "talk")
		require.NoError(t, err)
		b.shelf.schedules[b.t.ID] = "@daily" // by one that read the trigger before
		_, err = b.c.Clock(t.Context(), trigger.Tick{Trigger: b.t.Key, RunID: "run_x", Time: time.Now()}, nil)
		require.Equal(t, trigger.ReasonNotActive, errs.ReasonOf(err))
		require.Empty(t, b.shelf.crons())
	})
	t.Run("AreRefused", func(t *testing.T) {
		b := d.bench(t)
		refused := func(reason string, triggers ...workflow.Trigger) error {
			b.shelf.put("w", "wf_3", 1, triggers...)
			_, _, err := b.c.Activate(t.Context(), "n", "w")
			require.Equal(t, reason, errs.ReasonOf(err), "%v", err)
			return err
		}
		refused(trigger.ReasonNothing)
		e := errs.From(refused(trigger.ReasonInvalid, cron("c", "never"), hook("a", "p"), hook("b", "p")))
		require.Len(t, e.Violations, 2, "all at once")
		require.Equal(t, "triggers.c.cron", e.Violations[0].Field)
		var many []workflow.Trigger
		for i := range 10 {
			many = append(many, hook(fmt.Sprint("h", i), ""))
		}
		refused(trigger.ReasonTooMany, many...)
		b.shelf.put("first", "wf_4", 1, hook("a", "p"))
		_, _, err := b.c.Activate(t.Context(), "n", "first")
		require.NoError(t, err)
		refused(trigger.ReasonPathTaken, hook("a", "p"))
		_, _, err = b.c.Activate(t.Context(), "n", "nobody")
		require.True(t, errs.Is(err, errs.NotFound))
		require.Empty(t, b.states(t, "w"))
		_, err = b.c.Deactivate(t.Context(), "n", "w")
		require.Equal(t, trigger.ReasonNotActive, errs.ReasonOf(err))
	})
	t.Run("FollowWhatTheyStandFor", func(t *testing.T) {
		b := d.bench(t)
		b.shelf.put("shop@live", "wf_2", 3, hook("a", ""), cron("c", "@daily"))
		_, _, err := b.c.Activate(t.Context(), "n", "shop@live")
		require.NoError(t, err)
		b.shelf.put("shop@live", "wf_2", 4, hook("b", ""))
		b.follow(t)
		require.Equal(t, map[string]string{"a": "ENDED@3", "b": "ACTIVE@4", "c": "ENDED@3"}, b.states(t, "shop"))
		require.Empty(t, b.shelf.crons())
		b.shelf.put("shop@live", "wf_2", 5, cron("c", "never"))
		b.follow(t)
		a, err := b.c.Activation(t.Context(), "n", "shop")
		require.NoError(t, err)
		require.EqualValues(t, 4, a.Version, "what cannot be followed is not")
		require.Contains(t, a.Reason, "version 5 is not followed")
		b.shelf.put("shop@live", "wf_2", 6, cron("c", "@weekly"))
		b.follow(t)
		require.Equal(t, map[string]string{"a": "ENDED@3", "b": "ENDED@4", "c": "ACTIVE@6"}, b.states(t, "shop"))
		require.Equal(t, []string{"@weekly"}, b.shelf.crons())
	})
	t.Run("EndWithTheirWorkflow", func(t *testing.T) {
		b := d.bench(t)
		b.shelf.put("shop", "wf_2", 1, cron("c", "@daily"))
		_, _, err := b.c.Activate(t.Context(), "n", "shop")
		require.NoError(t, err)
		b.shelf.away = errDead
		b.follow(t)
		require.Equal(t, map[string]string{"c": "ACTIVE@1"}, b.states(t, "shop"), "a registry that does not answer ends nothing")
		b.shelf.away = nil
		b.shelf.put("shop", "wf_3", 1, cron("c", "@daily"))
		b.follow(t)
		a, err := b.c.Activation(t.Context(), "n", "shop")
		require.NoError(t, err)
		require.Equal(t, trigger.Ended, a.State)
		require.Contains(t, a.Reason, "another one has its name")
		require.Empty(t, b.shelf.crons())
		delete(b.shelf.versions, "talk")
		b.follow(t)
		x, err := b.Trigger(t.Context(), b.t.Key)
		require.NoError(t, err)
		require.Contains(t, x.Reason, "the workflow is gone")
		n, err := b.Forget(t.Context(), dbkit.Now().Add(time.Hour), trigger.Room{Deliveries: 10, Bytes: 1 << 20}, 10)
		require.NoError(t, err)
		require.Equal(t, 4, n, "what has ended is forgotten")
	})
	t.Run("CutOffBeforeTheirSchedules", func(t *testing.T) {
		b := d.bench(t)
		b.shelf.put("shop", "wf_2", 1, cron("c", "@daily"), hook("h", ""))
		b.shelf.deaths = 1
		a, list, err := b.c.Activate(t.Context(), "n", "shop")
		require.NoError(t, err, "the secret is shown this once")
		require.False(t, a.Settled)
		require.NotEmpty(t, list[1].Secret)
		require.True(t, list[1].Fresh)
		require.Empty(t, b.shelf.crons())
		b.follow(t)
		require.Equal(t, []string{"@daily"}, b.shelf.crons())
		b.shelf.deaths = 1
		_, err = b.c.Deactivate(t.Context(), "n", "shop")
		require.ErrorIs(t, err, errDead)
		b.follow(t)
		require.Empty(t, b.shelf.crons())
	})
	t.Run("ThatChangedMeanwhileAreLeftAlone", func(t *testing.T) {
		b := d.bench(t)
		seen, err := b.Activation(t.Context(), "n", "talk")
		require.NoError(t, err)
		_, err = b.c.Deactivate(t.Context(), "n", "talk")
		require.NoError(t, err)
		_, err = b.Store.Activate(t.Context(), seen, nil, 10, seen.UpdateTime)
		require.ErrorIs(t, err, trigger.ErrChanged)
		require.Equal(t, map[string]string{"chat_1": "ENDED@1"}, b.states(t, "talk"))
		_, _, err = b.c.Activate(t.Context(), "n", "talk")
		require.NoError(t, err)
		_, err = b.End(t.Context(), trigger.Activation{Namespace: "n", Workflow: "talk"}, seen.UpdateTime)
		require.ErrorIs(t, err, trigger.ErrChanged)
		x, err := b.Trigger(t.Context(), b.t.Key)
		require.NoError(t, err)
		require.Equal(t, trigger.Active, x.State, "the trigger of a name stays the same")
	})
	t.Run("Secrets", func(t *testing.T) {
		b := d.bench(t)
		_, err := b.c.Rotate(t.Context(), b.t.Key)
		require.True(t, errs.Is(err, errs.FailedPrecondition), "a chat has none: %v", err)
		b.shelf.put("shop", "wf_2", 1, hook("a", ""))
		_, list, err := b.c.Activate(t.Context(), "n", "shop")
		require.NoError(t, err)
		x, err := b.c.Rotate(t.Context(), list[0].Key)
		require.NoError(t, err)
		require.NotEqual(t, list[0].Secret, x.Secret)
		y, err := b.Trigger(t.Context(), x.Key)
		require.NoError(t, err)
		require.Equal(t, x.Secret, y.Secret)
	})
	t.Run("AreListedByKind", func(t *testing.T) {
		b := d.bench(t)
		list, err := b.c.Active(t.Context(), "chat", trigger.Key{}, 10)
		require.NoError(t, err)
		require.Len(t, list, 1)
		list, err = b.c.Active(t.Context(), "chat", b.t.Key, 10)
		require.NoError(t, err)
		require.Empty(t, list)
	})
	t.Run("Clock", func(t *testing.T) {
		b := d.bench(t)
		b.shelf.put("shop", "wf_2", 1, cron("c", "@daily"))
		_, list, err := b.c.Activate(t.Context(), "n", "shop")
		require.NoError(t, err)
		tick := trigger.Tick{Trigger: list[0].Key, RunID: "run_1", Turn: 1, Time: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
		b.runs.lost = []error{errDead}
		_, err = b.c.Clock(t.Context(), tick, b.runs.Start)
		require.ErrorIs(t, err, errDead)
		for range 2 {
			id, err := b.c.Clock(t.Context(), tick, b.runs.Start)
			require.NoError(t, err)
			require.Equal(t, "run_1", id)
		}
		rows, err := b.Deliveries(t.Context(), "n", trigger.Filter{Trigger: list[0].ID}, "", 10)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.Equal(t, "2030-01-02T03:04:05Z STARTED run_1", rows[0].EventID+" "+string(rows[0].Status)+" "+rows[0].RunID)
		require.JSONEq(t, `{"time": "2030-01-02T03:04:05Z"}`, string(rows[0].Event))
	})
}

func (d Driver) ends(t *testing.T) {
	b := d.bench(t)
	activate := func(name string, x workflow.Trigger) trigger.Trigger {
		b.shelf.put(name, "wf_"+name, 1, x)
		_, list, err := b.c.Activate(t.Context(), "n", name)
		require.NoError(t, err)
		return list[0]
	}
	after := activate("after", workflow.Trigger{ID: "w", Type: "workflow", Workflow: "digest", On: "completed"})
	always := activate("always", workflow.Trigger{ID: "w", Type: "workflow", Workflow: "digest", On: "ended"})
	some := activate("some", workflow.Trigger{ID: "e", Type: "error", Workflows: []string{"digest"}})
	others := activate("others", workflow.Trigger{ID: "e", Type: "error"})
	told := func(t *testing.T, e trigger.End) []trigger.Trigger {
		t.Helper()
		e.RunID = "run_" + t.Name()
		b.runs.ends[e.RunID] = e
		for range 2 { // a job comes twice
			_, err := b.c.Work(t.Context(), journal.TriggerArgs{Namespace: "n", RunID: e.RunID})
			require.NoError(t, err)
		}
		var out []trigger.Trigger
		for _, x := range []trigger.Trigger{after, always, some, others} {
			rows, err := b.Deliveries(t.Context(), "n", trigger.Filter{Trigger: x.ID}, "", 100)
			require.NoError(t, err)
			for _, row := range rows {
				if row.EventID == e.RunID {
					out = append(out, x)
				}
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		e    trigger.End
		want []trigger.Trigger
	}{
		"Completed":        {trigger.End{Workflow: "digest", Outcome: "completed"}, []trigger.Trigger{after, always}},
		"Failed":           {trigger.End{Workflow: "digest", Outcome: "failed"}, []trigger.Trigger{always, some, others}},
		"Canceled":         {trigger.End{Workflow: "digest", Outcome: "canceled"}, []trigger.Trigger{always}},
		"AnotherFailed":    {trigger.End{Workflow: "mail", Outcome: "failed"}, []trigger.Trigger{others}},
		"OwnFailure":       {trigger.End{Workflow: "others", Outcome: "failed"}, nil},
		"StartedByIt":      {trigger.End{Workflow: "mail", Outcome: "failed", Origin: &trigger.Origin{Trigger: others.ID}}, nil},
		"OfAHandler":       {trigger.End{Workflow: "mail", Outcome: "failed", Origin: &trigger.Origin{Trigger: some.ID}}, nil},
		"OfANamedHandler":  {trigger.End{Workflow: "digest", Outcome: "failed", Origin: &trigger.Origin{Trigger: others.ID}}, []trigger.Trigger{always, some}},
		"TriggerIsGone":    {trigger.End{Workflow: "mail", Outcome: "failed", Origin: &trigger.Origin{Trigger: "trg_gone"}}, []trigger.Trigger{others}},
		"NobodyWaits":      {trigger.End{Workflow: "mail", Outcome: "completed"}, nil},
		"StartedByAnother": {trigger.End{Workflow: "mail", Outcome: "failed", Origin: &trigger.Origin{Trigger: after.ID}}, []trigger.Trigger{others}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, names(c.want), names(told(t, c.e))) })
	}
	t.Run("SayWhatHappened", func(t *testing.T) {
		told(t, trigger.End{Workflow: "digest", Version: 3, Outcome: "failed", Reason: "NODE_FAILED", Message: "no", At: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)})
		rows, err := b.Deliveries(t.Context(), "n", trigger.Filter{Trigger: some.ID}, "", 1)
		require.NoError(t, err)
		require.JSONEq(t, `{"run_id": "`+"run_"+t.Name()+`", "workflow": "digest", "version": 3, "outcome": "failed", "time": "2030-01-02T03:04:05Z",
			"error": {"reason": "NODE_FAILED", "message": "no"}}`, string(rows[0].Event))
	})
	t.Run("LargeResultsStayBehind", func(t *testing.T) {
		big := json.RawMessage(`"` + fmt.Sprintf("%0200000d", 1) + `"`)
		told(t, trigger.End{Workflow: "digest", Outcome: "completed", Result: big})
		rows, err := b.Deliveries(t.Context(), "n", trigger.Filter{Trigger: after.ID}, "", 1)
		require.NoError(t, err)
		require.Contains(t, string(rows[0].Event), `"result_omitted":true`)
	})
	t.Run("ChainsEnd", func(t *testing.T) {
		for depth, want := range map[int]trigger.Status{trigger.MaxDepth - 1: trigger.Received, trigger.MaxDepth: trigger.Refused} {
			e := trigger.End{RunID: fmt.Sprint("run_chain_", depth), Workflow: "digest", Outcome: "completed", Origin: &trigger.Origin{Trigger: "x", Depth: depth}}
			b.runs.ends[e.RunID] = e
			_, err := b.c.Work(t.Context(), journal.TriggerArgs{Namespace: "n", RunID: e.RunID})
			require.NoError(t, err)
			rows, err := b.Deliveries(t.Context(), "n", trigger.Filter{Trigger: after.ID}, "", 1)
			require.NoError(t, err)
			require.Equal(t, want, rows[0].Status)
			require.Equal(t, depth+1, rows[0].Depth)
			require.Equal(t, want == trigger.Refused, rows[0].Reason == trigger.ReasonTooDeep)
		}
	})
}

func names(list []trigger.Trigger) []string {
	out := []string{}
	for i := range list {
		out = append(out, list[i].Workflow)
	}
	return out
}
