package a2a

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/services/executor/internal/egress"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Config names the remote agents that are actors.
type Config struct {
	Agents map[string]Agent `help:"remote agents that speak A2A, by name; each has url and headers or bearer; NAME is the actor a2a/NAME: docs/actors.md"`
}

// Agent is one remote agent. The zero value of a bound means its default.
type Agent struct {
	// URL is the address of its card if it ends in .json, else the address below which the card lies at
	// /.well-known/agent-card.json.
	URL string `conf:"url"`
	// Headers go with every request, and Bearer is the token of an Authorization header besides.
	Headers map[string]conf.Secret
	Bearer  conf.Secret
	// Hosts are hosts, with a port unless it is that of the scheme, that a card may name as the agent's
	// address besides the host of URL. They get the headers, too.
	Hosts []string
	// AllowPrivate lists networks that are not public but may be reached, besides those of the actor
	// http.
	AllowPrivate []string
	// Effect is that of a message. Default UNSAFE: a message whose fate is unknown is not sent again.
	Effect workgraph.Effect
	// OwnContexts says that the agent takes no context ids of its callers: it makes its own.
	OwnContexts bool
	// Timeout bounds one request, but not a stream. Default 60s.
	Timeout time.Duration
	// TaskTimeout bounds a task, questions included. Default 24h. An argument of a call may shorten it.
	TaskTimeout time.Duration
	// Refresh is how old a card may become. Default 10m.
	Refresh time.Duration
	// MaxRequestBytes and MaxResponseBytes bound a message to the agent, and one answer or event of it.
	// Default 1 MiB and 4 MiB.
	MaxRequestBytes, MaxResponseBytes conf.Bytes
	// Parallel is how many requests and streams are under way at once; those of one namespace are at most
	// half of them. Default 64.
	Parallel int
}

var agentName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// maxAgents bounds the agents of one executor, maxHosts the hosts of one agent.
const maxAgents, maxHosts = 100, 20

// Validate reports every field that cannot be used.
func (c Config) Validate() error {
	var faults []error
	if len(c.Agents) > maxAgents {
		faults = append(faults, fmt.Errorf("a2a.agents: at most %d, got %d", maxAgents, len(c.Agents)))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Agents)) {
		for _, err := range c.Agents[name].faults() {
			faults = append(faults, fmt.Errorf("a2a.agents.%s: %w", name, err))
		}
		if !agentName.MatchString(name) {
			faults = append(faults, fmt.Errorf("a2a.agents: a name has 1 to 63 of a-z, 0-9, - and _, got %q", name))
		}
	}
	return errors.Join(faults...)
}

func (a Agent) faults() (out []error) {
	fault := func(format string, args ...any) { out = append(out, fmt.Errorf(format, args...)) }
	if u, err := url.Parse(a.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		fault("url must be a whole http or https address") // it may have secrets
	}
	if !a.Bearer.IsZero() {
		for name := range a.Headers {
			if strings.EqualFold(name, "Authorization") {
				fault("give either bearer or the header Authorization")
			}
		}
	}
	if len(a.Hosts) > maxHosts {
		fault("hosts: at most %d, got %d", maxHosts, len(a.Hosts))
	}
	for _, h := range a.Hosts {
		if h == "" || strings.ContainsAny(h, "/@ ") {
			fault("hosts: %q must be a host, or host:port", h)
		}
	}
	if _, err := egress.NewGuard(a.AllowPrivate); err != nil {
		fault("allow_private: %w", err)
	}
	if e := a.Effect; e != "" && e != workgraph.Pure && e != workgraph.Idempotent && e != workgraph.Unsafe {
		fault("effect must be PURE, IDEMPOTENT or UNSAFE, got %q", e)
	}
	for name, n := range map[string]int64{"timeout": int64(a.Timeout), "task_timeout": int64(a.TaskTimeout), "refresh": int64(a.Refresh), "parallel": int64(a.Parallel),
		"max_request_bytes": int64(a.MaxRequestBytes), "max_response_bytes": int64(a.MaxResponseBytes)} {
		if n < 0 {
			fault("%s must not be negative", name)
		}
	}
	return out
}

func (a Agent) withDefaults() Agent {
	a.Effect = cmp.Or(a.Effect, workgraph.Unsafe)
	a.Timeout = cmp.Or(a.Timeout, time.Minute)
	a.TaskTimeout = cmp.Or(a.TaskTimeout, 24*time.Hour)
	a.Refresh = cmp.Or(a.Refresh, 10*time.Minute)
	a.MaxRequestBytes = cmp.Or(a.MaxRequestBytes, 1<<20)
	a.MaxResponseBytes = cmp.Or(a.MaxResponseBytes, 4<<20)
	a.Parallel = cmp.Or(a.Parallel, 64)
	return a
}

// wellKnown is where the card of an agent lies below its address.
const wellKnown = "/.well-known/agent-card.json"

// cardURL is the address of the card.
func (a Agent) cardURL() string {
	u, err := url.Parse(a.URL)
	if err != nil || strings.HasSuffix(u.Path, ".json") {
		return a.URL
	}
	u.Path = strings.TrimSuffix(u.Path, "/") + wellKnown
	return u.String()
}

// reaches reports whether requests with the agent's headers may go to an address.
func (a Agent) reaches(u *url.URL) bool {
	own, err := url.Parse(a.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || own.Scheme == "https" && u.Scheme != "https" {
		return false
	}
	return strings.EqualFold(u.Host, own.Host) || slices.ContainsFunc(a.Hosts, func(h string) bool { return strings.EqualFold(h, u.Host) })
}
