package journaltest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// BenchThreads measures reading all messages of a thread of 10,000 messages and 2,000 states: cold, when
// nothing is in memory, and warm, after one more message was appended. append measures a commit of one event
// and two items, beside one of the event alone. fork measures forks of threads of 10 and of 100,000 items.
func BenchThreads(b *testing.B, d Driver) {
	ctx := b.Context()
	j, err := d.Open(ctx, d.Fresh(b))
	require.NoError(b, err)
	defer j.Close()
	me, err := j.Register(ctx, "bench", "")
	require.NoError(b, err)
	s := start(1)
	th, err := j.CreateThread(ctx, newThread())
	require.NoError(b, err)
	run, events, last := s.Run.ID, 1, int64(0)
	require.NoError(b, commitAll(ctx, j, me, []journal.Write{{Start: s}}))
	text := `{"role":"user","content":"` + strings.Repeat("word ", 40) + `"}`
	add := func(kinds ...thread.Kind) error {
		a := workgraph.ThreadAppend{Thread: th.ID, After: last}
		for _, k := range kinds {
			a.Items = append(a.Items, workgraph.ThreadItem{Kind: k, Body: []byte(text)})
		}
		err := commitAll(ctx, j, me, []journal.Write{appendTo(run, events, 1, addTo(run, a))})
		events, last = events+1, last+int64(len(kinds))
		return err
	}
	const m, st = workgraph.ThreadMessage, workgraph.ThreadState
	var kinds []thread.Kind
	for range 100 {
		kinds = append(kinds, m, m, st, m, m, m)
	}
	for range 20 {
		require.NoError(b, add(kinds...))
	}
	for _, length := range []int64{10, 100_000} {
		long, err := j.CreateThread(ctx, newThread())
		require.NoError(b, err)
		for at := int64(0); at < length; at += 10_000 {
			a := workgraph.ThreadAppend{Thread: long.ID, After: at, Items: slices.Repeat([]workgraph.ThreadItem{{Kind: m, Body: []byte(text)}}, int(min(length, 10_000)))}
			require.NoError(b, commitAll(ctx, j, me, []journal.Write{appendTo(run, events, 1, addTo(run, a))}))
			events++
		}
		b.Run(fmt.Sprintf("fork/items=%d", length), func(b *testing.B) {
			for b.Loop() {
				f, err := j.CreateThread(ctx, newThread(func(c *thread.Create) { c.ParentID = long.ID }))
				if err != nil || f.Last != length {
					b.Fatal(err, f.Last)
				}
			}
		})
	}
	query := thread.Query{Kinds: []thread.Kind{m}}
	read := func(b *testing.B, c *thread.Cache) {
		its, err := c.Items(ctx, ns, th.ID, query)
		if err != nil || len(its) < 10_000 {
			b.Fatal(err, len(its))
		}
	}
	b.Run("read/cold", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			read(b, thread.NewCache(j, 0))
		}
	})
	b.Run("read/warm", func(b *testing.B) {
		c := thread.NewCache(j, 0)
		read(b, c)
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			require.NoError(b, add(m))
			b.StartTimer()
			read(b, c)
		}
	})
	for _, n := range []int{0, 2} {
		b.Run(fmt.Sprintf("append/items=%d", n), func(b *testing.B) {
			for b.Loop() {
				if n == 0 {
					require.NoError(b, commitAll(ctx, j, me, []journal.Write{appendTo(run, events, 1)}))
					events++
					continue
				}
				require.NoError(b, add(m, st))
			}
		})
	}
}
