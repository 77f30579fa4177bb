package sqlstore

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

const apiKeyColumns = `t.namespace, t.id, t.name, t.scopes, t.hash, t.principal, t.create_time, t.expire_time, t.revoke_time, t.revoked_by, t.last_use_time`

func scanAPIKey(row dbkit.Scanner) (k store.APIKey, err error) {
	var scopes []string
	var hash []byte
	err = row.Scan(&k.Namespace, &k.ID, &k.Name, &scopes, &hash, &k.Principal, dbkit.At(&k.CreateTime), dbkit.At(&k.ExpireTime), dbkit.At(&k.RevokeTime), &k.RevokedBy, dbkit.At(&k.LastUseTime))
	copy(k.Hash[:], hash)
	for _, s := range scopes {
		k.Scopes = append(k.Scopes, access.Scope(s))
	}
	return k, err
}

// APIKey implements store.Reader.
func (t tx) APIKey(ctx context.Context, namespace, id string) (store.APIKey, error) {
	return one(ctx, t, store.KeyNotFound(id), scanAPIKey, `SELECT `+apiKeyColumns+` FROM api_keys t WHERE t.namespace = $1 AND t.id = $2`, namespace, id)
}

// APIKeys implements store.Reader.
func (t tx) APIKeys(ctx context.Context, q store.APIKeyQuery) ([]store.APIKey, error) {
	w := where{parts: []string{"t.namespace = $1"}, args: []any{q.Namespace}}
	w.after("create_time", "<", q.After)
	return collectPage(ctx, t, scanAPIKey, `SELECT `+apiKeyColumns+` FROM api_keys t`+w.end("t.create_time DESC, t.id DESC", q.Limit), w.args...)
}

// CountAPIKeys implements store.Tx.
func (t tx) CountAPIKeys(ctx context.Context, namespace string, now time.Time, most int) (int, error) {
	return t.count(ctx, `SELECT 1 FROM api_keys t WHERE t.namespace = $1 AND `+t.d.Unset(`t.revoke_time`)+` AND `+t.alive(`$2`)+` LIMIT $3`, namespace, now, most)
}

// InsertAPIKey implements store.Tx.
func (t tx) InsertAPIKey(ctx context.Context, k store.APIKey) error {
	scopes := make([]string, len(k.Scopes))
	for i, s := range k.Scopes {
		scopes[i] = string(s)
	}
	_, err := t.Exec(ctx, `INSERT INTO api_keys (namespace, id, name, scopes, hash, principal, create_time, expire_time, revoke_time, revoked_by, last_use_time)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
		k.Namespace, k.ID, k.Name, scopes, k.Hash[:], k.Principal, k.CreateTime, k.ExpireTime, k.RevokeTime, k.RevokedBy, k.LastUseTime)
	return err
}

// RevokeAPIKey implements store.Tx.
func (t tx) RevokeAPIKey(ctx context.Context, namespace, id string, now time.Time, principal string) error {
	_, err := t.Exec(ctx, `UPDATE api_keys SET revoke_time = $3, revoked_by = $4 WHERE namespace = $1 AND id = $2 AND `+t.d.Unset(`revoke_time`), namespace, id, now, principal)
	return err
}

// UseAPIKey implements store.Tx.
func (t tx) UseAPIKey(ctx context.Context, namespace, id string, now time.Time) error {
	_, err := t.Exec(ctx, `UPDATE api_keys SET last_use_time = $3 WHERE namespace = $1 AND id = $2 AND (`+t.d.Unset(`last_use_time`)+` OR last_use_time < $3)`, namespace, id, now)
	return err
}

// SweepAPIKeys implements store.Store.
func (s *Store) SweepAPIKeys(ctx context.Context, endedBefore time.Time, limit int) (removed int64, err error) {
	for _, column := range []string{"expire_time", "revoke_time"} {
		n, err := s.db.Pool.Exec(ctx, s.d.DeleteSome(`api_keys`, `namespace, id`, `SELECT t.namespace, t.id FROM api_keys t
			WHERE `+s.d.Set(`t.`+column)+` AND t.`+column+` < $1 LIMIT $2`), endedBefore, limit)
		if removed += n; err != nil {
			return removed, err
		}
	}
	return removed, nil
}
