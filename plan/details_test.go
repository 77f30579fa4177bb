package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
)

func TestDetails(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		details []string
		around  []plan.LineRange
	}{
		"LinesAndEntriesBelow": {
			"1. Dig the hole\n   Use the big spade.\n   - mind the pipes\n2. Plant the tree\n",
			[]string{"Use the big spade.\n- mind the pipes", ""}, nil,
		},
		"FieldsAreArguments": {
			"1. Dig the hole\n   Owner: Kim\n   Keep the turf.\n2. Plant the tree (after 1)\n",
			[]string{"Keep the turf.", ""}, nil,
		},
		"OwnLinesOfAGroup": {
			"1. Garden\n   Spring only.\n   1.1 Dig\n       Deep.\n   1.2 Plant\n",
			[]string{"Spring only.", "Deep.", ""}, nil,
		},
		"ParagraphsOfHeadings": {
			"## Step 1: Dig\nUse the spade.\n\nKeep the turf.\n\n## Step 2: Plant\nNot too deep.\n",
			[]string{"Use the spade.\n\nKeep the turf.", "Not too deep."}, nil,
		},
		"IndentationStays": {
			"1. Run this\n   ```\n   if x:\n     y()\n   ```\n2. Stop\n",
			[]string{"```\nif x:\n  y()\n```", ""}, nil,
		},
		"CodeWithALanguage": {
			"1. Run:\n   ```bash\n   make all\n   ```\n2. Stop\n",
			[]string{"```bash\nmake all\n```", ""}, nil,
		},
		"CodeAtTheMargin": {
			"1. Install:\n\n```bash\nnpm: i\n```\n\n2. Stop (after 1)\n",
			[]string{"```bash\nnpm: i\n```", ""}, nil,
		},
		"CodeBelowTheList": {
			"1. Install\n2. Stop (after 1)\n\n```bash\nnpm i\n```\n",
			[]string{"", ""}, []plan.LineRange{{First: 5, Last: 5}},
		},
		"ListInAFence": {
			"```\n1. Install\n   twice\n2. Stop (after 1)\n```\n",
			[]string{"twice", ""}, nil,
		},
		"BoxTable": {
			"┌────┬───────┬───────┐\n│ ID │ Task  │ After │\n├────┼───────┼───────┤\n│ A  │ dig   │       │\n├────┼───────┼───────┤\n│ B  │ plant │ A     │\n└────┴───────┴───────┘\n",
			[]string{"", ""}, nil,
		},
		"TextAround": {
			"Here is the plan.\n\n1. Dig\n2. Plant (after 1)\n\nGood luck!\nBye.\n",
			[]string{"", ""}, []plan.LineRange{{First: 1, Last: 1}, {First: 6, Last: 7}},
		},
		"LineBetween": {
			"- T1: dig\n\nNow the hard part.\n\n- T2: plant (after T1)\n",
			[]string{"", ""}, []plan.LineRange{{First: 3, Last: 3}},
		},
		"RowThatHeadsOthers": {
			"| ID | Task | Who | After |\n|---|---|---|---|\n| **In the garden** | | | |\n| A | dig | Kim | |\n| B | plant | Kim | A |\n| C | water | Kim | B |\n",
			[]string{"", "", ""}, []plan.LineRange{{First: 3, Last: 3}},
		},
		"TextAroundData": {
			"Sure:\n{\"tasks\": [{\"id\": \"a\"},\n{\"id\": \"b\", \"needs\": [\"a\"]}]}\nDone.",
			[]string{"", ""}, []plan.LineRange{{First: 1, Last: 1}, {First: 4, Last: 4}},
		},
		"StepTakenBack": {
			"1. Dig\n2. Fence\n3. Plant\n\nActually, drop step 2.\n",
			[]string{"", ""}, []plan.LineRange{{First: 2, Last: 2}, {First: 5, Last: 5}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := plan.Parse(c.text)
			require.Nil(t, r.NoPlan)
			var details []string
			for _, p := range r.Graph.Problems {
				details = append(details, p.Details)
			}
			require.Equal(t, c.details, details)
			require.Equal(t, c.around, r.Surroundings)
		})
	}
	t.Run("States", func(t *testing.T) {
		r := plan.Parse("* DONE Dig :garden:home:\n* WAITING Plant\n* TODO Water\n")
		require.Equal(t, []plan.Arg{{Name: "status", Kind: plan.Literal, Value: `"DONE"`}, {Name: "tags", Kind: plan.Literal, Value: `"garden, home"`}}, r.Graph.Problems[0].Args)
		require.Equal(t, []plan.Arg{{Name: "status", Kind: plan.Literal, Value: `"WAITING"`}}, r.Graph.Problems[1].Args)
		require.Empty(t, r.Graph.Problems[2].Args)
	})
	t.Run("InvalidBytes", func(t *testing.T) {
		r := plan.Parse("1. dig the hole\xe5\n2. plant the tree\xff (after 1)\n")
		require.Equal(t, "dig the hole", r.Graph.Problems[0].Request)
		require.Equal(t, "plant the tree (after 1)", r.Graph.Problems[1].Request)
		require.NotPanics(t, func() { plan.Parse("任\xe50000000000000000000") })
	})
	t.Run("Ticked", func(t *testing.T) {
		r := plan.Parse("- [x] dig\n- [ ] plant\n")
		require.Equal(t, []plan.Arg{{Name: "status", Kind: plan.Literal, Value: `"done"`}}, r.Graph.Problems[0].Args)
		require.Empty(t, r.Graph.Problems[1].Args)
	})
}
