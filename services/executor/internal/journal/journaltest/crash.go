package journaltest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	childEnv = "EPIGRAPH_JOURNALTEST_CHILD"
	childID  = "crasher"
)

// Child must be called first in TestMain of a driver's tests. In the process that the crash case
// kills it never returns; elsewhere it does nothing.
func Child(d Driver) {
	place := os.Getenv(childEnv)
	if place == "" {
		return
	}
	if err := child(context.Background(), d, place); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child starts runs, appends to them with commands, and releases them in the end, for as long as it lives.
// It prints each write after it was told that it is durable.
func child(ctx context.Context, d Driver, place string) error {
	j, err := d.Open(ctx, place)
	if err != nil {
		return err
	}
	me, err := j.Register(ctx, childID, "")
	if err != nil {
		return err
	}
	if _, err := j.TakeOver(ctx, me, journal.TakeOverOptions{Lease: time.Hour, Limit: 1000}); err != nil {
		return err
	}
	wr := journal.NewWriter(j, me, journal.WriterOptions{})
	var out sync.Mutex
	told := func(r journal.Result) {
		out.Lock()
		defer out.Unlock()
		fmt.Println(r.RunID, r.LastSeq)
	}
	inbox := start(2, func(s *journal.Start) { s.Outbox = []journal.Out{{Kind: "k"}} })
	if _, err := j.Commit(ctx, me, []journal.Write{{Start: inbox}}); err != nil {
		return err
	}
	for range 8 {
		go func() {
			for {
				s := start(2, func(s *journal.Start) { s.Outbox = []journal.Out{{Kind: "k"}} })
				if r, err := wr.Do(ctx, journal.Write{Start: s}); err == nil {
					told(r)
				}
				for last := 2; last < 40; last += 2 {
					r, err := wr.Do(ctx, appendTo(s.Run.ID, last, 2, func(a *journal.Append) {
						a.Outbox, a.Progress = []journal.Out{{Kind: "k"}}, true
						a.Status = &journal.Status{State: journal.StateRunning, Usage: journal.Usage{Calls: int64(last + 2)}}
						a.Command = []journal.Command{{RunID: inbox.Run.ID, Kind: journal.CommandMessage, Key: fmt.Sprintf("%s/%d", a.RunID, last), Time: base}}
						if last == 38 {
							a.Status.State, a.Release = journal.StateWaiting, true
							a.Jobs = []journal.Job{{Kind: journal.JobWake}}
						}
					}))
					if err == nil {
						told(r)
					}
				}
			}
		}()
	}
	return wr.Run(ctx)
}

// crashCase kills a committing process a few times and checks after each that everything it was
// told is there, that nothing is there by half, and that the next owner can go on.
func crashCase(t *testing.T, d Driver) {
	place := d.Fresh(t)
	acked := map[string]int64{}
	for round := range 4 {
		killCommitting(t, place, 200, acked)
		w := &world{t: t, d: d, place: place}
		w.j = w.another()
		// The database may still be at work on what the dead process had sent: the next incarnation waits
		// for that and fences the rest.
		w.me = w.register(childID)
		check(t, w, acked)
		res := w.takeOver(w.me, journal.TakeOverOptions{Lease: time.Hour, Limit: 10_000})
		require.NotEmpty(t, res.Claimed, "round %d", round)
		require.Empty(t, res.Quarantined)
		var batch []journal.Write
		for _, c := range res.Claimed {
			batch = append(batch, appendTo(c.RunID, int(c.LastSeq), 1, func(a *journal.Append) {
				a.Progress, a.Status = true, &journal.Status{State: journal.StateCompleted}
			}))
			acked[c.RunID] = c.LastSeq + 1
		}
		for _, r := range w.commit(batch...) {
			require.NoError(t, r.Err)
		}
	}
}

// killedCase takes over the runs of a process that was killed, under another name and long before its lease
// has ended.
func killedCase(t *testing.T, d Driver) {
	place := d.Fresh(t)
	acked := map[string]int64{}
	killCommitting(t, place, 50, acked)
	w := &world{t: t, d: d, place: place}
	w.j = w.another()
	w.me = w.register("another-name")
	res := w.takeOver(w.me, journal.TakeOverOptions{Lease: time.Hour, Limit: 10_000})
	if !d.SeesEnds {
		require.Empty(t, res.Claimed, "its lease lasts")
		return
	}
	require.NotEmpty(t, res.Claimed)
	for _, c := range res.Claimed {
		require.Equal(t, childID, c.From.ID)
		require.Equal(t, 1, c.Takeovers)
		delete(acked, c.RunID)
	}
	for id := range acked {
		require.True(t, w.get(id).Owner.IsZero(), "only released runs were left")
	}
}

func killCommitting(t *testing.T, place string, after int, acked map[string]int64) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+place)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	guard := time.AfterFunc(waitLong, func() { _ = cmd.Process.Kill() })
	defer guard.Stop()
	lines := bufio.NewReader(stdout)
	n := 0
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			// A last line may be torn: it does not count.
			require.ErrorIs(t, err, io.EOF)
			break
		}
		var id string
		var seq int64
		_, err = fmt.Sscan(strings.TrimSpace(line), &id, &seq)
		require.NoError(t, err, line)
		acked[id] = max(acked[id], seq)
		if n++; n == after {
			require.NoError(t, cmd.Process.Kill())
		}
	}
	require.Error(t, cmd.Wait(), "it was killed")
	require.GreaterOrEqual(t, n, after)
}

func check(t *testing.T, w *world, acked map[string]int64) {
	t.Helper()
	rows, err := w.j.List(t.Context(), ns, journal.Filter{}, page.Cursor{}, 100_000)
	require.NoError(t, err)
	have := map[string]journal.Run{}
	commands, jobs := map[string]int64{}, map[string]bool{}
	for _, key := range w.d.Query(t, w.place, `SELECT key FROM commands WHERE kind = 'MESSAGE'`) {
		commands[strings.Split(key, "/")[0]]++
	}
	for _, j := range w.jobs() {
		jobs[strings.Fields(j)[2]] = true
	}
	var items int64
	for _, r := range rows {
		have[r.ID] = r
		es := w.events(r.ID)
		require.Len(t, es, int(r.LastSeq), "row and journal agree")
		// Every commit of the child wrote two events and one item.
		items += r.LastSeq / 2
		switch r.State {
		case journal.StateRunning:
			// All but its start wrote a command.
			require.Equal(t, (r.LastSeq-2)/2, commands[r.ID], "commands and its event")
		case journal.StateWaiting:
			require.True(t, r.Owner.IsZero())
			require.True(t, jobs[r.ID], "released without a job")
		}
	}
	for id, seq := range acked {
		require.GreaterOrEqual(t, have[id].LastSeq, seq, "acknowledged and lost")
	}
	backlog, err := w.j.OutboxBacklog(t.Context())
	require.NoError(t, err)
	require.Equal(t, items, backlog)
}
