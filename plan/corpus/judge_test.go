package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/corpus/generate"
)

func graph(ids []string, edges ...generate.Edge) plan.Graph {
	var g plan.Graph
	for i, id := range ids {
		g.Problems = append(g.Problems, plan.Problem{ID: id, Request: "do " + id, Line: i + 1, Column: 1})
	}
	for _, e := range edges {
		g.Edges = append(g.Edges, plan.Edge{From: e[0], To: e[1]})
	}
	return g
}

func TestJudge(t *testing.T) {
	ab := generate.Text{ID: "x/y", Nodes: []string{"1", "2"}, Edges: []generate.Edge{{"1", "2"}}}
	with := func(change func(*generate.Text)) generate.Text {
		x := ab
		change(&x)
		return x
	}
	none := plan.Result{NoPlan: &plan.NoPlan{Reason: plan.Prose}}
	read := func(g plan.Graph, ds ...plan.Diagnostic) plan.Result {
		return plan.Result{Dialect: "numbered", Graph: g, Diagnostics: ds}
	}
	warn := func(code plan.Code, element string) plan.Diagnostic {
		return plan.Diagnostic{Code: code, Severity: plan.Warning, Element: element, Line: 2, Column: 4}
	}
	two := []string{"1", "2"}
	grouped := graph([]string{"P", "1", "2"}, generate.Edge{"1", "2"})
	grouped.Problems[1].ParentID, grouped.Problems[2].ParentID = "P", "P"
	parts := graph([]string{"1", "1.1", "2"}, generate.Edge{"1", "2"}, generate.Edge{"1.1", "2"})
	parts.Problems[1].ParentID = "1"
	loud := warn(plan.Unclosed, "")
	loud.Severity = plan.Error
	info := warn(plan.SkippedText, "2")
	info.Severity = plan.Info
	for name, c := range map[string]struct {
		text generate.Text
		res  plan.Result
		want ruling
	}{
		"Exact":             {ab, read(graph(two, generate.Edge{"1", "2"})), rightlyRead},
		"IDsAreCleaned":     {ab, read(graph([]string{"**1**", "`2`"}, generate.Edge{"**1**", "`2`"})), rightlyRead},
		"FalseAlarm":        {ab, read(graph(two, generate.Edge{"1", "2"}), loud), alarmed},
		"Refused":           {ab, none, declined},
		"EmptyIsRefused":    {ab, read(plan.Graph{}), declined},
		"LostEdge":          {ab, read(graph(two)), silently},
		"LostEdgeTold":      {ab, read(graph(two), warn(plan.Ambiguous, "2")), aloud},
		"InfoTellsNothing":  {ab, read(graph(two), info), silently},
		"AssumedOrderToo":   {ab, read(graph(two), warn(plan.AssumedOrder, "2")), silently},
		"ToldByPlace":       {ab, read(graph(two), warn(plan.SkippedText, "(after one)")), aloud},
		"ToldAtAnotherStep": {ab, read(graph(two), plan.Diagnostic{Code: plan.SkippedText, Severity: plan.Warning, Line: 1, Column: 2}), silently},
		"ExtraNode":         {ab, read(graph([]string{"1", "2", "3"}, generate.Edge{"1", "2"})), silently},
		"OrderOfNodes":      {ab, read(graph([]string{"2", "1"}, generate.Edge{"1", "2"})), silently},
		"EdgesOpen":         {with(func(x *generate.Text) { x.EdgesOpen = true }), read(graph(two)), rightlyRead},
		"GroupInAddition":   {ab, read(grouped), rightlyRead},
		"PartsCount":        {ab, read(parts), silently},
		"PartsOK":           {with(func(x *generate.Text) { x.PartsOK = true }), read(parts), rightlyRead},
		"OtherIDs":          {with(func(x *generate.Text) { x.Alt = [][]string{{"a", "b"}} }), read(graph([]string{"a", "b"}, generate.Edge{"a", "b"})), rightlyRead},
		"HiddenByWords": {generate.Text{Nodes: []string{"dig", "plant"}, Edges: []generate.Edge{{"dig", "plant"}}, Hidden: true},
			read(graph([]string{"Dig a hole", "Plant it"}, generate.Edge{"Dig a hole", "Plant it"})), rightlyRead},
		"HiddenInAnotherOrder": {generate.Text{Nodes: []string{"dig", "plant"}, Edges: []generate.Edge{{"dig", "plant"}}, Hidden: true},
			read(graph([]string{"Plant it", "Dig a hole"}, generate.Edge{"Dig a hole", "Plant it"})), silently},
		"FaultNotTold": {with(func(x *generate.Text) { x.Report = []string{"CYCLE"} }), read(graph(two, generate.Edge{"1", "2"})), silently},
		"FaultTold":    {with(func(x *generate.Text) { x.Report = []string{"CYCLE"} }), read(graph(two, generate.Edge{"1", "2"}), warn(plan.Cycle, "1")), rightlyRead},
		"SelfLoopAsCycle": {with(func(x *generate.Text) { x.Report = []string{"SELF_LOOP"} }),
			read(graph(two, generate.Edge{"1", "2"}), warn(plan.Cycle, "1")), rightlyRead},
		"DanglingEdgeMayGo": {with(func(x *generate.Text) {
			x.Report = []string{"UNKNOWN_REF"}
			x.Edges = []generate.Edge{{"1", "2"}, {"9", "2"}}
		}), read(graph(two, generate.Edge{"1", "2"}), warn(plan.UnknownReference, "9")), rightlyRead},
		"NoPlan":      {generate.Text{NoPlan: true}, none, noPlanRight},
		"NoPlanRead":  {generate.Text{NoPlan: true}, read(graph(two)), noPlanWrong},
		"NoPlanEmpty": {generate.Text{NoPlan: true}, read(plan.Graph{}), noPlanRight},
	} {
		t.Run(name, func(t *testing.T) {
			j := judge(&c.text, c.res)
			require.Equal(t, c.want, j.ruling, j.why)
		})
	}
}

func TestMentions(t *testing.T) {
	for _, c := range []struct {
		text, id string
		want     bool
	}{
		{"step 2 is lost", "2", true},
		{"step 12 is lost", "2", false},
		{"step 2.1 is lost", "2", false},
		{"step 2.", "2", true},
		{"#2", "2", false},
		{"1.2", "2", false},
		{"T-2", "2", false},
		{"2-a", "2", false},
		{"12 and 2", "2", true},
		{"第2步", "2", false},
		{"\"buy nails\" is lost", "buy nails", true},
	} {
		t.Run(c.text+"/"+c.id, func(t *testing.T) { require.Equal(t, c.want, mentions(c.text, c.id)) })
	}
}

func TestTexts(t *testing.T) {
	seen := map[string]bool{}
	for _, dir := range []string{"texts", "texts/held"} {
		texts, err := readTexts(dir)
		require.NoError(t, err)
		require.NotEmpty(t, texts, dir)
		for i := range texts {
			require.Empty(t, checkText(&texts[i]))
			require.False(t, seen[dir+texts[i].ID], "%s is used twice", texts[i].ID)
			seen[dir+texts[i].ID] = true
		}
	}
	t.Run("Parse/FaultHasItsLine", func(t *testing.T) {
		_, err := parseTexts("@@ a/b en\nnodes: 1\nedges: 1-2\n<<<\nx\n>>>\n")
		require.ErrorContains(t, err, "3: a/b")
	})
	t.Run("Parse/NoEnd", func(t *testing.T) {
		_, err := parseTexts("@@ a/b en\nnodes: none\n<<<\nx\n")
		require.ErrorContains(t, err, "a/b has no end")
	})
}
