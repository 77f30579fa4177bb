package stack_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"flag"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew")

func TestMain(m *testing.M) { testkit.Main(m) }

func quiet() stack.Config {
	c := stack.DevConfig()
	c.Telemetry.LogWriter = io.Discard
	return c
}

func TestLoad(t *testing.T) {
	t.Parallel()
	write := func(t *testing.T, text string) string {
		name := filepath.Join(t.TempDir(), "epigraph.yaml")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	load := func(t *testing.T, src conf.Sources) (stack.Config, error) {
		if src.Env == nil {
			src.Env = []string{}
		}
		cfg := stack.DefaultConfig()
		err := stack.Load(&cfg, src)
		return cfg, err
	}
	t.Run("Precedence/FlagEnvFileDefault", func(t *testing.T) {
		t.Parallel()
		cfg, err := load(t, conf.Sources{
			File:  write(t, "gateway: {addr: \"127.0.0.1:1\", max_body_bytes: 1MiB}\nexecutor: {parallel: 3, drain: 1s}\n"),
			Env:   []string{"EPIGRAPH_EXECUTOR_PARALLEL=4", "EPIGRAPH_EXECUTOR_DRAIN=2s", "OTHER=x"},
			Flags: map[string]string{"executor.drain": "3s"},
		})
		require.NoError(t, err)
		require.Equal(t, "127.0.0.1:1", cfg.Gateway.Addr)
		require.EqualValues(t, 1<<20, cfg.Gateway.MaxBodyBytes)
		require.Equal(t, 4, cfg.Executor.Parallel)
		require.Equal(t, 3*time.Second, cfg.Executor.Drain)
		require.Equal(t, "127.0.0.1:7402", cfg.GRPC.ExecutorAddr)
	})
	t.Run("UnknownKey/IsAnErrorThatNamesTheNearest", func(t *testing.T) {
		t.Parallel()
		_, err := load(t, conf.Sources{File: write(t, "executor:\n  leas: 3s\n"), Env: []string{"EPIGRAPH_GATEWAY_ADRR=x"}})
		e := errs.From(err)
		require.Equal(t, conf.ReasonInvalid, e.Reason)
		require.Len(t, e.Violations, 2)
		require.Contains(t, e.Violations[0].Message, "did you mean lease?")
		require.Contains(t, e.Violations[1].Message, "did you mean EPIGRAPH_GATEWAY_ADDR?")
	})
	t.Run("Models/UsualVariablesStandIn", func(t *testing.T) {
		t.Parallel()
		env := []string{"OPENAI_BASE_URL=http://models.test/v1", "OPENAI_API_KEY=sk-1", "ANTHROPIC_API_KEY=sk-ant"}
		cfg, err := load(t, conf.Sources{Env: env})
		require.NoError(t, err)
		require.Equal(t, "http://models.test/v1", cfg.Models.Profiles["default"].BaseURL)
		require.Equal(t, "sk-1", cfg.Models.Profiles["default"].APIKey.Reveal())
		cfg, err = load(t, conf.Sources{Env: append(env, "EPIGRAPH_MODELS_PROFILES_DEFAULT_API_KEY=sk-2", "EPIGRAPH_MODELS_PROFILES_SMALL_MODEL=m"),
			File: write(t, "models: {profiles: {default: {base_url: \"http://own.test/v1\"}, other: {base_url: \"http://other.test\", model: m}}}")})
		require.NoError(t, err)
		require.Equal(t, "http://own.test/v1", cfg.Models.Profiles["default"].BaseURL)
		require.Equal(t, "sk-2", cfg.Models.Profiles["default"].APIKey.Reveal())
		require.True(t, cfg.Models.Profiles["other"].APIKey.IsZero(), "a key is shown only to the server that it is for")
		require.Equal(t, "sk-1", cfg.Models.Profiles["small"].APIKey.Reveal())
	})
	t.Run("IgnoreEnv/NeverHidesASetting", func(t *testing.T) {
		t.Parallel()
		cfg, err := load(t, conf.Sources{Env: []string{"EPIGRAPH_EXECUTOR_ADDR=10.0.0.1:7402", "EPIGRAPH_NAMESPACE=a"},
			IgnoreEnv: []string{"EPIGRAPH_EXECUTOR_ADDR", "EPIGRAPH_NAMESPACE"}})
		require.NoError(t, err)
		require.Equal(t, "10.0.0.1:7402", cfg.Executor.Addr)
	})
	t.Run("Faults/AllAtOnce", func(t *testing.T) {
		t.Parallel()
		_, err := load(t, conf.Sources{Flags: map[string]string{
			"grpc.tls.cert_file": "x", "telemetry.log_level": "loud", "drain_delay": "-1s", "auth.keys": "[{name: a, namespace: BAD, secret: s}]",
		}})
		require.Error(t, err)
		for _, want := range []string{"cert_file and key_file", "log_level", "drain_delay", "namespace \"BAD\""} {
			require.ErrorContains(t, err, want)
		}
	})
	t.Run("Sections/OnlyWhatAServiceReads", func(t *testing.T) {
		t.Parallel()
		cfg := stack.DefaultConfig()
		cfg.Executor.Store = "postgres" // without a URL
		require.NoError(t, cfg.ValidateFor(stack.Registry, stack.Gateway, stack.Planner))
		require.ErrorContains(t, cfg.ValidateFor(stack.Executor), "executor: postgres_url")
	})
}

// TestDocumentation keeps the table of settings equal to the settings.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	cfg := stack.DefaultConfig()
	name := filepath.Join("..", "..", "..", "..", "docs", "configuration.md")
	got, err := os.ReadFile(name)
	require.NoError(t, err)
	const settings = "\n## Settings\n\n"
	prose, _, found := strings.Cut(string(got), settings)
	require.True(t, found, "the page has its table below %q", settings)
	want := prose + settings + conf.Table(cfg, stack.EnvPrefix)
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(want), 0o600))
	}
	require.Equal(t, want, string(got), "run: go test ./cmd/epigraph/internal/stack -run TestDocumentation -update")
	for _, s := range conf.Effective(cfg) {
		require.NotEmpty(t, s.Help, "%s has no help text", s.Key)
	}
}

// TestManifests keeps the deployed settings equal to the existing ones.
func TestManifests(t *testing.T) {
	t.Parallel()
	base := filepath.Join("..", "..", "..", "..", "deploy", "k8s", "base")
	cfg := stack.DefaultConfig()
	require.NoError(t, stack.Load(&cfg, conf.Sources{File: filepath.Join(base, "epigraph.yaml"), Env: []string{
		"EPIGRAPH_EXECUTOR_POSTGRES_URL=postgres://e@db/e", "EPIGRAPH_REGISTRY_POSTGRES_URL=postgres://e@db/e",
	}}))
	require.NoError(t, cfg.ValidateFor(stack.Services()...))
	known := map[string]bool{}
	for _, s := range conf.Effective(cfg) {
		known[conf.EnvName(stack.EnvPrefix, s.Key)] = true
	}
	files, err := filepath.Glob(filepath.Join(base, "*.yaml"))
	require.NoError(t, err)
	variable := regexp.MustCompile(`- name: (EPIGRAPH_\w+)`)
	n := 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		for _, m := range variable.FindAllSubmatch(text, -1) {
			n++
			require.True(t, known[string(m[1])], "%s sets %s, which is no setting", f, m[1])
		}
	}
	require.Positive(t, n)
}

func openDev(t *testing.T, o stack.DevOptions) *stack.Dev {
	t.Helper()
	if o.HTTPAddr == "" {
		o.HTTPAddr = "127.0.0.1:0"
	}
	if o.GRPCAddr == "" {
		o.GRPCAddr = "127.0.0.1:0"
	}
	if o.Config.Version == "" {
		o.Config = quiet()
	}
	d, err := stack.OpenDev(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func run(t *testing.T, r interface{ Run(context.Context) error }) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = func() {
		cancel()
		select {
		case err := <-done:
			require.NoError(t, err)
			done <- nil
		case <-time.After(30 * time.Second):
			require.Fail(t, "still running 30 s after it was told to stop")
		}
	}
	t.Cleanup(stop)
	return stop
}

func get(t *testing.T, url string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(b)
}

// base is the configuration of services that are served apart, on ports and files of their own.
func base(t *testing.T) stack.Config {
	t.Helper()
	c := quiet()
	dir := t.TempDir()
	c.Registry.SQLitePath, c.Executor.SQLitePath = filepath.Join(dir, "registry.db"), filepath.Join(dir, "executor.db")
	c.GRPC.PlannerAddr, c.GRPC.ExecutorAddr, c.GRPC.RegistryAddr, c.Gateway.Addr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	c.Admin.Addr = "127.0.0.1:0"
	return c
}

func TestServe(t *testing.T) {
	t.Parallel()
	t.Run("Registry/WaitsForItsSchema", func(t *testing.T) {
		t.Parallel()
		c := base(t)
		c.Registry.Migrate = false
		p, err := stack.Open(t.Context(), stack.Registry, c)
		require.NoError(t, err)
		run(t, p)
		admin := "http://" + p.AdminAddr()
		testkit.Eventually(t, func() bool { code, _ := get(t, admin+"/livez"); return code == http.StatusOK })
		code, body := get(t, admin+"/readyz")
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Contains(t, body, "starting")

		var out bytes.Buffer
		require.NoError(t, stack.Migrate(t.Context(), c, &out))
		require.Regexp(t, `registry  sqlite: version 0 -> \d+\nexecutor  sqlite: version 0 -> \d+\n`, out.String())
		out.Reset()
		require.NoError(t, stack.Migrate(t.Context(), c, &out))
		require.Equal(t, 2, strings.Count(out.String(), "nothing to do"))

		testkit.Eventually(t, func() bool { code, _ := get(t, admin+"/readyz"); return code == http.StatusOK })
		_, body = get(t, admin+"/metrics")
		require.Contains(t, body, `service_name="epigraph-registry"`)
	})
	t.Run("Registry/GivesUpAfterTheStartTimeout", func(t *testing.T) {
		t.Parallel()
		c := base(t)
		c.Registry.Migrate, c.StartTimeout = false, time.Millisecond
		err := stack.Serve(t.Context(), stack.Registry, c)
		require.Equal(t, "SCHEMA_TOO_OLD", errs.ReasonOf(err))
	})
	t.Run("Registry/WaitsWithoutEnd", func(t *testing.T) {
		t.Parallel()
		c := base(t)
		c.Registry.Migrate, c.StartTimeout = false, 0
		p, err := stack.Open(t.Context(), stack.Registry, c)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		admin := "http://" + p.AdminAddr()
		testkit.Eventually(t, func() bool {
			code, body := get(t, admin+"/readyz")
			return code != http.StatusOK && strings.Contains(body, "starting")
		})
		code, _ := get(t, admin+"/livez")
		require.Equal(t, http.StatusOK, code, "it is not to be killed for it")
		require.NoError(t, stack.Migrate(t.Context(), c, io.Discard, stack.Registry))
		testkit.Eventually(t, func() bool { code, _ := get(t, admin+"/readyz"); return code == http.StatusOK })
		cancel()
		require.NoError(t, <-done)
	})
	t.Run("Stop/ReadinessFailsBeforeCallsDo", func(t *testing.T) {
		t.Parallel()
		c := base(t)
		c.DrainDelay = 700 * time.Millisecond
		p, err := stack.Open(t.Context(), stack.Planner, c)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		conn, err := grpckit.Dial(p.Addr(), grpckit.DialOptions{})
		require.NoError(t, err)
		defer conn.Close()
		healthy := func() bool {
			r, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
			return err == nil && r.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING
		}
		testkit.Eventually(t, healthy)
		cancel()
		testkit.Eventually(t, func() bool { return !healthy() })
		code, body := get(t, "http://"+p.AdminAddr()+"/readyz")
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Contains(t, body, "stopping")
		_, err = plannerv1.NewPlannerServiceClient(conn).ParsePlan(t.Context(), &plannerv1.ParsePlanRequest{Text: "a -> b"})
		require.NoError(t, err, "calls are answered during the drain delay")
		require.NoError(t, <-done)
	})
	t.Run("Credentials/AreAskedForBeforeAnyMethodReadsItsMessage", func(t *testing.T) {
		t.Parallel()
		methods := map[string]protoreflect.MethodDescriptor{}
		protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
			for i := range f.Services().Len() {
				for j := range f.Services().Get(i).Methods().Len() {
					m := f.Services().Get(i).Methods().Get(j)
					methods["/"+string(m.Parent().FullName())+"/"+string(m.Name())] = m
				}
			}
			return true
		})
		for _, name := range []string{stack.Planner, stack.Executor, stack.Registry} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := base(t)
				c.Auth.ServiceToken, c.Upstream.Registry = conf.NewSecret("svc"), ""
				p, err := stack.Open(t.Context(), name, c)
				require.NoError(t, err)
				run(t, p)
				conn, err := grpckit.Dial(p.Addr(), grpckit.DialOptions{})
				require.NoError(t, err)
				defer conn.Close()
				asked := 0
				for method := range methods {
					if method == grpc_health_v1.Health_Check_FullMethodName {
						continue // has a bound of its own
					}
					// The headers are all that is sent.
					s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.WaitForReady(true))
					require.NoError(t, err)
					err = s.RecvMsg(&emptypb.Empty{})
					if errs.ReasonOf(err) == "RPC_UNIMPLEMENTED" {
						continue // of another service
					}
					require.Equal(t, "CREDENTIALS_MISSING", errs.ReasonOf(err), "%s: %v", method, err)
					require.NotEmpty(t, errs.From(err).HintText())
					asked++
				}
				require.Greater(t, asked, 3)
			})
		}
	})
	t.Run("Open/LogsTheEffectiveConfigurationWithoutSecrets", func(t *testing.T) {
		t.Parallel()
		c := base(t)
		var log bytes.Buffer
		c.Telemetry.LogWriter, c.Telemetry.LogLevel, c.Telemetry.LogFormat = &log, "info", "json"
		c.Auth.ServiceToken = conf.NewSecret("hunter2")
		c.Models.Change("default", func(p *llm.Profile) { p.APIKey = conf.NewSecret("sk-secret") })
		p, err := stack.Open(t.Context(), stack.Planner, c)
		require.NoError(t, err)
		require.NoError(t, p.Close())
		require.NotContains(t, log.String(), "hunter2")
		require.NotContains(t, log.String(), "sk-secret")
		var line struct {
			Service string
			Config  map[string]string
		}
		require.NoError(t, json.Unmarshal(log.Bytes(), &line))
		require.Equal(t, "epigraph-planner", line.Service)
		require.Equal(t, "[redacted]", line.Config["auth.service_token"])
	})
	t.Run("TLS/BothSidesAreCertified", func(t *testing.T) {
		t.Parallel()
		ca, cert, key := certificates(t)
		secure := func() stack.Config {
			c := base(t)
			c.Admin.Addr = ""
			c.GRPC.TLS = stack.TLS{CertFile: cert, KeyFile: key, CAFile: ca}
			return c
		}
		registry, err := stack.Open(t.Context(), stack.Registry, secure())
		require.NoError(t, err)
		run(t, registry)
		c := secure()
		c.Upstream = stack.Upstream{Planner: registry.Addr(), Executor: registry.Addr(), Registry: registry.Addr()}
		gateway, err := stack.Open(t.Context(), stack.Gateway, c)
		require.NoError(t, err)
		run(t, gateway)
		testkit.Eventually(t, func() bool {
			code, _ := get(t, "http://"+gateway.Addr()+"/v1/epics")
			return code == http.StatusOK
		})

		c.GRPC.TLS.CertFile, c.GRPC.TLS.KeyFile = "", "" // trusts the registry, but shows nothing
		stranger, err := stack.Open(t.Context(), stack.Gateway, c)
		require.NoError(t, err)
		run(t, stranger)
		testkit.Eventually(t, func() bool {
			code, body := get(t, "http://"+stranger.Addr()+"/v1/epics")
			return code == http.StatusServiceUnavailable && strings.Contains(body, "SERVICE_UNAVAILABLE")
		})
	})
	for _, tc := range []struct {
		name, service string
		change        func(*stack.Config)
		reason, hint  string
	}{
		{"Unknown", "scheduler", func(*stack.Config) {}, "SERVICE_UNKNOWN", "planner"},
		{"OpenToTheWorld", stack.Executor, func(c *stack.Config) { c.GRPC.ExecutorAddr = "0.0.0.0:0" }, "ADDRESS_NOT_LOOPBACK", "EPIGRAPH_AUTH_SERVICE_TOKEN"},
		{"KeysWithoutToken", stack.Gateway, func(c *stack.Config) {
			c.Auth.Keys = []grpckit.APIKey{{Name: "a", Namespace: "a", Secret: conf.NewSecret("s")}}
		}, conf.ReasonInvalid, "auth.service_token"},
		{"CertificateMissing", stack.Planner, func(c *stack.Config) { c.GRPC.TLS.CertFile, c.GRPC.TLS.KeyFile = "none.pem", "none.key" }, "TLS_CERTIFICATE_UNREADABLE", "grpc.tls.cert_file"},
	} {
		t.Run("Refused/"+tc.name, func(t *testing.T) {
			t.Parallel()
			c := base(t)
			tc.change(&c)
			err := stack.Serve(t.Context(), tc.service, c)
			e := errs.From(err)
			require.Equal(t, tc.reason, e.Reason)
			require.Contains(t, e.HintText(), tc.hint)
		})
	}
	t.Run("Refused/PortTaken", func(t *testing.T) {
		t.Parallel()
		p, err := stack.Open(t.Context(), stack.Planner, base(t))
		require.NoError(t, err)
		defer p.Close()
		c := base(t)
		c.GRPC.RegistryAddr = p.Addr()
		e := errs.From(stack.Serve(t.Context(), stack.Registry, c))
		require.Equal(t, "PORT_TAKEN", e.Reason)
		require.Contains(t, e.Message, p.Addr())
		require.Contains(t, e.HintText(), "EPIGRAPH_GRPC_REGISTRY_ADDR")
	})
}

// certificates writes an authority, and a certificate of it for 127.0.0.1.
func certificates(t *testing.T) (ca, cert, key string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	newKey := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		return k
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	rootKey := newKey()
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, rootKey.Public(), rootKey)
	require.NoError(t, err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: root.NotBefore, NotAfter: root.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	leafKey := newKey()
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, leafKey.Public(), rootKey)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	require.NoError(t, err)
	return write("ca.pem", "CERTIFICATE", rootDER), write("cert.pem", "CERTIFICATE", leafDER), write("key.pem", "PRIVATE KEY", keyDER)
}
