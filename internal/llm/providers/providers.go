// Package providers assembles the models of a configuration: the profiles, the providers that there are, and
// a cassette before them. It must not know what a provider's protocol is.
package providers

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/anthropic"
	"github.com/epigraph-run/epigraph/internal/llm/cassette"
	"github.com/epigraph-run/epigraph/internal/llm/google"
	"github.com/epigraph-run/epigraph/internal/llm/openai"
)

// all are the providers by the name that profiles give.
func all() map[string]llm.Provider {
	return map[string]llm.Provider{"openai": openai.Open, "anthropic": anthropic.Open, "google": google.Open}
}

// Names lists the providers in order.
func Names() []string { return slices.Sorted(maps.Keys(all())) }

// Config names the models that may be asked.
type Config struct {
	llm.Config
	// Cassette says whether calls are recorded, or played back without any network.
	Cassette cassette.Config
}

// DefaultConfig asks OpenAI's small model.
func DefaultConfig() Config {
	return Config{Config: llm.DefaultConfig(), Cassette: cassette.DefaultConfig()}
}

// Validate reports every field that cannot be used.
func (c Config) Validate() error {
	err := c.Cassette.Validate()
	if err != nil {
		err = fmt.Errorf("cassette: %w", err)
	}
	return errors.Join(c.Config.Validate(Names()), err)
}

// Open returns the models of a valid configuration; they connect when first used. The caller closes the set.
// The cassette, if there is one, takes the place of o.Around. While one is played no account has limits,
// since nobody is asked.
func Open(c Config, o llm.Options) (*llm.Set, error) {
	if c.Cassette.Mode == "" {
		return llm.Open(c.Config, all(), o)
	}
	var secrets []string
	for _, p := range c.Profiles {
		secrets = append(secrets, p.APIKey.Reveal())
	}
	var log *slog.Logger
	if o.Telemetry != nil {
		log = o.Telemetry.Logger
	}
	around, err := cassette.Open(c.Cassette, secrets, log)
	if err != nil {
		return nil, err
	}
	o.Around = around
	if c.Cassette.Mode == cassette.Replay {
		o.Governor, o.Plays = nil, true
	}
	return llm.Open(c.Config, all(), o)
}

// usual are the variables of the environment in which a provider's own client looks for its key and server.
// The first that is set counts.
var usual = map[string]struct{ keys, urls []string }{
	"openai":    {[]string{"OPENAI_API_KEY"}, []string{"OPENAI_BASE_URL"}},
	"anthropic": {[]string{"ANTHROPIC_API_KEY"}, []string{"ANTHROPIC_BASE_URL"}},
	"google":    {[]string{"GOOGLE_API_KEY", "GEMINI_API_KEY"}, []string{"GOOGLE_GEMINI_BASE_URL"}},
}

// FromEnvironment gives profiles the key and the server of the usual variables. A profile with a base URL of
// its own is left alone: a key is shown only to the server that it is for.
func FromEnvironment(c llm.Config, env []string) llm.Config {
	first := func(names []string) string {
		for _, name := range names {
			for _, kv := range env {
				if value, ok := strings.CutPrefix(kv, name+"="); ok && value != "" {
					return value
				}
			}
		}
		return ""
	}
	c.Profiles = maps.Clone(c.Profiles)
	for name, p := range c.Profiles {
		if p.BaseURL != "" {
			continue
		}
		p.BaseURL = first(usual[p.Provider].urls)
		if p.APIKey.IsZero() {
			p.APIKey = conf.NewSecret(first(usual[p.Provider].keys))
		}
		c.Profiles[name] = p
	}
	return c
}
