package worker

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func FuzzToken(f *testing.F) {
	mine, other := newLife(), newLife()
	f.Add(mine.token(1))
	f.Add(other.token(1))
	f.Add("")
	f.Add("AAAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, token string) {
		n, ok := mine.number(token)
		if ok && mine.token(n) != token {
			t.Fatalf("%q reads as %d, which is %q", token, n, mine.token(n))
		}
		if !ok && n != 0 {
			t.Fatalf("a token that is none has number %d", n)
		}
	})
}

func TestToken(t *testing.T) {
	a, b := newLife(), newLife()
	n, ok := a.number(a.token(1 << 40))
	require.True(t, ok)
	require.EqualValues(t, 1<<40, n)
	_, ok = a.number(b.token(1))
	require.False(t, ok, "that of another stream")
	require.Less(t, len(a.token(1<<63)), 128)
}

func newSession(p *pool, slots int, actors map[string]int) *session {
	return &session{pool: p, namespace: "ns", actors: actors, effects: map[string]string{}, slots: slots, busy: map[string]int{}, empty: make(chan struct{})}
}

func TestPool(t *testing.T) {
	get := func(p *pool, actor string, hop bool) (got *slot, cancel func()) {
		cancel = p.enter(name{"ns", actor}, hop, func(pl *slot) { got = pl })
		return got, cancel
	}
	t.Run("Room/GoesToWhoHasWaitedLongest", func(t *testing.T) {
		p := newPool()
		var order []string
		for i := range 3 {
			p.enter(name{"ns", []string{"a", "b", "a"}[i]}, false, func(pl *slot) {
				order = append(order, fmt.Sprint(i))
				pl.release()
			})
		}
		p.add(newSession(p, 1, map[string]int{"a": 0, "b": 0}))
		require.Equal(t, []string{"0", "1", "2"}, order)
	})
	t.Run("Room/OneActorDoesNotHoldUpAnother", func(t *testing.T) {
		p := newPool()
		p.add(newSession(p, 2, map[string]int{"a": 1, "b": 0}))
		first, _ := get(p, "a", false)
		require.NotNil(t, first)
		second, cancel := get(p, "a", false)
		require.Nil(t, second, "a has one slot")
		third, _ := get(p, "b", false)
		require.NotNil(t, third, "though somebody waits for a")
		cancel()
		require.Empty(t, p.waiting)
	})
	t.Run("Hops/GetTheirTurnsAndStayHere", func(t *testing.T) {
		p := newPool()
		p.found(name{"ns", "a"}, []journal.WorkerRoute{{Executor: journal.Owner{ID: "far"}, Addr: "x", Slots: 1}})
		pl, _ := get(p, "a", true)
		require.Nil(t, pl, "what came from elsewhere is not sent on")
		near, _ := get(p, "a", false)
		require.Nil(t, near, "who comes later stands behind")
		p.found(name{"ns", "a"}, []journal.WorkerRoute{{Executor: journal.Owner{ID: "far"}, Addr: "x", Slots: 1}})
		require.Empty(t, p.wanted(), "but what is far away is for it")
	})
	t.Run("Gone/NobodyBeginsThere", func(t *testing.T) {
		p := newPool()
		s := newSession(p, 1, map[string]int{"a": 0})
		p.add(s)
		pl, _ := get(p, "a", false)
		p.remove(s, true)
		require.False(t, pl.take())
		next, _ := get(p, "a", false)
		require.Nil(t, next)
	})
	t.Run("Books/AlwaysBalance", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			p := newPool()
			var sessions []*session
			var held []*slot
			var cancels []func()
			pick := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
			for range rapid.IntRange(1, 200).Draw(t, "steps") {
				switch pick.IntN(6) {
				case 0:
					s := newSession(p, 1+pick.IntN(3), map[string]int{"a": pick.IntN(2), "b": pick.IntN(3)})
					sessions = append(sessions, s)
					p.add(s)
				case 1, 2:
					cancels = append(cancels, p.enter(name{"ns", string(rune('a' + pick.IntN(2)))}, pick.IntN(2) == 0, func(pl *slot) { held = append(held, pl) }))
				case 3:
					if len(held) > 0 {
						i := pick.IntN(len(held))
						pl := held[i]
						held = append(held[:i], held[i+1:]...)
						if pick.IntN(2) == 0 && pl.take() {
							pl.end()
						}
						pl.release()
						pl.release()
					}
				case 4:
					if len(cancels) > 0 {
						cancels[pick.IntN(len(cancels))]()
					}
				case 5:
					if len(sessions) > 0 {
						p.remove(sessions[pick.IntN(len(sessions))], pick.IntN(2) == 0)
					}
				}
				used := 0
				for _, s := range sessions {
					used += s.used
					if s.used < 0 || s.used > s.slots {
						t.Fatalf("a session with %d slots has %d", s.slots, s.used)
					}
					for actor, limit := range s.actors {
						if limit > 0 && s.busy[actor] > limit || s.busy[actor] < 0 {
							t.Fatalf("actor %s has %d of %d", actor, s.busy[actor], limit)
						}
						if p.waiting["ns"][actor] != nil && s.hasRoom(actor) {
							t.Fatalf("somebody waits for %s while a session has room", actor)
						}
					}
				}
				if used != len(held) {
					t.Fatalf("%d places are held, %d are counted", len(held), used)
				}
			}
		})
	})
}

func TestConfig(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	c := DefaultConfig()
	c.HeartbeatTimeout, c.MaxSlots = time.Second, 0
	err := c.Validate()
	require.ErrorContains(t, err, "twice heartbeat_interval")
	require.ErrorContains(t, err, "max_slots")
}
