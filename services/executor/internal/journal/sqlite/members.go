package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
)

// live holds for the owner of r if it is registered.
const live = ` EXISTS (SELECT 1 FROM executors e WHERE e.id = r.owner_id AND e.incarnation = r.owner_incarnation)`

// claimSQL gives a run another owner.
const claimSQL = `UPDATE runs SET owner_id = ?, owner_incarnation = ?, takeovers = ?, doing = ?, died_doing = ? WHERE run_id = ?`

// Register implements journal.Members.
func (s *Store) Register(ctx context.Context, id, addr string) (journal.Owner, error) {
	o := journal.Owner{ID: id}
	var file *os.File
	before := journal.Owner{ID: id}
	err := s.update(ctx, func(ctx context.Context, t txn) error {
		dropOwner(file)
		file = nil
		if err := t.row(ctx, `UPDATE incarnations SET last = last + 1 RETURNING last`).Scan(&o.Incarnation); err != nil {
			return err
		}
		err := t.row(ctx, `SELECT incarnation FROM executors WHERE id = ?`, id).Scan(&before.Incarnation)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		file = s.holdOwner(o) // before others can see the owner
		_, err = t.exec(ctx, `INSERT INTO executors (id, incarnation, heartbeat, addr) VALUES (?, ?, `+now+`, ?)
			ON CONFLICT (id) DO UPDATE SET incarnation = excluded.incarnation, heartbeat = excluded.heartbeat, addr = excluded.addr`, id, o.Incarnation, addr)
		return err
	})
	if err != nil {
		dropOwner(file)
		return journal.Owner{}, fmt.Errorf("register executor: %w", err)
	}
	s.keepOwner(o, file)
	if f, ended := s.hasEnded(before); ended {
		dropOwner(f)
	}
	return o, nil
}

// Heartbeat implements journal.Members.
func (s *Store) Heartbeat(ctx context.Context, owner journal.Owner) error {
	return s.update(ctx, func(ctx context.Context, t txn) error {
		n, err := t.exec(ctx, `UPDATE executors SET heartbeat = `+now+` WHERE id = ? AND incarnation = ?`, owner.ID, owner.Incarnation)
		if err != nil {
			return fmt.Errorf("renew lease: %w", err)
		}
		if n == 0 {
			return journal.Fenced(owner)
		}
		return nil
	})
}

// Executors implements journal.Members.
func (s *Store) Executors(ctx context.Context) ([]journal.Executor, error) {
	rows, err := s.db.Read.QueryContext(ctx, `SELECT id, incarnation, addr, max(`+now+` - heartbeat, 0) FROM executors ORDER BY id`)
	return dbkit.Collect(rows, err, func(rows *sql.Rows) (e journal.Executor, err error) {
		var age int64
		err = rows.Scan(&e.ID, &e.Incarnation, &e.Addr, &age)
		e.SinceHeartbeat = time.Duration(age) * time.Microsecond
		return e, err
	})
}

// TakeOver implements journal.Members.
func (s *Store) TakeOver(ctx context.Context, self journal.Owner, o journal.TakeOverOptions) (res journal.TakeOverResult, err error) {
	var ended []*os.File
	err = s.update(ctx, func(ctx context.Context, t txn) error {
		if err := errors.Join(t.fence(ctx, self), closeAll(ended)); err != nil {
			return err
		}
		var err error
		if ended, err = t.removeEnded(ctx, s, self); err != nil {
			return err
		}
		// A clock that was set back would keep the dead alive for as long: their time begins anew. The living
		// renew theirs anyway.
		if _, err := t.exec(ctx, `UPDATE executors SET heartbeat = `+now+` WHERE heartbeat > `+now+` + ?`, o.Lease.Microseconds()); err != nil {
			return err
		}
		if _, err := t.exec(ctx, `DELETE FROM executors WHERE id <> ? AND heartbeat < `+now+` - ?`, self.ID, o.Lease.Microseconds()); err != nil {
			return err
		}
		find := t.found
		if o.Canceled {
			find = t.foundCanceled
		}
		found, err := find(ctx, o)
		if err != nil {
			return err
		}
		var released []journal.RunRef
		res, released = journal.SortOut(found, o)
		if err := t.disown(ctx, released); err != nil {
			return err
		}
		for _, f := range res.Claimed {
			if _, err := t.exec(ctx, claimSQL, self.ID, self.Incarnation, f.Takeovers, f.Doing, f.DiedDoing, f.RunID); err != nil {
				return err
			}
		}
		for i := range res.Quarantined {
			if err := t.quarantine(ctx, &res.Quarantined[i], o); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return journal.TakeOverResult{}, errors.Join(err, closeAll(ended))
	}
	for _, f := range ended {
		dropOwner(f)
	}
	return res, nil
}

// found are runs of owners that are gone, and running ones that were released: some suspects, then the oldest
// of the others.
func (t txn) found(ctx context.Context, o journal.TakeOverOptions) ([]journal.RunRef, error) {
	owners, err := t.gone(ctx)
	if err != nil {
		return nil, err
	}
	var found, suspects []journal.RunRef
	// The owner that stands for nobody has the running runs that were released.
	for _, owner := range append(owners, journal.Owner{}) {
		cond := ` FROM runs r WHERE r.state < 6 AND r.owner_id <> '' AND r.owner_id = ? AND r.owner_incarnation = ?`
		args := []any{owner.ID, owner.Incarnation}
		if owner.IsZero() {
			cond, args = ` FROM runs r WHERE r.state = 2 AND r.owner_id = ''`, nil
		}
		risky, others, err := t.orphansOf(ctx, o, cond+` AND r.namespace NOT IN (SELECT value FROM json_each(?))`, append(args, textList(o.Except))...)
		if err != nil {
			return nil, err
		}
		found, suspects = append(found, others...), append(suspects, risky...)
	}
	slices.SortFunc(found, func(a, b journal.RunRef) int { return cmp.Compare(a.RunID, b.RunID) })
	return append(suspects, found[:min(len(found), o.Limit)]...), nil
}

const (
	// canceledOrphans are the canceled runs of a namespace that are open, that no registered executor owns
	// and that have something to go on with. Without the name of the index SQLite takes one that has all open
	// runs.
	canceledOrphans = ` FROM runs r INDEXED BY runs_canceled WHERE r.namespace = ? AND r.state < 6 AND r.cancel_time > 0 AND NOT` + live + ` AND (r.owner_id <> '' OR r.state = 2
		OR EXISTS (SELECT 1 FROM commands m WHERE m.run_id = r.run_id AND (r.state <> 5 OR m.kind IN ('RESUME', 'CANCEL'))))`
	// canceledTenant is the next namespace, in their order, that has open runs which were canceled.
	canceledTenant = `SELECT r.namespace FROM runs r WHERE r.state < 6 AND r.cancel_time > 0 AND r.namespace > ? ORDER BY r.namespace LIMIT 1`
)

// foundCanceled is found for canceled runs, whoever owned them: of each namespace in turn.
func (t txn) foundCanceled(ctx context.Context, o journal.TakeOverOptions) (found []journal.RunRef, err error) {
	var tenants [][]journal.RunRef
	for ns := ""; ; {
		if err := t.row(ctx, canceledTenant, ns).Scan(&ns); errors.Is(err, sql.ErrNoRows) {
			break
		} else if err != nil {
			return nil, err
		}
		if slices.Contains(o.Except, ns) {
			continue
		}
		suspects, others, err := t.orphansOf(ctx, o, canceledOrphans, ns)
		if err != nil {
			return nil, err
		}
		found, tenants = append(found, suspects...), append(tenants, others)
	}
	for turn, most := 0, len(found)+o.Limit; len(found) < most; turn++ {
		before := len(found)
		for _, runs := range tenants {
			if turn < len(runs) && len(found) < most {
				found = append(found, runs[turn])
			}
		}
		if len(found) == before {
			break
		}
	}
	return found, nil
}

// orphansOf finds a few suspects, if they may be claimed, and up to o.Limit other runs for a take-over.
func (t txn) orphansOf(ctx context.Context, o journal.TakeOverOptions, from string, args ...any) (suspects, others []journal.RunRef, err error) {
	others, err = t.orphans(ctx, from+` AND r.takeovers < ? ORDER BY r.run_id LIMIT ?`, append(slices.Clone(args), o.MaySuspect(), o.Limit)...)
	if err != nil || o.NoSuspects {
		return nil, others, err
	}
	suspects, err = t.orphans(ctx, from+` AND r.takeovers >= ? ORDER BY r.doing = '', r.run_id LIMIT ?`, append(args, o.MaySuspect(), journal.SuspectsFound)...)
	return suspects, others, err
}

// orphans finds runs for a take-over.
func (t txn) orphans(ctx context.Context, from string, args ...any) ([]journal.RunRef, error) {
	rows, err := t.tx.QueryContext(ctx, `SELECT r.namespace, r.run_id, r.state, `+lastSeq()+`, r.takeovers, r.owner_id, r.owner_incarnation, r.doing, r.died_doing`+from, args...)
	return dbkit.Collect(rows, err, func(rows *sql.Rows) (f journal.RunRef, err error) {
		err = rows.Scan(&f.Namespace, &f.RunID, &f.State, &f.LastSeq, &f.Takeovers, &f.From.ID, &f.From.Incarnation, &f.Doing, &f.DiedDoing)
		return f, err
	})
}

func (t txn) quarantine(ctx context.Context, f *journal.RunRef, o journal.TakeOverOptions) error {
	if o.QuarantineEvent != nil {
		e := o.QuarantineEvent(*f)
		f.LastSeq++
		e.RunID, e.Seq = f.RunID, f.LastSeq
		if _, err := t.exec(ctx, t.w.insertEvents[1], values(t.w.events, sqlstore.EventRow{Namespace: f.Namespace, Event: &e})...); err != nil {
			return err
		}
	}
	if _, err := t.exec(ctx, `UPDATE runs SET owner_id = '', owner_incarnation = 0, takeovers = ?, state = ?, state_reason = ?, last_seq = ?,
		update_time = `+now+`, revision = revision + 1, doing = '', died_doing = ? WHERE run_id = ?`,
		f.Takeovers, int32(journal.StateQuarantined), journal.ReasonQuarantined, f.LastSeq, f.DiedDoing, f.RunID); err != nil {
		return err
	}
	if o.QuarantineOutbox != nil {
		run, err := sqlstore.ScanQuarantined(t.row(ctx, sqlstore.QuarantinedSQL("?"), f.RunID))
		if err != nil {
			return err
		}
		for _, item := range o.OutboxOfQuarantine(*f, &run) {
			if _, err := put(ctx, t, t.w.out, sqlstore.OutRow{Namespace: f.Namespace, RunID: f.RunID, OutRow: &item}); err != nil {
				return err
			}
		}
	}
	return t.jobs(ctx, o.JobsOfQuarantine(*f))
}

// gone lists the owners of open runs that are registered no more. It looks once for each owner there is,
// however many runs they have.
func (t txn) gone(ctx context.Context) ([]journal.Owner, error) {
	const next = `SELECT r.owner_id, r.owner_incarnation FROM runs r WHERE r.state < 6 AND r.owner_id <> '' `
	var out []journal.Owner
	var last journal.Owner
	for {
		err := t.row(ctx, next+`AND (r.owner_id, r.owner_incarnation) > (?, ?) ORDER BY r.owner_id, r.owner_incarnation LIMIT 1`, last.ID, last.Incarnation).
			Scan(&last.ID, &last.Incarnation)
		if errors.Is(err, sql.ErrNoRows) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		var n int
		if err := t.row(ctx, `SELECT count(*) FROM executors WHERE id = ? AND incarnation = ?`, last.ID, last.Incarnation).Scan(&n); err != nil {
			return nil, err
		}
		if n == 0 {
			out = append(out, last)
		}
	}
}

// disown takes the owner, which is gone, from runs that are not to go on by themselves. A quarantined run
// loses the RESUME command that it was trying: it has brought its owner down once more.
func (t txn) disown(ctx context.Context, released []journal.RunRef) error {
	for _, f := range released {
		if _, err := t.exec(ctx, releaseSQL, f.RunID); err != nil {
			return err
		}
		if f.State == journal.StateQuarantined {
			if _, err := t.exec(ctx, `DELETE FROM commands WHERE run_id = ? AND kind = ?`, f.RunID, string(journal.CommandResume)); err != nil {
				return err
			}
		}
		if err := t.jobsIf(ctx, wakesSQL, []journal.JobRow{journal.MakeJob(f.Namespace, f.RunID, journal.Job{Kind: journal.JobWake})}); err != nil {
			return err
		}
	}
	return nil
}

// ClaimRun implements journal.Members.
func (s *Store) ClaimRun(ctx context.Context, self journal.Owner, namespace, runID string, p journal.TakeOverPolicy) (now journal.Owner, err error) {
	err = s.update(ctx, func(ctx context.Context, t txn) error {
		if err := t.fence(ctx, self); err != nil {
			return err
		}
		var c journal.Claimable
		err := t.row(ctx, `SELECT r.state, r.owner_id, r.owner_incarnation, r.takeovers, r.doing, r.died_doing,`+live+`,
				EXISTS (SELECT 1 FROM commands m WHERE m.run_id = r.run_id AND m.kind IN ('RESUME', 'CANCEL'))
			FROM runs r WHERE r.run_id = ? AND r.namespace = ?`, runID, namespace).Scan(&c.State, &c.Owner.ID, &c.Owner.Incarnation, &c.Takeovers,
			&c.Doing, &c.DiedDoing, &c.OwnerLive, &c.Summoned)
		if errors.Is(err, sql.ErrNoRows) {
			return journal.RunNotFound(runID)
		} else if err != nil {
			return err
		}
		next, claimed := c.Claim(self, p)
		now = next.Owner
		if claimed {
			_, err = t.exec(ctx, claimSQL, self.ID, self.Incarnation, next.Takeovers, next.Doing, next.DiedDoing, runID)
		}
		return err
	})
	if err != nil {
		return journal.Owner{}, err
	}
	return now, nil
}

// Release implements journal.Members.
func (s *Store) Release(ctx context.Context, owner journal.Owner, runIDs []string) error {
	return s.update(ctx, func(ctx context.Context, t txn) error {
		if err := t.fence(ctx, owner); err != nil {
			return err
		}
		if runIDs == nil {
			return t.release(ctx, owner, "")
		}
		for _, id := range runIDs {
			if err := t.release(ctx, owner, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// release gives back one run of owner, or all if no id is given.
func (t txn) release(ctx context.Context, owner journal.Owner, runID string) error {
	rows, err := t.tx.QueryContext(ctx, `UPDATE runs SET owner_id = '', owner_incarnation = 0
		WHERE owner_id = ? AND owner_incarnation = ? AND state < 6 AND owner_id <> '' AND (? = '' OR run_id = ?)
		RETURNING namespace, run_id, state, wake_time`, owner.ID, owner.Incarnation, runID, runID)
	free, err := dbkit.Collect(rows, err, func(rows *sql.Rows) (f journal.Freed, err error) {
		var wake int64
		err = rows.Scan(&f.Namespace, &f.RunID, &f.State, &wake)
		f.WakeTime = dbkit.FromUnixMicros(wake)
		return f, err
	})
	if err != nil {
		return err
	}
	jobs, wakes := journal.JobsOfFreed(free)
	if err := t.jobs(ctx, jobs); err != nil {
		return err
	}
	return t.jobsIf(ctx, wakesSQL, wakes)
}

// Deregister implements journal.Members.
func (s *Store) Deregister(ctx context.Context, owner journal.Owner) error {
	gone := false
	err := s.update(ctx, func(ctx context.Context, t txn) error {
		n, err := t.exec(ctx, `DELETE FROM executors WHERE id = ? AND incarnation = ?`, owner.ID, owner.Incarnation)
		if gone = n > 0; err != nil || !gone {
			return err
		}
		return t.release(ctx, owner, "")
	})
	if err == nil && gone {
		s.keepOwner(owner, nil)
	}
	return err
}
