package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// still waits for a time in which a fault lasts.
func still(d time.Duration) {
	pause := time.NewTimer(d)
	<-pause.C
}

// trial is one cluster under load, with the database of its own when a fault is to befall that.
type trial struct {
	*cluster
	ctx  context.Context // it ends with the test
	o    *outside
	load *load
}

func newTrial(t *testing.T, o clusterOptions, only ...string) *trial {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	t.Cleanup(cancel)
	x := &trial{ctx: ctx, o: newOutside(t), cluster: newCluster(t, o)}
	x.load = newLoad(ctx, x.cluster, x.o, gap, only...)
	return x
}

// awaitEnds lets all work end and counts.
func (x *trial) awaitEnds() []*job {
	x.t.Helper()
	jobs := x.load.finish(x.ctx)
	x.t.Logf("%d calls of unknown outcome settled, %d times resumed from quarantine", x.load.settled.Load(), x.load.resumed.Load())
	x.check(x.ctx, x.o, jobs, x.load.extra)
	return jobs
}

// goesOn waits until runs end that were started from now on.
func (x *trial) goesOn() {
	x.t.Helper()
	ended := func() int { return len(x.rows(x.ctx, `SELECT run_id FROM runs WHERE state >= 6`)) }
	before := ended()
	testkit.Within(x.t, timeout, 50*time.Millisecond, func() bool { return ended() > before+3 }, "nothing ends any more: %s",
		lazily(func() string { return x.load.stuck(x.ctx) }))
}

// TestPoints kills an executor at each of the points, one after the other, under load.
func TestPoints(t *testing.T) {
	t.Parallel()
	x := newTrial(t, clusterOptions{store: "postgres", replicas: 2})
	victim, other := x.replicas[0], x.replicas[1]
	for _, p := range failpoint.Points() {
		t.Run(string(p), func(t *testing.T) {
			victim.end()
			require.NoError(t, victim.start(map[failpoint.Point]int{p: 1}))
			switch p {
			case failpoint.HandoverBefore, failpoint.HandoverAfter:
				testkit.Within(t, timeout, 10*time.Millisecond, victim.serves)
				victim.signal(syscall.SIGTERM)
			case failpoint.TakeoverAfter:
				dead := func() bool {
					select {
					case <-victim.over():
						return true
					default:
						return false
					}
				}
				// It may find its runs from before the restart at once.
				testkit.Within(t, timeout, 10*time.Millisecond, func() bool { return dead() || victim.serves() })
				// Until it is one that has runs.
				for dead := dead(); !dead; {
					other.kill()
					select {
					case <-victim.over():
						dead = true
					case <-time.After(6 * time.Second):
					}
					other.launch(nil)
				}
			}
			select {
			case <-victim.over():
			case <-time.After(timeout):
				require.FailNow(t, "the point was never reached")
			}
			require.Equal(t, -1, victim.code(), "it was to die of a signal")
			x.died(p)
		})
	}
	victim.end()
	victim.launch(nil)
	x.awaitEnds()
}

// TestHandover stops executors in good order, one after the other, as an update does.
func TestHandover(t *testing.T) {
	t.Parallel()
	x := newTrial(t, clusterOptions{store: "postgres", replicas: 2})
	for range 2 {
		for _, r := range x.replicas {
			r.signal(syscall.SIGTERM)
			select {
			case <-r.over():
			case <-time.After(timeout):
				require.FailNow(t, "it does not stop")
			}
			require.Zero(t, r.code())
			r.launch(nil)
			x.goesOn()
		}
	}
	x.awaitEnds()
}

// TestZombie stops a process for longer than its lease and lets it wake up late.
func TestZombie(t *testing.T) {
	t.Parallel()
	x := newTrial(t, clusterOptions{store: "postgres", replicas: 3})
	zombie := x.replicas[0]
	for range zombies {
		life := x.rows(x.ctx, fmt.Sprintf(`SELECT incarnation::text FROM executors WHERE id = '%s'`, zombie.id))
		require.Len(t, life, 1)
		zombie.signal(syscall.SIGSTOP)
		testkit.Within(t, timeout, 50*time.Millisecond, func() bool {
			return len(x.rows(x.ctx, fmt.Sprintf(`SELECT run_id FROM runs WHERE state < 6 AND owner_id = '%s' AND owner_incarnation = %s`, zombie.id, life[0]))) == 0 &&
				len(x.rows(x.ctx, fmt.Sprintf(`SELECT id FROM executors WHERE id = '%s' AND incarnation = %s`, zombie.id, life[0]))) == 0
		}, "nobody takes over from one that stands still")
		zombie.signal(syscall.SIGCONT)
		// It notices by itself, and returns under another incarnation.
		testkit.Within(t, timeout, 50*time.Millisecond, func() bool {
			return len(x.rows(x.ctx, fmt.Sprintf(`SELECT id FROM executors WHERE id = '%s' AND incarnation > %s`, zombie.id, life[0]))) == 1
		}, "it does not come back")
		x.goesOn()
	}
	x.awaitEnds()
}

// TestDatabaseRestart kills the database in the middle of everything.
func TestDatabaseRestart(t *testing.T) {
	t.Parallel()
	server := ownServer(t, "", nil)
	x := newTrial(t, clusterOptions{store: "postgres", server: server, replicas: 2})
	for i := range restarts {
		x.goesOn()
		require.NoError(t, server.Crash())
		still(time.Duration(i%3) * 2 * time.Second)
		require.NoError(t, server.Restart(x.ctx))
	}
	x.goesOn()
	x.awaitEnds()
}

// ownServer starts a PostgreSQL server for one test.
func ownServer(t *testing.T, dir string, settings map[string]string) *pgtest.Server {
	t.Helper()
	server, err := pgtest.Start(t.Context(), dir, pgtest.Options{Settings: settings})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	return server
}

// TestDiskFull lets the disk of the database run full, and gives room again.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	t.Run("Postgres/GoesOnWhenThereIsRoom", func(t *testing.T) {
		dir := smallDisk(t, "160m")
		server := ownServer(t, dir, map[string]string{"max_wal_size": "48MB", "min_wal_size": "32MB", "wal_recycle": "off"})
		x := newTrial(t, clusterOptions{store: "postgres", server: server, replicas: 2})
		x.goesOn()
		filler := fill(t, dir)
		// It takes a while until the reserved space is used up; then nothing can be written.
		still(5 * time.Second)
		require.NoError(t, os.Remove(filler))
		require.NoError(t, server.Restart(x.ctx))
		x.goesOn()
		x.awaitEnds()
	})
	t.Run("SQLite/GoesOnWhenThereIsRoom", func(t *testing.T) {
		dir := smallDisk(t, "24m")
		x := newTrial(t, clusterOptions{store: "sqlite", replicas: 1, executors: dir})
		x.goesOn()
		filler := fill(t, dir)
		start := func() error {
			ctx, cancel := context.WithTimeout(x.ctx, 2*time.Second)
			defer cancel()
			_, err := x.replicas[0].exec.StartRun(ctx, &executorv1.StartRunRequest{Graph: makeJob(t, x.o, "long").wire})
			return err
		}
		var err error
		testkit.Within(t, timeout, 50*time.Millisecond, func() bool { err = start(); return err != nil }, "the disk is full, and runs are accepted")
		t.Logf("a start is answered by: %v", err)
		still(2 * time.Second)
		require.NoError(t, os.Remove(filler))
		testkit.Within(t, timeout, 50*time.Millisecond, x.replicas[0].serves)
		x.goesOn()
		x.load.extra = true
		x.awaitEnds()
	})
}

// smallDisk is a directory that has only so much room.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; len(d) > len(os.TempDir()); d = filepath.Dir(d) {
		require.NoError(t, os.Chmod(d, 0o755)) // the server is another user
	}
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size)
	if errors.Is(err, syscall.EPERM) && os.Getenv("TESTS_NO_SKIPS") == "" {
		t.Skip("mounting a small disk needs root with the right to mount: run as such, or set TESTS_NO_SKIPS to see this fail")
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// fill uses up all room.
func fill(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	block := slices.Repeat([]byte{1}, 64<<10)
	for err == nil {
		_, err = f.Write(block)
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	return path
}
