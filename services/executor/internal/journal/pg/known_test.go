package pg_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
)

func TestKnown(t *testing.T) {
	t.Parallel()
	at := time.Now()
	type world struct {
		s      *pg.Store
		url    string
		me     journal.Owner
		id     string
		append func(last int64, change ...func(*journal.Append)) journal.Result
		exec   func(sql string, args ...any)
		count  func(sql string, args ...any) int
	}
	open := func(t *testing.T) *world {
		url := template.New(t)
		s, err := pg.Open(t.Context(), url, pg.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		pool, err := dbkit.OpenPostgres(t.Context(), url, pg.Schema, dbkit.PostgresOptions{ApplicationName: "hand", MaxConns: 1})
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		w := &world{s: s, url: url, id: ids.New("run")}
		w.me, err = s.Register(t.Context(), "a", "")
		require.NoError(t, err)
		w.append = func(last int64, change ...func(*journal.Append)) journal.Result {
			a := &journal.Append{Namespace: "n", RunID: w.id, ExpectedLastSeq: last, Events: []journal.Event{{Kind: 2, Time: at}}}
			for _, c := range change {
				c(a)
			}
			res, err := s.Commit(t.Context(), w.me, []journal.Write{{Append: a}})
			require.NoError(t, err)
			return res[0]
		}
		w.exec = func(sql string, args ...any) {
			_, err := pool.Exec(context.WithoutCancel(t.Context()), sql, args...)
			require.NoError(t, err)
		}
		w.count = func(sql string, args ...any) (n int) {
			require.NoError(t, pool.QueryRow(t.Context(), sql, args...).Scan(&n))
			return n
		}
		res, err := s.Commit(t.Context(), w.me, []journal.Write{{Start: &journal.Start{
			Run: journal.Run{ID: w.id, Namespace: "n", GraphHash: "h", CreateTime: at, Status: journal.Status{State: journal.StateRunning}}, Append: journal.Append{Graph: []byte("g"), Events: []journal.Event{{Kind: 1, Time: at}}},
		}}})
		require.NoError(t, err)
		require.True(t, res[0].Created)
		return w
	}
	const hangUp = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'epigraph-executor' AND datname = current_database()`

	t.Run("Append/CopiesOfACommitAtOnceAreWrittenOnce", func(t *testing.T) {
		t.Parallel()
		w := open(t)
		const copies, appends = 3, 30
		stores := make([]*pg.Store, copies)
		for i := range stores {
			var err error
			stores[i], err = pg.Open(t.Context(), w.url, pg.Options{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, stores[i].Close()) })
		}
		for last := int64(1); last <= appends; last++ {
			var all errgroup.Group
			for _, s := range stores {
				all.Go(func() error {
					res, err := s.Commit(t.Context(), w.me, []journal.Write{{Append: &journal.Append{
						Namespace: "n", RunID: w.id, ExpectedLastSeq: last, Events: []journal.Event{{Kind: 2, Time: at}},
					}}})
					if err != nil {
						return err
					}
					return res[0].Err
				})
			}
			require.NoError(t, all.Wait())
		}
		require.Equal(t, 1+appends, w.count(`SELECT count(*) FROM events`))
	})
	t.Run("Append/AServerThatLostEventsIsNotWrittenPast", func(t *testing.T) {
		t.Parallel()
		w := open(t)
		require.NoError(t, w.append(1).Err)
		require.NoError(t, w.append(2).Err)
		w.exec(`DELETE FROM events WHERE run_id = $1 AND seq = 3`, w.id)
		w.exec(hangUp)
		testkit.Eventually(t, func() bool {
			res, err := w.s.Commit(t.Context(), w.me, []journal.Write{{Append: &journal.Append{Namespace: "n", RunID: w.id, ExpectedLastSeq: 3,
				Events: []journal.Event{{Kind: 2, Time: at}}}}})
			if err != nil {
				return false // the connection that was cut
			}
			require.Equal(t, journal.ReasonSeqConflict, errs.ReasonOf(res[0].Err))
			return true
		})
		require.Equal(t, 2, w.count(`SELECT count(*)::int FROM events WHERE run_id = $1`, w.id))
	})
	t.Run("Append/WhatAnotherWroteMeanwhileIsFound", func(t *testing.T) {
		t.Parallel()
		w := open(t)
		w.exec(`INSERT INTO events (run_id, namespace, seq, time, kind, visit, node_id) VALUES ($1, 'n', 2, now(), 9, 0, '')`, w.id)
		for _, change := range []func(*journal.Append){
			func(*journal.Append) {},
			func(a *journal.Append) { a.Outbox = []journal.Out{{Kind: "k"}} },
			func(a *journal.Append) { a.Status = &journal.Status{State: journal.StateCompleted} },
		} {
			require.Equal(t, journal.ReasonSeqConflict, errs.ReasonOf(w.append(1, change).Err))
		}
		require.Zero(t, w.count(`SELECT count(*)::int FROM outbox`))
		require.Zero(t, w.count(`SELECT count(*)::int FROM runs WHERE state >= 6`))
		require.NoError(t, w.append(2).Err)
	})
	t.Run("Append/ARowThatIsNotOursIsLeftAlone", func(t *testing.T) {
		t.Parallel()
		w := open(t)
		w.exec(`UPDATE runs SET owner_id = 'b', owner_incarnation = 77 WHERE run_id = $1`, w.id)
		res := w.append(1, func(a *journal.Append) {
			a.Status, a.Outbox = &journal.Status{State: journal.StateCompleted}, []journal.Out{{Kind: "k"}}
		})
		require.Equal(t, journal.ReasonNotOwner, errs.ReasonOf(res.Err))
		require.Zero(t, w.count(`SELECT count(*)::int FROM outbox`))
		require.Equal(t, 1, w.count(`SELECT count(*)::int FROM events WHERE run_id = $1`, w.id))
	})
	t.Run("Append/OneRowOfTwoThatIsNotOurs", func(t *testing.T) {
		t.Parallel()
		w := open(t)
		mine := ids.New("run")
		_, err := w.s.Commit(t.Context(), w.me, []journal.Write{{Start: &journal.Start{
			Run: journal.Run{ID: mine, Namespace: "n", GraphHash: "h", CreateTime: at, Status: journal.Status{State: journal.StateRunning}}, Append: journal.Append{Events: []journal.Event{{Kind: 1, Time: at}}},
		}}})
		require.NoError(t, err)
		w.exec(`UPDATE runs SET owner_id = 'b', owner_incarnation = 77 WHERE run_id = $1`, w.id)
		end := func(id string) journal.Write {
			return journal.Write{Append: &journal.Append{Namespace: "n", RunID: id, ExpectedLastSeq: 1, Events: []journal.Event{{Kind: 2, Time: at}},
				Status: &journal.Status{State: journal.StateCompleted}}}
		}
		res, err := w.s.Commit(t.Context(), w.me, []journal.Write{end(w.id), end(mine)})
		require.NoError(t, err)
		require.Equal(t, journal.ReasonNotOwner, errs.ReasonOf(res[0].Err))
		require.NoError(t, res[1].Err)
		require.Equal(t, 1, w.count(`SELECT count(*)::int FROM events WHERE run_id = $1`, w.id))
		require.Equal(t, 2, w.count(`SELECT count(*)::int FROM events WHERE run_id = $1`, mine))
	})
	t.Run("Append/OneEventThatRefersToALargeValue", func(t *testing.T) {
		t.Parallel()
		w := open(t)
		_, err := w.s.NoteBlobs(t.Context(), "n", []journal.BlobRef{{Hash: journal.BlobHash{1}, Size: 1}, {Hash: journal.BlobHash{2}, Size: 1}})
		require.NoError(t, err)
		refer := func(a *journal.Append) {
			a.Blobs = []journal.BlobRef{{Hash: journal.BlobHash{byte(a.ExpectedLastSeq)}, Size: 1}}
		}
		require.NoError(t, w.append(1, refer).Err)
		// The other way, for a run of which nothing is known.
		fresh, err := pg.Open(t.Context(), w.url, pg.Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, fresh.Close()) }()
		a := &journal.Append{Namespace: "n", RunID: w.id, ExpectedLastSeq: 2, Events: []journal.Event{{Kind: 2, Time: at}}}
		refer(a)
		res, err := fresh.Commit(t.Context(), w.me, []journal.Write{{Append: a}})
		require.NoError(t, err)
		require.NoError(t, res[0].Err)
		require.Equal(t, 2, w.count(`SELECT count(*)::int FROM blob_refs WHERE run_id = $1`, w.id))
	})
	t.Run("Start/OfARunThatIsThere", func(t *testing.T) {
		t.Parallel()
		w := open(t)
		other := &journal.Start{
			Run: journal.Run{ID: w.id, Namespace: "n", GraphHash: "h", CreateTime: at, Status: journal.Status{State: journal.StateRunning}}, Append: journal.Append{Events: []journal.Event{{Kind: 5, Time: at}}},
		}
		fresh := &journal.Start{
			Run: journal.Run{ID: ids.New("run"), Namespace: "n", GraphHash: "h", CreateTime: at, Status: journal.Status{State: journal.StateRunning}}, Append: journal.Append{Events: []journal.Event{{Kind: 5, Time: at}}},
		}
		res, err := w.s.Commit(t.Context(), w.me, []journal.Write{{Start: other}, {Start: fresh}})
		require.NoError(t, err)
		require.Equal(t, journal.ReasonRunExists, errs.ReasonOf(res[0].Err))
		require.NoError(t, res[1].Err)
		require.True(t, res[1].Created)
	})
}
