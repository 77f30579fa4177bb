package e2e_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
)

// devAddress and devKey are in what development mode prints.
var (
	devAddress = regexp.MustCompile(`http://(127\.0\.0\.1:\d+)`)
	devKey     = regexp.MustCompile(`ek_\w+`)
)

// devReady waits until development mode serves.
func devReady(t *testing.T, p *process) *suite {
	t.Helper()
	s := &suite{}
	testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
		m := devAddress.FindStringSubmatch(p.output())
		if m == nil {
			return false
		}
		s.url = m[0]
		status, body := s.do(t, request{path: "/readyz"})
		return status == http.StatusOK && strings.Contains(string(body), `"status":"READY"`)
	}, "%v", p)
	return s
}

// TestDev starts the whole suite as one process, as a person does.
func TestDev(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	require.NoError(t, err)
	dir := t.TempDir()
	begin := func() *process {
		cmd := exec.Command(bin, "dev", "--data="+filepath.Join(dir, "data"), "--set=gateway.addr=127.0.0.1:0", "--grpc=127.0.0.1:0")
		cmd.Env = []string{"HOME=" + dir, "EPIGRAPH_EXECUTOR_DRAIN=1s"}
		p := launch(t, cmd)
		t.Cleanup(p.kill)
		return p
	}

	p := begin()
	s := devReady(t, p)
	printed := devKey.FindString(p.output())
	require.NotEmpty(t, printed)
	status, body := s.do(t, request{path: "/v1/runs", key: printed})
	require.Equal(t, http.StatusOK, status, string(body))
	status, body = s.do(t, request{path: "/v1/runs", header: map[string]string{"Authorization": ""}})
	require.Equal(t, http.StatusOK, status, string(body))

	second := begin()
	require.NotZero(t, second.exitCode(t))
	require.Contains(t, second.output(), "DATA_DIR_IN_USE")
	require.Contains(t, second.output(), "--data")

	// Workflows of its catalog are run below others.
	status, body = s.do(t, request{path: "/v1/workflows", key: printed,
		body: `{"source": "name: greet\ninputs: {who: {type: string}}\nsteps: [{type: transform, template: \"hello {{ inputs.who }}\"}]"}`})
	require.Equal(t, http.StatusOK, status, string(body))
	var parent run
	s.ask(t, request{path: "/v1/runs", key: printed, body: `{"graph":{"nodes":[{"id":"d","actor":"spawn",
		"named":{"ref":"workflow/greet@1","input":{"named":{"who":"ada"}}}}]}}`}, &parent)
	testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
		s.ask(t, request{path: "/v1/runs/" + parent.ID, key: printed}, &parent)
		return parent.ended()
	})
	require.Equal(t, "RUN_STATE_COMPLETED", parent.State, "%+v", parent.Error)
	require.Contains(t, string(parent.Result), `"hello ada"`)

	// The cancel of an epic cancels its runs.
	e := s.epicAtWork(t, printed, false)
	s.cancelEpic(t, printed, e.id)
	e.requireCanceled(t, s, printed, 0)

	// A run that is under way when the process ends goes on when it starts again.
	var r run
	s.ask(t, request{path: "/v1/runs", key: printed, body: `{"graph":{"name":"g",
		"nodes":[{"id":"wait","actor":"sleep","named":{"duration":"1s"}},{"id":"say","actor":"template","named":{"text":"done"}}],
		"edges":[{"from":"wait","to":"say"}]}}`}, &r)
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	require.Zero(t, p.exitCode(t))
	p = begin()
	s = devReady(t, p)
	require.Equal(t, printed, devKey.FindString(p.output()))
	testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
		s.ask(t, request{path: "/v1/runs/" + r.ID, key: printed}, &r)
		return r.ended()
	})
	require.Equal(t, "RUN_STATE_COMPLETED", r.State, "%+v", r.Error)
	require.JSONEq(t, `"done"`, string(r.Result))
	first := p
	require.NoError(t, first.cmd.Process.Signal(os.Interrupt))
	require.Zero(t, first.exitCode(t))
	require.NotContains(t, first.output(), "level=ERROR", "a stop is no fault")
}

// TestDevScripted asks a model that needs no key: one that answers anything, and one that a file scripts.
func TestDevScripted(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	require.NoError(t, err)
	dir := t.TempDir()
	answers := filepath.Join(dir, "model.yaml")
	require.NoError(t, os.WriteFile(answers, []byte("rules:\n  - {match: Nile, reply: {text: \"6650 km\"}}\n"), 0o600))
	for name, c := range map[string]struct{ flag, want string }{"anything": {"--scripted", "Done: How long is the Nile?"}, "a file": {"--script=" + answers, "6650 km"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(bin, "dev", c.flag, "--data="+t.TempDir(), "--http=127.0.0.1:0", "--grpc=127.0.0.1:0")
			cmd.Env = []string{"HOME=" + dir}
			p := launch(t, cmd)
			t.Cleanup(p.kill)
			devReady(t, p)
			shell := append(shellEnv(t, bin), "EPIGRAPH_ADDR="+regexp.MustCompile(`gRPC\D+(127\.0\.0\.1:\d+)`).FindStringSubmatch(p.output())[1])
			out := script(t, dir, shell, `echo '{"nodes": [{"id": "a", "actor": "llm", "named": {"request": "How long is the Nile?"}}]}' | epigraph run`)
			require.Contains(t, out, c.want)
		})
	}
}

// TestDevForOthers has development mode listen where others reach it.
func TestDevForOthers(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	require.NoError(t, err)
	dir := t.TempDir()
	cmd := exec.Command(bin, "dev", "--data="+filepath.Join(dir, "data"), "--http=0.0.0.0:0", "--grpc=127.0.0.1:0")
	cmd.Env = []string{"HOME=" + dir}
	p := launch(t, cmd)
	t.Cleanup(p.kill)
	s := &suite{}
	testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
		m := regexp.MustCompile(`REST +(http://127\.0\.0\.1:\d+)`).FindStringSubmatch(p.output())
		if m == nil {
			return false
		}
		s.url = m[1]
		status, _ := s.do(t, request{path: "/readyz"})
		return status == http.StatusOK
	}, "%v", p)
	require.NotContains(t, p.output(), "[::]")
	require.Contains(t, p.output(), "needed for REST, also from this machine")
	status, body := s.do(t, request{path: "/v1/runs", header: map[string]string{"Authorization": ""}})
	require.Equal(t, http.StatusUnauthorized, status, string(body))
	status, body = s.do(t, request{path: "/v1/runs", key: devKey.FindString(p.output())})
	require.Equal(t, http.StatusOK, status, string(body))
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	require.Zero(t, p.exitCode(t))
	require.NotContains(t, p.output(), "level=ERROR", "a stop is no fault")
}
