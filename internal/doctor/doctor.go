// Package doctor is the framework in which services examine their stores: a list of probes, each of which
// looks for one kind of harm, and the report of their findings. It must not know the content of any store,
// nor how a service is reached.
package doctor

import (
	"context"
	"fmt"
	"time"
)

// Severity says how bad a finding is.
type Severity int

// The severities. A note is worth knowing, a warning should be looked at, a fault must never exist.
const (
	Note Severity = iota + 1
	Warning
	Fault
)

// String is the word for it.
func (s Severity) String() string {
	switch s {
	case Note:
		return "note"
	case Warning:
		return "warning"
	case Fault:
		return "fault"
	}
	return "unknown"
}

// MarshalText makes it its word in JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MaxExamples is how many examples a probe gives at most, unless everything is asked for.
const MaxExamples = 20

// MaxAll is how many it gives when everything is asked for.
const MaxAll = 10_000

// Probe looks for one kind of harm.
type Probe struct {
	// Name is stable and identifies the probe in reports.
	Name     string
	Severity Severity
	// What is the kind of finding, RecoveryStep the way to deal with it.
	What, RecoveryStep string
	// Look returns its findings, each in one line that begins with an id, at most limit+1 of them. No
	// findings mean that all is well.
	Look func(ctx context.Context, limit int) ([]string, error)
}

// Finding is what a probe found.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Count    int      `json:"count"`
	// More says that there is more than was counted.
	More         bool     `json:"more,omitempty"`
	What         string   `json:"what"`
	RecoveryStep string   `json:"recovery_step,omitempty"`
	Examples     []string `json:"examples"`
}

// Report is what became of an examination.
type Report struct {
	Service string `json:"service"`
	Store   string `json:"store"`
	// Checks is the number of probes that looked, Sampled the number of runs (or rows) that were examined one
	// by one; 0 means all of them.
	Checks   int           `json:"checks"`
	Sampled  int           `json:"sampled,omitempty"`
	Took     time.Duration `json:"took_ns"`
	Findings []Finding     `json:"findings"`
}

// Worst is the highest severity found; 0 when nothing was.
func (r Report) Worst() Severity {
	var worst Severity
	for _, f := range r.Findings {
		worst = max(worst, f.Severity)
	}
	return worst
}

// Options bound an examination.
type Options struct {
	// All looks at everything, however long it takes, in place of a sample.
	All bool
	// Timeout bounds one probe; 0 means 20 seconds, or an hour with All.
	Timeout time.Duration
}

// Examine runs the probes one after the other. A probe that cannot look is reported as a warning, because its
// findings are unknown.
func Examine(ctx context.Context, service, store string, o Options, probes []Probe) Report {
	begin := time.Now()
	r := Report{Service: service, Store: store, Checks: len(probes), Findings: []Finding{}}
	limit := MaxExamples
	if o.All {
		limit = MaxAll
	}
	if o.Timeout <= 0 {
		if o.Timeout = 20 * time.Second; o.All {
			o.Timeout = time.Hour
		}
	}
	for _, p := range probes {
		c, cancel := context.WithTimeout(ctx, o.Timeout)
		found, err := p.Look(c, limit)
		cancel()
		if err != nil {
			r.Findings = append(r.Findings, Finding{Check: p.Name, Severity: Warning, Count: 1, What: "this could not be examined",
				RecoveryStep: "look at the error; --all gives each interrupt more time", Examples: []string{err.Error()}})
		}
		if len(found) == 0 {
			continue
		}
		f := Finding{Check: p.Name, Severity: p.Severity, What: p.What, RecoveryStep: p.RecoveryStep, Examples: found}
		if len(found) > limit {
			f.More, f.Examples = true, found[:limit]
		}
		f.Count = len(f.Examples)
		r.Findings = append(r.Findings, f)
	}
	r.Took = time.Since(begin)
	return r
}

// Skew returns a finding if the clock of a database differs from this machine's. The clock was asked at sent
// and answered at got. It returns nothing if the round trip can explain the difference or it is below
// tolerance.
func Skew(sent, theirs, got time.Time, tolerance time.Duration) []string {
	var off time.Duration
	switch {
	case theirs.Before(sent):
		off = theirs.Sub(sent)
	case theirs.After(got):
		off = theirs.Sub(got)
	}
	if off.Abs() <= tolerance {
		return nil
	}
	way := "ahead of"
	if off < 0 {
		way = "behind"
	}
	return []string{fmt.Sprintf("the database's clock is %s %s this machine's", off.Abs().Round(time.Millisecond), way)}
}
