package feed

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/workgraph"
)

// text is a piece of text of a run below root.
func text(run, node, piece string) Event {
	return Event{Namespace: "acme", RunID: run, RootID: "root", Ephemeral: &Ephemeral{Ref: workgraph.Ref{Node: node, Visit: 1}, Attempt: 1, Text: piece}}
}

func durable(run string, seq int64) Event {
	return Event{RunID: run, RootID: "root", Durable: &record.Durable{Event: workgraph.Event{Seq: seq}}}
}

// shown are events in short: text by node with its offset, durable ones by their sequence.
func shown(evs []Event) (out []string) {
	for _, ev := range evs {
		if ev.Durable != nil {
			out = append(out, fmt.Sprint(ev.RunID, " ", ev.Durable.Seq))
			continue
		}
		out = append(out, fmt.Sprintf("%s.%s@%d %s", ev.RunID, ev.Ephemeral.Node, ev.Ephemeral.Offset, ev.Ephemeral.Text))
	}
	return out
}

func TestBuffer(t *testing.T) {
	t.Parallel()
	t.Run("TextOfOneAttempt/IsOneEvent", func(t *testing.T) {
		t.Parallel()
		var b buffer
		var said Said
		h := newHub()
		sub := &subscription{wake: make(chan struct{}, 1)}
		defer h.ofRun("r", sub, true, nil)()
		first := text("r", "a", "Hel")
		h.say(&said, first)
		h.say(&said, text("r", "a", "lo"))
		raw := text("r", "a", "<x>")
		raw.Ephemeral.Raw = true
		h.say(&said, raw)
		h.say(&said, text("r", "a", "!"))
		require.Equal(t, []string{"r.a@0 Hello", "r.a@0 <x>", "r.a@5 !"}, shown(sub.take()))
		require.Equal(t, "Hel", first.Ephemeral.Text, "others hold the first piece, too")
		b.add(text("r", "a", "1"))
		b.add(text("r", "b", "2"))
		lost := text("r", "b", "4")
		lost.Ephemeral.Offset = 2
		b.add(lost)
		require.Equal(t, []string{"r.a@0 1", "r.b@0 2", "r.b@2 4"}, shown(b.take()), "other attempts, and text behind a gap")
	})
	t.Run("Full/OldEphemeralEventsGiveWay", func(t *testing.T) {
		t.Parallel()
		var b buffer
		b.add(durable("r", 1))
		for i := range 3 * maxHeld {
			b.add(text("r", fmt.Sprint("n", i), "x"))
			require.LessOrEqual(t, len(b.events), maxHeld)
			require.LessOrEqual(t, b.bytes, maxHeldBytes)
		}
		require.False(t, b.missed)
		b.add(text("r", "last", strings.Repeat("x", maxHeldBytes/2)))
		got := b.take()
		require.EqualValues(t, 1, got[0].Durable.Seq)
		require.Equal(t, "last", got[len(got)-1].Ephemeral.Node)
		require.NotEqual(t, "n0", got[1].Ephemeral.Node)
	})
}

func TestHub(t *testing.T) {
	t.Parallel()
	t.Run("Newcomers/GetEveryTextOnceAndInOrder", func(t *testing.T) {
		t.Parallel()
		h := newHub()
		came := make(chan struct{}, 1)
		n := &newcomers{wake: came, known: map[string]bool{}}
		defer h.ofTree("root", n)()
		var said Said
		const pieces = 2000
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range pieces {
				h.say(&said, text("child", "a", fmt.Sprintf("%d,", i)))
			}
		})
		var got strings.Builder
		add := func(evs []Event) {
			for _, ev := range evs {
				require.EqualValues(t, got.Len(), ev.Ephemeral.Offset)
				got.WriteString(ev.Ephemeral.Text)
			}
		}
		<-came
		sub := &subscription{wake: make(chan struct{}, 1)}
		defer h.ofRun("child", sub, false, func() { n.known["child"] = true })()
		add(n.take())
		wg.Wait()
		require.Empty(t, n.take(), "a known run is no newcomer")
		add(sub.take())
		require.True(t, strings.HasSuffix(got.String(), fmt.Sprintf(",%d,", pieces-1)))
	})
	t.Run("LateWatcher/GetsWhatWasSaid", func(t *testing.T) {
		t.Parallel()
		h := newHub()
		var said, over, long Said
		h.say(&said, text("r", "a", "Hel"))
		h.say(&said, text("r", "a", "lo"))
		h.say(&over, text("r", "b", "gone"))
		h.silence(&over)
		h.say(&over, text("r", "b", "late"))
		for range 100 {
			h.say(&long, text("other", "c", strings.Repeat("é", 512)))
		}
		late := &subscription{wake: make(chan struct{}, 1)}
		defer h.ofRun("r", late, true, nil)()
		h.say(&said, text("r", "a", "!"))
		require.Equal(t, []string{"r.a@0 Hello!"}, shown(late.take()))
		durable := &subscription{wake: make(chan struct{}, 1), durable: true}
		defer h.ofRun("r", durable, true, nil)()
		require.Empty(t, durable.take())
		all := &newcomers{wake: make(chan struct{}, 1), known: map[string]bool{}}
		defer h.ofTree("root", all)()
		evs := all.take()
		require.Len(t, evs, 2)
		for _, ev := range evs {
			if e := ev.Ephemeral; ev.RunID == "other" {
				require.EqualValues(t, 100*1024, int(e.Offset)+len(e.Text), "the end of a long text")
				require.LessOrEqual(t, len(e.Text), maxSaid)
				require.GreaterOrEqual(t, len(e.Text), maxSaid/2-1)
			}
		}
		h.silence(&said)
		h.silence(&long)
		require.Empty(t, h.saying)
		require.Empty(t, h.sayingBelow)
	})
	t.Run("Watched/ByWatchersOfTextOnly", func(t *testing.T) {
		t.Parallel()
		f := &Feed{hub: newHub()}
		require.False(t, f.Watched("child", "root"))
		undo := f.hub.ofRun("child", &subscription{durable: true}, true, nil)
		require.False(t, f.Watched("child", "root"))
		undo()
		undo = f.hub.ofRun("child", &subscription{wake: make(chan struct{}, 1)}, true, nil)
		require.True(t, f.Watched("child", "root"))
		require.False(t, f.Watched("sibling", "root"))
		undo()
		o := f.Outlet()
		require.NoError(t, o.Begin(Interest{"acme", "root", true}))
		require.True(t, f.Watched("child", "root"))
		o.Close()
		require.False(t, f.Watched("child", "root"))
		require.Empty(t, f.hub.runs)
		require.Empty(t, f.hub.trees)
	})
}

func TestOutlet(t *testing.T) {
	t.Parallel()
	take := func(t *testing.T, o *Outlet) []string {
		t.Helper()
		evs, err := o.Take(t.Context())
		require.NoError(t, err)
		return shown(evs)
	}
	t.Run("Events/OfThisProcessAndThatNamespaceOnce", func(t *testing.T) {
		t.Parallel()
		f := &Feed{hub: newHub()}
		o := f.Outlet()
		defer o.Close()
		for range 2 { // again is the same
			require.NoError(t, o.Begin(Interest{"acme", "root", true}))
			require.NoError(t, o.Begin(Interest{"acme", "child", false}))
		}
		require.NoError(t, o.Begin(Interest{"other", "root", true}))
		f.Deliver(text("child", "far", "x"))
		f.Publish(durable("child", 1), text("child", "near", "x"), text("stranger", "near", "y"))
		require.Equal(t, []string{"child.near@0 x", "stranger.near@0 y"}, take(t, o))
		o.End(Interest{"acme", "root", true})
		f.Publish(text("stranger", "near", "x"), text("child", "near", "z"))
		require.Equal(t, []string{"child.near@0 z"}, take(t, o))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := o.Take(ctx)
		require.ErrorIs(t, err, context.Canceled)
	})
	t.Run("Slow/CostsABoundAndNoNeighbor", func(t *testing.T) {
		t.Parallel()
		f := &Feed{hub: newHub()}
		o := f.Outlet()
		defer o.Close()
		for i := range 3 {
			require.NoError(t, o.Begin(Interest{fmt.Sprint("ns", i), "root", true}))
		}
		say := func(ns, node, piece string) {
			ev := text("child", node, piece)
			ev.Namespace = ns
			f.Publish(ev)
		}
		for i := range 10_000 {
			say("ns0", fmt.Sprint("n", i), strings.Repeat("x", 1000))
		}
		say("ns1", "a", "mine")
		say("ns0", "last", "x")
		require.LessOrEqual(t, o.bytes, maxHeldBytes+1<<11)
		loud := take(t, o)
		require.Equal(t, "child.last@0 x", loud[len(loud)-1])
		require.Equal(t, []string{"child.a@0 mine"}, take(t, o))
		require.Zero(t, o.bytes)
	})
}
