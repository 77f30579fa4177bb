package meaning

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// TestStatements reads lists of steps with separate statements of their needs, and lists with struck and
// faulty parts.
func TestStatements(t *testing.T) {
	steps := "1. dig the pond\n2. line it\n3. fill it\n\n"
	for _, c := range []struct{ text, ids, links string }{
		{steps + "Order constraints:\n- 2 requires 1\n- 3 has to wait for 2\n", "1 2 3", "1>2 2>3"},
		{steps + "1 can start right away; 2 comes after 1; 3 depends on 1.\n", "1 2 3", "1>2 1>3"},
		{"1. couper\n2. trier\n3. ranger\n\n3 ne peut commencer qu'après 2; 2 ne dépend de rien.\n", "1 2 3", "2>3"},
		{"1. dig (needs 1)\n2. line it (needs 1)\n3. fill it (needs 2)\n", "1 2 3", "1>1 1>2 2>3"},
		{"1. dig\n2. ~~line it, after 1~~\n3. fill it, after ~~1~~ 2\n", "1 3", "1>3"},
		{"1단계: 설계\n2단계: 개발 (1단계 완료 후)\n3단계: 시험 (2단계 완료 후)\n", "1 2 3", "1>2 2>3"},
		{"- **Before**\n  - Export the rows\n  - Clean the rows\n- **After**\n  - Import the rows\n  - Delete the file\n", "1 2 3 4", ""},
		{"- Paint the frame\n  - two coats of red\n- Mount the wheels\n  - 12 Nm\n", "1 2", ""},
		{"Phase 1: Before\n- Export the rows\n- Clean the rows\nPhase 2: After\n- Import the rows\n", "1 2 3", ""},
		{"Phase 1: Export the rows\n- Owner: Ann\nPhase 2: Import the rows\n- Owner: Bob\n", "1 2", ""},
		{"Wave 1:\n- dig\n- line\nWave 2:\n- fill\n", "1 2 3", "1>3 2>3"},
		{"Wave 1: T1 dig, T2 line\nWave 2 (after wave 1): T3 fill, T4 plant\nWave 3: T5 sit\n", "T1 T2 T3 T4 T5", "T1>T3 T2>T3 T1>T4 T2>T4 T3>T5 T4>T5"},
		{"Phase A:\n1. dig\n2. line\nPhase B:\n1. fill (needs Phase A step 1 and Phase A step 2)\n2. sit (needs Phase B step 1)\n", "1.1 1.2 2.1 2.2", "1.1>2.1 1.2>2.1 2.1>2.2"},
		{"A1 → Ann: dig\nA2 → Bob: line it (after A1)\nA3 → Ann: fill it (after A2)\n", "A1 A2 A3", "A1>A2 A2>A3"},
		{"- lint: check the style\n- e2e: click through (after lint)\n- ship: push it (after e2e)\n", "lint e2e ship", "lint>e2e e2e>ship"},
		{"Task: dig\nDepends on: none\n\nTask: line\nDepends on: dig\n", "dig line", "dig>line"},
		{"* Pond\n** TODO Dig\n:PROPERTIES:\n:CUSTOM_ID: dig\n:END:\n** TODO Fill\n:PROPERTIES:\n:CUSTOM_ID: fill\n:BLOCKER: ids(dig)\n:END:\n", "dig fill", "dig>fill"},
		{"* Pond\n** TODO A1 Dig\n** TODO A2 Line\n** TODO A3 Fill\n   Needs: [[id:A1]], [[#A2][the line]]\n", "A1 A2 A3", "A1>A3 A2>A3"},
		{"Level 0: load (the file), open (a socket)\nLevel 1: parse (the rows)\n", "load open parse", "load>parse open>parse"},
		{"Phase A (no prerequisites)\n  A1 dig\n  A2 line\nPhase B (after Phase A)\n  B1 fill\n", "A1 A2 B1", "A1>B1 A2>B1"},
		{"- base: pour it []\n- wall: build it [base]\n- roof: tile it [base, wall]\n", "base wall roof", "base>wall base>roof wall>roof"},
		{"- per diem – pay it\n- hotel – book it\n- report – write it, once hotel and per diem are done\n", "per diem hotel report", "hotel>report per diem>report"},
		{"- Ann – dig the pond – after: nothing\n- Bob – line it – after: dig the pond\n", "1 2", "1>2"},
		{"a) couper\nb) trier\nc) ranger (il faut a et b)\n", "a b c", "a>c b>c"},
		{"1. dig\n2. line it – after 1\n3. sit – after 2 (all)\n", "1 2 3", "1>2 2>3"},
		{"F1.a  dig\nF1.b  line it (after F1.a)\nF2.a  fill it (after F1.b)\n", "F1.a F1.b F2.a", "F1.a>F1.b F1.b>F2.a"},
		{"1. dig, separate from the house\n2. line it\n3. fill it\n", "1 2 3", ""},
		{"**Phase A — Before the meeting**\n1. print\n2. fold\n\n**Phase B — The meeting**\n3. vote (after 2)\n", "1 2 3", "2>3"},
		{"1. dig (weeks 1-3)\n2. line it\n   - Output: signed by both heads\n3. fill it\n", "1 2 3", ""},
		{"- soil: test it (unblocks: beds)\n- beds: build them (unblocks: plants)\n- plants: sow (unblocks: nothing, it is the last one)\n", "soil beds plants", "soil>beds beds>plants"},
		{"■ Phase 1\n 1-1 dig\n 1-2 line it (after 1-1)\n■ Phase 2\n 2-1 fill it (after 1-2)\n", "1 1-1 1-2 2 2-1", "1-1>1-2 1-2>2-1"},
		{"  ⎿  ☒ 1. dig\n     ☐ 2. line it\n     ☐ 3. fill it\n", "1 2 3", ""},
		{"HR-1 sign\nIT-1 log in (after HR-1)\nIT-2 read (after IT-1)\n", "HR-1 IT-1 IT-2", "HR-1>IT-1 IT-1>IT-2"},
		{"Phase I\n  1a dig\n  1b line it\nPhase II\n  2a fill it\n", "1a 1b 2a", ""},
		{"Stage 1\n  dig – with a spade\nStage 2 (after everything in stage 1)\n  line – with clay\n  sit – on a chair\n", "dig line sit", "dig>line dig>sit"},
		{"A1 dig\nB1 line it (after A1)\nC1 fill it (after B1)\n", "A1 B1 C1", "A1>B1 B1>C1"},
		{"Stage 1:\n- dig the pond\nStage 2:\n- fill it when the rain reaches 23\n- sit\n", "1 2 3", ""},
		{"- Ann: dig\n- Bob: line it, after \"dig\"\n- Year 6: fill it, after \"line it\"\n", "1 2 3", "1>2 2>3"},
		{"[1단계] 기획\n1-1. 조사\n1-2. 확정 (1-1 완료 후)\n\n[2단계] 개발\n2-1. 제작 (1-2 완료 후)\n", "1-1 1-2 2-1", "1-1>1-2 1-2>2-1"},
		{"✔ 1. dig\n☐ 2. line it (after 1)\n☐ 3. fill it (after 2)\n", "1 2 3", "1>2 2>3"},
		{"- N1 dig | pred: none | succ: N2\n- N2 line it | pred: N1 | succ: N3\n- N3 fill it | pred: N2 | succ: none\n", "N1 N2 N3", "N1>N2 N1>N2 N2>N3 N2>N3"},
		{"We do it as follows:\n\n- Before:\n  - Export the rows\n  - Clean the rows\n- After:\n  - Import the rows\n", "1 2 3", ""},
		{"I. Sources\n   - Find the letters\n   - Ask the witnesses\nII. Text\n   - Write the chapters\n", "1 2 3", ""},
		{"**Procurement**\n- Order the timber\n- Rent the mixer\n\n**Groundwork** (after Procurement)\n- Pour the footing\n", "1 2 3", "1>3 2>3"},
		{"## Tasks\n- T1 – dig\n- T2 – line it\n- T3 – fill it\n\n## Depends on\n- T2: T1\n- T3: T1\n", "T1 T2 T3", "T1>T2 T1>T3"},
		{"AB-1: bake\nAB-2: slice (after AB-1)\nAB-3: serve (after AB-2 and AB-90)\n", "AB-1 AB-2 AB-3", "AB-1>AB-2 AB-2>AB-3 AB-90>AB-3"},
	} {
		src := form.NewSource(c.text)
		src.MaxDepth, src.MaxItems, src.Ended = 64, 1000, func() bool { return false }
		all := Read(src)
		require.NotEmpty(t, all, c.text)
		ids, links := "", ""
		for _, it := range all[0].Items {
			ids += " " + it.ID
		}
		for _, l := range all[0].Links {
			links += " " + l.From + ">" + l.To
		}
		require.Equal(t, " "+c.ids, ids, c.text)
		require.Equal(t, c.links, strings.TrimSpace(links), c.text)
	}
}
