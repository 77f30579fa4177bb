package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// refusal is an amendment that was recorded and then refused, since the run had moved on. It stands in the
// run's position until the next amendment, for those who did not wait for the answer.
type refusal struct {
	Time      time.Time `json:"time"`
	By        string    `json:"by,omitempty"`
	RequestID string    `json:"request_id,omitempty"`
	Message   string    `json:"message"`
}

// maxRefusal bounds what is told of a refusal.
const maxRefusal = 1000

func refusalOf(l *Payload, err error, now time.Time) *refusal {
	out := &refusal{Time: now, By: l.By, RequestID: l.RequestID, Message: err.Error()}
	if refused, ok := errors.AsType[*workgraph.AmendRefused](err); ok {
		var places []string
		for _, f := range refused.Refusals {
			at := f.Node
			if f.From != "" || f.To != "" {
				at = f.From + " -> " + f.To
			}
			places = append(places, fmt.Sprintf("%s at %s: %s", f.Code, at, f.Message))
		}
		out.Message = strings.Join(places, "; ")
	}
	out.Message = cut(out.Message, maxRefusal)
	return out
}

// refusedAmendment tells of the last amendment, if it was refused after its caller had gone.
func (e *Engine) refusedAmendment(ctx context.Context, x *Explanation) error {
	f, err := e.lastRefusal(ctx, x.Row.Namespace, x.Row.ID)
	if err != nil || f == nil {
		return err
	}
	h := Blocker{Kind: BlockerAmendRefused, Since: f.Time, Name: f.RequestID, Message: "an amendment was refused: " + f.Message,
		Hint: "epigraph runs graph " + x.Row.ID + " --json shows the graph as it is; change what has not run"}
	if f.By != "" {
		h.Message = "an amendment by " + f.By + " was refused: " + f.Message
	}
	x.Blockers = append(x.Blockers, h)
	return nil
}

func (e *Engine) lastRefusal(ctx context.Context, namespace, runID string) (*refusal, error) {
	if t := e.current(); t != nil {
		if r := t.get(runID); r != nil && r.namespace == namespace && !r.gone.Load() {
			r.lock()
			defer r.mu.Unlock()
			return r.refusal, nil
		}
	}
	loaded, err := e.journal.Standing(ctx, namespace, runID)
	if err != nil || len(loaded.Snapshot) == 0 {
		return nil, err
	}
	_, head, _, err := decodeSnapshot(loaded.Snapshot, 0)
	if err != nil {
		return nil, nil // a position of no use tells nothing
	}
	return head.Refusal, nil
}
