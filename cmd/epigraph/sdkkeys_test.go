package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
)

// TestSDKKeys makes and revokes keys as a program in Go does. Nobody serves the address of Dial, so that each
// method has to find the registry at its own.
func TestSDKKeys(t *testing.T) {
	d := serve(t, fakellm.Script{Models: []string{"fake-1"}, Default: fakellm.Reply{Text: "done"}})
	c, err := epigraph.Dial("127.0.0.1:1", epigraph.WithRegistry(d.GRPCAddr()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	ctx := t.Context()
	ends := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	first, secret, err := c.CreateKey(ctx, "dash", epigraph.KeyRole("viewer"), epigraph.KeyExpiresAt(ends))
	require.NoError(t, err)
	second, _, err := c.CreateKey(ctx, "hand", epigraph.KeyScopes("run", "approve"))
	require.NoError(t, err)

	t.Run("CreateKey/TakesRoleScopesAndEnd", func(t *testing.T) {
		require.Equal(t, []any{"dash", "viewer", ends}, []any{first.GetName(), first.GetRole(), first.GetExpireTime().AsTime()})
		require.Equal(t, []string{"run", "approve"}, second.GetScopes())
	})
	t.Run("Caller/IsTheKeyThatIsShown", func(t *testing.T) {
		mine, err := epigraph.Dial("127.0.0.1:1", epigraph.WithRegistry(d.GRPCAddr()), epigraph.WithKey(secret))
		require.NoError(t, err)
		defer func() { require.NoError(t, mine.Close()) }()
		who, err := mine.Caller(ctx)
		require.NoError(t, err)
		require.Equal(t, []string{"key:dash", "viewer"}, []string{who.GetPrincipal(), who.GetRole()})
		_, _, err = mine.CreateKey(ctx, "more", epigraph.KeyRole("viewer"))
		require.Equal(t, "SCOPE_MISSING", epigraph.ReasonOf(err))
	})
	t.Run("Keys/AreListedNewestFirst", func(t *testing.T) {
		keys, err := c.Keys(ctx)
		require.NoError(t, err)
		require.Len(t, keys, 2)
		require.Equal(t, second.GetId(), keys[0].GetId())
	})
	t.Run("RevokeKey/EndsIt", func(t *testing.T) {
		got, err := c.RevokeKey(ctx, first.GetId())
		require.NoError(t, err)
		require.NotNil(t, got.GetRevokeTime())
		_, err = c.RevokeKey(ctx, "key_none")
		require.Equal(t, "KEY_NOT_FOUND", epigraph.ReasonOf(err))
	})
	t.Run("Audit/TellsAllOfThatOverPages", func(t *testing.T) {
		filter := &registryv1.ListAuditRequest{Method: "CreateKey", PageSize: 1}
		testkit.Within(t, 20*time.Second, 50*time.Millisecond, func() bool { return len(listed(t, c.Audit(ctx, filter))) == 3 })
		require.Empty(t, filter.GetPageToken(), "the filter is the caller's")
		var got []string
		for _, e := range listed(t, c.Audit(ctx, filter)) {
			got = append(got, e.GetPrincipal()+" "+e.GetCode()+" "+e.GetResource())
		}
		require.Equal(t, []string{"key:dash PermissionDenied ", "open OK " + second.GetId(), "open OK " + first.GetId()}, got)
	})
}
