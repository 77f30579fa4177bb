package agent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workgraph"
)

// The name of an action may be that of any other node of a round.
func TestActionsNamedLikeNodes(t *testing.T) {
	t.Parallel()
	const finished = `<TaskStatus>Completed</TaskStatus>`
	for _, name := range []string{"list", "x-list", "gather", "agent", "summary", "results", "list.1", "gather.1", "agent.1.1", "observe", "begin.summary"} {
		for kind, c := range map[string]struct{ more, seen string }{
			"Branches":   {``, `["N_data",["N_data","B_data"]]`},
			"Together":   {`, "branch": false`, `["N_data",["N_data","B_data"]]`},
			"Summarizer": {`, "summarizer": {"actor": "join"}`, `["N_data","joined"]`},
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				r := &reasoner{script: []string{acts("", name), acts("", name, name+"+B", "C")}, when: []reply{{"C_data", completed}, {"<ActionResult>B_data", finished}}}
				n := says(`"N_data"`)
				join, last := says(`"joined"`), says(`"C_data"`)
				r.script = append(r.script, finished) // of the branch of the action
				e := newEnv(t, workgraph.Actors{"r": r, "tool": n, "B": says(`"B_data"`), "C": last, "join": join})
				done(t, e.run(t, `{"user_input": "x", "reasoner": "r", "actions": {"`+name+`": {"actor": "tool"}, "B": {}, "C": {}}`+c.more+`}`), `"done"`)
				require.Equal(t, []string{`{"previous_action_results":["N_data",` + c.seen[1:] + `}`}, last.calls)
				require.Len(t, n.calls, 3)
			})
		}
	}
}
