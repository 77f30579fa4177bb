package workflow_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workflow/team"
)

const askers = `name: x
agents:
  front: {instructions: i, tools: [{ask: [money, parcels]}]}
  money: {description: Looks after money., capabilities: [invoices, parcels], instructions: i}
  parcels: {capabilities: [shipping, invoices], instructions: i}
  other: {instructions: i}
graph: [front]
`

func TestAskAgent(t *testing.T) {
	t.Parallel()
	t.Run("LeadsToAgentsByNameAndCapability", func(t *testing.T) {
		t.Parallel()
		tm := teamOf(t, askers)
		require.Equal(t, []string{`front -> money {"handoff":"money"} any`, `front -> parcels {"handoff":"parcels"} any`}, arrows(tm))
		require.Len(t, tm.Members, 3, "who is not asked is no member")
		ask := tm.Members[0].Signals["ask_agent"]
		require.Equal(t, &team.Ask{Argument: "agent", To: map[string]string{"money": "money", "parcels": "parcels", "invoices": "money", "shipping": "parcels"}}, ask.Ask,
			"a name goes before what another one can do, and of several that can do it the first one is asked")
		var shown map[string]struct {
			Description string
			Schema      json.RawMessage
		}
		require.NoError(t, json.Unmarshal(tm.Members[0].Named["signals"], &shown))
		require.Contains(t, shown["ask_agent"].Description, "- money (invoices, parcels): Looks after money.\n- parcels (shipping, invoices)")
		require.Contains(t, string(shown["ask_agent"].Schema), `"agent":{"enum":["money","parcels","invoices","shipping"]}`)
	})
	t.Run("AnyIsAllOthers", func(t *testing.T) {
		t.Parallel()
		require.Len(t, teamOf(t, strings.Replace(askers, "[money, parcels]}", "any}", 1)).Members, 4)
	})
	for name, c := range map[string]struct{ from, to, code string }{
		"Unknown":    {"ask: [money, parcels]", "ask: [mony]", "UNKNOWN_AGENT"},
		"Itself":     {"ask: [money, parcels]", "ask: [front, money]", "SELF"},
		"Nobody":     {"ask: [money, parcels]", "ask: []", "MISSING_KEY"},
		"Parameters": {"ask: [money, parcels]", "ask: [money], parameters: {x: {type: string}}", "FIELD_NOT_USED"},
		"BadWord":    {"[invoices, parcels]", `["look after"]`, "BAD_ID"},
		"Chosen":     {"[front]", "{choose: {}}", "FIELD_NOT_USED"},
	} {
		t.Run("Refused/"+name, func(t *testing.T) {
			t.Parallel()
			src := strings.Replace(askers, c.from, c.to, 1)
			require.NotEqual(t, askers, src)
			d, faults := workflow.Read([]byte(src))
			if d != nil && len(faults) == 0 {
				_, faults = workflow.Compile(d)
			}
			var codes []string
			for _, f := range faults {
				codes = append(codes, f.Code)
			}
			require.Contains(t, codes, c.code)
		})
	}
}

// Words for what an agent can do mean nothing where nobody asks by them.
func TestCapabilitiesWithoutATeam(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ src, code string }{
		"OfAnAgent":    {"name: T\nagents: {a: {instructions: x, capabilities: [sums]}}\nsteps: [{id: x, type: agent, agent: a, prompt: p}]\n", "ONLY_IN_TEAMS"},
		"OfAStep":      {"name: T\nsteps: [{id: x, type: agent, prompt: p, capabilities: [sums]}]\n", "UNKNOWN_KEY"},
		"OfASubagent":  {"name: T\nsteps: [{id: x, type: deep_agent, prompt: p, subagents: [{name: s, instructions: i, capabilities: [sums]}]}]\n", "UNKNOWN_KEY"},
		"OfAMemberToo": {"name: T\nagents: {a: {instructions: x, capabilities: [sums]}, b: {instructions: y}}\nsteps: [{id: x, type: agent, agent: a, prompt: p}, {id: y, type: team, task: t, graph: {transitions: [\"a -> b\"]}}]\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var codes []string
			for _, f := range faultsOf(c.src) {
				codes = append(codes, f.Code)
			}
			if c.code == "" {
				require.Empty(t, codes)
			} else {
				require.Equal(t, []string{c.code}, codes)
			}
		})
	}
}
