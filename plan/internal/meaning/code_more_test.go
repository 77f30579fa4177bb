package meaning

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// linksOf returns the links of the likeliest reading of a text, as "a>b".
func linksOf(t *testing.T, text string) string {
	t.Helper()
	all := Read(form.NewSource(text))
	require.NotEmpty(t, all, text)
	var out []string
	for _, l := range all[0].Links {
		out = append(out, l.From+">"+l.To)
	}
	return strings.Join(out, " ")
}

func TestMoreCode(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"Background":   {"#!/bin/sh\na\nb &\nc &\nwait\nd\n", "a>b a>c b>d c>d"},
		"Subshells":    {"( a && b ) &\n( c ) &\nwait\nd\n", "a>b b>d c>d"},
		"Jobs":         {"```sh\nl1 &\nP=$!\nl2 &\nwait $P\nx1\nwait\ny1\n```", "l1>x1 x1>y1 l1>y1 l2>y1"},
		"Gradle":       {"tasks.register(\"one\")\ntasks.register(\"two\") { dependsOn(\"one\") }\n", "one>two"},
		"Rake":         {"task :one do\nend\ntask :two => [:one] do\nend\n", "one>two"},
		"Ninja":        {"build x.o: cc x.c\nbuild y.o: cc y.c\nbuild app: link x.o y.o\n", "x.o>app y.o>app"},
		"NetworkX":     {"G = nx.DiGraph()\nG.add_edges_from([(\"a\", \"b\"), (\"b\", \"c\")])\n", "a>b b>c"},
		"Sorter":       {"ts = TopologicalSorter()\nts.add(\"b\", \"a\")\nts.add(\"c\", \"b\")\n", "a>b b>c"},
		"Topology":     {"d = {\"a\": set(), \"b\": {\"a\"}}\nlist(TopologicalSorter(d).static_order())\n", "a>b"},
		"Group":        {"with TaskGroup(\"m\") as m:\n    a = Op(task_id=\"a\")\n    b = Op(task_id=\"b\")\n    a >> b\nc = Op(task_id=\"c\")\nm >> c\n", "a>b b>c"},
		"Loop":         {"a = Op(task_id=\"a\")\nz = Op(task_id=\"z\")\nfor t in [b, c]:\n    a >> t >> z\n", "a>b b>z a>c c>z"},
		"Chord":        {"chord([a.s(), b.s()])(c.s())\n", "a>c b>c"},
		"Spawn":        {"load\nspawn left\nspawn right\nwait for all\nmerge\n", "load>left load>right left>merge right>merge"},
		"Branches":     {"PARALLEL {\n  LANE 1: a1; a2\n  LANE 2: b1\n}\nTHEN c1\n", "a1>a2 a2>c1 b1>c1"},
		"Rules":        {"START aa\nWHEN aa DONE: START bb\nWHEN bb DONE: START cc\n", "aa>bb bb>cc"},
		"Numbered":     {"1. a\nPARALLEL\n  2. b\n  3. c\nEND PARALLEL\n4. d\n", "1>2 1>3 2>4 3>4"},
		"Words":        {"nacheinander(waschen, gleichzeitig(kochen, braten), essen)", "waschen>kochen waschen>braten kochen>essen braten>essen"},
		"ArrowsOfNeed": {"A → B means A depends on B:\n\nA → B\nB → C\n", "B>A C>B"},
		"ArrowsOn":     {"A → B means B depends on A:\n\nA → B\nB → C\n", "A>B B>C"},
		"LabelOfNeed":  {"graph TD\n  A -->|depends on| B\n  B -->|depends on| C\n", "B>A C>B"},
		"TreeOfNeed":   {"Each task needs the ones below it:\n\na\n├── b\n│   └── c\n└── d\n", "b>a c>b d>a"},
		"MarkAndTitle": {"[1] dig\n   |\n   +---> [2] sow ----+\n   |                 |\n   +---> [3] hoe ----+\n                     |\n                     v\n                  [4] reap\n", "1>2 1>3 2>4 3>4"},
	} {
		require.Equal(t, c.want, linksOf(t, c.text), name)
	}
}
