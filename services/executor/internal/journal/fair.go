package journal

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/turns"
)

// fair is a journal of which each namespace asks only so much at once, so that one which asks a lot leaves connections to the others. It
// embeds what the engine itself asks, for all namespaces.
type fair struct {
	Journal

	turns *turns.Turns
	// puts are those of registrations of workers, one of a namespace at a time: on PostgreSQL the others would wait for each other with a connection
	// each, on SQLite before everybody's writes.
	puts *turns.Turns
}

// Fair returns j such that one namespace's reads and posts are half of those that are carried out at once; others wait for these, as long as their
// context allows.
func Fair(j Journal) Journal { return fair{j, turns.New(j.Readers() / 2), turns.New(1)} }

// take asks in a turn of the namespace.
func take[T any](ctx context.Context, f fair, namespace string, ask func() (T, error)) (got T, err error) {
	leave, err := f.turns.Enter(ctx, namespace)
	if err != nil {
		return got, err
	}
	defer leave()
	return ask()
}

func (f fair) Get(ctx context.Context, namespace, runID string) (Run, error) {
	return take(ctx, f, namespace, func() (Run, error) { return f.Journal.Get(ctx, namespace, runID) })
}

func (f fair) Graph(ctx context.Context, namespace, runID string) (hash string, body []byte, err error) {
	body, err = take(ctx, f, namespace, func() (b []byte, err error) {
		hash, b, err = f.Journal.Graph(ctx, namespace, runID)
		return b, err
	})
	return hash, body, err
}

func (f fair) GraphBody(ctx context.Context, namespace, hash string) ([]byte, error) {
	return take(ctx, f, namespace, func() ([]byte, error) { return f.Journal.GraphBody(ctx, namespace, hash) })
}

func (f fair) Requested(ctx context.Context, namespace, method, requestID string) (runID, bodyHash string, err error) {
	runID, err = take(ctx, f, namespace, func() (id string, err error) {
		id, bodyHash, err = f.Journal.Requested(ctx, namespace, method, requestID)
		return id, err
	})
	return runID, bodyHash, err
}

func (f fair) List(ctx context.Context, namespace string, filter Filter, after page.Cursor, limit int) ([]Run, error) {
	return take(ctx, f, namespace, func() ([]Run, error) { return f.Journal.List(ctx, namespace, filter, after, limit) })
}

func (f fair) Events(ctx context.Context, namespace, runID string, afterSeq int64, limit int) ([]Event, error) {
	return take(ctx, f, namespace, func() ([]Event, error) { return f.Journal.Events(ctx, namespace, runID, afterSeq, limit) })
}

func (f fair) Descendants(ctx context.Context, namespace, runID string) ([]Descendant, error) {
	return take(ctx, f, namespace, func() ([]Descendant, error) { return f.Journal.Descendants(ctx, namespace, runID) })
}

func (f fair) CountBelow(ctx context.Context, namespace, runID string, most int) (int, error) {
	return take(ctx, f, namespace, func() (int, error) { return f.Journal.CountBelow(ctx, namespace, runID, most) })
}

func (f fair) Unbooked(ctx context.Context, namespace, runID, kind string) (int64, error) {
	return take(ctx, f, namespace, func() (int64, error) { return f.Journal.Unbooked(ctx, namespace, runID, kind) })
}

func (f fair) GetInterrupt(ctx context.Context, namespace, id string) (Interrupt, error) {
	return take(ctx, f, namespace, func() (Interrupt, error) { return f.Journal.GetInterrupt(ctx, namespace, id) })
}

func (f fair) ListInterrupts(ctx context.Context, namespace string, filter InterruptFilter, after page.Cursor, limit int) ([]Interrupt, error) {
	return take(ctx, f, namespace, func() ([]Interrupt, error) { return f.Journal.ListInterrupts(ctx, namespace, filter, after, limit) })
}

func (f fair) CountOpenInterrupts(ctx context.Context, namespace, runID string) (int, error) {
	return take(ctx, f, namespace, func() (int, error) { return f.Journal.CountOpenInterrupts(ctx, namespace, runID) })
}

func (f fair) Post(ctx context.Context, p Post) (Posted, error) {
	return take(ctx, f, p.Mail.Namespace, func() (Posted, error) { return f.Journal.Post(ctx, p) })
}

func (f fair) UnreadMail(ctx context.Context, namespace, runID string, limit int) ([]Mail, error) {
	return take(ctx, f, namespace, func() ([]Mail, error) { return f.Journal.UnreadMail(ctx, namespace, runID, limit) })
}

func (f fair) ArchiveOf(ctx context.Context, namespace, runID string) (string, error) {
	return take(ctx, f, namespace, func() (string, error) { return f.Journal.ArchiveOf(ctx, namespace, runID) })
}

func (f fair) PutActors(ctx context.Context, self Owner, namespace string, actors []RemoteActor, lease time.Duration, limit int) error {
	leave, err := f.puts.Enter(ctx, namespace)
	if err != nil {
		return err
	}
	defer leave()
	return f.Journal.PutActors(ctx, self, namespace, actors, lease, limit)
}

func (f fair) RemoteActors(ctx context.Context, namespace string, names []string) ([]RemoteActor, error) {
	return take(ctx, f, namespace, func() ([]RemoteActor, error) { return f.Journal.RemoteActors(ctx, namespace, names) })
}

func (f fair) Workers(ctx context.Context, namespace string, lease time.Duration) ([]Worker, error) {
	return take(ctx, f, namespace, func() ([]Worker, error) { return f.Journal.Workers(ctx, namespace, lease) })
}

func (f fair) KeptOutcome(ctx context.Context, namespace string, key []byte, now time.Time) (outcome []byte, until time.Time, err error) {
	outcome, err = take(ctx, f, namespace, func() (o []byte, err error) {
		o, until, err = f.Journal.KeptOutcome(ctx, namespace, key, now)
		return o, err
	})
	return outcome, until, err
}
