package stack_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/apikey"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// TestKeys makes a key by the API and shows it at every door until it is revoked.
func TestKeys(t *testing.T) {
	t.Parallel()
	cfg := quiet()
	cfg.Auth.Keys = []grpckit.APIKey{{Name: "boss", Namespace: "team-a", Secret: conf.NewSecret("key-of-the-boss"), Role: access.Administrator}}
	d := openDev(t, stack.DevOptions{DataDir: t.TempDir(), Config: cfg})
	run(t, d)
	require.NoError(t, d.Ready(testkit.Context(t, 20*time.Second)))
	dial := func(addr, key string) registryv1.KeyServiceClient {
		conn, err := grpckit.Dial(addr, grpckit.DialOptions{Token: conf.NewSecret(key)})
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return registryv1.NewKeyServiceClient(conn)
	}
	boss := dial(d.HTTPAddr(), "key-of-the-boss")
	made, err := boss.CreateKey(t.Context(), &registryv1.CreateKeyRequest{Name: "screen", Role: "viewer"})
	require.NoError(t, err)
	doors := map[string]func(t *testing.T) error{
		"REST": func(t *testing.T) error {
			code, body := get(t, "http://"+d.HTTPAddr()+"/v1/runs", "Authorization", "Bearer "+made.GetSecret())
			switch code {
			case http.StatusOK:
				return nil
			case http.StatusUnauthorized:
				return errs.New(errs.Unauthenticated, "CREDENTIALS_INVALID", "%s", body)
			}
			require.Fail(t, "unexpected answer", "%d %s", code, body)
			return nil
		},
	}
	for name, addr := range map[string]string{"GatewayGRPC": d.HTTPAddr(), "GRPC": d.GRPCAddr()} {
		conn, err := grpckit.Dial(addr, grpckit.DialOptions{Token: conf.NewSecret(made.GetSecret())})
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		runs := executorv1.NewExecutorServiceClient(conn)
		doors[name] = func(t *testing.T) error {
			_, err := runs.ListRuns(t.Context(), &executorv1.ListRunsRequest{})
			return err
		}
		t.Run(name+"/OpensWhatItsRoleDoes", func(t *testing.T) {
			_, err := runs.StartRun(t.Context(), &executorv1.StartRunRequest{})
			require.Equal(t, access.ReasonScope, errs.ReasonOf(err))
			require.Contains(t, err.Error(), `"screen"`)
		})
	}
	for name, knock := range doors {
		t.Run(name+"/Opens", func(t *testing.T) { require.NoError(t, knock(t)) })
	}
	t.Run("Secret/OfAnotherEndOpensNothing", func(t *testing.T) {
		last := made.GetSecret()[:len(made.GetSecret())-4] + "AAAA"
		_, err := dial(d.GRPCAddr(), last).ListKeys(t.Context(), &registryv1.ListKeysRequest{})
		require.Equal(t, "CREDENTIALS_INVALID", errs.ReasonOf(err))
	})
	_, err = boss.RevokeKey(t.Context(), &registryv1.RevokeKeyRequest{KeyId: made.GetKey().GetId()})
	require.NoError(t, err)
	for name, knock := range doors {
		t.Run(name+"/ClosesSoonAfterTheRevocation", func(t *testing.T) {
			testkit.Eventually(t, func() bool { return errs.ReasonOf(knock(t)) == "CREDENTIALS_INVALID" })
		})
	}
	for name, show := range map[string]func(t *testing.T, secret string) string{
		"REST": func(t *testing.T, secret string) string {
			code, _ := get(t, "http://"+d.HTTPAddr()+"/v1/me", "Authorization", "Bearer "+secret)
			return http.StatusText(code)
		},
		"GRPC": func(t *testing.T, secret string) string {
			_, err := dial(d.GRPCAddr(), secret).GetCaller(t.Context(), &registryv1.GetCallerRequest{})
			return errs.ReasonOf(err)
		},
	} {
		t.Run(name+"/GuessesAreRefusedAfterSome", func(t *testing.T) {
			seen := map[string]int{}
			for i := range 80 {
				secret, _ := apikey.New("team-a", fmt.Sprint("key_", name, i))
				seen[show(t, secret)]++
			}
			require.GreaterOrEqual(t, seen["Unauthorized"]+seen["CREDENTIALS_INVALID"], 50, "%v", seen)
			require.Positive(t, seen["Too Many Requests"]+seen[apikey.ReasonGuessing], "%v", seen)
			_, err := boss.ListKeys(t.Context(), &registryv1.ListKeysRequest{})
			require.NoError(t, err)
		})
	}
}
