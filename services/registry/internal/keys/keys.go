// Package keys owns API keys as resources: what one is, what may be granted, and the use cases over a
// store. It must not know how a key is shown, nor SQL.
package keys

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/apikey"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/registry/internal/request"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// Reasons of refusals.
const (
	// ReasonInvalid refuses a key that cannot be made.
	ReasonInvalid = "KEY_INVALID"
	// ReasonGrant refuses a key that may do more than whoever makes it.
	ReasonGrant = "KEY_GRANTS_TOO_MUCH"
	// ReasonTooMany refuses another key of a namespace.
	ReasonTooMany = "TOO_MANY_KEYS"
)

const (
	// MaxKeys is how many keys that have not ended a namespace may have.
	MaxKeys = 1000
	// keptAfterEnd is for how long a key is listed after its end.
	keptAfterEnd = 90 * 24 * time.Hour
	// sweptAtOnce is how many keys one sweep removes.
	sweptAtOnce = 200
	// useStep is how exactly the last use is recorded: each step is a write.
	useStep = time.Hour
	// maxName bounds a name, in bytes.
	maxName = 64
)

// Keys applies the use cases to a store. It is safe for concurrent use.
type Keys struct{ store store.Store }

// New returns the use cases over a store, which stays the caller's to close.
func New(s store.Store) *Keys { return &Keys{store: s} }

// Wanted is a key that is to be made.
type Wanted struct {
	Name    string
	Role    string
	Scopes  []string
	Expires time.Time
}

// granted are the scopes of the wanted key, which the caller must have.
func (w Wanted) granted(who access.Principal) ([]access.Scope, error) {
	var out []access.Scope
	role := access.Role(w.Role)
	switch {
	case w.Role != "" && len(w.Scopes) > 0:
		return nil, invalid("scopes", "a role is a set of scopes: give one of them")
	case w.Role != "" && role.Scopes() == nil:
		return nil, invalid("role", fmt.Sprintf("there is no role %q: viewer, operator, approver or admin", w.Role))
	case w.Role != "":
		out = role.Scopes()
	case len(w.Scopes) == 0:
		return nil, invalid("role", "say what the key may do: give a role or scopes")
	}
	for _, s := range w.Scopes {
		if !slices.Contains(access.Scopes(), access.Scope(s)) {
			return nil, invalid("scopes", fmt.Sprintf("there is no scope %q: read, run, worker, approve or admin", s))
		}
		if !slices.Contains(out, access.Scope(s)) {
			out = append(out, access.Scope(s))
		}
	}
	for _, s := range out {
		if !who.Has(s) && (s != access.Read || !who.Reads()) {
			return nil, errs.New(errs.PermissionDenied, ReasonGrant, "the caller may not %s, and so cannot make a key that may", s).
				Set("scope", string(s)).Hint("use a key that has the scope, such as one of auth.keys")
		}
	}
	return out, nil
}

// outlives refuses a key that would go on after the key that makes it: whoever has a key for a day could
// make one for ever.
func (w Wanted) outlives(who access.Principal) error {
	if end := who.Expires; !end.IsZero() && (w.Expires.IsZero() || w.Expires.After(end)) {
		at := end.UTC().Format(time.RFC3339)
		return errs.New(errs.PermissionDenied, ReasonGrant, "the caller's key ends at %s, and so cannot make one that ends later or never", at).
			Set("expire_time", at).Hint("set expire_time to " + at + " or before")
	}
	return nil
}

// Create makes a key and returns its secret, which is empty if the request was served before.
func (k *Keys) Create(ctx context.Context, namespace string, once request.Once, w Wanted) (out store.APIKey, secret string, err error) {
	now := dbkit.Now()
	if len(w.Name) > maxName || strings.TrimSpace(w.Name) == "" || strings.ContainsFunc(w.Name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return out, "", invalid("name", "give it a name of 1 to 64 printable characters: what is done with it is recorded under that")
	}
	if !w.Expires.IsZero() && !w.Expires.After(now) {
		return out, "", invalid("expire_time", "it is not in the future")
	}
	who := access.Of(ctx)
	scopes, err := w.granted(who)
	if err == nil {
		err = w.outlives(who)
	}
	if err != nil {
		return out, "", err
	}
	made := store.APIKey{Namespace: namespace, ID: ids.New(apikey.IDPrefix), Name: w.Name, Scopes: scopes, Principal: request.Caller(ctx), CreateTime: now, ExpireTime: w.Expires}
	text, hash := apikey.New(namespace, made.ID)
	made.Hash = hash
	err = k.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		out, secret = store.APIKey{}, ""
		earlier, err := once.Earlier(ctx, tx, namespace, "CreateKey", made.ID, now)
		if err != nil {
			return err
		}
		if earlier != "" {
			out, err = tx.APIKey(ctx, namespace, earlier)
			return err
		}
		n, err := tx.CountAPIKeys(ctx, namespace, now, MaxKeys)
		if err != nil {
			return err
		}
		if n >= MaxKeys {
			return errs.New(errs.ResourceExhausted, ReasonTooMany, "the namespace has %d keys that have not ended, and may have no more", n).
				Hint("revoke those that nobody uses: ListKeys tells the last use")
		}
		out, secret = made, text
		return tx.InsertAPIKey(ctx, made)
	})
	return out, secret, err
}

// Get finds one of the namespace.
func (k *Keys) Get(ctx context.Context, namespace, id string) (out store.APIKey, err error) {
	err = k.store.View(ctx, namespace, func(ctx context.Context, r store.Reader) error {
		out, err = r.APIKey(ctx, namespace, id)
		return err
	})
	return out, err
}

// List lists the newest first.
func (k *Keys) List(ctx context.Context, q store.APIKeyQuery) (out []store.APIKey, err error) {
	err = k.store.View(ctx, q.Namespace, func(ctx context.Context, r store.Reader) error {
		out, err = r.APIKeys(ctx, q)
		return err
	})
	return out, err
}

// Revoke ends a key. One that has ended stays as it is.
func (k *Keys) Revoke(ctx context.Context, namespace, id string) (out store.APIKey, err error) {
	now := dbkit.Now()
	err = k.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		if err := tx.RevokeAPIKey(ctx, namespace, id, now, request.Caller(ctx)); err != nil {
			return err
		}
		out, err = tx.APIKey(ctx, namespace, id)
		return err
	})
	return out, err
}

// Resolve finds a key that has not ended; found is false if there is none. A use with the right hash
// is recorded about once an hour.
func (k *Keys) Resolve(ctx context.Context, namespace, id string, hash [sha256.Size]byte) (out store.APIKey, found bool, err error) {
	now := dbkit.Now()
	out, err = k.Get(ctx, namespace, id)
	if errs.Is(err, errs.NotFound) {
		return out, false, nil
	}
	if err != nil || out.Ended(now) {
		return out, false, err
	}
	if out.Hash == hash && now.Sub(out.LastUseTime) >= useStep {
		// Whoever has the key gets in while the database cannot be written: the use is recorded next time.
		_ = k.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error { return tx.UseAPIKey(ctx, namespace, id, now) })
	}
	return out, true, nil
}

// Sweep removes keys that have ended long ago, and returns how many.
func (k *Keys) Sweep(ctx context.Context) (int64, error) {
	return k.store.SweepAPIKeys(ctx, dbkit.Now().Add(-keptAfterEnd), sweptAtOnce)
}

func invalid(field, text string) error {
	return errs.New(errs.InvalidArgument, ReasonInvalid, "%s: %s", field, text).Violate(field, ReasonInvalid, text)
}
