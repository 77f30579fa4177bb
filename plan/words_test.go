package plan_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
)

// TestOrderInWords reads sentences about the order of a list. An edge is written 1>2 if the text states it
// and 1~2 if it is assumed; each assumed edge has a diagnostic. doubt is set if there is any other
// diagnostic.
func TestOrderInWords(t *testing.T) {
	t.Parallel()
	const three, four = "1. Dig the bed\n2. Buy seeds\n3. Fetch water\n", "1. Dig the bed\n2. Buy seeds\n3. Fetch water\n4. Sow\n"
	for name, c := range map[string]struct {
		text, edges string
		doubt       bool
	}{
		"Assumed/BesideOneOther": {"1. Dig\n2. Sow (parallel with 1)\n3. Water", "1~3 2~3", false},
		"Assumed/Lettered":       {"1. Dig the bed\n2a. Sow peas\n2b. Sow beans\n3. Water all of it", "1~2a 1~2b 2a~3 2b~3", false},
		"Assumed/Corrected":      {four + "\nScratch that, step 3 comes before 2.", "1~3 3>2 2~4", false},
		"Stated/WholeOrder":      {three + "\nSo: first 1, then 3, then 2.", "1>3 3>2", false},
		"Chain/Arrows":           {three + "\nWe go 1 → 3 → 2.", "1>3 3>2", false},
		"Chain/Before":           {three + "\nStep 1 before step 3 before step 2.", "1>3 3>2", false},
		"Abreast/Below":          {four + "\nSteps 2 and 3 can run in parallel.", "1~2 1~3 2~4 3~4", false},
		"Abreast/BelowByNumbers": {three + "\n1 and 2 can run in parallel.", "1~3 2~3", false},
		"Abreast/Above":          {"Run 1, 2 and 3 in parallel, then 4.\n\n" + four, "1>4 2>4 3>4", false},
		"Abreast/Table":          {"| # | Task |\n|---|---|\n| 1 | dig |\n| 2 | sow |\n| 3 | water |\n| 4 | weed |\n\n2 and 3 can run side by side.", "1~2 1~3 2~4 3~4", false},
		"Loose":                  {three + "\nAll steps are independent.", "", false},
		"Loose/German":           {"1. Beet umgraben\n2. Samen kaufen\n3. Wasser holen\n\nAlle Schritte sind unabhängig.", "", false},
		"Last/Listed":            {"1. Sign it off\n2. Dig the bed\n3. Buy seeds\n\nStep 1 comes last.", "2~3 3~1", false},
		"Last/Stated":            {"1. Dig the bed\n2. Buy seeds (after 1)\n3. Fetch water (after 1)\n4. Sign it off\n\nStep 4 comes last.", "1>2 1>3 2>4 3>4", false},
		"First/Stated":           {"1. Dig the bed\n2. Buy seeds\n3. Sow (after 2)\n\nStep 1 comes first.", "1>2 2>3", false},
		"Sum":                    {three + "4. Write a summary of all of the above", "1>4 2>4 3>4", false},
		"Count":                  {three + "4. Write a summary (needs all three)", "1>4 2>4 3>4", false},
		"Count/French":           {"1. Lire le rapport\n2. Appeler le fournisseur\n3. Vérifier le stock\n4. Rédiger une synthèse (nécessite les trois)", "1>4 2>4 3>4", false},
		"Count/OfMore":           {four + "5. Write a summary (needs all three)", "2>5 3>5 4>5", true},
		"Not/But":                {"1. Dig\n2. Sow\n3. Water (after 1, but not step 2)", "1>3", false},
		"Not/Overlap":            {"1. Dig\n2. Sow\n3. Water (after 1, can overlap with 2)", "1>3", false},
		"Not/German":             {"1. Beet umgraben\n2. Samen kaufen\n3. Säen (nach 1, 2 ist egal)", "1>3", false},
		"Stages":                 {four + "\nFirst 2, then 1 and 3, and 4 at the very end.", "2>1 2>3 1>4 3>4", false},
		"Stages/Spanish":         {"1. Lavar\n2. Cortar\n3. Medir\n4. Cocinar\n\nPrimero el 3, luego el 1 y el 2, por último el 4.", "3>1 3>2 1>4 2>4", false},
		"Stages/Range":           {four + "\n1-3 can run in parallel, 4 comes last.", "1>4 2>4 3>4", false},
		"Stages/RestFree":        {four + "\n1 → 2 → 4, 3 any time.", "1>2 2>4", false},
		"Loose/SomeSteps":        {four + "\n2 and 3 don't depend on each other.", "1~2 1~3 2~4 3~4", false},
		"Loose/NoneOfTheSteps":   {three + "\nNone of the steps depends on another.", "", false},
		"Against/ListedOrder":    {four + "\nStep 3 comes before step 2.", "1~3 3>2 2~4", false},
		"Against/WholeOrder":     {"1. Dig\n2. Sow (after 1)\n3. Buy seeds (after 2)\n\nOops, please read it as 1, then 3, then 2.", "1>3 3>2", true},
		"Doubt/Amount":           {four + "\nIn step 2, compare 3 shops first.", "1~2 2~3 3~4", true},
		"Doubt/NotInParallel":    {four + "\n2 and 3 can't run in parallel.", "1~2 2~3 3~4", true},
		"Corrected/German":       {"1. Beet umgraben\n2. Samen kaufen\n3. Säen\n\nNein, doch andersherum: Schritt 3 kommt vor Schritt 2.", "1~3 3>2", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := plan.Parse(c.text)
			require.Nil(t, r.NoPlan, "%+v", r.NoPlan)
			var edges, assumed, said, other []string
			for _, e := range r.Graph.Edges {
				sign := ">"
				if e.Source == plan.ListedOrder || e.Source == plan.Numbering {
					sign = "~"
					assumed = append(assumed, e.From+" -> "+e.To)
				}
				edges = append(edges, e.From+sign+e.To)
			}
			for _, d := range r.Diagnostics {
				switch {
				case d.Code == plan.AssumedOrder:
					said = append(said, d.Element)
				case d.Severity != plan.Info:
					other = append(other, string(d.Code)+" "+d.Message)
				}
			}
			require.ElementsMatch(t, strings.Fields(c.edges), edges)
			require.ElementsMatch(t, assumed, said)
			require.Equal(t, c.doubt, len(other) > 0, "%v", other)
		})
	}
}

// TestArgumentsAreNoPlans distinguishes arguments for a conclusion from steps to be done.
func TestArgumentsAreNoPlans(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"Premises": "Premise 1: All men are mortal.\nPremise 2: Socrates is a man.\nConclusion: Socrates is mortal.",
		"Demands":  "Premise 1: Plan ahead.\nPremise 2: Save money.\nConclusion: Buy a house.",
		"Numbered": "1. Premise: cut costs.\n2. Premise: raise prices.\n3. Conclusion: close the plant.",
		"German":   "Prämisse 1: Alle Menschen sind sterblich.\nPrämisse 2: Sokrates ist ein Mensch.\nSchluss: Sokrates ist sterblich.",
		"Chinese":  "前提1：人都会死。\n前提2：苏格拉底是人。\n结论：苏格拉底会死。",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NotNil(t, plan.Parse(text).NoPlan)
		})
	}
}

// TestWhoDoesWhat reads actions with the persons who do them, and the chosen one of two alternatives.
func TestWhoDoesWhat(t *testing.T) {
	t.Parallel()
	const options = "Option 1: rent\n- find a van\n- sign the contract\n\nOption 2: buy\n- compare prices\n- pay the dealer\n"
	for name, c := range map[string]struct{ text, requests string }{
		"Arrows":          {"Ann → draft; Bob → review", "draft|review"},
		"Arrows/Commas":   {"Ann → draft the report, Bob → review it, Cy → publish it", "draft the report|review it|publish it"},
		"Arrows/Steps":    {"Draft → Review; Review → Publish", "Draft|Review|Publish"},
		"Prose/Remarks":   {"First dig (Ann, 2h), then plant, and finally water.", "First dig (Ann, 2h),|then plant,|and finally water."},
		"Chosen/ByTitle":  {options + "\nDecision: buy.", "compare prices|pay the dealer"},
		"Chosen/ByNumber": {options + "\n**Decision:** option 1", "find a van|sign the contract"},
		"Chosen/Headings": {"Rent:\n- find a van\n- sign the contract\n\nBuy:\n- compare prices\n- pay the dealer\n\nDecision: rent.", "find a van|sign the contract"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests []string
			for _, p := range plan.Parse(c.text).Graph.Problems {
				requests = append(requests, p.Request)
			}
			require.Equal(t, c.requests, strings.Join(requests, "|"))
		})
	}
}
