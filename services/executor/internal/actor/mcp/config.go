package mcp

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/services/executor/internal/egress"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Config names the MCP servers whose tools are actors.
type Config struct {
	Servers map[string]Server `help:"MCP servers by name; each has command, args, env and dir, or url and headers: docs/actors.md"`
}

// Server is one server: a command that speaks over its standard input and output, or a URL of the streamable
// HTTP transport. The zero value of a bound means its default.
type Server struct {
	// Command is the program, with Args. It gets Env and of this process's environment only PATH, HOME, LANG
	// and TMPDIR; Dir is its working directory.
	Command string
	Args    []string
	Env     map[string]conf.Secret
	Dir     string
	// URL is the address of a server elsewhere, and Headers go with every request.
	URL     string `conf:"url"`
	Headers map[string]conf.Secret
	// AllowPrivate lists networks that are not public but may be reached, besides those of the actor http.
	AllowPrivate []string
	// Tools are the tools that may be called; empty means all.
	Tools []string
	// Effects are effects by tool, in place of what the server's hints say.
	Effects map[string]workgraph.Effect
	// Timeout bounds one call. Default 60s; a node's own timeout may be shorter.
	Timeout time.Duration
	// ConnectTimeout bounds the start, the handshake and the list of tools. Default 30s.
	ConnectTimeout time.Duration
	// MaxRequestBytes and MaxResponseBytes bound arguments and one message of the server. Default 1 MiB and
	// 4 MiB.
	MaxRequestBytes, MaxResponseBytes conf.Bytes
	// Parallel is how many calls are under way at once. Default 16.
	Parallel int
}

var serverName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// maxServers bounds the servers of one executor.
const maxServers = 100

// Validate reports every field that cannot be used.
func (c Config) Validate() error {
	var faults []error
	if len(c.Servers) > maxServers {
		faults = append(faults, fmt.Errorf("mcp.servers: at most %d, got %d", maxServers, len(c.Servers)))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
		for _, err := range c.Servers[name].faults() {
			faults = append(faults, fmt.Errorf("mcp.servers.%s: %w", name, err))
		}
		if !serverName.MatchString(name) {
			faults = append(faults, fmt.Errorf("mcp.servers: a name has 1 to 63 of a-z, 0-9, - and _, got %q", name))
		}
	}
	return errors.Join(faults...)
}

func (s Server) faults() (out []error) {
	fault := func(format string, args ...any) { out = append(out, fmt.Errorf(format, args...)) }
	switch {
	case (s.Command == "") == (s.URL == ""):
		fault("give either command or url")
	case s.Command == "" && (len(s.Args) > 0 || len(s.Env) > 0 || s.Dir != ""):
		fault("args, env and dir belong to a command")
	case s.URL == "" && (len(s.Headers) > 0 || len(s.AllowPrivate) > 0):
		fault("headers and allow_private belong to a url")
	}
	if s.URL != "" {
		if u, err := url.Parse(s.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			fault("url must be a whole http or https address") // it may have secrets
		}
	}
	if _, err := egress.NewGuard(s.AllowPrivate); err != nil {
		fault("allow_private: %w", err)
	}
	for tool, e := range s.Effects {
		if e != workgraph.Pure && e != workgraph.Idempotent && e != workgraph.Unsafe {
			fault("effects.%s must be PURE, IDEMPOTENT or UNSAFE, got %q", tool, e)
		}
	}
	for name, n := range map[string]int64{"timeout": int64(s.Timeout), "connect_timeout": int64(s.ConnectTimeout), "parallel": int64(s.Parallel),
		"max_request_bytes": int64(s.MaxRequestBytes), "max_response_bytes": int64(s.MaxResponseBytes)} {
		if n < 0 {
			fault("%s must not be negative", name)
		}
	}
	return out
}

func (s Server) withDefaults() Server {
	s.Timeout = cmp.Or(s.Timeout, time.Minute)
	s.ConnectTimeout = cmp.Or(s.ConnectTimeout, 30*time.Second)
	s.MaxRequestBytes = cmp.Or(s.MaxRequestBytes, 1<<20)
	s.MaxResponseBytes = cmp.Or(s.MaxResponseBytes, 4<<20)
	s.Parallel = cmp.Or(s.Parallel, 16)
	return s
}

// allows reports whether a tool may be called.
func (s Server) allows(tool string) bool { return len(s.Tools) == 0 || slices.Contains(s.Tools, tool) }
