package chaos_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/epigraph-run/epigraph/internal/failpoint"
)

// torture starts and kills one replica again and again until stop is closed: at a point, or after a time.
func (r *replica) torture(stop <-chan struct{}, budget func() bool) {
	points := failpoint.Points()
	for n := rand.IntN(len(points)); ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		if !budget() {
			return
		}
		p := points[n%len(points)]
		times := 1 + rand.IntN(20)
		switch p {
		case failpoint.StartBeforeClaim, failpoint.StartAfterClaim, failpoint.HandoverBefore, failpoint.HandoverAfter, failpoint.TakeoverAfter, failpoint.ClaimAfter:
			times = 1
		case failpoint.StartAfterRecord, failpoint.IntentBefore, failpoint.IntentAfter, failpoint.OutboxAfter, failpoint.OutboxBefore:
			times = 1 + rand.IntN(4)
		}
		if err := r.start(map[failpoint.Point]int{p: times}); err != nil {
			r.c.t.Errorf("start %s: %v", r.name, err)
			return
		}
		limit := 600*time.Millisecond + rand.N(1500*time.Millisecond)
		handing := p == failpoint.HandoverBefore || p == failpoint.HandoverAfter
		timer := time.NewTimer(limit)
		select {
		case <-r.over():
			r.c.died(p)
		case <-timer.C:
			if handing {
				r.signal(syscall.SIGTERM)
				again := time.NewTimer(5 * time.Second)
				select {
				case <-r.over():
					if r.code() == -1 {
						r.c.died(p)
					} else {
						r.c.kills.Add(1)
						totals.kill("executor, SIGTERM")
					}
				case <-again.C:
					r.kill()
				}
				again.Stop()
			} else {
				r.kill()
			}
		}
		timer.Stop()
	}
}

// stormTime bounds a storm.
const stormTime = 12 * time.Minute

// storm kills executors until so many are dead, lets the rest of the work be done in peace, and counts.
func storm(t *testing.T, store string, replicas, kills int) *cluster {
	t.Helper()
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
	defer cancel()
	o := newOutside(t)
	c := newCluster(t, clusterOptions{store: store, replicas: replicas, settings: []string{"executor.max_takeovers=3"}})
	l := newLoad(ctx, c, o, gap)
	var mu sync.Mutex
	left := kills
	budget := func() bool {
		mu.Lock()
		defer mu.Unlock()
		left--
		return left >= 0 && time.Since(begin) < stormTime
	}
	for _, r := range c.replicas {
		r.kill()
		left--
	}
	stop := make(chan struct{})
	var wg, workers sync.WaitGroup
	for _, r := range c.replicas {
		wg.Go(func() { r.torture(stop, budget) })
	}
	for _, r := range c.remotes {
		workers.Go(func() { r.torture(stop) })
	}
	wg.Wait()
	close(stop)
	workers.Wait()
	for _, r := range c.replicas {
		r.launch(nil)
	}
	jobs := l.finish(ctx)
	c.deaths(t)
	t.Logf("%s, %d executors: %d kills in %s, %d calls of unknown outcome settled, %d times resumed from quarantine",
		store, replicas, c.kills.Load(), time.Since(begin).Round(time.Second), l.settled.Load(), l.resumed.Load())
	c.check(ctx, o, jobs, false)
	if n := int(c.kills.Load()); n < kills {
		t.Logf("%d kills in place of %d: this machine was too slow for more in %s", n, kills, stormTime)
	}
	return c
}

func TestStorm(t *testing.T) {
	t.Parallel()
	t.Run("Postgres/ThreeExecutors", func(t *testing.T) {
		t.Parallel()
		storm(t, "postgres", 3, stormKills)
	})
	t.Run("SQLite/OneExecutor", func(t *testing.T) {
		t.Parallel()
		storm(t, "sqlite", 1, stormKillsSQLite)
	})
}
