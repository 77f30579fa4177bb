// Package engine owns live runs. It starts them, calls actors, runs timers, makes the machine's decisions
// durable and acts on them only then. It also takes over the runs of dead executors and serves readers of
// live runs. It must not know gRPC, generated messages, or which database keeps the journal.
package engine

import (
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/turns"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
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
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Engine runs graphs durably. It is safe for concurrent use.
type Engine struct {
	*command.Handler
	cfg       Config
	journal   journal.Journal
	packer    journal.Packer
	actors    program.Actors
	claims    Claims
	payers    knownPayers
	orders    Orders
	tasks     Tasks
	suspects  *suspect.Turn
	explained suspect.Explained
	prices    *price.Book // nil if there is no price book
	purse     Purse       // nil if nothing bounds what runs spend
	mostUsed  func(*workgraph.Start) (workgraph.Usage, bool)
	quota     descendants.Quota
	wake      func(urgent bool)
	// workflows is nil if there are none.
	workflows Workflows
	gates     []sched.Gate
	quotas    Quotas
	// starts bounds how many children of a namespace are being started at once.
	starts *turns.Turns
	// counts bounds how many counts of descendants run at once. A count takes the database longer the more
	// runs there are.
	counts     *turns.Turns
	remote     func(namespace, actor string) bool
	modelCall  func(*workgraph.Start) sched.ModelCall
	unfinished func(*workgraph.Program, map[string]json.RawMessage)
	egress     egress.Guard
	jobWorker  string
	triggered  bool
	log        *slog.Logger
	tracer     trace.Tracer
	meters     *meters
	feed       *feed.Feed
	booked     *feed.Booked
	deliveries *feed.Deliveries
	// computing bounds how many processors of this executor a namespace keeps busy: with calls of actors that
	// compute, and with steps of runs that evaluate expressions. Other namespaces always find a processor.
	computing *turns.Turns
	// lateTurns counts evaluations that began without a turn, because nothing had waited for one before the
	// run was locked.
	lateTurns atomic.Int64
	roomWait  time.Duration
	// calling bounds the memory for arguments of calls in flight.
	calling *inflight.Budget
	// results bounds the memory for results of calls that are made here.
	results  *inflight.Budget
	programs *program.Set
	outcomes *workgraph.OutcomeCache
	// keys evaluates the keys of caches.
	keys *actor.Expressions
	// threadEnds are where threads end to which this executor appended.
	threadEnds *thread.Ends

	mu       sync.Mutex
	session  *session // nil while nothing is owned
	away     bool     // nothing is owned because the database does not answer
	sessions []journal.Owner
	ready    chan struct{}
}

// Ready is closed once the engine has accepted runs for the first time.
func (e *Engine) Ready() <-chan struct{} { return e.ready }

// Owner is the present ownership session of this engine. It is zero while the engine owns nothing.
func (e *Engine) Owner() journal.Owner {
	if t := e.current(); t != nil {
		return t.owner
	}
	return journal.Owner{}
}

// TakeOverPolicy says how take-overs are counted, whichever way a run comes to this executor.
func (e *Engine) TakeOverPolicy() journal.TakeOverPolicy {
	return journal.TakeOverPolicy{MaxTakeovers: e.cfg.MaxTakeovers, Outlived: e.outlived, Explained: e.explained.Has}
}

// outlived reports whether o was an ownership session of this process.
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

// notReady is the error of requests while the engine owns nothing. Nothing was done.
func (e *Engine) notReady() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.away {
		return errs.DatabaseUnreachable("executor").Set(errs.MetaNothingDone, "true")
	}
	return errs.New(errs.Unavailable, errs.ReasonNotReady, "the executor is starting or stopping").Hint("try again in a moment")
}

// Programs are the compiled graphs of this engine. They also validate graphs.
func (e *Engine) Programs() *program.Set { return e.programs }

// Feed publishes the events of runs to watchers.
func (e *Engine) Feed() *feed.Feed { return e.feed }

// Booked reads what is booked of runs.
func (e *Engine) Booked() *feed.Booked { return e.booked }

// Deliveries builds the messages of webhooks.
func (e *Engine) Deliveries() *feed.Deliveries { return e.deliveries }

// Tokens signs and verifies attempt tokens.
func (e *Engine) Tokens() attempttoken.Keys { return attempttoken.NewKeys(e.cfg.TokenKeys...) }
