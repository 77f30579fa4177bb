package journal

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
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

// Validate checks what a database could refuse and what the contract of Write asks, so that a write that
// passes is not expected to be refused. Errors are permanent: ReasonPayloadTooLarge and ReasonWriteInvalid.
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
	if len(s.Events) == 0 && (r.State != StatePending || len(s.Outbox) > 0) {
		c.fail("a start needs an event unless it is pending and has no outbox items")
	}
	if r.Priority < 0 || r.Priority > 4 {
		c.fail("the priority is not 0 to 4")
	}
	if r.CreateTime.IsZero() {
		c.fail("a start needs a creation time")
	}
	c.texts("the run's graph name", r.GraphName)
	c.texts("the run's business key", r.BusinessKey)
	c.texts("the run's user id", r.UserID)
	c.texts("the run's chat id", r.ChatID)
	c.texts("the run's thread id", r.ThreadID)
	c.texts("the run's task id", r.TaskID)
	c.texts("the request id", s.Request.ID, s.Request.Method)
	if s.Request.ID != "" {
		c.need("method", s.Request.Method)
	}
	c.texts("the run", r.ID, r.Namespace, r.GraphHash, r.ParentID, r.RootID, r.TraceParent, r.TraceState, r.ForkedFrom, r.ScheduleID, r.EpicID, r.WorkflowVersion, s.Request.BodyHash)
	for k, v := range r.Labels {
		c.texts("the key of a label", k)
		c.texts(fmt.Sprintf("the label %.64q", k), v)
	}
	c.bytes("metadata", r.Metadata)
	c.bytes("args", r.Args)
	c.bytes("named", r.Named)
	c.bytes("context", r.Context)
	c.bytes("attachments", r.Attachments)
	c.time(r.CreateTime)
	c.time(r.Deadline)
	c.status(&r.Status)
	c.outcome(&r.Outcome)
	if a := &s.Append; a.RunID+a.Namespace+a.GraphHash != "" || a.ExpectedLastSeq != 0 || a.Status != nil || a.Outcome != nil || a.Metadata != nil || a.Release {
		c.fail("what a start appends is about the run itself, and changes nothing in its row")
	}
	c.additions(r.ID, &s.Append)
}

func (c *check) append(a *Append) {
	c.need("run id", a.RunID)
	c.need("namespace", a.Namespace)
	c.texts("the run", a.RunID, a.Namespace)
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
	c.additions(a.RunID, a)
	c.texts("the graph hash", a.GraphHash)
	c.bytes("metadata", a.Metadata)
	if (a.GraphHash == "") != (len(a.Graph) == 0) {
		c.fail("a graph and its hash come together")
	}
	if a.Release && a.Status != nil && a.Status.State == StateRunning {
		c.fail("a running run cannot be released by its own write")
	}
}

// additions checks what hangs on the rows of a run.
func (c *check) additions(runID string, a *Append) {
	c.bytes("graph", a.Graph)
	c.events(a.Events)
	c.outbox(a.Outbox)
	c.snapshot(a.Snapshot)
	c.commands(runID, a.Command)
	c.jobs(a.Jobs)
	c.opened(a.Opened)
	c.threads(a.Threads)
	for i := range a.Closed {
		cl := &a.Closed[i]
		c.need("interrupt id", cl.ID)
		c.texts("the closed interrupt", cl.ID, cl.Decision, cl.By)
		c.bytes("answer", cl.Answer)
		c.time(cl.Time)
		if cl.State <= InterruptOpen || cl.State > InterruptCanceled {
			c.fail("a closed interrupt needs a state that is closed")
		}
	}
}

// ValidateEnqueue checks a request to enqueue, as Validate checks writes.
func ValidateEnqueue(p EnqueueRequest, l Limits) error {
	c := check{limits: l}
	c.need("run id", p.Command.RunID)
	c.need("namespace", p.Command.Namespace)
	c.texts("the request id", p.Request.ID)
	c.texts("the request", p.Command.Namespace, p.Command.RunID, p.Request.BodyHash, p.Request.Method)
	if p.Request.ID != "" {
		c.need("method", p.Request.Method)
	}
	c.commands("", []Command{p.Command})
	c.text("the reason", p.Reason, maxReason)
	if a := p.Answer; a != nil {
		c.need("interrupt id", a.InterruptID)
		c.texts("by", a.By, a.Principal)
		c.texts("the answer", a.InterruptID, a.Decision)
		c.bytes("answer", a.Answer)
	}
	return c.err
}

func (c *check) commands(from string, ms []Command) {
	for i := range ms {
		m := &ms[i]
		c.need("target of commands", m.RunID)
		c.need("kind of commands", string(m.Kind))
		c.texts("the commands", m.RunID, string(m.Kind), m.Key)
		c.bytes("commands", m.Body)
		c.time(m.Time)
		if m.RunID == from {
			c.fail("a run cannot write commands to itself")
		}
		c.size += eventOverhead
	}
}

func (c *check) jobs(js []Job) {
	for i := range js {
		j := &js[i]
		c.need("job kind", string(j.Kind))
		c.texts("the job", string(j.Kind), j.RunID)
		c.bytes("job", j.Args)
		c.time(j.At)
		if len(j.Args) > 0 && !json.Valid(j.Args) {
			c.fail("the arguments of a job are not JSON")
		}
		c.size += eventOverhead
	}
}

func (c *check) threads(as []thread.Append) {
	for i := range as {
		a := &as[i]
		c.need("thread id", a.Thread)
		c.texts("the thread", a.Thread)
		c.time(a.Time)
		if cr := a.Create; cr != nil {
			c.texts("the new thread", cr.Parent, cr.Agent, cr.Key, cr.Title, cr.UserID, cr.ChatID)
			c.size += eventOverhead
		}
		for j := range a.Items {
			it := &a.Items[j]
			if it.Seq != a.After+int64(j)+1 || it.Kind <= 0 || it.Visit < 0 {
				c.fail("an item of a thread needs a kind, the next sequence, and a visit that is not negative")
			}
			c.texts("the item of a thread", it.RunID, it.NodeID)
			c.bytes("brief of an item of a thread", it.Brief)
			c.bytes("item of a thread", it.Body)
			c.size += eventOverhead
		}
	}
}

func (c *check) opened(is []Interrupt) {
	for i := range is {
		q := &is[i]
		c.need("interrupt id", q.ID)
		c.texts("the interrupt", q.ID, q.NodeID, q.RootID)
		for _, b := range [][]byte{q.Prompt, q.Schema, q.Approve, q.Default} {
			c.bytes("interrupt", b)
		}
		c.time(q.CreateTime)
		c.time(q.ExpireTime)
		if q.CreateTime.IsZero() || q.State != InterruptOpen {
			c.fail("a new interrupt is open and has a creation time")
		}
		c.size += eventOverhead
	}
}

func (c *check) status(s *Status) {
	if s.State < StatePending || s.State > StateCanceled {
		c.fail("the state is not one")
	}
	c.text("the reason", s.Reason, maxReason)
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
		c.texts("the event", e.NodeID)
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
		c.texts("the outbox kind", os[i].Kind)
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
		c.text(what, s, maxText)
	}
}

func (c *check) text(what, s string, limit int) {
	c.size += len(s)
	switch { // Postgres keeps none of these
	case len(s) > limit:
		c.fail(fmt.Sprintf("%s has %d bytes, the limit is %d", what, len(s), limit))
	case !utf8.ValidString(s):
		c.fail(what + " is not UTF-8")
	case strings.IndexByte(s, 0) >= 0:
		c.fail(what + " contains the NUL character")
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
	// maxReason is for reasons, which are no part of any index.
	maxReason = 4096
	// eventOverhead is about what a row costs besides its values.
	eventOverhead = 96
)

// Rows returns about how many rows w writes; it is at least 1.
func (w Write) Rows() int {
	row, a := 0, w.Append
	if s := w.Start; s != nil {
		row, a = 2+len(s.Run.Labels), &s.Append
	}
	if a == nil {
		return 1
	}
	for i := range a.Threads {
		row += 1 + len(a.Threads[i].Items)
	}
	return max(1, row+len(a.Events)+len(a.Outbox)+len(a.Command)+len(a.Jobs))
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
