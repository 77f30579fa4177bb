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
	if key := a.cacheKey(info); key != "" {
		return t.callOnce(ctx, doer, a, key)
	}
	return t.invoke(ctx, doer, a)
}

// cacheKey is the key of the saved outcomes of equal calls; empty if there are none to be.
//
//go:noinline
func (a *attempt) cacheKey(info *program.ActorInfo) string {
	scope := []string{a.run.namespace, info.Version}
	if info.SeesPlace {
		scope = append(scope, a.start.Ref.String())
	}
	return a.start.CacheKey(scope...)
}

// callOnce is callOrReuse for calls whose outcomes are saved.
//
//go:noinline
func (t *session) callOnce(ctx context.Context, doer workgraph.Actor, a *attempt, key string) (workgraph.Outcome, error) {
	out, ok := t.e.savedOutcome(ctx, a.run.namespace, key)
	trace.SpanFromContext(ctx).SetAttributes(attribute.Bool("epigraph.cached", ok))
	if ok {
		a.cached.Store(true)
		return out, nil
	}
	out, err := t.invoke(ctx, doer, a)
	if err == nil && out.Wait == nil && !a.looked.Load() && record.OutcomeSize(out) <= t.e.cfg.MaxPayload {
		t.e.cacheOutcome(ctx, a.run.namespace, key, out, time.Now().Add(a.start.CacheTTL))
	}
	return out, err
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

// cacheOutcome saves an outcome for equal calls: a small one for all executors, a larger one for this
// executor.
func (e *Engine) cacheOutcome(ctx context.Context, namespace, key string, out workgraph.Outcome, until time.Time) {
	e.outcomes.Put(key, out, until)
	if out.Expand != nil || len(out.Threads) > 0 || record.OutcomeSize(out) > journal.MaxOutcomeBytes {
		return
	}
	out.Usage = nil
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	hash, err := hex.DecodeString(key)
	if err != nil || enc.Encode(out) != nil || body.Len() > journal.MaxOutcomeBytes {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, savedOutcomeTimeout)
	defer cancel()
	if err := e.journal.KeepOutcome(ctx, namespace, hash, body.Bytes(), until); err != nil {
		e.log.WarnContext(ctx, "outcome cannot be saved", "err", err)
	}
}
