package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
)

// TestShapes reads lists, drawings, code and data of unusual shape. Codes are those of the warnings and
// errors.
func TestShapes(t *testing.T) {
	for name, c := range map[string]struct{ text, ids, edges, codes string }{
		"Phases/BulletsThenNumbers": {
			"## Phase 1: Prepare\n- Collect the data\n- Clean it\n\n## Phase 2: Analyze\n1. Compute the averages\n2. Draw the charts\n",
			"1.1 1.2 2.1 2.2", "1.1>1.2 1.2>2.1 2.1>2.2", "ASSUMED_ORDER",
		},
		"Phases/NumbersThenBullets": {
			"Phase A\n1) Buy wood\n2) Cut wood\n\nPhase B\n* Build the frame\n* Paint it\n",
			"1.1 1.2 2.1 2.2", "1.1>1.2 1.2>2.1 2.1>2.2", "ASSUMED_ORDER",
		},
		"Phases/HeadingsThatSayWhatToDo": {
			"## Prepare\n- Collect the data\n- Clean it\n\n## Analyze\n1. Compute the averages\n2. Draw the charts\n",
			"1.1 1.2 2.1 2.2", "1.1>1.2 1.2>2.1 2.1>2.2", "AMBIGUOUS ASSUMED_ORDER",
		},
		"Phases/BoxesThenNumbers": {
			"## Phase 1\n- [ ] Collect the data\n- [ ] Clean it\n\n## Phase 2\n1. Compute the averages\n2. Draw the charts\n",
			"1.1 1.2 2.1 2.2", "1.1>1.2 1.2>2.1 2.1>2.2", "ASSUMED_ORDER",
		},
		"Phases/RisksAreNone": {
			"## 1. Steps\n1. Collect the data\n2. Clean it\n\n## 2. Risks\n- The data may be late\n- The server is slow\n",
			"1 2", "1>2", "ASSUMED_ORDER",
		},
		"Nested/NumbersBeginAgainWithNeeds": {
			"1. Prepare\n   1. Survey the site\n   2. Design the garden\n2. Build\n   1. Order plants\n   2. Plant (needs 1.2)\n",
			"1 1.1 1.2 2 2.1 2.2", "1.2>2.2", "",
		},
		"HTML/IDs": {
			"<ol>\n<li id=\"survey\">Survey the site</li>\n<li id=\"design\">Design the garden (needs survey)</li>\n<li id=\"plant\">Plant (needs design)</li>\n</ol>\n",
			"survey design plant", "survey>design design>plant", "",
		},
		"HTML/Numbers": {
			"<ol><li>Survey</li><li><b>Design</b> (after step 1)</li><li>Order plants (after step 1)</li><li>Plant &amp; water (after 2 and 3)</li></ol>",
			"1 2 3 4", "1>2 1>3 2>4 3>4", "",
		},
		"HTML/Nested": {
			"<ol>\n<li>Prepare\n <ol><li>Survey</li><li>Design</li></ol></li>\n<li>Build\n <ol><li>Order plants</li><li>Plant (needs 1.2)</li></ol></li>\n</ol>\n",
			"1 1.1 1.2 2 2.1 2.2", "1.2>2.2", "",
		},
		"XML/GroupsOfTexts": {
			"<sequence><step>Survey</step><parallel><step>Order plants</step><step>Order soil</step></parallel><step>Plant</step></sequence>",
			"1 2 3 4", "1>2 1>3 2>4 3>4", "",
		},
		"XML/GroupsBelowATitle": {
			"<plan><title>Garden</title><step>Survey</step><parallel><step>Order plants</step><step>Order soil</step></parallel><step>Plant</step></plan>",
			"1 2 3 4", "1>2 1>3 2>4 3>4", "",
		},
		"XML/NestedGroups": {
			"<sequence><step>Survey</step><parallel><step id=\"p\">Order plants</step><sequence><step>Order soil</step><step>Move soil</step></sequence></parallel><step>Plant</step></sequence>",
			"1 2 3 4 5", "1>2 1>3 3>4 2>5 4>5", "",
		},
		"XML/OneGroup": {
			"<plan><parallel><step>Order plants</step><step>Order soil</step></parallel></plan>",
			"1 2", "", "",
		},
		"Code/LastCallOfAMethod": {
			"a = load(\"x\")\nb = clean(a)\nj = report(b)\nj.save(\"out\")\n",
			"a b j save", "a>b b>j j>save", "",
		},
		"Code/LastCallNamedJoin": {
			"a = fetch(\"x\")\nb = fetch(\"y\")\njoin(a, b)\n",
			"a b join", "a>join b>join", "",
		},
		"Code/JoinOfTwoResults": {
			"a = fetch(\"x\")\nb = fetch(\"y\")\nc = a.join(b)\nreport(c)\n",
			"a b c report", "a>c b>c c>report", "",
		},
		"Code/LastCallUsesNothing": {
			"a = load(\"x\")\nb = clean(a)\nc = sum_up(b)\nnotify(\"team\")\n",
			"a b c notify", "a>b b>c c>notify", "AMBIGUOUS ASSUMED_ORDER",
		},
		"Code/FirstCallUsesNothing": {
			"login(\"me\")\na = load(\"x\")\nb = clean(a)\n",
			"login a b", "login>a a>b", "AMBIGUOUS ASSUMED_ORDER",
		},
		"Code/AwaitedOpen": {
			"const page = await open(\"https://x.org\");\nawait page.click(\"#go\");\nconst rows = await page.extract(\"table\");\nsave(rows);\n",
			"page click rows save", "page>click click>rows rows>save", "",
		},
		"Code/ChainOfMethods": {
			"raw = load(\"x\")\nres = raw.dropna().groupby(\"x\").sum()\npublish(res)\n",
			"raw res publish", "raw>res res>publish", "",
		},
		"Code/FilterIsAStep": {
			"raw = load(\"x\")\ngood = filter(raw)\ntext = format(good)\nsave(text)\n",
			"raw good text save", "raw>good good>text text>save", "",
		},
		"Lettered/OnTheLineOfANumber": {
			"1. Survey\n2. a) Order plants b) Order soil\n3. Plant\n",
			"1 2a 2b 3", "1>2a 1>2b 2a>3 2b>3", "ASSUMED_ORDER",
		},
		"Lettered/BelowANumber": {
			"1. Survey\n2. a) Order plants\n   b) Order soil\n3. Plant (needs 2b)\n",
			"1 2a 2b 3", "2b>3", "",
		},
		"Lettered/CalledByNumberAndLetter": {
			"1. Survey\n2. Order\n   a) Order plants\n   b) Order soil\n3. Plant (needs 2a and 2b)\n",
			"1 2 a b 3", "a>3 b>3", "",
		},
		"Labels/BehindTitles": {
			"- Survey (R1)\n- Order plants (R2), needs R1\n- Order soil (R3), needs R1\n- Plant (R4), needs R2 and R3\n",
			"R1 R2 R3 R4", "R1>R2 R1>R3 R2>R4 R3>R4", "",
		},
		"Labels/BehindTitlesWithNumbers": {
			"1. Survey [R1]\n2. Order plants [R2], needs R1\n3. Plant [R3], needs R2\n",
			"1 2 3", "1>2 2>3", "",
		},
		"Dates/ArrowInBrackets": {
			"- Survey (2 May → 9 May)\n- Design (9 May → 20 May), after Survey\n- Order (9 → 12 May), after Survey\n- Build (20 May → 30 June), after Design and Order\n",
			"Survey Design Order Build", "Survey>Design Survey>Order Design>Build Order>Build", "",
		},
		"Dates/ArrowInANumberedList": {
			"1. Survey (2. Mai -> 9. Mai)\n2. Design: 2024-05-09 -> 2024-05-20\n",
			"1 2", "1>2", "ASSUMED_ORDER",
		},
		"Dates/LinesOfAChart": {
			"Survey: 2 May -> 9 May\nFind a builder: 3 May -> 8 May\nDesign: 9 May -> 20 May\n",
			"1 2 3", "1>3 2>3", "AMBIGUOUS ASSUMED_ORDER",
		},
		"Dates/BeforeTitles": {
			"2 May → 9 May: Survey\n9 May → 20 May: Design\n20 May → 30 June: Build\n",
			"Survey Design Build", "Survey>Design Design>Build", "AMBIGUOUS ASSUMED_ORDER",
		},
		"Gantt/BarsBehindWeeks": {
			"Week 1 ████ Research\nWeek 1 ████ Find a venue\nWeek 2 ████ Draft\nWeek 3-4 ████████ Publish\n",
			"1 2 3 4", "1>3 2>3 3>4", "AMBIGUOUS ASSUMED_ORDER",
		},
		"Fields/RelatedIsNoOrder": {
			`[{"id":"a","title":"Survey","depends_on":[]},{"id":"b","title":"Order","depends_on":["a"],"related":["c"]},{"id":"c","title":"Plant","depends_on":["a"],"see_also":["b"]}]`,
			"a b c", "a>b a>c", "",
		},
		"Fields/UnknownName": {
			`[{"id":"a","title":"Survey"},{"id":"b","title":"Order","foo":["a"]},{"id":"c","title":"Plant","foo":["b"]}]`,
			"a b c", "a>b b>c", "AMBIGUOUS_PLAN",
		},
		"Maps/DirectionNotSaid":  {`{"a":["b","c"],"b":["c"],"c":[]}`, "a b c", "a>b a>c b>c", "AMBIGUOUS_PLAN"},
		"Maps/DirectionSaid":     {`{"dependencies":{"plant":["design","order"],"design":["survey"],"order":["survey"],"survey":[]}}`, "plant design order survey", "design>plant order>plant survey>design survey>order", ""},
		"Fields/InputsAreBefore": {`[{"id":"A","cmd":"fetch","inputs":[],"outputs":["r"]},{"id":"B","cmd":"clean","inputs":["r"],"outputs":["s"]}]`, "A B", "A>B", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := plan.Parse(c.text)
			var ids, edges, codes []string
			for _, p := range r.Graph.Problems {
				ids = append(ids, p.ID)
			}
			for _, e := range r.Graph.Edges {
				edges = append(edges, e.From+">"+e.To)
			}
			for _, d := range r.Diagnostics {
				if d.Severity != plan.Info {
					codes = append(codes, string(d.Code))
				}
			}
			slices.Sort(codes)
			require.Equal(t, c.ids, strings.Join(ids, " "))
			require.ElementsMatch(t, strings.Fields(c.edges), edges)
			require.Equal(t, c.codes, strings.Join(slices.Compact(codes), " "), "%v", r.Diagnostics)
		})
	}
}
