// Package scheduletest is the suite that every schedule.Store passes, by itself and below controllers of
// several executors, killed ones among them. It must not know which driver it tests.
package scheduletest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/schedule"
)

const (
	placeEnv = "EPIGRAPH_SCHEDULE_PLACE"
	logEnv   = "EPIGRAPH_SCHEDULE_LOG"
	// lineLength is that of a line of the ledger.
	lineLength = 64
)

// Driver makes stores.
type Driver struct {
	// Fresh returns a place with an empty, migrated database.
	Fresh func(testing.TB) string
	// Open opens a place; closing the store closes the journal too.
	Open func(ctx context.Context, place string) (schedule.Store, func() error, error)
}

var key = schedule.Key{Namespace: "n", ID: "s"}

// Child does the work of an executor's process that will be killed, if this process is one. Call it first in
// TestMain.
func (d Driver) Child() {
	place := os.Getenv(placeEnv)
	if place == "" {
		return
	}
	ctx := context.Background()
	s, _, err := d.Open(ctx, place)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	k := controller(s, &ledger{path: os.Getenv(logEnv)})
	fmt.Println("ready")
	for {
		if err := k.Fire(ctx, key); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// ledger records which runs were started, as a journal would: a run that is there already is not started
// again.
type ledger struct {
	path string

	mu sync.Mutex
	// calls counts the starts, dies lets the caller die after one.
	calls int
	dies  func(call int) bool
}

var errDead = errs.New(errs.Unavailable, "DEAD", "the executor has died")

// Start implements schedule.Runs.
func (l *ledger) Start(_ context.Context, _ schedule.Schedule, st schedule.Start) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	// Each line has the same length, which divides a page: a kill can cut a write at the end of a page, and
	// half an id would look like another run.
	_, err = fmt.Fprintf(f, "%-*s\n", lineLength-1, fmt.Sprintf("%d %s", st.Time.UnixMicro(), st.RunID))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if l.calls++; err == nil && l.dies != nil && l.dies(l.calls) {
		err = errDead
	}
	return st.RunID, err
}

// Cancel implements schedule.Runs.
func (l *ledger) Cancel(context.Context, string, string, string) error { return nil }

// Exists implements schedule.Runs.
func (l *ledger) Exists(context.Context, string, string) (bool, error) { return false, nil }

// slow takes longer to start a run than the clock from one time to the next.
type slow struct{ *ledger }

func (l slow) Start(ctx context.Context, s schedule.Schedule, st schedule.Start) (string, error) {
	if !sleep.For(ctx, 1100*time.Millisecond) {
		return "", context.Cause(ctx)
	}
	return l.ledger.Start(ctx, s, st)
}

// runs are the runs by the time for which they were started.
func (l *ledger) runs(t *testing.T) map[int64]map[string]bool {
	t.Helper()
	out := map[int64]map[string]bool{}
	f, err := os.Open(l.path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var at int64
		var id string
		require.Len(t, lines.Text(), lineLength-1, "the ledger is whole")
		_, err := fmt.Sscan(lines.Text(), &at, &id)
		require.NoError(t, err)
		if out[at] == nil {
			out[at] = map[string]bool{}
		}
		out[at][id] = true
	}
	return out
}

func controller(s schedule.Store, r schedule.Runs) *schedule.Controller {
	k, err := schedule.New(s, r, schedule.DefaultMax, slog.New(slog.DiscardHandler), noop.NewMeterProvider())
	if err != nil {
		panic(err) // the meters of nobody
	}
	return k
}

func (d Driver) open(t *testing.T, place string) schedule.Store {
	t.Helper()
	s, end, err := d.Open(t.Context(), place)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, end()) })
	return s
}

// behind is a schedule with n times that nobody has looked at yet.
func behind(n int, o schedule.Overlap) schedule.Schedule {
	now := dbkit.Now()
	return schedule.Schedule{Key: key, UID: "sch_1", Spec: schedule.Spec{Cron: "@every 1s", Overlap: o, Catchup: 24 * time.Hour, End: now}, Start: []byte("start"),
		Done: now.Truncate(time.Second).Add(-time.Duration(n) * time.Second), Due: now, Revision: 1, CreateTime: now, UpdateTime: now}
}

// Run runs the suite.
func Run(t *testing.T, d Driver) {
	t.Run("Store/KeepsWhatItIsGiven", func(t *testing.T) {
		t.Parallel()
		s := d.open(t, d.Fresh(t))
		x := behind(3, schedule.QueueAll)
		x.Zone, x.Jitter, x.Begin, x.Note, x.Paused, x.Ahead = "Europe/Berlin", time.Minute, x.Done, "note", true, x.CreateTime
		require.NoError(t, s.Create(t.Context(), x, schedule.DefaultMax))
		got, err := s.Get(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, x, got)
		require.Equal(t, schedule.ReasonExists, errs.ReasonOf(s.Create(t.Context(), x, schedule.DefaultMax)))
		other := x
		other.Namespace, other.UID = "m", "sch_2"
		require.NoError(t, s.Create(t.Context(), other, schedule.DefaultMax))
		list, err := s.List(t.Context(), "n", "", 10)
		require.NoError(t, err)
		x.Start = nil
		require.Equal(t, []schedule.Schedule{x}, list)
		list, err = s.List(t.Context(), "n", "s", 10)
		require.NoError(t, err)
		require.Empty(t, list)

		st := schedule.Start{Turn: 1, Time: x.Done, RunID: "r", Result: schedule.Queued, Overlap: schedule.Allow, Request: "q"}
		change := func(put ...schedule.Start) {
			require.NoError(t, s.Change(t.Context(), key, func(_ context.Context, _ schedule.Tx, s *schedule.Schedule) (schedule.Change, error) {
				s.Turns, s.Skipped, s.Due, s.Recent = 7, 8, time.Time{}, put
				return schedule.Change{Put: put, Jobs: []time.Time{x.Done}}, nil
			}))
		}
		look := func(f func(context.Context, schedule.Tx) error) {
			require.NoError(t, s.Change(t.Context(), key, func(ctx context.Context, tx schedule.Tx, s *schedule.Schedule) (schedule.Change, error) {
				s.Turns = 99
				require.NoError(t, f(ctx, tx))
				return schedule.Change{}, schedule.ErrUnchanged
			}))
		}
		change(st)
		look(func(ctx context.Context, tx schedule.Tx) error {
			q, err := tx.Queue(ctx)
			require.Equal(t, []schedule.Start{st}, q)
			return err
		})
		st.Result, st.Actual, st.Tried = schedule.Started, x.CreateTime, x.CreateTime
		change(st)
		look(func(ctx context.Context, tx schedule.Tx) error {
			q, err := tx.Queue(ctx)
			require.NoError(t, err)
			require.Empty(t, q)
			times, err := tx.Times(ctx, st.Time, st.Time.Add(1000))
			require.NoError(t, err)
			require.Equal(t, []schedule.Start{st}, times)
			uid, again, found, err := tx.Request(ctx, "q")
			require.True(t, found)
			require.Equal(t, "sch_1", uid)
			require.Equal(t, st, again)
			return err
		})
		got, err = s.Get(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, []any{int64(7), int64(8), true, []schedule.Start{st}}, []any{got.Turns, got.Skipped, got.Due.IsZero(), got.Recent})

		n, err := s.Overdue(t.Context(), dbkit.Now().Add(time.Hour), 10)
		require.NoError(t, err)
		require.Equal(t, 1, n, "that of the other namespace")
		n, err = s.Forget(t.Context(), x.CreateTime.Add(time.Second), 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, journal.ReasonEtagMismatch, errs.ReasonOf(s.Delete(t.Context(), key, 5)))
		require.NoError(t, s.Delete(t.Context(), key, 1))
		require.Equal(t, schedule.ReasonNotFound, errs.ReasonOf(s.Delete(t.Context(), key, 0)))
		_, err = s.Get(t.Context(), key)
		require.Equal(t, schedule.ReasonNotFound, errs.ReasonOf(err))
		_, err = s.Get(t.Context(), schedule.Key{Namespace: "m", ID: "s"})
		require.NoError(t, err)
	})
	t.Run("Store/KeepsOneStartOfATime", func(t *testing.T) {
		t.Parallel()
		s := d.open(t, d.Fresh(t))
		x := behind(3, schedule.Allow)
		require.NoError(t, s.Create(t.Context(), x, schedule.DefaultMax))
		put := func(turn int64, origin schedule.Origin, r schedule.Result) error {
			return s.Change(t.Context(), key, func(context.Context, schedule.Tx, *schedule.Schedule) (schedule.Change, error) {
				return schedule.Change{Put: []schedule.Start{{Turn: turn, Time: x.Done, RunID: fmt.Sprint("r", turn), Origin: origin, Result: r}}}, nil
			})
		}
		require.NoError(t, put(1, schedule.FromClock, schedule.Queued))
		require.NoError(t, put(2, schedule.FromTrigger, schedule.Queued), "a trigger is for no time of the clock")
		_, twice := dbkit.UniqueViolation(put(3, schedule.FromBackfill, schedule.Queued))
		require.True(t, twice, "whatever has been decided, a time is started once")
		require.NoError(t, put(1, schedule.FromClock, schedule.Failed))
		require.NoError(t, put(3, schedule.FromBackfill, schedule.Queued), "one that failed may be made up for")
	})
	t.Run("Store/ChangesSeeWhatIsStartedNow", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		stores := []schedule.Store{d.open(t, place), d.open(t, place)}
		require.NoError(t, stores[0].Create(t.Context(), behind(3, schedule.Allow), schedule.DefaultMax))
		var wg sync.WaitGroup
		for _, s := range stores {
			wg.Go(func() {
				for range 50 {
					// The opaque start counts the revisions, so that a lost change shows.
					err := s.Change(t.Context(), key, func(_ context.Context, _ schedule.Tx, s *schedule.Schedule) (schedule.Change, error) {
						s.Revision++
						s.Start = append(s.Start, '+')
						return schedule.Change{}, nil
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		got, err := stores[0].Get(t.Context(), key)
		require.NoError(t, err)
		require.EqualValues(t, 101, got.Revision)
		require.Equal(t, "start"+strings.Repeat("+", 100), string(got.Start))
	})
	t.Run("Keepers/AnswerThoughTheClockIsFaster", func(t *testing.T) {
		t.Parallel()
		s := d.open(t, d.Fresh(t))
		x := behind(0, schedule.Allow)
		x.End = time.Time{}
		require.NoError(t, s.Create(t.Context(), x, schedule.DefaultMax))
		st, err := controller(s, slow{&ledger{path: filepath.Join(t.TempDir(), "log")}}).Trigger(testkit.Context(t, time.Minute), key, "")
		require.NoError(t, err)
		require.Equal(t, schedule.Started, st.Result)
	})
	t.Run("Keepers/TakeNoTimeBackThatAClockAheadDecided", func(t *testing.T) {
		t.Parallel()
		s := d.open(t, d.Fresh(t))
		x := behind(0, schedule.Allow)
		x.End, x.Done = time.Time{}, x.CreateTime.Add(time.Hour)
		require.NoError(t, s.Create(t.Context(), x, schedule.DefaultMax))
		other := x.Spec
		other.Jitter = time.Second
		got, err := controller(s, &ledger{path: filepath.Join(t.TempDir(), "log")}).Update(t.Context(), key, 0, other, x.Start)
		require.NoError(t, err)
		require.Equal(t, x.Done, got.Done)
	})
	t.Run("Keepers/RaceForEachTime", func(t *testing.T) {
		t.Parallel()
		const times = 40
		place := d.Fresh(t)
		x := behind(times, schedule.Allow)
		l := &ledger{path: filepath.Join(t.TempDir(), "log"), dies: func(call int) bool { return call%5 == 0 }}
		stores := []schedule.Store{d.open(t, place), d.open(t, place)}
		require.NoError(t, stores[0].Create(t.Context(), x, schedule.DefaultMax))
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				k := controller(stores[i%2], l)
				for range 12 {
					_ = k.Fire(t.Context(), key)
				}
			})
		}
		wg.Wait()
		l.dies = nil
		require.NoError(t, controller(stores[0], l).Fire(t.Context(), key))
		complete(t, stores[0], l, times)
	})
	t.Run("Keepers/BackfillEndsWithItsCaller", func(t *testing.T) {
		t.Parallel()
		const times = 300
		s := d.open(t, d.Fresh(t))
		x := behind(0, schedule.Allow)
		x.Begin = x.Done.Add(-time.Hour)
		require.NoError(t, s.Create(t.Context(), x, schedule.DefaultMax))
		ctx, leave := context.WithCancel(t.Context())
		l := &ledger{path: filepath.Join(t.TempDir(), "log"), dies: func(call int) bool {
			if call == 3 {
				leave()
			}
			return false
		}}
		begin, end := x.Done.Add(-times*time.Second), x.Done
		_, err := controller(s, l).Backfill(ctx, key, begin, end, schedule.Allow)
		require.ErrorIs(t, err, context.Canceled)
		require.Less(t, len(l.runs(t)), 3+32, "those under way")
		_, err = controller(s, l).Backfill(ctx, key, begin, end, schedule.Allow)
		require.ErrorIs(t, err, context.Canceled, "who is gone has nothing done")
		starts, err := controller(s, l).Backfill(t.Context(), key, begin, end, schedule.Allow)
		require.NoError(t, err)
		require.Len(t, starts, times)
		complete(t, s, l, times)
	})
	t.Run("Keepers/ABackfillIsWholeOrRefused", func(t *testing.T) {
		t.Parallel()
		s := d.open(t, d.Fresh(t))
		x := behind(0, schedule.Allow)
		x.Begin = x.Done.Add(-time.Hour)
		require.NoError(t, s.Create(t.Context(), x, schedule.DefaultMax))
		l := &ledger{path: filepath.Join(t.TempDir(), "log")}
		begin := x.Done.Add(-(schedule.MaxBackfill + 1) * time.Second)
		_, err := controller(s, l).Backfill(t.Context(), key, begin, x.Done, schedule.Allow)
		require.Equal(t, schedule.ReasonSpanTooLong, errs.ReasonOf(err))
		require.Contains(t, errs.From(err).HintText(), x.Done.Add(-time.Second).UTC().Format(time.RFC3339))
		require.NoFileExists(t, l.path, "nothing was started")
		starts, err := controller(s, l).Backfill(t.Context(), key, begin, x.Done.Add(-time.Second), schedule.Allow)
		require.NoError(t, err)
		require.Len(t, starts, schedule.MaxBackfill)
	})
	t.Run("Keepers/AQueueIsBounded", func(t *testing.T) {
		t.Parallel()
		s := d.open(t, d.Fresh(t))
		x := behind(3*schedule.MaxQueue, schedule.Allow)
		x.Begin = x.Done.Add(-time.Hour)
		require.NoError(t, s.Create(t.Context(), x, schedule.DefaultMax))
		l := &ledger{path: filepath.Join(t.TempDir(), "log"), dies: func(int) bool { return true }}
		waiting := func() (n int) {
			require.NoError(t, s.Change(t.Context(), key, func(ctx context.Context, tx schedule.Tx, _ *schedule.Schedule) (schedule.Change, error) {
				q, err := tx.Queue(ctx)
				n = len(q)
				return schedule.Change{}, errors.Join(err, schedule.ErrUnchanged)
			}))
			return n
		}
		for range 3 {
			require.NoError(t, controller(s, l).Fire(t.Context(), key))
			require.LessOrEqual(t, waiting(), schedule.MaxQueue)
		}
		_, err := controller(s, l).Backfill(t.Context(), key, x.Begin, x.Done, schedule.Allow)
		require.Equal(t, schedule.ReasonBusy, errs.ReasonOf(err))
		l.dies = nil
		require.NoError(t, controller(s, l).Fire(t.Context(), key))
		complete(t, s, l, 3*schedule.MaxQueue)
	})
	t.Run("Keepers/KilledAmidst", func(t *testing.T) {
		t.Parallel()
		const times, kills = 900, 4
		place := d.Fresh(t)
		s := d.open(t, place)
		require.NoError(t, s.Create(t.Context(), behind(times, schedule.Allow), schedule.DefaultMax))
		l := &ledger{path: filepath.Join(t.TempDir(), "log")}
		for i := range kills {
			child := exec.CommandContext(t.Context(), os.Args[0])
			child.Env = append(os.Environ(), placeEnv+"="+place, logEnv+"="+l.path)
			var out strings.Builder
			child.Stderr = &out
			require.NoError(t, child.Start())
			// Once it has started some more.
			testkit.Eventually(t, func() bool {
				b, _ := os.ReadFile(l.path)
				return strings.Count(string(b), "\n") > i*times/kills/2
			}, out.String())
			require.NoError(t, child.Process.Kill())
			_ = child.Wait()
		}
		require.NoError(t, controller(s, l).Fire(t.Context(), key))
		complete(t, s, l, times)
	})
}

// complete holds that each time was started once, and that everybody knows it.
func complete(t *testing.T, s schedule.Store, l *ledger, times int) {
	t.Helper()
	runs := l.runs(t)
	require.Len(t, runs, times)
	for at, ids := range runs {
		require.Len(t, ids, 1, "time %d: %v", at, ids)
	}
	require.NoError(t, s.Change(t.Context(), key, func(ctx context.Context, tx schedule.Tx, x *schedule.Schedule) (schedule.Change, error) {
		list, err := tx.Times(ctx, time.Unix(1, 0), time.Now())
		require.NoError(t, err)
		require.Len(t, list, times)
		for _, st := range list {
			require.Equal(t, schedule.Started, st.Result)
			require.True(t, runs[st.Time.UnixMicro()][st.RunID])
		}
		require.EqualValues(t, times, x.Turns)
		return schedule.Change{}, schedule.ErrUnchanged
	}))
}
