package engine

import (
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
