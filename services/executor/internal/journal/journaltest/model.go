package journaltest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// modelCase compares random batches, right, wrong and resent, with the plainest reading of the contract.
func modelCase(t *testing.T, d Driver) {
	t.Parallel()
	w := &world{t: t, d: d, place: d.Fresh(t)}
	w.j = w.another()
	w.me = w.register("exec-a")
	rapid.Check(t, func(rt *rapid.T) {
		var runs []string
		have := map[string][]journal.Event{}
		for range 3 {
			id := w.started(1)
			runs = append(runs, id)
			have[id] = events(1, 1)
		}
		for range rapid.IntRange(1, 4).Draw(rt, "commits") {
			var batch []journal.Write
			end := map[string]int{}
			for id, es := range have {
				end[id] = len(es)
			}
			for range rapid.IntRange(1, 6).Draw(rt, "writes") {
				id := rapid.SampledFrom(runs).Draw(rt, "run")
				at := end[id]
				if rapid.IntRange(0, 3).Draw(rt, "wrong place") == 0 {
					at = rapid.IntRange(0, end[id]+1).Draw(rt, "place")
				}
				n := rapid.IntRange(0, 3).Draw(rt, "events")
				a := appendTo(id, at, n)
				if n > 0 && rapid.IntRange(0, 5).Draw(rt, "other content") == 0 {
					a.Append.Events[n-1].Data = []byte("other")
				}
				end[id] = at + n
				batch = append(batch, a)
			}
			want := expect(have, batch)
			res, err := w.j.Commit(t.Context(), w.me, batch)
			require.NoError(rt, err)
			for i, r := range res {
				require.Equal(rt, want[i], errs.ReasonOf(r.Err), "write %d of %s: %v", i, describe(batch), r.Err)
			}
			for _, id := range runs {
				got := w.events(id)
				require.Len(rt, got, len(have[id]))
				for i, e := range have[id] {
					e.RunID, e.Seq = id, int64(i+1)
					require.Equal(rt, e, got[i])
				}
			}
		}
	})
}

// expect brings have up to date and returns the reason of each write, empty if it succeeds.
func expect(have map[string][]journal.Event, batch []journal.Write) []string {
	reasons := make([]string, len(batch))
	type unit struct {
		from   int
		events []journal.Event
		writes []int
		broken bool
	}
	units := map[string]*unit{}
	for i, w := range batch {
		a := w.Append
		u := units[a.RunID]
		if u == nil {
			u = &unit{from: int(a.ExpectedLastSeq)}
			units[a.RunID] = u
		}
		if u.broken || u.from+len(u.events) != int(a.ExpectedLastSeq) {
			u.broken = true
			reasons[i] = journal.ReasonSeqConflict
			continue
		}
		u.events = append(u.events, a.Events...)
		u.writes = append(u.writes, i)
	}
	for id, u := range units {
		es := have[id]
		switch to := u.from + len(u.events); {
		case u.from == len(es):
			have[id] = append(es, u.events...)
		case len(u.events) > 0 && to <= len(es) && same(es[u.from:to], u.events):
		default:
			for _, i := range u.writes {
				reasons[i] = journal.ReasonSeqConflict
			}
		}
	}
	return reasons
}

func same(a, b []journal.Event) bool {
	for i := range a {
		if string(a[i].Data) != string(b[i].Data) {
			return false
		}
	}
	return true
}

func describe(batch []journal.Write) (s string) {
	for _, w := range batch {
		s += fmt.Sprintf("[%s at %d: %d events]", w.Append.RunID, w.Append.ExpectedLastSeq, len(w.Append.Events))
	}
	return s
}
