package agent

import (
	"context"
	"encoding/json"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
	"github.com/epigraph-run/epigraph/workgraph"
)

// The user may ask for something else in place of an answer. The agent's question is answered with that in
// its thread, and its run then fails with ANOTHER_REQUEST: whoever is above, an agent that called this one or
// a team, hears what the user wants.

const (
	actorLeave = loopPrefix + "leave"
	nodeLeave  = "leave"
)

// insteadOfAnswer is what the user asks for, if that is what came of the question.
func (r *round) insteadOfAnswer() (text string, ok bool) {
	act, asked := standing.Source(r.c, nodeAct)
	if !asked || act.Outcome != workgraph.VisitCompleted {
		return "", false
	}
	return actor.InsteadOf(actor.Result(act.Values))
}

// leaving is the outcome of a round that the user has ended with another request.
func leaving(text string) (workgraph.Outcome, error) {
	out, err := value(map[string]string{"text": text})
	out.Select = &workgraph.Select{Others: workgraph.SelectNames, Names: []string{nodeLeave}}
	return out, err
}

// leave fails the run of an agent that the user has turned away from.
func leave(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var text string
	if json.Unmarshal(c.Named["text"], &text) != nil {
		return workgraph.Outcome{}, badLoop("there is no request")
	}
	return workgraph.Outcome{}, actor.AnotherRequest(text)
}
