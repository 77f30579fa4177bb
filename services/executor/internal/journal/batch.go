package journal

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

// RunBatch is all that one commit writes for one run. Only drivers use it.
type RunBatch struct {
	Namespace, RunID string
	// Start is set if the batch begins with one. Its status, outcome and so on are in the fields below as
	// well.
	Start    *Start
	Expected int64
	// Events carry RunID, Seq and cut times.
	Events      []Event
	Outbox      []OutRow
	Status      *Status
	Outcome     *Outcome
	Snapshot    []byte
	SnapshotSeq int64
	Progress    bool
	// Release ends the ownership; GraphChanges counts the times the run was pinned to another graph, Graph
	// being the last one's body.
	Release      bool
	GraphHash    string
	Graph        []byte
	GraphChanges int
	// Metadata takes the place of the run's; nil leaves it.
	Metadata []byte
	Command  []Command
	// Claims says that the runs that get commands, and the batch's own run if it is released, are claimed:
	// see Append.
	Claims  bool
	Applied []int64
	Jobs    []JobRow
	// Holds says that the run may hold threads.
	Holds  bool
	Opened []Interrupt
	Closed []Closing
	Kept   []KeptOutcome
	Blobs  []BlobRef
	// Threads are what is to be added to threads, within Room. NewThreads, ThreadItems, ThreadAgents
	// and ThreadUsage are what a resolved batch writes of that.
	Threads      []thread.Append
	Room         thread.Room
	ThreadUsage  thread.Usage
	NewThreads   []thread.Thread
	ThreadItems  []thread.ItemOf
	ThreadAgents []thread.AgentOf
	// ThreadOutbox are the outbox items of that.
	ThreadOutbox []OutRow

	// HoldsKey, CancelReason and CancelTime are what a resolved Start's row begins with.
	HoldsKey     bool
	CancelReason string
	CancelTime   time.Time
	// CancelRequestedOf is the run that loses its key to this one.
	CancelRequestedOf string

	parts []part
}

// OutRow is an outbox item with its place, which is one among those of a run or a thread.
type OutRow struct {
	// Thread is empty for an item of the run of the batch.
	Thread  string
	Seq     int64
	Ordinal int
	Kind    string
	Body    []byte
}

type part struct {
	index   int
	lastSeq int64
}

// Pending reports whether the batch begins a run that nobody owns yet.
func (u *RunBatch) Pending() bool { return u.Start != nil && u.Start.Run.State == StatePending }

// Ends reports whether the run is over with this batch.
func (u *RunBatch) Ends() bool { return u.Status != nil && u.Status.State.Ended() }

// TouchesRow reports whether an append changes the run's row. For the others the events alone say where the
// journal ends.
func (u *RunBatch) TouchesRow() bool {
	return u.Status != nil || u.Outcome != nil || u.Release || u.GraphChanges > 0 || u.Metadata != nil
}

// LastSeq is where the journal ends after the batch.
func (u *RunBatch) LastSeq() int64 { return u.Expected + int64(len(u.Events)) }

// Attempt commits batches in one transaction and reports what became of each through done. An error
// means that nothing was committed.
type Attempt func(ctx context.Context, units []*RunBatch, done *Outcomes) error

// Outcomes collects what became of batches, by run.
type Outcomes struct {
	byBatch map[*RunBatch]batchResult
	claimed map[string]bool
}

type batchResult struct {
	err      error
	runID    string // another run, for a Start that was answered by one
	repeated bool
	revision int64
}

// Committed notes that the batch is durable with this revision.
func (o *Outcomes) Committed(u *RunBatch, revision int64) {
	o.byBatch[u] = batchResult{revision: revision}
}

// Claimed notes that the committing executor owns a run since now: one of Around.Claims.
func (o *Outcomes) Claimed(runID string) {
	if o.claimed == nil {
		o.claimed = map[string]bool{}
	}
	o.claimed[runID] = true
}

// Refused notes that the batch was not written and why.
func (o *Outcomes) Refused(u *RunBatch, err error) { o.byBatch[u] = batchResult{err: err} }

// Answered notes that a Start was answered by another run; repeated tells that its request id said so.
func (o *Outcomes) Answered(u *RunBatch, runID string, repeated bool) {
	o.byBatch[u] = batchResult{runID: runID, repeated: repeated}
}

// CommitBatches is the part of Commit that all drivers share: it folds the writes, calls attempt, and
// when permanent says that an error lies in a row, bisects until that row is alone.
func CommitBatches(ctx context.Context, writes []Write, permanent func(error) bool, attempt Attempt) ([]Result, error) {
	results := make([]Result, len(writes))
	units := coalesce(writes, results)
	out := &Outcomes{byBatch: make(map[*RunBatch]batchResult, len(units))}
	if err := bisect(ctx, units, permanent, attempt, out); err != nil {
		return nil, err
	}
	for _, u := range units {
		r, ok := out.byBatch[u]
		if !ok {
			r.err = errs.New(errs.Internal, errs.ReasonInternal, "no outcome for run %s", u.RunID)
		}
		u.report(results, r)
		if r.err == nil && u.Claims {
			u.reportClaimed(&results[u.parts[len(u.parts)-1].index], out)
		}
	}
	return results, nil
}

func bisect(ctx context.Context, units []*RunBatch, permanent func(error) bool, attempt Attempt, out *Outcomes) error {
	if len(units) == 0 {
		return nil
	}
	try := &Outcomes{byBatch: make(map[*RunBatch]batchResult, len(units))}
	err := attempt(ctx, units, try)
	switch {
	case err == nil:
		for u, r := range try.byBatch {
			out.byBatch[u] = r
		}
		for id := range try.claimed {
			out.Claimed(id)
		}
		return nil
	case !permanent(err):
		return err
	case len(units) == 1:
		out.Refused(units[0], errs.New(errs.InvalidArgument, ReasonRowRefused, "the database refused to write to run %s", units[0].RunID).With(err))
		return nil
	}
	mid := len(units) / 2
	if err := bisect(ctx, units[:mid], permanent, attempt, out); err != nil {
		return err
	}
	return bisect(ctx, units[mid:], permanent, attempt, out)
}

func (u *RunBatch) report(results []Result, r batchResult) {
	for _, p := range u.parts {
		res := Result{RunID: u.RunID}
		isStart := u.Start != nil && p.index == u.parts[0].index
		switch {
		case r.err != nil:
			res.Err = r.err
		case r.runID != "" && isStart:
			res.RunID, res.Repeated = r.runID, r.repeated
		case r.runID != "":
			res.Err = RunNotFound(u.RunID)
		default:
			res.LastSeq, res.Revision = p.lastSeq, r.revision
			if isStart {
				res.Created, res.CancelRequestedOf = true, u.CancelRequestedOf
			}
		}
		results[p.index] = res
	}
}

func (u *RunBatch) reportClaimed(res *Result, out *Outcomes) {
	claimed := func(id string) {
		if out.claimed[id] && !slices.Contains(res.Claimed, id) {
			res.Claimed = append(res.Claimed, id)
		}
	}
	for i := range u.Command {
		claimed(u.Command[i].RunID)
	}
	if u.Release {
		claimed(u.RunID)
	}
}

// coalesce makes one batch per run, in order of appearance. Writes that do not follow on each other get
// their result at once and are left out, with all later ones of their run.
func coalesce(writes []Write, results []Result) []*RunBatch {
	units := make([]*RunBatch, 0, len(writes))
	byRun := make(map[string]*RunBatch, len(writes))
	broken := map[string]error{}
	for i, w := range writes {
		id := w.RunID()
		if err := broken[id]; err != nil {
			results[i] = Result{Err: err, RunID: id}
			continue
		}
		u := byRun[id]
		if err := follows(u, w); err != nil {
			broken[id] = err
			results[i] = Result{Err: err, RunID: id}
			continue
		}
		if u == nil {
			u = &RunBatch{Namespace: w.Namespace(), RunID: id}
			byRun[id] = u
			units = append(units, u)
		}
		if w.Start != nil {
			u.addStart(w.Start)
		} else {
			u.addAppend(w.Append)
		}
		u.parts = append(u.parts, part{index: i, lastSeq: u.LastSeq()})
	}
	return units
}

func follows(u *RunBatch, w Write) error {
	switch {
	case (w.Start == nil) == (w.Append == nil):
		return errs.New(errs.InvalidArgument, ReasonWriteInvalid, "exactly one of start and append must be set")
	case u == nil:
		return nil
	case w.Start != nil:
		return errs.New(errs.AlreadyExists, ReasonRunExists, "run %s was started already", u.RunID)
	case w.Append.Namespace != u.Namespace:
		return RunNotFound(u.RunID)
	case u.Release:
		return errs.New(errs.Conflict, ReasonNotOwner, "run %s was released before this write", u.RunID)
	case w.Append.ExpectedLastSeq != u.LastSeq():
		return SeqConflict(u.RunID, w.Append.ExpectedLastSeq, u.LastSeq())
	}
	return nil
}

func (u *RunBatch) addStart(s *Start) {
	u.Start = s
	outcome := s.Run.Outcome
	u.Status, u.Outcome = cut(s.Run.Status), &outcome
	u.addAppend(&s.Append)
}

func (u *RunBatch) addAppend(a *Append) {
	if len(u.parts) == 0 && u.Start == nil {
		u.Expected = a.ExpectedLastSeq
	}
	if a.Status != nil {
		u.Status = cut(*a.Status)
	}
	if a.Outcome != nil {
		u.Outcome = a.Outcome
	}
	u.Progress = u.Progress || a.Progress
	u.Release = u.Release || a.Release
	u.Claims = u.Claims || a.Claims
	u.Holds = u.Holds || a.Holds
	u.Room = cmp.Or(a.Room, u.Room)
	if a.GraphHash != "" {
		u.GraphHash, u.Graph = a.GraphHash, a.Graph
		u.GraphChanges++
	}
	switch {
	case a.Metadata == nil:
	case u.Start != nil:
		s := *u.Start
		s.Run.Metadata, u.Start = a.Metadata, &s
	default:
		u.Metadata = a.Metadata
	}
	u.Applied = append(u.Applied, a.Applied...)
	u.Kept = append(u.Kept, a.Kept...)
	for _, c := range a.Closed {
		c.Time = dbkit.Micros(c.Time)
		if i := slices.IndexFunc(u.Opened, func(o Interrupt) bool { return o.ID == c.ID }); i < 0 {
			u.Closed = append(u.Closed, c)
		} else if o := &u.Opened[i]; o.State == InterruptOpen {
			o.State, o.Answer, o.Decision, o.By, o.CloseTime = c.State, c.Answer, c.Decision, c.By, c.Time
		}
	}
	u.add(a)
}

// add adds what is written beside the row of the run. Outbox items and the snapshot take their place from
// the last event.
func (u *RunBatch) add(a *Append) {
	if u.Events == nil {
		u.Events = make([]Event, 0, len(a.Events))
	}
	for _, e := range a.Events {
		e.RunID, e.Seq, e.Time = u.RunID, u.LastSeq()+1, dbkit.Micros(e.Time)
		u.Events = append(u.Events, e)
	}
	for i, o := range a.Outbox {
		u.Outbox = append(u.Outbox, OutRow{Seq: u.LastSeq(), Ordinal: i, Kind: o.Kind, Body: o.Body})
	}
	if a.Snapshot != nil {
		u.Snapshot, u.SnapshotSeq = a.Snapshot, u.LastSeq()
	}
	for _, m := range a.Command {
		m.Namespace, m.Time = u.Namespace, dbkit.Micros(m.Time)
		u.Command = append(u.Command, m)
	}
	for _, j := range a.Jobs {
		u.Jobs = append(u.Jobs, MakeJob(u.Namespace, u.RunID, j))
	}
	for _, i := range a.Opened {
		i.Namespace, i.RunID = u.Namespace, u.RunID
		if i.RootID == "" && u.Start != nil {
			i.RootID = cmp.Or(u.Start.Run.RootID, u.RunID)
		}
		i.CreateTime, i.ExpireTime = dbkit.Micros(i.CreateTime), dbkit.Micros(i.ExpireTime)
		u.Opened = append(u.Opened, i)
	}
	u.Blobs = append(u.Blobs, a.Blobs...)
	u.Threads = append(u.Threads, a.Threads...)
}

func cut(s Status) *Status {
	s.StartTime, s.EndTime = dbkit.Micros(s.StartTime), dbkit.Micros(s.EndTime)
	s.UpdateTime, s.WakeTime = dbkit.Micros(s.UpdateTime), dbkit.Micros(s.WakeTime)
	return &s
}

// SeqConflict is the error of a journal that ends at have, not at want.
func SeqConflict(runID string, want, have int64) error {
	return errs.New(errs.Conflict, ReasonSeqConflict, "the journal of run %s ends at %d, not at %d", runID, have, want)
}

// FoundRow is what a driver found of a run whose guarded write did not take.
type FoundRow struct {
	Found     bool
	Namespace string
	Owner     Owner
	// LastSeq is that of the last event.
	LastSeq    int64
	Revision   int64
	CreateTime time.Time
	// Events are those stored at the batch's sequences.
	Events []Event
}

// ClassifyConflict tells why a batch was not written: an identical commit wrote it before, or it lost.
func ClassifyConflict(u *RunBatch, owner Owner, s FoundRow, done *Outcomes) {
	switch {
	case !s.Found && u.Start != nil:
		done.Refused(u, keyInUse(u.Start.Run.BusinessKey, ""))
	case !s.Found || s.Namespace != u.Namespace:
		done.Refused(u, RunNotFound(u.RunID))
	case len(u.Events) > 0 && s.LastSeq >= u.LastSeq() && slices.EqualFunc(u.Events, s.Events, sameEvent):
		done.Committed(u, s.revision(u))
	case u.Start != nil && len(u.Events) == 0 && s.CreateTime.Equal(dbkit.Micros(u.Start.Run.CreateTime)):
		done.Committed(u, s.Revision)
	// What was asked is so: the run is somebody else's, or nobody's.
	case u.Release && len(u.Events) == 0 && s.Owner != owner && s.LastSeq >= u.Expected:
		done.Committed(u, s.Revision)
	case u.Start != nil:
		done.Refused(u, errs.New(errs.AlreadyExists, ReasonRunExists, "run %s exists with another history", u.RunID))
	case s.Owner != owner:
		done.Refused(u, errs.New(errs.Conflict, ReasonNotOwner, "run %s belongs to another executor", u.RunID))
	default:
		done.Refused(u, SeqConflict(u.RunID, u.Expected, s.LastSeq))
	}
}

// revision is what a batch that was committed before is answered with.
func (s *FoundRow) revision(u *RunBatch) int64 {
	if u.Start == nil && !u.TouchesRow() {
		return 0
	}
	return s.Revision
}

func sameEvent(a, b Event) bool {
	return a.RunID == b.RunID && a.Seq == b.Seq && a.Time.Equal(b.Time) && a.Kind == b.Kind && a.NodeID == b.NodeID &&
		a.Visit == b.Visit && bytes.Equal(a.Data, b.Data)
}

func keyInUse(key, runID string) error {
	return errs.New(errs.AlreadyExists, ReasonBusinessKeyInUse, "an open run has the business key %q", key).
		Set("run_id", runID).Hint("wait for it, or ask for another conflict policy")
}

// Key names something of a namespace.
type Key struct{ Namespace, Name string }

// RequestKey names a request of a namespace.
type RequestKey struct{ Namespace, Method, ID string }

// Seen is what a request id was answered with.
type Seen struct{ BodyHash, RunID string }

// Preconditions is what stands in the database before starts are resolved: answers by request id, open
// holders by business key, and which of the batches' own runs exist already.
type Preconditions struct {
	Requests map[RequestKey]Seen
	Holders  map[Key]string
	Exists   map[string]bool
	Threads  thread.Found
	// Tell makes the outbox items of threads; nil makes none.
	Tell TellThread
}

// TellThread is the outbox item that tells of a change of a thread. It must have no effect.
type TellThread func(thread.Told) Out

// Rows are the outbox items of changes of threads, of which each has its own order.
func (tell TellThread) Rows(list []thread.Told) []OutRow {
	if tell == nil {
		return nil
	}
	out := make([]OutRow, len(list))
	for i := range list {
		o := tell(list[i])
		out[i] = OutRow{Thread: list[i].ID, Seq: list[i].Place(), Kind: o.Kind, Body: o.Body}
	}
	return out
}

// Looks returns which items of threads batches ask for, and the keys that their new threads take.
func Looks(units []*RunBatch) (ranges []thread.Range, keys []Key) {
	for _, u := range units {
		ranges = append(ranges, thread.Looks(u.Threads)...)
		for _, k := range thread.Keys(u.Threads) {
			keys = append(keys, Key{u.Namespace, k})
		}
	}
	return ranges, keys
}

// Appending are the namespaces of batches that add to threads, each once and sorted.
func Appending(units []*RunBatch) (namespaces []string) {
	for _, u := range units {
		if len(u.Threads) > 0 {
			namespaces = append(namespaces, u.Namespace)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// Needs returns the request ids and business keys that batches ask for, each once and sorted, so that
// all commits lock them in one order.
func Needs(units []*RunBatch) (requests []RequestKey, keys []Key) {
	for _, u := range units {
		if u.Start == nil {
			continue
		}
		if q := u.Start.Request; q.ID != "" {
			requests = append(requests, RequestKey{u.Namespace, q.Method, q.ID})
		}
		if k := u.Start.Run.BusinessKey; k != "" {
			keys = append(keys, Key{u.Namespace, k})
		}
	}
	slices.SortFunc(requests, func(a, b RequestKey) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Method, b.Method), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(requests), slices.Compact(keys)
}

// Resolved is what is left to be written.
type Resolved struct {
	// Appends and Starts are the batches to write; HoldsKey and so on are set.
	Appends, Starts []*RunBatch
	// Cancels are the runs whose end is asked for. Those that are themselves in Starts have Started set:
	// their row is right already, and only the commands are to be written.
	Cancels []Cancel
	// Requests are the request ids to remember.
	Requests []RequestRow
}

// Cancel takes the business key of a run and asks for its end.
type Cancel struct {
	Namespace, RunID string
	Reason           string
	// Body is that of the commands.
	Body    []byte
	Time    time.Time
	Started bool
}

// RequestRow is a request id to remember.
type RequestRow struct {
	Key  RequestKey
	Seen Seen
	Time time.Time
}

// Resolve decides what request ids and business keys make of each Start, and what is added to threads, in
// order, so that two in one batch meet as if they had come one after the other.
func Resolve(units []*RunBatch, g Preconditions, done *Outcomes) Resolved {
	var r Resolved
	started := map[string]*RunBatch{}
	for _, u := range units {
		s := u.Start
		if s == nil {
			if resolveThreads(u, &g, done) {
				r.Appends = append(r.Appends, u)
			}
			continue
		}
		u.HoldsKey, u.CancelReason, u.CancelTime, u.CancelRequestedOf = false, "", time.Time{}, ""
		// A run that exists was made by an earlier try of this commit: the guarded insert finds out.
		if g.Exists[u.RunID] {
			if resolveThreads(u, &g, done) {
				r.Starts = append(r.Starts, u)
			}
			continue
		}
		answer, ok := answers(u, &g, done)
		// A start that an earlier run answers makes no threads, so their keys may be taken and their
		// room may be gone.
		if !ok || answer == u.RunID && !resolveThreads(u, &g, done) {
			continue
		}
		if req := (RequestKey{u.Namespace, s.Request.Method, s.Request.ID}); req.ID != "" {
			seen := Seen{BodyHash: s.Request.BodyHash, RunID: answer}
			g.Requests[req] = seen
			r.Requests = append(r.Requests, RequestRow{Key: req, Seen: seen, Time: dbkit.Micros(s.Run.CreateTime)})
		}
		if answer != u.RunID {
			done.Answered(u, answer, false)
			continue
		}
		bk := Key{u.Namespace, s.Run.BusinessKey}
		if holder := g.Holders[bk]; holder != "" && bk.Name != "" {
			u.CancelRequestedOf = holder
			r.cancel(u, started[holder])
		}
		if bk.Name != "" && !u.Status.State.Ended() {
			u.HoldsKey = true
			g.Holders[bk] = u.RunID
		}
		started[u.RunID] = u
		r.Starts = append(r.Starts, u)
	}
	return r
}

// answers is the run that answers a start: its own, or the holder of its business key. ok is false for
// a start that is refused, or that is a repetition and was answered.
func answers(u *RunBatch, g *Preconditions, done *Outcomes) (run string, ok bool) {
	s := u.Start
	if req := (RequestKey{u.Namespace, s.Request.Method, s.Request.ID}); req.ID != "" {
		if seen, known := g.Requests[req]; known {
			if seen.BodyHash != s.Request.BodyHash {
				done.Refused(u, RequestIDReused(req.ID))
			} else {
				done.Answered(u, seen.RunID, true)
			}
			return "", false
		}
	}
	bk := Key{u.Namespace, s.Run.BusinessKey}
	holder := g.Holders[bk]
	if bk.Name == "" {
		holder = ""
	}
	switch s.Conflict {
	case ConflictReturnExisting, ConflictOnlyExisting:
		if holder != "" {
			return holder, true
		}
		if s.Conflict == ConflictOnlyExisting {
			done.Refused(u, errs.New(errs.NotFound, ReasonNoHolder, "no open run has the business key %q", bk.Name))
			return "", false
		}
	case ConflictCancelExisting:
	default:
		if holder != "" {
			done.Refused(u, keyInUse(bk.Name, holder))
			return "", false
		}
	}
	return u.RunID, true
}

// resolveThreads decides what a batch adds to threads. It reports false for a batch that is refused.
func resolveThreads(u *RunBatch, g *Preconditions, done *Outcomes) bool {
	w, err := g.Threads.Resolve(u.Namespace, u.RunID, u.Threads, u.Room, u)
	if err != nil {
		done.Refused(u, err)
		return false
	}
	u.NewThreads, u.ThreadItems, u.ThreadAgents, u.ThreadUsage = w.New, w.Items, w.Agents, w.Usage
	u.ThreadOutbox = nil
	if g.Tell != nil && len(w.New)+len(w.Items) > 0 {
		u.ThreadOutbox = g.Tell.Rows(thread.Tell(w.New, w.Items, u.RunID))
	}
	return true
}

func (r *Resolved) cancel(u, holder *RunBatch) {
	at := dbkit.Micros(u.Start.Run.CreateTime)
	if holder != nil {
		holder.HoldsKey, holder.CancelReason, holder.CancelTime = false, ReasonBusinessKeyTaken, at
	}
	r.Cancels = append(r.Cancels, Cancel{Namespace: u.Namespace, RunID: u.CancelRequestedOf, Reason: ReasonBusinessKeyTaken, Body: u.Start.Cancel, Time: at, Started: holder != nil})
}

// RequestIDReused is the error of a request id that comes with another body.
func RequestIDReused(id string) error {
	return errs.New(errs.InvalidArgument, ReasonRequestIDReused, "request_id %q was used with another body", id).
		Hint("use a new request_id for a new request").
		Violate("request_id", ReasonRequestIDReused, "used with another body")
}

// SideEffects is what a commit touches besides the runs that it writes to.
type SideEffects struct {
	// Targets are the runs that get commands, Ended those of the batches that end; each once and sorted.
	Targets, Ended []string
	// Claims are those of the targets and of the released runs that are claimed if they wait or are paused
	// without an owner and have commands; each once and sorted.
	Claims []string
	// Wakes are the jobs to be inserted for those runs among Targets and among the released ones that have
	// commands and no owner by then.
	Wakes []JobRow
	// Freed are the jobs to be inserted for those runs that end and hold a thread for which a message waits.
	Freed []JobRow
	// Queues are those that get a job.
	Queues []string
	// Locked are the runs whose rows the commit locks first, in order, so that two commits with commands to
	// each other's runs do not wait in a circle. It is empty when there are no commands.
	Locked []string
	// Keeps are outcomes that are kept for equal calls.
	Keeps []KeepOf
}

// Surroundings tells what a commit of r touches besides.
func (r *Resolved) Surroundings() SideEffects {
	var a SideEffects
	wakes := map[string]bool{}
	wake := func(namespace, runID string) {
		if !wakes[runID] {
			wakes[runID] = true
			a.Wakes = append(a.Wakes, MakeJob(namespace, runID, Job{Kind: JobWake}))
		}
	}
	for _, units := range [][]*RunBatch{r.Appends, r.Starts} {
		for _, u := range units {
			for i := range u.Command {
				a.Targets = append(a.Targets, u.Command[i].RunID)
				if u.Claims {
					a.Claims = append(a.Claims, u.Command[i].RunID)
				}
				wake(u.Namespace, u.Command[i].RunID)
			}
			for i := range u.Jobs {
				a.Queues = append(a.Queues, u.Jobs[i].Queue)
			}
			if u.Ends() {
				a.Ended = append(a.Ended, u.RunID)
				if u.Holds {
					a.Freed = append(a.Freed, MakeJob(u.Namespace, u.RunID, ThreadJob(u.Namespace, "", u.RunID)))
				}
			}
			if u.Release {
				if u.Claims {
					a.Claims = append(a.Claims, u.RunID)
				}
				wake(u.Namespace, u.RunID)
			}
		}
	}
	a.Keeps = Keeps(r.Appends)
	for _, c := range r.Cancels {
		a.Targets = append(a.Targets, c.RunID)
		wake(c.Namespace, c.RunID)
	}
	for _, s := range []*[]string{&a.Targets, &a.Claims, &a.Ended, &a.Queues} {
		slices.Sort(*s)
		*s = slices.Compact(*s)
	}
	if len(a.Targets) > 0 {
		a.Locked = slices.Clone(a.Targets)
		for _, u := range r.Appends {
			if u.TouchesRow() {
				a.Locked = append(a.Locked, u.RunID)
			}
		}
		slices.Sort(a.Locked)
		a.Locked = slices.Compact(a.Locked)
	}
	return a
}
