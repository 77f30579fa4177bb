package team_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

// waiting is a state in whose inbox of b so many messages wait, each as large as it can be.
func waiting(n int) *team.State {
	q := make([]team.Queued, n)
	for i := range q {
		q[i] = team.Queued{Seq: math.MaxInt64, At: time.Date(2026, 11, 27, 8, 47, 18, 123456789, time.FixedZone("", 3600)), Known: true}
	}
	return &team.State{Queues: map[string][]team.Queued{"b": q}}
}

func TestInboxes(t *testing.T) {
	t.Parallel()
	from := func(names ...string) []string { return names }
	rules, faults := team.Compile(t.Context(), routed("a b", team.Route{From: from(team.Input), To: "a"}, team.Route{From: from(team.Input, "a"), To: "b", BatchSize: 1000}))
	require.NotNil(t, rules, faults)
	begin := func(n int) (*team.State, error) { // both hear the message
		_, st, _, err := rules.Begin(t.Context(), waiting(n), []team.Message{{Text: "x"}}, time.Unix(1000, 0))
		return st, err
	}
	t.Run("AsManyAsMayBe/FitIntoTheThread", func(t *testing.T) {
		t.Parallel()
		st, err := begin(9_998)
		require.NoError(t, err)
		raw, err := json.Marshal(st)
		require.NoError(t, err)
		require.Less(t, len(raw), 1<<20, "half of what an item may have")
		require.Greater(t, len(raw), 800_000)
	})
	t.Run("OneMore/IsAFaultThatSaysWhatToSet", func(t *testing.T) {
		t.Parallel()
		_, err := begin(9_999)
		require.ErrorContains(t, err, "the inboxes of the team hold 10001 messages of 1000100 bytes, the limit is 10000 of 1000000: give its routes a smaller `batch_size`, or a `ttl`")
	})
	t.Run("Batches/AreRefusedThatCannotFit", func(t *testing.T) {
		t.Parallel()
		var names []string
		var routes []team.Route
		for i := range 9 {
			names = append(names, fmt.Sprint("m", i))
			routes = append(routes, team.Route{From: from(team.AnyOne, team.Input), To: names[i], BatchSize: 1000})
		}
		rules, faults := team.Compile(t.Context(), routed(strings.Join(names, " "), routes...))
		require.Nil(t, rules)
		var said []string
		for _, f := range faults {
			if !f.Warning {
				said = append(said, f.Error()+": "+f.Hint)
			}
		}
		require.Equal(t, []string{"routes: the inboxes of the team wait for 9000 messages together, the limit is 8000: give a smaller `batch_size`"}, said)
	})
}

// heavy is an expression that costs most of what one may, and gives false; no two are the same.
func heavy(i int) string {
	return fmt.Sprintf("!state.l.all(a, state.l.all(b, state.l.all(c, c + %d > 0)))", i)
}

func TestExpressions(t *testing.T) {
	t.Parallel()
	list := "[" + strings.TrimSuffix(strings.Repeat("1,", 35), ",") + "]"
	turn := func(t *testing.T, stop *team.Stop) (team.Move, error) {
		t.Helper()
		tm := of("a b", "a -> b", "b -> a")
		tm.Start, tm.Stop, tm.MaxTurns = []string{"a"}, stop, 10
		tm.State = map[string]workgraph.StateKey{"l": {Initial: json.RawMessage(list)}}
		rules, faults := team.Compile(t.Context(), tm)
		require.NotNil(t, rules, faults)
		_, st, _, err := rules.Begin(t.Context(), &team.State{}, nil, time.Unix(1000, 0))
		require.NoError(t, err, "nothing was said of which an expression could be asked")
		_, _, move, err := rules.Hear(t.Context(), st, []team.Message{{From: "a", Text: "x"}}, team.Used{}, false, time.Unix(1000, 0))
		return move, err
	}
	some := func(n int, expr func(int) string) *team.Stop {
		s := &team.Stop{}
		for i := range n {
			s.Any = append(s.Any, team.Stop{Expr: expr(i)})
		}
		return s
	}
	t.Run("One/MayCostWhatItMay", func(t *testing.T) {
		t.Parallel()
		move, err := turn(t, some(1, heavy))
		require.NoError(t, err)
		require.Equal(t, []string{"b"}, move.Speak)
	})
	t.Run("Many/ShareWhatOneMayCost", func(t *testing.T) {
		t.Parallel()
		_, err := turn(t, some(100, heavy))
		require.ErrorIs(t, err, workgraph.ErrExprCost)
		require.ErrorContains(t, err, "simplify the expressions of the team")
	})
	t.Run("Many/MayBeLight", func(t *testing.T) {
		t.Parallel()
		move, err := turn(t, some(500, func(i int) string { return fmt.Sprintf("result.text == 'no %d'", i) }))
		require.NoError(t, err)
		require.Equal(t, []string{"b"}, move.Speak)
	})
	t.Run("Texts/ShareItToo", func(t *testing.T) {
		t.Parallel()
		// Each of many conditions looks for a text in a long message.
		long := team.Message{From: "a", Text: strings.Repeat("x", 1<<20)}
		hear := func(n int) error {
			tm := of("a b", "a -> b if else")
			tm.Start, tm.MaxTurns = []string{"a"}, 10
			for i := range n {
				tm.Transitions = append(tm.Transitions, team.Transition{From: "a", To: "b", When: &team.When{Text: fmt.Sprint("y", i)}})
			}
			rules, faults := team.Compile(t.Context(), tm)
			require.NotNil(t, rules, faults)
			_, st, _, err := rules.Begin(t.Context(), &team.State{}, nil, time.Unix(1000, 0))
			require.NoError(t, err)
			_, _, _, err = rules.Hear(t.Context(), st, []team.Message{long}, team.Used{}, false, time.Unix(1000, 0))
			return err
		}
		require.NoError(t, hear(10))
		require.ErrorIs(t, hear(4000), workgraph.ErrExprCost)
	})
	t.Run("Tasks/ShareIt", func(t *testing.T) {
		t.Parallel()
		tm := of("a")
		tm.Members[0].Task = "state.l.all(a, state.l.all(b, state.l.all(c, c > 0))) ? 'x' : 'y'"
		tm.State = map[string]workgraph.StateKey{"l": {Initial: json.RawMessage(list)}}
		rules, faults := team.Compile(t.Context(), tm)
		require.NotNil(t, rules, faults)
		_, st, _, err := rules.Begin(t.Context(), &team.State{}, []team.Message{{Text: "x"}}, time.Unix(1000, 0))
		require.NoError(t, err)
		x := workgraph.NewAccount(t.Context())
		for err == nil {
			_, _, err = rules.Task(x, st, &st.Speaking[0], nil)
		}
		require.ErrorIs(t, err, workgraph.ErrExprCost)
		require.ErrorIs(t, x.Err(), workgraph.ErrExprCost)
	})
}
