package workgraph

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// machine drives a bare State by hand, one attempt at a time and in any order.
type machine struct {
	t       *testing.T
	s       *State
	now     time.Time
	open    map[Ref]Start
	events  []Event
	cancels []Ref
	fx      Effects // of the last command
	p       *Program
}

func newMachine(t *testing.T, p *Program) *machine {
	return &machine{t: t, p: p, s: New(p, "run"), now: time.Unix(1000, 0).UTC(), open: map[Ref]Start{}}
}

func (m *machine) do(cmd Command) {
	m.t.Helper()
	require.NoError(m.t, m.try(cmd))
}

func (m *machine) try(cmd Command) error {
	evs, fx, err := m.s.Advance(cmd)
	m.events = append(m.events, evs...)
	m.fx = fx
	for _, st := range fx.Starts {
		m.open[st.Ref] = st
	}
	m.cancels = append(m.cancels, fx.Cancels...)
	return err
}

func (m *machine) begin(args ...string) {
	m.t.Helper()
	in := Input{}
	for _, a := range args {
		in.Args = append(in.Args, one(a)...)
	}
	m.do(Begin{Input: in, Now: m.now})
}

func (m *machine) ref(id string) Ref {
	m.t.Helper()
	var found *Ref
	for r := range m.open {
		if r.Node == id && (found == nil || r.Visit > found.Visit) {
			found = &r
		}
	}
	require.NotNil(m.t, found, "%s is not in flight", id)
	return *found
}

func (m *machine) args(id string) []string {
	var out []string
	for _, a := range m.open[m.ref(id)].Args {
		out = append(out, string(a))
	}
	return out
}

func (m *machine) end(id string, out Outcome) {
	m.t.Helper()
	m.endRef(m.ref(id), &out, nil)
}

func (m *machine) fail(id string, err *Error) {
	m.t.Helper()
	m.endRef(m.ref(id), nil, err)
}

func (m *machine) endRef(r Ref, out *Outcome, err *Error) {
	m.t.Helper()
	st := m.open[r]
	delete(m.open, r)
	m.do(Ended{Ref: r, Attempt: st.Attempt, Outcome: out, Err: err, Now: m.now})
}

func (m *machine) status(id string) VisitStatus {
	var st VisitStatus
	m.s.Visits(func(v VisitInfo) bool {
		if v.Node == id && v.Item == 0 {
			st = v.Status
		}
		return true
	})
	return st
}
