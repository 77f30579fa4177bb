package journaltest

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const benchData = 200

// Raw inserts rows of benchData bytes into a table that has the events' key, in one transaction, as
// fast as the database can be asked to: what the driver's figures stand beside.
type Raw func(ctx context.Context, runID string, firstSeq int64, rows int, data []byte) error

// Bench measures rows/s of Commit at several batch sizes, each row an event of a run of its own ("spread",
// and "rows" where its run's row changes too) or all of one run ("single"), beside raw inserts of the same
// rows.
func Bench(b *testing.B, d Driver, raw func(b *testing.B, place string) Raw) {
	ctx := b.Context()
	place := d.Fresh(b)
	j, err := d.Open(ctx, place)
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	me, err := j.Register(ctx, "bench", "")
	if err != nil {
		b.Fatal(err)
	}
	insert := raw(b, place)
	data := bytes.Repeat([]byte("d"), benchData)
	for _, size := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("raw/rows=%d", size), func(b *testing.B) {
			id, seq := start(1).Run.ID, int64(1)
			measure(b, size, func() error {
				seq += int64(size)
				return insert(ctx, id, seq, size, data)
			})
		})
		for kind, runs := range map[string]int{"spread": size, "single": 1, "rows": size} {
			b.Run(fmt.Sprintf("%s/rows=%d", kind, size), func(b *testing.B) {
				writes := make([]journal.Write, runs)
				last := make([]int64, runs)
				for i := range writes {
					writes[i].Start = start(1)
					last[i] = 1
				}
				if err := commitAll(ctx, j, me, writes); err != nil {
					b.Fatal(err)
				}
				ids := make([]string, runs)
				for i := range ids {
					ids[i] = writes[i].Start.Run.ID
				}
				each := size / runs
				measure(b, size, func() error {
					for i, id := range ids {
						a := &journal.Append{Namespace: ns, RunID: id, ExpectedLastSeq: last[i], Progress: true, Events: make([]journal.Event, each)}
						for k := range a.Events {
							a.Events[k] = journal.Event{Time: base, Kind: 12, NodeID: "node-7", Visit: 1, Data: data}
						}
						if kind == "rows" {
							a.Status = &journal.Status{State: journal.StateRunning, UpdateTime: base, Usage: journal.Usage{Calls: last[i]}}
						}
						last[i] += int64(each)
						writes[i] = journal.Write{Append: a}
					}
					return commitAll(ctx, j, me, writes)
				})
			})
		}
		b.Run(fmt.Sprintf("start/rows=%d", size), func(b *testing.B) {
			writes := make([]journal.Write, size)
			measure(b, size, func() error {
				for i := range writes {
					writes[i].Start = start(1)
					writes[i].Start.Events[0].Data = data
				}
				return commitAll(ctx, j, me, writes)
			})
		})
		b.Run(fmt.Sprintf("whole/rows=%d", size), func(b *testing.B) {
			writes := make([]journal.Write, size)
			ids := make([]string, size)
			measure(b, 3*size, func() error {
				for i := range writes {
					writes[i] = journal.Write{Start: start(1)}
					ids[i] = writes[i].Start.Run.ID
				}
				if err := commitAll(ctx, j, me, writes); err != nil {
					return err
				}
				for last := int64(1); last < 3; last++ {
					for i, id := range ids {
						a := &journal.Append{
							Namespace: ns, RunID: id, ExpectedLastSeq: last, Progress: true,
							Events: []journal.Event{{Time: base, Kind: 12, NodeID: "node-7", Visit: 1, Data: data}},
						}
						if last == 2 {
							a.Status = &journal.Status{State: journal.StateCompleted, EndTime: base, UpdateTime: base}
							a.Outcome = &journal.Outcome{Result: data}
						}
						writes[i] = journal.Write{Append: a}
					}
					if err := commitAll(ctx, j, me, writes); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

func measure(b *testing.B, rows int, fn func() error) {
	b.Helper()
	for b.Loop() {
		if err := fn(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func commitAll(ctx context.Context, j journal.Journal, me journal.Owner, writes []journal.Write) error {
	res, err := j.Commit(ctx, me, writes)
	if err != nil {
		return err
	}
	for _, r := range res {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}
