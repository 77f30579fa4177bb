package registry_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/apikey"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// keyRows calls the keys of the longest name that there may be.
type keyRows struct{ admin, service registryv1.KeyServiceClient }

// onKeyRows runs a test on both stores.
func onKeyRows(t *testing.T, f func(t *testing.T, w *keyRows)) {
	t.Helper()
	for name, config := range onBothStores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dial, _ := serveConn(t, config(t), grpckit.AuthConfig{ServiceToken: conf.NewSecret("of-services"), Keys: []grpckit.APIKey{
				{Name: strings.Repeat("ü", 32), Namespace: strings.Repeat("n", 63), Secret: conf.NewSecret("secret-of-ada"), Role: access.Administrator},
			}}, nil)
			f(t, &keyRows{registryv1.NewKeyServiceClient(dial("secret-of-ada")), registryv1.NewKeyServiceClient(dial("of-services"))})
		})
	}
}

// made is a key with the longest texts.
func (w *keyRows) made(t *testing.T) *registryv1.CreateKeyResponse {
	t.Helper()
	made, err := w.admin.CreateKey(t.Context(), &registryv1.CreateKeyRequest{Name: strings.Repeat("ü", 32), Scopes: []string{"read", "run", "approve", "admin"}})
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("ü", 32), made.GetKey().GetName())
	require.Equal(t, "key:"+strings.Repeat("ü", 32), made.GetKey().GetPrincipal())
	return made
}

// TestLargeKeys calls every RPC of the keys with the longest texts. An RPC without a case fails it.
func TestLargeKeys(t *testing.T) {
	t.Parallel()
	cases := map[string]func(t *testing.T, w *keyRows){
		"CreateKey": func(t *testing.T, w *keyRows) { w.made(t) },
		"GetKey": func(t *testing.T, w *keyRows) {
			want := w.made(t).GetKey()
			got, err := w.admin.GetKey(t.Context(), &registryv1.GetKeyRequest{KeyId: want.GetId()})
			require.NoError(t, err)
			require.Equal(t, want.String(), got.String())
		},
		"ListKeys": func(t *testing.T, w *keyRows) {
			want := w.made(t).GetKey()
			got, err := w.admin.ListKeys(t.Context(), &registryv1.ListKeysRequest{PageSize: 1})
			require.NoError(t, err)
			require.Equal(t, want.String(), got.GetKeys()[0].String())
		},
		"RevokeKey": func(t *testing.T, w *keyRows) {
			got, err := w.admin.RevokeKey(t.Context(), &registryv1.RevokeKeyRequest{KeyId: w.made(t).GetKey().GetId()})
			require.NoError(t, err)
			require.Equal(t, got.GetPrincipal(), got.GetRevokedBy())
		},
		"GetCaller": func(t *testing.T, w *keyRows) {
			got, err := w.admin.GetCaller(t.Context(), &registryv1.GetCallerRequest{})
			require.NoError(t, err)
			require.Equal(t, []string{"key:" + strings.Repeat("ü", 32), strings.Repeat("n", 63), "admin"}, []string{got.GetPrincipal(), got.GetNamespace(), got.GetRole()})
		},
		"ResolveKey": func(t *testing.T, w *keyRows) {
			made := w.made(t)
			token, ok := apikey.Parse(made.GetSecret())
			require.True(t, ok, "the secret of the longest namespace can be read")
			got, err := w.service.ResolveKey(grpckit.WithNamespace(t.Context(), token.Namespace), &registryv1.ResolveKeyRequest{KeyId: token.ID, Hash: token.Hash[:]})
			require.NoError(t, err)
			require.Equal(t, made.GetKey().GetId(), got.GetKey().GetId())
		},
	}
	t.Run("Cases/EveryRPCHasOne", func(t *testing.T) {
		t.Parallel()
		var have []string
		for _, m := range registryv1.KeyService_ServiceDesc.Methods {
			have = append(have, m.MethodName)
		}
		slices.Sort(have)
		require.Equal(t, have, slices.Sorted(maps.Keys(cases)), "each RPC has a case here")
	})
	onKeyRows(t, func(t *testing.T, w *keyRows) {
		for _, name := range slices.Sorted(maps.Keys(cases)) {
			t.Run(name, func(t *testing.T) { cases[name](t, w) })
		}
	})
}

// TestKeyRepeats sends every request of the keys that has a request id again, as TestRepeats does: at
// once, and when the key was revoked.
func TestKeyRepeats(t *testing.T) {
	t.Parallel()
	var have []string
	methods := registryv1.File_epigraph_registry_v1_key_proto.Services().ByName("KeyService").Methods()
	for i := range methods.Len() {
		if methods.Get(i).Input().Fields().ByName("request_id") != nil {
			have = append(have, string(methods.Get(i).Name()))
		}
	}
	require.Equal(t, []string{"CreateKey"}, have, "say here how it is sent twice")
	onKeyRows(t, func(t *testing.T, w *keyRows) {
		req := &registryv1.CreateKeyRequest{Name: "one", Role: "viewer", RequestId: "req"}
		other := &registryv1.CreateKeyRequest{Name: "two", Role: "viewer", RequestId: "req"}
		first, err := w.admin.CreateKey(t.Context(), req)
		require.NoError(t, err)
		again := func() {
			got, err := w.admin.CreateKey(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, first.GetKey().GetId(), got.GetKey().GetId())
			require.Empty(t, got.GetSecret())
			_, err = w.admin.CreateKey(t.Context(), other)
			require.Equal(t, "REQUEST_ID_REUSED", errs.ReasonOf(err))
		}
		again()
		_, err = w.admin.RevokeKey(t.Context(), &registryv1.RevokeKeyRequest{KeyId: first.GetKey().GetId()})
		require.NoError(t, err)
		again()
	})
}
