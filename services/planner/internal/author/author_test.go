package author

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/compile"
	"github.com/epigraph-run/epigraph/workgraph"
)

// script are the answers of a model, one after the other.
type script []string

// malformed is an answer that was paid and cannot be used.
const malformed = "malformed"

func (s *script) Generate(context.Context, llm.Request) (llm.Response, error) {
	next := (*s)[0]
	*s = (*s)[1:]
	used := llm.Usage{Input: 100, Output: 10, Known: true}
	m := llm.Message{Role: llm.Assistant, Content: next}
	if next == malformed {
		m.ToolCalls = []llm.ToolCall{{ID: "a"}}
	}
	return llm.Response{Model: "m", Message: m, Usage: used, FinishReason: llm.FinishStop}, nil
}

func (s *script) Stream(ctx context.Context, r llm.Request, delta func(llm.Delta) error) (llm.Response, error) {
	out, err := s.Generate(ctx, r)
	for i := 0; err == nil && i < len(out.Message.Content); i += 10 {
		err = delta(llm.Delta{Text: out.Message.Content[i:min(i+10, len(out.Message.Content))]})
	}
	return out, err
}

// prices are nano-USD for a token, by provider. It is away for as many of its next calls as away says, and
// books nothing with broken.
type prices struct {
	// reserved are the calls that were asked for under id, room how many are granted if not 0, released
	// what was given back. If gone is set nothing is answered.
	reserved []Call
	released []int
	id       string
	room     int
	gone     bool
	by       map[string]int64
	away     []bool
	broken   bool
	booked   [][]Call
}

var errAway = errs.New(errs.Unavailable, "REGISTRY_UNAVAILABLE", "the registry is away")

func (p *prices) Price(_ context.Context, _ string, calls []Call) ([]*int64, error) {
	if len(p.away) > 0 {
		away := p.away[0]
		if p.away = p.away[1:]; away {
			return nil, errAway
		}
	}
	out := make([]*int64, len(calls))
	for i, c := range calls {
		if price, ok := p.by[c.Provider]; ok {
			cost := price * (c.Usage.Input + c.Usage.Output)
			out[i] = &cost
		}
	}
	return out, nil
}

func (p *prices) Book(ctx context.Context, namespace, _ string, calls []Call) ([]*int64, error) {
	if p.broken {
		return nil, errAway
	}
	p.booked = append(p.booked, calls)
	p.away = nil
	return p.Price(ctx, namespace, calls)
}

func (p *prices) Reserve(_ context.Context, _, id string, n int, most Call) (string, error) {
	if p.id = id; p.gone {
		return "", errAway
	}
	if p.reserved = append(p.reserved, most); len(p.reserved) > p.room && p.room > 0 {
		return "the namespace has spent its budget", nil
	}
	return "", nil
}

func (p *prices) Release(_ context.Context, _, id string, calls int) error {
	if id == p.id {
		p.released = append(p.released, calls)
	}
	return nil
}

// desk is an author with a scripted model whose profile has a fallback.
type desk struct {
	answers script
	prices  prices
	busy    map[int]bool // turns that are refused, from 1
	turns   int
	log     bytes.Buffer
}

func (d *desk) open(t *testing.T) *Author {
	t.Helper()
	cfg := llm.DefaultConfig()
	cfg.Profiles = map[string]llm.Profile{}
	for _, name := range []string{"small", "smart"} {
		p := llm.DefaultConfig().Profiles[llm.DefaultConfig().Default]
		p.Provider, p.Model, p.PriceKey = "scripted", "m", name
		cfg.Profiles[name] = p
	}
	small := cfg.Profiles["small"]
	small.Fallback = []string{"smart"}
	cfg.Profiles["small"], cfg.Default = small, "small"
	models, err := llm.Open(cfg, map[string]llm.Provider{"scripted": func(llm.Endpoint) (llm.Model, error) { return &d.answers, nil }}, llm.Options{})
	require.NoError(t, err)
	enter := func(context.Context, int, int) (func(), error) {
		if d.turns++; d.busy[d.turns] {
			return nil, admission.Busy(errors.New("crowded"))
		}
		return func() {}, nil
	}
	a, err := New(DefaultConfig(), models, plan.Limits{}, &d.prices, enter, slog.New(slog.NewTextHandler(&d.log, nil)))
	require.NoError(t, err)
	return a
}

const (
	sound  = `[{"id": "a", "request": "x", "needs": []}]`
	faulty = `[{"id": "a", "request": "x", "needs": ["b"]}]`
)

func TestPaidAnswersAreKept(t *testing.T) {
	t.Parallel()
	most := int64(1e9)
	create := func(t *testing.T, d *desk, change func(*Order)) (Made, Report, error) {
		t.Helper()
		o := Order{Namespace: "n", Goal: "fly"}
		if change != nil {
			change(&o)
		}
		return d.open(t).Create(t.Context(), o)
	}
	t.Run("AnAnswerThatNobodyMayRead", func(t *testing.T) {
		t.Parallel()
		d := &desk{answers: script{faulty, sound}, busy: map[int]bool{3: true}, prices: prices{by: map[string]int64{"small": 1}}}
		made, report, err := create(t, d, nil)
		require.NoError(t, err)
		require.Equal(t, Busy, report.End)
		require.Contains(t, report.Message, "not checked")
		require.Equal(t, sound, made.Text)
		require.Nil(t, made.Graph)
		require.Len(t, report.Rounds, 2)
		require.Len(t, d.prices.booked[0], 2)
		require.NotEmpty(t, report.UsageID)
	})
	t.Run("ARequestThatHasNoTurnCostsNothing", func(t *testing.T) {
		t.Parallel()
		d := &desk{busy: map[int]bool{1: true}}
		_, _, err := create(t, d, nil)
		require.Equal(t, admission.ReasonBusy, errs.ReasonOf(err))
	})
	t.Run("AFailedCallIsBooked", func(t *testing.T) {
		t.Parallel()
		d := &desk{answers: script{faulty, malformed}, prices: prices{by: map[string]int64{"small": 2}}}
		_, report, err := create(t, d, nil)
		require.NoError(t, err)
		require.Equal(t, ModelFailed, report.End)
		require.Len(t, report.Rounds, 1)
		require.Len(t, d.prices.booked[0], 2)
		require.Equal(t, "small", report.Failed[0].Provider)
		require.EqualValues(t, 110, report.Failed[0].Usage.Input+report.Failed[0].Usage.Output)
		require.EqualValues(t, 220, *report.Failed[0].Cost)
		require.EqualValues(t, 220, *report.Rounds[0].Cost)
	})
	t.Run("EachCallIsReservedBeforeItIsMade", func(t *testing.T) {
		t.Parallel()
		d := &desk{answers: script{faulty, sound}}
		_, report, err := create(t, d, nil)
		require.NoError(t, err)
		require.Equal(t, d.prices.id, report.UsageID, "its usage settles it")
		require.Len(t, d.prices.reserved, 2)
		require.Equal(t, "small", d.prices.reserved[0].Provider)
		require.Positive(t, d.prices.reserved[0].Usage.Input)
		require.Positive(t, d.prices.reserved[0].Usage.Output)
		require.Equal(t, []int{2}, d.prices.released, "once they are booked")
	})
	t.Run("WhatIsNotBookedStaysReserved", func(t *testing.T) {
		t.Parallel()
		d := &desk{answers: script{sound}, prices: prices{broken: true}}
		_, _, err := create(t, d, nil)
		require.NoError(t, err)
		require.Len(t, d.prices.reserved, 1)
		require.Empty(t, d.prices.released)
	})
	t.Run("ACapWithoutRoomEndsTheRounds", func(t *testing.T) {
		t.Parallel()
		d := &desk{answers: script{faulty, sound}, prices: prices{room: 1}}
		_, report, err := create(t, d, nil)
		require.NoError(t, err)
		require.Equal(t, Cost, report.End)
		require.Contains(t, report.Message, "the namespace has spent its budget")
		require.Len(t, report.Rounds, 1)
		require.Equal(t, []int{2}, d.prices.released)
	})
	t.Run("WithoutAnAnswerAboutCapsNoCallIsMade", func(t *testing.T) {
		t.Parallel()
		d := &desk{answers: script{sound}, prices: prices{gone: true}}
		_, _, err := create(t, d, nil)
		require.ErrorIs(t, err, errAway)
		require.Len(t, d.answers, 1)
		require.Equal(t, []int{1}, d.prices.released, "the answer may have been lost")
	})
	t.Run("ALedgerThatDoesNotBookIsLogged", func(t *testing.T) {
		t.Parallel()
		d := &desk{answers: script{sound}, prices: prices{broken: true}}
		made, report, err := create(t, d, nil)
		require.NoError(t, err)
		require.NotNil(t, made.Graph)
		require.Empty(t, report.UsageID)
		require.Contains(t, d.log.String(), "are not booked")
		require.Contains(t, d.log.String(), "calls=1")
	})
	t.Run("ALedgerThatGoesAwayEndsTheRounds", func(t *testing.T) {
		t.Parallel()
		d := &desk{answers: script{faulty, sound}, prices: prices{by: map[string]int64{"small": 1, "smart": 1}, away: []bool{false, true}}}
		_, report, err := create(t, d, func(o *Order) { o.Limits.MaxCost = &most })
		require.NoError(t, err)
		require.Equal(t, Cost, report.End)
		require.Contains(t, report.Message, "the registry is away")
		require.Len(t, report.Rounds, 1)
		d = &desk{prices: prices{away: []bool{true}}}
		_, _, err = create(t, d, func(o *Order) { o.Limits.MaxCost = &most })
		require.ErrorIs(t, err, errAway)
	})
	t.Run("TheDearestOfTheChainCounts", func(t *testing.T) {
		t.Parallel()
		d := &desk{answers: script{sound}, prices: prices{by: map[string]int64{"small": 1, "smart": 1e6}}}
		_, report, err := create(t, d, func(o *Order) { o.Limits.MaxCost = &most })
		require.NoError(t, err)
		require.Equal(t, Cost, report.End)
		require.Empty(t, report.Rounds)
		d.prices.by = map[string]int64{"small": 1}
		_, _, err = create(t, d, func(o *Order) { o.Limits.MaxCost = &most })
		require.Equal(t, "PRICE_UNKNOWN", errs.ReasonOf(err))
		require.Contains(t, err.Error(), "smart")
	})
}

func TestWhatOthersFindIsTold(t *testing.T) {
	t.Parallel()
	d := &desk{answers: script{sound, sound}}
	asked := 0
	made, report, err := d.open(t).Create(t.Context(), Order{Goal: "fly", Check: func(_ context.Context, g *workgraph.Graph) ([]workgraph.Fault, error) {
		if asked++; asked > 1 {
			return nil, nil
		}
		return []workgraph.Fault{{Code: workgraph.CodeMissingArg, Node: g.Nodes[0].ID, Field: "named.url", Message: "nothing gives it"}}, nil
	}})
	require.NoError(t, err)
	require.NotNil(t, made.Graph)
	require.False(t, made.Read.HasErrors())
	require.Len(t, report.Rounds, 2)
	require.Contains(t, report.Rounds[1].Told, `MISSING_ARGUMENT "graph.nodes[a].named.url": nothing gives it`)
}

// The work on a request is bounded before it is done.
func TestSizesAreComparedFirst(t *testing.T) {
	t.Parallel()
	bad := []Tool{{Name: "t", Schema: json.RawMessage(`{"type": 7}`)}}
	for name, c := range map[string]struct {
		o    Order
		want string
	}{
		"Schemas": {Order{Goal: "fly", Tools: bad}, "TOOLS_INVALID"},
		"Prompt":  {Order{Goal: "fly", Context: strings.Repeat("x", 300<<10), Tools: bad}, "PROMPT_TOO_LARGE"},
		"Request": {Order{Goal: "fly", Tools: append(bad, Tool{Name: "u", Description: strings.Repeat(" ", 4<<20)})}, "PROMPT_TOO_LARGE"},
		"Blanks":  {Order{Goal: "fly", Tools: append(bad, Tool{Name: "u", Description: strings.Repeat(" ", 1<<20)})}, "TOOLS_INVALID"},
	} {
		d := &desk{}
		a := d.open(t)
		_, _, err := a.Create(t.Context(), c.o)
		require.Equal(t, c.want, errs.ReasonOf(err), name)
		_, _, err = a.Revise(t.Context(), Remainder{Order: c.o, Graph: &workgraph.Graph{Nodes: []workgraph.Node{work("a", "x")}}})
		require.Equal(t, c.want, errs.ReasonOf(err), name)
		require.Equal(t, 2, d.turns, "all of it is done in turns")
	}
	for text, want := range map[string]string{
		" a \n b ":                    "a b",
		strings.Repeat("a ", 1<<20):   strings.TrimSpace(strings.Repeat("a ", 8)) + "…",
		strings.Repeat(" ", 1<<20):    "…",
		"ü" + strings.Repeat("x", 99): "ü" + strings.Repeat("x", 13) + "…",
	} {
		require.Equal(t, want, oneLine(text, 15))
	}
}

// Each task of an answer is compiled once, however many came before it.
func TestTasksAreCompiledOnce(t *testing.T) {
	t.Parallel()
	compiled := func(n int) int {
		asked := 0
		k, err := newKit(t.Context(), []Tool{{Name: "t"}})
		require.NoError(t, err)
		d := &draft{a: &Author{enter: func(context.Context, int, int) (func(), error) { return func() {}, nil }}, kit: k, to: silent{}, told: map[string]*told{},
			how: compile.Options{Known: func(name string) bool { asked++; return k.has(name) }}}
		d.begin(t.Context())
		require.NoError(t, d.write(t.Context(), "[\n"))
		for i := range n {
			needs := "[]"
			if i > 0 {
				needs = fmt.Sprintf(`["n%d"]`, i-1)
			}
			require.NoError(t, d.write(t.Context(), fmt.Sprintf("{\"id\": \"n%d\", \"request\": \"x\", \"tool\": \"t\", \"needs\": %s},\n", i, needs)))
		}
		require.NoError(t, d.write(t.Context(), "{\"id\": \"end\",\n"))
		require.Len(t, d.order, n, "each task is told while the next one is written")
		return asked
	}
	few, many := compiled(20), compiled(100)
	require.Equal(t, 5*few, many)
}
