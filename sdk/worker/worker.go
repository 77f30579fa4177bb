// Package worker serves actors from Go: functions that nodes of graphs call. It keeps a stream to an
// executor, takes visits while it has room, calls the functions, and answers each visit once. It must not
// know how graphs are run.
package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// Connection is what a worker needs of a client; *epigraph.Client is one.
type Connection interface {
	Conn() *grpc.ClientConn
}

// Options configure a worker. The zero value is usable.
type Options struct {
	// ID is a name for people; empty lets the executor make one.
	ID string
	// Slots is how many visits are taken at once; 0 means 16 for each CPU.
	Slots int
	// Version is the version of actors that state none.
	Version string
	// DrainTimeout is how long visits may go on after the worker is stopped; 0 means 30 seconds.
	DrainTimeout time.Duration
	// Logger gets what happens to the connection; nil means nobody.
	Logger *slog.Logger
}

// Worker serves actors. Register them, Run it, and wait until it is Ready before runs name its actors for the
// first time. It is safe for concurrent use.
type Worker struct {
	conn Connection
	opts Options
	log  *slog.Logger

	mu     sync.Mutex
	actors map[string]*served
	order  []string
	fault  error
	// accepted is closed when an executor has recorded the actors, ended when Run ends before that. failed is
	// the error of Run, or the last reason why no executor accepted the worker.
	accepted, ended chan struct{}
	failed          error
}

type served struct {
	info *executorv1.WorkerActor
	call func(ctx context.Context, v *Visit) (*executorv1.Outcome, error)
}

// New makes a worker that serves nothing yet.
func New(conn Connection, opts Options) *Worker {
	if opts.Slots <= 0 {
		opts.Slots = 16 * runtime.NumCPU()
	}
	if opts.DrainTimeout <= 0 {
		opts.DrainTimeout = 30 * time.Second
	}
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Worker{conn: conn, opts: opts, log: log, actors: map[string]*served{}, accepted: make(chan struct{}), ended: make(chan struct{})}
}

// ActorOption says more about an actor.
type ActorOption func(*executorv1.WorkerActor)

// EffectKind says what a second call of an actor may do.
type EffectKind graphv1.Effect

// Pure calls may be repeated at will, Idempotent ones with the same effect key. Unsafe ones are repeated only
// if they surely did not happen. An actor that does not state its effect is Unsafe.
const (
	Pure       = EffectKind(graphv1.Effect_EFFECT_PURE)
	Idempotent = EffectKind(graphv1.Effect_EFFECT_IDEMPOTENT)
	Unsafe     = EffectKind(graphv1.Effect_EFFECT_UNSAFE)
)

// Effect declares what a second call may do. Recovery depends on it.
func Effect(e EffectKind) ActorOption {
	return func(a *executorv1.WorkerActor) { a.Effect = graphv1.Effect(e) }
}

// Description says in one sentence what the actor does.
func Description(s string) ActorOption {
	return func(a *executorv1.WorkerActor) { a.Description = s }
}

// Version changes when equal calls may give different results than before.
func Version(v string) ActorOption {
	return func(a *executorv1.WorkerActor) { a.Version = v }
}

// Slots bounds how many visits of this actor are taken at once.
func Slots(n int) ActorOption {
	return func(a *executorv1.WorkerActor) { a.Slots = int32(n) }
}

// Schema is the JSON Schema of the named arguments, in place of the one that is derived from In.
func Schema(raw json.RawMessage) ActorOption {
	return func(a *executorv1.WorkerActor) { a.ArgsSchema = &graphv1.Payload{Json: raw} }
}

// Register serves an actor by a function. A struct or map for In is filled from the named arguments, anything
// else from the first positional one. The result is written as one JSON value, unless Out is Result: see
// Values, Sleep, Ask, Spawn. Run returns an error if a name is registered twice or In has no schema.
func Register[In, Out any](w *Worker, name string, f func(ctx context.Context, in In) (Out, error), opts ...ActorOption) {
	info := &executorv1.WorkerActor{Name: name, Version: w.opts.Version}
	t := reflect.TypeFor[In]()
	named := takesNamed(t)
	var fault error
	if named && t.Kind() == reflect.Struct {
		schema, err := schemaOf[In]()
		if err != nil {
			fault = fmt.Errorf("actor %q: %w", name, err)
		}
		info.ArgsSchema = &graphv1.Payload{Json: schema}
	}
	for _, o := range opts {
		o(info)
	}
	w.add(info, fault, func(ctx context.Context, v *Visit) (*executorv1.Outcome, error) {
		var in In
		if err := v.decode(named, &in); err != nil {
			return nil, err
		}
		out, err := f(ctx, in)
		if err != nil {
			return nil, err
		}
		if r, ok := any(out).(Result); ok {
			return r.outcome()
		}
		return Values(out).outcome()
	})
}

func (w *Worker) add(info *executorv1.WorkerActor, fault error, call func(context.Context, *Visit) (*executorv1.Outcome, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.actors[info.GetName()] != nil {
		fault = fmt.Errorf("actor %q is registered twice", info.GetName())
	}
	w.fault = errors.Join(w.fault, fault)
	w.actors[info.GetName()] = &served{info, call}
	w.order = append(w.order, info.GetName())
}

func takesNamed(t reflect.Type) bool {
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Map
}

func (w *Worker) hello() (*executorv1.WorkerHello, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fault != nil {
		return nil, w.fault
	}
	if len(w.order) == 0 {
		return nil, errors.New("the worker serves nothing: Register actors first")
	}
	h := &executorv1.WorkerHello{WorkerId: w.opts.ID, Slots: int32(w.opts.Slots), UserAgent: "epigraph-go"}
	for _, n := range w.order {
		h.Actors = append(h.Actors, w.actors[n].info)
	}
	return h, nil
}

func (w *Worker) actor(name string) *served {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.actors[name]
}
