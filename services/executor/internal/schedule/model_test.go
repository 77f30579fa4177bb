package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// world is a schedule, its runs and its executors in a time of their own.
type world struct {
	s      Schedule
	now    time.Time
	starts map[int64]Start
	ends   map[string]time.Time
	began  map[string]time.Time
	// lasts is how long the run for a time goes on.
	lasts func(t time.Time) time.Duration
	up    func(time.Time) time.Time
}

// Open implements Tx.
func (w *world) Open(context.Context, int) (out []string, _ error) {
	for id, end := range w.ends {
		if end.After(w.now) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Queue implements Tx.
func (w *world) Queue(context.Context) (out []Start, _ error) {
	for _, turn := range slices.Sorted(maps.Keys(w.starts)) {
		if st := w.starts[turn]; st.Result == Queued {
			out = append(out, st)
		}
	}
	return out, nil
}

// Times implements Tx.
func (w *world) Times(_ context.Context, begin, end time.Time) (out []Start, _ error) {
	for _, turn := range slices.Sorted(maps.Keys(w.starts)) {
		if st := w.starts[turn]; st.Origin != FromTrigger && !st.Time.Before(begin) && st.Time.Before(end) {
			out = append(out, st)
		}
	}
	slices.SortStableFunc(out, func(a, b Start) int { return a.Time.Compare(b.Time) })
	return out, nil
}

// Request implements Tx.
func (w *world) Request(context.Context, string) (string, Start, bool, error) {
	return "", Start{}, false, nil
}

// fire does the work of Controller.Fire, and now and then forgets what it has just done, like a process that
// dies. It does not die every time.
func (w *world) fire(t require.TestingT, dies func() bool) {
	var done []outcome
	deaths := 0
	for {
		s := w.s
		p, err := look(context.Background(), w, &s, w.now)
		require.NoError(t, err)
		require.NoError(t, p.applyOutcomes(done))
		more := p.take()
		starts, cancel := p.ready()
		c, err := p.close()
		if !errors.Is(err, ErrUnchanged) {
			require.NoError(t, err)
			w.s = s
			for _, st := range c.Put {
				w.starts[st.Turn] = st
			}
		}
		for _, id := range cancel {
			w.ends[id] = w.now
		}
		done = nil
		if len(starts) == 0 && !more {
			if len(cancel) > 0 {
				continue // the end of the run sends a message
			}
			return
		}
		for _, st := range starts {
			if _, again := w.began[st.RunID]; !again {
				w.began[st.RunID] = w.now
				w.ends[st.RunID] = w.up(w.now.Add(w.lasts(st.Time)))
			}
			if deaths < 5 && dies() {
				deaths++
				done = nil
				break
			}
			done = append(done, outcome{turn: st.Turn, runID: st.RunID})
		}
	}
}

// pattern is a line of cron that is simple enough to be understood in another way.
type pattern struct {
	minute, hour int // hour -1 is every one; minute is a step if hour is -1
}

func (p pattern) line() string {
	if p.hour < 0 {
		return fmt.Sprintf("*/%d * * * *", p.minute)
	}
	return fmt.Sprintf("%d %d * * *", p.minute, p.hour)
}

// times walks through every minute of the span and looks at the clock on the wall.
func (p pattern) times(zone *time.Location, from, to time.Time) (out []time.Time) {
	seen := map[string]bool{}
	for t := from.Add(-26 * time.Hour).Truncate(time.Minute); !t.After(to); t = t.Add(time.Minute) {
		wall := t.In(zone)
		text := wall.Format("2006-01-02 15:04")
		if seen[text] {
			continue
		}
		seen[text] = true
		if (p.hour < 0 && wall.Minute()%p.minute == 0 || p.hour == wall.Hour() && p.minute == wall.Minute()) && t.After(from) {
			out = append(out, t.UTC())
		}
	}
	return out
}

// reference says in plain words which times are started, and when.
func reference(times []time.Time, o Overlap, catchup time.Duration, up func(time.Time) time.Time, lasts func(time.Time) time.Duration) (began map[time.Time]time.Time, late int) {
	began = map[time.Time]time.Time{}
	var busyUntil time.Time
	var waiting []time.Time
	start := func(t, at time.Time) {
		began[t] = at
		busyUntil = up(at.Add(lasts(t)))
	}
	drain := func(now time.Time) {
		for len(waiting) > 0 && !busyUntil.After(now) {
			start(waiting[0], busyUntil)
			waiting = waiting[1:]
		}
	}
	for i, t := range times {
		at := up(t)
		if at.Sub(t) > catchup {
			late++
			continue
		}
		drain(at)
		busy := busyUntil.After(at)
		switch {
		case o == Allow || !busy:
			start(t, at)
		case o == QueueAll, o == QueueOne && len(waiting) == 0:
			waiting = append(waiting, t)
		case o == CancelOther:
			// Of several times that come at once while a run is open, the last one counts. A time that found
			// no open run is started first.
			if i+1 == len(times) || !up(times[i+1]).Equal(at) {
				start(t, at)
			}
		}
	}
	drain(busyUntil.Add(1000 * time.Hour))
	return began, late
}

// describe returns a readable list of the starts.
func describe(began map[time.Time]time.Time) (out []string) {
	for t, at := range began {
		out = append(out, t.Format(time.RFC3339)+" at "+at.UTC().Format(time.RFC3339Nano))
	}
	slices.Sort(out)
	return out
}

func TestStartsAreThoseOfTheReference(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		name := rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago"}).Draw(r, "zone")
		zone, err := time.LoadLocation(name)
		require.NoError(r, err)
		p := pattern{rapid.SampledFrom([]int{7, 15, 20, 30}).Draw(r, "minute"), rapid.SampledFrom([]int{-1, -1, 0, 1, 2, 3}).Draw(r, "hour")}
		// Around changes of the clocks, and anywhere else.
		day := rapid.SampledFrom([]string{"2026-03-28", "2026-10-24", "2026-03-07", "2026-10-31", "2026-04-04", "2026-10-03", "2026-09-05", "2026-06-01"}).Draw(r, "day")
		from, err := time.Parse(time.DateOnly, day)
		require.NoError(r, err)
		from = from.Add(time.Duration(rapid.IntRange(0, 86_400).Draw(r, "second")) * time.Second)
		to := from.Add(40 * time.Hour)
		o := Overlap(rapid.IntRange(int(Skip), int(Allow)).Draw(r, "overlap"))
		catchup := time.Duration(rapid.IntRange(10, 3*3600).Draw(r, "catchup")) * time.Second
		type outage struct{ begin, end time.Time }
		var outages []outage
		for range rapid.IntRange(0, 4).Draw(r, "outages") {
			begin := from.Add(time.Duration(rapid.IntRange(0, 40*3600).Draw(r, "begin")) * time.Second)
			outages = append(outages, outage{begin, begin.Add(time.Duration(rapid.IntRange(1, 5*3600).Draw(r, "length")) * time.Second)})
		}
		slices.SortFunc(outages, func(a, b outage) int { return cmp.Or(a.begin.Compare(b.begin), a.end.Compare(b.end)) })
		up := func(t time.Time) time.Time {
			for _, x := range outages {
				if !t.Before(x.begin) && t.Before(x.end) {
					t = x.end
				}
			}
			return t
		}
		seed := rapid.Int64Range(1, 1<<40).Draw(r, "durations")
		lasts := func(t time.Time) time.Duration {
			// Never whole minutes, so that nothing ends at the very time of a start.
			return time.Duration((t.Unix()^seed)%5400)*time.Second + 501*time.Millisecond
		}
		dies := rapid.IntRange(0, 3).Draw(r, "dies")
		spec := Spec{Cron: p.line(), Zone: name, Overlap: o, Catchup: catchup}
		w := &world{now: from, starts: map[int64]Start{}, ends: map[string]time.Time{}, began: map[string]time.Time{}, lasts: lasts, up: up}
		w.s = Schedule{Key: Key{"n", "s"}, UID: "u", Spec: spec, Done: from, Due: from}
		n := 0
		die := func() bool { n++; return dies > 0 && n%4 < dies && n%7 != 0 }

		// A replica that is up looks after it when a time has come, a run has ended, or an outage is over.
		line, err := spec.Timeline("u")
		require.NoError(r, err)
		for w.now.Before(to) {
			next := to
			soon := func(t time.Time) {
				if t = up(t); t.After(w.now) && t.Before(next) {
					next = t
				}
			}
			if t := line.Next(w.s.Done); !t.IsZero() {
				soon(t)
			}
			for _, end := range w.ends {
				soon(end)
			}
			if w.now = next; w.now.Before(to) {
				w.fire(r, die)
			}
		}

		times := p.times(zone, from, to.Add(-time.Second))
		times = slices.DeleteFunc(times, func(t time.Time) bool { return !up(t).Before(to) })
		want, late := reference(times, o, catchup, up, lasts)
		maps.DeleteFunc(want, func(_, at time.Time) bool { return !at.Before(to) })
		got := map[time.Time]time.Time{}
		missed := w.s.Skipped
		for _, st := range w.starts {
			if st.Result == SkippedOverlap || st.Result == Queued {
				continue
			}
			require.Equal(r, Started, st.Result)
			require.NotContains(r, got, st.Time, "started twice")
			got[st.Time] = w.began[st.RunID]
		}
		require.Equal(r, describe(want), describe(got))
		require.GreaterOrEqual(r, missed, int64(late))
		require.Len(r, w.began, len(got), "every run is known")
	})
}
