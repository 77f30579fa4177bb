package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/audit"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

func auditCases() map[string]func(*testing.T, *fixture) {
	now := dbkit.Now()
	insert := func(t *testing.T, f *fixture, namespace string, entries ...audit.Entry) {
		t.Helper()
		require.NoError(t, f.store.Update(f.ctx, namespace, func(ctx context.Context, tx store.Tx) error { return tx.InsertAudit(ctx, namespace, entries) }))
	}
	list := func(t *testing.T, f *fixture, q store.AuditQuery) (ids []string) {
		t.Helper()
		if q.Limit == 0 {
			q.Limit = 100
		}
		require.NoError(t, f.store.View(f.ctx, q.Namespace, func(ctx context.Context, r store.Reader) error {
			all, err := r.AuditEntries(ctx, q)
			for _, e := range all {
				ids = append(ids, e.ID)
			}
			return err
		}))
		return ids
	}
	return map[string]func(*testing.T, *fixture){
		"Audit/EntriesComeBackAsTheyWereWritten": func(t *testing.T, f *fixture) {
			want := audit.Entry{Namespace: "n", ID: "aud_1", Time: now, Principal: "key:a – ü", Method: "s/M", Resource: "run_1", RunID: "run_2", RequestID: "req", Code: "OK", Reason: "R", Remote: "::1", UserAgent: "u", LeftOut: 7}
			insert(t, f, "n", want)
			require.NoError(t, f.store.View(f.ctx, "n", func(ctx context.Context, r store.Reader) error {
				got, err := r.AuditEntries(ctx, store.AuditQuery{Namespace: "n", Limit: 10})
				require.Equal(t, []audit.Entry{want}, got)
				return err
			}))
		},
		"Audit/AnEntryIsNeverReplaced": func(t *testing.T, f *fixture) {
			insert(t, f, "n", audit.Entry{ID: "aud_1", Time: now, Principal: "key:eve"})
			insert(t, f, "n", audit.Entry{ID: "aud_1", Time: now, Principal: "key:ada"}, audit.Entry{ID: "aud_2", Time: now})
			require.Equal(t, []string{"aud_1"}, list(t, f, store.AuditQuery{Namespace: "n", Principal: "key:eve"}))
			require.Len(t, list(t, f, store.AuditQuery{Namespace: "n"}), 2)
		},
		"Audit/TheTableRefusesUpdates": func(t *testing.T, f *fixture) {
			insert(t, f, "n", audit.Entry{ID: "aud_1", Time: now, Principal: "key:eve"})
			require.ErrorContains(t, f.store.Update(f.ctx, "n", func(ctx context.Context, tx store.Tx) error {
				raw, ok := tx.(interface {
					Exec(ctx context.Context, query string, args ...any) (int64, error)
				})
				require.True(t, ok)
				_, err := raw.Exec(ctx, `UPDATE audit SET principal = 'key:ada' WHERE namespace = 'n'`)
				return err
			}), "the audit log is append-only")
			require.Len(t, list(t, f, store.AuditQuery{Namespace: "n", Principal: "key:eve"}), 1)
		},
		"Audit/FiltersNarrow": func(t *testing.T, f *fixture) {
			insert(t, f, "n",
				audit.Entry{ID: "1", Time: now.Add(-2 * time.Hour), Principal: "key:a", Method: "m", Resource: "x"},
				audit.Entry{ID: "2", Time: now.Add(-time.Hour), Principal: "key:b", Method: "m", Resource: "y"},
				audit.Entry{ID: "3", Time: now, Principal: "key:a", Method: "o", Resource: "y"})
			insert(t, f, "other", audit.Entry{ID: "4", Time: now, Principal: "key:a", Method: "m", Resource: "x"})
			for want, q := range map[string]store.AuditQuery{
				"[3 2 1]": {}, "[3 1]": {Principal: "key:a"}, "[2 1]": {Method: "m"}, "[3 2]": {Resource: "y"}, "[1]": {Principal: "key:a", Method: "m"},
				"[3]": {From: now}, "[2]": {From: now.Add(-time.Hour), Until: now}, "[]": {Resource: "z"},
			} {
				q.Namespace = "n"
				require.Equal(t, want, fmt.Sprint(list(t, f, q)), "%+v", q)
			}
		},
		"Audit/PagesGoOnBehindTheCursor": func(t *testing.T, f *fixture) {
			insert(t, f, "n", audit.Entry{ID: "1", Time: now}, audit.Entry{ID: "2", Time: now}, audit.Entry{ID: "3", Time: now.Add(time.Microsecond)})
			require.Equal(t, []string{"3", "2"}, list(t, f, store.AuditQuery{Namespace: "n", Limit: 2}))
			require.Equal(t, []string{"1"}, list(t, f, store.AuditQuery{Namespace: "n", After: page.Cursor{CreateTime: now, ID: "2"}}))
		},
		"Audit/SweepRemovesOldEntriesOfAllInTurns": func(t *testing.T, f *fixture) {
			old := now.Add(-time.Hour)
			for i := range 30 {
				insert(t, f, "a", audit.Entry{ID: fmt.Sprint(i), Time: old})
			}
			insert(t, f, "b", audit.Entry{ID: "old", Time: old}, audit.Entry{ID: "new", Time: now})
			removed, err := f.store.SweepAudit(f.ctx, now, 1)
			require.NoError(t, err)
			require.EqualValues(t, 21, removed, "one namespace has 20 turns, and keeps no other waiting")
			require.Equal(t, []string{"new"}, list(t, f, store.AuditQuery{Namespace: "b"}))
			require.Len(t, list(t, f, store.AuditQuery{Namespace: "a"}), 10)
		},
	}
}
