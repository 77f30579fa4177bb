package state_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/state"
)

func raw(s string) json.RawMessage { return json.RawMessage(s) }

func TestGiven(t *testing.T) {
	t.Parallel()
	many := "[" + strings.Repeat(`{"type": "x", "result": 7},`, state.MaxMembers) + "1]"
	for name, c := range map[string]struct {
		in   string
		want state.Results
	}{
		"Nothing":    {`null`, nil},
		"Value":      {`{"a": 1}`, state.Results{{Value: raw(`{"a": 1}`)}}},
		"Action":     {`{"type": "x", "result": 7}`, state.Results{{Action: "x", OK: raw(`7`)}}},
		"ActionPlus": {`{"type": "x", "result": 7, "more": 1}`, state.Results{{Value: raw(`{"type": "x", "result": 7, "more": 1}`)}}},
		"Mixed":      {`[{"type": "x", "result": 7}, 8]`, state.Results{{Action: "x", OK: raw(`7`)}, {Value: raw(`8`)}}},
		"LongType":   {`{"type": "` + strings.Repeat("x", 300) + `", "result": 7}`, state.Results{{Value: raw(`{"type": "` + strings.Repeat("x", 300) + `", "result": 7}`)}}},
		"TooMany":    {many, state.Results{{Value: raw(many)}}},
		"List":       {`[1, 2]`, state.Results{{Value: raw(`[1, 2]`)}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, state.Given(raw(c.in)))
		})
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	group := state.Result{Group: state.Results{{Action: "a", OK: raw(`1`)}, {Action: "b", Error: &state.Failure{Type: "PERMANENT", Reason: "NO"}}, {Action: "c", Skipped: "x"}}}
	for name, c := range map[string]struct {
		in   state.Results
		want string
	}{
		"One":     {state.Results{{Action: "a", OK: raw(`[1]`)}}, `[1]`},
		"Several": {state.Results{{Action: "a", OK: raw(`1`)}, {Value: raw(`2`)}}, `[1, 2]`},
		"Group":   {state.Results{group}, `[1, {"error": {"type": "PERMANENT", "reason": "NO"}}]`},
		"Refused": {state.Results{{Action: "a", OK: raw(`1`)}, state.Refusal("no")}, `1`},
		"Nested":  {state.Results{{Action: "z", OK: raw(`0`)}, group}, `[0, [1, {"error": {"type": "PERMANENT", "reason": "NO"}}]]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := c.in.Plain()
			require.True(t, ok)
			require.JSONEq(t, c.want, string(got))
		})
	}
	t.Run("None", func(t *testing.T) {
		t.Parallel()
		_, ok := state.Results{{Action: "a", Abstained: true}}.Plain()
		require.False(t, ok)
	})
}

func TestCut(t *testing.T) {
	t.Parallel()
	long := raw(`"` + strings.Repeat("x", 10_000) + `"`)
	rs := state.Results{{Action: "a", OK: long}, {Action: "b", OK: raw(`1`)}, {Group: state.Results{{Action: "c", OK: long}, {Action: "d", OK: long}}}}
	require.Equal(t, 4, rs.Count())
	cut := rs.Cut(4000)
	require.LessOrEqual(t, cut.Bytes(), 4000)
	require.Greater(t, cut.Bytes(), 3900, "the room is used")
	require.Equal(t, []int{10_002, 0, 10_002}, []int{cut[0].Cut, cut[1].Cut, cut[2].Group[1].Cut})
	require.Equal(t, raw(`1`), cut[1].OK)
	escaped := state.Results{{OK: raw(`"` + strings.Repeat(`\n`, 10_000) + `"`)}}.Cut(1000)
	require.LessOrEqual(t, len(escaped[0].OK), 1000)
	require.True(t, json.Valid(escaped[0].OK))
	require.Equal(t, rs, rs.Cut(40_000))
	require.Equal(t, raw(`""`), rs.Cut(0)[1].OK)
	require.Equal(t, "d", cut[2].Group[1].Action)
	require.Len(t, rs[0].OK, 10_002, "the results themselves stay")
}

func TestMembers(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]json.RawMessage{`[1, "a"]`: {raw(`1`), raw(`"a"`)}, ` []`: nil, `{"a": [1]}`: nil, `7`: nil, ``: nil, `[1, 2, 3]`: nil} {
		list, ok := state.Members(raw(in), 2)
		require.Equal(t, want, list, in)
		require.Equal(t, want != nil || in == " []", ok, in)
	}
}

func TestClip(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"a", `"`, "\x01", "ä", "\u2028", "<", "\xff"} {
		for _, most := range []int{5, 100, 1000, 100_000} {
			text := strings.Repeat(unit, 20_000)
			encoded, err := actor.Encode(state.Clip(text, most))
			require.NoError(t, err)
			require.LessOrEqual(t, len(encoded), most, "%q", unit)
			if whole, err := actor.Encode(text); err == nil && len(whole) > most && most >= 100 && unit != "\xff" {
				require.Greater(t, len(encoded), most/2-20, "%q: the room is used", unit)
			}
		}
	}
	require.Equal(t, "short", state.Clip("short", 7))
	require.Equal(t, "sh…", state.Clip("shorts", 7))
}

func TestNext(t *testing.T) {
	t.Parallel()
	it := state.Item{Given: state.Results{{Value: raw(`1`)}}, ActionResults: state.Results{state.Refusal("no")}}
	next := it.Next()
	require.Len(t, next, 2)
	require.False(t, next[0].Refused())
	require.True(t, next[1].Refused())
}
