package e2e_test

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

// page is a file of the documentation.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	require.NoError(t, err)
	return string(text)
}

// blocks are the fenced blocks of a page in one language.
func blocks(text, language string) (out []string) {
	for _, m := range regexp.MustCompile("(?sm)^```(\\w*)\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		if m[1] == language {
			out = append(out, m[2])
		}
	}
	return out
}

// dev is `epigraph dev` on ports of its own.
type dev struct {
	*suite
	grpc string
	key  string
	env  []string // of a shell in which the pages' commands find it
	dir  string   // where that shell is; the examples are there
}

// startDev starts development mode with a model that answers everything.
func startDev(t *testing.T) *dev {
	t.Helper()
	bin, err := binary()
	require.NoError(t, err)
	model := fakellm.New(fakellm.Script{Default: fakellm.Reply{Text: "done"}})
	modelURL, err := model.Listen("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, model.Close()) })
	d := &dev{dir: t.TempDir()}
	cmd := exec.Command(bin, "dev", "--data="+filepath.Join(d.dir, "data"), "--http=127.0.0.1:0", "--grpc=127.0.0.1:0")
	cmd.Env = []string{"HOME=" + d.dir, "EPIGRAPH_EXECUTOR_DRAIN=1s", "OPENAI_API_KEY=unused", "OPENAI_BASE_URL=" + modelURL}
	p := launch(t, cmd)
	t.Cleanup(p.kill)
	d.suite = devReady(t, p)
	d.grpc = regexp.MustCompile(`gRPC\D+(127\.0\.0\.1:\d+)`).FindStringSubmatch(p.output())[1]
	d.key = devKey.FindString(p.output())
	d.env = append(shellEnv(t, bin), "EPIGRAPH_ADDR="+d.grpc, "api="+d.url+"/v1", "KEY="+d.key)
	examples, err := filepath.Abs("../../examples")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(examples, filepath.Join(d.dir, "examples")))
	return d
}

// shellEnv has the binary on the path, under the name that the pages use.
func shellEnv(t *testing.T, bin string) []string {
	t.Helper()
	bins := t.TempDir()
	require.NoError(t, os.Symlink(bin, filepath.Join(bins, "epigraph")))
	return []string{"PATH=" + bins + ":" + os.Getenv("PATH"), "HOME=" + bins, "NO_COLOR=1", "GORACE=atexit_sleep_ms=0"}
}

// script runs the commands of a page and returns their output. Any failure fails the test, also a refusal by
// a server. A service that does not serve yet is asked again.
func script(t *testing.T, dir string, env []string, commands string) string {
	t.Helper()
	c := exec.CommandContext(testkit.Context(t, 4*timeout), "bash", "-c", `set -eo pipefail; set -m
trap 'for job in $(jobs -p); do kill -KILL -- -$job; done; wait' EXIT
curl() { command curl --fail-with-body --retry 20 --retry-delay 1 --retry-all-errors "$@"; }
`+commands)
	c.Dir, c.Env = dir, env
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s\nprinted:\n%s", commands, out)
	return string(out)
}

// TestPages runs the commands of pages without outputs, so that none is refused. TestTour compares the
// outputs of the tour.
func TestPages(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	elsewhere := strings.NewReplacer("http://127.0.0.1:8080", d.url, "127.0.0.1:8080", strings.TrimPrefix(d.url, "http://"))

	t.Run("README", func(t *testing.T) {
		console := blocks(page(t, "README.md"), "console")
		require.Len(t, console, 1)
		lines := strings.Split(strings.TrimSuffix(console[0], "\n"), "\n")
		require.True(t, strings.HasPrefix(lines[0], "$ epigraph dev &"))
		for i := 1; i < len(lines); i++ {
			command, is := strings.CutPrefix(lines[i], "$ ")
			require.True(t, is, "%s", lines[i])
			var want []string
			for i+1 < len(lines) && !strings.HasPrefix(lines[i+1], "$ ") {
				i++
				want = append(want, lines[i])
			}
			if len(want) == 0 {
				script(t, d.dir, d.env, command)
				continue
			}
			require.Equal(t, strings.Join(want, "\n"), strings.TrimSpace(script(t, d.dir, d.env, "("+command+"\n) || true")), "$ %s", command)
		}
		epics := script(t, d.dir, d.env, "epigraph epics ls --json")
		require.Equal(t, 1, strings.Count(epics, `"Launch"`), "the same title is the same epic: %s", epics)
	})

	t.Run("GettingStarted", func(t *testing.T) {
		text := page(t, "docs/getting-started.md")
		var commands strings.Builder
		for _, block := range blocks(text, "console") {
			for line := range strings.Lines(block) {
				command, is := strings.CutPrefix(line, "$ ")
				if !is {
					continue
				}
				// On a busy machine the interrupt may not be there yet
				if strings.HasPrefix(command, "int=") {
					commands.WriteString("until epigraph interrupts list --run $run | grep -q int_; do sleep 0.1; done\n")
				}
				commands.WriteString(command)
			}
		}
		out := script(t, d.dir, d.env, commands.String()+elsewhere.Replace(blocks(text, "sh")[2]))
		for _, want := range []string{"did D", "PAINT waits for ASK", "a house, painted red", `"runs":[`} {
			require.Contains(t, out, want)
		}
	})

	t.Run("REST", func(t *testing.T) {
		for _, block := range blocks(page(t, "docs/rest.md"), "sh") {
			out := script(t, d.dir, d.env, elsewhere.Replace(block))
			if strings.Contains(block, "graphs:validate") {
				require.Contains(t, out, `"faults":[]`)
			} else {
				require.Contains(t, out, `"RUN_STATE_COMPLETED"`)
			}
		}
	})

	t.Run("REST/RequestsOfTheTablesAreTaken", func(t *testing.T) {
		var r run
		d.ask(t, request{path: "/v1/runs", key: d.key, body: `{"graph":{"nodes":[{"id":"q","actor":"human","named":{"prompt":"which?"}}]}}`}, &r)
		taken := 0
		for _, m := range regexp.MustCompile("`(GET|POST|PUT|PATCH|DELETE) (/v1/[^ `]+)(?: ([^`]+))?`").FindAllStringSubmatch(page(t, "docs/rest.md"), -1) {
			method, path, body := m[1], strings.ReplaceAll(m[2], "{id}", r.ID), m[3]
			if !json.Valid([]byte(body)) && (body != "" || method == http.MethodPost) {
				continue // only the names of the fields, or their values in another place
			}
			status, answer := d.do(t, request{method: method, path: path, key: d.key, body: body})
			require.Equal(t, http.StatusOK, status, "%s: %s", m[0], answer)
			taken++
		}
		require.GreaterOrEqual(t, taken, 7)
	})

	t.Run("SDK", func(t *testing.T) {
		text := page(t, "sdk/README.md")
		dir, err := filepath.Abs("../..")
		require.NoError(t, err)
		hello := t.TempDir()
		program := strings.ReplaceAll(blocks(text, "go")[0], "127.0.0.1:7400", d.grpc)
		require.NoError(t, os.WriteFile(filepath.Join(hello, "main.go"), []byte(program), 0o600))
		env := append(os.Environ(), "EPIGRAPH="+dir, "GOWORK=", "GOFLAGS=")
		if len(buildFlags) > 0 {
			// packages that were built for the tests need not be built again
			env = append(env, "GOFLAGS=-race")
		}
		require.Contains(t, script(t, hello, env, blocks(text, "sh")[0]), "hello!\n")
	})

	t.Run("Limits", func(t *testing.T) {
		for _, block := range blocks(page(t, "docs/limits.md"), "sh") {
			script(t, d.dir, d.env, elsewhere.Replace(block))
		}
	})
}

// TestOperationsPage starts the suite as docs/operations.md says for one machine, and the gateway with TLS
// after that. The rest of the page needs other machines, a cluster, or is followed by TestBackup.
func TestOperationsPage(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	require.NoError(t, err)
	sh := blocks(page(t, "docs/operations.md"), "sh")
	require.Contains(t, sh[0], "serve gateway")
	require.Contains(t, sh[1], "GATEWAY_TLS")
	gateway := freeAddr(t)
	moves := []string{"127.0.0.1:8080", gateway}
	for _, port := range []string{"9464", "9465", "9466", "9467"} {
		moves = append(moves, "127.0.0.1:"+port, freeAddr(t))
	}
	env := append(shellEnv(t, bin), "EPIGRAPH_GATEWAY_ADDR="+gateway)
	for _, service := range []string{"PLANNER", "EXECUTOR", "REGISTRY"} {
		addr := freeAddr(t)
		env = append(env, "EPIGRAPH_GRPC_"+service+"_ADDR="+addr, "EPIGRAPH_UPSTREAM_"+service+"="+addr)
	}
	out := script(t, t.TempDir(), env, strings.NewReplacer(moves...).Replace(sh[0]+
		"EPIGRAPH_ADDR=127.0.0.1:8080 EPIGRAPH_API_KEY=my-key epigraph runs list\n"+sh[1]))
	require.Contains(t, out, `{"runs":[]`)
	require.Equal(t, 2, strings.Count(out, "no runs\n"), "%s", out)
}

// freeAddr is one that nobody has.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}
