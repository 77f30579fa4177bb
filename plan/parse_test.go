package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
)

func ids(g plan.Graph) string {
	var out []string
	for _, p := range g.Problems {
		out = append(out, p.ID)
	}
	return strings.Join(out, " ")
}

func edges(g plan.Graph) string {
	var out []string
	for _, e := range g.Edges {
		out = append(out, e.From+">"+e.To)
	}
	return strings.Join(out, " ")
}

// find returns the first diagnostic with the code. If there is none, it returns one that says so.
func find(ds []plan.Diagnostic, c plan.Code) plan.Diagnostic {
	for _, d := range ds {
		if d.Code == c {
			return d
		}
	}
	return plan.Diagnostic{Message: fmt.Sprintf("no %s among %v", c, ds)}
}

func TestDialects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, dialect, text, ids, edges string
		source                          plan.EdgeSource
	}{
		{"XML", "xml_problems", `<StructuredResponse><Problems><Problem><Request>Boil water</Request><ProblemID>BOIL</ProblemID></Problem>
<Problem><Request>Brew</Request><ProblemID>BREW</ProblemID></Problem></Problems><ProblemGraph>BOIL -> BREW</ProblemGraph></StructuredResponse>`, "BOIL BREW", "BOIL>BREW", plan.Stated},
		{"XMLWithoutGraphIsAChain", "xml_problems", `<Problems><Problem><ProblemID>a</ProblemID></Problem><Problem><ProblemID>b</ProblemID></Problem></Problems>`, "a b", "a>b", plan.ListedOrder},
		{"Functions", "xml_functions", `<plan><function.Mail.Read setContextVariable="MAIL"/><function.Text.Sum input="$MAIL" setContextVariable="SUM"/></plan>`, "MAIL SUM", "MAIL>SUM", plan.Variable},
		{"ToolGraph", "tool_graph", `{"task_steps":["look","cut"],"task_nodes":[{"task":"find_image"},{"task":"crop image"}],"task_links":[{"source":"find_image","target":"crop image"}]}`, "find_image crop image", "find_image>crop image", plan.Stated},
		{"NodesAndEdges", "tool_graph", `{"nodes":[{"id":"a"},{"id":"b"}],"edges":[["a","b"]]}`, "a b", "a>b", plan.Stated},
		{"RelationsByText", "step_relations", `{"substeps":[{"stepId":1,"step":"dig"},{"stepId":2,"step":"plant"}],"dependencies":[{"subtask1":"dig","relation":"Must be done before","subtask2":"plant"}]}`, "1 2", "1>2", plan.Stated},
		{"RelationsReversed", "step_relations", `{"steps":["dig","plant"],"dependencies":[{"step1":"plant","relation":"depends on","step2":"dig"}]}`, "1 2", "1>2", plan.Stated},
		{"TaskList", "task_list", `[{"task_id":"1","dependent_task_ids":[],"instruction":"load"},{"task_id":"2","dependent_task_ids":["1"],"instruction":"plot"}]`, "1 2", "1>2", plan.Stated},
		{"TaskListSentinel", "task_list", `[{"task":"see","id":0,"dep":[-1],"args":{}},{"task":"say","id":1,"dep":[0],"args":{"text":"<GENERATED>-0"}}]`, "0 1", "0>1", plan.Stated},
		{"TaskListByPosition", "task_list", `{"steps":[{"description":"a","depends_on":[]},{"description":"b","depends_on":[0]},{"description":"c","depends_on":[0,1]}]}`, "1 2 3", "1>2 1>3 2>3", plan.Stated},
		{"TaskListByName", "task_list", `{"tasks":[{"name":"fetch","needs":[]},{"name":"parse","needs":["fetch"]}]}`, "fetch parse", "fetch>parse", plan.Stated},
		{"Commands", "command_tasks", `[{"command_name":"Plan.append_task","args":{"task_id":"1","dependent_task_ids":[],"instruction":"x"}},{"command_name":"Plan.append_task","args":{"task_id":"2","dependent_task_ids":["1"],"instruction":"y"}}]`, "1 2", "1>2", plan.Stated},
		{"NestedCalls", "nested_calls", `[{"name":"rate","arguments":{"from":"EUR"},"label":"var1"},{"name":"pay","arguments":{"sum":"$var1.value$"},"label":"var2"}]`, "var1 var2", "var1>var2", plan.Variable},
		{"StepTools", "step_tools", `[{'step': '1.2 find', 'tool': 'search', 'param': {'q': None}}, {'step': '2.1 book', 'tool': 'book', 'param': {}}]`, "1.2 2.1", "1.2>2.1", plan.ListedOrder},
		{"TaskNames", "task_names", `{"Task list": ["lib.py", "main.py"]}`, "lib.py main.py", "lib.py>main.py", plan.ListedOrder},
		{"PythonObject", "task_names", `Plan(steps=['Find the winner.', "Find the winner's town."])`, "1 2", "1>2", plan.ListedOrder},
		{"NodeEdge", "node_edge", "Node:\n1: heat\n2: stir\n3: serve\nEdge: (START,1) (START,2) (1,3) (2,3) (3,END)", "1 2 3", "1>3 2>3", plan.Stated},
		{"Evidence", "evidence", "Plan: look it up\n#E1 = Search[tallest tower]\nPlan: ask\n#E2 = LLM[how old is #E1]", "#E1 #E2", "#E1>#E2", plan.Variable},
		{"NumberedCalls", "numbered_calls", "1. search(\"a\")\n2. search(\"b\")\n3. math(\"$1 + ${2}\")\n4. join()<END_OF_PLAN>", "1 2 3 4", "1>3 2>3 1>4 2>4 3>4", plan.Variable},
		{"Assignments", "assignments", "1. who = FIND(CTX, \"who\") : find who\n2. why = ASK(CTX, who) : ask why\n3. ans = CONCAT(who, why) : both", "1 2 3", "1>2 1>3 2>3", plan.Variable},
		{"CallLog", "call_log", "---\nidx: 1\ntool: a\nargs: {}\ndependencies: []\n---\nidx: 2\ntool: b\nargs: {'x': '${1}'}\ndependencies: [1]\n---\n", "1 2", "1>2", plan.Stated},
		{"Arrows", "diagram", "A, B -> C\nC -> D", "A B C D", "A>C B>C C>D", plan.Stated},
		{"ArrowsOfFourEdges", "diagram", "A -> B, C -> D", "A B C D", "A>B A>C B>D C>D", plan.Stated},
		{"Mermaid", "diagram", "```mermaid\ngraph TD\n  a[Read file] --> b(Parse)\n```", "a b", "a>b", plan.Stated},
		{"YAML", "records", "tasks:\n  - id: fetch\n    depends_on: []\n  - id: build\n    depends_on: [fetch]\n  - id: test\n    depends_on:\n      - build\n", "fetch build test", "fetch>build build>test", plan.Stated},
		{"Numbered", "outline", "1. pack\n2. drive\n3. unpack", "1 2 3", "1>2 2>3", plan.Numbering},
		{"Hierarchy", "outline", "1. 准备\n1.1 买票\n1.2 收拾\n2. 出发", "1 1.1 1.2 2", "1.1>1.2 1.2>2", plan.Numbering},
		{"HierarchyByIndent", "outline", "1. prepare\n   1. buy\n   2. pack\n2. go", "1 1.1 1.2 2", "1.1>1.2 1.2>2", plan.Numbering},
		{"NumberedWithNotes", "outline", "1. dig (depends on: none)\n2. buy\n3. plant\n   - Depends on: steps 1 and 2", "1 2 3", "1>3 2>3", plan.Stated},
		{"PlanSection", "outline", "# Task\nWin.\n\n## Plan for solving the task\n1. look\n2. act\n\n## Rules\n1. be nice\n2. be fast", "1 2", "1>2", plan.Numbering},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, around := range []string{"%s", "Here is the plan:\n\n%s\n\nTell me what you think of it.\n", "<think>maybe 1. a 2. b -> c</think>\n%s"} {
				if around[0] == 'H' && c.name == "PlanSection" {
					continue
				}
				r := plan.Parse(fmt.Sprintf(around, c.text))
				require.Nil(t, r.NoPlan, "%+v", r.NoPlan)
				require.Equal(t, c.dialect, r.Dialect)
				require.Equal(t, c.ids, ids(r.Graph))
				require.Equal(t, c.edges, edges(r.Graph))
				require.False(t, r.HasErrors(), "%v", r.Diagnostics)
				require.Equal(t, c.source, r.Graph.Edges[0].Source)
			}
		})
	}
}

func TestNoPlan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text   string
		reason plan.NoPlanReason
	}{
		"Empty":         {" \n\t", plan.EmptyText},
		"Refusal":       {"I'm sorry, but I can't help with that.", plan.Refusal},
		"RefusalInZh":   {"抱歉，我无法完成这个请求。", plan.Refusal},
		"Chatter":       {"It is a nice day. We could go out -> or not.", plan.Prose},
		"Review":        {"## Code Review: a.py\n1. Yes, it is right.\n2. No, a test is missing.\n\n## Result\nLBTM", plan.Prose},
		"Ledger":        {`{"is_request_satisfied": {"reason": "no", "answer": false}, "next_speaker": {"answer": "Surfer"}}`, plan.NotAGraph},
		"Code":          {"```python\ndef f(x) -> int:\n    return x\n```", plan.NotAGraph},
		"OpenThought":   {"<think>first I would 1. look", plan.Prose},
		"OtherCommands": {`[{"command_name": "Editor.write", "args": {"path": "a"}}]`, plan.NotAGraph},
		"Scores":        {"The result:\n\n10 14: sure\n11 12: no\n4 4 10: sure\n1 3 3: no", plan.Prose},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := plan.Parse(c.text)
			require.NotNil(t, r.NoPlan, "read as %s: %v", r.Dialect, r.Graph)
			require.Equal(t, c.reason, r.NoPlan.Reason, r.NoPlan.Message)
			require.Empty(t, r.Graph.Problems)
		})
	}
}

func TestDiagnostics(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text, element string
		code                plan.Code
		sev                 plan.Severity
		line                int
	}{
		{"DanglingReference", "Node:\n1: a\n2: b\nEdge: (START,1) (1,7) (1,2) (2,END)", "7", plan.UnknownReference, plan.Error, 4},
		{"Cycle", "A -> B\nB -> A", "A", plan.Cycle, plan.Error, 2},
		{"SelfLoop", `{"task_nodes":[{"task":"t"}],"task_links":[{"source":"t","target":"t"}]}`, "t", plan.SelfLoop, plan.Error, 1},
		{"ReusedTool", `{"task_nodes":[{"task":"t"},{"task":"t"}],"task_links":[]}`, "t", plan.DuplicateID, plan.Error, 1},
		{"EmptyPlan", `{"plan":{"rationale":"none fits","function":"","parameters":{}}}`, "", plan.EmptyPlan, plan.Error, 0},
		{"TruncatedJSON", `[{"task_id":"1","dependent_task_ids":[],"instruction":"load"},{"task_id":"2","dependent_task_ids":["1"],"instr`, "2", plan.Truncated, plan.Error, 1},
		{"TruncatedXML", "<Problems><Problem><ProblemID>a</ProblemID></Problem><Problem><Request>go", "problem 2", plan.Truncated, plan.Error, 1},
		{"LostBracket", `[{"task_id":"1","dependent_task_ids":[,"instruction":"load"},{"task_id":"2","dependent_task_ids":["1"]}]`, "1", plan.Unclosed, plan.Error, 1},
		{"StrayBracket", `[{"task":"a","id":0,"dep":[-1]}}, {"task":"b","id":1,"dep":[0]}]`, "0", plan.Unbalanced, plan.Warning, 1},
		{"MissingEdges", "Node:\n1: a\n2: b", "2", plan.Truncated, plan.Error, 3},
		{"BrokenPair", "Node:\n1: a\n2: b\nEdge: (START,1) (1,2 (2,END)", "(1,2", plan.Malformed, plan.Error, 4},
		{"UnclosedCall", "1. search(\"a\"\n2. math(\"$1\")", "1", plan.Unclosed, plan.Warning, 1},
		{"EmptyArrowEnd", "A -> B\nB ->", "B", plan.EmptyID, plan.Error, 2},
		{"UnnamedProblem", "<Problems><Problem><ProblemID>a</ProblemID></Problem><Problem><ProblemID>b</ProblemID></Problem></Problems><ProblemGraph>a</ProblemGraph>", "b", plan.IsolatedProblem, plan.Warning, 1},
		{"EmptyGraphText", "<Problems><Problem><ProblemID>a</ProblemID></Problem><Problem><ProblemID>b</ProblemID></Problem></Problems><ProblemGraph>\n</ProblemGraph>", "ProblemGraph", plan.NoEdgesStated, plan.Warning, 1},
		{"NumberingGap", "1. a\n2. b\n4. c", "4", plan.NumberingGap, plan.Warning, 3},
		{"UnknownParent", "1. a\n1.1 b\n2.1 c", "2", plan.UnknownParent, plan.Warning, 3},
		{"OpenEnd", "1. a\n2. b", "2", plan.OpenEnd, plan.Info, 2},
		{"UseBeforeDefinition", "1. a = F(CTX, b) : x\n2. b = G(CTX) : y", "b", plan.UndefinedVariable, plan.Error, 1},
		{"UnstatedUse", `[{"task":"a","id":0,"dep":[-1]},{"task":"b","id":1,"dep":[-1],"args":{"x":"<GENERATED>-0"}}]`, "1", plan.Contradiction, plan.Warning, 1},
		{"VagueRelation", `{"steps":["a","b"],"dependencies":[{"step1":"a","relation":"is near","step2":"b"}]}`, "a -> b", plan.Ambiguous, plan.Warning, 1},
		{"PlanBesideADrawing", "1. Buy the boards\n2. Saw the boards\n3. Paint the boards\n\nUnrelated:\nx -> y\ny -> z", "x", plan.SeveralPlans, plan.Warning, 6},
		{"BeforeAnEarlierStep", "1. Dig\n2. Assemble frame\n3. Paint (after 1)\n4. Test the motor before assembling the frame", "4", plan.Ambiguous, plan.Warning, 4},
		{"NotSure", "1. Dig\n2. Assemble frame\n3. Paint (maybe after 1? not sure)\n4. Sell", "3", plan.Ambiguous, plan.Warning, 3},
		{"SilentPhase", "# Phase 1\n1. Dig\n2. Fill\n# Phase 2 (after Phase 1)\n1. Plant\n2. Water\n# Phase 3\n1. Mow\n2. Rake", "Phase 3", plan.Ambiguous, plan.Warning, 7},
		{"AlternativeWithTheSameIDs", "Option A:\n1. dig\n2. plant (after 1)\n\nOption B:\n1. buy turf\n2. lay it (after 1)\n", "1 buy turf; 2 lay it (after 1)", plan.SeveralPlans, plan.Warning, 5},
		{"SecondPlan", "1. a\n\n[{\"id\":1,\"deps\":[]},{\"id\":2,\"deps\":[1]}]\n[{\"id\":1,\"deps\":[]},{\"id\":3,\"deps\":[1]}]", "2", plan.SeveralPlans, plan.Warning, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := find(plan.Parse(c.text).Diagnostics, c.code)
			require.Equal(t, c.code, d.Code, d.Message)
			require.Equal(t, c.element, d.Element)
			require.Equal(t, c.sev, d.Severity)
			require.Equal(t, c.line, d.Line)
			require.NotEmpty(t, d.Message)
		})
	}
}

func TestPlace(t *testing.T) {
	t.Run("Columns/CountRunes", func(t *testing.T) {
		r := plan.Parse("说明：\n\n  [{\"说\": 1, \"id\": \"é\", \"deps\": []}, {\"id\": \"b\", \"deps\": [\"é\"]}]")
		require.Len(t, r.Graph.Problems, 2)
		require.Equal(t, 3, r.Graph.Problems[0].Line)
		require.Equal(t, 4, r.Graph.Problems[0].Column)
		require.Equal(t, 37, r.Graph.Problems[1].Column)
	})
	t.Run("LongLines/CountRunes", func(t *testing.T) {
		pad := strings.Repeat("é", 3000)
		r := plan.Parse(`[{"id":"a","deps":[],"text":"` + pad + `"},{"id":"b","deps":["a"]}]`)
		require.Equal(t, 29+3000+4, r.Graph.Problems[1].Column)
	})
}

func TestReferences(t *testing.T) {
	t.Parallel()
	r := plan.Parse(`[{"name":"f","arguments":{"n":12345678901234567890},"label":"var1"},{"name":"g","arguments":{"x":"about $var1.items[0].name$"},"label":"var2"}]`)
	require.False(t, r.HasErrors())
	require.Equal(t, []plan.Arg{{Name: "n", Kind: plan.Literal, Value: "12345678901234567890"}}, r.Graph.Problems[0].Args)
	require.Equal(t, plan.Referring, r.Graph.Problems[1].Args[0].Kind)
	ref := r.Graph.Problems[1].Refs[0]
	require.Equal(t, "var1", ref.To)
	require.Equal(t, "items[0].name", ref.Path)
	require.Equal(t, "x", ref.Arg)
	require.Equal(t, "$var1.items[0].name$", ref.Text)
}

func TestRepairs(t *testing.T) {
	t.Parallel()
	r := plan.Parse("Sure!\n```python\n[{'id': 1, 'deps': [], 'ok': True}, {'id': 2, 'deps': [1], 'x': None,}]\n```")
	var codes []plan.Code
	for _, x := range r.Repairs {
		require.True(t, x.Applied)
		codes = append(codes, x.Code)
	}
	require.Equal(t, []plan.Code{plan.PythonLiteral, plan.FenceRemoved, plan.ProseRemoved}, codes)

	r = plan.Parse(`{"task_nodes":[{"task":"ask"},{"task":"say"},{"task":"ask"}],"task_links":[{"source":"ask","target":"say"},{"source":"say","target":"ask"}]}`)
	require.Equal(t, "ask", find(r.Diagnostics, plan.Cycle).Element)
	offered := r.Repairs[len(r.Repairs)-1]
	require.Equal(t, plan.ReusedTool, offered.Code)
	require.False(t, offered.Applied)
	require.Equal(t, []string{"ask#1", "say", "ask#2"}, offered.Renames)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	text := "[" + strings.Repeat(`{"id":"x","deps":["y"]},`, 50) + "]"
	for name, c := range map[string]struct {
		limits   plan.Limits
		problems int
	}{
		"Bytes":    {plan.Limits{MaxBytes: 100}, 4},
		"Problems": {plan.Limits{MaxProblems: 7}, 7},
		"Edges":    {plan.Limits{MaxEdges: 3}, 50},
	} {
		t.Run(name, func(t *testing.T) {
			r := plan.Parse(text, plan.WithLimits(c.limits))
			require.LessOrEqual(t, len(r.Graph.Problems), c.problems+1)
			require.Equal(t, plan.LimitReached, find(r.Diagnostics, plan.LimitReached).Code)
			require.True(t, r.HasErrors())
		})
	}
	t.Run("UnknownDialect", func(t *testing.T) {
		r := plan.Parse(text, plan.WithDialect("esperanto"))
		require.NotNil(t, r.NoPlan)
		require.Equal(t, "esperanto", find(r.Diagnostics, plan.UnknownDialect).Element)
	})
	t.Run("ForcedDialect", func(t *testing.T) {
		require.Equal(t, "task_list", plan.Parse(text, plan.WithDialect("task_list")).Dialect)
		require.NotNil(t, plan.Parse(text, plan.WithDialect("arrows")).NoPlan)
	})
	t.Run("CompleteText", func(t *testing.T) {
		require.Empty(t, find(plan.Parse("1. a\n2. b", plan.WithComplete()).Diagnostics, plan.OpenEnd).Code)
	})
}
