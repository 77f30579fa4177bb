package plan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
)

const garden = "We want a garden. Dig the hole in the yard. Once the hole is dug, plant the tree. Buying paint can happen any time. Do not water before the planting. " +
	"After planting and painting, invite the neighbors."

func step(n int, request, quote string, needs ...plan.RestatedNeed) plan.RestatedStep {
	return plan.RestatedStep{N: n, Request: request, Quote: quote, Needs: needs}
}

func need(n int, quote string) plan.RestatedNeed { return plan.RestatedNeed{N: n, Quote: quote} }

func TestVerifyRestatement(t *testing.T) {
	t.Parallel()
	const numbered = "T1: Fetch the report\nT2: Clean the rows, for which T1 is needed\nT3: Send a mail (requires T2)\nT4: Archive the report\nT2 -> T4"
	with := func(n int, id, request, quote string, needs ...plan.RestatedNeed) plan.RestatedStep {
		s := step(n, request, quote, needs...)
		s.ID = id
		return s
	}
	faithful := []plan.RestatedStep{
		with(1, "T1", "Fetch the report", "T1: Fetch the report"),
		with(2, "T2", "Clean the rows", "Clean the rows"),
		with(3, "T3", "Send a mail", "T3: send a **mail**", need(2, "(requires T2)")),
		with(4, "T4", "Archive the report", "T4: Archive the report", need(2, "T2 ->  T4")),
	}
	changed := func(i int, f func(*plan.RestatedStep)) []plan.RestatedStep {
		out := append([]plan.RestatedStep{}, faithful...)
		out[i].Needs = append([]plan.RestatedNeed{}, out[i].Needs...)
		f(&out[i])
		return out
	}
	for name, c := range map[string]struct {
		text    string
		steps   []plan.RestatedStep
		edges   []string
		refused string // what the diagnostic names
	}{
		"Faithful": {text: numbered, steps: faithful, edges: []string{"T2 -> T3", "T2 -> T4"}},
		"Faithful/Prose": {text: garden, steps: []plan.RestatedStep{
			step(1, "Dig the hole", "Dig the hole in the yard"), step(2, "Plant the tree", "plant the tree", need(1, "Once the hole is dug")),
			step(3, "Buying paint", "Buying paint"), step(4, "Invite the neighbors", "invite the neighbors", need(2, "After planting and painting")),
		}, edges: []string{"1 -> 2", "2 -> 4"}},
		"Faithful/Then":         {text: "Fetch the logs. Then count errors.", steps: []plan.RestatedStep{step(1, "Fetch the logs", "Fetch the logs"), step(2, "Count errors", "count errors", need(1, "Then count errors"))}, edges: []string{"1 -> 2"}},
		"Faithful/German":       {text: "Zuerst Daten laden.\nNachdem die Daten geladen sind: Bericht schreiben, nach dem Laden der Daten.", steps: []plan.RestatedStep{step(1, "Daten laden", "Daten laden"), step(2, "Bericht schreiben", "Bericht schreiben", need(1, "nach dem Laden der Daten"))}, edges: []string{"1 -> 2"}},
		"InventedStep":          {text: numbered, steps: append(faithful[:4:4], step(5, "Delete the report", "Delete the report")), refused: "step 5"},
		"DroppedQuote":          {text: numbered, steps: changed(1, func(s *plan.RestatedStep) { s.Quote = "" }), refused: "step 2"},
		"OtherRequest":          {text: numbered, steps: changed(1, func(s *plan.RestatedStep) { s.Request = "Delete the rows" }), refused: "step 2"},
		"NoRequest":             {text: numbered, steps: changed(1, func(s *plan.RestatedStep) { s.Request = "" }), refused: "step 2"},
		"HallucinatedID":        {text: numbered, steps: changed(1, func(s *plan.RestatedStep) { s.ID = "T7" }), refused: "step 2"},
		"IDOfAnotherStep":       {text: numbered, steps: changed(1, func(s *plan.RestatedStep) { s.ID = "T3" }), refused: "step 2"},
		"SamePlace":             {text: numbered, steps: changed(1, func(s *plan.RestatedStep) { s.ID, s.Request, s.Quote = "", "Fetch the report", "Fetch the report" }), refused: "step 2"},
		"OtherOrder":            {text: numbered, steps: []plan.RestatedStep{with(1, "T3", "Send a mail", "T3: Send a mail"), with(2, "T1", "Fetch the report", "T1: Fetch the report")}, refused: "step 2"},
		"InventedEdge":          {text: numbered, steps: changed(2, func(s *plan.RestatedStep) { s.Needs = append(s.Needs, need(1, "(requires T1)")) }), refused: "T1 -> T3"},
		"EdgeOfOthers":          {text: numbered, steps: changed(2, func(s *plan.RestatedStep) { s.Needs = append(s.Needs, need(1, "(requires T2)")) }), refused: "T1 -> T3"},
		"EdgeWithoutQuote":      {text: numbered, steps: changed(2, func(s *plan.RestatedStep) { s.Needs[0].Quote = "" }), refused: "T2 -> T3"},
		"EdgeWithoutOrder":      {text: numbered, steps: changed(3, func(s *plan.RestatedStep) { s.Needs[0] = need(1, "Archive the report") }), refused: "T1 -> T4"},
		"SwappedEdge":           {text: numbered, steps: changed(1, func(s *plan.RestatedStep) { s.Needs = append(s.Needs, need(3, "T3: Send a mail (requires T2)")) }), refused: "T3 -> T2"},
		"SwappedEdge/Arrow":     {text: numbered, steps: changed(1, func(s *plan.RestatedStep) { s.Needs = append(s.Needs, need(4, "T2 -> T4")) }), refused: "T4 -> T2"},
		"EdgeToNowhere":         {text: numbered, steps: changed(2, func(s *plan.RestatedStep) { s.Needs[0].N = 9 }), refused: "9 -> T3"},
		"EdgeToItself":          {text: numbered, steps: changed(2, func(s *plan.RestatedStep) { s.Needs[0].N = 3 }), refused: "3 -> T3"},
		"Denied":                {text: "1. Load data\n2. Clean data (does not depend on 1)", steps: []plan.RestatedStep{with(1, "1", "Load data", "1. Load data"), with(2, "2", "Clean data", "2. Clean data", need(1, "(does not depend on 1)"))}, refused: "1 -> 2"},
		"DeniedAround":          {text: "We dig the hole. We plant the tree. Never plant the tree before the hole is dug.", steps: []plan.RestatedStep{step(1, "dig the hole", "We dig the hole", need(2, "plant the tree before the hole is dug")), step(2, "plant the tree", "We plant the tree")}, refused: "2 -> 1"},
		"DeniedAround/Apart":    {text: "We dig the hole. We plant the tree. Never, ever, plant the tree before the hole is dug.", steps: []plan.RestatedStep{step(1, "dig the hole", "We dig the hole", need(2, "plant the tree before the hole is dug")), step(2, "plant the tree", "We plant the tree")}, refused: "2 -> 1"},
		"DeniedBehind":          {text: "We dig the hole. We plant the tree. Planting the tree before the hole is dug is not right.", steps: []plan.RestatedStep{step(1, "dig the hole", "We dig the hole", need(2, "Planting the tree before the hole is dug")), step(2, "plant the tree", "We plant the tree")}, refused: "2 -> 1"},
		"DeniedElsewhere":       {text: "Load data. Do not stop, and after loading, mix colors.", steps: []plan.RestatedStep{step(1, "Load data", "Load data"), step(2, "mix colors", "mix colors", need(1, "after loading, mix colors"))}, edges: []string{"1 -> 2"}},
		"DeniedStep":            {text: "Load data. Do not delete the table.", steps: []plan.RestatedStep{step(1, "Load data", "Load data"), step(2, "Delete the table", "Do not delete the table")}, refused: "step 2"},
		"DaysAreNoStep":         {text: "2. Load data\n3. Clean data after 2 days", steps: []plan.RestatedStep{with(1, "2", "Load data", "2. Load data"), with(2, "3", "Clean data", "3. Clean data", need(1, "after 2 days"))}, refused: "2 -> 3"},
		"ThenIsTheStepBefore":   {text: "Load data. Mix colors. Then print pages.", steps: []plan.RestatedStep{step(1, "Load data", "Load data"), step(2, "Mix colors", "Mix colors"), step(3, "Print pages", "print pages", need(1, "Then"))}, refused: "1 -> 3"},
		"OverAnother/Arrow":     {text: "Load data\nMix colors\nPrint pages\nLoad data -> Mix colors -> Print pages", steps: []plan.RestatedStep{step(1, "Load data", "Load data"), step(2, "Mix colors", "Mix colors"), step(3, "Print pages", "Print pages", need(1, "Load data -> Mix colors -> Print pages"))}, refused: "1 -> 3"},
		"OverAnother/Word":      {text: "Load data\nMix colors\nPrint pages\nLoading before mixing before printing", steps: []plan.RestatedStep{step(1, "Load data", "Load data"), step(2, "Mix colors", "Mix colors"), step(3, "Print pages", "Print pages", need(1, "Loading before mixing before printing"))}, refused: "1 -> 3"},
		"OfAnotherSentence":     {text: "Load data. Mix colors after loading. Print pages.", steps: []plan.RestatedStep{step(1, "Load data", "Load data"), step(2, "Mix colors", "Mix colors"), step(3, "Print pages", "Print pages", need(1, "after loading. Print pages"))}, refused: "1 -> 3"},
		"OfAnotherClause":       {text: "Load data. Mix colors after loading, print pages.", steps: []plan.RestatedStep{step(1, "Load data", "Load data"), step(2, "Mix colors", "Mix colors"), step(3, "Print pages", "print pages", need(1, "after loading, print pages"))}, refused: "1 -> 3"},
		"OwnClause":             {text: "Load data. Mix colors after loading, print pages.", steps: []plan.RestatedStep{step(1, "Load data", "Load data"), step(2, "Mix colors", "Mix colors", need(1, "after loading")), step(3, "Print pages", "print pages")}, edges: []string{"1 -> 2"}},
		"ItIsNoOrder":           {text: "Load data. Then read it.", steps: []plan.RestatedStep{step(1, "Load data", "Load data"), step(2, "read it", "read it", need(1, "read it"))}, refused: "1 -> 2"},
		"BeforeThatIsBefore":    {text: "Load data. Before that, mix colors.", steps: []plan.RestatedStep{step(1, "Load data", "Load data"), step(2, "mix colors", "mix colors", need(1, "Before that"))}, refused: "1 -> 2"},
		"AllAbove":              {text: "Load data. Mix colors. After all of the above print pages.", steps: []plan.RestatedStep{step(1, "Load data", "Load data"), step(2, "Mix colors", "Mix colors"), step(3, "print pages", "print pages", need(1, "After all of the above"), need(2, "After all of the above"))}, edges: []string{"1 -> 3", "2 -> 3"}},
		"TheSameQuoteTwice":     {text: "Run tests, write code, run tests.", steps: []plan.RestatedStep{step(1, "Run tests", "Run tests"), step(2, "Write code", "write code"), step(3, "Run tests", "run tests")}},
		"TheSameQuoteTooOften":  {text: "Run tests, write code.", steps: []plan.RestatedStep{step(1, "Run tests", "Run tests"), step(2, "Run tests", "run tests")}, refused: "step 2"},
		"PartOfAWord":           {text: "Unload the dataset now", steps: []plan.RestatedStep{step(1, "load the data", "load the data")}, refused: "step 1"},
		"NotAWordOfTheDocument": {text: "", steps: []plan.RestatedStep{step(1, "Dig", "Dig")}, refused: "step 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, diags := plan.VerifyRestatement(c.text, plan.Restatement{Steps: c.steps})
			var refused, edges []string
			for _, d := range diags {
				if d.Severity == plan.Error {
					require.Equal(t, plan.RestatementRefused, d.Code)
					refused = append(refused, d.Element)
				}
			}
			if c.refused != "" {
				require.Contains(t, refused, c.refused, "%v", diags)
				require.Empty(t, g)
				return
			}
			require.Empty(t, refused, "%v", diags)
			require.Len(t, g.Problems, len(c.steps))
			for _, e := range g.Edges {
				edges = append(edges, e.From+" -> "+e.To)
				require.Positive(t, e.Line)
			}
			require.Equal(t, c.edges, edges)
		})
	}
}

func TestRestate(t *testing.T) {
	t.Parallel()
	answer := func(steps ...plan.RestatedStep) string {
		raw, err := json.Marshal(plan.Restatement{Steps: steps})
		require.NoError(t, err)
		return "Here:\n```json\n" + string(raw) + "\n```"
	}
	none := plan.Result{NoPlan: &plan.NoPlan{Reason: plan.Prose}}
	t.Run("NamesOmittedText", func(t *testing.T) {
		t.Parallel()
		r, ok := plan.Restate(t.Context(), garden, none, answer(step(1, "Dig the hole", "Dig the hole"), step(2, "Plant the tree", "plant the tree", need(1, "Once the hole is dug"))), "m")
		require.True(t, ok, "%v", r.Diagnostics)
		require.Nil(t, r.NoPlan)
		require.Equal(t, plan.Restated, r.Repairs[0].Code)
		require.True(t, r.Repairs[0].Applied)
		require.Contains(t, r.Repairs[0].Message, "m")
		var left []string
		for _, d := range r.Diagnostics {
			if d.Code == plan.SkippedText {
				left = append(left, d.Element)
			}
		}
		require.Contains(t, left, "Do not water before the planting.")
		require.NotContains(t, left, "Dig the hole in the yard.")
	})
	t.Run("AListIsChained", func(t *testing.T) {
		t.Parallel()
		r, ok := plan.Restate(t.Context(), garden, none, answer(step(1, "Dig the hole", "Dig the hole"), step(2, "Plant the tree", "plant the tree")), "m")
		require.True(t, ok)
		require.Equal(t, plan.ListedOrder, r.Graph.Edges[0].Source)
		require.Contains(t, codes(r.Diagnostics), plan.AssumedOrder)
	})
	t.Run("ARefusalChangesNothingElse", func(t *testing.T) {
		t.Parallel()
		for _, bad := range []string{"", "no", "{", `{"steps": []}`, `[{"n": 2}]`, answer(step(1, "Fly", "Fly")), strings.Repeat("[", 1<<20)} {
			r, ok := plan.Restate(t.Context(), garden, none, bad, "m")
			require.False(t, ok)
			require.Equal(t, none.NoPlan, r.NoPlan)
			require.Equal(t, []plan.Code{plan.RestatementRefused}, codes(r.Diagnostics))
			require.False(t, r.HasErrors())
		}
	})
	t.Run("ReportsALostDependency", func(t *testing.T) {
		t.Parallel()
		before := plan.Result{Graph: plan.Graph{Edges: []plan.Edge{{From: "2", To: "1", Source: plan.Stated}}}, Diagnostics: []plan.Diagnostic{{Code: plan.AmbiguousPlan, Severity: plan.Warning}}}
		require.True(t, before.RestateNeeded())
		r, ok := plan.Restate(t.Context(), garden, before, answer(step(1, "Dig the hole", "Dig the hole"), step(2, "Plant the tree", "plant the tree")), "m")
		require.True(t, ok)
		require.Contains(t, codes(r.Diagnostics), plan.Contradiction)
	})
	t.Run("OnlyWhereItMayHelp", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]bool{"": false, "I'm sorry, but I cannot help with that.": false, "Nice weather today.": true, "A -> B": false} {
			require.Equal(t, want, plan.Parse(text).RestateNeeded(), text)
		}
		_, _, ok := plan.RestatePrompt(strings.Repeat("x", plan.MaxRestateBytes+1))
		require.False(t, ok)
		require.True(t, json.Valid([]byte(plan.RestateSchema)))
	})
}

func codes(ds []plan.Diagnostic) []plan.Code {
	var out []plan.Code
	for _, d := range ds {
		out = append(out, d.Code)
	}
	return out
}

func FuzzRestate(f *testing.F) {
	f.Add(garden, `{"steps": [{"n": 1, "request": "Dig the hole", "quote": "Dig the hole"}, {"n": 2, "id": "yard", "request": "plant", "quote": "plant the tree", "needs": [{"n": 1, "quote": "Once the hole is dug"}]}]}`)
	f.Add("İ\xff. 1→2 不", `[{"n": 1, "id": "İ", "request": "不", "quote": "2 不"}]`)
	f.Add("计划。先加载数据，然后清理数据", `[{"n":1,"request":"加载数据","quote":"加载数据"},{"n":2,"request":"清理数据","quote":"清理数据","needs":[{"n":1,"quote":"然后"}]}]`)
	f.Fuzz(func(t *testing.T, text, answer string) {
		none := plan.Result{NoPlan: &plan.NoPlan{Reason: plan.Prose}}
		r, ok := plan.Restate(t.Context(), text, none, answer, "m")
		require.Equal(t, ok, r.NoPlan == nil)
		ids := map[string]bool{}
		for _, p := range r.Graph.Problems {
			ids[p.ID] = true
			require.Positive(t, p.Line)
		}
		for _, e := range r.Graph.Edges {
			require.True(t, ids[e.From] && ids[e.To])
		}
	})
}
