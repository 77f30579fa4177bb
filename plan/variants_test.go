package plan_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
)

// variant is one way of writing a small plan. ids and edges are separated by |, the ends of an edge by >.
type variant struct{ name, text, ids, edges string }

func checkVariants(t *testing.T, vs []variant) {
	t.Helper()
	for _, v := range vs {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			r := plan.Parse(v.text)
			require.Nil(t, r.NoPlan, "%+v", r.NoPlan)
			var ids, edges []string
			for _, p := range r.Graph.Problems {
				ids = append(ids, p.ID)
			}
			for _, e := range r.Graph.Edges {
				edges = append(edges, e.From+">"+e.To)
			}
			require.Equal(t, v.ids, strings.Join(ids, "|"))
			if v.edges != "*" {
				require.ElementsMatch(t, strings.FieldsFunc(v.edges, func(c rune) bool { return c == '|' }), edges)
			}
		})
	}
}

func TestVariantsXML(t *testing.T) {
	t.Parallel()
	checkVariants(t, []variant{
		{"XML/Arrow➡", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL ➡ BREW\nBREW ➡ POUR</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/Arrow⟹", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL ⟹ BREW\nBREW ⟹ POUR</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/Arrow->>", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL ->> BREW\nBREW ->> POUR</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/Arrow—>", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL —> BREW\nBREW —> POUR</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/Arrow–>", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL –> BREW\nBREW –> POUR</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/Semicolons", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL -> BREW; BREW -> POUR</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/SemicolonEnd", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL -> BREW;\nBREW -> POUR;</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/BracketsGroup", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>[BOIL, BREW] -> POUR</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>POUR|BREW>POUR"},
		{"XML/BracketsSingle", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>[BOIL] -> [BREW]\n[BREW] -> [POUR]</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/Backticks", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>`BOIL` -> `BREW`\n`BREW` -> `POUR`</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/SingleQuotes", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>'BOIL' -> 'BREW'\n'BREW' -> 'POUR'</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/Bold", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>**BOIL** -> **BREW**\n**BREW** -> **POUR**</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/Bullets", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>- BOIL -> BREW\n- BREW -> POUR</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/StarBullets", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>* BOIL -> BREW\n* BREW -> POUR</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/NumberedLines", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>1. BOIL -> BREW\n2. BREW -> POUR</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/TrailingPeriods", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL -> BREW.\nBREW -> POUR.</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/CommentLines", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph># the order\nBOIL -> BREW\nBREW -> POUR</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/XmlComment", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph><!-- order -->\nBOIL -> BREW\nBREW -> POUR</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/XmlComment2", "<StructuredResponse>\n<!-- <Problem><ProblemID>OLD</ProblemID></Problem> -->\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL -> BREW\nBREW -> POUR</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/CdataRequestWithTags", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request><![CDATA[if a < b </Request> <Problem>]]></Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL -> BREW\nBREW -> POUR</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/Snake", "<structured_response>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<problem_id>BOIL</problem_id>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<problem_id>BREW</problem_id>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<problem_id>POUR</problem_id>\n</Problem>\n</Problems>\n<problem_graph>BOIL -> BREW\nBREW -> POUR</problem_graph>\n</structured_response>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/Ns", "<ep:StructuredResponse>\n<ep:Problems>\n<ep:Problem>\n<ep:Request>Do BOIL</ep:Request>\n<ep:ProblemID>BOIL</ep:ProblemID>\n</ep:Problem>\n<ep:Problem>\n<ep:Request>Do BREW</ep:Request>\n<ep:ProblemID>BREW</ep:ProblemID>\n</ep:Problem>\n<ep:Problem>\n<ep:Request>Do POUR</ep:Request>\n<ep:ProblemID>POUR</ep:ProblemID>\n</ep:Problem>\n</ep:Problems>\n<ep:ProblemGraph>BOIL -> BREW\nBREW -> POUR</ep:ProblemGraph>\n</ep:StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/EscapedWhole", "&lt;StructuredResponse&gt;\n&lt;Problems&gt;\n&lt;Problem&gt;\n&lt;Request&gt;Do BOIL&lt;/Request&gt;\n&lt;ProblemID&gt;BOIL&lt;/ProblemID&gt;\n&lt;/Problem&gt;\n&lt;Problem&gt;\n&lt;Request&gt;Do BREW&lt;/Request&gt;\n&lt;ProblemID&gt;BREW&lt;/ProblemID&gt;\n&lt;/Problem&gt;\n&lt;Problem&gt;\n&lt;Request&gt;Do POUR&lt;/Request&gt;\n&lt;ProblemID&gt;POUR&lt;/ProblemID&gt;\n&lt;/Problem&gt;\n&lt;/Problems&gt;\n&lt;ProblemGraph&gt;BOIL -&gt; BREW\nBREW -&gt; POUR&lt;/ProblemGraph&gt;\n&lt;/StructuredResponse&gt;", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/EscapedWholeFenced", "```xml\n&lt;StructuredResponse&gt;\n&lt;Problems&gt;\n&lt;Problem&gt;\n&lt;Request&gt;Do BOIL&lt;/Request&gt;\n&lt;ProblemID&gt;BOIL&lt;/ProblemID&gt;\n&lt;/Problem&gt;\n&lt;Problem&gt;\n&lt;Request&gt;Do BREW&lt;/Request&gt;\n&lt;ProblemID&gt;BREW&lt;/ProblemID&gt;\n&lt;/Problem&gt;\n&lt;Problem&gt;\n&lt;Request&gt;Do POUR&lt;/Request&gt;\n&lt;ProblemID&gt;POUR&lt;/ProblemID&gt;\n&lt;/Problem&gt;\n&lt;/Problems&gt;\n&lt;ProblemGraph&gt;BOIL -&gt; BREW\nBREW -&gt; POUR&lt;/ProblemGraph&gt;\n&lt;/StructuredResponse&gt;\n```", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/JsonString", `"<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL -> BREW\nBREW -> POUR</ProblemGraph>\n</StructuredResponse>"`, "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/JsonObj", `{"output": "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL -> BREW\nBREW -> POUR</ProblemGraph>\n</StructuredResponse>"}`, "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/JsonObj2", `{"plan": "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL -> BREW\nBREW -> POUR</ProblemGraph>\n</StructuredResponse>", "ok": true}`, "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/JsonObjIndent", "{\n \"response\": \"<StructuredResponse>\\n<Problems>\\n<Problem>\\n<Request>Do BOIL</Request>\\n<ProblemID>BOIL</ProblemID>\\n</Problem>\\n<Problem>\\n<Request>Do BREW</Request>\\n<ProblemID>BREW</ProblemID>\\n</Problem>\\n<Problem>\\n<Request>Do POUR</Request>\\n<ProblemID>POUR</ProblemID>\\n</Problem>\\n</Problems>\\n<ProblemGraph>BOIL -> BREW\\nBREW -> POUR</ProblemGraph>\\n</StructuredResponse>\"\n}", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/PythonRepr", `'<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL -> BREW\nBREW -> POUR</ProblemGraph>\n</StructuredResponse>'`, "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/ChatCompletion", `{"id": "x", "choices": [{"index": 0, "message": {"role": "assistant", "content": "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL -> BREW\nBREW -> POUR</ProblemGraph>\n</StructuredResponse>"}}]}`, "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/NoneGraph", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>None</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", ""},
		{"XML/NoneParen", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>(none)</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", ""},
		{"XML/SelfclosedGraph", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph/>\n</StructuredResponse>", "BOIL|BREW|POUR", ""},
		{"XML/NestedThink", "<think>a <think>b</think> c <StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>POUR -> BOIL</ProblemGraph>\n</StructuredResponse></think>\n<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL -> BREW\nBREW -> POUR</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/UnopenedThinkW/Plan", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>POUR -> BOIL</ProblemGraph>\n</StructuredResponse>\n</think>\n<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL -> BREW\nBREW -> POUR</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/ThinkAttrs", "<think type=\"x\"><StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>POUR -> BOIL</ProblemGraph>\n</StructuredResponse></think>\n<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL -> BREW\nBREW -> POUR</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/GraphAttr", "<Problems><Problem id=\"A\"><Request>x</Request></Problem><Problem id=\"B\"><Request>y</Request></Problem></Problems><ProblemGraph>A -> B</ProblemGraph>", "A|B", "A>B"},
		{"XML/TwoPlansSame", "<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL -> BREW\nBREW -> POUR</ProblemGraph>\n</StructuredResponse>\n\n<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL -> BREW\nBREW -> POUR</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
		{"XML/TwoPlansRevised", "First try:\n<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL -> POUR</ProblemGraph>\n</StructuredResponse>\n\nRevised plan:\n<StructuredResponse>\n<Problems>\n<Problem>\n<Request>Do BOIL</Request>\n<ProblemID>BOIL</ProblemID>\n</Problem>\n<Problem>\n<Request>Do BREW</Request>\n<ProblemID>BREW</ProblemID>\n</Problem>\n<Problem>\n<Request>Do POUR</Request>\n<ProblemID>POUR</ProblemID>\n</Problem>\n</Problems>\n<ProblemGraph>BOIL -> BREW\nBREW -> POUR</ProblemGraph>\n</StructuredResponse>", "BOIL|BREW|POUR", "BOIL>BREW|BREW>POUR"},
	})
}

func TestVariantsJSON(t *testing.T) {
	t.Parallel()
	checkVariants(t, []variant{
		{"JSON/TwoFences", "```json\n[{\"task_id\": \"1\", \"dependent_task_ids\": [], \"instruction\": \"load\"}]\n```\nNo, better:\n```json\n[{\"task_id\": \"1\", \"dependent_task_ids\": [], \"instruction\": \"load\"}, {\"task_id\": \"2\", \"dependent_task_ids\": [\"1\"], \"instruction\": \"clean\"}, {\"task_id\": \"3\", \"dependent_task_ids\": [\"1\", \"2\"], \"instruction\": \"plot\"}]\n```", "1|2|3", "1>2|1>3|2>3"},
		{"JSON/JsonInJsonString", `{"output": "[{\"task_id\": \"1\", \"dependent_task_ids\": [], \"instruction\": \"load\"}, {\"task_id\": \"2\", \"dependent_task_ids\": [\"1\"], \"instruction\": \"clean\"}, {\"task_id\": \"3\", \"dependent_task_ids\": [\"1\", \"2\"], \"instruction\": \"plot\"}]"}`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/JsonString", `"[{\"task_id\": \"1\", \"dependent_task_ids\": [], \"instruction\": \"load\"}, {\"task_id\": \"2\", \"dependent_task_ids\": [\"1\"], \"instruction\": \"clean\"}, {\"task_id\": \"3\", \"dependent_task_ids\": [\"1\", \"2\"], \"instruction\": \"plot\"}]"`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/JsonInStringX2", `"\"[{\\\"task_id\\\": \\\"1\\\", \\\"dependent_task_ids\\\": [], \\\"instruction\\\": \\\"load\\\"}, {\\\"task_id\\\": \\\"2\\\", \\\"dependent_task_ids\\\": [\\\"1\\\"], \\\"instruction\\\": \\\"clean\\\"}, {\\\"task_id\\\": \\\"3\\\", \\\"dependent_task_ids\\\": [\\\"1\\\", \\\"2\\\"], \\\"instruction\\\": \\\"plot\\\"}]\""`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/JsonInStringFenced", "{\"output\": \"```json\\n[\\n {\\n  \\\"task_id\\\": \\\"1\\\",\\n  \\\"dependent_task_ids\\\": [],\\n  \\\"instruction\\\": \\\"load\\\"\\n },\\n {\\n  \\\"task_id\\\": \\\"2\\\",\\n  \\\"dependent_task_ids\\\": [\\n   \\\"1\\\"\\n  ],\\n  \\\"instruction\\\": \\\"clean\\\"\\n },\\n {\\n  \\\"task_id\\\": \\\"3\\\",\\n  \\\"dependent_task_ids\\\": [\\n   \\\"1\\\",\\n   \\\"2\\\"\\n  ],\\n  \\\"instruction\\\": \\\"plot\\\"\\n }\\n]\\n```\"}", "1|2|3", "1>2|1>3|2>3"},
		{"JSON/Openai", `{"id": "c", "object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant", "content": "[{\"task_id\": \"1\", \"dependent_task_ids\": [], \"instruction\": \"load\"}, {\"task_id\": \"2\", \"dependent_task_ids\": [\"1\"], \"instruction\": \"clean\"}, {\"task_id\": \"3\", \"dependent_task_ids\": [\"1\", \"2\"], \"instruction\": \"plot\"}]"}, "finish_reason": "stop"}], "usage": {"total_tokens": 3}}`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/ToolCallArgs", `{"tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "submit_plan", "arguments": "{\"tasks\": [{\"task_id\": \"1\", \"dependent_task_ids\": [], \"instruction\": \"load\"}, {\"task_id\": \"2\", \"dependent_task_ids\": [\"1\"], \"instruction\": \"clean\"}, {\"task_id\": \"3\", \"dependent_task_ids\": [\"1\", \"2\"], \"instruction\": \"plot\"}]}"}}]}`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/SmartAllSame", "[{”task_id”: ”1”, ”dependent_task_ids”: [], ”instruction”: ”load”}, {”task_id”: ”2”, ”dependent_task_ids”: [”1”], ”instruction”: ”clean”}, {”task_id”: ”3”, ”dependent_task_ids”: [”1”, ”2”], ”instruction”: ”plot”}]", "1|2|3", "1>2|1>3|2>3"},
		{"JSON/GermanQuotes", `[{"task_id": „1“, "dependent_task_ids": [], "instruction": "load"}, {"task_id": "2", "dependent_task_ids": [„1“], "instruction": "clean"}, {"task_id": "3", "dependent_task_ids": [„1“, "2"], "instruction": "plot"}]`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/FullwidthPunct", `[{"task_id"： "1"，"dependent_task_ids"： []，"instruction"： "load"}，{"task_id"： "2"，"dependent_task_ids"： ["1"]，"instruction"： "clean"}，{"task_id"： "3"，"dependent_task_ids"： ["1"，"2"]，"instruction"： "plot"}]`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/FullwidthBrackets", `［｛"task_id": "1", "dependent_task_ids": ［］, "instruction": "load"｝, ｛"task_id": "2", "dependent_task_ids": ［"1"］, "instruction": "clean"｝, ｛"task_id": "3", "dependent_task_ids": ［"1", "2"］, "instruction": "plot"｝］`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/FullwidthQuotes", "[{＂task_id＂: ＂1＂, ＂dependent_task_ids＂: [], ＂instruction＂: ＂load＂}, {＂task_id＂: ＂2＂, ＂dependent_task_ids＂: [＂1＂], ＂instruction＂: ＂clean＂}, {＂task_id＂: ＂3＂, ＂dependent_task_ids＂: [＂1＂, ＂2＂], ＂instruction＂: ＂plot＂}]", "1|2|3", "1>2|1>3|2>3"},
		{"JSON/MdList", "- {\"task_id\": \"1\", \"dependent_task_ids\": [], \"instruction\": \"load\"}\n- {\"task_id\": \"2\", \"dependent_task_ids\": [\"1\"], \"instruction\": \"clean\"}\n- {\"task_id\": \"3\", \"dependent_task_ids\": [\"1\", \"2\"], \"instruction\": \"plot\"}", "1|2|3", "1>2|1>3|2>3"},
		{"JSON/NumberedJson", "1. {\"task_id\": \"1\", \"dependent_task_ids\": [], \"instruction\": \"load\"}\n2. {\"task_id\": \"2\", \"dependent_task_ids\": [\"1\"], \"instruction\": \"clean\"}\n3. {\"task_id\": \"3\", \"dependent_task_ids\": [\"1\", \"2\"], \"instruction\": \"plot\"}", "1|2|3", "1>2|1>3|2>3"},
		{"JSON/ProseBetweenObjs", "Task 1:\n{\n \"task_id\": \"1\",\n \"dependent_task_ids\": [],\n \"instruction\": \"load\"\n}\nTask 2:\n{\n \"task_id\": \"2\",\n \"dependent_task_ids\": [\n  \"1\"\n ],\n \"instruction\": \"clean\"\n}\nTask 3:\n{\n \"task_id\": \"3\",\n \"dependent_task_ids\": [\n  \"1\",\n  \"2\"\n ],\n \"instruction\": \"plot\"\n}", "1|2|3", "1>2|1>3|2>3"},
		{"JSON/FencesEach", "Task 1:\n```json\n{\n \"task_id\": \"1\",\n \"dependent_task_ids\": [],\n \"instruction\": \"load\"\n}\n```\nTask 2:\n```json\n{\n \"task_id\": \"2\",\n \"dependent_task_ids\": [\n  \"1\"\n ],\n \"instruction\": \"clean\"\n}\n```\nTask 3:\n```json\n{\n \"task_id\": \"3\",\n \"dependent_task_ids\": [\n  \"1\",\n  \"2\"\n ],\n \"instruction\": \"plot\"\n}\n```", "1|2|3", "1>2|1>3|2>3"},
		{"JSON/Escaped", `[{\"task_id\": \"1\", \"dependent_task_ids\": [], \"instruction\": \"load\"}, {\"task_id\": \"2\", \"dependent_task_ids\": [\"1\"], \"instruction\": \"clean\"}, {\"task_id\": \"3\", \"dependent_task_ids\": [\"1\", \"2\"], \"instruction\": \"plot\"}]`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/HtmlEntities", "[{&quot;task_id&quot;: &quot;1&quot;, &quot;dependent_task_ids&quot;: [], &quot;instruction&quot;: &quot;load&quot;}, {&quot;task_id&quot;: &quot;2&quot;, &quot;dependent_task_ids&quot;: [&quot;1&quot;], &quot;instruction&quot;: &quot;clean&quot;}, {&quot;task_id&quot;: &quot;3&quot;, &quot;dependent_task_ids&quot;: [&quot;1&quot;, &quot;2&quot;], &quot;instruction&quot;: &quot;plot&quot;}]", "1|2|3", "1>2|1>3|2>3"},
		{"JSON/Zwsp", "\u200b[{\"task_id\": \"1\",\u200b\"dependent_task_ids\": [],\u200b\"instruction\": \"load\"},\u200b{\"task_id\": \"2\",\u200b\"dependent_task_ids\": [\"1\"],\u200b\"instruction\": \"clean\"},\u200b{\"task_id\": \"3\",\u200b\"dependent_task_ids\": [\"1\",\u200b\"2\"],\u200b\"instruction\": \"plot\"}]", "1|2|3", "1>2|1>3|2>3"},
		{"JSON/DictOfTasks", `{"1": {"dependent_task_ids": [], "instruction": "load"}, "2": {"dependent_task_ids": ["1"], "instruction": "clean"}, "3": {"dependent_task_ids": ["1", "2"], "instruction": "plot"}}`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/DictOfTasksWrap", `{"tasks": {"1": {"dependent_task_ids": [], "instruction": "load"}, "2": {"dependent_task_ids": ["1"], "instruction": "clean"}, "3": {"dependent_task_ids": ["1", "2"], "instruction": "plot"}}}`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/KeyParent_Ids", `[{"id": "1", "name": "t1", "parent_ids": []}, {"id": "2", "name": "t2", "parent_ids": ["1"]}, {"id": "3", "name": "t3", "parent_ids": ["1", "2"]}]`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/KeyUpstream", `[{"id": "1", "name": "t1", "upstream": []}, {"id": "2", "name": "t2", "upstream": ["1"]}, {"id": "3", "name": "t3", "upstream": ["1", "2"]}]`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/KeyInputs_From", `[{"id": "1", "name": "t1", "inputs_from": []}, {"id": "2", "name": "t2", "inputs_from": ["1"]}, {"id": "3", "name": "t3", "inputs_from": ["1", "2"]}]`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/KeyPrereqs", `[{"id": "1", "name": "t1", "prereqs": []}, {"id": "2", "name": "t2", "prereqs": ["1"]}, {"id": "3", "name": "t3", "prereqs": ["1", "2"]}]`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/KeyRunafter", `[{"id": "1", "name": "t1", "runAfter": []}, {"id": "2", "name": "t2", "runAfter": ["1"]}, {"id": "3", "name": "t3", "runAfter": ["1", "2"]}]`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/KeyRun_After", `[{"id": "1", "name": "t1", "run_after": []}, {"id": "2", "name": "t2", "run_after": ["1"]}, {"id": "3", "name": "t3", "run_after": ["1", "2"]}]`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/KeyWait_For", `[{"id": "1", "name": "t1", "wait_for": []}, {"id": "2", "name": "t2", "wait_for": ["1"]}, {"id": "3", "name": "t3", "wait_for": ["1", "2"]}]`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/KeyPrevious", `[{"id": "1", "name": "t1", "previous": []}, {"id": "2", "name": "t2", "previous": ["1"]}, {"id": "3", "name": "t3", "previous": ["1", "2"]}]`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/KeyRequires_Tasks", `[{"id": "1", "name": "t1", "requires_tasks": []}, {"id": "2", "name": "t2", "requires_tasks": ["1"]}, {"id": "3", "name": "t3", "requires_tasks": ["1", "2"]}]`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/KeyDepends", `[{"id": "1", "name": "t1", "depends": []}, {"id": "2", "name": "t2", "depends": ["1"]}, {"id": "3", "name": "t3", "depends": ["1", "2"]}]`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/Next", `[{"id": "1", "name": "a", "next": ["2", "3"]}, {"id": "2", "name": "b", "next": ["3"]}, {"id": "3", "name": "c", "next": []}]`, "1|2|3", "1>2|1>3|2>3"},
		{"JSON/Blockquote", "> [\n>   {\n>     \"task_id\": \"1\",\n>     \"dependent_task_ids\": [],\n>     \"instruction\": \"load\"\n>   },\n>   {\n>     \"task_id\": \"2\",\n>     \"dependent_task_ids\": [\n>       \"1\"\n>     ],\n>     \"instruction\": \"clean\"\n>   },\n>   {\n>     \"task_id\": \"3\",\n>     \"dependent_task_ids\": [\n>       \"1\",\n>       \"2\"\n>     ],\n>     \"instruction\": \"plot\"\n>   }\n> ]", "1|2|3", "1>2|1>3|2>3"},
		{"JSON/ParabenchSmart", `{"substeps":[{"stepId":1,"step":"dig the “hole”"},{"stepId":2,"step":"plant"}],"dependencies":[{"subtask1":"dig the \"hole\"","relation":"Must be done before","subtask2":"plant"}]}`, "1|2", "1>2"},
	})
}

func TestVariantsNumbered(t *testing.T) {
	t.Parallel()
	checkVariants(t, []variant{
		{"Numbered/(1)", "(1) Pack the boxes\n(2) Rent a van\n(3) Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/[1]", "[1] Pack the boxes\n[2] Rent a van\n[3] Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/#1", "#1 Pack the boxes\n#2 Rent a van\n#3 Drive to the new house", "#1|#2|#3", "#1>#2|#2>#3"},
		{"Numbered/1\\.", "1\\. Pack the boxes\n2\\. Rent a van\n3\\. Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/**Step1**:", "**Step 1**: Pack the boxes\n**Step 2**: Rent a van\n**Step 3**: Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/Step1/3:", "Step 1/3: Pack the boxes\nStep 2/3: Rent a van\nStep 3/3: Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/[Step1]", "[Step 1] Pack the boxes\n[Step 2] Rent a van\n[Step 3] Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/**1**.", "**1**. Pack the boxes\n**2**. Rent a van\n**3**. Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/__1.__", "__1.__ Pack the boxes\n__2.__ Rent a van\n__3.__ Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/*1.*", "*1.* Pack the boxes\n*2.* Rent a van\n*3.* Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/`1.`", "`1.` Pack the boxes\n`2.` Rent a van\n`3.` Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/•1.", "• 1. Pack the boxes\n• 2. Rent a van\n• 3. Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/>1.", "> 1. Pack the boxes\n> 2. Rent a van\n> 3. Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/-[]1.", "- [ ] 1. Pack the boxes\n- [ ] 2. Rent a van\n- [ ] 3. Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/01.", "01. Pack the boxes\n02. Rent a van\n03. Drive to the new house", "01|02|03", "01>02|02>03"},
		{"Numbered/第1步：", "第1步：Pack the boxes\n第2步：Rent a van\n第3步：Drive to the new house", "第1步|第2步|第3步", "第1步>第2步|第2步>第3步"},
		{"Numbered/步骤一：", "步骤一：Pack the boxes\n步骤二：Rent a van\n步骤三：Drive to the new house", "一|二|三", "一>二|二>三"},
		{"Numbered/①", "① Pack the boxes\n② Rent a van\n③ Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/（1）", "（1）Pack the boxes\n（2）Rent a van\n（3）Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/第一，", "第一，Pack the boxes\n第二，Rent a van\n第三，Drive to the new house", "第一|第二|第三", "第一>第二|第二>第三"},
		{"Numbered/Ja2", "手順1: Pack the boxes\n手順2: Rent a van\n手順3: Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/Ko", "1단계: Pack the boxes\n2단계: Rent a van\n3단계: Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/Fr", "Étape 1 : Pack the boxes\nÉtape 2 : Rent a van\nÉtape 3 : Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/It", "Passo 1: Pack the boxes\nPasso 2: Rent a van\nPasso 3: Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/HindiDigits", "१. Pack the boxes\n२. Rent a van\n३. Drive to the new house", "१|२|३", "१>२|२>३"},
		{"Numbered/Pt", "Etapa 1: a\nEtapa 2: b\nEtapa 3: c", "1|2|3", "1>2|2>3"},
		{"Numbered/RomanI.", "I. Pack the boxes\nII. Rent a van\nIII. Drive to the new house", "I|II|III", "I>II|II>III"},
		{"Numbered/RomanI)", "i) Pack the boxes\nii) Rent a van\niii) Drive to the new house", "i|ii|iii", "i>ii|ii>iii"},
		{"Numbered/(I)", "(i) Pack the boxes\n(ii) Rent a van\n(iii) Drive to the new house", "i|ii|iii", "i>ii|ii>iii"},
		{"Numbered/A)", "a) Pack the boxes\nb) Rent a van\nc) Drive to the new house", "a|b|c", "a>b|b>c"},
		{"Numbered/A.", "A. Pack the boxes\nB. Rent a van\nC. Drive to the new house", "A|B|C", "A>B|B>C"},
		{"Numbered/(A)", "(a) Pack the boxes\n(b) Rent a van\n(c) Drive to the new house", "a|b|c", "a>b|b>c"},
		{"Numbered/NestedLetters", "1. Pack\n   a. Boxes\n   b. Tape\n2. Go", "1|a|b|2", "*"},
		{"Numbered/NestedLetters)", "1. Pack\n   a) Boxes\n   b) Tape\n2. Go", "1|a|b|2", "*"},
		{"Numbered/NestedLettersAgain", "1. Pack\n   a. Boxes\n   b. Tape\n2. Go\n   a. Drive\n   b. Park", "1|1a|1b|2|2a|2b", "1a>1b|1b>2a|2a>2b"},
		{"Numbered/NestedRoman", "1. Pack\n   i. Boxes\n   ii. Tape\n2. Go", "1|i|ii|2", "*"},
		{"Numbered/NestedDashNum", "1. Pack\n1-1 Boxes\n1-2 Tape\n2. Go", "1|1-1|1-2|2", "1-1>1-2|1-2>2"},
		{"Numbered/MdHeadings", "# Plan\n\n## 1. Pack\n\nPut all in boxes.\n\n## 2. Rent\n\nCall.\n\n## 3. Drive\n\nGo.", "1|2|3", "1>2|2>3"},
		{"Numbered/MdStepHeadings", "# Plan\n\n## Step 1: Pack\n\nPut all in boxes.\n\n## Step 2: Rent\n\nCall.\n\n## Step 3: Drive\n\nGo.", "1|2|3", "1>2|2>3"},
		{"Numbered/DetailsFlush", "1. Pack\nPut all in boxes.\n2. Rent\nCall.\n3. Drive\nGo.", "1|2|3", "1>2|2>3"},
		{"Numbered/AllOnes", "1. Pack\n1. Rent\n1. Drive", "1|2|3", "1>2|2>3"},
		{"Numbered/Table", "| # | Step |\n|---|---|\n| 1 | Pack |\n| 2 | Rent |\n| 3 | Drive |", "1|2|3", "*"},
		{"Numbered/TableDeps", "| ID | Task | Depends on |\n|---|---|---|\n| 1 | Pack | - |\n| 2 | Rent | 1 |\n| 3 | Drive | 1, 2 |", "1|2|3", "1>2|1>3|2>3"},
		{"Numbered/Requires", "1. Pack\n2. Rent (requires 1)\n3. Drive (requires: 1, 2)", "1|2|3", "1>2|1>3|2>3"},
		{"Numbered/AfterStep", "1. Pack\n2. Rent (after step 1)\n3. Drive (after 1 and 2)", "1|2|3", "1>2|1>3|2>3"},
		{"Numbered/DepsBrackets", "1. Pack [deps: none]\n2. Rent [deps: 1]\n3. Drive [deps: 1, 2]", "1|2|3", "1>2|1>3|2>3"},
		{"Numbered/DependsArrow", "1. Pack\n2. Rent <- 1\n3. Drive <- 1, 2", "1|2|3", "1>2|1>3|2>3"},
		{"Numbered/Prereq", "1. Pack\n   Prerequisites: none\n2. Rent\n   Prerequisites: 1\n3. Drive\n   Prerequisites: 1, 2", "1|2|3", "1>2|1>3|2>3"},
		{"Numbered/DependsRange", "1. a\n2. b\n3. c (depends on 1-2)", "1|2|3", "1>3|2>3"},
		{"Numbered/DependsStep-1", "1. a\n2. b (Dependencies: Step-1)\n3. c (Dependencies: [1, 2])", "1|2|3", "1>2|1>3|2>3"},
		{"Numbered/JsonString", `"1. Pack the boxes\n2. Rent a van\n3. Drive to the new house"`, "1|2|3", "1>2|2>3"},
		{"Numbered/JsonPlanStr", `{"plan": "1. Pack the boxes\n2. Rent a van\n3. Drive to the new house"}`, "1|2|3", "1>2|2>3"},
		{"Numbered/Twice", "1. Pack the boxes\n2. Rent a van\n3. Drive to the new house\n\n1. Pack the boxes\n2. Rent a van\n3. Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/DraftRevised", "Plan:\n1. Rent\n2. Drive\n\nRevised plan:\n1. Pack the boxes\n2. Rent a van\n3. Drive to the new house", "1|2|3", "1>2|2>3"},
		{"Numbered/SameLine", "1. Pack the boxes 2. Rent a van 3. Drive there", "1|2|3", "1>2|2>3"},
		{"Numbered/PlanPrefixInline", "Plan: 1. Pack the boxes; 2. Rent a van; 3. Drive there", "1|2|3", "1>2|2>3"},
		{"Numbered/PlanPrefixInline1)", "1) Pack the boxes, 2) Rent a van, 3) Drive there", "1|2|3", "1>2|2>3"},
		{"Numbered/ReprListOfStr", "['1. Pack', '2. Rent', '3. Drive']", "1|2|3", "1>2|2>3"},
		{"Numbered/JsonListOfStr", "[\"1. Pack\", \"2. Rent\", \"3. Drive\"]", "1|2|3", "1>2|2>3"},
	})
}

func TestVariantsNodeEdge(t *testing.T) {
	t.Parallel()
	checkVariants(t, []variant{
		{"NodeEdge/Fullwidth", "Node:\n1: heat\n2: stir\n3: serve\nEdge：（START，1）（1，2）（2，3）（3，END）", "1|2|3", "1>2|2>3"},
		{"NodeEdge/Square", "Node:\n1: heat\n2: stir\n3: serve\nEdge: [START,1] [1,2] [2,3] [3,END]", "1|2|3", "1>2|2>3"},
		{"NodeEdge/Angle", "Node:\n1: heat\n2: stir\n3: serve\nEdge: <START,1> <1,2> <2,3> <3,END>", "1|2|3", "1>2|2>3"},
		{"NodeEdge/Arrows", "Node:\n1: heat\n2: stir\n3: serve\nEdge: START->1, 1->2, 2->3, 3->END", "1|2|3", "1>2|2>3"},
		{"NodeEdge/ArrowsLines", "Node:\n1: heat\n2: stir\n3: serve\nEdge:\nSTART -> 1\n1 -> 2\n2 -> 3\n3 -> END", "1|2|3", "1>2|2>3"},
		{"NodeEdge/Chain", "Node:\n1: heat\n2: stir\n3: serve\nEdge: START -> 1 -> 2 -> 3 -> END", "1|2|3", "1>2|2>3"},
		{"NodeEdge/NodeWord", "Node:\nNode 1: heat\nNode 2: stir\nNode 3: serve\nEdge: (START,1) (1,2) (2,3) (3,END)", "1|2|3", "1>2|2>3"},
		{"NodeEdge/Quotes", "Node:\n1: heat\n2: stir\n3: serve\nEdge: (\"START\",\"1\") (\"1\",\"2\") (\"2\",\"3\") (\"3\",\"END\")", "1|2|3", "1>2|2>3"},
		{"NodeEdge/JsonString", `"Node:\n1: heat\n2: stir\n3: serve\nEdge: (START,1) (1,2) (2,3) (3,END)"`, "1|2|3", "1>2|2>3"},
		{"NodeEdge/JsonObj", `{"plan": "Node:\n1: heat\n2: stir\n3: serve\nEdge: (START,1) (1,2) (2,3) (3,END)"}`, "1|2|3", "1>2|2>3"},
		{"NodeEdge/Twice", "Node:\n1: heat\n2: stir\n3: serve\nEdge: (START,1) (1,2) (2,3) (3,END)\nNode:\n1: heat\n2: stir\n3: serve\nEdge: (START,1) (1,2) (2,3) (3,END)\n", "1|2|3", "1>2|2>3"},
		{"NodeEdge/Revised", "Node:\n1: heat\n2: stir\n3: serve\nEdge: (START,1) (1,3) (3,END)\n\nRevised:\nNode:\n1: heat\n2: stir\n3: serve\nEdge: (START,1) (1,2) (2,3) (3,END)", "1|2|3", "1>2|2>3"},
		{"NodeEdge/PythonPairsStr", "Node:\n1: heat\n2: stir\n3: serve\nEdge: [('START', 1), (1, 2), (2, 3), (3, 'END')]", "1|2|3", "1>2|2>3"},
		{"NodeEdge/Semicolon", "Node:\n1: heat\n2: stir\n3: serve\nEdge: (START;1) (1;2) (2;3) (3;END)", "1|2|3", "1>2|2>3"},
	})
}

func TestVariantsArrows(t *testing.T) {
	t.Parallel()
	checkVariants(t, []variant{
		{"Arrows/Sign--->", "A ---> B\nB ---> C", "A|B|C", "A>B|B>C"},
		{"Arrows/Sign➜", "A ➜ B\nB ➜ C", "A|B|C", "A>B|B>C"},
		{"Arrows/Sign⟹", "A ⟹ B\nB ⟹ C", "A|B|C", "A>B|B>C"},
		{"Arrows/Sign➡", "A ➡ B\nB ➡ C", "A|B|C", "A>B|B>C"},
		{"Arrows/Sign➝", "A ➝ B\nB ➝ C", "A|B|C", "A>B|B>C"},
		{"Arrows/Sign—>", "A —> B\nB —> C", "A|B|C", "A>B|B>C"},
		{"Arrows/Sign–>", "A –> B\nB –> C", "A|B|C", "A>B|B>C"},
		{"Arrows/Sign~>", "A ~> B\nB ~> C", "A|B|C", "A>B|B>C"},
		{"Arrows/Sign───>", "A ───> B\nB ───> C", "A|B|C", "A>B|B>C"},
		{"Arrows/A->B;C", "A -> B;C", "A|B|C", "*"},
		{"Arrows/Stmts;", "A -> B; B -> C", "A|B|C", "A>B|B>C"},
		{"Arrows/Stmts;Tight", "A->B;B->C", "A|B|C", "A>B|B>C"},
		{"Arrows/SingleQuotes", "'A' -> 'B'\n'B' -> 'C'", "A|B|C", "A>B|B>C"},
		{"Arrows/Backticks", "`A` -> `B`\n`B` -> `C`", "A|B|C", "A>B|B>C"},
		{"Arrows/Brackets", "[A] -> [B]\n[B] -> [C]", "A|B|C", "A>B|B>C"},
		{"Arrows/Parens", "(A) -> (B)\n(B) -> (C)", "A|B|C", "A>B|B>C"},
		{"Arrows/BracesSet", "{A, B} -> C", "A|B|C", "A>C|B>C"},
		{"Arrows/BracketSet", "[A, B] -> [C]", "A|B|C", "A>C|B>C"},
		{"Arrows/ParenSet", "(A, B) -> C", "A|B|C", "A>C|B>C"},
		{"Arrows/Bold", "**A** -> **B**\n**B** -> **C**", "A|B|C", "A>B|B>C"},
		{"Arrows/Numbered", "1. A -> B\n2. B -> C", "A|B|C", "A>B|B>C"},
		{"Arrows/Numbered)", "1) A -> B\n2) B -> C", "A|B|C", "A>B|B>C"},
		{"Arrows/Comment#", "A -> B # first\nB -> C # second", "A|B|C", "A>B|B>C"},
		{"Arrows/Comment//", "A -> B // first\nB -> C // x", "A|B|C", "A>B|B>C"},
		{"Arrows/Plan:Inline", "Plan: A -> B -> C", "A|B|C", "A>B|B>C"},
		{"Arrows/GraphInline", "Dependency graph: A -> B -> C", "A|B|C", "A>B|B>C"},
		{"Arrows/LeftArrow", "B <- A\nC <- B", "A|B|C", "A>B|B>C"},
		{"Arrows/↓", "A\n↓\nB\n↓\nC", "A|B|C", "A>B|B>C"},
		{"Arrows/LoneMulti", "A ->\n B ->\n C", "A|B|C", "A>B|B>C"},
		{"Arrows/LeadingArrow", "A\n-> B\n-> C", "A|B|C", "A>B|B>C"},
		{"Arrows/JsonString", `"A -> B\nB -> C"`, "A|B|C", "A>B|B>C"},
		{"Arrows/JsonObj", `{"graph": "A -> B\nB -> C"}`, "A|B|C", "A>B|B>C"},
		{"Arrows/MermaidLabel", "```mermaid\nflowchart LR\n  A -->|ok| B\n  B -- yes --> C\n```", "A|B|C", "A>B|B>C"},
		{"Arrows/Mermaid&", "```mermaid\ngraph TD\nA & B --> C\n```", "A|B|C", "A>C|B>C"},
		{"Arrows/MermaidNodesFirst", "```mermaid\ngraph TD\nA[Read the file]\nB[Parse it]\nC[Go]\nA --> B\nB --> C\n```", "A|B|C", "A>B|B>C"},
		{"Arrows/MermaidDotted", "```mermaid\ngraph TD\nA -.-> B\nB ==> C\n```", "A|B|C", "A>B|B>C"},
		{"Arrows/MermaidSubgraph", "```mermaid\ngraph TD\nsubgraph one\nA --> B\nend\nB --> C\n```", "A|B|C", "A>B|B>C"},
		{"Arrows/MermaidArrowsInLabel", "```mermaid\ngraph TD\nA[\"x -> y\"] --> B[b]\nB --> C\n```", "A|B|C", "A>B|B>C"},
		{"Arrows/Dot", "digraph G {\n  A -> B;\n  B -> C;\n}", "A|B|C", "A>B|B>C"},
		{"Arrows/DotFence", "```dot\ndigraph plan {\n  rankdir=LR;\n  node [shape=box];\n  A [label=\"Read it\"];\n  B [label=\"b\"];\n  C;\n  A -> B;\n  B -> C [label=\"then\"];\n}\n```", "A|B|C", "A>B|B>C"},
		{"Arrows/DotInline", "digraph { A -> B; B -> C; }", "A|B|C", "A>B|B>C"},
		{"Arrows/DotQuotes", "digraph G {\n \"A x\" -> \"B y\"\n}", "A x|B y", "A x>B y"},
		{"Arrows/DotChain", "digraph{A->B->C}", "A|B|C", "A>B|B>C"},
		{"Arrows/DotSet", "digraph G { {A B} -> C }", "A|B|C", "A>C|B>C"},
		{"Arrows/DotStrict", "strict digraph \"my plan\" {\nA -> B\nB -> C\n}", "A|B|C", "A>B|B>C"},
	})
}

func TestVariantsEvidence(t *testing.T) {
	t.Parallel()
	checkVariants(t, []variant{
		{"Evidence/Colon", "Plan: find it\n#E1: Google[tower]\nPlan: ask\n#E2: LLM[how old is #E1]\nPlan: both\n#E3: Calc[#E1 + #E2]", "#E1|#E2|#E3", "#E1>#E2|#E1>#E3|#E2>#E3"},
		{"Evidence/Parens", "Plan: find it\n#E1 = Google(tower)\nPlan: ask\n#E2 = LLM(how old is #E1)\nPlan: both\n#E3 = Calc(#E1 + #E2)", "#E1|#E2|#E3", "#E1>#E2|#E1>#E3|#E2>#E3"},
		{"Evidence/Multi-LineBlank", "Plan: find it\n#E1 = Google[tower\n\nin paris]\nPlan: ask\n#E2 = LLM[how old is #E1]\nPlan: both\n#E3 = Calc[#E1 + #E2]", "#E1|#E2|#E3", "#E1>#E2|#E1>#E3|#E2>#E3"},
		{"Evidence/Json", `"Plan: find it\n#E1 = Google[tower]\nPlan: ask\n#E2 = LLM[how old is #E1]\nPlan: both\n#E3 = Calc[#E1 + #E2]"`, "#E1|#E2|#E3", "#E1>#E2|#E1>#E3|#E2>#E3"},
		{"Evidence/JsonObj", `{"plan": "Plan: find it\n#E1 = Google[tower]\nPlan: ask\n#E2 = LLM[how old is #E1]\nPlan: both\n#E3 = Calc[#E1 + #E2]"}`, "#E1|#E2|#E3", "#E1>#E2|#E1>#E3|#E2>#E3"},
		{"Evidence/DupDef", "Plan: find it\n#E1 = Google[tower]\nPlan: ask\n#E2 = LLM[how old is #E1]\nPlan: both\n#E2 = Calc[#E1 + #E2]", "#E1|#E2|#E2", "#E1>#E2|#E1>#E2|#E2>#E2"},
		{"Evidence/Twice", "Plan: find it\n#E1 = Google[tower]\nPlan: ask\n#E2 = LLM[how old is #E1]\nPlan: both\n#E3 = Calc[#E1 + #E2]\n\nPlan: find it\n#E1 = Google[tower]\nPlan: ask\n#E2 = LLM[how old is #E1]\nPlan: both\n#E3 = Calc[#E1 + #E2]", "#E1|#E2|#E3", "#E1>#E2|#E1>#E3|#E2>#E3"},
		{"Evidence/Full-Width", "Plan: find it\n#E1 ＝ Google[tower]\nPlan: ask\n#E2 ＝ LLM[how old is #E1]\nPlan: both\n#E3 ＝ Calc[#E1 + #E2]", "#E1|#E2|#E3", "#E1>#E2|#E1>#E3|#E2>#E3"},
		{"Evidence/Lower", "plan: find it\n#e1 = Google[tower]\nplan: ask\n#e2 = LLM[how old is #e1]", "#e1|#e2", "#e1>#e2"},
	})
}

func TestVariantsNumberedCalls(t *testing.T) {
	t.Parallel()
	checkVariants(t, []variant{
		{"NumberedCalls/Space", "1. search (\"a\")\n2. search (\"b\")\n3. math(\"$1 + $2\")\n4. join()", "1|2|3|4", "1>3|2>3|1>4|2>4|3>4"},
		{"Assignments/Gather", "a = await load(1)\nb = await clean(a)\nc, d = await asyncio.gather(f(b), g(b))", "a|b|c|d", "a>b|b>c|b>d"},
		{"CallLog/Args", "idx: 1\ntool: load\nargs: {\"m\": 4}\n---\nidx: 2\ntool: sum\nargs: {\"x\": \"$1\"}\n", "1|2", "1>2"},
		{"Assignments/Dag", "with DAG(\"x\") as dag:\n    a = Op(task_id=\"a\")\n    b = Op(task_id=\"b\")\n    c = Op(task_id=\"c\")\n    [a, b] >> c\n", "a|b|c", "a>c|b>c"},
		{"NumberedCalls/JoinOfOne", "1. search(\"a\")\n2. math(\"$1 + 1\")\n3. join($2)", "1|2|3", "1>2|2>3"},
		{"Assignments/Kickoff", "a = Task(\"x\")\nb = Task(\"y\", context=[a])\ncrew = Crew(tasks=[a, b])\nout = crew.kickoff()", "a|b", "a>b"},
		{"NumberedCalls/JoinNone", "1. search(\"a\")\n2. search(\"b\")\n3. math(\"$1 + $2\")\n4. join", "1|2|3|4", "1>3|2>3|1>4|2>4|3>4"},
		{"NumberedCalls/Json", `"1. search(\"a\")\n2. search(\"b\")\n3. math(\"$1 + $2\")\n4. join()"`, "1|2|3|4", "1>3|2>3|1>4|2>4|3>4"},
		{"NumberedCalls/JsonObj", `{"plan": "1. search(\"a\")\n2. search(\"b\")\n3. math(\"$1 + $2\")\n4. join()"}`, "1|2|3|4", "1>3|2>3|1>4|2>4|3>4"},
		{"NumberedCalls/Bold", "**1.** search(\"a\")\n**2.** search(\"b\")\n**3.** math(\"$1 + $2\")\n**4.** join()", "1|2|3|4", "1>3|2>3|1>4|2>4|3>4"},
		{"NumberedCalls/Backtick", "1. `search(\"a\")`\n2. `search(\"b\")`\n3. `math(\"$1 + $2\")`\n4. `join()`", "1|2|3|4", "1>3|2>3|1>4|2>4|3>4"},
		{"NumberedCalls/Twice", "1. search(\"a\")\n2. search(\"b\")\n3. math(\"$1 + $2\")\n4. join()\n\n1. search(\"a\")\n2. search(\"b\")\n3. math(\"$1 + $2\")\n4. join()", "1|2|3|4", "1>3|2>3|1>4|2>4|3>4"},
	})
}

func TestVariantsAssignments(t *testing.T) {
	t.Parallel()
	checkVariants(t, []variant{
		{"Assignments/NewActions2", "New actions:\n1. FIND(CTX, X) : find X\n\n1. who = FIND(CTX, \"who did it\") : Find who did it\n2. why = ASK(CTX, \"why\") : Ask why\n3. ans = CONCAT(who, why) : Combine who and why", "1|2|3", "1>3|2>3"},
		{"Assignments/Fstring", "1. who = FIND(CTX, \"who did it\") : Find who did it\n2. why = ASK(CTX, \"why\") : Ask why\n3. ans = CONCAT(f\"{who} and {why}\") : Combine who and why", "1|2|3", "1>3|2>3"},
		{"Assignments/Multi-Line", "1. who = FIND(CTX, \"who did it\") : Find who did it\n2. why = ASK(CTX, \"why\") : Ask why\n3. ans = CONCAT(\n    who,\n    why\n) : Combine who and why", "1|2|3", "1>3|2>3"},
		{"Assignments/Bold", "**1.** who = FIND(CTX, \"who did it\") : Find who did it\n**2.** why = ASK(CTX, \"why\") : Ask why\n**3.** ans = CONCAT(who, why) : Combine who and why", "1|2|3", "1>3|2>3"},
		{"Assignments/Backtick", "1. `who = FIND(CTX, \"who did it\")` : Find who did it\n2. `why = ASK(CTX, \"why\")` : Ask why\n3. `ans = CONCAT(who, why)` : Combine who and why", "1|2|3", "1>3|2>3"},
		{"Assignments/Json", `"1. who = FIND(CTX, \"who did it\") : Find who did it\n2. why = ASK(CTX, \"why\") : Ask why\n3. ans = CONCAT(who, why) : Combine who and why"`, "1|2|3", "1>3|2>3"},
		{"Assignments/Twice", "1. who = FIND(CTX, \"who did it\") : Find who did it\n2. why = ASK(CTX, \"why\") : Ask why\n3. ans = CONCAT(who, why) : Combine who and why\n\n1. who = FIND(CTX, \"who did it\") : Find who did it\n2. why = ASK(CTX, \"why\") : Ask why\n3. ans = CONCAT(who, why) : Combine who and why", "1|2|3", "1>3|2>3"},
		{"Assignments/UnnumberedMulti", "who = FIND(CTX, \"who\")\nwhy = ASK(CTX, \"why\")\nans = CONCAT(\n  who,\n  why,\n)", "who|why|ans", "who>ans|why>ans"},
		{"Assignments/UnnumberedFstring", "who = FIND(CTX, \"who\")\nwhy = ASK(CTX, \"why\")\nans = CONCAT(f\"{who} {why}\")", "who|why|ans", "who>ans|why>ans"},
		{"Assignments/UnnumberedAwait", "who = await FIND(CTX, \"who\")\nwhy = await ASK(CTX, \"why\")\nans = await CONCAT(who, why)", "who|why|ans", "who>ans|why>ans"},
	})
}

func TestVariantsYAML(t *testing.T) {
	t.Parallel()
	checkVariants(t, []variant{
		{"YAML/Map", "tasks:\n  fetch:\n    depends_on: []\n  build:\n    depends_on: [fetch]\n  test:\n    depends_on: [build]\n", "fetch|build|test", "fetch>build|build>test"},
		{"YAML/Tabs", "tasks:\n\t- id: fetch\n\t\tdepends_on: []\n\t- id: build\n\t\tdepends_on: [fetch]\n\t- id: test\n\t\tdepends_on:\n\t\t\t- build\n", "fetch|build|test", "fetch>build|build>test"},
		{"YAML/JsonString", `"tasks:\n  - id: fetch\n    depends_on: []\n  - id: build\n    depends_on: [fetch]\n  - id: test\n    depends_on:\n      - build\n"`, "fetch|build|test", "fetch>build|build>test"},
		{"YAML/GhaNeeds", "jobs:\n  fetch:\n    runs-on: x\n  build:\n    needs: fetch\n  test:\n    needs: [build]\n", "fetch|build|test", "fetch>build|build>test"},
	})
}
