package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

const (
	accountColumns     = `level, id, hard_tokens, hard_nano_usd, soft_tokens, soft_nano_usd, spent_tokens, spent_nano_usd, reserved_tokens, reserved_nano_usd, principal, ceiling_tokens, ceiling_nano_usd, ceiling_by, beyond_tokens, beyond_nano_usd`
	reservationKey     = `run_id, node_id, visit, item, attempt, call`
	reservationColumns = reservationKey + `, tokens, nano_usd, unpriced, kind, task_id, epic_id, provider, model, accounts, incarnation`
)

// accountTypes are the columns of accountColumns, those of the key first, with their types on PostgreSQL.
func accountTypes() [][2]string {
	return [][2]string{
		{"level", "smallint"},
		{"id", "text"},
		{"hard_tokens", "bigint"},
		{"hard_nano_usd", "bigint"},
		{"soft_tokens", "bigint"},
		{"soft_nano_usd", "bigint"},
		{"spent_tokens", "bigint"},
		{"spent_nano_usd", "bigint"},
		{"reserved_tokens", "bigint"},
		{"reserved_nano_usd", "bigint"},
		{"principal", "text"},
		{"ceiling_tokens", "bigint"},
		{"ceiling_nano_usd", "bigint"},
		{"ceiling_by", "text"},
		{"beyond_tokens", "bigint"},
		{"beyond_nano_usd", "bigint"},
	}
}

// accountKey is how many of the accountTypes make the key.
const accountKey = 2

func accountArgs(a ledger.Account) []any {
	var beyondTokens, beyondNanoUSD *int64
	if a.Beyond != nil {
		beyondTokens, beyondNanoUSD = &a.Beyond.Tokens, &a.Beyond.NanoUSD
	}
	return []any{
		int16(a.Level), a.Name, a.Hard.Tokens, a.Hard.NanoUSD, a.Soft.Tokens, a.Soft.NanoUSD, a.Spent.Tokens, a.Spent.NanoUSD,
		a.Reserved.Tokens, a.Reserved.NanoUSD, a.Principal,
		a.Ceiling.Tokens, a.Ceiling.NanoUSD, a.CeilingBy, beyondTokens, beyondNanoUSD,
	}
}

func scanAccount(row dbkit.Scanner) (a ledger.Account, err error) {
	var beyondTokens, beyondNanoUSD *int64
	err = row.Scan(&a.Level, &a.Name, &a.Hard.Tokens, &a.Hard.NanoUSD, &a.Soft.Tokens, &a.Soft.NanoUSD, &a.Spent.Tokens, &a.Spent.NanoUSD,
		&a.Reserved.Tokens, &a.Reserved.NanoUSD, &a.Principal, &a.Ceiling.Tokens, &a.Ceiling.NanoUSD, &a.CeilingBy, &beyondTokens, &beyondNanoUSD)
	if beyondTokens != nil && beyondNanoUSD != nil {
		a.Beyond = &ledger.Amount{Tokens: *beyondTokens, NanoUSD: *beyondNanoUSD}
	}
	return a, err
}

func (t tx) accounts(ctx context.Context, namespace string, ids []ledger.ID, locked string) ([]ledger.Account, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	s := accountsByID(t.d, namespace, ids, locked)
	return collect(ctx, t, scanAccount, s.Query, s.Args...)
}

// selectAccounts selects the columns of accounts a.
func selectAccounts() string {
	return `SELECT a.` + strings.ReplaceAll(accountColumns, `, `, `, a.`) + ` FROM `
}

// accountsByID looks each up by its key, however the database estimates the size of the table.
func accountsByID(d dbkit.Dialect, namespace string, ids []ledger.ID, locked string) dbkit.Stmt {
	rows := make([][]any, len(ids))
	for i, id := range ids {
		rows[i] = []any{int16(id.Level), id.Name}
	}
	return dbkit.Stmt{
		Query: selectAccounts() +
			d.Rows(`n`, 2, accountTypes()[:accountKey]...) + d.LookUp(`accounts`, `a`, `a.namespace = $1 AND a.level = n.level AND a.id = n.id`) + `
			ORDER BY a.level, a.id` + locked,
		Args: append([]any{namespace}, d.RowArgs(accountKey, rows)...),
	}
}

// AccountsOfCalls implements store.Store.
func (s *Store) AccountsOfCalls(ctx context.Context, namespace string, ids []ledger.ID, taskIDs []string) (found []ledger.Account, epics map[string]string, err error) {
	var of [][2]string
	stmts := []dbkit.Stmt{accountsByID(s.d, namespace, ids, ``)}
	if len(taskIDs) > 0 {
		stmts = append(stmts, dbkit.Stmt{
			Query: selectAccounts() + `tasks AS n` +
				s.d.LookUp(`accounts`, `a`, `a.namespace = $1 AND a.level = $2 AND a.id = n.epic_id`) + `
				WHERE n.namespace = $1 AND ` + s.d.In(`n.id`, `$3`),
			Args: []any{namespace, int16(ledger.Epic), taskIDs},
		}, dbkit.Stmt{
			Query: `SELECT id, epic_id FROM tasks WHERE namespace = $1 AND ` + s.d.In(`id`, `$2`),
			Args:  []any{namespace, taskIDs},
		})
	}
	err = s.db.Reads.Read(ctx, namespace, func(ctx context.Context) error {
		found, of = found[:0], of[:0]
		for i := range stmts[:min(len(stmts), 2)] {
			stmts[i].Rows = into(&found, scanAccount)
		}
		if len(stmts) > 2 {
			stmts[2].Rows = into(&of, func(row dbkit.Scanner) (t [2]string, err error) { return t, row.Scan(&t[0], &t[1]) })
		}
		return s.db.Pool.View(ctx, stmts...)
	})
	epics = make(map[string]string, len(of))
	for _, t := range of {
		epics[t[0]] = t[1]
	}
	return found, epics, err
}

// Accounts implements store.Reader.
func (t tx) Accounts(ctx context.Context, namespace string, ids []ledger.ID) ([]ledger.Account, error) {
	return t.accounts(ctx, namespace, ids, ``)
}

// LockAccounts implements store.Tx.
func (t tx) LockAccounts(ctx context.Context, namespace string, ids []ledger.ID) ([]ledger.Account, error) {
	locked, err := t.accounts(ctx, namespace, ids, t.d.LockedToUpdate())
	t.changes.lockedAccounts(locked)
	return locked, err
}

// LockForCalls implements store.Tx.
func (t tx) LockForCalls(ctx context.Context, namespace string, ids []ledger.ID, keys []usage.Key) (locked []ledger.Account, known []usage.Key, err error) {
	accounts := accountsByID(t.d, namespace, ids, t.d.LockedToUpdate())
	accounts.Rows = into(&locked, scanAccount)
	err = t.Batch(ctx, append([]dbkit.Stmt{accounts}, t.knownCalls(namespace, keys, &known)...)...)
	t.changes.lockedAccounts(locked)
	return locked, known, err
}

// OpenAccounts implements store.Tx.
func (t tx) OpenAccounts(ctx context.Context, namespace string, accounts []ledger.Account) error {
	if len(accounts) == 0 {
		return nil
	}
	types := accountTypes()
	_, err := t.Exec(ctx, `INSERT INTO accounts (namespace, update_time, `+accountColumns+`) SELECT $1, $2, n.* FROM `+t.d.Rows(`n`, 3, types...)+`
		WHERE true ON CONFLICT DO NOTHING`, append([]any{namespace, today()}, t.d.RowArgs(len(types), accountRows(accounts))...)...)
	return err
}

// BookedOfRuns implements store.Tx. Entries that take back others have their figures negative.
func (t tx) BookedOfRuns(ctx context.Context, namespace string, runIDs []string) (map[string]ledger.Amount, error) {
	out := make(map[string]ledger.Amount, len(runIDs))
	err := t.each(ctx, func(row dbkit.Scanner) error {
		var id string
		var a ledger.Amount
		err := row.Scan(&id, &a.Tokens, &a.NanoUSD)
		out[id] = a
		return err
	}, `SELECT run_id, CAST(SUM(input_tokens + output_tokens) AS bigint), CAST(SUM(COALESCE(cost_nano_usd, 0)) AS bigint) FROM usage_entries
		WHERE namespace = $1 AND `+t.d.In(`run_id`, `$2`)+` AND source <> 2 GROUP BY run_id`, namespace, runIDs)
	return out, err
}

// OutputSamples implements store.Reader.
func (t tx) OutputSamples(ctx context.Context, namespace string, models []string) (map[string][]int64, error) {
	out := make(map[string][]int64, len(models))
	err := t.each(ctx, func(row dbkit.Scanner) error {
		var model string
		var n int64
		err := row.Scan(&model, &n)
		out[model] = append(out[model], n)
		return err
	}, `SELECT model, output_tokens FROM output_samples WHERE namespace = $1 AND `+t.d.In(`model`, `$2`), namespace, models)
	return out, err
}

// today is the time at which the day began. It is indexed, and changes seldom, so that most updates of an
// account leave the index alone.
func today() time.Time { return dbkit.Now().Truncate(24 * time.Hour) }

func accountRows(accounts []ledger.Account) [][]any {
	rows := make([][]any, len(accounts))
	for i, a := range accounts {
		rows[i] = accountArgs(a)
	}
	return rows
}

// PutAccounts implements store.Tx.
func (t tx) PutAccounts(ctx context.Context, namespace string, accounts []ledger.Account) error {
	return t.some(ctx, t.putAccounts(namespace, accounts))
}

// putAccounts are the statements that overwrite accounts. It notes that they change.
func (t tx) putAccounts(namespace string, accounts []ledger.Account) []dbkit.Stmt {
	stmts := make([]dbkit.Stmt, len(accounts))
	for i, a := range accounts {
		stmts[i] = dbkit.Stmt{
			Query: `UPDATE accounts SET hard_tokens = $4, hard_nano_usd = $5, soft_tokens = $6, soft_nano_usd = $7, spent_tokens = $8,
				spent_nano_usd = $9, reserved_tokens = $10, reserved_nano_usd = $11, principal = $12, ceiling_tokens = $13, ceiling_nano_usd = $14,
				ceiling_by = $15, beyond_tokens = $16, beyond_nano_usd = $17, update_time = $18
				WHERE namespace = $1 AND level = $2 AND id = $3`,
			Args: append(append([]any{namespace}, accountArgs(a)...), today()),
		}
	}
	t.changes.putAccounts(accounts)
	return stmts
}

// reservationTypes are the columns of reservationColumns with their types on PostgreSQL.
func reservationTypes() [][2]string {
	return [][2]string{
		{"run_id", "text"},
		{"node_id", "text"},
		{"visit", "int"},
		{"item", "int"},
		{"attempt", "int"},
		{"call", "int"},
		{"tokens", "bigint"},
		{"nano_usd", "bigint"},
		{"unpriced", "boolean"},
		{"kind", "smallint"},
		{"task_id", "text"},
		{"epic_id", "text"},
		{"provider", "text"},
		{"model", "text"},
		{"accounts", "text"},
		{"incarnation", "bigint"},
	}
}

// reservationKeys is how many of the reservationTypes make the key.
const reservationKeys = 6

func reservationKeyArgs(k usage.Key) []any {
	return []any{k.RunID, k.NodeID, k.Visit, k.Item, k.Attempt, k.Call}
}

func scanHeld(row dbkit.Scanner) (h ledger.Held, err error) {
	var accounts string
	if err := row.Scan(
		&h.Key.RunID, &h.Key.NodeID, &h.Key.Visit, &h.Key.Item, &h.Key.Attempt, &h.Key.Call, &h.Tokens, &h.NanoUSD,
		&h.Unpriced, &h.Kind, &h.TaskID, &h.EpicID, &h.Provider, &h.Model, &accounts, &h.Incarnation, &h.Estimated,
	); err != nil {
		return h, err
	}
	h.Key.Source = usage.Executor
	var ids []string
	if err := decode(accounts, &ids); err != nil {
		return h, err
	}
	for _, s := range ids {
		id, err := ledger.ParseID(s)
		if err != nil {
			return h, err
		}
		h.Accounts = append(h.Accounts, id)
	}
	return h, nil
}

// Reservations implements store.Reader.
func (t tx) Reservations(ctx context.Context, namespace string, keys []usage.Key) ([]ledger.Held, error) {
	return t.reservations(ctx, namespace, keys, ``)
}

// LockReservations implements store.Tx.
func (t tx) LockReservations(ctx context.Context, namespace string, keys []usage.Key) ([]ledger.Held, error) {
	return t.reservations(ctx, namespace, keys, t.d.LockedToUpdate())
}

func (t tx) reservations(ctx context.Context, namespace string, keys []usage.Key, locked string) ([]ledger.Held, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	return collect(ctx, t, scanHeld, `SELECT r.`+strings.ReplaceAll(reservationColumns, `, `, `, r.`)+`, r.estimated
		FROM `+t.reserved()+`
		ORDER BY r.run_id, r.node_id, r.visit, r.item, r.attempt, r.call`+locked,
		append([]any{namespace}, t.d.RowArgs(reservationKeys, keyRows(keys))...)...)
}

// reserved are the reservations r of keys n, which begin with the second parameter. Each is looked up by
// its key, however the database estimates the size of the table, which changes by the second.
func (t tx) reserved() string {
	return t.d.Rows(`n`, 2, reservationTypes()[:reservationKeys]...) + t.d.LookUp(`reservations`, `r`, ofKey)
}

// knownCalls are the statements that read which calls are reserved or booked.
func (t tx) knownCalls(namespace string, keys []usage.Key, known *[]usage.Key) []dbkit.Stmt {
	booked := t.booked(namespace, keys)
	booked.Rows = into(known, scanKey)
	return []dbkit.Stmt{{
		Query: `SELECT r.run_id, ` + fmt.Sprint(int(usage.Executor)) + `, r.node_id, r.visit, r.item, r.attempt, r.call FROM ` + t.reserved(),
		Args:  append([]any{namespace}, t.d.RowArgs(reservationKeys, keyRows(keys))...),
		Rows:  into(known, scanKey),
	}, booked}
}

// ofKey holds for the reservation r of a key n.
const ofKey = `r.namespace = $1 AND r.run_id = n.run_id AND r.node_id = n.node_id AND r.visit = n.visit AND r.item = n.item
	AND r.attempt = n.attempt AND r.call = n.call`

func keyRows(keys []usage.Key) [][]any {
	rows := make([][]any, len(keys))
	for i, k := range keys {
		rows[i] = reservationKeyArgs(k)
	}
	return rows
}

// TakeReservations implements store.Tx.
func (t tx) TakeReservations(ctx context.Context, namespace string, held []ledger.Held, lease time.Duration, from []ledger.Account) error {
	if len(held) == 0 {
		return nil
	}
	rows := make([][]any, len(held))
	for i, h := range held {
		ids := make([]string, len(h.Accounts))
		for j, id := range h.Accounts {
			ids[j] = id.Text()
		}
		accounts, err := text(ids)
		if err != nil {
			return err
		}
		rows[i] = append(reservationKeyArgs(h.Key), h.Tokens, h.NanoUSD, h.Unpriced, int16(h.Kind), h.TaskID, h.EpicID, h.Provider, h.Model, accounts, h.Incarnation)
	}
	types := reservationTypes()
	insert := dbkit.Stmt{
		Query: `INSERT INTO reservations (namespace, lease_until, ` + reservationColumns + `)
		SELECT $1, ` + t.d.Now() + ` + ` + t.d.Span(`$2`) + `, n.* FROM ` + t.d.Rows(`n`, 3, types...),
		Args: append([]any{namespace, lease}, t.d.RowArgs(len(types), rows)...),
	}
	return t.Batch(ctx, append([]dbkit.Stmt{insert}, t.putAccounts(namespace, from)...)...)
}

// OwnReservations implements store.Tx.
func (t tx) OwnReservations(ctx context.Context, namespace string, held []ledger.Held) error {
	stmts := make([]dbkit.Stmt, len(held))
	for i, h := range held {
		stmts[i] = dbkit.Stmt{
			Query: `UPDATE reservations SET incarnation = $8 WHERE namespace = $1 AND run_id = $2 AND node_id = $3 AND visit = $4 AND item = $5
				AND attempt = $6 AND call = $7 AND incarnation < $8`,
			Args: append(append([]any{namespace}, reservationKeyArgs(h.Key)...), h.Incarnation),
		}
	}
	return t.some(ctx, stmts)
}

// DeleteReservations implements store.Tx.
func (t tx) DeleteReservations(ctx context.Context, namespace string, keys []usage.Key) error {
	return t.ofReservations(ctx, `DELETE FROM reservations`, namespace, keys)
}

// EstimateReservations implements store.Tx.
func (t tx) EstimateReservations(ctx context.Context, namespace string, keys []usage.Key) error {
	return t.ofReservations(ctx, `UPDATE reservations SET estimated = true`, namespace, keys)
}

func (t tx) ofReservations(ctx context.Context, what, namespace string, keys []usage.Key) error {
	stmts := make([]dbkit.Stmt, len(keys))
	for i, k := range keys {
		stmts[i] = dbkit.Stmt{
			Query: what + ` WHERE namespace = $1 AND run_id = $2 AND node_id = $3 AND visit = $4 AND item = $5 AND attempt = $6 AND call = $7`,
			Args:  append([]any{namespace}, reservationKeyArgs(k)...),
		}
	}
	return t.some(ctx, stmts)
}

// RenewReservations implements store.Tx.
func (t tx) RenewReservations(ctx context.Context, namespace string, keys []usage.Key, lease time.Duration) error {
	stmts := make([]dbkit.Stmt, len(keys))
	for i, k := range keys {
		stmts[i] = dbkit.Stmt{
			Query: `UPDATE reservations SET lease_until = ` + t.d.Now() + ` + ` + t.d.Span(`$8`) + `
				WHERE namespace = $1 AND run_id = $2 AND node_id = $3 AND visit = $4 AND item = $5 AND attempt = $6 AND call = $7`,
			Args: append(append([]any{namespace}, reservationKeyArgs(k)...), lease),
		}
	}
	return t.some(ctx, stmts)
}

// some runs statements, of which there may be none.
func (t tx) some(ctx context.Context, stmts []dbkit.Stmt) error {
	if len(stmts) == 0 {
		return nil
	}
	return t.Batch(ctx, stmts...)
}

// ForgottenReservations implements store.Store.
func (s *Store) ForgottenReservations(ctx context.Context, limit int) (found []store.Forgotten, err error) {
	err = s.db.Pool.Read(ctx, func(ctx context.Context, q dbkit.Querier) error {
		found, err = collect(ctx, tx{q, s.d, nil}, func(row dbkit.Scanner) (f store.Forgotten, err error) {
			f.Key.Source = usage.Executor
			err = row.Scan(&f.Namespace, &f.Key.RunID, &f.Key.NodeID, &f.Key.Visit, &f.Key.Item, &f.Key.Attempt, &f.Key.Call)
			return f, err
		}, `SELECT namespace, `+reservationKey+` FROM reservations WHERE NOT estimated AND lease_until < `+s.d.Now()+` ORDER BY lease_until LIMIT $1`, limit)
		return err
	})
	slices.SortStableFunc(found, func(a, b store.Forgotten) int { return a.Compare(b) })
	return found, err
}

// SweepLedger implements store.Store.
func (s *Store) SweepLedger(ctx context.Context, before time.Time, limit int) (accounts, reservations int64, err error) {
	accounts, err = s.db.Pool.Exec(ctx, s.d.DeleteSome(`accounts`, `namespace, id`,
		`SELECT namespace, id FROM accounts WHERE level = 3 AND reserved_tokens = 0 AND reserved_nano_usd = 0 AND update_time < $1
			ORDER BY update_time LIMIT $2`)+` AND level = 3 AND reserved_tokens = 0 AND reserved_nano_usd = 0 AND update_time < $1`, before, limit)
	if err != nil {
		return 0, 0, err
	}
	reservations, err = s.db.Pool.Exec(ctx, s.d.DeleteSome(`reservations`, `namespace, `+reservationKey,
		`SELECT namespace, `+reservationKey+` FROM reservations WHERE estimated AND lease_until < $1 ORDER BY lease_until LIMIT $2`)+` AND estimated AND lease_until < $1`, before, limit)
	return accounts, reservations, err
}
