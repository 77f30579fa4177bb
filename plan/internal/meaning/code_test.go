package meaning

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// mostLikely returns the ids and the links of the most likely reading.
func mostLikely(read func(*form.Source) []*Reading, text string) (items, links string) {
	var best *Reading
	for _, r := range read(form.NewSource(text)) {
		if best == nil || r.Weight > best.Weight {
			best = r
		}
	}
	if best == nil {
		return "none", ""
	}
	var ids, pairs []string
	for _, it := range best.Items {
		ids = append(ids, it.ID)
	}
	for _, l := range best.Links {
		pairs = append(pairs, l.From+">"+l.To)
	}
	return strings.Join(ids, " "), strings.Join(pairs, " ")
}

func TestReadCode(t *testing.T) {
	for name, c := range map[string]struct{ text, items, links string }{
		"variables":  {"a = f()\nb = g(a)\nc = h(a, b.x)\n", "a b c", "a>b a>c b>c"},
		"numbers":    {"1. search(\"x\")\n2. search(\"y\")\n3. compare($1, \"${2}\")\n4. join()\n", "1 2 3 4", "1>3 2>3 1>4 2>4 3>4"},
		"evidence":   {"Plan: look\n#E1 = Search[x]\nPlan: read\n#E2 = LLM[read #E1]\n", "#E1 #E2", "#E1>#E2"},
		"nested":     {"a(b(c(\"x\")), d())", "a b c d", "c>b b>a d>a"},
		"operators":  {"a >> [b, c]\n[b, c] >> d\n", "a b c d", "a>b a>c b>d c>d"},
		"upstream":   {"b.set_upstream(a)\nb.set_downstream(c)\n", "b a c", "a>b b>c"},
		"edges":      {"g.add_node(\"p\", f)\ng.add_node(\"q\", f)\ng.add_edge(START, \"p\")\ng.add_edge(\"p\", \"q\")\n", "p q", "p>q"},
		"chain":      {"chain(a.s(), group(b.s(), c.s()), d.s())", "a b c d", "a>b a>c b>d c>d"},
		"then":       {"one()\n  .then(two)\n  .then(three)\n  .catch(oops);", "one two three", "one>two two>three"},
		"gather":     {"a, b = await asyncio.gather(f(), g())\nc = h(a, b)\n", "a b c", "a>c b>c"},
		"group":      {"async with TaskGroup() as tg:\n    a = tg.create_task(f())\n    b = tg.create_task(g())\nc = h(a, b)\n", "a b c", "a>c b>c"},
		"builder":    {"p.step(\"a\", \"dig\")\np.step(\"b\", \"sow\", after=[\"a\"])\n", "a b", "a>b"},
		"parallel":   {"BEGIN\n  dig\n  PARALLEL\n    sow\n    water\n  END PARALLEL\n  reap\nEND\n", "dig sow water reap", "dig>sow dig>water sow>reap water>reap"},
		"braces":     {"seq { dig; par { sow; water; } reap; }", "dig sow water reap", "dig>sow dig>water sow>reap water>reap"},
		"jobs":       {"job dig\njob sow WAIT FOR dig\njob reap WAIT FOR sow, dig\n", "dig sow reap", "dig>sow sow>reap dig>reap"},
		"assets":     {"@asset\ndef raw():\n    return 1\n\n@asset\ndef clean(raw):\n    return raw\n", "raw clean", "raw>clean"},
		"function":   {"def mean(xs):\n    total = 0\n    for x in xs:\n        total += x\n    return total / len(xs)\n", "none", ""},
		"class":      {"class A:\n    def run(self):\n        y = compute(self.x)\n        return save(y)\n", "none", ""},
		"prose":      {"We dig (and sow) and then we reap = harvest.\n", "none", ""},
		"tests":      {"describe(\"s\", () => {\n  it(\"a\", () => {\n    expect(slug(\"H\")).toBe(\"h\");\n  });\n  it(\"b\", () => {\n    expect(slug(\"a\")).toBe(\"b\");\n  });\n});\n", "none", ""},
		"settings":   {"export default defineConfig({\n  plugins: [vue(), svg()],\n});\n", "none", ""},
		"one call":   {"print(\"hello\")\n", "none", ""},
		"not closed": {"a = f(1\nb = g(a)\n", "a b", "a>b"},
	} {
		items, links := mostLikely(readCode, c.text)
		require.Equal(t, c.items, items, name)
		require.Equal(t, c.links, links, name)
	}
}

func TestReadDiagram(t *testing.T) {
	for name, c := range map[string]struct{ text, items, links string }{
		"mermaid":   {"graph TD\nA[dig] -->|x| B(sow)\nA --> C & D\n", "A B C D", "A>B A>C A>D"},
		"subgraph":  {"flowchart LR\nsubgraph one\na --> b\nend\none --> c\n", "a b c", "a>b b>c"},
		"states":    {"stateDiagram-v2\n[*] --> Draft\nDraft --> Done : ok\nDone --> [*]\n", "Draft Done", "Draft>Done"},
		"gantt":     {"gantt\nDig :a, 2027-01-01, 3d\nSow :b, after a, 2d\n", "a b", "a>b"},
		"dot":       {"digraph { a -> {b c} -> d; e -> d [dir=back] }", "a b c d e", "a>b a>c b>d c>d d>e"},
		"activity":  {"@startuml\nstart\n:dig;\nfork\n:sow;\nfork again\n:water;\nend fork\n:reap;\nstop\n@enduml", "1 2 3 4", "1>2 1>3 2>4 3>4"},
		"legacy":    {"@startuml\n(*) --> \"dig\"\n--> \"sow\"\n--> (*)\n@enduml", "dig sow", "dig>sow"},
		"arrows":    {"dig, sow -> water -> reap\nrest <- reap\n", "dig sow water reap rest", "dig>water sow>water water>reap reap>rest"},
		"label":     {"Маршрут: dig → sow → reap\n", "dig sow reap", "dig>sow sow>reap"},
		"titles":    {"dig: a pit -> sow: seeds -> reap: all\n", "dig sow reap", "dig>sow sow>reap"},
		"and":       {"1 → 2 → 4 and 1 → 3\n", "1 2 3 4", "1>2 2>4 1>3"},
		"bars":      {"dig         |██░░|\nsäen, gießen|░░█░|\nreap all    |░░░█|\n", "1 2 3", "1>2 2>3"},
		"apart":     {"Order: 1 -> 2, 1 -> 3, 2 -> 4\n", "1 2 3 4", "1>2 1>3 2>4"},
		"legend":    {"1. dig\n2. sow\n3. rest\n\nOrder: 1 -> 2\n", "1 2", "1>2"},
		"make":      {"all: b a\n\techo\nb: a c.txt\n\techo\na:\n\techo\n", "all b a", "b>all a>all a>b"},
		"boxes":     {"+---+     +---+\n| A |---->| B |\n+---+     +-+-+\n            |\n            v\n          +---+\n          | C |\n          +---+\n", "A B C", "A>B B>C"},
		"words":     {" dig --\\\n        >--> sow --> reap\n rest -/\n", "dig rest sow reap", "dig>sow sow>reap rest>sow"},
		"down":      {"dig\n ↓\nsow\n ↓\nreap\n", "dig sow reap", "dig>sow sow>reap"},
		"menu":      {"Open File → Export → PDF, and then press the button that says OK.\n", "none", ""},
		"file tree": {"app/\n├── src\n│   └── main.go\n└── README\n", "none", ""},
	} {
		items, links := mostLikely(readDiagram, c.text)
		require.Equal(t, c.items, items, name)
		require.Equal(t, c.links, links, name)
	}
}

func TestReadDiagramNotes(t *testing.T) {
	r := readDiagram(form.NewSource("```mermaid\ngraph TD\nA --> B\nB -->\n"))[0]
	var codes []string
	for _, n := range r.Notes {
		codes = append(codes, n.Code)
	}
	require.ElementsMatch(t, []string{"EMPTY_ID", "TRUNCATED"}, codes)
}

func TestArrowLine(t *testing.T) {
	known := func(id string) bool { return len(id) == 1 }
	links, ok := arrowLine("Dependencies: 1 → 2, 1 → 3.", 0, known, 100)
	require.True(t, ok)
	require.Len(t, links, 2)
	require.Equal(t, 14, links[0].Off)
	_, ok = arrowLine("Order: first → second", 0, known, 100)
	require.False(t, ok)
}

// TestCodeTime reads texts that repeat one part very often.
func TestCodeTime(t *testing.T) {
	for _, part := range []string{"(", "a(", "[[", "{", "a -> ", "a --> b & ", "- - ", "+--", "| v ", "par {", "\"", "`a ", "<", "/*", "#E1 = f[", "x = f(", "├─", "a: b\n", "\n|\nv\n", "a >> ", "a.b.", "@startuml\n:", "graph TD\nA[\"", "digraph {\"", "T1  ###  x\n"} {
		text := strings.Repeat(part, 200_000/len(part))
		start := time.Now()
		src := form.NewSource(text)
		readCode(src)
		readDiagram(src)
		require.Less(t, time.Since(start), 5*time.Second, part)
	}
}

func FuzzReadCode(f *testing.F) {
	f.Add("a = f()\nb = g(a)\npar {\n  c()\n}\n#E1 = T[x]\n")
	f.Fuzz(func(_ *testing.T, text string) { readCode(form.NewSource(text)) })
}

func FuzzReadDiagram(f *testing.F) {
	for _, s := range []string{"graph TD\nA[x] --> B & C", "digraph { a -> {b c} }", "@startuml\n:a;\nfork\n:b;\nend fork\n@enduml", "+---+\n| A |--> B\n+---+\n", "a: b\n\tx\nb:\n\ty\n", "gantt\nA :a, after b, 3d", "T1  dig  ###\nT2  sow   ##  after T1\nT3  x ####\n"} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, text string) { readDiagram(form.NewSource(text)) })
}
