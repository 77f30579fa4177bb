package engine

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// maxSavedOutcomes bounds the bytes of saved outcomes in memory.
	maxSavedOutcomes = 64 << 20
	// savedOutcomeTimeout bounds requests to the journal for saved outcomes, which may save a call and must
	// not delay one.
	savedOutcomeTimeout = 2 * time.Second
)

// callOrReuse returns the saved outcome of an equal call if the node allows it. Otherwise it makes the call.
func (t *session) callOrReuse(ctx context.Context, doer workgraph.Actor, info *program.ActorInfo, a *attempt) (workgraph.Outcome, error) {
	if a.start.MayBeCached() {
		return t.callOnce(ctx, doer, info, a)
	}
	return t.invoke(ctx, doer, a)
}

// callOnce is callOrReuse for calls whose outcomes are saved. A fork finds none: who forks a run wants what
// it runs again to be done again.
//
//go:noinline
func (t *session) callOnce(ctx context.Context, doer workgraph.Actor, info *program.ActorInfo, a *attempt) (workgraph.Outcome, error) {
	key, err := t.cacheKey(ctx, info, a)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	if key == "" {
		return t.invoke(ctx, doer, a)
	}
	if !a.run.lineage.Forked {
		out, ok := t.e.savedOutcome(ctx, a.run.namespace, key)
		trace.SpanFromContext(ctx).SetAttributes(attribute.Bool("epigraph.cached", ok))
		if ok {
			a.cached.Store(true)
			return out, nil
		}
	}
	out, err := t.invoke(ctx, doer, a)
	if err == nil && !a.looked.Load() {
		a.keep(key, out)
	}
	return out, err
}

// keep notes under which key the outcome of the call is to be saved: now, or when the children that it asks
// for have ended.
func (a *attempt) keep(key string, out workgraph.Outcome) {
	as := workgraph.KeepAs{Key: key, For: a.start.Cache.TTL}
	switch {
	case out.Wait == nil:
		a.kept = &workgraph.KeptOutcome{Ref: a.start.Ref, KeepAs: as, Outcome: out}
	case out.Wait.Children != nil:
		a.keepAs = &as
	}
}

// savedOutcome is the outcome of an equal call, made here or on another executor.
func (e *Engine) savedOutcome(ctx context.Context, namespace, key string) (workgraph.Outcome, bool) {
	now := time.Now()
	if out, ok := e.outcomes.Get(key, now); ok {
		return out, true
	}
	hash, err := hex.DecodeString(key)
	if err != nil {
		return workgraph.Outcome{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, savedOutcomeTimeout)
	defer cancel()
	body, until, err := e.journal.KeptOutcome(ctx, namespace, hash, now)
	if err != nil || body == nil {
		if err != nil {
			e.log.WarnContext(ctx, "saved outcome cannot be read", "err", err)
		}
		return workgraph.Outcome{}, false
	}
	var out workgraph.Outcome
	if err := json.Unmarshal(body, &out); err != nil {
		e.log.WarnContext(ctx, "saved outcome cannot be decoded", "err", err)
		return workgraph.Outcome{}, false
	}
	e.outcomes.Put(key, out, until)
	return out, true
}

// saved is an outcome that this executor finds once the write is durable that it belongs to.
type saved struct {
	key   string
	out   workgraph.Outcome
	until time.Time
}

// keepOutcomes adds to a write the outcomes that it makes durable and that equal calls may have: a small one
// is for all executors, a larger one is for this executor alone. The caller holds r.mu.
func (r *run) keepOutcomes(w *journal.Append, evs []workgraph.Event, kept []workgraph.KeptOutcome, x extra) (out []saved) {
	if k := x.attempt.kept; k != nil && completes(evs, k.Ref) {
		own := *k
		own.Outcome.Saved, own.Outcome.Usage = used(x.attempt.usage), nil
		kept = append(kept, own)
	}
	for _, k := range kept {
		if k.Outcome.Saved == nil && k.Alone && len(evs) > 0 {
			k.Outcome.Saved = used(evs[0].Usage)
		}
		if len(k.Outcome.Threads) > 0 {
			continue // what it adds to threads is to be added by each call
		}
		until := time.Now().Add(time.Duration(k.For))
		out = append(out, saved{k.Key, k.Outcome, until})
		if k.Outcome.Expand != nil || record.OutcomeSize(k.Outcome) > journal.MaxOutcomeBytes {
			continue
		}
		var body bytes.Buffer
		enc := json.NewEncoder(&body)
		enc.SetEscapeHTML(false)
		hash, err := hex.DecodeString(k.Key)
		if err != nil || enc.Encode(k.Outcome) != nil || body.Len() > journal.MaxOutcomeBytes {
			continue
		}
		w.Kept = append(w.Kept, journal.KeptOutcome{Key: hash, Outcome: body.Bytes(), Until: until})
	}
	return out
}

// completes reports whether a decision completes a visit or item. An outcome that its node refuses is not
// saved.
func completes(evs []workgraph.Event, at workgraph.Ref) bool {
	for i := range evs {
		for j := range evs[i].Steps {
			s := &evs[i].Steps[j]
			if (s.Op == workgraph.OpComplete || s.Op == workgraph.OpExpand || s.Op == workgraph.OpItem && (s.Detail == nil || s.Error == nil)) &&
				s.Node == at.Node && s.Visit == at.Visit && s.Item == at.Item {
				return true
			}
		}
	}
	return false
}

// used is the sum of usage. Nil if there is none.
func used(list []workgraph.Usage) *workgraph.Used {
	if len(list) == 0 {
		return nil
	}
	out := &workgraph.Used{}
	for i := range list {
		u := &list[i]
		out.InputTokens += u.InputTokens
		out.OutputTokens += u.OutputTokens
		if u.CostNanoUSD != nil {
			out.NanoUSD += *u.CostNanoUSD
		} else {
			out.Unpriced++
		}
	}
	out.Tokens = out.InputTokens + out.OutputTokens
	return out
}
