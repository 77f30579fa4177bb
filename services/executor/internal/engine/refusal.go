package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/phrase"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/workgraph"
)

// maxRefusal bounds what is told of a refusal.
const maxRefusal = 1000

func refusalOf(l *record.Payload, err error, now time.Time) *record.AmendRefused {
	out := &record.AmendRefused{Time: now, By: l.By, RequestID: l.RequestID, Message: err.Error()}
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
	out.Message = phrase.Cut(out.Message, maxRefusal)
	return out
}

// LastRefusal is the last amendment of a run if it was refused when its owner applied it, else nil.
func (e *Engine) LastRefusal(ctx context.Context, namespace, runID string) (*record.AmendRefused, error) {
	if r := e.live(namespace, runID); r != nil && !r.gone.Load() {
		r.lock()
		defer r.mu.Unlock()
		return r.Refusal, nil
	}
	loaded, err := e.journal.Standing(ctx, namespace, runID)
	if err != nil || len(loaded.Snapshot) == 0 {
		return nil, err
	}
	_, head, _, err := record.DecodePosition(loaded.Snapshot, 0)
	if err != nil {
		return nil, nil // a position of no use tells nothing
	}
	return head.Refusal, nil
}
