// Package host owns the lifecycle of a process: it runs services together, stops them in reverse order when
// one fails or a signal comes, and has the servers, which drain before the services behind them stop. It must
// not know what the services do.
package host

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Service is something opened that runs until its context ends. Run returns nil on a clean stop, or at
// once if there is no background work. Close is idempotent, safe without Run, and frees what opening took.
type Service interface {
	Run(ctx context.Context) error
	Close() error
}

// Run runs the services together and returns when all have stopped and are closed. When ctx ends or one of
// them fails, they are stopped one after the other, last to first, and each is closed before the next is
// stopped: a server placed after the service it serves drains while that still works.
func Run(ctx context.Context, services ...Service) error {
	// The services do not run under ctx itself, since then all would stop at once.
	base := context.WithoutCancel(ctx)
	failed := make(chan struct{})
	var once sync.Once
	running := make([]running, len(services))
	for i, s := range services {
		sctx, cancel := context.WithCancel(base)
		r := &running[i]
		r.cancel, r.done = cancel, make(chan struct{})
		go func() {
			defer close(r.done)
			if r.err = s.Run(sctx); r.err != nil {
				once.Do(func() { close(failed) })
			}
		}()
	}
	select {
	case <-ctx.Done():
	case <-failed:
	}
	var faults []error
	for i := len(services) - 1; i >= 0; i-- {
		running[i].cancel()
		<-running[i].done
		faults = append(faults, running[i].err, services[i].Close())
	}
	return errors.Join(faults...)
}

type running struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// Close closes services that were opened but never run, last to first.
func Close(services ...Service) error {
	var faults []error
	for i := len(services) - 1; i >= 0; i-- {
		faults = append(faults, services[i].Close())
	}
	return errors.Join(faults...)
}

// Signals returns a context that ends on SIGINT or SIGTERM. A second signal ends the process at once,
// since the first one gives the handlers back.
func Signals(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// Func makes a service of two functions, either of which may be nil.
func Func(run func(context.Context) error, closing func() error) Service {
	return &funcService{run: run, closing: closing}
}

// Flush makes a service whose Close calls flush with this time limit. Put telemetry first, so that it
// is flushed last.
func Flush(limit time.Duration, flush func(context.Context) error) Service {
	return Func(nil, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		return flush(ctx)
	})
}

type funcService struct {
	run     func(context.Context) error
	closing func() error
	once    sync.Once
	err     error
}

func (f *funcService) Run(ctx context.Context) error {
	if f.run == nil {
		return nil
	}
	return f.run(ctx)
}

func (f *funcService) Close() error {
	f.once.Do(func() {
		if f.closing != nil {
			f.err = f.closing()
		}
	})
	return f.err
}

// Readiness says whether this process wants traffic. The zero value is ready and has no checks; it is
// safe for concurrent use.
type Readiness struct {
	mu       sync.Mutex
	draining bool
	names    []string
	checks   []func(context.Context) error
	onDrain  []func()
}

// Add adds a condition; its error says what is missing.
func (r *Readiness) Add(name string, check func(context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names, r.checks = append(r.names, name), append(r.checks, check)
}

// OnDrain adds a function for the begin of draining, such as one that makes health checks fail.
func (r *Readiness) OnDrain(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onDrain = append(r.onDrain, f)
}

// Check returns nil if this process wants traffic, else everything that speaks against it.
func (r *Readiness) Check(ctx context.Context) error {
	r.mu.Lock()
	draining, names, checks := r.draining, r.names, r.checks
	r.mu.Unlock()
	if draining {
		return errors.New("stopping")
	}
	var faults []error
	for i, check := range checks {
		if err := check(ctx); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", names[i], err))
		}
	}
	return errors.Join(faults...)
}

// Drain marks the process as stopping, for good.
func (r *Readiness) Drain() {
	r.mu.Lock()
	was, hooks := r.draining, r.onDrain
	r.draining = true
	r.mu.Unlock()
	if was {
		return
	}
	for _, f := range hooks {
		f()
	}
}

// Drainer returns the service to put last: on stop it fails readiness and then waits, so that balancers stop
// routing here before the servers, which come before it, begin to refuse.
func Drainer(r *Readiness, delay time.Duration) Service {
	return Func(func(ctx context.Context) error {
		<-ctx.Done()
		r.Drain()
		if delay > 0 {
			timer := time.NewTimer(delay)
			defer timer.Stop()
			<-timer.C
		}
		return nil
	}, nil)
}
