package journaltest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func pendingCases(t *testing.T, d Driver) {
	t.Run("AmongManyCommandsToOthers", func(t *testing.T) {
		w := open(t, d)
		mine, gone := w.started(1), w.started(1)
		me := w.me
		w.me = w.register("other")
		theirs := []string{w.started(1), w.started(1), w.started(1)}
		w.me = me
		send := func(from, n int, ids ...string) {
			var commands []func(*journal.Append)
			for i := range n {
				commands = append(commands, commandTo(ids[i%len(ids)], journal.CommandSignal, fmt.Sprint(from+i)))
			}
			w.commit(appendTo(gone, from, 1, commands...))
		}
		send(1, journal.CommandScanLeast-2, theirs...)
		send(2, 1, mine)
		require.Len(t, w.pending(me), 1, "one less than is read through")
		send(3, 1, theirs...)
		require.Len(t, w.pending(me), 1)
		send(4, 7, theirs...)
		send(5, 3, mine)
		got := w.pending(me)
		require.Equal(t, w.unread(mine), got, "oldest first")
		require.Len(t, got, 4)
		some, err := w.j.PendingCommands(t.Context(), me, journal.CommandQuery{Limit: 2})
		require.NoError(t, err)
		require.Equal(t, got[:2], some)
		require.Empty(t, w.pending(journal.Owner{ID: "exec-a", Incarnation: 99}))
		all, err := w.j.PendingCommands(t.Context(), me, journal.CommandQuery{Limit: 9, Runs: journal.CommandScanLeast})
		require.NoError(t, err)
		require.Equal(t, got, all, "an owner of many runs reads through more")
	})
	t.Run("WithoutCommandsAlreadyRead", func(t *testing.T) {
		w := open(t, d)
		free, busy, ending := w.started(1), w.started(1), w.started(1)
		send := func(id string, kind journal.CommandKind, body string) {
			_, err := w.j.Enqueue(t.Context(), enqueue(id, kind, fmt.Sprint(len(w.unread(id))), func(p *journal.EnqueueRequest) { p.Command.Body = []byte(body) }))
			require.NoError(t, err)
		}
		for _, id := range []string{busy, ending, free} {
			send(id, journal.CommandSignal, "12345")
			send(id, journal.CommandCancel, "123456789")
		}
		got := func() (out []string) {
			ms, err := w.j.PendingCommands(t.Context(), w.me, journal.CommandQuery{Limit: 3, Small: 5, Busy: []string{busy, "run_none"}, Ending: []string{ending}})
			require.NoError(t, err)
			for _, m := range ms {
				out = append(out, fmt.Sprintf("%s %s %s %t", map[string]string{free: "free", busy: "busy", ending: "ending"}[m.RunID], m.Kind, m.Body, m.Left))
			}
			return out
		}
		want := []string{"busy CANCEL 123456789 false", "free SIGNAL 12345 false", "free CANCEL 123456789 false"}
		require.Equal(t, want, got())
		others := w.register("other")
		w.me, others = others, w.me
		theirs := w.started(1)
		w.me = others
		var commands []func(*journal.Append)
		for i := range journal.CommandScanLeast { // so much that it is looked for run by run
			commands = append(commands, commandTo(theirs, journal.CommandChildEnded, fmt.Sprint(i)))
		}
		w.commit(appendTo(free, 1, 1, commands...))
		require.Equal(t, want, got())
		send(free, journal.CommandSignal, "123456")
		ms, err := w.j.PendingCommands(t.Context(), w.me, journal.CommandQuery{Limit: 9, Small: 5, Busy: []string{busy}, Ending: []string{ending}})
		require.NoError(t, err)
		require.Len(t, ms, 4)
		require.True(t, ms[3].Left)
		require.Empty(t, ms[3].Body)
		require.Equal(t, "123456", string(w.unread(free)[2].Body))
	})
}
