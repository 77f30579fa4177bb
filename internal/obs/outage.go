package obs

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// outageEvery is the time between two lines about an outage that lasts.
	outageEvery = 30 * time.Second
	// outageSettled is how long nothing must have failed until an answer ends an outage.
	outageSettled = time.Second
)

// Outage reduces the log lines of many loops that share one dependency, while that does not answer: one at
// the beginning, one every half minute, and one at the end. The loops log to Logger as always. It is safe for
// concurrent use.
type Outage struct {
	what string
	is   func(error) bool
	log  *slog.Logger

	on     atomic.Bool
	mu     sync.Mutex
	since  time.Time
	failed time.Time // the last failure
	logged time.Time // the last line
	left   int       // lines that were left out since the beginning
}

// NewOutage watches the returned value's Logger for errors for which is holds: the dependency does not
// answer. An error that was logged as text is passed to is as an error with that text.
func NewOutage(log *slog.Logger, what string, is func(error) bool) *Outage {
	return &Outage{what: what, is: is, log: log}
}

// Logger is the logger for everything that uses what may be out.
func (o *Outage) Logger() *slog.Logger { return slog.New(outageHandler{o.log.Handler(), o}) }

// Answered is called for every answer. It costs next to nothing while there is no outage.
func (o *Outage) Answered() {
	if !o.on.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if !o.on.Load() || now.Sub(o.failed) < outageSettled {
		return
	}
	o.on.Store(false)
	o.log.Info(o.what+" answers again", "after", now.Sub(o.since).Round(time.Millisecond).String(), "lines_left_out", o.left) //nolint:sloglint // o.what is a constant of each logger
}

// took records a failure, and reports whether its log line is to be left out.
func (o *Outage) took(ctx context.Context, err error) bool {
	// During an outage, waiting callers run out of time as well, or stop because another one did.
	late := o.on.Load() && (runsOut(err, context.DeadlineExceeded) || runsOut(err, context.Canceled))
	if !late && !o.is(err) {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if !late { // that may be of something else, which must not keep the outage up
		o.failed = now
	}
	switch {
	case !o.on.Load():
		o.on.Store(true)
		o.since, o.logged, o.left = now, now, 1
		o.log.ErrorContext(ctx, o.what+" does not answer", "err", err) //nolint:sloglint // o.what is a constant of each logger
	case now.Sub(o.logged) >= outageEvery:
		o.logged, o.left = now, o.left+1
		o.log.WarnContext(ctx, o.what+" still does not answer", "err", err, "for", now.Sub(o.since).Round(time.Second).String(), "lines_left_out", o.left) //nolint:sloglint // o.what is a constant of each logger
	default:
		o.left++
	}
	return true
}

// runsOut also finds an end that was logged as text.
func runsOut(err, end error) bool {
	return errors.Is(err, end) || strings.Contains(err.Error(), end.Error())
}

type outageHandler struct {
	slog.Handler
	o *Outage
}

func (h outageHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return h.Handler.Handle(ctx, r)
	}
	var cause error
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "err" && a.Key != "error" {
			return true
		}
		switch v := a.Value.Resolve(); v.Kind() {
		case slog.KindString:
			cause = errors.New(v.String())
		case slog.KindAny:
			cause, _ = v.Any().(error)
		}
		return cause == nil
	})
	if cause != nil && h.o.took(ctx, cause) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h outageHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return outageHandler{h.Handler.WithAttrs(attrs), h.o}
}

func (h outageHandler) WithGroup(name string) slog.Handler {
	return outageHandler{h.Handler.WithGroup(name), h.o}
}
