package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// finding is what became of one action: exactly one of OK, Error, Skipped and Abstained.
type finding struct {
	Action    string          `json:"action"`
	OK        json.RawMessage `json:"ok,omitempty"`
	Error     *failure        `json:"error,omitempty"`
	Skipped   string          `json:"skipped,omitempty"`
	Abstained bool            `json:"abstained,omitempty"`
	// Truncated is the full length of a result of which OK is only the beginning, as a text.
	Truncated int `json:"truncated,omitempty"`
}

type failure struct {
	Type    workgraph.ErrorType `json:"type"`
	Reason  string              `json:"reason"`
	Message string              `json:"message,omitempty"`
}

// maxMessage bounds what a reasoner hears of one failure.
const maxMessage = 2000

// results lists what became of a round's actions, in the order asked.
func results(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		Steps []step `json:"steps"`
		Max   int    `json:"max_bytes"`
	}
	if err := actor.Decode(c.Own, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	if len(a.Steps) == 0 || a.Max <= 0 {
		return workgraph.Outcome{}, actor.BadArguments("steps are missing: this actor is a step of the agent actor's loop")
	}
	prefix := strings.TrimSuffix(c.Node, nodeResults)
	list := make([]finding, len(a.Steps))
	for i, s := range a.Steps {
		list[i] = found(c, prefix+s.ID, s.Action, a.Max)
	}
	return value(list)
}

func found(c *workgraph.Call, node, name string, most int) finding {
	f := finding{Action: name}
	u, ok := source(c, node)
	switch {
	case !ok, u.Outcome == workgraph.VisitFailed && u.Error != nil && u.Error.Reason == workgraph.ReasonQuorumUnreachable:
		f.Skipped = "an action before it did not succeed"
	case u.Outcome == workgraph.VisitCompleted:
		f.OK, f.Truncated = cut(actor.Result(u.Values), most)
	case u.Outcome == workgraph.VisitAbstained:
		f.Abstained = true
	case u.Error != nil:
		f.Error = &failure{u.Error.Type, u.Error.Reason, errs.Clip(u.Error.Message, min(most, maxMessage))}
	default:
		f.Error = &failure{Type: workgraph.Permanent, Reason: workgraph.ReasonActorError}
	}
	return f
}

// round is an entry of the history that the reasoner gets.
type round struct {
	Round    int             `json:"round"`
	Decision json.RawMessage `json:"decision,omitempty"`
	// Truncated is the full length of a decision of which Decision is only the beginning, as a text.
	Truncated int             `json:"truncated,omitempty"`
	Results   json.RawMessage `json:"results,omitempty"`
	// Refused says why nothing of the decision was done.
	Refused string `json:"refused,omitempty"`
	// Failed says why the round broke off; some of its actions may have been done.
	Failed string `json:"failed,omitempty"`
	// Omitted stands for a round that there is no more room for.
	Omitted bool `json:"omitted,omitempty"`
}

// limits bound the observations for the reasoner.
type limits struct {
	Result  int `json:"result_bytes"`
	History int `json:"history_bytes"`
}

// ReasonActionsUnusable is the reason when an allowed action of the agent's node names an actor that does not
// exist: no decision can correct that.
const ReasonActionsUnusable = "AGENT_ACTIONS_UNUSABLE"

// observe closes a round: its value is the history, which goes back to the reasoner, or the result.
func observe(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var given struct {
		Limits limits `json:"limits"`
	}
	if err := actor.Decode(c.Own, &given); err != nil {
		return workgraph.Outcome{}, err
	}
	most := given.Limits
	if most.Result <= 0 || most.History <= 0 {
		return workgraph.Outcome{}, actor.BadArguments("limits are missing: this actor is a step of the agent actor's loop")
	}
	var in struct {
		History []json.RawMessage `json:"history"`
	}
	if err := actor.Decode(c.Named, &in); err != nil {
		return workgraph.Outcome{}, err
	}
	decided, _ := source(c, nodeReason)
	entry := round{Round: c.Visit}
	entry.Decision, entry.Truncated = cut(actor.Result(decided.Values), min(most.Result, most.History/4))
	switch done, ok := source(c, nodeAct); {
	case !ok:
		entry.Refused = "no action gave a result"
	case done.Outcome != workgraph.VisitCompleted:
		entry.Refused = "this cannot be done"
		if e := done.Error; e != nil {
			if strings.Contains(e.Message, workgraph.CodeUnknownActor+" ") {
				return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonActionsUnusable, "an action names an actor that does not exist: %s", e.Message)
			}
			entry.Refused = errs.Clip(e.Error(), maxMessage)
			if e.Reason == workgraph.ReasonChildFailed {
				entry.Refused, entry.Failed = "", entry.Refused
			}
		}
	case done.Node != nodeAct || isList(actor.Result(done.Values)):
		entry.Results = actor.Result(done.Values)
	default:
		var v verdict
		if err := json.Unmarshal(actor.Result(done.Values), &v); err != nil {
			return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, workgraph.ReasonBadOutcome, "the verdict on round %d: %v", c.Visit, err)
		}
		if v.Refused == "" {
			if len(v.Result) == 0 {
				v.Result = json.RawMessage("null")
			}
			return workgraph.Outcome{Values: []json.RawMessage{v.Result}, Select: &workgraph.Select{Others: workgraph.SelectNone}}, nil
		}
		entry.Refused = errs.Clip(v.Refused, maxMessage)
	}
	raw, err := encode(entry)
	if err != nil {
		return workgraph.Outcome{}, actor.BadArguments("%v", err)
	}
	out, err := value(forget(append(in.History, raw), most.History))
	out.Select = &workgraph.Select{Others: workgraph.SelectNames, Names: []string{nodeReason}}
	return out, err
}

// isList distinguishes the results of a round from a verdict.
func isList(raw json.RawMessage) bool { return bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) }

// forget makes room by leaving out what the oldest rounds gave. The latest stays: it has bounds of its own.
func forget(history []json.RawMessage, most int) []json.RawMessage {
	size := 0
	for _, raw := range history {
		size += len(raw) + 1
	}
	for i := 0; i < len(history)-1 && size > most; i++ {
		var r round
		if json.Unmarshal(history[i], &r) != nil || r.Omitted {
			continue
		}
		short, err := encode(round{Round: r.Round, Omitted: true})
		if err != nil {
			continue
		}
		size -= len(history[i]) - len(short)
		history[i] = short
	}
	return history
}

// cut is a value of at most so many bytes: as it is, or else its beginning as a text and its whole length.
func cut(raw json.RawMessage, most int) (json.RawMessage, int) {
	if len(raw) > most {
		var b bytes.Buffer
		if json.Compact(&b, raw) == nil {
			raw = b.Bytes()
		}
	}
	if len(raw) <= most {
		return raw, 0
	}
	short, err := encode(errs.Clip(text(raw), most))
	if err != nil {
		short = json.RawMessage(`""`) // a text always marshals
	}
	return short, len(raw)
}
