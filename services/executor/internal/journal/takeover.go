package journal

import (
	"cmp"
	"slices"
	"time"
)

// DoingReading is what a suspect does from its claim until it stands in its owner's memory.
const DoingReading = "reading the run"

// most is how many deaths quarantine a run.
func (p TakeOverPolicy) most() int {
	if p.MaxTakeovers <= 0 {
		return DefaultMaxTakeovers
	}
	return max(p.MaxTakeovers, 2)
}

// Suspect reports whether a run with so many take-overs is one death short of its quarantine.
func (p TakeOverPolicy) Suspect(takeovers int) bool { return takeovers >= p.most()-1 }

// MaySuspect is how many take-overs a run has at least that is a suspect once it is claimed. Drivers only.
func (p TakeOverPolicy) MaySuspect() int { return p.most() - 2 }

// SuspectsFound is how many suspects a driver finds for each owner, those that were at work first: one to
// claim, and another to know that there are more. Drivers only.
const SuspectsFound = 2

// SortOut decides which of the runs that were found are claimed, which are quarantined and which only lose
// their owner, and counts their take-overs. Drivers only.
func SortOut(found []RunRef, o TakeOverOptions) (res TakeOverResult, released []RunRef) {
	res.More = len(found) >= o.Limit
	at := map[Owner]bool{}
	for _, f := range found {
		if f.Doing != "" && o.died(f.From) {
			at[f.From] = true
		}
	}
	// A run that was at work goes first: from then on the others of the same owner are known to be innocent
	// of its end.
	found = slices.Clone(found)
	slices.SortStableFunc(found, func(a, b RunRef) int {
		switch {
		case (a.Doing == "") == (b.Doing == ""):
			return 0
		case a.Doing != "":
			return -1
		}
		return 1
	})
	suspects := 0
	for _, f := range found {
		if (f.State == StatePaused || f.State == StateQuarantined) && (!o.Canceled || !f.From.IsZero()) {
			released = append(released, f)
			continue
		}
		n, over := f.Takeovers, false
		if f.Doing != "" || !at[f.From] {
			n, over = o.count(f.From, f.Takeovers, f.Doing, f.DiedDoing)
		}
		suspect := o.Suspect(n)
		if suspect && !over {
			if suspects++; o.NoSuspects || suspects > 1 {
				res.More = res.More || !o.NoSuspects
				continue
			}
		}
		f.Takeovers = n
		if f.Doing != "" && o.died(f.From) {
			f.DiedDoing = f.Doing
			res.AtWork = append(res.AtWork, f.From)
		}
		f.Doing = ""
		if over {
			res.Quarantined = append(res.Quarantined, f)
			continue
		}
		if suspect {
			f.Doing = DoingReading
		}
		res.Claimed = append(res.Claimed, f)
	}
	slices.SortFunc(res.Claimed, func(a, b RunRef) int { return cmp.Compare(a.RunID, b.RunID) })
	return res, released
}

// died reports whether from is an owner that went down. An owner that gave the run back, or only lost its
// lease, did not.
func (p TakeOverPolicy) died(from Owner) bool {
	return !from.IsZero() && (p.Outlived == nil || !p.Outlived(from))
}

// count is how many take-overs a run has seen when it is claimed after from, which is gone, and whether
// that is one too many.
func (p TakeOverPolicy) count(from Owner, before int, doing, died string) (now int, over bool) {
	if !p.died(from) || doing == "" && p.Explained != nil && p.Explained(from) {
		return before, false
	}
	if before+1 < p.most() {
		return before + 1, false
	}
	switch {
	case doing == "":
		return before, false
	case doing == DoingReading && died != DoingReading:
		// The owner may have been killed just then by chance, as every suspect is read. It is read once
		// more, before all others.
		return before, false
	}
	return before + 1, true
}

// Claimable is a run that an executor wants to claim, as a driver finds it under the lock of its row.
// Drivers only.
type Claimable struct {
	State     State
	Owner     Owner
	OwnerLive bool
	Takeovers int
	// Doing and DiedDoing are those of its row.
	Doing, DiedDoing string
	// Summoned says that commands of kind RESUME or CANCEL waits.
	Summoned bool
}

// Claim decides whether self may become the owner, and how the run then stands; else the present owner stays.
func (c Claimable) Claim(self Owner, p TakeOverPolicy) (now Claimable, claimed bool) {
	switch {
	case c.State.Ended():
		return Claimable{}, false
	case c.OwnerLive:
		return Claimable{Owner: c.Owner}, false
	case c.State == StateQuarantined && !c.Summoned:
		return Claimable{}, false
	}
	takeovers, over := p.count(c.Owner, c.Takeovers, c.Doing, c.DiedDoing)
	if over {
		return Claimable{}, false
	}
	now = Claimable{State: c.State, Owner: self, Takeovers: takeovers, DiedDoing: c.DiedDoing}
	if c.Doing != "" && p.died(c.Owner) {
		now.DiedDoing = c.Doing
	}
	if p.Suspect(takeovers) {
		now.Doing = DoingReading
	}
	return now, true
}

// Freed is a run that its owner gave back. Drivers only.
type Freed struct {
	Namespace, RunID string
	State            State
	WakeTime         time.Time
}

// JobsOfFreed returns the jobs that let freed runs go on, and those to be inserted if commands wait.
// Running ones are for TakeOver. Drivers only.
func JobsOfFreed(free []Freed) (jobs, wakes []JobRow) {
	for _, f := range free {
		switch f.State {
		case StateWaiting, StatePending, StatePaused:
			if f.State == StatePaused && f.WakeTime.IsZero() {
				wakes = append(wakes, MakeJob(f.Namespace, f.RunID, Job{Kind: JobWake}))
				continue
			}
			j := Job{Kind: JobWake}
			if !f.WakeTime.IsZero() {
				j.At = f.WakeTime.Add(-WakeEarly)
			}
			jobs = append(jobs, MakeJob(f.Namespace, f.RunID, j))
			wakes = append(wakes, MakeJob(f.Namespace, f.RunID, Job{Kind: JobWake}))
		case StateQuarantined:
			wakes = append(wakes, MakeJob(f.Namespace, f.RunID, Job{Kind: JobWake}))
		}
	}
	return jobs, wakes
}

// JobsOfQuarantine returns the jobs that a quarantine causes. Drivers only.
func (o TakeOverOptions) JobsOfQuarantine(f RunRef) []JobRow {
	if o.QuarantineJobs == nil {
		return nil
	}
	var out []JobRow
	for _, j := range o.QuarantineJobs(f) {
		out = append(out, MakeJob(f.Namespace, f.RunID, j))
	}
	return out
}

// OutboxOfQuarantine are the outbox items that the quarantine of a run causes, whose last event is written.
// Drivers only.
func (o TakeOverOptions) OutboxOfQuarantine(f RunRef, run *Run) []OutRow {
	var out []OutRow
	for i, item := range o.QuarantineOutbox(f, run) {
		out = append(out, OutRow{Seq: f.LastSeq, Ordinal: i, Kind: item.Kind, Body: item.Body})
	}
	return out
}

// Found is the run of an Enqueue under the lock of its row. Drivers only.
type Found struct {
	Revision    int64
	State       State
	CancelAsked bool
	Owner       Owner
	OwnerLive   bool
	// Waiting and WaitingBytes are the unapplied commands of kinds that may come without end. They are
	// counted only for a command of these kinds.
	Waiting, WaitingBytes int64
}

// The unread commands of one run are bounded. One signal or message is always taken.
const (
	// MaxWaiting is how many signals and messages may wait for a run.
	MaxWaiting = 1000
	// MaxWaitingBytes is how large they may be together.
	MaxWaitingBytes = 8 << 20
)

// Endless are the kinds of commands that may be sent without end.
func Endless(k CommandKind) bool {
	return k == CommandSignal || k == CommandMessage || k == CommandLeave
}

// Claims reports whether the claimant of p becomes the owner, as far as the run's row decides.
func (f Found) Claims(p EnqueueRequest) bool {
	return !p.Claimant.IsZero() && f.Owner.IsZero() && (f.State == StateWaiting || f.State == StatePaused)
}

// Takes reports whether the command of p is to be written, as far as the run's row decides.
func (f Found) Takes(p EnqueueRequest) (bool, error) {
	switch {
	case p.Revision != 0 && p.Revision != f.Revision:
		return false, EtagMismatch(p.Command.RunID)
	case p.Command.Kind == CommandCancel && (f.State.Ended() || f.CancelAsked):
		if p.Must {
			return false, RunEnded(p.Command.RunID)
		}
		return false, nil
	case f.State.Ended() && p.Answer == nil:
		return false, RunEnded(p.Command.RunID)
	case !f.State.Ended() && len(p.Open) > 0 && !slices.Contains(p.Open, f.State):
		return false, StateRefuses(p.Command.RunID, p.Command.Kind, f.State)
	case f.Waiting >= MaxWaiting || f.Waiting > 0 && f.WaitingBytes+int64(len(p.Command.Body)) > MaxWaitingBytes:
		return false, InboxFull(p.Command.RunID, f.Waiting, f.WaitingBytes)
	}
	return true, nil
}
