package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// payerFresh is how long an answer about a payer holds, and payerAway how long the payer stays as it is
	// after the registry gave none. payerTime bounds one question.
	payerFresh, payerAway, payerTime = time.Second, 10 * time.Second, 2 * time.Second
	// maxPayers bounds the payers that are remembered.
	maxPayers = 10_000
)

// Payers tells whether tasks and epics pay for runs that do not work on a task of their own.
type Payers interface {
	// Pays reports whether a task is worked on, and whether an epic has not ended. A task that is empty is
	// not asked for, and is not worked on.
	Pays(ctx context.Context, namespace, epicID, taskID string) (task, epic bool, err error)
}

type payerKey struct {
	namespace string
	record.Payer
}

// knownPayers remembers for a moment who pays in the place of a payer, so that a run hears of a task or an
// epic that others have ended.
type knownPayers struct {
	ask    Payers
	flight singleflight.Group

	mu    sync.Mutex
	known map[payerKey]knownPayer
}

type knownPayer struct {
	pays  *record.Payer
	until time.Time
}

// of is who pays in the place of p: its epic once its task has ended, and nobody once the epic has ended.
// While the registry does not answer it is who paid last.
func (k *knownPayers) of(ctx context.Context, namespace string, p *record.Payer) *record.Payer {
	if p == nil || k.ask == nil {
		return p
	}
	key := payerKey{namespace, *p}
	k.mu.Lock()
	have, there := k.known[key]
	k.mu.Unlock()
	if there && time.Now().Before(have.until) {
		return have.pays
	}
	last := p
	if there {
		last = have.pays
	}
	found, _, _ := k.flight.Do(namespace+"/"+p.Epic+"/"+p.Task, func() (any, error) {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), payerTime)
		defer stop()
		pays, until := last, time.Now().Add(payerAway)
		if task, epic, err := k.ask.Pays(ctx, namespace, p.Epic, p.Task); err == nil {
			if until = time.Now().Add(payerFresh); !epic {
				pays = nil
			} else if pays = p; !task {
				pays = &record.Payer{Epic: p.Epic}
			}
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.known == nil || len(k.known) >= maxPayers {
			k.known = map[payerKey]knownPayer{}
		}
		k.known[key] = knownPayer{pays, until}
		return pays, nil
	})
	pays, _ := found.(*record.Payer)
	return pays
}

// payer is who pays for the next call of a run without a task; nil for its namespace alone.
func (t *session) payer(ctx context.Context, r *run) *record.Payer {
	return t.e.payers.of(ctx, r.namespace, r.payer.Load())
}

// writePayer writes into the run's row who pays for its calls from now on. A run of a task keeps its task: an
// agent cannot leave the caps of its task by an epic of its own. The caller holds r.mu.
func (r *run) writePayer(w *journal.Append, said *workgraph.Payer) error {
	if said == nil || r.task != "" {
		return nil
	}
	next := r.payer.Load().Then(said)
	m, err := record.DecodeMetadata(r.metadata)
	if err != nil {
		return err
	}
	m.Payer = next
	if w.Metadata, err = json.Marshal(m); err != nil {
		return fmt.Errorf("encode metadata: %w", err)
	}
	r.metadata = w.Metadata
	r.payer.Store(next)
	return nil
}
