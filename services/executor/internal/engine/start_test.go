package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// holder is a registry with one task.
type holder struct {
	mu  sync.Mutex
	run string
}

func (h *holder) Claim(_ context.Context, _, task, run string, _ time.Duration) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run != "" && h.run != run {
		e := errs.New(errs.FailedPrecondition, "TASK_NOT_CLAIMABLE", "task %s is claimed", task)
		e.Meta = map[string]string{"run_id": h.run, "lease_expire_time": "later"}
		return "", e
	}
	h.run = run
	return "ep_1", nil
}

func (h *holder) Release(context.Context, string, string, string) error { return nil }

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

// TestStartIsRepeatedWhileItIsRecorded repeats a start whose first try waits for a database that does not
// answer.
func TestStartIsRepeatedWhileItIsRecorded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		task    string
		ownID   bool // the second try names the id as well
		refused string
	}{
		"ByTask": {task: "tk_one"},
		"ByID":   {ownID: true, refused: journal.ReasonRunExists},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachStore(t, func(t *testing.T, s store) {
				db, registry := &slow{shut: make(chan struct{})}, &holder{}
				l := run(t, s, actors{"ok": &recorder{}}, func(c *engine.Config, d *engine.Deps) {
					db.Journal = d.Journal
					d.Journal, d.Claims = db, registry
				})
				req := command.StartRequest{Namespace: ns, Graph: chain(1, "ok"), TaskID: tc.task, Request: journal.Request{ID: "once", BodyHash: "b"}}
				first := req
				first.ID = command.IDPrefix + "_" + strings.ToLower(ulid.MustNew(ulid.Timestamp(time.Now().Add(-time.Minute)), ulid.DefaultEntropy()).String())
				if tc.ownID {
					req.ID = first.ID
				}
				short, cancel := context.WithCancel(t.Context())
				started, again := make(chan error, 1), make(chan error, 1)
				go func() {
					_, _, err := l.Start(short, first)
					started <- err
				}()
				testkit.Eventually(t, func() bool { return l.Live() == 1 })
				testkit.Eventually(t, func() bool {
					c, done := context.WithTimeout(t.Context(), 100*time.Millisecond)
					defer done()
					_, _, err := l.Start(c, req)
					// On a busy machine the deadline may pass before the wait begins.
					return errors.Is(err, context.DeadlineExceeded)
				})
				go func() {
					id, created, err := l.Start(t.Context(), req)
					if err == nil && (id != first.ID || created) {
						err = fmt.Errorf("it became %s, created: %t", id, created)
					}
					again <- err
				}()
				cancel()
				require.Error(t, <-started)
				close(db.shut)
				require.Equal(t, tc.refused, errs.ReasonOf(<-again))
				require.Equal(t, first.ID, l.row(t, first.ID).ID)
			})
		})
	}
}
