// Package sqlstore holds the SQL of accounts, which PostgreSQL and SQLite share except for the fragments of
// dbkit.Dialect. The drivers hold the lock of an exchange and the notifications. Package governor decides.
package sqlstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/governor"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Database describes the database to the store.
type Database struct {
	Pool    dbkit.Pool
	Dialect dbkit.Dialect
	// ForUpdate locks the selected row until the transaction ends; empty where a transaction is alone anyway.
	ForUpdate string
	// NotifyInTx makes the statement that wakes, at the commit, executors that wait for an account; nil means
	// that NotifyAfter does it.
	NotifyInTx func(account string) dbkit.Stmt
	// NotifyAfter is called after a commit; nil means that NotifyInTx did it.
	NotifyAfter func(account string)
}

// Store is the shared part of a governor.Store. It is safe for concurrent use.
type Store struct {
	db Database
	d  dbkit.Dialect
}

// New returns the shared part of the accounts in a database, which stays the caller's. The journal's
// migrations make the tables.
func New(db Database) *Store { return &Store{db: db, d: db.Dialect} }

// reading is what an exchange reads.
type reading struct {
	registered bool
	now        time.Time
	state      governor.State
	turn       int64
	held       int
	others     []governor.Standing
}

// Exchange implements governor.Store.
func (s *Store) Exchange(ctx context.Context, owner journal.Owner, a governor.Ask) (governor.Answer, error) {
	var answer governor.Answer
	notify := false
	err := s.db.Pool.Exchange(ctx, func() ([]dbkit.Stmt, func() ([]dbkit.Stmt, error)) {
		r := &reading{}
		return s.read(r, owner, a.Account), func() ([]dbkit.Stmt, error) {
			if !r.registered {
				return nil, journal.Fenced(owner)
			}
			if a.Turn < r.turn {
				return nil, governor.Stale()
			}
			d := r.state.Decide(r.now, a, a.Turn > r.turn, r.held, r.others)
			answer, notify = d.Answer, d.Notify
			return s.write(r, owner, a, d)
		}
	})
	if err != nil {
		return governor.Answer{}, err
	}
	if notify && s.db.NotifyAfter != nil {
		s.db.NotifyAfter(a.Account)
	}
	return answer, nil
}

// read makes the statements that lock the account and read how it stands.
func (s *Store) read(r *reading, owner journal.Owner, account string) []dbkit.Stmt {
	return []dbkit.Stmt{
		{
			Query: `SELECT id FROM executors WHERE id = $1 AND incarnation = $2` + s.d.Kept(), Args: []any{owner.ID, owner.Incarnation},
			Rows: func(rows dbkit.Rows) error {
				r.registered = rows.Next()
				return rows.Err()
			},
		},
		{
			Query: `INSERT INTO model_accounts (name, state, update_time) VALUES ($1, '{}', ` + s.d.Now() + `) ON CONFLICT (name) DO NOTHING`,
			Args:  []any{account},
		},
		{
			Query: `SELECT state FROM model_accounts WHERE name = $1` + s.db.ForUpdate, Args: []any{account},
			Rows: func(rows dbkit.Rows) error {
				var text string
				if err := dbkit.FirstRow(rows, nil).Scan(&text); err != nil {
					return err
				}
				if err := json.Unmarshal([]byte(text), &r.state); err != nil {
					return fmt.Errorf("read account %s: %w", account, err)
				}
				return nil
			},
		},
		// The time and the standings are those after the lock was had.
		{Query: `SELECT ` + s.d.Now(), Rows: func(rows dbkit.Rows) error { return dbkit.FirstRow(rows, nil).Scan(dbkit.At(&r.now)) }},
		{
			Query: `SELECT w.owner_id, w.owner_incarnation, w.turn, w.held, w.asked, w.waits FROM model_account_waits w
				WHERE w.account = $1 AND EXISTS (SELECT 1 FROM executors e WHERE e.id = w.owner_id AND e.incarnation = w.owner_incarnation)`,
			Args: []any{account},
			Rows: func(rows dbkit.Rows) error {
				for rows.Next() {
					var o governor.Standing
					var turn int64
					var waits string
					if err := rows.Scan(&o.Owner.ID, &o.Owner.Incarnation, &turn, &o.Held, dbkit.At(&o.Asked), &waits); err != nil {
						return err
					}
					if o.Owner == owner {
						r.turn, r.held = turn, o.Held
						continue
					}
					if err := json.Unmarshal([]byte(waits), &o.Waits); err != nil {
						return fmt.Errorf("read what %s waits for: %w", o.Owner.ID, err)
					}
					r.others = append(r.others, o)
				}
				return rows.Err()
			},
		},
	}
}

// write makes the statements that record a decision.
func (s *Store) write(r *reading, owner journal.Owner, a governor.Ask, d governor.Decision) ([]dbkit.Stmt, error) {
	state, err := json.Marshal(r.state)
	if err != nil {
		return nil, err
	}
	waits := []byte("[]")
	if len(d.Waits) > 0 {
		if waits, err = json.Marshal(d.Waits); err != nil {
			return nil, err
		}
	}
	stmts := []dbkit.Stmt{
		{Query: `UPDATE model_accounts SET state = $2, update_time = $3 WHERE name = $1`, Args: []any{a.Account, string(state), r.now}},
		{
			Query: `INSERT INTO model_account_waits (account, owner_id, owner_incarnation, turn, held, asked, waits) VALUES ($1, $2, $3, $4, $5, $6, $7)
				ON CONFLICT (account, owner_id) DO UPDATE SET owner_incarnation = excluded.owner_incarnation, turn = excluded.turn, held = excluded.held,
					asked = excluded.asked, waits = excluded.waits`,
			Args: []any{a.Account, owner.ID, owner.Incarnation, a.Turn, d.Held, r.now, string(waits)},
		},
	}
	if d.Notify && s.db.NotifyInTx != nil {
		stmts = append(stmts, s.db.NotifyInTx(a.Account))
	}
	return stmts, nil
}

// Sweep implements governor.Store.
func (s *Store) Sweep(ctx context.Context) error {
	_, err := s.db.Pool.Exec(ctx, `DELETE FROM model_account_waits WHERE NOT EXISTS (
		SELECT 1 FROM executors e WHERE e.id = owner_id AND e.incarnation = owner_incarnation)`)
	_, unused := s.db.Pool.Exec(ctx, `DELETE FROM model_accounts WHERE update_time < `+s.d.Now()+` - `+s.d.Span(`$1`), 24*time.Hour)
	return errors.Join(err, unused)
}
