package journal

import (
	"slices"
	"time"
)

// SortOut decides which found runs are claimed, which are quarantined and which become parked, and counts their take-overs.
// Drivers only.
func SortOut(found []RunRef, o TakeOverOptions) (res TakeOverResult, parked []RunRef) {
	res.More = len(found) >= o.Limit
	for _, f := range found {
		if f.State == StatePaused || f.State == StateQuarantined {
			parked = append(parked, f)
			continue
		}
		var over bool
		if f.Takeovers, over = o.count(f.From, f.Takeovers); over {
			res.Quarantined = append(res.Quarantined, f)
			continue
		}
		res.Claimed = append(res.Claimed, f)
	}
	return res, parked
}

// count is how many take-overs a run has seen when somebody goes on with it after from, which is gone, and whether that is one too many.
func (p Patience) count(from Owner, before int) (now int, over bool) {
	if from.IsZero() || p.Outlived != nil && p.Outlived(from) {
		return before, false
	}
	most := p.MaxTakeovers
	if most <= 0 {
		most = DefaultMaxTakeovers
	}
	return before + 1, before+1 >= most
}

// Claimable is a run that somebody wants to claim, as a driver finds it under the lock of its row. Drivers only.
type Claimable struct {
	State     State
	Owner     Owner
	OwnerLive bool
	Takeovers int
	// Summoned says that mail of kind RESUME or CANCEL waits.
	Summoned bool
}

// Claim decides whether self may become the owner and with which count of take-overs; else the present owner stays.
func (c Claimable) Claim(self Owner, p Patience) (now Owner, takeovers int, claimed bool) {
	switch {
	case c.State.Ended():
		return Owner{}, 0, false
	case c.OwnerLive:
		return c.Owner, 0, false
	case c.State == StateQuarantined && !c.Summoned:
		return Owner{}, 0, false
	}
	takeovers, over := p.count(c.Owner, c.Takeovers)
	if over {
		return Owner{}, 0, false
	}
	return self, takeovers, true
}

// Freed is a run that its owner gave back. Drivers only.
type Freed struct {
	Namespace, RunID string
	State            State
	WakeTime         time.Time
}

// JobsOfFreed returns the jobs that let freed runs go on, and those to be inserted if mail waits. Running ones are for TakeOver. Drivers only.
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

// Found is the run of a Post under the lock of its row. Drivers only.
type Found struct {
	Revision    int64
	State       State
	CancelAsked bool
	Owner       Owner
	OwnerLive   bool
	// Waiting and WaitingBytes are what waits for the run of what may be sent without end; counted only for such mail.
	Waiting, WaitingBytes int64
}

// What waits to be taken up by one run is bounded. One signal or message is always taken.
const (
	// MaxWaiting is how many signals and messages may wait for a run.
	MaxWaiting = 1000
	// MaxWaitingBytes is how large they may be together.
	MaxWaitingBytes = 8 << 20
)

// Endless are the kinds of mail that may be sent without end.
func Endless(k MailKind) bool { return k == MailSignal || k == MailMessage }

// Claims reports whether the claimant of p becomes the owner, as far as the run's row decides.
func (f Found) Claims(p Post) bool {
	return !p.Claimant.IsZero() && f.Owner.IsZero() && (f.State == StateWaiting || f.State == StatePaused)
}

// Takes reports whether the mail of p is to be written, as far as the run's row decides.
func (f Found) Takes(p Post) (bool, error) {
	switch {
	case p.Revision != 0 && p.Revision != f.Revision:
		return false, EtagMismatch(p.Mail.RunID)
	case p.Mail.Kind == MailCancel && (f.State.Ended() || f.CancelAsked):
		return false, nil
	case f.State.Ended() && p.Answer == nil:
		return false, RunEnded(p.Mail.RunID)
	case !f.State.Ended() && len(p.Open) > 0 && !slices.Contains(p.Open, f.State):
		return false, StateRefuses(p.Mail.RunID, p.Mail.Kind, f.State)
	case f.Waiting >= MaxWaiting || f.Waiting > 0 && f.WaitingBytes+int64(len(p.Mail.Body)) > MaxWaitingBytes:
		return false, InboxFull(p.Mail.RunID, f.Waiting, f.WaitingBytes)
	}
	return true, nil
}
