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
	for _, s := range []string{
		"1. 准备\n1.1 买票（价格\n（一）出发\n第三步：到达", "[{'步骤': '1.2 查询', 'id': '①', 'deps': ['é”', “ü”]}]", "{\"a\": é, \"b\": [ü ö, {\"ß\": 1]}", "Node：\n1：数\nEdge：（START，1）(1，2",
		"<Problem><ProblemID>é<ProblemID></Problem>É -> Ü", "任务:\n  - id: 甲\n    depends_on: [乙, 丙\n", "#E1 = 查[é] 依赖：1、2", "1. 甲 = F(乙, \"丙) : 丁\n2. x = é(甲)",
	} {
		f.Add(s)
	}
	for _, name := range dialects {
		if r, err := plantest.Render(layered(4), name); err == nil {
			f.Add(r.Text)
			for _, m := range plantest.Mutants(r.Text) {
				f.Add(m.Text)
			}
		}
	}
}

// sane checks the invariants of the reading of any text.
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
	valid := func(s string) { require.True(t, utf8.ValidString(s) || !utf8.ValidString(text), "%q", s) }
	for _, e := range res.Graph.Edges {
		valid(e.From)
		valid(e.To)
	}
	for _, d := range res.Diagnostics {
		valid(d.Element)
		valid(d.Message)
		require.LessOrEqual(t, d.Line, lines)
		require.NotEmpty(t, d.Code)
		require.NotEmpty(t, d.Message)
	}
	for _, p := range res.Graph.Problems {
		valid(p.ID)
		valid(p.Request)
		valid(p.ParentID)
		for _, ref := range p.Refs {
			valid(ref.Text)
			valid(ref.To)
			valid(ref.Path)
		}
		require.GreaterOrEqual(t, p.Line, 1)
		require.GreaterOrEqual(t, p.Column, 1)
		for _, a := range p.Args {
			require.True(t, json.Valid([]byte(a.Value)) || !utf8.ValidString(text), "%q", a.Value)
		}
	}
	require.True(t, json.Valid(res.Graph.Canonical()))
}

func FuzzParse(f *testing.F) {
	seeds(f, plantest.Notations()...)
	for _, hostile := range []string{"|a|a|a\n|-|-|-", "&a [*a,*a]\n&a [*a,*a]", "1. x\n2. x\n2. x", "- - - - a", "<a><a><a>", "``````", "A -> n0, n1, n2, z", "0\x00", "<Problem><ȺȺȺȺȺȺȺȺ>", "第一,"} {
		f.Add(hostile)
	}
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

// FuzzDialect reads a text as one dialect; the index chooses the dialect.
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
