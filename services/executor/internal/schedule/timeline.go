package schedule

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strings"
	"time"
	_ "time/tzdata" // a zone must mean the same on every machine

	cron "github.com/netresearch/go-cron"

	"github.com/epigraph-run/epigraph/internal/dbkit"
)

const (
	// MinEvery is the shortest interval of "@every".
	MinEvery = time.Second
	// MaxEvery is the longest interval of "@every" that a new schedule may have.
	MaxEvery = 10 * 366 * 24 * time.Hour
	// searchYears is how far ahead a time is searched for: the 29th of February may be eight years away.
	searchYears = 12
	// searchSteps bounds the local times that may follow each other without one that exists or is new.
	searchSteps = 100_000
)

// doomsday is the end of all schedules. Neither JSON nor the stores' text forms have years of five digits,
// and one such time in a queue keeps others from being read.
var doomsday = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Timeline is the times of a schedule. It is a value without state: the same question always has the same
// answer.
type Timeline struct {
	line   *cron.SpecSchedule // nil when it repeats by a fixed interval
	every  time.Duration
	anchor time.Time
	zone   *time.Location

	begin, end time.Time
	jitter     time.Duration
	salt       string
}

// parseCron reads five fields, a name such as @daily, or "@every 15m".
func parseCron(text string) (*cron.SpecSchedule, time.Duration, error) {
	text = strings.TrimSpace(text)
	if strings.Contains(text, "TZ=") {
		return nil, 0, errors.New("the zone does not belong into the line: give time_zone")
	}
	if strings.HasPrefix(text, "@reboot") {
		return nil, 0, errors.New("@reboot names no time")
	}
	p, err := cron.TryNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom)
	if err != nil {
		return nil, 0, err
	}
	s, err := p.WithMinEveryInterval(MinEvery).WithMaxSearchYears(searchYears).Parse(text)
	if err != nil {
		return nil, 0, err
	}
	switch s := s.(type) {
	case *cron.SpecSchedule:
		// Local times are computed as if they were UTC; localTime applies the zone.
		s.Location = time.UTC
		s.DowOrDom = !strings.HasPrefix(text, "@")
		return s, 0, nil
	case cron.ConstantDelaySchedule:
		return nil, s.Delay, nil
	}
	return nil, 0, fmt.Errorf("%q is no line of cron", text)
}

// wanted is the interval as written, of which the parser keeps whole seconds only; 0 if there is none.
func (s *Spec) wanted() time.Duration {
	d, err := time.ParseDuration(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(s.Cron), "@every")))
	if err != nil {
		return 0
	}
	return d
}

func loadZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	if strings.EqualFold(name, "local") {
		return nil, errors.New("a zone is named by its place, such as Europe/Berlin")
	}
	return time.LoadLocation(name)
}

// Timeline returns the times that s means; it fails only if s is not valid. salt makes the jitter of one
// schedule differ from that of others.
func (s *Spec) Timeline(salt string) (*Timeline, error) {
	zone, err := loadZone(s.Zone)
	if err != nil {
		return nil, fmt.Errorf("time zone: %w", err)
	}
	line, every, err := parseCron(s.Cron)
	if err != nil {
		return nil, fmt.Errorf("cron: %w", err)
	}
	t := &Timeline{line: line, every: every, anchor: time.Unix(0, 0).UTC(), zone: zone, begin: s.Begin, end: s.End, jitter: s.Jitter, salt: salt}
	if !s.Begin.IsZero() {
		t.anchor = s.Begin
	}
	return t, nil
}

// Next is the first time after t; zero when there is none.
func (l *Timeline) Next(t time.Time) time.Time {
	if !l.begin.IsZero() && t.Before(l.begin) {
		t = l.begin.Add(-time.Microsecond)
	}
	var next time.Time
	if l.line == nil {
		next = l.tick(t)
	} else {
		next = l.local(t)
	}
	if next.IsZero() || !next.Before(doomsday) || !l.end.IsZero() && next.After(l.end) {
		return time.Time{}
	}
	return dbkit.Micros(next)
}

// tick is the first multiple of the interval after t, counted from the anchor.
func (l *Timeline) tick(t time.Time) time.Time {
	d := t.Sub(l.anchor)
	if d == math.MaxInt64 || d == math.MinInt64 {
		return time.Time{} // centuries away
	}
	n := d / l.every
	if d < 0 && d%l.every != 0 {
		n--
	}
	if int64(n) >= math.MaxInt64/int64(l.every) {
		return time.Time{} // centuries away, too
	}
	return l.anchor.Add(time.Duration(int64(n)+1) * l.every)
}

// local iterates over local times until one exists in the zone and is after t. A time that the clocks skip is
// left out, and one that comes twice counts where it comes first.
func (l *Timeline) local(t time.Time) time.Time {
	at := t.In(l.zone)
	_, offset := at.Zone()
	wall := at.Add(time.Duration(offset) * time.Second).UTC()
	for range searchSteps {
		wall = l.line.Next(wall)
		if wall.IsZero() {
			return wall
		}
		if next, ok := localTime(wall, l.zone); ok && next.After(t) {
			return next
		}
	}
	return time.Time{}
}

// localTime is the first instant at which the clocks of zone show wall, which is given as if it were UTC.
func localTime(wall time.Time, zone *time.Location) (first time.Time, ok bool) {
	guess := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), wall.Nanosecond(), zone)
	begin, end := guess.ZoneBounds()
	around := []time.Time{guess}
	if !begin.IsZero() {
		around = append(around, begin.Add(-time.Nanosecond))
	}
	if !end.IsZero() {
		around = append(around, end)
	}
	for _, a := range around {
		_, offset := a.Zone()
		at := wall.Add(-time.Duration(offset) * time.Second)
		if _, have := at.In(zone).Zone(); have == offset && (!ok || at.Before(first)) {
			first, ok = at, true
		}
	}
	return first, ok
}

// Due is when the start for t, one of the times, is to happen: up to the jitter later, but before the next
// time and not after the end.
func (l *Timeline) Due(t time.Time) time.Time {
	room := l.jitter
	if room <= 0 {
		return t
	}
	if next := l.Next(t); !next.IsZero() {
		room = min(room, next.Sub(t))
	}
	if !l.end.IsZero() {
		room = min(room, l.end.Sub(t))
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%d", l.salt, t.UnixMicro())
	// The last bits of such a hash are poor: it is stirred once more.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return dbkit.Micros(t.Add(time.Duration(float64(room) * (float64(x>>11) / (1 << 53)))))
}

// Count returns the number of times after from, up to to, and the last of them. It stops counting at most.
func (l *Timeline) Count(from, to time.Time, most int64) (n int64, last time.Time) {
	if l.line == nil {
		first := l.Next(from)
		if first.IsZero() || first.After(to) {
			return 0, time.Time{}
		}
		if !l.end.IsZero() && to.After(l.end) {
			to = l.end
		}
		k := int64(to.Sub(first) / l.every)
		return min(k+1, most), first.Add(time.Duration(k) * l.every)
	}
	for t := l.Next(from); !t.IsZero() && !t.After(to) && n < most; t = l.Next(t) {
		n, last = n+1, t
	}
	return n, last
}
