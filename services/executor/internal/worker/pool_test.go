package worker

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func TestPoolOrder(t *testing.T) {
	far := func(slots int) []journal.WorkerRoute {
		return []journal.WorkerRoute{{Executor: journal.Owner{ID: "far"}, Addr: "x", Slots: slots}}
	}
	// queue lets visits wait for actors, and notes who got room and where.
	type grant struct {
		visit int
		place *slot
	}
	queue := func(p *pool, got *[]grant, actors ...string) {
		for i, actor := range actors {
			p.enter(name{"ns", actor}, false, func(pl *slot) { *got = append(*got, grant{i, pl}) })
		}
	}
	visits := func(gs []grant) []int {
		out := []int{}
		for _, g := range gs {
			out = append(out, g.visit)
		}
		return out
	}
	t.Run("Found/ServesItsOwnLineTheLongestWaitingFirst", func(t *testing.T) {
		p, got := newPool(), []grant{}
		queue(p, &got, "b", "a", "b", "a", "a")
		p.found(name{"ns", "a"}, far(2))
		require.Equal(t, []int{1, 3}, visits(got))
		p.found(name{"ns", "b"}, far(1))
		require.Equal(t, []int{1, 3, 0}, visits(got))
		got[0].place.release()
		require.Equal(t, []int{1, 3, 0, 4}, visits(got), "what is given back goes to the same actor")
		require.Equal(t, map[string][]string{"ns": {"b"}}, p.wanted())
	})
	t.Run("Found/OneActorOfOneNamespace", func(t *testing.T) {
		p, got := newPool(), []grant{}
		queue(p, &got, "a")
		p.found(name{"other", "a"}, far(1))
		require.Empty(t, got)
	})
	t.Run("Session/WhatOneActorMayNotTakeGoesToTheNext", func(t *testing.T) {
		p, got := newPool(), []grant{}
		queue(p, &got, "a", "a", "c", "b", "a", "b")
		p.add(newSession(p, 3, map[string]int{"a": 1, "b": 0}))
		require.Equal(t, []int{0, 3, 5}, visits(got))
	})
	t.Run("Session/OrderIsThatOfALookAtEverybody", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			actor := rapid.SampledFrom([]string{"a", "b", "c", "d"})
			type waiting struct {
				actor string
				hop   bool
			}
			var all []waiting
			p, got := newPool(), []int{}
			for i := range rapid.IntRange(0, 20).Draw(t, "waiting") {
				w := waiting{actor.Draw(t, "actor"), rapid.Bool().Draw(t, "hop")}
				all = append(all, w)
				p.enter(name{"ns", w.actor}, w.hop, func(*slot) { got = append(got, i) })
			}
			limits := rapid.MapOf(actor, rapid.IntRange(0, 3)).Draw(t, "limits")
			slots := rapid.IntRange(1, 20).Draw(t, "slots")
			p.add(newSession(p, slots, limits))

			// The actor whose first waiter has waited longest gets its turn. Visits from here and from
			// elsewhere alternate for it, beginning with one from elsewhere.
			want, done := []int{}, map[int]bool{}
			busy, hopLast := map[string]int{}, map[string]bool{}
			for len(want) < slots {
				first := -1
				for i, w := range all {
					limit, serves := limits[w.actor]
					if !done[i] && serves && (limit == 0 || busy[w.actor] < limit) {
						first = i
						break
					}
				}
				if first < 0 {
					break
				}
				of := all[first].actor
				turn := map[bool]int{}
				for i := len(all) - 1; i >= 0; i-- {
					if !done[i] && all[i].actor == of {
						turn[all[i].hop] = i
					}
				}
				pick := first
				if len(turn) == 2 {
					hopLast[of] = !hopLast[of]
					pick = turn[hopLast[of]]
				}
				done[pick] = true
				busy[of]++
				want = append(want, pick)
			}
			if !slices.Equal(want, got) {
				t.Fatalf("room went to %v, want %v of %s", got, want, fmt.Sprint(all))
			}
		})
	})
}
