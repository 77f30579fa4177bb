package journal

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// Limits bound what one write may carry.
type Limits struct {
	// Payload is the hard limit of one opaque value in bytes.
	Payload int
	// Write is the hard limit of all values of one write together.
	Write int
}

// DefaultLimits are 4 MiB for one value and 32 MiB for one write.
func DefaultLimits() Limits { return Limits{Payload: 4 << 20, Write: 32 << 20} }

// Validate checks what a database could refuse and what the contract of Write asks, so that a write
// that passes is not expected to be refused. Errors are permanent: ReasonPayloadTooLarge and ReasonWriteInvalid.
func Validate(w Write, l Limits) error {
	c := check{limits: l}
	switch {
	case (w.Start == nil) == (w.Append == nil):
		c.fail("exactly one of start and append must be set")
	case w.Start != nil:
		c.start(w.Start)
	default:
		c.append(w.Append)
	}
	if c.err == nil && l.Write > 0 && c.size > l.Write {
		return tooLarge("the write", c.size, l.Write)
	}
	return c.err
}

type check struct {
	limits Limits
	size   int
	err    error
}

func (c *check) start(s *Start) {
	r := &s.Run
	c.need("run id", r.ID)
	c.need("namespace", r.Namespace)
	c.need("graph hash", r.GraphHash)
	if len(s.Events) == 0 {
		c.fail("a start needs an event")
	}
	if r.CreateTime.IsZero() {
		c.fail("a start needs a creation time")
	}
	c.texts("run", r.ID, r.Namespace, r.GraphName, r.GraphHash, r.TaskID, r.UserID, r.ChatID, r.ThreadID, r.BusinessKey, r.ParentID, r.RootID,
		r.TraceParent, r.TraceState, s.Request.ID, s.Request.BodyHash)
	for k, v := range r.Labels {
		c.texts("label", k, v)
	}
	c.bytes("metadata", r.Metadata)
	c.bytes("args", r.Args)
	c.bytes("named", r.Named)
	c.bytes("context", r.Context)
	c.bytes("attachments", r.Attachments)
	c.bytes("graph", s.Graph)
	c.time(r.CreateTime)
	c.status(&r.Status)
	c.outcome(&r.Outcome)
	c.events(s.Events)
	c.outbox(s.Outbox)
	c.snapshot(s.Snapshot)
}

func (c *check) append(a *Append) {
	c.need("run id", a.RunID)
	c.need("namespace", a.Namespace)
	c.texts("run", a.RunID, a.Namespace)
	if a.ExpectedLastSeq < 0 {
		c.fail("the expected sequence is negative")
	}
	if len(a.Outbox) > 0 && len(a.Events) == 0 {
		c.fail("outbox items need an event")
	}
	if a.Status != nil {
		c.status(a.Status)
	}
	if a.Outcome != nil {
		c.outcome(a.Outcome)
	}
	c.events(a.Events)
	c.outbox(a.Outbox)
	c.snapshot(a.Snapshot)
}

func (c *check) status(s *Status) {
	if s.State < StatePending || s.State > StateCanceled {
		c.fail("the state is not one")
	}
	c.texts("reason", s.Reason)
	for _, t := range []time.Time{s.StartTime, s.EndTime, s.UpdateTime, s.WakeTime} {
		c.time(t)
	}
}

func (c *check) outcome(o *Outcome) {
	c.bytes("result", o.Result)
	c.bytes("outputs", o.Outputs)
	c.bytes("error", o.Error)
}

func (c *check) events(es []Event) {
	for i := range es {
		e := &es[i]
		if e.Kind <= 0 || e.Visit < 0 {
			c.fail("an event needs a kind, and a visit that is not negative")
		}
		c.time(e.Time)
		c.texts("event", e.NodeID)
		what := "event"
		if e.NodeID != "" {
			what += " of node " + e.NodeID
		}
		c.bytes(what, e.Data)
		c.size += eventOverhead
	}
}

func (c *check) outbox(os []Out) {
	for i := range os {
		c.need("outbox kind", os[i].Kind)
		c.texts("outbox kind", os[i].Kind)
		c.bytes("outbox item", os[i].Body)
		c.size += eventOverhead
	}
}

// A snapshot is as large as the run makes it, so only the whole write bounds it.
func (c *check) snapshot(b []byte) { c.size += len(b) }

func (c *check) need(what, s string) {
	if s == "" {
		c.fail(what + " is missing")
	}
}

func (c *check) texts(what string, ss ...string) {
	for _, s := range ss {
		c.size += len(s)
		if len(s) > maxText {
			c.fail("a text of " + what + " is too long")
		}
		// Postgres keeps neither.
		if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
			c.fail("a text of " + what + " is not clean UTF-8")
		}
	}
}

func (c *check) bytes(what string, b []byte) {
	c.size += len(b)
	if c.limits.Payload > 0 && len(b) > c.limits.Payload && c.err == nil {
		c.err = tooLarge(what, len(b), c.limits.Payload)
	}
}

func (c *check) time(t time.Time) {
	// Outside of these years the stores differ.
	if !t.IsZero() && (t.Year() < 1 || t.Year() > 9999) {
		c.fail("a time is out of range")
	}
}

func (c *check) fail(msg string) {
	if c.err == nil {
		c.err = errs.New(errs.InvalidArgument, ReasonWriteInvalid, "%s", msg)
	}
}

func tooLarge(what string, n, limit int) error {
	return errs.New(errs.ResourceExhausted, ReasonPayloadTooLarge, "%s is %d bytes, the limit is %d", what, n, limit).
		Hint("keep large values outside and pass a reference")
}

const (
	// maxText keeps every indexed text below what a Postgres index entry can hold.
	maxText = 512
	// eventOverhead is about what a row costs besides its values.
	eventOverhead = 96
)

// Rows returns about how many rows w writes; it is at least 1.
func (w Write) Rows() int {
	if s := w.Start; s != nil {
		return 2 + len(s.Run.Labels) + len(s.Events) + len(s.Outbox)
	}
	if a := w.Append; a != nil {
		return max(1, len(a.Events)+len(a.Outbox))
	}
	return 1
}

// Size returns about how many bytes w writes.
func (w Write) Size() int {
	c := check{}
	if w.Start != nil {
		c.start(w.Start)
	} else if w.Append != nil {
		c.append(w.Append)
	}
	return c.size
}

// RunID returns the run that w writes to.
func (w Write) RunID() string {
	if w.Start != nil {
		return w.Start.Run.ID
	}
	if w.Append != nil {
		return w.Append.RunID
	}
	return ""
}

// Namespace returns the tenant of w.
func (w Write) Namespace() string {
	if w.Start != nil {
		return w.Start.Run.Namespace
	}
	if w.Append != nil {
		return w.Append.Namespace
	}
	return ""
}
