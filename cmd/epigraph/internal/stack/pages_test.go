package stack_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

func TestJobPages(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T, change func(*stack.Config)) string {
		c := quiet()
		c.Executor.SQLitePath = filepath.Join(t.TempDir(), "executor.db")
		c.GRPC.ExecutorAddr, c.Admin.Addr, c.Upstream.Registry = "127.0.0.1:0", "127.0.0.1:0", ""
		change(&c)
		p, err := stack.Open(t.Context(), stack.Executor, c)
		require.NoError(t, err)
		run(t, p)
		admin := "http://" + p.AdminAddr()
		testkit.Eventually(t, func() bool { code, _ := get(t, admin+"/readyz"); return code == http.StatusOK }, 60*time.Second, 20*time.Millisecond)
		return admin
	}
	ask := func(t *testing.T, method, url string, change func(*http.Request)) int {
		r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		require.NoError(t, err)
		if change != nil {
			change(r)
		}
		res, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode
	}

	t.Run("Off/NothingThere", func(t *testing.T) {
		t.Parallel()
		admin := start(t, func(c *stack.Config) { c.Executor.RiverUI = false })
		require.Equal(t, http.StatusNotFound, ask(t, http.MethodGet, admin+"/river/", nil))
	})
	t.Run("Loopback/ShownByALoopbackNameAlone", func(t *testing.T) {
		t.Parallel()
		admin := start(t, func(c *stack.Config) { c.Executor.RiverUI = true })
		testkit.Eventually(t, func() bool { return ask(t, http.MethodGet, admin+"/river/api/queues", nil) == http.StatusOK }, 60*time.Second, 20*time.Millisecond)
		code, page := get(t, admin+"/river/")
		require.Equal(t, http.StatusOK, code)
		require.Contains(t, page, "/river/")
		require.Equal(t, http.StatusForbidden, ask(t, http.MethodGet, admin+"/river/api/queues", func(r *http.Request) { r.Host = "made-up.example" }))
		require.Equal(t, http.StatusForbidden, ask(t, http.MethodPost, admin+"/river/api/jobs/cancel", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }))
	})
	t.Run("Password/Asked", func(t *testing.T) {
		t.Parallel()
		admin := start(t, func(c *stack.Config) { c.Executor.RiverUI, c.Admin.Password = true, conf.NewSecret("open") })
		require.Equal(t, http.StatusUnauthorized, ask(t, http.MethodGet, admin+"/river/api/queues", nil))
		require.Equal(t, http.StatusUnauthorized, ask(t, http.MethodGet, admin+"/river/api/queues", func(r *http.Request) { r.SetBasicAuth("ops", "wrong") }))
		testkit.Eventually(t, func() bool {
			return ask(t, http.MethodGet, admin+"/river/api/queues", func(r *http.Request) { r.SetBasicAuth("ops", "open") }) == http.StatusOK
		}, 60*time.Second, 20*time.Millisecond)
		code, metrics := get(t, admin+"/metrics")
		require.Equal(t, http.StatusOK, code, "probes and metrics need none")
		scaler, err := os.ReadFile("../../../../deploy/k8s/components/autoscale/executor.yaml")
		require.NoError(t, err)
		name := regexp.MustCompile(`metric:\s+name: (\w+)`).FindSubmatch(scaler)
		require.NotNil(t, name)
		require.Contains(t, metrics, "\n"+string(name[1])+"{", "what deploy/ scales by is measured")
		adapter, err := os.ReadFile("../../../../deploy/observability/prometheus-adapter.yaml")
		require.NoError(t, err)
		require.Contains(t, string(adapter), "as: "+string(name[1])+"\n", "and handed on under that name")
	})
	t.Run("Address/OfOthersNeedsAPassword", func(t *testing.T) {
		t.Parallel()
		c := quiet()
		c.Executor.RiverUI, c.Admin.Addr = true, "0.0.0.0:9464"
		require.ErrorContains(t, c.ValidateFor(stack.Executor), "admin.password")
	})
}
