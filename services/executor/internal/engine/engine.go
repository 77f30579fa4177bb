// Package engine owns live runs: it starts them, calls actors, times back-offs, writes down what the machine
// decides and acts on it only when that is durable, takes over what other executors left, and lets readers
// watch. It must not know gRPC, any generated message, nor which database keeps the journal.
package engine

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/turns"
	"github.com/epigraph-run/epigraph/services/executor/internal/egress"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/attempttoken"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/descendants"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/price"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/suspect"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Engine runs graphs durably. It is safe for concurrent use.
type Engine struct {
	*command.Handler
	cfg           Config
	journal       journal.Journal
	packer        journal.Packer
	actors        program.Actors
	claims        Claims
	cancellations Cancellations
	suspects      *suspect.Turn
	explained     suspect.Explained
	prices        *price.Book // nil when nobody knows prices
	quota         descendants.Quota
	wake          func()
	// workflows is nil when there are none.
	workflows Workflows
	gates     []sched.Gate
	quotas    Quotas
	// starts bounds how many children of a namespace are being started at once.
	starts *turns.Turns
	// counts are turns to count families, which takes the database the longer the larger they are.
	counts     *turns.Turns
	remote     func(namespace, actor string) bool
	egress     egress.Guard
	jobWorker  string
	log        *slog.Logger
	tracer     trace.Tracer
	meters     *meters
	feed       *feed.Feed
	booked     *feed.Booked
	deliveries *feed.Deliveries
	// computing bounds how much of a namespace's work keeps processors of this executor busy at once: calls
	// of actors that compute, and every step of a run that evaluates expressions. However much one namespace
	// asks for, another finds a processor.
	computing *turns.Turns
	// lateTurns counts evaluations for which nobody had waited before the run was locked.
	lateTurns atomic.Int64
	roomWait  time.Duration
	// calling is what calls under way may hold of their arguments.
	calling *inflight.Budget
	// results is what calls that are made here may hold of what is to become their results.
	results  *inflight.Budget
	programs *program.Set
	outcomes *workgraph.OutcomeCache

	mu       sync.Mutex
	session  *session // nil while nothing is owned
	away     bool     // nothing is owned since the database does not answer
	sessions []journal.Owner
	ready    chan struct{}
}

// Ready is closed once runs were accepted for the first time.
func (e *Engine) Ready() <-chan struct{} { return e.ready }

// Owner is who this engine is at the moment; zero while it owns nothing.
func (e *Engine) Owner() journal.Owner {
	if t := e.current(); t != nil {
		return t.owner
	}
	return journal.Owner{}
}

// TakeOverPolicy is how take-overs are counted, by whichever way a run comes here.
func (e *Engine) TakeOverPolicy() journal.TakeOverPolicy {
	return journal.TakeOverPolicy{MaxTakeovers: e.cfg.MaxTakeovers, Outlived: e.outlived, Explained: e.explained.Has}
}

// outlived reports whether this process was that owner.
func (e *Engine) outlived(o journal.Owner) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.sessions, o)
}

func (e *Engine) current() *session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.session
}

func (e *Engine) set(t *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.session = t
	if t != nil {
		e.away = false
		e.sessions = append(e.sessions, t.owner)
		select {
		case <-e.ready:
		default:
			close(e.ready)
		}
	}
}

func (e *Engine) setAway(away bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.away = away
}

// notReady is what is answered while nothing is owned, so that nothing can be done.
func (e *Engine) notReady() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.away {
		return errs.DatabaseUnreachable("executor").Set(errs.MetaNothingDone, "true")
	}
	return errs.New(errs.Unavailable, errs.ReasonNotReady, "the executor is starting or stopping").Hint("try again in a moment")
}

// Programs are the graphs that this engine has compiled. They judge graphs that are to be run.
func (e *Engine) Programs() *program.Set { return e.programs }

// Feed tells what happens in runs.
func (e *Engine) Feed() *feed.Feed { return e.feed }

// Booked tells what was booked of runs.
func (e *Engine) Booked() *feed.Booked { return e.booked }

// Deliveries make what webhooks deliver.
func (e *Engine) Deliveries() *feed.Deliveries { return e.deliveries }

// Tokens are those of this engine.
func (e *Engine) Tokens() attempttoken.Keys { return attempttoken.NewKeys(e.cfg.TokenKeys...) }
