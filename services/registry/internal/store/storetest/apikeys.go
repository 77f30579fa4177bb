package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

func apiKeyCases() map[string]func(*testing.T, *fixture) {
	now := dbkit.Now()
	insert := func(t *testing.T, f *fixture, keys ...store.APIKey) {
		t.Helper()
		require.NoError(t, f.store.Update(f.ctx, "n", func(ctx context.Context, tx store.Tx) error {
			for _, k := range keys {
				if err := tx.InsertAPIKey(ctx, k); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	list := func(t *testing.T, f *fixture) (ids []string) {
		t.Helper()
		require.NoError(t, f.store.View(f.ctx, "n", func(ctx context.Context, r store.Reader) error {
			all, err := r.APIKeys(ctx, store.APIKeyQuery{Namespace: "n", Limit: 100})
			for _, k := range all {
				ids = append(ids, k.ID)
			}
			return err
		}))
		return ids
	}
	key := func(id string, expires, revoked time.Time) store.APIKey {
		return store.APIKey{Namespace: "n", ID: id, Name: "k", Scopes: []access.Scope{access.Read}, CreateTime: now, ExpireTime: expires, RevokeTime: revoked}
	}
	never := time.Time{}
	return map[string]func(*testing.T, *fixture){
		"Keys/ComeBackAsTheyWereWritten": func(t *testing.T, f *fixture) {
			want := store.APIKey{Namespace: "n", ID: "key_1", Name: "a – ü", Scopes: access.Scopes(), Hash: [32]byte{1, 2, 255}, Principal: "key:root",
				RevokedBy: "key:ada", CreateTime: now, ExpireTime: now.Add(time.Second), RevokeTime: now.Add(time.Hour), LastUseTime: now.Add(time.Minute)}
			insert(t, f, want)
			require.NoError(t, f.store.View(f.ctx, "n", func(ctx context.Context, r store.Reader) error {
				got, err := r.APIKey(ctx, "n", "key_1")
				require.Equal(t, want, got)
				return err
			}))
		},
		"Keys/ThoseThatHaveEndedDoNotCount": func(t *testing.T, f *fixture) {
			insert(t, f, key("open", never, never), key("later", now.Add(time.Hour), never), key("expired", now.Add(-time.Hour), never), key("revoked", never, now))
			require.NoError(t, f.store.Update(f.ctx, "n", func(ctx context.Context, tx store.Tx) error {
				n, err := tx.CountAPIKeys(ctx, "n", now, 10)
				require.Equal(t, 2, n)
				return err
			}))
		},
		"Keys/SweepRemovesThoseThatEndedLongAgo": func(t *testing.T, f *fixture) {
			old, late := now.Add(-2*time.Hour), now.Add(-time.Minute)
			insert(t, f, key("1", never, never), key("2", now.Add(time.Hour), never), key("3", late, never), key("4", never, late), key("5", old, never), key("6", never, old))
			removed, err := f.store.SweepAPIKeys(f.ctx, now.Add(-time.Hour), 10)
			require.NoError(t, err)
			require.EqualValues(t, 2, removed)
			require.Equal(t, []string{"4", "3", "2", "1"}, list(t, f))
		},
		"Keys/SweepRemovesSomeAtATime": func(t *testing.T, f *fixture) {
			for i := range 5 {
				insert(t, f, key(fmt.Sprint(i), now.Add(-2*time.Hour), never))
			}
			removed, err := f.store.SweepAPIKeys(f.ctx, now.Add(-time.Hour), 3)
			require.NoError(t, err)
			require.EqualValues(t, 3, removed)
			require.Len(t, list(t, f), 2)
		},
	}
}
