package registry_test

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/apikey"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// keyWorld has an administrator of acme, one of acme with every scope, one of other, and the services.
type keyWorld struct {
	admin, root, eve, service registryv1.KeyServiceClient
}

func TestKeys(t *testing.T) {
	t.Parallel()
	for name, config := range onBothStores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dial, _ := serveConn(t, config(t), grpckit.AuthConfig{ServiceToken: conf.NewSecret("of-services"), Keys: []grpckit.APIKey{
				{Name: "ada", Namespace: "acme", Secret: conf.NewSecret("secret-of-ada"), Role: access.Administrator},
				{Name: "root", Namespace: "acme", Secret: conf.NewSecret("secret-of-root"), Scopes: access.Scopes()},
				{Name: "eve", Namespace: "other", Secret: conf.NewSecret("secret-of-eve"), Role: access.Administrator},
			}}, nil)
			client := func(key string) registryv1.KeyServiceClient { return registryv1.NewKeyServiceClient(dial(key)) }
			w := &keyWorld{admin: client("secret-of-ada"), root: client("secret-of-root"), eve: client("secret-of-eve"), service: client("of-services")}
			for name, run := range map[string]func(*testing.T, context.Context, *keyWorld){
				"Create/ShowsTheSecretOnce": keySecret, "Create/RepeatsAreOne": keyRepeat, "Create/FaultsAreTold": keyFaults,
				"Create/GrantsNoMoreThanTheCallerHas": keyGrants, "Create/OutlivesNoCaller": keyEnds, "List/NewestFirstByPages": keyPages, "Namespace/OthersSeeNothing": keyOthers,
				"Revoke/EndsItForGood": keyRevoked, "Resolve/RecordsUsesWithTheSecret": keyUsed, "Expiry/EndsIt": keyExpires, "Caller/IsToldWhoItIs": keyCaller,
			} {
				t.Run(name, func(t *testing.T) { run(t, t.Context(), w) })
			}
		})
	}
}

func (w *keyWorld) create(t *testing.T, name string) *registryv1.CreateKeyResponse {
	t.Helper()
	made, err := w.admin.CreateKey(t.Context(), &registryv1.CreateKeyRequest{Name: name, Role: "viewer"})
	require.NoError(t, err)
	return made
}

// resolve asks as a service does for a secret; the answer is nil if it opens nothing.
func (w *keyWorld) resolve(t *testing.T, secret string) *registryv1.Key {
	t.Helper()
	token, ok := apikey.Parse(secret)
	require.True(t, ok)
	r, err := w.service.ResolveKey(grpckit.WithNamespace(t.Context(), token.Namespace), &registryv1.ResolveKeyRequest{KeyId: token.ID, Hash: token.Hash[:]})
	require.NoError(t, err)
	if r.GetKey() != nil {
		require.Equal(t, token.Hash[:], r.GetHash())
	}
	return r.GetKey()
}

func keySecret(t *testing.T, ctx context.Context, w *keyWorld) {
	made := w.create(t, "dashboard – ü")
	require.True(t, strings.HasPrefix(made.GetSecret(), "epk_acme_"), made.GetSecret())
	k := made.GetKey()
	require.Equal(t, []any{"acme", "dashboard – ü", "viewer", []string{"read"}, "key:ada"}, []any{k.GetNamespace(), k.GetName(), k.GetRole(), k.GetScopes(), k.GetPrincipal()})
	got, err := w.admin.GetKey(ctx, &registryv1.GetKeyRequest{KeyId: k.GetId()})
	require.NoError(t, err)
	require.Equal(t, k.String(), got.String())
	require.NotContains(t, got.String(), made.GetSecret())
	require.Equal(t, k.GetId(), w.resolve(t, made.GetSecret()).GetId())
}

func keyRepeat(t *testing.T, ctx context.Context, w *keyWorld) {
	req := &registryv1.CreateKeyRequest{Name: "once", Scopes: []string{"run", "approve", "run"}, RequestId: "req-once"}
	first, err := w.admin.CreateKey(ctx, req)
	require.NoError(t, err)
	require.Equal(t, []string{"run", "approve"}, first.GetKey().GetScopes())
	again, err := w.admin.CreateKey(ctx, req)
	require.NoError(t, err)
	require.Equal(t, first.GetKey().String(), again.GetKey().String())
	require.NotEmpty(t, first.GetSecret())
	require.Empty(t, again.GetSecret(), "the secret is not kept")
	req.Name = "other"
	_, err = w.admin.CreateKey(ctx, req)
	require.Equal(t, "REQUEST_ID_REUSED", errs.ReasonOf(err))
}

func keyFaults(t *testing.T, ctx context.Context, w *keyWorld) {
	for name, req := range map[string]*registryv1.CreateKeyRequest{
		"RoleAndScopes": {Name: "k", Role: "viewer", Scopes: []string{"run"}},
		"Neither":       {Name: "k"},
		"NoSuchRole":    {Name: "k", Role: "owner"},
		"NoSuchScope":   {Name: "k", Scopes: []string{"service"}},
		"BlankName":     {Name: "  ", Role: "viewer"},
		"Unprintable":   {Name: "a\nb", Role: "viewer"},
		"InThePast":     {Name: "k", Role: "viewer", ExpireTime: timestamppb.New(time.Now().Add(-time.Second))},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.root.CreateKey(ctx, req)
			e := requireError(t, err, errs.InvalidArgument, "KEY_INVALID")
			require.NotEmpty(t, e.Violations)
		})
	}
	t.Run("LongName", func(t *testing.T) {
		_, err := w.root.CreateKey(ctx, &registryv1.CreateKeyRequest{Name: strings.Repeat("k", 65), Role: "viewer"})
		require.True(t, errs.Is(err, errs.InvalidArgument), "got %v", err)
	})
	t.Run("NoSuchKey", func(t *testing.T) {
		for _, id := range []string{"key_none", strings.Repeat("k", 64)} {
			_, err := w.root.GetKey(ctx, &registryv1.GetKeyRequest{KeyId: id})
			requireError(t, err, errs.NotFound, "KEY_NOT_FOUND")
			_, err = w.root.RevokeKey(ctx, &registryv1.RevokeKeyRequest{KeyId: id})
			requireError(t, err, errs.NotFound, "KEY_NOT_FOUND")
		}
	})
}

func keyGrants(t *testing.T, ctx context.Context, w *keyWorld) {
	worker := &registryv1.CreateKeyRequest{Name: "w", Scopes: []string{"run", "worker"}}
	_, err := w.admin.CreateKey(ctx, worker)
	e := requireError(t, err, errs.PermissionDenied, "KEY_GRANTS_TOO_MUCH")
	require.Equal(t, "worker", e.Meta["scope"])
	_, err = w.root.CreateKey(ctx, worker)
	require.NoError(t, err)
	made, err := w.admin.CreateKey(ctx, &registryv1.CreateKeyRequest{Name: "a", Role: "admin"})
	require.NoError(t, err)
	require.Equal(t, []string{"read", "run", "approve", "admin"}, made.GetKey().GetScopes())
}

func keyEnds(t *testing.T, ctx context.Context, w *keyWorld) {
	end := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	hour := access.Principal{Kind: access.Key, Name: "hour", Scopes: access.Administrator.Scopes(), Expires: end}
	ctx = metadata.AppendToOutgoingContext(grpckit.WithNamespace(ctx, "acme"), grpckit.HeaderPrincipal, hour.Encode())
	for name, at := range map[string]*timestamppb.Timestamp{"Never": nil, "Later": timestamppb.New(end.Add(time.Microsecond))} {
		_, err := w.service.CreateKey(ctx, &registryv1.CreateKeyRequest{Name: "longer", Role: "viewer", ExpireTime: at})
		e := requireError(t, err, errs.PermissionDenied, "KEY_GRANTS_TOO_MUCH")
		require.Equal(t, end.UTC().Format(time.RFC3339), e.Meta["expire_time"], name)
	}
	_, err := w.service.CreateKey(ctx, &registryv1.CreateKeyRequest{Name: "as long", Role: "viewer", ExpireTime: timestamppb.New(end)})
	require.NoError(t, err)
}

func keyPages(t *testing.T, ctx context.Context, w *keyWorld) {
	var want []string
	for range 3 {
		want = append(want, w.create(t, "paged").GetKey().GetId())
	}
	slices.Reverse(want)
	var got []string
	for token, more := "", true; more; more = token != "" {
		r, err := w.admin.ListKeys(ctx, &registryv1.ListKeysRequest{PageSize: 2, PageToken: token})
		require.NoError(t, err)
		for _, k := range r.GetKeys() {
			if k.GetName() == "paged" {
				got = append(got, k.GetId())
			}
		}
		token = r.GetNextPageToken()
	}
	require.Equal(t, want, got)
}

func keyOthers(t *testing.T, ctx context.Context, w *keyWorld) {
	made := w.create(t, "mine")
	id := made.GetKey().GetId()
	_, err := w.eve.GetKey(ctx, &registryv1.GetKeyRequest{KeyId: id})
	requireError(t, err, errs.NotFound, "KEY_NOT_FOUND")
	_, err = w.eve.RevokeKey(ctx, &registryv1.RevokeKeyRequest{KeyId: id})
	requireError(t, err, errs.NotFound, "KEY_NOT_FOUND")
	list, err := w.eve.ListKeys(ctx, &registryv1.ListKeysRequest{})
	require.NoError(t, err)
	require.Empty(t, list.GetKeys())
	elsewhere := strings.Replace(made.GetSecret(), "epk_acme_", "epk_other_", 1)
	require.Nil(t, w.resolve(t, elsewhere), "a secret names its own namespace")
}

func keyRevoked(t *testing.T, ctx context.Context, w *keyWorld) {
	made := w.create(t, "lost")
	ended, err := w.root.RevokeKey(ctx, &registryv1.RevokeKeyRequest{KeyId: made.GetKey().GetId()})
	require.NoError(t, err)
	require.NotNil(t, ended.GetRevokeTime())
	require.Equal(t, "key:root", ended.GetRevokedBy())
	require.Nil(t, w.resolve(t, made.GetSecret()))
	again, err := w.admin.RevokeKey(ctx, &registryv1.RevokeKeyRequest{KeyId: made.GetKey().GetId()})
	require.NoError(t, err)
	require.Equal(t, ended.String(), again.String(), "who revoked it first did")
}

func keyUsed(t *testing.T, ctx context.Context, w *keyWorld) {
	made := w.create(t, "used")
	read := func() *registryv1.Key {
		k, err := w.admin.GetKey(ctx, &registryv1.GetKeyRequest{KeyId: made.GetKey().GetId()})
		require.NoError(t, err)
		return k
	}
	wrong := sha256.Sum256([]byte("guess"))
	_, err := w.service.ResolveKey(grpckit.WithNamespace(ctx, "acme"), &registryv1.ResolveKeyRequest{KeyId: made.GetKey().GetId(), Hash: wrong[:]})
	require.NoError(t, err)
	require.Nil(t, read().GetLastUseTime(), "a guess is no use")
	require.NotNil(t, w.resolve(t, made.GetSecret()))
	first := read().GetLastUseTime()
	require.NotNil(t, first)
	require.NotNil(t, w.resolve(t, made.GetSecret()))
	require.Equal(t, first.AsTime(), read().GetLastUseTime().AsTime(), "once an hour is enough")
}

func keyExpires(t *testing.T, ctx context.Context, w *keyWorld) {
	until := time.Now().Add(2 * time.Second)
	made, err := w.admin.CreateKey(ctx, &registryv1.CreateKeyRequest{Name: "short", Role: "viewer", ExpireTime: timestamppb.New(until)})
	require.NoError(t, err)
	testkit.Eventually(t, func() bool { return w.resolve(t, made.GetSecret()) == nil })
	require.False(t, time.Now().Before(until))
}

func keyCaller(t *testing.T, ctx context.Context, w *keyWorld) {
	for name, tt := range map[string]struct {
		client registryv1.KeyServiceClient
		want   *registryv1.Caller
	}{
		"ARole":        {w.eve, &registryv1.Caller{Principal: "key:eve", Namespace: "other", Role: "admin", Scopes: []string{"read", "run", "approve", "admin"}}},
		"ScopesOfNone": {w.root, &registryv1.Caller{Principal: "key:root", Namespace: "acme", Scopes: []string{"read", "run", "worker", "approve", "admin"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tt.client.GetCaller(ctx, &registryv1.GetCallerRequest{})
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tt.want, got, protocmp.Transform()))
		})
	}
}
