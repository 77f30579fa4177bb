package cli

import (
	"fmt"
	"strings"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
)

// settings are what every server command takes: a file, and single settings over it.
type settings struct {
	Config string   `help:"YAML file with settings." short:"c" env:"EPIGRAPH_CONFIG" placeholder:"FILE" type:"path"`
	Set    []string `help:"One setting, for example executor.parallel=64; it wins over environment and file." placeholder:"KEY=VALUE" sep:"none"`
}

// load fills cfg, which holds the defaults.
func (s settings) load(cfg *stack.Config) error {
	flags := map[string]string{}
	for _, kv := range s.Set {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return errs.New(errs.InvalidArgument, "SETTING_INVALID", "--set %s: write it as KEY=VALUE", kv)
		}
		flags[k] = v
	}
	return stack.Load(cfg, conf.Sources{File: s.Config, Flags: flags, IgnoreEnv: ignoredEnv()})
}

// ignoredEnv are our variables that are no settings of servers.
func ignoredEnv() []string { return append([]string{"EPIGRAPH_CONFIG"}, ClientEnv...) }

type devCmd struct {
	settings
	Data string `help:"Folder for the databases; one in your data folder when not given." placeholder:"DIR" type:"path"`
	HTTP string `help:"Address of the REST API." name:"http" default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	GRPC string `help:"Address of the gRPC API." name:"grpc" default:"127.0.0.1:7400" placeholder:"HOST:PORT"`
}

// Help tells what it is for.
func (devCmd) Help() string {
	return `Planner, executor, registry and gateway in one process, each on a SQLite file of its own. On this machine no key is needed. OPENAI_API_KEY and OPENAI_BASE_URL say which model is asked.`
}

// Run serves until it is told to stop.
func (c *devCmd) Run(e *env) error {
	cfg := stack.DevConfig()
	if err := c.load(&cfg); err != nil {
		return err
	}
	d, err := stack.OpenDev(e.ctx, stack.DevOptions{DataDir: c.Data, HTTPAddr: c.HTTP, GRPCAddr: c.GRPC, Config: cfg})
	if err != nil {
		return err
	}
	s := e.io.style()
	fmt.Fprintf(e.io.Out, "%s\n", s.Bold("Epigraph is ready."))
	fmt.Fprintf(e.io.Out, "  REST     http://%s   (API: http://%s/openapi.json)\n", d.HTTPAddr(), d.HTTPAddr())
	fmt.Fprintf(e.io.Out, "  gRPC     %s\n", d.GRPCAddr())
	fmt.Fprintf(e.io.Out, "  data     %s\n", d.DataDir())
	fmt.Fprintf(e.io.Out, "  API key  %s   (not needed from this machine)\n", d.APIKey())
	fmt.Fprintf(e.io.Out, "Try: printf 'A -> B, C\\nB, C -> D\\n' | epigraph run - --actor template --with text='did {{ node }}'\n")
	return d.Run(e.ctx)
}

type serveCmd struct {
	settings
	Service string `arg:"" enum:"planner,executor,registry,gateway" help:"${enum}."`
}

// Run serves until it is told to stop.
func (c *serveCmd) Run(e *env) error {
	cfg := stack.DefaultConfig()
	if err := c.load(&cfg); err != nil {
		return err
	}
	return stack.Serve(e.ctx, c.Service, cfg)
}

type migrateCmd struct{ settings }

// Run migrates.
func (c *migrateCmd) Run(e *env) error {
	cfg := stack.DefaultConfig()
	if err := c.load(&cfg); err != nil {
		return err
	}
	return stack.Migrate(e.ctx, cfg, e.io.Out)
}
