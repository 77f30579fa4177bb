package dispatch_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	"github.com/epigraph-run/epigraph/services/executor/internal/dispatch"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
)

const (
	ns       = "acme"
	timeout  = 60 * time.Second
	childEnv = "EPIGRAPH_DISPATCH_CHILD"
)

// store is one of the journal's drivers, with what the tests do beside it.
type store struct {
	journal.Journal
	dispatcher func(o dispatch.Options) (*dispatch.Dispatcher, error)
	exec       func(sql string) error
	count      func(sql string) (int, error)
	place      string
}

var template = pgtest.NewTemplate(func(ctx context.Context, url string) error {
	s, err := pg.Open(ctx, url, pg.Options{})
	if err != nil {
		return err
	}
	_, err = s.Migrations().Up(ctx)
	return errors.Join(err, s.Close())
})

func openStore(ctx context.Context, place string) (*store, error) {
	if strings.HasPrefix(place, "/") {
		s, err := sqlite.Open(ctx, place, sqlite.Options{})
		if err != nil {
			return nil, err
		}
		if _, err := s.Migrations().Up(ctx); err != nil {
			return nil, err
		}
		return &store{
			Journal: s, place: place,
			dispatcher: func(o dispatch.Options) (*dispatch.Dispatcher, error) { return dispatch.New(s.JobDriver(), o) },
			exec: func(sql string) error {
				db, err := dbkit.OpenSQLite(ctx, place)
				if err != nil {
					return err
				}
				_, err = db.Write.ExecContext(ctx, sql)
				return errors.Join(err, db.Close())
			},
			count: func(sql string) (n int, err error) {
				db, err := dbkit.OpenSQLite(ctx, place)
				if err != nil {
					return 0, err
				}
				err = db.Read.QueryRowContext(ctx, sql).Scan(&n)
				return n, errors.Join(err, db.Close())
			},
		}, nil
	}
	s, err := pg.Open(ctx, place, pg.Options{MaxReaders: 2})
	if err != nil {
		return nil, err
	}
	return &store{
		Journal: s, place: place,
		dispatcher: func(o dispatch.Options) (*dispatch.Dispatcher, error) {
			o.Schema = pg.Schema
			return dispatch.New(s.JobDriver(), o)
		},
		exec: func(sql string) error {
			db, err := dbkit.OpenPostgres(ctx, place, pg.Schema, dbkit.PostgresOptions{MaxConns: 1})
			if err != nil {
				return err
			}
			defer db.Close()
			_, err = db.Exec(ctx, sql)
			return err
		},
		count: func(sql string) (n int, err error) {
			db, err := dbkit.OpenPostgres(ctx, place, pg.Schema, dbkit.PostgresOptions{MaxConns: 1})
			if err != nil {
				return 0, err
			}
			defer db.Close()
			return n, db.QueryRow(ctx, sql).Scan(&n)
		},
	}, nil
}

func TestMain(m *testing.M) {
	if place := os.Getenv(childEnv); place != "" {
		fmt.Fprintln(os.Stderr, child(context.Background(), place))
		os.Exit(1)
	}
	testkit.Main(m)
}

// child takes a job, says so and never finishes it.
func child(ctx context.Context, place string) error {
	s, err := openStore(ctx, place)
	if err != nil {
		return err
	}
	d, err := s.dispatcher(dispatch.Options{Kinds: []dispatch.Kind{{Name: journal.JobWake, Handle: func(ctx context.Context, j dispatch.Job) error {
		fmt.Println("took", j.RunID)
		<-ctx.Done()
		return ctx.Err()
	}}}})
	if err != nil {
		return err
	}
	return d.Run(ctx)
}

func places(t testing.TB) map[string]func() string {
	return map[string]func() string{
		"SQLite":   func() string { return filepath.Join(t.TempDir(), "jobs.db") },
		"Postgres": func() string { return template.New(t) },
	}
}

func onBoth(t *testing.T, name string, f func(t *testing.T, s *store)) {
	for driver := range places(t) {
		t.Run(name+"/"+driver, func(t *testing.T) {
			t.Parallel()
			s, err := openStore(t.Context(), places(t)[driver]())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			f(t, s)
		})
	}
}

// faults keeps the log lines about jobs that could not be ended.
type faults struct {
	mu   sync.Mutex
	kept []string
}

func (f *faults) Enabled(context.Context, slog.Level) bool { return true }
func (f *faults) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f *faults) WithGroup(string) slog.Handler            { return f }

func (f *faults) Handle(_ context.Context, r slog.Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if strings.Contains(r.Message, "Completer error") || strings.Contains(r.Message, "giving up") {
		f.kept = append(f.kept, r.Message)
	}
	return nil
}

func (f *faults) lines() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.kept)
}

// handled records the handled jobs.
type handled struct {
	mu   sync.Mutex
	jobs []dispatch.Job
}

func (b *handled) note(_ context.Context, j dispatch.Job) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.jobs = append(b.jobs, j)
	return nil
}

func (b *handled) runs() (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range b.jobs {
		out = append(out, j.RunID)
	}
	return out
}

// work runs a dispatcher until the test ends or stop is called, which waits for it.
func work(t testing.TB, s *store, o dispatch.Options) (stop func()) {
	t.Helper()
	o.Logger = testkit.Logger(t)
	d, err := s.dispatcher(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

func wakes(h dispatch.Handler) dispatch.Options {
	return dispatch.Options{Kinds: []dispatch.Kind{{Name: journal.JobWake, Handle: h}}}
}

func (s *store) insert(t testing.TB, jobs ...journal.Job) {
	t.Helper()
	require.NoError(t, s.InsertJobs(t.Context(), ns, jobs))
}

func started(t testing.TB, s *store, me journal.Owner) string {
	t.Helper()
	id, at := ids.New("run"), dbkit.Now()
	res, err := s.Commit(t.Context(), me, []journal.Write{{Start: &journal.Start{
		Run: journal.Run{ID: id, Namespace: ns, GraphHash: "h", CreateTime: at, Status: journal.Status{State: journal.StateRunning}}, Append: journal.Append{Events: []journal.Event{{Kind: 1, Time: at}}},
	}}})
	require.NoError(t, err)
	require.NoError(t, res[0].Err)
	return id
}

func releaseWith(id string, last int64, jobs ...journal.Job) journal.Write {
	return journal.Write{Append: &journal.Append{
		Namespace: ns, RunID: id, ExpectedLastSeq: last, Events: []journal.Event{{Kind: 2, Time: dbkit.Now()}},
		Status: &journal.Status{State: journal.StateWaiting}, Release: true, Jobs: jobs,
	}}
}

func TestDispatch(t *testing.T) {
	t.Parallel()
	onBoth(t, "Insert/OnlyWithItsCommit", func(t *testing.T, s *store) {
		me, err := s.Register(t.Context(), "a", "")
		require.NoError(t, err)
		var b handled
		work(t, s, wakes(func(ctx context.Context, j dispatch.Job) error {
			// The cause of the job is there when it comes.
			r, err := s.Get(ctx, j.Namespace, j.RunID)
			if err != nil || r.LastSeq != 2 || !r.Owner.IsZero() {
				t.Errorf("job before its commit: %+v, %v", r, err)
			}
			return b.note(ctx, j)
		}))
		var want []string
		for range 10 {
			id, lost := started(t, s, me), started(t, s, me)
			want = append(want, id)
			res, err := s.Commit(t.Context(), me, []journal.Write{releaseWith(id, 1, journal.Job{Kind: journal.JobWake}), releaseWith(lost, 7, journal.Job{Kind: journal.JobWake})})
			require.NoError(t, err)
			require.NoError(t, res[0].Err)
			require.Equal(t, journal.ReasonSeqConflict, errs.ReasonOf(res[1].Err))
		}
		testkit.Within(t, timeout, time.Millisecond, func() bool { return len(b.runs()) >= 10 })
		require.ElementsMatch(t, want, b.runs())
	})
	onBoth(t, "Commands/WakeAnEvictedRun", func(t *testing.T, s *store) {
		me, err := s.Register(t.Context(), "a", "")
		require.NoError(t, err)
		id := started(t, s, me)
		_, err = s.Commit(t.Context(), me, []journal.Write{releaseWith(id, 1)})
		require.NoError(t, err)
		claimed := make(chan journal.Owner, 1)
		work(t, s, wakes(func(ctx context.Context, j dispatch.Job) error {
			o, err := s.ClaimRun(ctx, me, j.Namespace, j.RunID, journal.TakeOverPolicy{})
			claimed <- o
			return err
		}))
		_, err = s.Enqueue(t.Context(), journal.EnqueueRequest{Command: journal.Command{Namespace: ns, RunID: id, Kind: journal.CommandSignal, Key: "k", Time: dbkit.Now()}})
		require.NoError(t, err)
		require.Equal(t, me, <-claimed)
		ms, err := s.PendingCommands(t.Context(), me, journal.CommandQuery{Limit: 10})
		require.NoError(t, err)
		require.Len(t, ms, 1)
	})
	onBoth(t, "Again/AfterThePauseOfTheHandler", func(t *testing.T, s *store) {
		var (
			mu    sync.Mutex
			tries []time.Time
			done  = make(chan struct{})
		)
		work(t, s, dispatch.Options{Kinds: []dispatch.Kind{{Name: journal.JobWebhook, Handle: func(_ context.Context, j dispatch.Job) error {
			mu.Lock()
			defer mu.Unlock()
			if tries = append(tries, time.Now()); len(tries) != j.Attempt {
				t.Errorf("try %d counts as %d", len(tries), j.Attempt)
			}
			if len(tries) == 1 {
				return dispatch.Again(errors.New("not yet"), 1500*time.Millisecond)
			}
			close(done)
			return nil
		}}}})
		s.insert(t, journal.Job{Kind: journal.JobWebhook, RunID: "run_1"})
		select {
		case <-done:
		case <-time.After(timeout):
			t.Fatal("it did not come again")
		}
		require.GreaterOrEqual(t, tries[1].Sub(tries[0]), 1400*time.Millisecond, "the client alone would have come sooner")
	})
	onBoth(t, "Order/ByPriority", func(t *testing.T, s *store) {
		for i, p := range []int{4, 2, 3, 1, 2, 0} {
			s.insert(t, journal.Job{Kind: journal.JobWake, RunID: fmt.Sprintf("%d-%d", p, i), Priority: p})
		}
		var b handled
		o := wakes(b.note)
		o.Wakes = 1
		work(t, s, o)
		testkit.Within(t, timeout, time.Millisecond, func() bool { return len(b.runs()) == 6 })
		require.Equal(t, []string{"1-3", "2-1", "2-4", "0-5", "3-2", "4-0"}, b.runs())
	})
	onBoth(t, "Time/NotBeforeItIsDue", func(t *testing.T, s *store) {
		var b handled
		due := time.Now().Add(1500 * time.Millisecond).Truncate(time.Millisecond)
		var early atomic.Bool
		work(t, s, wakes(func(ctx context.Context, j dispatch.Job) error {
			if j.RunID == "later" && time.Now().Before(due) {
				early.Store(true)
			}
			return b.note(ctx, j)
		}))
		s.insert(t, journal.Job{Kind: journal.JobWake, RunID: "later", At: due}, journal.Job{Kind: journal.JobWake, RunID: "now"})
		testkit.Within(t, timeout, time.Millisecond, func() bool { return len(b.runs()) == 2 })
		require.ElementsMatch(t, []string{"now", "later"}, b.runs())
		require.False(t, early.Load())
	})
	onBoth(t, "Unique/OneHintWaits", func(t *testing.T, s *store) {
		at := time.Now().Add(-time.Minute)
		for range 5 {
			s.insert(t, journal.Job{Kind: journal.JobWake, RunID: "a"}, journal.Job{Kind: journal.JobWake, RunID: "a", At: at}, journal.Job{Kind: journal.JobWake, RunID: "b"})
		}
		var b handled
		gate := make(chan struct{})
		work(t, s, wakes(func(ctx context.Context, j dispatch.Job) error {
			<-gate
			return b.note(ctx, j)
		}))
		close(gate)
		testkit.Within(t, timeout, time.Millisecond, func() bool { return len(b.runs()) == 3 })
		// One that is worked or done is no hint any more.
		s.insert(t, journal.Job{Kind: journal.JobWake, RunID: "b"})
		testkit.Within(t, timeout, time.Millisecond, func() bool { return len(b.runs()) == 4 })
		got := b.runs()
		require.Equal(t, 2, count(got, "a"))
	})
	onBoth(t, "Unique/OneThatComesAgainGivesWayToAnEqualOneThatWaits", func(t *testing.T, s *store) {
		var b handled
		began, gate := make(chan string, 10), make(chan struct{})
		var first atomic.Int32
		o := wakes(func(ctx context.Context, j dispatch.Job) error {
			began <- j.RunID
			<-gate
			if first.Add(1) <= 3 {
				switch j.RunID {
				case "fails":
					return errors.New("not yet")
				case "later":
					return dispatch.Later(time.Millisecond)
				}
			}
			return b.note(ctx, j)
		})
		log := &faults{}
		o.Logger = slog.New(log)
		o.Wakes = 3
		d, err := s.dispatcher(o)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		hints := []journal.Job{{Kind: journal.JobWake, RunID: "fails"}, {Kind: journal.JobWake, RunID: "later"}, {Kind: journal.JobWake, RunID: "works"}}
		s.insert(t, hints...)
		require.ElementsMatch(t, []string{"fails", "later", "works"}, []string{<-began, <-began, <-began})
		s.insert(t, hints...) // they are worked, so these wait: until the first ones have ended
		later := `now() + interval '2 seconds'`
		if strings.HasPrefix(s.place, "/") {
			later = `datetime('now', '+2 seconds')`
		}
		require.NoError(t, s.exec(`UPDATE river_job SET scheduled_at = `+later+` WHERE state = 'available'`))
		close(gate)
		testkit.Within(t, timeout, time.Millisecond, func() bool { return len(b.runs()) >= 4 })
		testkit.Within(t, timeout, 5*time.Millisecond, func() bool {
			n, err := s.count(`SELECT count(*) FROM river_job WHERE state <> 'completed'`)
			return err == nil && n == 0
		})
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, []int{1, 1, 2}, []int{count(b.runs(), "fails"), count(b.runs(), "later"), count(b.runs(), "works")})
		require.Empty(t, log.lines(), "nothing that River ends jobs with failed")
	})
	onBoth(t, "Fail/ComesAgainAndLaterIsNoFailure", func(t *testing.T, s *store) {
		var b handled
		s.insert(t, journal.Job{Kind: journal.JobWake, RunID: "fails"}, journal.Job{Kind: journal.JobWake, RunID: "later"}, journal.Job{Kind: journal.JobWake, RunID: "never"},
			journal.Job{Kind: journal.JobWake, RunID: "panics"})
		work(t, s, wakes(func(ctx context.Context, j dispatch.Job) error {
			_ = b.note(ctx, j)
			switch again := count(b.runs(), j.RunID) > 1; {
			case again:
			case j.RunID == "fails":
				return errors.New("once")
			case j.RunID == "later":
				return dispatch.Later(10 * time.Millisecond)
			case j.RunID == "never":
				return dispatch.Never(errors.New("gone"))
			case j.RunID == "panics":
				panic("once")
			}
			return nil
		}))
		testkit.Within(t, timeout, time.Millisecond, func() bool {
			r := b.runs()
			return count(r, "fails") == 2 && count(r, "later") == 2 && count(r, "panics") == 2
		})
		require.Equal(t, 1, count(b.runs(), "never"))
	})
	onBoth(t, "Crash/AKilledWorkersJobComesAgain", func(t *testing.T, s *store) {
		s.insert(t, journal.Job{Kind: journal.JobWake, RunID: "a"})
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), childEnv+"="+s.place)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		guard := time.AfterFunc(timeout, func() { _ = cmd.Process.Kill() })
		defer guard.Stop()
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "took a\n", line)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		// An hour passes, and with it the dead one's leadership.
		past := "now() - interval '1 hour'"
		if strings.HasPrefix(s.place, "/") {
			past = "datetime('now', 'subsec', '-1 hour')"
		}
		require.NoError(t, s.exec("UPDATE river_job SET attempted_at = "+past+" WHERE state = 'running'"))
		require.NoError(t, s.exec("DELETE FROM river_leader"))
		var b handled
		work(t, s, wakes(b.note))
		testkit.Within(t, timeout, 10*time.Millisecond, func() bool { return count(b.runs(), "a") == 1 })
		require.Equal(t, 2, b.jobs[0].Attempt)
	})
	onBoth(t, "Periodic/OneLeaderInserts", func(t *testing.T, s *store) {
		var b handled
		o := dispatch.Options{Kinds: []dispatch.Kind{{Name: "sweep", Handle: b.note, Every: time.Second}}}
		work(t, s, o)
		work(t, s, o)
		testkit.Within(t, timeout, 10*time.Millisecond, func() bool { return len(b.runs()) >= 3 })
	})
	onBoth(t, "Stop/WhatIsInProgressEnds", func(t *testing.T, s *store) {
		began, gate := make(chan struct{}), make(chan struct{})
		ended := false
		o := wakes(func(context.Context, dispatch.Job) error {
			close(began)
			<-gate
			ended = true
			return nil
		})
		o.Drain = timeout
		stop := work(t, s, o)
		s.insert(t, journal.Job{Kind: journal.JobWake, RunID: "a"})
		<-began
		time.AfterFunc(20*time.Millisecond, func() { close(gate) })
		stop()
		require.True(t, ended)
	})
	onBoth(t, "Trace/AJobHasASpan", func(t *testing.T, s *store) {
		rec := tracetest.NewSpanRecorder()
		var b handled
		o := wakes(b.note)
		o.TracerProvider, o.MeterProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(rec)), sdkmetric.NewMeterProvider()
		work(t, s, o)
		s.insert(t, journal.Job{Kind: journal.JobWake, RunID: "a"})
		testkit.Within(t, timeout, time.Millisecond, func() bool {
			return slices.ContainsFunc(rec.Ended(), func(sp sdktrace.ReadOnlySpan) bool { return sp.Name() == "river.work/wake" })
		})
	})
	onBoth(t, "UI/ShowsJobs", func(t *testing.T, s *store) {
		d, err := s.dispatcher(dispatch.Options{Kinds: []dispatch.Kind{{Name: journal.JobWake, Handle: (&handled{}).note}}})
		require.NoError(t, err)
		ui, err := d.UI("/jobs")
		require.NoError(t, err)
		require.NoError(t, ui.Start(t.Context()))
		s.insert(t, journal.Job{Kind: journal.JobWake, RunID: "a"})
		for _, path := range []string{"/jobs/", "/jobs/api/states", "/jobs/api/jobs?state=available"} {
			w := httptest.NewRecorder()
			ui.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			require.Equal(t, http.StatusOK, w.Code, "%s: %s", path, w.Body)
		}
	})
}

func count(runs []string, id string) (n int) {
	for _, r := range runs {
		if r == id {
			n++
		}
	}
	return n
}

// BenchmarkWake measures how long after its commit a job reaches its handler, one at a time.
func BenchmarkWake(b *testing.B) {
	for driver := range places(b) {
		b.Run(driver, func(b *testing.B) {
			s, err := openStore(b.Context(), places(b)[driver]())
			require.NoError(b, err)
			defer s.Close()
			got := make(chan time.Time, 1)
			stop := work(b, s, wakes(func(context.Context, dispatch.Job) error {
				got <- time.Now()
				return nil
			}))
			defer stop()
			var took []time.Duration
			for b.Loop() {
				s.insert(b, journal.Job{Kind: journal.JobWake, RunID: ids.New("run")})
				at := time.Now()
				took = append(took, (<-got).Sub(at))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}
