package plan_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
)

// TestValues shows that what the text gives a problem besides its request and its order becomes its tool and
// its typed arguments. A positional argument has no name. "R" marks arguments that use the result of another
// problem.
func TestValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text, id, tool string
		args                 []string
	}{
		{"code/literals", "a = load('x.csv', retries=3)\nb = drop(a, mode=\"hard\", n=-2.5, cols=[\"u\", 1], dry=True)\nplot(b, kind=\"bar\")", "b", "drop", []string{`R"a"`, `mode="hard"`, `n=-2.5`, `cols=["u",1]`, `dry=true`}},
		{"code/expression", "a = load('x.csv')\nb = drop(data=a, n=len(a) + 1)\nplot(b)", "b", "drop", []string{`Rdata="a"`, `Rn="len(a) + 1"`}},
		{"code/lost-quote", "a = load('x.csv')\nb = drop(a, mode=\"fast)\nplot(b, kind=\"bar\")", "b", "drop", []string{`R"a"`, `mode="fast"`}},
		{"code/scheduler", "fetch = PythonOperator(task_id=\"fetch\", python_callable=get, retries=3)\nload = BashOperator(task_id=\"load\", bash_command=\"load.sh\")\nfetch >> load", "fetch", "PythonOperator", []string{`retries=3`}},
		{"code/described", "step(\"a\", tool=\"search\", n=4)\nstep(\"b\", after=[\"a\"], owner=\"Ann\")", "a", "search", []string{`n=4`}},
		{"code/chain", "load(\"x\", n=1).clean(min=2).embed(dim=3).cluster(k=4)", "cluster", "", []string{`k=4`}},
		{"outline/below", "1. Find papers\n   tool: search\n   args: {\"n\": 3, \"deep\": true}\n   owner: Ann\n2. Sum them up (needs 1)\n   tool: llm", "1", "search", []string{`n=3`, `deep=true`, `owner="Ann"`}},
		{"outline/brackets", "1. Find papers (tool: web search, owner: Ann, duration: 3d, n: 3)\n2. Sum them up (needs 1)", "1", "web search", []string{`owner="Ann"`, `duration="3d"`, `n=3`}},
		{"outline/no-tool", "1. Find papers\n   action: buy some milk\n2. Sum them up (needs 1)", "1", "", []string{`action="buy some milk"`}},
		{"table/types", "| ID | Task | Depends on | Hours | Urgent | Zip |\n|---|---|---|---|---|---|\n| 1 | dig | - | 4.5 | TRUE | 007 |\n| 2 | plant | 1 | 3 | no | 12 |", "1", "", []string{`Hours=4.5`, `Urgent=true`, `Zip="007"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := plan.Parse(c.text)
			for _, p := range r.Graph.Problems {
				if p.ID != c.id {
					continue
				}
				require.Equal(t, c.tool, p.Tool)
				require.Equal(t, c.args, argsOf(p))
				return
			}
			require.Fail(t, "no problem "+c.id, "%v", r)
		})
	}
}

// argsOf returns arguments as name=value, with an R before those that refer to a result.
func argsOf(p plan.Problem) []string {
	var out []string
	for _, a := range p.Args {
		s := strings.TrimPrefix(a.Name+"="+a.Value, "=")
		if a.Kind == plan.Referring {
			s = "R" + s
		}
		out = append(out, s)
	}
	return out
}

// TestValuesFaults shows that numbers among arguments are no references, and that an unclosed text is
// reported.
func TestValuesFaults(t *testing.T) {
	t.Parallel()
	r := plan.Parse("1. Find papers\n   args: {\"n\": 3}\n2. Sum them up (needs 1)\n   tool: llm")
	require.Len(t, r.Graph.Edges, 1)
	require.Equal(t, []plan.Code{plan.OpenEnd}, codes(r.Diagnostics))
	r = plan.Parse("a = load('x.csv')\nb = drop(a, mode=\"fast)\nplot(b, kind=\"bar\")")
	require.Len(t, r.Graph.Edges, 2)
	require.Contains(t, codes(r.Diagnostics), plan.Unclosed)
}

// TestFieldsOfNotations shows what becomes of fields that strict notations do not ask for. Fields of problems
// are arguments. Fields of links are arguments of the later problem, named after the edge. Fields of the plan
// count to its surroundings.
func TestFieldsOfNotations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dialect, text, id string
		args              []string
		around            []plan.LineRange
	}{
		{"task_list", "{\"goal\": \"win\",\n\"tasks\": [{\"task_id\": \"1\", \"instruction\": \"dig\", \"dependent_task_ids\": []},\n{\"task_id\": \"2\", \"instruction\": \"plant\", \"dependent_task_ids\": [{\"id\": \"1\", \"lag\": \"+2d\"}], \"urgent\": true, \"risk\": {\"level\": 3}}]}", "2", []string{`urgent=true`, `risk={"level":3}`, `1 -> 2={"lag":"+2d"}`}, []plan.LineRange{{First: 1, Last: 1}}},
		{"tool_graph", "{\"task_nodes\": [{\"task\": \"crop\"}, {\"task\": \"send\", \"arguments\": [\"x\"], \"risk\": 3}],\n\"task_links\": [{\"source\": \"crop\", \"target\": \"send\", \"reason\": \"the file\"}]}", "send", []string{`"x"`, `risk=3`, `crop -> send={"reason":"the file"}`}, nil},
		{"step_relations", "{\"substeps\": [{\"stepId\": 1, \"step\": \"dig\"}, {\"stepId\": 2, \"step\": \"plant\", \"urgent\": true}], \"dependencies\": [{\"subtask1\": \"dig\", \"relation\": \"before\", \"subtask2\": \"plant\", \"why\": \"holes\"}]}", "2", []string{`urgent=true`, `1 -> 2={"why":"holes"}`}, nil},
		{"command_tasks", "[{\"command_name\": \"Plan.append_task\", \"args\": {\"task_id\": \"1\", \"instruction\": \"dig\", \"dependent_task_ids\": [], \"assignee\": \"Kim\"}}]", "1", []string{`assignee="Kim"`}, nil},
		{"nested_calls", "[{\"name\": \"rate\", \"arguments\": {}, \"label\": \"var1\"}, {\"name\": \"pay\", \"arguments\": {\"sum\": \"$var1.value$\"}, \"label\": \"var2\", \"why\": \"debt\"}]", "var2", []string{`Rsum="$var1.value$"`, `why="debt"`}, nil},
		{"step_tools", "[{\"step\": \"1.1 look\", \"tool\": \"search\", \"param\": {\"n\": 2}, \"urgent\": true}, {\"step\": \"1.2 book\", \"tool\": \"book\", \"param\": {}}]", "1.1", []string{`n=2`, `urgent=true`}, nil},
		{"task_names", "{\"goal\": \"ship\", \"Task list\": [\"lib.py\", \"main.py\"]}", "lib.py", nil, []plan.LineRange{{First: 1, Last: 1}}},
		{"single_action", "{\"plan\": {\"rationale\": \"to tell\", \"function\": \"Mail.Send\", \"parameters\": {}, \"risk\": \"low\"}}", "Mail.Send", []string{`risk="low"`}, nil},
		{"call_log", "idx: 1\ntool: search\nargs: {\"q\": \"x\"}\nurgent: true\ndependencies: []\n---\nidx: 2\ntool: sum\nargs: {}\ndependencies: [1]", "1", []string{`q="x"`, `urgent=true`}, nil},
		{"task_list", "[{\"id\": \"a\", \"title\": \"dig\", \"needs\": []}, {\"id\": \"b\", \"title\": \"plant\", \"needs\": [\"a FS+2d\"]}]", "b", []string{`a -> b="FS+2d"`}, nil},
		{"evidence", "Step 1: find it\n#E1 = Search[tower]\nStep 2: sum it up\n#E2 = LLM[how old is #E1]", "#E2", []string{`tool="LLM"`, `Rinput="how old is #E1"`}, []plan.LineRange{{First: 1, Last: 1}}},
		{"records", "{\"goal\": \"win\", \"by\": \"May\",\n\"steps\": [{\"id\": \"a\", \"title\": \"dig\"}, {\"id\": \"b\", \"title\": \"plant\"}, {\"id\": \"c\", \"title\": \"water\"}], // dry\n\"connections\": [{\"from\": \"a\", \"to\": \"b\", \"reason\": \"holes\"},\n{\"from\": \"b\", \"to\": \"c\"}]}", "b", []string{`a -> b={"reason":"holes"}`}, []plan.LineRange{{First: 1, Last: 2}}},
		{"records", "name: ci\non:\n  push:\n    branches: [release]\njobs:\n  build:\n    steps: [make]\n  test:\n    needs: build\n    timeout-minutes: 30\n", "test", []string{`timeout-minutes=30`}, []plan.LineRange{{First: 1, Last: 4}}},
		{"records", "services:\n  db:\n    image: postgres\n  web:\n    image: nginx\n    depends_on:\n      db:\n        condition: service_healthy\n", "web", []string{`depends_on={"db":{"condition":"service_healthy"}}`}, nil},
		{"table", "| ID | Task | Depends on |\n|---|---|---|\n| 1 | dig | - |\n| 2 | plant | 1FS+2d |", "2", []string{`Depends on="1FS+2d"`}, nil},
		{"diagram", "graph TD\n  A[Dig] -->|holes ready| B[Plant]\n  B -- when dry --> C[Water]", "C", []string{`B -> C="when dry"`}, []plan.LineRange{{First: 1, Last: 1}}},
		{"diagram", "digraph G { a [label=\"dig it\", owner=\"Ann\"]; a -> b [label=\"holes\", weight=3]; b [label=\"plant\"]; }", "b", []string{`a -> b={"weight":3,"label":"holes"}`}, nil},
		{"diagram", "gantt\n  title Fair\n  section Ground\n  Dig :a1, 2024-01-01, 30d\n  Plant :crit, a2, after a1, 20d\n", "a2", []string{`section="Ground"`, `status="crit"`, `duration="20d"`}, []plan.LineRange{{First: 1, Last: 3}}},
		{"code", "# the plan\nx = 3\n@asset\ndef raw():\n    return read('s.csv')\n\n@asset(retries=3)\ndef clean(raw):\n    return raw.dropna()\n", "clean", []string{`retries=3`}, []plan.LineRange{{First: 1, Last: 3}}},
		{"assignments", "1. a = FIND(CTX, \"who, when\") : find\n2. b = ASK(a, n=3, deep=true, of=[a, \"x\"]) : ask\n", "2", []string{`R"a"`, `n=3`, `deep=true`, `Rof=["a","x"]`}, nil},
		{"numbered_calls", "1. search(\"a, b\", n=3)\n2. math(\"$1 * 2\")\n3. join()\n", "1", []string{`"a, b"`, `n=3`}, nil},
		{"xml_problems", "<StructuredResponse>\n<Goal>tea</Goal>\n<Problems><Problem urgent=\"yes\"><Request>Boil</Request><Owner>Kim</Owner><ProblemID>A</ProblemID></Problem>\n<Problem><Request>Brew</Request><ProblemID>B</ProblemID></Problem></Problems><ProblemGraph>A -> B</ProblemGraph></StructuredResponse>", "A", []string{`urgent="yes"`, `Owner="Kim"`}, []plan.LineRange{{First: 2, Last: 2}}},
	} {
		t.Run(c.dialect+"/"+c.id, func(t *testing.T) {
			t.Parallel()
			r := plan.Parse(c.text)
			require.Equal(t, c.dialect, r.Dialect)
			require.Equal(t, c.around, r.Surroundings)
			for _, p := range r.Graph.Problems {
				if p.ID == c.id {
					require.Equal(t, c.args, argsOf(p))
					return
				}
			}
			require.Fail(t, "no problem "+c.id)
		})
	}
}
