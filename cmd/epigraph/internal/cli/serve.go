package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// settings are what every server command takes: a file, and single settings over it.
type settings struct {
	Config string   `help:"YAML file with settings." short:"c" env:"EPIGRAPH_CONFIG" placeholder:"FILE" type:"path"`
	Set    []string `help:"Set one setting, for example executor.parallel=64, over environment and file." placeholder:"KEY=VALUE" sep:"none"`
}

// own is the configuration of a server of this binary. It is made only now, after the memory was limited.
func (s settings) own(e *env, defaults func() stack.Config) (stack.Config, error) {
	cfg := defaults()
	cfg.Version, cfg.Commit = e.build.Version, e.build.Commit
	return cfg, s.load(&cfg)
}

// load fills cfg, which holds the defaults.
func (s settings) load(cfg *stack.Config) error {
	flags := map[string]string{}
	for _, kv := range s.Set {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return usage(errs.New(errs.InvalidArgument, "SETTING_INVALID", "--set %s: write it as KEY=VALUE", kv))
		}
		flags[k] = v
	}
	bare := *cfg
	err := stack.Load(cfg, conf.Sources{File: s.Config, Flags: flags, IgnoreEnv: ignoredEnv()})
	if err == nil {
		return nil
	}
	if _, serr := os.Stat(s.Config); s.Config != "" && serr != nil {
		return usage(err)
	}
	if len(flags) > 0 && stack.Load(&bare, conf.Sources{File: s.Config, IgnoreEnv: ignoredEnv()}) == nil {
		// without the flags there is no fault
		return usage(err)
	}
	return err
}

// blame attributes the error of opening a service: to the command line if single settings were given there.
func (s settings) blame(err error) error {
	if errs.ReasonOf(err) == conf.ReasonInvalid && len(s.Set) > 0 {
		return usage(err)
	}
	return err
}

// ignoredEnv are our variables that are no settings of servers.
func ignoredEnv() []string { return append([]string{"EPIGRAPH_CONFIG"}, ClientEnv...) }

type devCmd struct {
	settings
	Data string `help:"Folder for the databases; default one in your data folder." aliases:"data-dir" placeholder:"DIR" type:"path"`
	HTTP string `help:"Address of the REST API; default gateway.addr, which is 127.0.0.1:8080 unless set." name:"http" aliases:"http-addr" placeholder:"HOST:PORT"`
	GRPC string `help:"Address of the gRPC API." name:"grpc" aliases:"grpc-addr" default:"127.0.0.1:7400" placeholder:"HOST:PORT"`

	Scripted bool   `help:"Ask a scripted model in place of a real one: no key is needed, and it answers \"Done: …\"." xor:"model"`
	Script   string `help:"Ask a scripted model that answers as this file says." placeholder:"FILE" type:"existingfile" xor:"model"`
}

// Help describes the command.
func (devCmd) Help() string {
	return `Runs planner, executor, registry and gateway in one process; executor and registry use a SQLite file each. By default REST is at 127.0.0.1:8080 and gRPC at 127.0.0.1:7400. No key is needed while both are loopback addresses. OPENAI_API_KEY and OPENAI_BASE_URL set the model.

    epigraph dev --scripted                              # without a model
    epigraph dev --script examples/launch/model.yaml     # with answers of your own`
}

// Run serves until the command is stopped.
func (c *devCmd) Run(e *env) error {
	stack.FitMachine(e.ctx)
	cfg, err := c.own(e, stack.DevConfig)
	if err != nil {
		return err
	}
	if c.Scripted || c.Script != "" {
		script, err := c.script()
		if err != nil {
			return err
		}
		stop, err := scripted(script, &cfg)
		if err != nil {
			return err
		}
		defer func() { _ = stop() }() // nothing is lost with it
	}
	d, err := stack.OpenDev(e.ctx, stack.DevOptions{DataDir: c.Data, HTTPAddr: c.HTTP, GRPCAddr: c.GRPC, Config: cfg})
	if errs.ReasonOf(err) == "ADDRESS_INVALID" && (c.HTTP != "" || c.GRPC != DefaultAddr) {
		return usage(err)
	}
	if err != nil {
		return c.blame(err)
	}
	if err := c.announce(e, d); err != nil {
		return errors.Join(err, d.Close())
	}
	ctx, cancel := context.WithCancel(e.ctx)
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		if !e.json {
			showDemo(ctx, e, d)
		}
	}()
	err = d.Run(e.ctx)
	cancel()
	<-shown
	return err
}

// showDemo tells the address of the newest run of the demo in these databases, once it can be opened.
// Where there is none, or it cannot be read, nothing is told.
func showDemo(ctx context.Context, e *env, d *stack.Dev) {
	if d.Ready(ctx) != nil {
		return
	}
	own := *e
	own.ctx, own.passing = ctx, true
	own.client.Addr, own.client.PlannerAddr, own.client.ExecutorAddr, own.client.RegistryAddr = reachable(d.GRPCAddr(), nil)[0], "", "", ""
	own.client.APIKey, own.client.Namespace, own.client.TLS = d.APIKey(), "", false
	s, err := own.connect()
	if err != nil {
		return
	}
	defer s.close()
	runs, err := s.executor.ListRuns(ctx, &executorv1.ListRunsRequest{Labels: demoLabel(), PageSize: 1})
	if err != nil || len(runs.GetRuns()) == 0 {
		return
	}
	_, _ = fmt.Fprintf(e.io.Out, "The run of the demo: http://%s/runs/%s\n", reachable(d.HTTPAddr(), nil)[0], runs.GetRuns()[0].GetId())
}

// script is what the scripted model answers.
func (c *devCmd) script() (fakellm.Script, error) {
	if c.Script == "" {
		return fakellm.Script{}, nil
	}
	raw, err := os.ReadFile(c.Script)
	if err != nil {
		return fakellm.Script{}, err
	}
	script, err := fakellm.Parse(raw)
	if err != nil {
		return script, usage(errs.New(errs.InvalidArgument, "SCRIPT_INVALID", "%s: %v", c.Script, err).Hint("examples/launch/model.yaml is such a script"))
	}
	return script, nil
}

// scripted serves a scripted model over HTTP on a free port, and has the default profile ask it.
func scripted(script fakellm.Script, cfg *stack.Config) (stop func() error, err error) {
	model := fakellm.New(script)
	base, err := model.Listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	cfg.Models.Change(cfg.Models.Default, func(p *llm.Profile) {
		p.Provider, p.Model, p.BaseURL, p.APIKey, p.PriceKey = "openai", "scripted-1", base, conf.NewSecret("scripted"), "scripted"
	})
	return model.Close, nil
}

// announce says where everything is, before the first call is answered.
func (c *devCmd) announce(e *env, d *stack.Dev) error {
	own := ownAddresses()
	rest, grpc := reachable(d.HTTPAddr(), own), reachable(d.GRPCAddr(), own)
	if e.json {
		return printValue(e.io.Out, map[string]string{"httpAddr": rest[0], "grpcAddr": grpc[0], "dataDir": d.DataDir(), "apiKey": d.APIKey()})
	}
	more := ""
	if grpc[0] != DefaultAddr {
		more = " --addr " + grpc[0]
	}
	if !onlyHere(d.GRPCAddr()) {
		more += " --api-key " + d.APIKey()
	}
	style := e.io.style()
	head := fmt.Sprintf(`%s
  Console  http://%s/   (in a browser)
  REST     http://%s   (API: http://%s/openapi.json)
  gRPC     %s
  data     %s
  API key  %s   (%s)
Try, in another terminal:
`, style.Bold("Epigraph is ready."), rest[0], strings.Join(rest, "  http://"), rest[0], strings.Join(grpc, "  "), d.DataDir(), d.APIKey(), keyNote(d.HTTPAddr(), d.GRPCAddr()))
	_, err := fmt.Fprintln(e.io.Out, style.Fit(head)+style.Command(`printf 'A -> B, C\nB, C -> D\n' | epigraph run`+more+` --actor template --with text='did {{ node }}'`, "  ")+"\n"+
		style.Fit("Ctrl-C stops it. Runs that are under way go on at the next start."))
	return err
}

type serveCmd struct {
	settings
	Service string `arg:"" enum:"planner,executor,registry,gateway" help:"The service: planner, executor, registry or gateway."`
}

// Run serves until the command is stopped.
func (c *serveCmd) Run(e *env) error {
	stack.FitMachine(e.ctx)
	cfg, err := c.own(e, stack.DefaultConfig)
	if err != nil {
		return err
	}
	return c.blame(stack.Serve(e.ctx, c.Service, cfg))
}

type migrateCmd struct {
	settings
	Data string `help:"Folder of the databases of \"epigraph dev\", in place of the databases of \"epigraph serve\"; no other process may use it." aliases:"data-dir" placeholder:"DIR" type:"existingdir"`
}

// Help says how the schemas are found.
func (migrateCmd) Help() string {
	return `Reads the same file and environment as "epigraph serve", or, with --data, as "epigraph dev" on that folder. With --json it prints one line per store.`
}

// Run migrates.
func (c *migrateCmd) Run(e *env) error {
	cfg, migrate := stack.DefaultConfig(), stack.Migrate
	if c.Data != "" {
		cfg = stack.DevConfig()
		migrate = func(ctx context.Context, cfg stack.Config, out io.Writer, services ...string) error {
			return stack.MigrateDir(ctx, c.Data, cfg, out)
		}
	}
	if err := c.load(&cfg); err != nil {
		return err
	}
	if !e.json {
		return migrate(e.ctx, cfg, e.io.Out)
	}
	var text strings.Builder
	err := migrate(e.ctx, cfg, &text)
	for line := range strings.Lines(text.String()) {
		service, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		if perr := printValue(e.io.Out, map[string]string{"service": service, "result": strings.TrimSpace(what)}); perr != nil {
			return errors.Join(err, perr)
		}
	}
	return err
}
