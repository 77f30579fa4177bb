package storetest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// fan adds a task and others that wait for it and depend on more that are completed, each with requirements
// of this size.
func (f *fixture) fan(t testing.TB, dependents, size, others int) epic.Task {
	t.Helper()
	e := f.epic(t, epic.Epic{})
	first := f.task(t, e.ID)
	on := []string{first.ID}
	for range others {
		v := f.task(t, e.ID)
		f.move(t, v.ID, epic.TaskCompleted)
		on = append(on, v.ID)
	}
	body := append(append([]byte(`"`), bytes.Repeat([]byte("x"), size)...), '"')
	tasks := slices.Repeat([]epic.Task{{EpicID: e.ID, DependsOn: on, Requirements: body}}, dependents)
	for some := range slices.Chunk(tasks, min(500, max(1, 1<<20/len(body)))) {
		f.insert(t, some...)
	}
	return first
}

// insert adds tasks, blocked if they depend on others, without counting them.
func (f *fixture) insert(t testing.TB, tasks ...epic.Task) (ids []string) {
	t.Helper()
	require.NoError(t, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
		ids = nil
		for _, v := range tasks {
			v, err := epic.NewTask(ns, v, cmp.Or(v.CreateTime, dbkit.Now()))
			if err != nil {
				return err
			}
			if len(v.DependsOn) > 0 {
				v.State = epic.TaskBlocked
			}
			if err := tx.InsertTask(ctx, v); err != nil {
				return err
			}
			ids = append(ids, v.ID)
		}
		return nil
	}))
	return ids
}

// layers adds tasks to an epic, each of which depends on as many of those before it.
func (f *fixture) layers(t testing.TB, epicID string, tasks, each int) (ids []string) {
	t.Helper()
	require.NoError(t, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
		ids = nil
		for i := range tasks {
			v, err := epic.NewTask(ns, epic.Task{EpicID: epicID, DependsOn: ids[max(0, i-each):]}, dbkit.Now())
			if err != nil {
				return err
			}
			if err := tx.InsertTask(ctx, v); err != nil {
				return err
			}
			ids = append(ids, v.ID)
		}
		return nil
	}))
	return ids
}

// RunMemory measures what whole processes allocate, so nothing else may run at the time.
func RunMemory(t *testing.T, open Open) {
	f := newFixture(t, open)
	// allocates is how many bytes a call allocates.
	allocates := func(fn func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fn()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	const mib = 1 << 20
	t.Run("Complete/ReadsNoBodiesOfDependents", func(t *testing.T) {
		first := f.fan(t, 20, mib, 0)
		require.Less(t, allocates(func() { f.move(t, first.ID, epic.TaskCompleted) }), uint64(2*mib))
	})
	t.Run("Delete/ReadsNoBodiesOfDependents", func(t *testing.T) {
		first := f.fan(t, 20, mib, 0)
		require.Less(t, allocates(func() { require.NoError(t, f.DeleteTask(f.ctx, ns, first.ID, "")) }), uint64(2*mib))
	})
	t.Run("Depend/ReadsWhatIsReached", func(t *testing.T) {
		e := f.epic(t, epic.Epic{})
		v := f.task(t, e.ID)
		ids := f.layers(t, e.ID, 300, 60)
		require.Less(t, allocates(func() {
			_, err := f.UpdateTask(f.ctx, ns, v.ID, accounting.Change{}, epic.Task{DependsOn: ids[:2]}, []string{"depends_on"})
			require.NoError(t, err)
		}), uint64(mib/2))
	})
	t.Run("Usage/ReadsNoTextsOfEpics", func(t *testing.T) {
		var batch []usage.Entry
		for i := range 40 {
			u := entry("run", i, "", 1, 1)
			u.EpicID = f.epic(t, epic.Epic{Description: strings.Repeat("x", mib/4)}).ID
			batch = append(batch, u)
		}
		require.Less(t, allocates(func() {
			_, err := f.RecordUsage(f.ctx, ns, batch)
			require.NoError(t, err)
		}), uint64(2*mib))
	})
}

// BenchComplete completes, or deletes, a task on which others depend: large ones, and many.
func BenchComplete(b *testing.B, open Open) {
	for _, bc := range []struct {
		name                     string
		dependents, size, others int
	}{{"large", 300, 3_500_000, 0}, {"many", 1_980, 0, 9}} {
		for _, how := range []string{"complete", "delete"} {
			b.Run(fmt.Sprintf("dependents=%s/%s", bc.name, how), func(b *testing.B) {
				b.ReportAllocs()
				b.StopTimer()
				f := newFixture(b, open)
				for range b.N {
					first := f.fan(b, bc.dependents, bc.size, bc.others)
					b.StartTimer()
					if how == "delete" {
						require.NoError(b, f.DeleteTask(f.ctx, ns, first.ID, ""))
					} else {
						f.move(b, first.ID, epic.TaskCompleted)
					}
					b.StopTimer()
				}
			})
		}
	}
}

// BenchDepend changes the dependencies of a task in an epic whose tasks depend on 100 others each.
func BenchDepend(b *testing.B, open Open) {
	const tasks, each = 1200, 100
	for _, bc := range []struct {
		name       string
		dependents int
		// on is the task that it comes to depend on.
		on func(ids []string, i int) string
	}{
		{"reaches=few", 1, func(ids []string, i int) string { return ids[i%2] }},
		{"reaches=all", 1, func(ids []string, i int) string { return ids[len(ids)-1-i%2] }},
		{"reaches=all/dependents=0", 0, func(ids []string, i int) string { return ids[len(ids)-1-i%2] }},
	} {
		b.Run(fmt.Sprintf("edges=%d/%s", tasks*each-each*(each+1)/2, bc.name), func(b *testing.B) {
			b.ReportAllocs()
			f := newFixture(b, open)
			e := f.epic(b, epic.Epic{})
			v := f.task(b, e.ID)
			for range bc.dependents {
				f.task(b, e.ID, v.ID)
			}
			ids := f.layers(b, e.ID, tasks, each)
			i := 0
			for b.Loop() {
				_, err := f.UpdateTask(f.ctx, ns, v.ID, accounting.Change{}, epic.Task{DependsOn: []string{bc.on(ids, i)}}, []string{"depends_on"})
				require.NoError(b, err)
				i++
			}
		})
	}
}
