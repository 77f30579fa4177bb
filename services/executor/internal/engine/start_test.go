package engine_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// holder is a registry with one task.
type holder struct {
	mu  sync.Mutex
	run string
}

func (h *holder) Claim(_ context.Context, _, task, run string, _ time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run != "" && h.run != run {
		e := errs.New(errs.FailedPrecondition, "TASK_NOT_CLAIMABLE", "task %s is claimed", task)
		e.Meta = map[string]string{"run_id": h.run, "lease_expire_time": "later"}
		return e
	}
	h.run = run
	return nil
}

func (h *holder) Release(context.Context, string, string, string) error { return nil }

func (h *holder) of() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.run
}

// slow is a journal that commits nothing while it is shut.
type slow struct {
	journal.Journal
	shut chan struct{}
}

func (s *slow) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	select {
	case <-s.shut:
		return s.Journal.Commit(ctx, o, ws)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestStartIsRepeatedWhileItIsRecorded sends a start again whose first try waits for a database that does not answer: the task is claimed then, and no run is there.
func TestStartIsRepeatedWhileItIsRecorded(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		db, registry := &slow{shut: make(chan struct{})}, &holder{}
		l := run(t, s, actors{"ok": &recorder{}}, func(c *engine.Config, d *engine.Deps) {
			db.Journal = d.Journal
			d.Journal, d.Claims = db, registry
		})
		req := engine.StartRequest{Namespace: ns, Graph: chain(1, "ok"), TaskID: "tk_one", Request: journal.Request{ID: "once", BodyHash: "b"}}
		first := req
		first.ID = engine.IDPrefix + "_" + strings.ToLower(ulid.MustNew(ulid.Timestamp(time.Now().Add(-time.Minute)), ulid.DefaultEntropy()).String())
		short, cancel := context.WithCancel(t.Context())
		started := make(chan error, 1)
		go func() {
			_, _, err := l.Start(short, first)
			started <- err
		}()
		testkit.Eventually(t, func() bool { return registry.of() == first.ID }, 60*time.Second, time.Millisecond)
		testkit.Eventually(t, func() bool {
			c, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, _, err := l.Start(c, req)
			return errs.Is(err, errs.Unavailable)
		}, 60*time.Second, 5*time.Millisecond)
		cancel()
		require.Error(t, <-started)
		close(db.shut)
		testkit.Eventually(t, func() bool {
			id, created, err := l.Start(t.Context(), req)
			return err == nil && id == first.ID && !created
		}, 60*time.Second, 5*time.Millisecond)
	})
}
