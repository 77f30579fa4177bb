package limittest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
)

// record writes a run down.
func (r *replica) record(t *testing.T, id string, state journal.State, priority int32) {
	t.Helper()
	run := journal.Run{ID: id, Namespace: "n", GraphHash: "h", CreateTime: time.Now(), Priority: priority, Args: []byte(`[1]`), Status: journal.Status{State: state}}
	s := &journal.Start{Run: run, Append: journal.Append{Graph: []byte("g")}}
	if state != journal.StatePending {
		s.Events = []journal.Event{{Kind: 1, Time: time.Now(), Data: []byte("0123456789")}}
	}
	res, err := r.Commit(t.Context(), r.Owner, []journal.Write{{Start: s}})
	require.NoError(t, err)
	require.NoError(t, res[0].Err)
}

func quotas(t *testing.T, d Driver) {
	whole := limit.Key{Namespace: "n", Name: limit.Namespace}
	t.Run("Next/ByPriorityWhileThereIsRoom", func(t *testing.T) {
		t.Parallel()
		r := d.replica(t, d.Fresh(t), "a")
		for i, p := range []int32{2, 4, 1, 1} {
			r.record(t, fmt.Sprint("run_p", i), journal.StatePending, p)
		}
		next := func(most int64, n int) (ids []string) {
			ps, err := r.Next(t.Context(), "n", most, n)
			require.NoError(t, err)
			for _, p := range ps {
				require.Equal(t, "n", p.Namespace)
				ids = append(ids, p.RunID)
			}
			return ids
		}
		require.Equal(t, []string{"run_p2", "run_p3", "run_p0", "run_p1"}, next(10, 10))
		require.Equal(t, []string{"run_p2"}, next(10, 1))
		r.record(t, "run_open", journal.StateRunning, 2)
		require.Equal(t, []string{"run_p2", "run_p3"}, next(3, 10))
		require.Empty(t, next(1, 10))
		stranded, err := r.Stranded(t.Context(), 0, 3)
		require.NoError(t, err)
		require.Len(t, stranded, 3)
		r.put(t, limit.Limit{Key: whole, MaxOpenRuns: 1})
		stranded, err = r.Stranded(t.Context(), 0, 3)
		require.NoError(t, err)
		require.Empty(t, stranded, "they wait for good reason")
		n, err := r.Bytes(t.Context(), "n")
		require.NoError(t, err)
		require.EqualValues(t, 10+5*3, n)
	})
	t.Run("Backlog/CountsDueJobs", func(t *testing.T) {
		t.Parallel()
		r := d.replica(t, d.Fresh(t), "a")
		require.NoError(t, r.InsertJobs(t.Context(), "n", []journal.Job{{Kind: journal.JobStart, RunID: "run_1"}, {Kind: journal.JobStart, RunID: "run_2", At: time.Now().Add(time.Hour)},
			{Kind: journal.JobWake, RunID: "run_3", At: time.Now().Add(time.Hour)}, {Kind: journal.JobWake, RunID: "run_4", At: time.Now().Add(8 * time.Second)}}))
		ready, err := r.ReadyJobs(t.Context(), 2*time.Hour, 100)
		require.NoError(t, err)
		require.Equal(t, 2, ready, "they are available ahead of their time, and wait for that alone")
		jobs, executors, err := r.Backlog(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, jobs)
		require.EqualValues(t, 1, executors)
	})
	t.Run("Admit/NoMoreThanTheQuotaOverReplicas", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		x := d.replica(t, place, "x")
		x.put(t, limit.Limit{Key: whole, MaxOpenRuns: 5, MaxPendingRuns: 2, MaxFanOut: 3})
		x.record(t, "run_before", journal.StateRunning, 2)
		var (
			mu   sync.Mutex
			wg   sync.WaitGroup
			in   int
			out  int
			last func()
		)
		for i := range 3 {
			s := d.station(t, place, fmt.Sprint("s", i))
			q := s.Quotas()
			for j := range 4 {
				wg.Go(func() {
					release, ok, err := q.Admit(t.Context(), "n")
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Error(err)
					}
					if !ok {
						out++
						return
					}
					in++
					if j%2 == 0 { // its beginning becomes durable, and the room is given back
						s.record(t, fmt.Sprintf("run_%d_%d", i, j), journal.StateRunning, 2)
						release()
					}
					last = release
				})
			}
		}
		crowd(t, &wg)
		require.Equal(t, 4, in)
		require.Equal(t, 8, out)
		_ = last
		s := d.station(t, place, "last")
		q := s.Quotas()
		_, ok, err := q.Admit(t.Context(), "elsewhere")
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, limit.ReasonQuota, errs.ReasonOf(q.Accept(t.Context(), "n", 4)))
		require.NoError(t, q.Accept(t.Context(), "n", 3))
		for range 2 {
			require.NoError(t, q.AcceptPending(t.Context(), "n"))
			x.record(t, fmt.Sprint("run_w", time.Now().UnixNano()), journal.StatePending, 2)
		}
		require.Equal(t, limit.ReasonQuota, errs.ReasonOf(q.AcceptPending(t.Context(), "n")))
	})
	t.Run("Run/BeginsPendingRunsByPriority", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		s := d.station(t, place, "s")
		s.put(t, limit.Limit{Key: whole, MaxOpenRuns: 2})
		require.NoError(t, s.Refresh(t.Context()))
		s.record(t, "run_late", journal.StatePending, 4)
		s.record(t, "run_soon", journal.StatePending, 1)
		s.record(t, "run_open", journal.StateRunning, 1)
		q := s.Quotas()
		ctx, stop := context.WithCancel(t.Context())
		begun := make(chan string, 100)
		done := make(chan error, 1)
		go func() {
			done <- q.Run(ctx, func(_ context.Context, args []byte) error {
				var a journal.JobArgs
				if json.Unmarshal(args, &a) != nil {
					t.Error("not a start")
				}
				begun <- a.RunID
				return nil
			})
		}()
		q.Ended("n")
		require.Equal(t, "run_soon", <-begun)
		stop()
		require.NoError(t, <-done)
		for len(begun) > 0 {
			require.Equal(t, "run_soon", <-begun)
		}
	})
}
