// Package stack assembles the suite: it holds the one configuration of all services, opens each service with
// its server, connections and telemetry, and stops them in good order; one service per process, or all in one
// for development. It must not know the command line, nor what the services do.
package stack

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/host"
	"github.com/epigraph-run/epigraph/internal/llm/providers"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/services/gateway"
	"github.com/epigraph-run/epigraph/services/planner"
	"github.com/epigraph-run/epigraph/services/registry"
)

// EnvPrefix marks the environment variables that are settings.
const EnvPrefix = "EPIGRAPH_"

// The values of grpc.tls.client_certs.
const (
	clientCertsRequired = "require"
	clientCertsOptional = "optional"
)

// minInFlight is the least that requests under way may hold: with less, ordinary ones would be refused.
const minInFlight = 8 << 20

// The services of the suite.
const (
	Planner  = "planner"
	Executor = "executor"
	Registry = "registry"
	Gateway  = "gateway"
)

// Services lists all services in the order in which they open.
func Services() []string { return []string{Registry, Executor, Planner, Gateway} }

// Config is the configuration of the whole suite. One file serves every process: each reads the sections that
// it needs and checks only those, so that a service may lack the secrets of another.
type Config struct {
	Planner  planner.Config
	Executor executor.Config
	Registry registry.Config
	Gateway  gateway.Config

	// Models are the models that planner and executor may ask.
	Models providers.Config

	GRPC     GRPC `conf:"grpc"`
	Upstream Upstream
	Auth     grpckit.AuthConfig
	Admin    Admin

	Telemetry obs.Config

	// DrainDelay is the time between failing readiness and refusing calls when stopping; balancers need it to
	// stop routing here.
	DrainDelay time.Duration `help:"pause between failing readiness and refusing calls when stopping"`
	// StartTimeout bounds the wait for a database that does not answer or is not migrated yet; 0 means no
	// bound.
	StartTimeout time.Duration `help:"maximum wait at start for a database that does not answer or is not migrated yet; 0 means no limit"`

	// MaxInFlightBytes bounds the memory of the requests under way in this process, encoded and decoded. A
	// namespace may have half of it.
	MaxInFlightBytes conf.Bytes `help:"memory of all requests under way, half of it for one namespace; 0 means a fifth of the memory limit, or 512MiB without one"`

	// Version is what the binary calls itself, and Commit what it was built from; its main package knows.
	Version, Commit string `conf:"-"`

	// file is the file that was loaded, if it holds secrets.
	file string
}

// GRPC says where the services listen when they are served apart, and how.
type GRPC struct {
	PlannerAddr  string `help:"address on which the planner serves gRPC"`
	ExecutorAddr string `help:"address on which the executor serves gRPC"`
	RegistryAddr string `help:"address on which the registry serves gRPC"`

	TLS TLS `conf:"tls"`

	MaxRecvBytes     conf.Bytes    `help:"maximum size of a gRPC message"`
	UnaryTimeout     time.Duration `help:"time limit of a unary call"`
	MaxConnectionAge time.Duration `help:"age at which connections are closed, so that clients reconnect and the load is balanced; 0 means never"`
	Reflection       bool          `help:"serve gRPC reflection"`
	// Grace is how long calls under way may last when stopping; streams without end are cut off after it.
	Grace time.Duration `help:"time that calls under way get when stopping"`
}

// TLS secures the connections among the services. Changed files are read again at the next handshake.
type TLS struct {
	CertFile string `help:"PEM certificate of this process; empty means plain text"`
	KeyFile  string `help:"PEM key of that certificate"`
	// CAFile makes clients use TLS and trust only these authorities. A server with it requires client
	// certificates of them: see ClientCerts.
	CAFile     string `conf:"ca_file" help:"PEM certificates of the authorities that sign the certificates of both sides"`
	ServerName string `help:"required name in server certificates; default the dialed host"`
	// ClientCerts says whether a client must show a certificate: "require", or "optional" for clients and
	// workers that have only an API key. A certificate that is shown is always checked.
	ClientCerts string `help:"client certificates signed by ca_file: require or optional"`
	// of is what settings these are, for hints; empty means grpc.tls.
	of string
}

// Upstream says where the other services are.
type Upstream struct {
	Planner  string `help:"address of the planner for the gateway: host:port, or several separated by commas; names are resolved every second"`
	Executor string `help:"address of the executors for gateway and planner, in the same form; empty keeps the planner from running plans while they are written, and its model calls ungoverned"`
	Registry string `help:"address of the registry for gateway, executor and planner, in the same form; empty runs executor and planner without a registry"`
}

// Admin says where probes and metrics are served.
type Admin struct {
	Addr  string `help:"address of /livez, /readyz and /metrics; empty serves none"`
	Pprof bool   `help:"serve /debug/pprof/ on admin.addr"`
	// Password guards everything but the probes. It is sent by HTTP basic authentication with any user name,
	// or as a bearer token. Without one, profiles and the pages of executor.river_ui are served on a loopback
	// address only.
	Password conf.Secret `help:"password for everything except /livez and /readyz, by HTTP basic authentication or as a bearer token; required for pprof and river_ui unless addr is a loopback address"`
	// Hosts are the names, beside addresses, localhost and the name of the machine, by which the port may be
	// addressed when there is no password.
	Hosts []string `help:"host names by which this port may be addressed without a password, besides addresses, localhost and the machine's name"`
}

// DefaultConfig serves every service on loopback addresses with SQLite files in the working directory.
func DefaultConfig() Config {
	return Config{
		Planner: planner.DefaultConfig(), Executor: executor.DefaultConfig(), Registry: registry.DefaultConfig(), Gateway: gateway.DefaultConfig(),
		Models: providers.DefaultConfig(),
		GRPC: GRPC{
			PlannerAddr: "127.0.0.1:7401", ExecutorAddr: "127.0.0.1:7402", RegistryAddr: "127.0.0.1:7403",
			TLS:          TLS{ClientCerts: clientCertsRequired},
			MaxRecvBytes: 16 << 20, UnaryTimeout: time.Minute, Reflection: true, Grace: host.DefaultGrace,
		},
		Upstream:     Upstream{Planner: "127.0.0.1:7401", Executor: "127.0.0.1:7402", Registry: "127.0.0.1:7403"},
		Admin:        Admin{Addr: "127.0.0.1:9464"},
		Telemetry:    obs.DefaultConfig(),
		StartTimeout: time.Minute,
		Version:      "dev",
	}
}

// DevConfig is DefaultConfig for a process that a person starts and stops: readable logs of faults, no admin
// pages, and a quick end.
func DevConfig() Config {
	c := DefaultConfig()
	c.Telemetry.LogFormat, c.Telemetry.LogLevel = "text", "warn"
	c.Admin.Addr = ""
	c.Executor.RiverUI = true
	c.Executor.Drain = 3 * time.Second
	c.GRPC.Grace, c.Gateway.Grace = 2*time.Second, 3*time.Second
	return c
}

// Load fills cfg, which holds the defaults, from flags, environment and file. A model profile without a
// base_url and an api_key of its own takes those of its provider's usual variables, such as OPENAI_API_KEY.
// The prefix of src is set here.
func Load(cfg *Config, src conf.Sources) error {
	env := src.Env
	if env == nil {
		env = os.Environ()
	}
	src.EnvPrefix, src.Env = EnvPrefix, env
	// Ignored variables of the environment never include the names of settings.
	settings := map[string]bool{}
	for _, s := range conf.Effective(cfg) {
		settings[conf.EnvName(EnvPrefix, s.Key)] = true
	}
	if src.File != "" {
		var alone Config
		_ = conf.Load(&alone, conf.Sources{File: src.File}) // its faults are found below
		if conf.HoldsSecrets(alone) {
			cfg.file = src.File
		}
	}
	src.IgnoreEnv = slices.DeleteFunc(slices.Clone(src.IgnoreEnv), func(name string) bool { return settings[name] })
	if err := conf.Load(cfg, src); err != nil {
		return err
	}
	cfg.Models.Config = providers.FromEnvironment(cfg.Models.Config, env)
	return nil
}

// Validate reports every fault in the sections that all processes share. The section of a service is checked
// by ValidateFor, and when the service opens.
func (c Config) Validate() error {
	var faults []error
	add := func(section string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", section, err))
		}
	}
	add("telemetry", c.Telemetry.Validate())
	add("auth", c.Auth.Validate())
	if (c.GRPC.TLS.CertFile == "") != (c.GRPC.TLS.KeyFile == "") {
		add("grpc.tls", errors.New("cert_file and key_file must be set together"))
	}
	if m := c.GRPC.TLS.ClientCerts; m != "" && m != clientCertsRequired && m != clientCertsOptional {
		add("grpc.tls", fmt.Errorf("client_certs must be require or optional, got %q", m))
	}
	if c.GRPC.TLS.ClientCerts == clientCertsOptional && c.Auth.Open() {
		add("grpc.tls", errors.New("client_certs: optional needs auth.service_token, or everyone who connects could do anything"))
	}
	if c.GRPC.MaxRecvBytes <= 0 {
		add("grpc", errors.New("max_recv_bytes must be positive"))
	}
	for name, d := range map[string]time.Duration{"unary_timeout": c.GRPC.UnaryTimeout, "grace": c.GRPC.Grace} {
		if d <= 0 {
			add("grpc", fmt.Errorf("%s must be positive, got %s", name, d))
		}
	}
	if c.GRPC.MaxConnectionAge < 0 {
		add("grpc", errors.New("max_connection_age must not be negative"))
	}
	if c.MaxInFlightBytes != 0 && c.MaxInFlightBytes < minInFlight {
		faults = append(faults, fmt.Errorf("max_in_flight_bytes must be 0 or at least %s", conf.Bytes(minInFlight)))
	}
	if c.DrainDelay < 0 {
		faults = append(faults, errors.New("drain_delay must not be negative"))
	}
	if c.StartTimeout < 0 {
		faults = append(faults, errors.New("start_timeout must not be negative"))
	}
	if len(faults) == 0 {
		return nil
	}
	return invalid(errors.Join(faults...))
}

// ValidateFor is Validate with the sections that these services read.
func (c Config) ValidateFor(services ...string) error {
	c.shareModels()
	faults := []error{c.Validate()}
	for _, s := range services {
		var err error
		switch s {
		case Planner:
			err = c.Planner.Validate()
		case Executor:
			err = c.Executor.Validate()
		case Registry:
			err = c.Registry.Validate()
		case Gateway:
			err = c.Gateway.Validate()
		default:
			return unknownService(s)
		}
		if err = errors.Join(err, c.guardAdmin(s)); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", s, err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return invalid(err)
	}
	return nil
}

// shareModels gives each service the models.
func (c *Config) shareModels() { c.Planner.Models, c.Executor.Models = c.Models, c.Models }

func invalid(err error) error {
	return errs.New(errs.InvalidArgument, conf.ReasonInvalid, "the configuration is not valid: %v", err).
		Hint("docs/configuration.md lists every setting")
}

func unknownService(name string) error {
	return errs.New(errs.InvalidArgument, "SERVICE_UNKNOWN", "there is no service %q", name).
		Hint("planner, executor, registry or gateway")
}

// gatewayConfig lets in at the gateway whoever is let in at the gRPC ports.
func (c Config) gatewayConfig() gateway.Config {
	g := c.Gateway
	g.Keys = slices.Clone(g.Keys)
	for _, k := range c.Auth.Keys {
		same := func(o grpckit.APIKey) bool { return o.Namespace == k.Namespace && o.Secret.Equal(k.Secret.Reveal()) }
		if !slices.ContainsFunc(g.Keys, same) {
			g.Keys = append(g.Keys, k)
		}
	}
	return g
}

// guard refuses to serve gRPC to everyone on an address that others can reach.
func (c Config) guard(key, addr string) error {
	if !c.Auth.Open() || loopback(addr) {
		return nil
	}
	return errs.New(errs.InvalidArgument, "ADDRESS_NOT_LOOPBACK", "%s does not listen on %s without credentials: anyone who reaches it could do anything", key, addr).
		Hint("set auth.service_token (" + conf.EnvName(EnvPrefix, "auth.service_token") + "), or listen on 127.0.0.1")
}

func loopback(addr string) bool {
	h, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if h == "localhost" {
		return true
	}
	ip := net.ParseIP(h)
	return ip != nil && ip.IsLoopback()
}
