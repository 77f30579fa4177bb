package stack_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"

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
		testkit.Eventually(t, func() bool { code, _ := get(t, admin+"/readyz"); return code == http.StatusOK })
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
		testkit.Eventually(t, func() bool { return ask(t, http.MethodGet, admin+"/river/api/queues", nil) == http.StatusOK })
		code, page := get(t, admin+"/river/")
		require.Equal(t, http.StatusOK, code)
		require.Contains(t, page, "/river/")
		require.Equal(t, http.StatusForbidden, ask(t, http.MethodGet, admin+"/river/api/queues", func(r *http.Request) { r.Host = "made-up.example" }))
		require.Equal(t, http.StatusForbidden, ask(t, http.MethodPost, admin+"/river/api/jobs/cancel", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }))
	})
	t.Run("Password/Asked", func(t *testing.T) {
		t.Parallel()
		admin := start(t, func(c *stack.Config) {
			c.Executor.RiverUI, c.Admin.Pprof, c.Admin.Password = true, true, conf.NewSecret("open")
		})
		require.Equal(t, http.StatusUnauthorized, ask(t, http.MethodGet, admin+"/river/api/queues", nil))
		require.Equal(t, http.StatusUnauthorized, ask(t, http.MethodGet, admin+"/river/api/queues", func(r *http.Request) { r.SetBasicAuth("ops", "wrong") }))
		testkit.Eventually(t, func() bool {
			return ask(t, http.MethodGet, admin+"/river/api/queues", func(r *http.Request) { r.SetBasicAuth("ops", "open") }) == http.StatusOK
		})
		for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap", "/river/", "/river/api/jobs", "/nothing", "/livez/../metrics"} {
			code, _ := get(t, admin+path)
			require.Equal(t, http.StatusUnauthorized, code, path)
			code, _ = get(t, admin+path, "Authorization", "Bearer wrong")
			require.Equal(t, http.StatusUnauthorized, code, path)
		}
		for _, path := range []string{"/livez", "/readyz"} {
			code, _ := get(t, admin+path)
			require.Equal(t, http.StatusOK, code, path)
		}
		require.Equal(t, http.StatusOK, ask(t, http.MethodGet, admin+"/debug/pprof/", func(r *http.Request) { r.SetBasicAuth("", "open") }))
		code, metrics := get(t, admin+"/metrics", "Authorization", "Bearer open")
		require.Equal(t, http.StatusOK, code, "as Prometheus shows it")
		scaler, err := os.ReadFile("../../../../deploy/k8s/components/autoscale/executor.yaml")
		require.NoError(t, err)
		name := regexp.MustCompile(`metric:\s+name: (\w+)`).FindSubmatch(scaler)
		require.NotNil(t, name)
		require.Contains(t, metrics, "\n"+string(name[1])+"{", "what deploy/ scales by is measured")
		adapter, err := os.ReadFile("../../../../deploy/observability/prometheus-adapter.yaml")
		require.NoError(t, err)
		require.Contains(t, string(adapter), "as: "+string(name[1])+"\n", "and handed on under that name")
	})
	t.Run("Host/AMadeUpNameIsRefused", func(t *testing.T) {
		t.Parallel()
		admin := start(t, func(c *stack.Config) { c.Admin.Pprof, c.Admin.Hosts = true, []string{"metrics.example"} })
		as := func(host, path string) int {
			return ask(t, http.MethodGet, admin+path, func(r *http.Request) { r.Host = host })
		}
		own, err := os.Hostname()
		require.NoError(t, err)
		for _, path := range []string{"/metrics", "/debug/pprof/"} {
			for _, host := range []string{"made-up.example", "made-up.example:9464", "127.0.0.1.made-up.example", "localhost.example"} {
				require.Equal(t, http.StatusForbidden, as(host, path), "%s as %s", path, host)
			}
			for _, host := range []string{"127.0.0.1:9464", "[::1]:9464", "10.1.2.3:9464", "localhost", "Metrics.Example:9464", own + ":9464"} {
				require.Equal(t, http.StatusOK, as(host, path), "%s as %s", path, host)
			}
		}
		require.Equal(t, http.StatusOK, as("made-up.example", "/livez"), "probes say nothing of worth")
	})
	t.Run("Address/OfOthersNeedsAPassword", func(t *testing.T) {
		t.Parallel()
		for _, change := range []func(*stack.Config){func(c *stack.Config) { c.Executor.RiverUI = true }, func(c *stack.Config) { c.Admin.Pprof = true }} {
			c := quiet()
			c.Executor.RiverUI, c.Admin.Addr = false, "0.0.0.0:9464"
			require.NoError(t, c.ValidateFor(stack.Executor))
			change(&c)
			require.ErrorContains(t, c.ValidateFor(stack.Executor), "admin.password")
			c.Admin.Password = conf.NewSecret("open")
			require.NoError(t, c.ValidateFor(stack.Executor))
		}
	})
}
