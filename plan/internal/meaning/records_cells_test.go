package meaning

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// recordLinks returns the links of the most likely reading as "a>b c>d".
func recordLinks(text string) string {
	all := Read(form.NewSource(text))
	if len(all) == 0 {
		return "none"
	}
	var out []string
	for _, l := range all[0].Links {
		out = append(out, l.From+">"+l.To)
	}
	return strings.Join(out, " ")
}

func TestCellsWithSeveralReferences(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ cell, want string }{
		{"1 + 2", "1>2 1>3 2>3"}, {"1+2", "1>2 1>3 2>3"}, {"1 2", "1>2 1>3 2>3"}, {"1/2", "1>2 1>3 2>3"}, {"1FS+1 day 2", "1>2 1>3 2>3"}, {"1 2SS + 3 d", "1>2 1>3 2>3"},
		{"1-2", "1>2 1>3 2>3"}, {"steps 1 to 2", "1>2 1>3 2>3"}, {"Step 1 & Step 2", "1>2 1>3 2>3"}, {"once 1 and 2 are done", "1>2 1>3 2>3"}, {"2FS+2d", "1>2 2>3"},
		{"无", "1>2"}, {"－", "1>2"}, {"none (start)", "1>2"}, {"– can start today", "1>2"}, {"anytime", "1>2"}, {"1FS+1d,2", "1>2 1>3 2>3"},
		{"entfällt", "1>2"}, {"n/a", "1>2"}, {"9", "1>2 9>3"},
	} {
		t.Run(c.cell, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, recordLinks("| # | Task | Depends on |\n|---|---|---|\n| 1 | Dig | – |\n| 2 | Plant | 1 |\n| 3 | Water | "+c.cell+" |\n"))
		})
	}
}

func TestColumnHeadings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ head, two, three, want string }{
		{"Can start when…", "1 is done", "both 1 and 2 are finished", "1>2 1>3 2>3"},
		{"May only start after", "1", "1, 2", "1>2 1>3 2>3"},
		{"Startet erst nach", "1", "1, 2", "1>2 1>3 2>3"},
		{"Inward issue link (Blocks)", "1", "1, 2", "1>2 1>3 2>3"},
		{"truoc", "1", "1, 2", "1>2 1>3 2>3"}, // "before": the column holds predecessors
		{"Hands off to", "3", "(end)", "2>3"},
		{"Finish before", "Monday", "Friday", "1>2 2>3"}, // a day
	} {
		t.Run(c.head, func(t *testing.T) {
			t.Parallel()
			text := "The plan:\n\n| # | Task | " + c.head + " |\n|---|---|---|\n| 1 | Dig | – |\n| 2 | Plant | " + c.two + " |\n| 3 | Water | " + c.three + " |\n"
			got := recordLinks(text)
			if got == "" {
				got = "1>2 2>3" // listed order
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestTableForms(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"pipes without borders":          "ID|Task|After\nT1|Dig|\nT2|Plant|T1\nT3|Water|T1,T2\n",
		"a drawn box":                    "┌────┬───────┬───────┐\n│ ID │ Task  │ After │\n├────┼───────┼───────┤\n│ T1 │ dig   │       │\n│ T2 │ plant │ T1    │\n│ T3 │ water │ T1,T2 │\n└────┴───────┴───────┘\n",
		"no headings":                    "T1,Dig the hole,\nT2,Plant the tree,T1\nT3,Water the tree,\"T1,T2\"\n",
		"a heading row":                  "| ID | Task | Who | After |\n|---|---|---|---|\n| **Spring** | | | |\n| T1 | dig | Ann | |\n| T2 | plant | Bo | T1 |\n| **Summer** | | | |\n| T3 | water | Ann | T1, T2 |\n",
		"a list without quotes":          "id;task;after\nT1;dig;\nT2;plant;T1\nT3;water;T1;T2\n",
		"agents with needs":              "| Agent | Job | Receives output of |\n|---|---|---|\n| T1 | digs | nobody |\n| T2 | plants | T1 |\n| T3 | waters | T1, T2 |\n",
		"rows over several lines":        "+--+--------+--------+\n|  | task | after |\n+--+--------+--------+\n| T1 | dig the | |\n|  | hole | |\n+--+--------+--------+\n| T2 | plant | T1 |\n+--+--------+--------+\n| T3 | water | T1, |\n| | it | T2 |\n+--+--------+--------+\n",
		"a legend of arrows":             "Read \"X <- Y\" as: X can't start until Y is finished.\n\nT2 <- T1\nT3 <- T1, T2\n",
		"a heading in brackets":          "【作業】\nT1 → T2\nT1, T2 → T3\n",
		"Confluence headings":            "|| ID || Task || After ||\n| T1 | dig | |\n| T2 | plant | T1 |\n| T3 | water | T1, T2 |\n",
		"a word for a time in a heading": "| ID | Task | Selesai dahulu |\n|---|---|---|\n| T1 | dig | - |\n| T2 | plant | T1 |\n| T3 | water | T1, T2 |\n",
		"inputs":                         "| WP | Title | Inputs |\n|---|---|---|\n| T1 | Survey | – |\n| T2 | Design | the model from T1 |\n| T3 | Works | D1 (T1)<br>D2 (T2) |\n",
		"links only":                     "from,to\nT1,T2\nT1,T3\nT2,T3\n",
		"a matrix":                       "| | T1 | T2 | T3 |\n|---|---|---|---|\n| T1 | | | |\n| T2 | x | | |\n| T3 | x | x | |\n",
		"a matrix of columns":            "Each column needs the rows that are marked.\n\n| | T1 | T2 | T3 |\n|---|---|---|---|\n| T1 | | x | x |\n| T2 | | | x |\n| T3 | | | |\n",
		"a critical path":                "| ID | Task | After |\n|---|---|---|\n| T1 | dig | |\n| T2 | plant | T1 |\n| T3 | water | T1, T2 |\n\n**Critical path:** T1 → T3 → T2\n",
		"fields in the cells":            "T1 | Dig | Status: open\nT2 | Plant | Status: open | After: T1\nT3 | Water | Status: open | After: T1, T2\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, "T1>T2 T1>T3 T2>T3", recordLinks(text))
		})
	}
}

func TestOutlinedRows(t *testing.T) {
	t.Parallel()
	require.Equal(t, "1.1>1.2 1.2>2.1", recordLinks("| WBS | Task | Needs |\n|---|---|---|\n| 1 | Spring | |\n| 1.1 | dig | |\n| 1.2 | plant | 1.1 |\n| 2 | Summer | 1 |\n| 2.1 | water | |\n"))
}

func TestRecordsByIndexAndSide(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a>b b>d c>d a>c", recordLinks(`[{"id":"a","needs":[]},{"id":"b","needs":["a"]},{"id":"c","parallel_with":["b"]},{"id":"d","needs":["b","c"]}]`))
	require.Equal(t, "1>2 2>3", recordLinks(`{"steps":[{"do":"dig","needs":[]},{"do":"plant","needs":[0]},{"do":"water","needs":[1]}]}`))
	require.Equal(t, "a>c b>c", recordLinks("tasks:\n  - name: a\n  - name: b\n  - name: c\n    depends: a.Succeeded && b.Succeeded\n"))
}

func TestTrees(t *testing.T) {
	t.Parallel()
	const tree = "\n\nT1\n├── T2\n│   └── T3\n└── T4\n"
	for said, want := range map[string]string{
		"Each step needs the ones below it.":                         "T2>T1 T3>T2 T4>T1",
		"Each branch can start when the item it hangs from is done.": "T1>T2 T2>T3 T1>T4",
		"Jeder Schritt wartet auf den darüber.":                      "T1>T2 T2>T3 T1>T4",
		"Each step unlocks the ones below it.":                       "T1>T2 T2>T3 T1>T4",
		"हर काम अपने नीचे वाले कामों के पूरा होने पर ही शुरू होता है।": "T2>T1 T3>T2 T4>T1",
	} {
		t.Run(said, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, want, recordLinks(said+tree))
		})
	}
}

func TestLinesOfArrowsBelowLists(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"Order: 1>2, 1>3, 2>4, 3>4":              "1>2 1>3 2>4 3>4",
		"Order: 1 > 2 > 4 and 3 > 4":             "1>2 2>4 3>4",
		"Order: 1 → 2 and 3 → 4":                 "1>2 1>3 2>4 3>4",
		"Order: 1 → (2 and 3 in parallel) → 4.":  "1>2 1>3 2>4 3>4",
		"Ordre : 1 → (2 et 3 en parallèle) → 4.": "1>2 1>3 2>4 3>4",
		"Tasks: 1 = dig, 2 = sow":                "1>2 2>3 3>4", // no arrows
		"顺序：1 → （2 + 3，并行）→ 4":                   "1>2 1>3 2>4 3>4",
		"Flow: 1 → [(2 → 4), 3]":                 "2>4 1>2 1>3",
		"Flow: `1 → [2 ‖ 3] → 4`":                "1>2 1>3 2>4 3>4",
		"**Flow:** 1 -> {2, 3} -> 4":             "1>2 1>3 2>4 3>4",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			got := recordLinks("1. Dig the bed\n2. Sow peas\n3. Sow beans\n4. Water everything\n\n" + line + "\n")
			if got == "" {
				got = "1>2 2>3 3>4" // listed order
			}
			require.Equal(t, want, got)
		})
	}
}
