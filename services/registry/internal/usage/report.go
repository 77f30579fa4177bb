package usage

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// ReportKey is what a report groups by. Its numbers are those of the API.
type ReportKey int16

// The keys of reports.
const (
	ByEpic ReportKey = iota + 1
	ByTask
	ByRun
	ByNode
	ByActor
	ByModel
	ByDay
)

const (
	// ReasonReportTooLarge refuses a report that would read more entries than MaxReported.
	ReasonReportTooLarge = "REPORT_TOO_LARGE"
	// ReasonDayInvalid refuses a day that is not like 2026-01-31.
	ReasonDayInvalid = "DAY_INVALID"
	// MaxReported is how many entries a report reads that no sums of days answer.
	MaxReported = 100_000
)

// Sum is a sum of entries with its classes of tokens.
type Sum struct {
	Calls, FailedCalls, UnpricedCalls int64
	InputTokens, CachedInputTokens    int64
	OutputTokens, ReasoningTokens     int64
	NanoUSD                           int64
}

// Report is the sum of one group.
type Report struct {
	// Keys are in the order of the query. A day is its number since 1970.
	Keys []string
	Sum
}

// Size implements page.Row.
func (r Report) Size() int {
	n := 128
	for _, k := range r.Keys {
		n += len(k)
	}
	return n
}

// Day is a UTC day, counted from 1970.
type Day int64

// dayOf returns the day of a time.
func dayOf(t time.Time) Day {
	return Day(math.Floor(float64(t.Unix()) / (24 * 60 * 60)))
}

// ParseDay reads a day like 2026-01-31.
func ParseDay(field, s string) (Day, error) {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil || t.Year() < 1 {
		return 0, errs.New(errs.InvalidArgument, ReasonDayInvalid, "%s is no day: %q", field, s).
			Violate(field, ReasonDayInvalid, "must be a day in UTC like 2026-01-31").Hint("write it as YEAR-MONTH-DAY, such as 2026-01-31")
	}
	return dayOf(t), nil
}

// Time is the beginning of the day.
func (d Day) Time() time.Time { return time.Unix(int64(d)*24*60*60, 0).UTC() }

// String is the day like 2026-01-31.
func (d Day) String() string { return d.Time().Format(time.DateOnly) }

// DaySum is what entries of one day, epic, model, actor and kind add up to. Of each there is one
// more whose Whole is set: that of the namespace, which leaves the epics out of account.
type DaySum struct {
	Whole        bool
	EpicID       string
	Day          Day
	Model, Actor string
	Kind         Kind
	Sum          Sum
}

// NodeSum is what entries of one day, epic, node and kind add up to. It knows no model and no actor: with
// them its key could be larger than PostgreSQL takes.
type NodeSum struct {
	DaySum
	NodeID string
}

// Compare orders sums by what they are of, the one order in which everybody writes them.
func (s NodeSum) Compare(o NodeSum) int {
	return cmp.Or(s.DaySum.Compare(o.DaySum), cmp.Compare(s.NodeID, o.NodeID))
}

// Compare orders sums by what they are of, the one order in which everybody writes them.
func (s DaySum) Compare(o DaySum) int {
	whole := func(w bool) int {
		if w {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(whole(s.Whole), whole(o.Whole)), cmp.Compare(s.EpicID, o.EpicID), cmp.Compare(s.Day, o.Day),
		cmp.Compare(s.Model, o.Model), cmp.Compare(s.Actor, o.Actor), cmp.Compare(s.Kind, o.Kind))
}

// Sum returns what the entry alone adds up to. Cached and reasoning tokens are parts of input and
// output, and so at most these.
func (e Entry) Sum() (Sum, error) {
	t, err := e.Totals()
	if err != nil {
		return Sum{}, err
	}
	s := Sum{
		Calls: t.ModelCalls + t.ToolCalls, UnpricedCalls: t.UnpricedCalls, NanoUSD: t.NanoUSD,
		InputTokens: e.InputTokens, CachedInputTokens: within(e.CachedInputTokens, e.InputTokens),
		OutputTokens: e.OutputTokens, ReasoningTokens: within(e.ReasoningTokens, e.OutputTokens),
	}
	if e.Failed {
		s.FailedCalls = s.Calls
	}
	return s, nil
}

// within is a part that is no more than the whole. Both are negative in a reversal.
func within(part, whole int64) int64 {
	if whole < 0 {
		return max(part, whole)
	}
	return min(part, whole)
}

// DaySums adds up entries by day, each for its epic and for the namespace, in order. Sums are in
// range where the totals of the entries are.
func DaySums(entries []Entry) ([]DaySum, error) {
	out, err := sumBy(entries, func(e Entry) NodeSum {
		return NodeSum{DaySum: DaySum{EpicID: e.EpicID, Day: dayOf(e.Time), Model: e.Model, Actor: e.Actor, Kind: e.Kind}}
	})
	days := make([]DaySum, len(out))
	for i, s := range out {
		days[i] = s.DaySum
	}
	return days, err
}

// NodeSums adds up entries by day and node, each for its epic and for the namespace, in order.
func NodeSums(entries []Entry) ([]NodeSum, error) {
	return sumBy(entries, func(e Entry) NodeSum {
		return NodeSum{DaySum: DaySum{EpicID: e.EpicID, Day: dayOf(e.Time), Kind: e.Kind}, NodeID: e.NodeID}
	})
}

// sumBy adds up entries by what of names, and by the same without the epic.
func sumBy(entries []Entry, of func(Entry) NodeSum) ([]NodeSum, error) {
	at := map[NodeSum]int{}
	var out []NodeSum
	for _, e := range entries {
		one, err := e.Sum()
		if err != nil {
			return nil, err
		}
		key := of(e)
		whole := key
		whole.Whole, whole.EpicID = true, ""
		for _, k := range []NodeSum{key, whole} {
			i, ok := at[k]
			if !ok {
				i = len(out)
				at[k], out = i, append(out, k)
			}
			out[i].Sum = out[i].Sum.plus(one)
		}
	}
	slices.SortFunc(out, NodeSum.Compare)
	return out, nil
}

// RunSum is what entries of one epic, task, run, model, actor and kind add up to. Entries of no epic
// have none.
type RunSum struct {
	EpicID, TaskID, RunID string
	Model, Actor          string
	Kind                  Kind
	Sum                   Sum
}

// Compare orders sums by what they are of, the one order in which everybody writes them.
func (s RunSum) Compare(o RunSum) int {
	return cmp.Or(cmp.Compare(s.EpicID, o.EpicID), cmp.Compare(s.TaskID, o.TaskID), cmp.Compare(s.RunID, o.RunID),
		cmp.Compare(s.Model, o.Model), cmp.Compare(s.Actor, o.Actor), cmp.Compare(s.Kind, o.Kind))
}

// RunSums adds up the entries of epics by run, in order.
func RunSums(entries []Entry) ([]RunSum, error) {
	at := map[RunSum]int{}
	var out []RunSum
	for _, e := range entries {
		if e.EpicID == "" {
			continue
		}
		one, err := e.Sum()
		if err != nil {
			return nil, err
		}
		k := RunSum{EpicID: e.EpicID, TaskID: e.TaskID, RunID: e.RunID, Model: e.Model, Actor: e.Actor, Kind: e.Kind}
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k], out = i, append(out, k)
		}
		out[i].Sum = out[i].Sum.plus(one)
	}
	slices.SortFunc(out, RunSum.Compare)
	return out, nil
}

// EpicSum is what entries of one epic add up to; those of no epic have one of their own.
type EpicSum struct {
	EpicID string
	Sum    Sum
}

// Sums are all sums that entries add to.
type Sums struct {
	Days  []DaySum
	Nodes []NodeSum
	Runs  []RunSum
	Epics []EpicSum
	// Outputs take the places of older samples.
	Outputs []OutputSample
}

// SumUp adds up entries, each kind of sums in the one order in which everybody writes them.
func SumUp(entries []Entry) (s Sums, err error) {
	if s.Days, err = DaySums(entries); err != nil {
		return Sums{}, err
	}
	if s.Nodes, err = NodeSums(entries); err != nil {
		return Sums{}, err
	}
	if s.Runs, err = RunSums(entries); err != nil {
		return Sums{}, err
	}
	for _, d := range s.Days { // they come by epic
		if d.Whole {
			continue
		}
		if n := len(s.Epics); n == 0 || s.Epics[n-1].EpicID != d.EpicID {
			s.Epics = append(s.Epics, EpicSum{EpicID: d.EpicID})
		}
		last := &s.Epics[len(s.Epics)-1]
		last.Sum = last.Sum.plus(d.Sum)
	}
	s.Outputs = OutputSamples(entries)
	return s, nil
}

// plus returns the sum of both. The caller knows that it is in range.
func (s Sum) plus(o Sum) Sum {
	return Sum{
		Calls: s.Calls + o.Calls, FailedCalls: s.FailedCalls + o.FailedCalls, UnpricedCalls: s.UnpricedCalls + o.UnpricedCalls,
		InputTokens: s.InputTokens + o.InputTokens, CachedInputTokens: s.CachedInputTokens + o.CachedInputTokens,
		OutputTokens: s.OutputTokens + o.OutputTokens, ReasoningTokens: s.ReasoningTokens + o.ReasoningTokens, NanoUSD: s.NanoUSD + o.NanoUSD,
	}
}
