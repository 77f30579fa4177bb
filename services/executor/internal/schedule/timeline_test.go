package schedule_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/schedule"
)

func at(t testing.TB, s string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, s)
	require.NoError(t, err)
	return v.UTC()
}

func timeline(t testing.TB, s schedule.Spec) *schedule.Timeline {
	t.Helper()
	l, err := s.Timeline("salt")
	require.NoError(t, err)
	return l
}

func TestTimeline(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec  schedule.Spec
		after string
		want  []string
	}{
		"Daily":           {schedule.Spec{Cron: "@daily"}, "2026-03-01T12:00:00Z", []string{"2026-03-02T00:00:00Z", "2026-03-03T00:00:00Z"}},
		"Every/FromEpoch": {schedule.Spec{Cron: "@every 90m"}, "1970-01-01T00:00:00Z", []string{"1970-01-01T01:30:00Z", "1970-01-01T03:00:00Z"}},
		"Every/FromBegin": {schedule.Spec{Cron: "@every 90m", Begin: at(t, "2026-01-01T00:10:00Z")}, "2025-01-01T00:00:00Z", []string{"2026-01-01T00:10:00Z", "2026-01-01T01:40:00Z"}},
		"DayOfMonthOrWeek": {schedule.Spec{Cron: "0 0 13 * 5"}, "2026-02-01T00:00:00Z",
			[]string{"2026-02-06T00:00:00Z", "2026-02-13T00:00:00Z", "2026-02-20T00:00:00Z", "2026-02-27T00:00:00Z", "2026-03-06T00:00:00Z", "2026-03-13T00:00:00Z"}},
		"LeapDay":     {schedule.Spec{Cron: "0 0 29 2 *"}, "2096-03-01T00:00:00Z", []string{"2104-02-29T00:00:00Z"}},
		"EndOfTime":   {schedule.Spec{Cron: "0 0 1 1 *", Begin: at(t, "9998-02-01T00:00:00Z")}, "2026-03-01T00:00:00Z", []string{""}},
		"EndOfTimeIn": {schedule.Spec{Cron: "@every 24h", Begin: at(t, "9999-12-31T23:59:59Z")}, "2026-03-01T00:00:00Z", []string{""}},
		// Schedules that were made when such lines were taken go on.
		"Every/OutOfTime": {schedule.Spec{Cron: "@every 999999h"}, "2026-03-01T12:00:00Z", []string{"2084-01-29T15:00:00Z", "2198-02-27T06:00:00Z", ""}},
		"Backwards":       {schedule.Spec{Cron: "0 22-1 * * *"}, "2026-03-01T22:30:00Z", []string{"2026-03-01T23:00:00Z", "2026-03-02T00:00:00Z", "2026-03-02T01:00:00Z", "2026-03-02T22:00:00Z"}},
		"BeginAndEnd":     {schedule.Spec{Cron: "0 * * * *", Begin: at(t, "2026-01-01T05:00:00Z"), End: at(t, "2026-01-01T06:00:00Z")}, "2025-12-31T00:00:00Z", []string{"2026-01-01T05:00:00Z", "2026-01-01T06:00:00Z", ""}},

		// Berlin leaves out 02:00 to 03:00 on 29 March 2026, and has it twice on 25 October.
		"Berlin/LeftOut":         {schedule.Spec{Cron: "30 2 * * *", Zone: "Europe/Berlin"}, "2026-03-27T12:00:00Z", []string{"2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z"}},
		"Berlin/LeftOutHour":     {schedule.Spec{Cron: "*/30 * * * *", Zone: "Europe/Berlin"}, "2026-03-29T00:10:00Z", []string{"2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"}},
		"Berlin/TwiceCountsOnce": {schedule.Spec{Cron: "30 2 * * *", Zone: "Europe/Berlin"}, "2026-10-24T12:00:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		"Berlin/TwiceHour":       {schedule.Spec{Cron: "*/30 * * * *", Zone: "Europe/Berlin"}, "2026-10-24T23:50:00Z", []string{"2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T02:00:00Z"}},
		"Berlin/InsideTheSecond": {schedule.Spec{Cron: "*/30 * * * *", Zone: "Europe/Berlin"}, "2026-10-25T01:10:00Z", []string{"2026-10-25T02:00:00Z", "2026-10-25T02:30:00Z"}},
		"Berlin/EveryGoesOn":     {schedule.Spec{Cron: "@every 30m", Zone: "Europe/Berlin"}, "2026-10-25T00:30:00Z", []string{"2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:00:00Z"}},

		"NewYork/LeftOut":         {schedule.Spec{Cron: "15 2 * * *", Zone: "America/New_York"}, "2026-03-07T12:00:00Z", []string{"2026-03-09T06:15:00Z"}},
		"NewYork/TwiceCountsOnce": {schedule.Spec{Cron: "15 1 * * *", Zone: "America/New_York"}, "2026-11-01T00:00:00Z", []string{"2026-11-01T05:15:00Z", "2026-11-02T06:15:00Z"}},
		// Lord Howe moves its clocks by half an hour only.
		"LordHowe/LeftOut": {schedule.Spec{Cron: "15 2 * * *", Zone: "Australia/Lord_Howe"}, "2026-10-03T00:00:00Z", []string{"2026-10-04T15:15:00Z"}},
		"LordHowe/Twice":   {schedule.Spec{Cron: "45 1 * * *", Zone: "Australia/Lord_Howe"}, "2026-04-04T00:00:00Z", []string{"2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"}},
		// Santiago changes at midnight, so that one midnight is missing.
		"Santiago/NoMidnight": {schedule.Spec{Cron: "0 0 * * *", Zone: "America/Santiago"}, "2026-09-05T12:00:00Z", []string{"2026-09-07T03:00:00Z"}},
		// Samoa left out a whole day when it crossed the date line.
		"Apia/NoDay": {schedule.Spec{Cron: "0 12 * * *", Zone: "Pacific/Apia"}, "2011-12-29T12:00:00Z", []string{"2011-12-29T22:00:00Z", "2011-12-30T22:00:00Z"}},
		"Kolkata":    {schedule.Spec{Cron: "0 9 * * 1-5", Zone: "Asia/Kolkata"}, "2026-06-05T12:00:00Z", []string{"2026-06-08T03:30:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, next := timeline(t, c.spec), at(t, c.after)
			for _, want := range c.want {
				next = l.Next(next)
				if want == "" {
					require.True(t, next.IsZero(), "got %v", next)
					return
				}
				require.Equal(t, want, next.Format(time.RFC3339))
			}
		})
	}
}

func TestTimelineProperties(t *testing.T) {
	t.Parallel()
	zones := []string{"", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Asia/Kolkata", "Africa/Casablanca", "Pacific/Apia"}
	lines := []string{"* * * * *", "*/7 1-3 * * *", "30 2 * * *", "0 0 * * *", "15 1,2 * * 0", "@hourly", "@every 37m"}
	rapid.Check(t, func(r *rapid.T) {
		spec := schedule.Spec{Cron: rapid.SampledFrom(lines).Draw(r, "line"), Zone: rapid.SampledFrom(zones).Draw(r, "zone")}
		spec.Jitter = time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(r, "jitter"))
		l, err := spec.Timeline(rapid.String().Draw(r, "salt"))
		require.NoError(r, err)
		from := time.Unix(rapid.Int64Range(1_262_304_000, 2_000_000_000).Draw(r, "from"), 0).UTC()
		zone := time.UTC
		if spec.Zone != "" {
			zone, err = time.LoadLocation(spec.Zone)
			require.NoError(r, err)
		}
		seen := map[string]bool{}
		prev, prevDue, n := from, time.Time{}, int64(0)
		for range 50 {
			next := l.Next(prev)
			require.True(r, next.After(prev))
			// Every time in between gives the same answer.
			between := prev.Add(time.Duration(rapid.Int64Range(0, int64(next.Sub(prev))-1).Draw(r, "between")))
			require.Equal(r, next, l.Next(between))
			due := l.Due(next)
			require.False(r, due.Before(next))
			require.Less(r, due.Sub(next), max(spec.Jitter, 1))
			require.False(r, due.Before(prevDue), "starts keep the order of their times")
			require.Equal(r, due, l.Due(next))
			if spec.Cron[0] != '@' || spec.Cron == "@hourly" {
				wall := next.In(zone).Format("2006-01-02 15:04")
				require.False(r, seen[wall], "%s came twice", wall)
				seen[wall] = true
			}
			prev, prevDue = next, due
			n++
		}
		count, last := l.Count(from, prev, 1000)
		require.Equal(r, n, count)
		require.Equal(r, prev, last)
	})
}

func TestSpecValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec schedule.Spec
		want []string
	}{
		"Good":       {schedule.Spec{Cron: "0 9 * * MON-FRI", Zone: "Europe/Berlin"}, nil},
		"AllAtOnce":  {schedule.Spec{Cron: "nonsense", Zone: "Europe/Nowhere", Overlap: 9, Catchup: time.Second, Jitter: -1, Begin: time.Unix(9, 0), End: time.Unix(8, 0)}, []string{"overlap", "catchup_window", "jitter", "end_time", "time_zone", "cron"}},
		"SixFields":  {schedule.Spec{Cron: "0 0 9 * * *"}, []string{"cron"}},
		"ZoneInLine": {schedule.Spec{Cron: "TZ=Europe/Berlin 0 9 * * *"}, []string{"cron"}},
		"Reboot":     {schedule.Spec{Cron: "@reboot"}, []string{"cron"}},
		"Backwards":  {schedule.Spec{Cron: "5-1 * * * *"}, []string{"cron"}},
		"HoursBack":  {schedule.Spec{Cron: "0 9,22-2 * * *"}, []string{"cron"}},
		"DaysBack":   {schedule.Spec{Cron: "0 0 * * FRI-MON"}, []string{"cron"}},
		"MonthsBack": {schedule.Spec{Cron: "0 0 * nov-Feb *"}, []string{"cron"}},
		"ToSunday":   {schedule.Spec{Cron: "0 0 * * FRI-SUN"}, nil},
		"ToSeventh":  {schedule.Spec{Cron: "0 0 * * 5-7"}, nil},
		"Lists":      {schedule.Spec{Cron: " 0,30  1-5/2,*/6 1,15 jan,6 ? "}, nil},
		"EmptyItem":  {schedule.Spec{Cron: "1,,2 * * * *"}, []string{"cron"}},
		"OnlyComma":  {schedule.Spec{Cron: ", * * * *"}, []string{"cron"}},
		"OpenRange":  {schedule.Spec{Cron: "*-5 * * * *"}, []string{"cron"}},
		"StepOfZero": {schedule.Spec{Cron: "*/0 * * * *"}, []string{"cron"}},
		"Minute60":   {schedule.Spec{Cron: "60 * * * *"}, []string{"cron"}},
		"LastDay":    {schedule.Spec{Cron: "0 0 L * *"}, []string{"cron"}},
		"NthDay":     {schedule.Spec{Cron: "0 0 * * 5#2"}, []string{"cron"}},
		"PartSecond": {schedule.Spec{Cron: "@every 1.5s"}, []string{"cron"}},
		"Millis":     {schedule.Spec{Cron: "@every 1ms"}, []string{"cron"}},
		"Century":    {schedule.Spec{Cron: "@every 999999h"}, []string{"cron"}},
		"CronZone":   {schedule.Spec{Cron: "CRON_TZ=Europe/Berlin 0 9 * * *"}, []string{"cron"}},
		"Feb31":      {schedule.Spec{Cron: "* * 31 2 *"}, []string{"cron"}},
		"TooOften":   {schedule.Spec{Cron: "@every 500ms"}, []string{"cron"}},
		"Negative":   {schedule.Spec{Cron: "@every -1h"}, []string{"cron"}},
		"NeverComes": {schedule.Spec{Cron: "0 0 30 2 *"}, []string{"cron"}},
		"LocalZone":  {schedule.Spec{Cron: "@daily", Zone: "Local"}, []string{"time_zone"}},
		"ZoneIsPath": {schedule.Spec{Cron: "@daily", Zone: "../../etc/passwd"}, []string{"time_zone"}},
		"Empty":      {schedule.Spec{}, []string{"cron"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, v := range c.spec.Validate(errs.New(errs.InvalidArgument, schedule.ReasonInvalid, "no")).Violations {
				got = append(got, v.Field[len("schedule."):])
			}
			require.Equal(t, c.want, got)
		})
	}
}

func FuzzCron(f *testing.F) {
	for _, s := range []string{"* * * * *", "@every 1h", "0 0 31 2 *", "*/5 1-3,7 ? JAN-MAR SUN", "@weekly", "H * * * *", "0 0 L * *", "1/0 * * * *"} {
		f.Add(s, "Europe/Berlin")
	}
	f.Fuzz(func(t *testing.T, line, zone string) {
		if len(line) > 256 || len(zone) > 64 {
			return
		}
		s := schedule.Spec{Cron: line, Zone: zone}
		if len(s.Validate(errs.New(errs.InvalidArgument, schedule.ReasonInvalid, "no")).Violations) > 0 {
			return
		}
		l, err := s.Timeline("")
		require.NoError(t, err)
		now := time.Unix(1_800_000_000, 0)
		if next := l.Next(now); !next.IsZero() {
			require.True(t, next.After(now))
		}
	})
}
