package stack_test

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

// TestDatabaseNotReady starts executors that have to wait for a database which can be reached: the gateway
// names the database, and not a service that does not answer.
func TestDatabaseNotReady(t *testing.T) {
	t.Parallel()
	told := func(t *testing.T, c stack.Config) {
		t.Helper()
		c.StartTimeout = 0
		executor, err := stack.Open(t.Context(), stack.Executor, c)
		require.NoError(t, err)
		run(t, executor)
		c.Upstream.Executor = executor.Addr()
		gateway, err := stack.Open(t.Context(), stack.Gateway, c)
		require.NoError(t, err)
		run(t, gateway)
		reads := func(path, text string) {
			t.Helper()
			var last answer
			testkit.Eventually(t, func() bool {
				last.code, last.body = get(t, "http://"+gateway.Addr()+path)
				return strings.Contains(last.body, text)
			}, "%v", &last)
		}
		reads("/readyz", `{"service":"executor","reason":"DATABASE_NOT_READY","message":"the executor waits for its database, which is not ready"`)
		reads("/v1/runs", `"reason":"DATABASE_NOT_READY","message":"the executor waits for its database, which is not ready"`)
		code, body := get(t, "http://"+executor.AdminAddr()+"/livez")
		require.Equal(t, http.StatusOK, code, body)
	}
	t.Run("SchemaIsOld", func(t *testing.T) {
		t.Parallel()
		c := base(t)
		c.Executor.Migrate = false
		told(t, c)
	})
	t.Run("ServerAcceptsAndDoesNotAnswer", func(t *testing.T) {
		t.Parallel()
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, lis.Close()) })
		c := base(t)
		c.Executor.Store, c.Executor.PostgresURL = "postgres", conf.NewSecret("postgres://u:p@"+lis.Addr().String()+"/db?connect_timeout=600")
		told(t, c)
	})
}
