package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
)

// certificate writes one for 127.0.0.1, signed by itself, and its key.
func certificate(t *testing.T, dir, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	tmpl := &x509.Certificate{SerialNumber: serial, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	write := func(file, kind string, b []byte) string {
		file = filepath.Join(dir, file)
		require.NoError(t, os.WriteFile(file+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
		return file
	}
	return write(name+".crt", "CERTIFICATE", der), write(name+".key", "PRIVATE KEY", keyDER)
}

// TestMachines is the suite on plain machines: a gateway with TLS before two executors that share a database.
// The command line knows the gateway alone, and goes on when an executor dies; a renewed certificate is used
// without a restart.
func TestMachines(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	require.NoError(t, err)
	dir := t.TempDir()
	env := environment(dir)
	url, err := json.Marshal(pgtest.New(t))
	require.NoError(t, err)
	cert, key := certificate(t, dir, "gateway")
	machine := func(name string) *suite {
		s := &suite{bin: bin, env: env, procs: map[string]*process{}, config: filepath.Join(dir, name+".yaml")}
		require.NoError(t, os.WriteFile(s.config, fmt.Appendf(nil, `
telemetry: {log_level: info, log_format: json}
admin: {addr: ""}
auth:
  service_token: shared-by-the-services
  keys: [{name: a, namespace: %s, secret: %s, scopes: [run, worker, approve, admin]}]
grpc: {planner_addr: "127.0.0.1:0", executor_addr: "127.0.0.1:0", registry_addr: "127.0.0.1:0", grace: 300ms}
registry: {store: postgres, postgres_url: %[3]s, migrate: false}
executor: {store: postgres, postgres_url: %[3]s, migrate: false, id: %[4]s, drain: 5s}
gateway: {addr: "127.0.0.1:0", health_timeout: 1s, tls: {cert_file: %[5]q, key_file: %[6]q}}
`, namespaceA, keyA, url, name, cert, key), 0o600))
		return s
	}
	one, two := machine("one"), machine("two")
	text, err := one.command("migrate").CombinedOutput()
	require.NoError(t, err, string(text))
	one.serve(t, "registry", "")
	one.serve(t, "planner", "")
	one.serve(t, "executor", "")
	two.procs["registry"] = one.procs["registry"]
	two.serve(t, "executor", "")
	delete(two.procs, "registry")
	both := one.procs["executor"].addr + "," + two.procs["executor"].addr
	front := launch(t, func() (c *suite) {
		c = &suite{bin: bin, config: one.config, env: append(env[:len(env):len(env)], "EPIGRAPH_UPSTREAM_PLANNER="+one.procs["planner"].addr,
			"EPIGRAPH_UPSTREAM_EXECUTOR="+both, "EPIGRAPH_UPSTREAM_REGISTRY="+one.procs["registry"].addr)}
		return c
	}().command("serve", "gateway"))
	front.await(t, "starting", func(l logLine) bool { front.addr = l.Addr; return l.Msg == "starting" })
	one.procs["gateway"] = front
	ended(t, one)
	ended(t, two)

	cli := func(args ...string) (string, error) {
		c := &suite{bin: bin, env: append(env[:len(env):len(env)], "EPIGRAPH_ADDR="+front.addr, "EPIGRAPH_API_KEY="+keyA, "EPIGRAPH_CA_FILE="+cert)}
		cmd := c.command(args...)
		cmd.Args = cmd.Args[:len(cmd.Args)-1] // it has no configuration
		cmd.Stdin = strings.NewReader("A -> B, C\nB, C -> D\n")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	run := func(t *testing.T) {
		t.Helper()
		testkit.Within(t, timeout, 100*time.Millisecond, func() bool {
			out, err := cli("run", "--actor", "template", "--with", "text=did {{ node }}")
			if err != nil || !strings.Contains(out, "did D") {
				t.Log(out)
			}
			return err == nil && strings.Contains(out, "did D")
		})
	}
	t.Run("OneAddress/PlansRunsAndWatches", run)
	t.Run("Certificate/IsReadAnew", func(t *testing.T) {
		certificate(t, dir, "gateway") // the authority that the command line trusts is the new one, too
		run(t)
	})
	t.Run("Executor/DiesAndTheOtherAnswers", func(t *testing.T) {
		two.procs["executor"].kill()
		for range 3 {
			out, err := cli("run", "--actor", "template", "--with", "text=did {{ node }}")
			require.NoError(t, err, out)
		}
	})
}
