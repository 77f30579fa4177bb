package plan_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/plantest"
)

func seeds(f *testing.F, dialects ...string) {
	for _, name := range dialects {
		if r, err := plantest.Render(layered(4), name); err == nil {
			f.Add(r.Text)
			for _, m := range plantest.Mutants(r.Text) {
				f.Add(m.Text)
			}
		}
	}
}

// sane checks what must hold of the reading of any text.
func sane(t *testing.T, text string, res plan.Result) {
	if res.NoPlan != nil {
		require.Empty(t, res.Graph.Problems)
		require.Empty(t, res.Dialect)
	} else {
		require.NotEmpty(t, res.Dialect)
	}
	lines := 1
	for i := range len(text) {
		if text[i] == '\n' {
			lines++
		}
	}
	for _, d := range res.Diagnostics {
		require.LessOrEqual(t, d.Line, lines)
		require.NotEmpty(t, d.Code)
		require.NotEmpty(t, d.Message)
	}
	for _, p := range res.Graph.Problems {
		require.GreaterOrEqual(t, p.Line, 1)
		require.GreaterOrEqual(t, p.Column, 1)
		for _, a := range p.Args {
			require.True(t, json.Valid([]byte(a.Value)) || !utf8.ValidString(text), "%q", a.Value)
		}
	}
	require.True(t, json.Valid(res.Graph.Canonical()))
}

func FuzzParse(f *testing.F) {
	seeds(f, plan.Dialects()...)
	f.Fuzz(func(t *testing.T, text string) {
		res := plan.Parse(text)
		sane(t, text, res)
		rd := plan.NewReader()
		_, err := rd.Write([]byte(text))
		require.NoError(t, err)
		rd.Ready()
		rd.Close()
	})
}

// FuzzDialect reads texts as one dialect after another; the index chooses it.
func FuzzDialect(f *testing.F) {
	names := plan.Dialects()
	for i, name := range names {
		if r, err := plantest.Render(layered(4), name); err == nil {
			f.Add(r.Text, uint8(i))
		}
	}
	f.Fuzz(func(t *testing.T, text string, i uint8) {
		name := names[int(i)%len(names)]
		res := plan.Parse(text, plan.WithDialect(name))
		require.True(t, res.NoPlan != nil || res.Dialect == name)
		sane(t, text, res)
	})
}
