package plan_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
)

func TestPacking(t *testing.T) {
	t.Parallel()
	t.Run("Strings/KeepPlaces", func(t *testing.T) {
		r := plan.Parse("{\n  \"output\": \"A -> B\\nB -> é\\né -> A\"\n}")
		require.Equal(t, "A B é", ids(r.Graph))
		p := r.Graph.Problems[2]
		require.Equal(t, []int{2, 27}, []int{p.Line, p.Column})
		require.Equal(t, plan.Cycle, find(r.Diagnostics, plan.Cycle).Code)
	})
	t.Run("Strings/NestInStrings", func(t *testing.T) {
		text := `[{"id":"a","deps":[]},{"id":"b","deps":["a"]}]`
		for range 3 {
			b, err := json.Marshal(text)
			require.NoError(t, err)
			text = string(b)
		}
		require.Equal(t, "a>b", edges(plan.Parse(text).Graph))
	})
	t.Run("Strings/CutOff", func(t *testing.T) {
		r := plan.Parse(`{"plan": "1. search(\"a\")\n2. math(\"$1\")\n3. ma`)
		require.Equal(t, "1>2", edges(r.Graph))
		require.Equal(t, plan.Error, find(r.Diagnostics, plan.Truncated).Severity)
	})
	t.Run("Strings/OfOthersAreNoAnswer", func(t *testing.T) {
		require.NotNil(t, plan.Parse(`{"messages": [{"role": "user", "content": "1. make a plan\n2. go"}]}`).NoPlan)
		require.NotNil(t, plan.Parse(`[{"role": "user", "content": "A -> B"}, {"role": "assistant", "content": "Why?"}]`).NoPlan)
	})
	t.Run("Thoughts/Nest", func(t *testing.T) {
		for _, text := range []string{
			"<think>a <think>B -> A</think> C -> A</think>\nA -> B",
			"I think C -> A\n</think>\nA -> B",
			"<think mode=\"deep\">C -> A</think>\nA -> B",
			"<think>C -> A <think>no</think>\nA -> B",
		} {
			require.Equal(t, "A>B", edges(plan.Parse(text).Graph), text)
		}
	})
}

func TestSeveralPlans(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, edges, element string
	}{
		"Twice/IsOne":          {"A -> B\nB -> C\n\nAgain:\n\nA -> B\nB -> C", "A>B B>C", ""},
		"Revised/LaterCounts":  {"A -> B\nB -> C\n\nRevised plan:\n\nA -> C\nC -> B", "A>C C>B", "A -> B"},
		"Other/IsNamed":        {"A -> B\nB -> C\n\nSome people do it like so:\n\nA -> D", "A>D", "B"},
		"JSON/LaterCounts":     {`[{"id":1,"deps":[]},{"id":2,"deps":[1]}]` + "\nCorrected:\n" + `[{"id":1,"deps":[]},{"id":2,"deps":[]}]`, "", "1 -> 2"},
		"Calls/Twice":          {"1. f(\"a\")\n2. g(\"$1\")\n\nOnce more:\n\n1. f(\"a\")\n2. g(\"$1\")", "1>2", ""},
		"Calls/LaterCounts":    {"1. f(\"a\")\n2. g(\"$1\")\n\nBetter:\n\n1. f(\"a\")\n2. g(\"b\")\n3. h(\"$2\")", "2>3", "3"},
		"Calls/OtherIsFirst":   {"1. f(\"a\")\n2. g(\"$1\")\n3. h(\"$2\")\n4. i(\"$3\")\n5. j(\"$4\")\n\nAnother one:\n\n1. k(\"a\")\n2. l(\"$1\")", "1>2 2>3 3>4 4>5", "3"},
		"Calls/SameIDs":        {"1. f(\"a\")\n2. g(\"$1\")\n\nOr like this:\n\n1. f(\"a\")\n2. g(\"b\")", "", "1 -> 2"},
		"NodeEdge/LaterCounts": {"Node:\n1: a\n2: b\nEdge: (START,1) (1,2) (2,END)\n\nUpdated:\nNode:\n1: a\n2: b\nEdge: (START,2) (2,1) (1,END)", "2>1", "1 -> 2"},
		"Numbered/LaterCounts": {"Plan:\n1. go\n2. eat\n\nRevised plan:\n1. eat\n2. go\n3. rest", "1>2 2>3", "3"},
		"Revised/StatesNeeds":  {"1. survey\n2. dig (after 1)\n3. plant (after 2)\n\nRevised plan:\n1. dig\n2. plant (after 1)\n3. mulch (after 2)", "1>2 2>3", "3"},
		"Revised/OnOneLine":    {"1. survey\n2. dig\n3. plant\n4. pay\n\nRevised plan: 1. dig 2. plant (after 1) 3. mulch (after 1)", "1>2 1>3", "4"},
		"Drawing/FirstCounts":  {"1. Buy the boards\n2. Saw the boards\n3. Paint the boards\n\nUnrelated:\nx -> y\ny -> z", "1>2 2>3", "y"},
		"Repeated/IDIsAFault":  {"1. f(\"a\")\n2. g(\"$1\")\n1. h(\"$2\")", "1>2 2>1", ""},
		"YAML/Other":           {"steps:\n  - id: a\n    needs: []\n  - id: b\n    needs: [a]\n```\nor else\n```\nsteps:\n  - id: a\n    needs: []\n  - id: c\n    needs: [a]\n", "a>c", "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := plan.Parse(c.text)
			require.Equal(t, c.edges, edges(r.Graph), "%v", r.Diagnostics)
			var named []string
			for _, d := range r.Diagnostics {
				if d.Code == plan.SeveralPlans {
					named = append(named, d.Element)
				}
			}
			if c.element == "" {
				require.Empty(t, named)
				return
			}
			require.Contains(t, named, c.element)
		})
	}
}

// TestDamage shows that the reader assumes no order on what is left of a damaged text.
func TestDamage(t *testing.T) {
	t.Parallel()
	t.Run("CutBeforeDependencies/NoOrderIsAssumed", func(t *testing.T) {
		r := plan.Parse(`{"substeps":[{"stepId":1,"step":"dig"},{"stepId":2,"step":"plant"},{"stepId":3,"st`)
		require.Empty(t, r.Graph.Edges)
		require.True(t, r.HasErrors())
	})
	t.Run("LostColon/IsReported", func(t *testing.T) {
		r := plan.Parse(`[{"step" "1.1 look","tool":"a","param":{}},{"step":"1.2 act","tool":"b","param":{}}]`)
		require.Equal(t, "1.1 1.2", ids(r.Graph))
		require.Equal(t, "1.1", find(r.Diagnostics, plan.Malformed).Element)
	})
	t.Run("TalkAround/Hierarchies", func(t *testing.T) {
		r := plan.Parse("Good idea! Below is how I would do it.\n\n1. Pack\n1.1 Buy boxes\n2. Drive\n\nNotes:\n- It may rain.\n- Bring food.\n")
		require.Equal(t, "1 1.1 2", ids(r.Graph))
	})
	t.Run("LinesJoined/AreSplit", func(t *testing.T) {
		require.Equal(t, "1 2 3", ids(plan.Parse("1. pack 2. drive\n3. rest").Graph))
		require.Equal(t, "1>3 2>3", edges(plan.Parse("1. f(\"a\") 2. g(\"b\")\n3. h(\"$1\", \"$2\")").Graph))
		require.Equal(t, "3", find(plan.Parse("1. pack\n2. go on to phase 3. Then rest").Diagnostics, plan.UnknownReference).Element)
	})
	for name, c := range map[string]struct{ text, ids, element string }{
		"OpeningQuote/OfAText": {`[{"id":"a","deps":[]},{"id":b","deps":["a"]}]`, "a b", "b"},
		"OpeningQuote/OfAKey":  {`[{"id":"a","deps":[]},{id":"b","deps":["a"]}]`, "a b", "b"},
		"ClosingQuote/OfAText": {"{\"Task list\": [\n\"a.py\",\n\"b.py,\n\"c.py\"\n]}", "a.py b.py c.py", "b.py"},
		"ClosingQuote/OfAKey":  {`[{"id":"a","deps":[]},{"id":"b","deps: ["a"]}]`, "a b", "b"},
		"Brackets/Swapped":     {`[("id":"a","deps":[]},{"id":"b","deps":["a"]}]`, "a b", "a"},
		"Comma/BetweenTexts":   {`Plan(steps=['Look around.' 'Go home.'])`, "1 2", "2"},
		"Reference/Broken":     {"1. f(\"a\")\n2. g(\"${1)\")", "1 2", "2"},
		"Evidence/Broken":      {"#E1 = F[a]\n#E2 = G[use #E]", "#E1 #E2", "#E2"},
		"Attribute/Broken":     {`<plan><function.A.B setContextVariable=X"/><function.C.D setContextVariable="Y"/></plan>`, "A.B Y", "A.B"},
		"Assignment/Broken":    {"1. a = F(CTX) : x\n2. b = G(a) : y\n3'. c = H(b) : z", "1 2", "3'. c = H(b) : z"},
	} {
		t.Run(name, func(t *testing.T) {
			r := plan.Parse(c.text)
			require.Equal(t, c.ids, ids(r.Graph), "%v", r.Diagnostics)
			require.True(t, r.HasErrors())
			var named []string
			for _, d := range r.Diagnostics {
				named = append(named, d.Element)
			}
			require.Contains(t, named, c.element, "%v", r.Diagnostics)
		})
	}
}
