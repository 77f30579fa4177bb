package plantest

import (
	"fmt"
	"strconv"
	"strings"
)

// HostileUnits are repeated to make texts that break careless readers.
func HostileUnits() []string {
	return []string{

		"[", "{", "(", "<", "{\"a\"b", "\"a\":", "{\"a\":", "[\"", "{“", "(1,", "$", "${", "->", "A,", "A->B,", "- ", "a: ", "- a:\n", "1. ", "1.\n", "1.1.", "#E1 = ",
		"#E1 = X[\n", "<think>", "<Problem>", "<function.a ", "Node:\n", "Edge:(", "x=f(", "1. x=f(\n", "\"\"\"", "/*", "}", "],", "{a:[{", "Plan(a=", "\\", "`", "```\n", "\"a\" ", " ", "\n", "é", "|", "a->b\n", "一、",
		"[1]\n", "{\"steps\":[", "[{\"id\":1,\"deps\":[1]},", "-\n", " -\n", "'", "'a", "$a$", "{{", "<node-", "Edge: (1,2)\n1: x\n", "idx: 1\ndependencies: [1]\n", "1. f($1)\n", "a -> b -> ", "\"x\", ", "{\"id\":1,\"deps\":[1,1,1,1,1,1],\"args\":{\"x\":\"$1\"}},", "depends on 1, ", "1. a depends on 1\n", "- id: a\n  deps: [a]\n", "<!--", "=", "a=f(a)\n", "#E1", "::", "**", "（", "\t", "\r\n",
		"</think>", "{\"plan\":\"", "{\"output\":\"{\\\"plan\\\":\\\"", "\\\"", "\\n1. a", "> 1. a\n", "&quot;", "&lt;problem&gt;", "digraph{", "digraph {a->b;\n", "graph TD\nA-->B\n", "a) x\nb) y\n", "## 1. a\ntext\n", "Step 1: a\n",
		"| a | b |\n", "|-|-|\n", "A ->\n", "-> A\n", "↓\n", "A -> B; ", "a -> b, c\n\nprose\n", "{\"task_id\":1,\"deps\":[]}\n\nx\n", "<Problems><Problem><ProblemID>a</ProblemID></Problem></Problems>\n", "<![CDATA[", "<!-- -->", "1. a\n\nRevised:\n\n",
		"Plan: x\n#E1 = A[b]\n\n", "1. f()\n2. g($1)\n\nagain\n", "Node:\n1: a\n2: b\nEdge: (1,2)\n\n", "1. a 2. b 3. c ", "1-1 a\n", "x = f(\n", "x = f(\na\n)\n", "<-", "\"a -> ", "(a, b) -> ",
		"a", "1", ".", ",", "; ", "? ", "A. ", "a b ", "after ", "after 1 ", "before 2, ", "until both ", "once ", "first ", "then ", "and ", "not ", "steps 1-9 and ", "all except ", "same as 1; ", "the last two, ",
		"once 1 is ", "sobald ", "在", "之后", "步骤1之后", "を", "после шага ", "Option A:\n- a\n", "**a**\n", "***", "_a_ ", "~~a~~ ", "# a\n", "###### a\n", "- [ ] a\n", "- [x] a (needs a)\n", "* TODO a\n", "T1: a needs T1\n", "T1 ### \n",
		"+---+\n| a |\n+---+\n", "+--", "|  |  |\n", "a --> b\n", "a ---> ", "├── a\n", "│   ", "  └─ a\n", "-->|x| ", "A[\"a\"] --> ", "subgraph a\n", "par {\n", "par { a } ", "if x then\n", "BEGIN\n", "for x in y:\n  ", "def a():\n", "@task\ndef a(x):\n", "a >> b\n", "a >> [b, c] >> ", "x = a(x)\n", "f(g(", "a.b(", "import x\n", "self.a = b\n",
		"a: &a\n", "a: *a\n", "- - ", "? a\n", "a: |\n", "key: [a, b\n", "{a: b, ", "---\na: b\n", "a,b,c\n", "a;b;c\n", "a\tb\tc\n", "\"a\",\"b\"\n", "| a | after 1 |\n", "| 1 | a | 1 |\n", "task,deps\n1,1\n",
		"<a>", "<a><b>", "</a>", "<a b=\"c\">", "<task id=\"1\" depends=\"1\"/>\n", "<step>a</step>\n", "&amp;", "<a", "<?xml ", "```json\n{\"a\":1}\n```\n", "```\na\n```\n", "~~~\n", "```mermaid\n", "@startuml\n:a;\n", "state \"a\" as b\n", "section a\na :a1, after a1, 3d\n", "gantt\n",
		"all: b a\n\techo\n", "a: a\n", "Phase 1: a\n1. b\n", "Edit: 2 needs 1. ", "Actually, ", "Correction: 1 after 2\n", "1. a\n2. b\nCorrection: 1 after 2\n", "Sure! ", "Mr. ", "e.g. ", "3.14 ", "v1.2.3 ", "10:30 ", "https://a.b/c ", "$1 ", "{1} ", "#1 ", "T1 ", "T1, T2 and T3 ", "1→2→3 ", "1, 2, 3 ", "(1), (2) ", "① ", "第一步 ", "الخطوة 1 ", "चरण 1 ", "i. a\nii. b\n", "A1 A2 A3\n", "done\n", "Step one, then step two. ", "While a runs, do b. ",
		"call_1 = a(b=\"$call_1\")\n", "\"name\": \"a\", \"arguments\": {\"a\": \"<GENERATED>-1\"} ", "{\"name\":\"a\",\"input\":{\"x\":\"${b.output}\"}}\n", "[{\"a\":[", "{\"a\":{\"a\":", "\"\\\\\\\"", "'\"", "\"'", "([{<", ")]}>", "(((a)))", "((a)(", "{}[]()", "a{b}c ", "“a” ", "«", "\u200b", "\ufeff", "\xff", "\x00", "🙂", "0️⃣ ",
	}
}

// hostileTexts are a first part, a line that is repeated, and a last part. The formats get the number of the
// line, from 1, and the number before it.
func hostileTexts() map[string][3]string {
	return map[string][3]string{
		"References":  {"", "%[1]d. do a%[1]d (after %[2]d, %[2]d and %[1]d)\n", ""},
		"Labels":      {"", "- T%[1]d: a thing, needs T%[2]d\n", ""},
		"Titles":      {"", "%[1]d. paint wall%[1]d after paint wall%[2]d\n", ""},
		"EqualTitles": {"", "%[1]d. paint the wall, needs the wall painted\n", ""},
		"Groups":      {"", "## Phase %[1]d: a (needs Phase %[2]d)\n%[1]d. x\n", ""},
		"Fields":      {"", "### T%[1]d\n- Owner: a\n- Depends on: T%[2]d\n", ""},
		"JSON":        {"[", "{\"id\":\"t%[1]d\",\"depends_on\":[\"t%[2]d\"]},", "]"},
		"OddKeys":     {"[", "{\"k%[1]d\":\"t%[1]d\",\"x%[1]d\":%[1]d},", "]"},
		"NestedJSON":  {"", "{\"id\":\"t%[1]d\",\"steps\":[", ""},
		"YAML":        {"tasks:\n", "  - id: t%[1]d\n    needs: [t%[2]d]\n", ""},
		"Maps":        {"tasks:\n", "  t%[1]d:\n    needs: [t%[2]d]\n", ""},
		"XML":         {"<plan>", "<task id=\"t%[1]d\"><depends>t%[2]d</depends></task>\n", "</plan>"},
		"NestedXML":   {"", "<task id=\"t%[1]d\">", ""},
		"Table":       {"| id | task | after |\n|---|---|---|\n", "| %[1]d | do %[1]d | %[2]d |\n", ""},
		"WideTable":   {"| a |", " b%[1]d | c |", "\n|---|---|\n"},
		"Mermaid":     {"graph TD\n", "a%[2]d[do %[2]d] --> a%[1]d & b%[1]d\n", ""},
		"Dot":         {"digraph {\n", "a%[2]d -> {a%[1]d b%[1]d};\n", "}"},
		"Gantt":       {"gantt\nsection a\n", "do %[1]d :a%[1]d, after a%[2]d, 3d\n", ""},
		"UML":         {"@startuml\nstart\n", "fork\n:do %[1]d;\nfork again\n:or %[1]d;\nend fork\n", ""},
		"Arrows":      {"", "do %[2]d -> do %[1]d, rest %[1]d\n", ""},
		"Chain":       {"a0", " -> a%[1]d", ""},
		"Comments":    {"", "// a%[1]d\n", ""},
		"BareMarks":   {"A -> B\n", "B -> ( ) c%[1]d\nc%[1]d -> (A -> -in parallel)\n", ""},
		"Fluent":      {"x", ".a%[1]d()", ""},
		"LongFields":  {"1. a\n2. b\n", "  key: v%[1]d\n", ""},
		"Gaps":        {"", "%[1]d0. a\n", ""},
		"Python":      {"", "x%[1]d = do_%[1]d(x%[2]d)\n", ""},
		"Evidence":    {"", "Plan: do %[1]d\n#E%[1]d = Tool[use #E%[2]d]\n", ""},
		"Calls":       {"", "%[1]d. search(\"x\", $%[2]d)\n", ""},
		"Make":        {"", "t%[2]d: t%[1]d\n\techo\n", ""},
		"Pseudo":      {"", "PARALLEL\n  DO a%[1]d\n  DO b%[1]d\nEND PARALLEL\n", ""},
		"Prose":       {"", "After wall%[2]d is painted, we clean room%[1]d and then bring chairs%[1]d. ", ""},
		"Boxes":       {"", "+-----+\n| b%[1]d |\n+--+--+\n   |\n   v\n", ""},
		"Corrections": {"1. a\n2. b\n3. c\n\nCorrection: ", "%[1]d needs %[2]d. ", ""},
		"D2Path":      {"```d2\n", "a.", "b -> c\n```"},
		"D2Groups":    {"```d2\n", "g.h.i.n%[1]d -> g.h.i.n%[2]d\n", "```"},
		"Hashes":      {"", "# a\n", ""},
		"Forks":       {"", "fork a%[1]d\n", ""},
		"Elses":       {"IF x THEN a\n", "ELSE a%[1]d\n", ""},
		"Pairs":       {"", "[\"a->b\"]\n[\"x\",\"y\"]\n", ""},
		"PairLists":   {"", "{\"edges\":[[\"a%[1]d\",\"b%[1]d\"]],\"steps\":[{\"id\":\"a%[1]d\"},{\"id\":\"b%[1]d\"}]}\n", ""},
		"Flows":       {"", "{\"parallel\":[\"a%[1]d\",\"b\"]}\n", ""},
		"Adds":        {"x = a()\n", "y = b%[1]d(y)\nx += y\n", "c(x)\n"},
		"Overflow":    {"id,deps\n1,2\n", "1,", "1\n"},
		"Chains":      {"Node:\n1: a\n2: b\nEdge: ", "1,2,1,2 -> 1,2,1,2; ", ""},
		"Announced":   {"", "Steps: apples, pears, plums%[1]d. ", ""},
		"Held":        {"", "V%[1]d = f(a=V%[2]d)\n", ""},
		"Clauses":     {"", "T%[1]d is to dig, T%[1]d needs T%[2]d, and ", "it"},
		"Revised":     {"1. a\n2. b\n", "Revised plan: 1. a 2. b 3. c%[1]d\n", ""},
		"Remarks":     {"", "%[1]d. dig hole%[1]d (owner: a, %[1]d days) before digging hole%[2]d? maybe\n", ""},
		"OneToMany":   {"A -> ", "n%[1]d, ", "z"},
		"Merges":      {"- id: a\n- id: b\n", "  <<: {needs: [a]}\n", ""},
		"FieldsOfMap": {"tasks:\n  a:\n    id: x\n", "    k%[1]d: {needs: [x]}\n", ""},
		"Subgraphs":   {"graph TD\n", "subgraph s%[1]d\na%[1]d --> b%[1]d\n", ""},
		"Outputs":     {"", "{\"output\":\"[{\\\"id\\\":%[1]d,\\\"task\\\":\\\"a\\\"}]\"}\n", ""},
		"OpenMaps":    {"", "a%[1]d: {\nx -> y\n", ""},
		"Aliases":     {"a0: &a0 [x]\n", "a%[1]d: &a%[1]d [*a0, *a%[2]d]\n", ""},
		"OneLine":     {"{\"tool_calls\":[", "{\"id\":\"c%[1]d\",\"name\":\"f\",\"arguments\":{\"x\":\"é $c%[2]d\"}},", "]}"},
		"Apart":       {"", "f({\"id\":\"t%[1]d\",\"needs\":[\"t%[2]d\"]}) ", ""},
		"Asides":      {"", "<Problem k%[1]d=\"v\"><a%[1]d b=\"c\">x<Request>y", ""},
		"LinkFields":  {"{\"nodes\":[{\"id\":\"a\"},{\"id\":\"b\"}],\"edges\":[{\"from\":\"a\",\"to\":\"b\"", ",\"k%[1]d\":\"b\"", "}]}"},
		"EdgeLabels":  {"graph TD\na & b & c -->|", "label %[1]d ", "| d & e & f & g & h\n"},
		"DotFields":   {"digraph {\n", "{a b c} -> {d e f} [k%[1]d=v, l=\"x%[1]d\"];\n", "}"},
		"Arguments":   {"x = f(", "g(a%[1]d, \"b\", n=[%[1]d, ", ""},
		"Bodies":      {"", "@task\ndef a%[1]d(a%[2]d):\n    return b(\"c\")\n", ""},
		"LongPlans":   {"x\n#E1 = a[b]\nPlan: x\n", "y\n", "#E2 = a[#E1]"},
		"NamedArgs":   {"y = g()\nx = f(", "'x', y, ", "1)\nh(x)\n"},
		"TextsInData": {"{\"x\":[", "{\"plan\":\"[{\\\"id\\\":\\\"t%[1]d\\\",\\\"task\\\":\\\"a\\\",\\\"needs\\\":[\\\"t%[2]d\\\"]},{\\\"id\\\":\\\"u%[1]d\\\",\\\"task\\\":\\\"a\\\",\\\"needs\\\":[\\\"t%[1]d\\\"]}]\"},", "{}]}"},
		"Extras":      {"[", "{\"task_id\":\"%[1]d\",\"dependent_task_ids\":[],\"instruction\":\"a\",\"x%[1]d\":{\"y\":[1]}},", "]"},
		"Logged":      {"", "idx: %[1]d\ntool: a\nargs: {}\nk%[1]d: v\nnoise\ndependencies: [%[2]d]\n", ""},
		"Separators":  {"", "%[1]d. do a%[1]d, needs %[2]d\u2028", ""},
	}
}

// HostileShapes returns all hostile texts by name, each as a function of its approximate length.
func HostileShapes() map[string]func(size int) string {
	all := map[string]func(int) string{}
	for _, u := range HostileUnits() {
		all[strconv.Quote(u)] = func(size int) string { return strings.Repeat(u, size/len(u)) }
	}
	for name, t := range hostileTexts() {
		all[name] = func(size int) string {
			var b strings.Builder
			b.WriteString(t[0])
			for i := 1; b.Len() < size; i++ {
				s := fmt.Sprintf(t[1], i, i-1)
				b.WriteString(strings.TrimSuffix(s, fmt.Sprintf("%%!(EXTRA int=%d, int=%d)", i, i-1)))
			}
			return b.String() + t[2]
		}
	}
	all["DeeperBullets"] = func(size int) string {
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			b.WriteString(strings.Repeat(" ", i%200) + "- a\n")
		}
		return b.String()
	}
	return all
}
