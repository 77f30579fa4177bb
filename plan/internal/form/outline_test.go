package form

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// show writes an outline with one item per line: depth, kind, mark and text.
func show(it *Item, depth int, b *strings.Builder) {
	for _, k := range it.Kids {
		kind := [...]string{"H", "E", "P", "R"}[k.Kind]
		label := k.Mark.Label
		if k.Mark.Noun != "" {
			label = k.Mark.Noun + "/" + label
		}
		fmt.Fprintf(b, "%s%s %s|%s\n", strings.Repeat(" ", depth), kind, label, strings.Join(strings.Fields(k.Text), " "))
		show(k, depth+1, b)
	}
}

func TestOutline(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"Numbers":              {"1. dig\n2) fill\n(3) plant", "E 1|dig\nE 2|fill\nE 3|plant\n"},
		"Details":              {"1. dig\n- deep\n2. fill\n   more", "E 1|dig\n E |deep\nE 2|fill\n P |more\n"},
		"Codes":                {"- **AP1 – Dig**\n  - Needs: none\n* [T2] fill\n• T3 plant\n- T4: rest", "E AP1|Dig\n E |Needs: none\nE T2|fill\nE T3|plant\nE T4|rest\n"},
		"Phases":               {"## Phase 1: Prepare\n1. dig\n## Phase 2: Do\n2. fill", "H Phase/1|Prepare\n E 1|dig\nH Phase/2|Do\n E 2|fill\n"},
		"Nested":               {"1. a\n1.1 b\n1.2 c\n2. d", "E 1|a\n E 1.1|b\n E 1.2|c\nE 2|d\n"},
		"Boxes":                {"- [x] T1 dig\n- [ ] T2 fill\n☐ rest", "E T1|dig\nE T2|fill\nE |rest\n"},
		"Signs":                {"1️⃣ dig\n② fill\n➤ Z1 – rest\n➤ Z2 – more", "E 1|dig\nE 2|fill\nE Z1|rest\nE Z2|more\n"},
		"Words":                {"Step One: dig\nStep Two: fill\nFirst step: go", "E Step/One|dig\nE Step/Two|fill\nE step/First|go\n"},
		"Han":                  {"第一步：挖\n第二步：填\n任务A：种\n步骤3：收", "E 步/第一步|挖\nE 步/第二步|填\nE 任务/A|种\nE 步骤/3|收\n"},
		"Letters":              {"1a. dig\n1b) fill\nA – plant\niv. rest", "E 1a|dig\nE 1b|fill\nE A|plant\nE iv|rest\n"},
		"Weak":                 {"12 eggs are needed\nTRAM-1  dig\nTRAM-2  fill", "P |12 eggs are needed\nE TRAM-1|dig\nE TRAM-2|fill\n"},
		"Counted":              {"First, dig\nSecond, fill\nEn tercer lugar: plant\nWhatever, rest", "E First|dig\nE Second|fill\nE En tercer lugar|plant\n P |Whatever, rest\n"},
		"Apostrophe":           {"Крок п'ятий: копати\nÉtape une : creuser", "E Крок/п'ятий|копати\nE Étape/une|creuser\n"},
		"Said":                 {"The first step is to dig\nThe second step, filling, is next\nFifth and last step: rest\nThe old step is gone", "E step/first|dig\nE step/second|filling, is next\nE step/Fifth|rest\n P |The old step is gone\n"},
		"Said on a line":       {"It is easy. First, dig. Second, fill. Third and last, plant.", "P |It is easy.\nE First|dig.\nE Second|fill.\nE Third|plant.\n"},
		"Said in a sentence":   {"So: Erstens graben, zweitens füllen und drittens pflanzen.", "P |So:\nE Erstens|graben\nE zweitens|füllen\nE drittens|pflanzen.\n"},
		"Said of other things": {"The first, second, and third prize go to Ann, Bob and Cy.", "P |The first, second, and third prize go to Ann, Bob and Cy.\n"},
		"Remark":               {"Task A (3 days): dig\nTask B (1 day): fill", "E Task/A|(3 days): dig\nE Task/B|(1 day): fill\n"},
		"Tatweel":              {"د) خطة\nهـ) حفل", "E د|خطة\nE هـ|حفل\n"},
		"One letter":           {"A1  dig\nA2  fill\nC1  plant", "E A1|dig\nE A2|fill\nE C1|plant\n"},
		"Org":                  {"* Plan\n** TODO [#A] H-1 dig\n   Blocked by: H-2\n** DONE H-2 fill", "H |Plan\n H H-1|dig\n  P |Blocked by: H-2\n H H-2|fill\n"},
		"Amounts":              {"- 3 leeks\n- 1 onion\n- 4 eggs", "E |3 leeks\nE |1 onion\nE |4 eggs\n"},
		"Units":                {"- 20 g of salt\n- 30 g of sugar", "E |20 g of salt\nE |30 g of sugar\n"},
		"AnyOrder":             {"2 fill\n1 dig\n3 plant", "E 2|fill\nE 1|dig\nE 3|plant\n"},
		"Flush right":          {"  I. dig\n II. fill\nIII. plant\n IV. rest", "E I|dig\nE II|fill\nE III|plant\nE IV|rest\n"},
		"Ticks":                {"[✔] R1 : dig\n[ ] R2 : fill", "E R1|dig\nE R2|fill\n"},
		"One sign":             {"@ann – dig\n@bob – fill\n@cy – plant", "E |@ann – dig\nE |@bob – fill\nE |@cy – plant\n"},
		"Adverbs":              {"Erstens den Garten graben\nZweitens ihn füllen", "E Erstens|den Garten graben\nE Zweitens|ihn füllen\n"},
		"Bold before a colon":  {"**Step 1**: dig\n**Step 2**: fill", "E Step/1|dig\nE Step/2|fill\n"},
		"Address":              {"203.0.113.9 - GET\n198.51.100.7 - POST", "P |203.0.113.9 - GET\nP |198.51.100.7 - POST\n"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			show(Outline(NewSource(c.text)), 0, &b)
			require.Equal(t, c.want, b.String())
		})
	}
	t.Run("Places", func(t *testing.T) {
		text := "x\n- **T1** – dig `it` deep\n- T2 fill"
		k := Outline(NewSource(text)).Kids[1]
		require.Equal(t, "dig  it  deep", k.Text)
		require.Equal(t, "dig `it` deep", text[k.TextOff:k.TextOff+len(k.Text)])
	})
}

func FuzzOutline(f *testing.F) {
	f.Add("1. a\n  - b\n## c\n* TODO x")
	f.Fuzz(func(t *testing.T, text string) {
		var walk func(it *Item)
		walk = func(it *Item) {
			for _, k := range it.Kids {
				if k.Off < it.Off || k.End > len(text) || k.TextOff+len(k.Text) > len(text) {
					t.Fatalf("item %q is not in its place", k.Text)
				}
				walk(k)
			}
		}
		walk(Outline(NewSource(text)))
	})
}
