// Package auditing owns the audit log as the registry keeps it: what is stored, listed and removed by
// age. It must not know how entries come about, nor SQL.
package auditing

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/audit"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// DefaultAge is how long an entry is kept.
const DefaultAge = 400 * 24 * time.Hour

// sweptAtOnce is how many entries of a namespace one transaction removes.
const sweptAtOnce = 1000

// ahead is how far the clock of whoever recorded an entry may be ahead.
const ahead = time.Hour

// Book is the audit log over a store. It is safe for concurrent use.
type Book struct {
	store store.Store
	age   time.Duration
}

// New returns the log over a store, which stays the caller's to close. Entries are kept for an age.
func New(s store.Store, age time.Duration) *Book { return &Book{s, age} }

// Write is an audit.Write.
func (b *Book) Write(ctx context.Context, namespace string, entries []audit.Entry) error {
	latest := dbkit.Now().Add(ahead)
	rows := make([]audit.Entry, len(entries))
	for i, e := range entries {
		e.Time = dbkit.Micros(e.Time)
		if e.Time.After(latest) {
			e.Time = latest // else nothing would ever be older than it
		}
		rows[i] = e
	}
	return b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error { return tx.InsertAudit(ctx, namespace, rows) })
}

// List lists the newest first.
func (b *Book) List(ctx context.Context, q store.AuditQuery) (out []audit.Entry, err error) {
	q.Method = access.FullMethod(q.Method)
	err = b.store.View(ctx, q.Namespace, func(ctx context.Context, r store.Reader) error {
		out, err = r.AuditEntries(ctx, q)
		return err
	})
	return out, err
}

// Sweep removes entries that are too old, from each namespace in turn, and returns how many.
func (b *Book) Sweep(ctx context.Context) (int64, error) {
	return b.store.SweepAudit(ctx, dbkit.Now().Add(-b.age), sweptAtOnce)
}
