package plan_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
)

// TestEveryday reads short texts as people and models write them. The expected edges are in the order of the
// plan.
func TestEveryday(t *testing.T) {
	for name, c := range map[string]struct{ text, ids, edges string }{
		"Makefile/Introduced": {
			"Here is the Makefile:\n\nall: report\n\nreport: clean stats\n\tpython report.py\n\nclean: raw\n\tpython clean.py\n\nstats: clean\n\nraw:\n\tcurl x\n",
			"all report clean stats raw", "report>all clean>report stats>report raw>clean clean>stats",
		},
		"Makefile/OneRecipe": {
			"all: report\nreport: clean stats\nclean: raw\nstats: clean\nraw:\n\tcurl x\n",
			"all report clean stats raw", "report>all clean>report stats>report raw>clean clean>stats",
		},
		"Transcript/PlanInAString": {
			`{"role":"assistant","tool_calls":[{"id":"c1","function":{"name":"create_plan","arguments":"{\"steps\":[{\"id\":1,\"task\":\"find flights\"},{\"id\":2,\"task\":\"book\",\"depends_on\":[1]}]}"}}]}`,
			"1 2", "1>2",
		},
		"Transcript/Speakers": {
			"Jonas: Wie gehen wir vor?\nMeike: Ich würd sagen so:\nMeike: 1. Halle anfragen\nMeike: 2. Einladungen schicken (nach 1)\nMeike: 3. Pokale gravieren lassen (nach 2)\nJonas: passt\n",
			"1 2 3", "1>2 2>3",
		},
		"Transcript/Times": {
			"[09:02] Ann: What is left?\n[09:03] Bob: A: back up the database\n[09:03] Bob: B: change the schema (after A)\n[09:04] Bob: C: restart the app (after B)\n[09:05] Ann: Thanks!\n",
			"A B C", "A>B B>C",
		},
		"Arrows/QuotedNamesAbove": {
			"\"read the map\"\n\"pack\"\n\"leave\"\n\"pack\" -> \"leave\"\n",
			"read the map pack leave", "pack>leave",
		},
		"Table/OneRow": {
			"| # | Task | Depends on |\n|---|---|---|\n| 1 | carry out the work | - |\n",
			"1", "",
		},
		"Lettered/StepCalledJoin": {
			"1a) Fetch orders (no dependencies)\n1b) Fetch customers (no dependencies)\n2) Join (after 1a and 1b)\n",
			"1a 1b 2", "1a>2 1b>2",
		},
		"ActionItems/OwnersBeforeColons": {
			"Action items:\n- Maria: send contract to legal (by Fri)\n- Tom: book the room, after Maria's contract is signed\n- Li: prepare slides\n",
			"1 2 3", "1>2",
		},
		"Prose/LabelsWithinSentences": {"T1 is to dig the hole, T2 is to plant the tree. T2 needs T1, and T3 needs T2.", "T1 T2 T3", "T1>T2 T2>T3"},
		"Packing/ShortDrawing":        {`{"output": "A -> B"}`, "A B", "A>B"},
		"Headings/NumbersBelowPhases": {
			"# Phase 1\n1. Dig\n2. Fill\n# Phase 2 (after Phase 1)\n1. Plant\n2. Water\n# Phase 3 (after Phase 2)\n1. Mow\n2. Rake",
			"1.1 1.2 2.1 2.2 3.1 3.2", "1.1>2.1 1.2>2.1 1.1>2.2 1.2>2.2 2.1>3.1 2.2>3.1 2.1>3.2 2.2>3.2",
		},
		"Bullets/NameAlone": {"- dig\n- plant (after dig)", "dig plant", "dig>plant"},
		"Code/BareLastCall": {
			"raw = load_data(\"sales.csv\")\nclean = drop_nulls(raw)\nmodel = train(clean)\npublish(model)",
			"raw clean model publish", "raw>clean clean>model model>publish",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := plan.Parse(c.text)
			require.Empty(t, warnings(r))
			ids, edges := []string{}, []string{}
			for _, p := range r.Graph.Problems {
				require.NotEmpty(t, p.Request)
				ids = append(ids, p.ID)
			}
			for _, e := range r.Graph.Edges {
				edges = append(edges, e.From+">"+e.To)
			}
			require.Equal(t, c.ids, strings.Join(ids, " "))
			require.ElementsMatch(t, strings.Fields(c.edges), edges)
		})
	}
}

// warnings returns the diagnostics of a reading that report a possible fault.
func warnings(r plan.Result) []string {
	var out []string
	for _, d := range r.Diagnostics {
		if d.Severity != plan.Info {
			out = append(out, string(d.Code)+" "+d.Message)
		}
	}
	return out
}

// TestArguments reads what a text says of its first problem in addition to its request.
func TestArguments(t *testing.T) {
	for name, c := range map[string]struct{ text, tool, args string }{
		"Calls/ArgumentsInAString": {
			`[{"id":"c1","type":"function","function":{"name":"search","arguments":"{\"query\": \"cats\", \"limit\": 5}"}},{"id":"c2","type":"function","function":{"name":"mail","arguments":"{}"}}]`,
			"search", `query="cats" limit=5`,
		},
		"XML/ToolIsNoArgument":   {`<plan><step id="1" tool="search"><title>look</title></step><step id="2" tool="mail" depends="1"><title>send</title></step></plan>`, "search", ""},
		"Tasks/OwnerAndDuration": {`[{"id":"1","task":"dig","deps":[],"args":{"x":1},"owner":"Ann","duration":"2d"},{"id":"2","task":"plant","deps":["1"]}]`, "", `x=1 owner="Ann" duration="2d"`},
		"List/OwnerAndDuration":  {"1. Dig (owner: Alice, 2 days)\n2. Plant (owner: Bob, 3 people)", "", `owner="Alice" duration="2 days"`},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan.Parse(c.text).Graph.Problems[0]
			var args []string
			for _, a := range p.Args {
				args = append(args, a.Name+"="+a.Value)
			}
			require.Equal(t, c.tool, p.Tool)
			require.Equal(t, c.args, strings.Join(args, " "))
		})
	}
}
