// Package audit owns the entries of the audit log on their way from the call that made them to the
// registry: what an entry says, which are left out, and what waits in a process. It must not know how
// calls are served, nor where entries are stored.
package audit

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/otel/metric"
	"golang.org/x/sync/errgroup"

	"github.com/epigraph-run/epigraph/internal/bucket"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/obs"
)

// IDPrefix begins every id.
const IDPrefix = "aud"

// ByRun is the principal of calls that are made within a run.
const ByRun = "run"

// Entry is one call of a method that changes something.
type Entry struct {
	Namespace, ID string
	// Time is when the call began.
	Time                           time.Time
	Principal, Method, Resource    string
	RunID, RequestID, Code, Reason string
	Remote, UserAgent              string
	// LeftOut is how many calls before this one have no entry.
	LeftOut int64
}

// Size implements page.Row.
func (e Entry) Size() int { return 1024 }

// Bounds of texts of an entry, in bytes.
const (
	maxPrincipal = 400
	maxMethod    = 200
	maxResource  = 256
	maxRunID     = 64
	maxRequestID = 128
	maxCode      = 32
	maxReason    = 100
	MaxRemote    = 64
	MaxUserAgent = 200
)

// bound cuts texts that callers choose.
func (e *Entry) bound() {
	for _, f := range []struct {
		text *string
		most int
	}{
		{&e.Principal, maxPrincipal}, {&e.Method, maxMethod}, {&e.Resource, maxResource}, {&e.RunID, maxRunID}, {&e.RequestID, maxRequestID},
		{&e.Code, maxCode}, {&e.Reason, maxReason}, {&e.Remote, MaxRemote}, {&e.UserAgent, MaxUserAgent},
	} {
		*f.text = Cut(*f.text, f.most)
	}
}

// Cut returns the first bytes of a text, at most so many, as printable UTF-8. It shares no memory with
// a longer text.
func Cut(s string, most int) string {
	long := len(s) > most
	if long {
		s = s[:most]
		for len(s) > 0 && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
		if r, n := utf8.DecodeLastRuneInString(s); r == utf8.RuneError && n == 1 {
			s = s[:len(s)-1]
		}
	}
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if len(s) > most { // the replacement of an invalid byte is as long; this is a guard
		s = s[:most]
	}
	if long {
		s = strings.Clone(s)
	}
	return s
}

// Write stores entries of one namespace. An entry whose id is stored already stays as it is.
type Write func(ctx context.Context, namespace string, entries []Entry) error

// Bounds of what a Log does.
const (
	// linger is for how long entries wait for others before they are written together.
	linger = 200 * time.Millisecond
	// MaxBatch is how many entries are written at once.
	MaxBatch = 500
	// waiting is how many entries wait in the process, and waitingEach how many of one namespace.
	waiting, waitingEach = 20_000, 5_000
	// writers is how many namespaces are written to at once.
	writers = 8
	// patience is how long one write may take, firstPause and lastPause the pauses after it failed.
	patience, firstPause, lastPause = 5 * time.Second, 500 * time.Millisecond, 15 * time.Second
	// closing is how long Close may take to write what waits.
	closing = 5 * time.Second
	// refusals are how many entries of refused calls one principal gets at once, and how many a second
	// after that; kept is of how many principals that is known.
	refusals, refusalsPerSecond, kept = 30, 1, 10_000
)

const scope = "github.com/epigraph-run/epigraph/internal/audit"

// Log writes entries soon, and in batches. Entries wait in memory until they are written. It is safe
// for concurrent use.
type Log struct {
	write  Write
	log    *slog.Logger
	lost   metric.Int64Counter
	away   obs.Seldom
	refuse *bucket.Buckets[owner]
	wake   chan struct{}
	once   sync.Once

	mu     sync.Mutex
	queues map[string]*queue
	total  int
	closed bool
}

type owner struct{ namespace, principal string }

// queue are the entries of one namespace that wait, the oldest first.
type queue struct {
	entries []Entry
	// lost is how many were dropped since the last one that was queued.
	lost int64
	// notBefore is when the next write may be tried, and pause the time from the last one to that.
	notBefore time.Time
	pause     time.Duration
}

// New returns a log that is empty. Nothing is written before Run runs, or Close.
func New(w Write, tel *obs.Telemetry) (*Log, error) {
	lost, err := tel.Meter(scope).Int64Counter("epigraph.audit.lost", metric.WithDescription("Entries of the audit log that were not written, because too many waited or the registry refused them."))
	if err != nil {
		return nil, err
	}
	return &Log{write: w, log: tel.Logger, lost: lost, refuse: bucket.New[owner](refusalsPerSecond, refusals, kept), wake: make(chan struct{}, 1), queues: map[string]*queue{}}, nil
}

// Record queues an entry, and gives it an id. It does not wait. refused says that the call changed
// nothing: of such calls a principal gets a few entries a second, and the next entry of it counts the others.
func (l *Log) Record(e Entry, refused bool) {
	of := owner{e.Namespace, e.Principal}
	if refused && !l.refuse.Take(of) {
		return
	}
	e.LeftOut += l.refuse.Left(of)
	e.ID = ids.New(IDPrefix)
	e.bound()
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[e.Namespace]
	if q == nil {
		q = &queue{}
		l.queues[e.Namespace] = q
	}
	if l.closed || l.total >= waiting || len(q.entries) >= waitingEach {
		q.lost += 1 + e.LeftOut
		l.lost.Add(context.Background(), 1)
		if level, left := l.away.Level("full", slog.LevelError); level >= slog.LevelError {
			l.log.LogAttrs(context.Background(), level, "an entry of the audit log is lost: too many wait for the registry", slog.String("namespace", e.Namespace), slog.Int("lines_left_out", left))
		}
		return
	}
	e.LeftOut, q.lost = e.LeftOut+q.lost, 0
	q.entries = append(q.entries, e)
	l.total++
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run writes what waits until ctx ends. What is recorded after that is written by Close.
func (l *Log) Run(ctx context.Context) error {
	tick := time.NewTicker(firstPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(linger):
			}
		case <-tick.C: // what failed is tried again
		}
		l.flush(ctx, false)
	}
}

// Close writes what waits, for a few seconds at most. It may be called more than once.
func (l *Log) Close() error {
	l.once.Do(func() {
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), closing)
		defer cancel()
		l.flush(ctx, true)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.total > 0 {
			l.log.ErrorContext(ctx, "entries of the audit log are lost: the registry did not take them before the end", slog.Int("entries", l.total))
			l.lost.Add(context.Background(), int64(l.total))
		}
	})
	return nil
}

// Waiting is how many entries are not written yet.
func (l *Log) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// flush writes what waits, some namespaces at a time: those whose pause is over, or all.
func (l *Log) flush(ctx context.Context, all bool) {
	var due []string
	l.mu.Lock()
	now := time.Now()
	for namespace, q := range l.queues {
		switch {
		case len(q.entries) == 0 && q.lost == 0:
			delete(l.queues, namespace)
		case len(q.entries) > 0 && (all || !now.Before(q.notBefore)):
			due = append(due, namespace)
		}
	}
	l.mu.Unlock()
	var g errgroup.Group
	g.SetLimit(writers)
	for _, namespace := range due {
		g.Go(func() error {
			for l.batch(ctx, namespace) {
			}
			return nil
		})
	}
	_ = g.Wait() // no function of it fails
}

// batch writes some entries of a namespace, and reports whether there are more to write now.
func (l *Log) batch(ctx context.Context, namespace string) bool {
	l.mu.Lock()
	q := l.queues[namespace]
	some := slices.Clone(q.entries[:min(len(q.entries), MaxBatch)])
	l.mu.Unlock()
	if len(some) == 0 {
		return false
	}
	writing, cancel := context.WithTimeout(ctx, patience)
	err := l.write(writing, namespace, some)
	cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := errors.AsType[*errs.Error](err); ok && e.Kind == errs.InvalidArgument {
		// They would be refused again, and those behind them would wait for ever.
		l.lost.Add(ctx, int64(len(some)))
		l.log.ErrorContext(ctx, "entries of the audit log are lost: the registry refused them", slog.String("namespace", namespace), slog.Int("entries", len(some)), slog.Any("err", err))
		q.lost += int64(len(some))
		err = nil
	}
	if err != nil {
		q.pause = min(max(2*q.pause, firstPause), lastPause)
		q.notBefore = time.Now().Add(q.pause)
		level, left := l.away.Level("away", slog.LevelWarn)
		l.log.LogAttrs(ctx, level, "the audit log cannot be written now", slog.String("namespace", namespace), slog.Int("waiting", len(q.entries)), slog.Int("lines_left_out", left), slog.Any("err", err))
		return false
	}
	q.entries, q.pause = slices.Delete(q.entries, 0, len(some)), 0
	l.total -= len(some)
	return len(q.entries) >= MaxBatch || l.closed && len(q.entries) > 0
}
