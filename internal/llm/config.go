package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/conf"
)

// Config names the models that may be asked.
type Config struct {
	// Default is the profile of calls that name none.
	Default string `help:"profile of calls that name none"`
	// Embeds is the profile whose model makes vectors.
	Embeds string `help:"profile whose model makes vectors for searches of the memory by meaning, such as one of text-embedding-3-small; empty means that searches go by words alone"`
	// Profiles are the models by name.
	Profiles map[string]Profile `help:"model profiles by name"`
	// Accounts are the limits of accounts at providers, by name.
	Accounts map[string]AccountLimits `help:"accounts at providers by name, with the limits that profiles share"`
	// CaptureContent records prompts and answers in spans.
	CaptureContent bool `help:"record prompts and answers in traces"`
}

// Profile says which server and model is asked, and within which limits.
type Profile struct {
	// Provider is the protocol of the server.
	Provider string      `help:"protocol of the server: openai, which most servers speak, anthropic or google"`
	BaseURL  string      `help:"base URL of the server; empty means the provider's own"`
	APIKey   conf.Secret `help:"API key of that server"`
	Model    string      `help:"model that is asked when a call names none"`
	// PriceKey is PROVIDER or PROVIDER/MODEL.
	PriceKey string `help:"what usage is booked and priced under: PROVIDER or PROVIDER/MODEL; empty means the provider, and the model that the server names"`
	Account  string `help:"account whose limits the calls share; empty means no limits"`
	// Fallback are profiles that are asked in turn when this one refuses for now or cannot be reached.
	Fallback []string `help:"profiles that are asked in turn when this one refuses, cannot be reached or does not begin its answer in time"`
	// WhenSoftCap is asked in place of this one by calls above which a budget is over its soft cap.
	WhenSoftCap string `help:"profile that calls ask in place of this one while a budget above them is over its soft cap; empty means this one"`
	Retry       Retry  `conf:"retry"`

	ContextTokens   int64 `help:"tokens that the model can take, prompt and answer together: a request that is longer for sure is refused; 0 means that it is not known"`
	MaxOutputTokens int64 `help:"limit of the answer to a call that states none; always sent"`
	// ReserveUsual has calls that state no limit reserve what most calls of the model put out, and not the
	// limit that is sent for them, which alone bounds what they take of a budget.
	ReserveUsual bool `help:"calls that state no limit of their answer reserve what nine of ten calls of the model put out, not max_output_tokens; one in ten may then go over a hard cap"`
	// OutputLimit bounds what a tenant can take of an account before a call has been answered.
	OutputLimit int64         `help:"largest limit of the answer that a call may state"`
	Timeout     time.Duration `help:"longest time for one model call"`
	// FirstTokenTimeout and IdleTimeout bound streams only.
	FirstTokenTimeout time.Duration `help:"longest time to the first piece of a streamed answer; 0 means timeout alone"`
	IdleTimeout       time.Duration `help:"longest time between two pieces of a streamed answer; 0 means timeout alone"`
	MaxResponseBytes  conf.Bytes    `help:"largest response of the server"`

	LegacyMaxTokens bool `help:"send max_tokens in place of max_completion_tokens (openai)"`
	// Extra are further fields of every request, as JSON.
	Extra map[string]string `help:"further top-level fields of every request, each as JSON, such as reasoning_effort: '\"low\"'"`
}

// Retry says how often a refused call is made again within one attempt of a run.
type Retry struct {
	// Attempts counts all calls of the profile. Runs record their attempts and retry on their own, so that 1
	// loses nothing but time.
	Attempts int `help:"calls of the profile for one answer at most; runs retry besides, by the rules of the node"`
	// MaxWait bounds the wait before the next call, whatever Retry-After says: a longer one is left to the
	// caller.
	MaxWait time.Duration `help:"longest wait before the next of these calls; a server that wants more is not asked again"`
}

// AccountLimits are the limits of an account at a provider, over all executors; 0 means none.
type AccountLimits struct {
	RequestsPerMinute int64 `help:"requests per minute of all executors; 0 means no limit"`
	TokensPerMinute   int64 `help:"tokens per minute of all executors, of prompts and answers together; 0 means no limit"`
	// InputTokensPerMinute counts without what the provider read from its cache.
	InputTokensPerMinute  int64 `help:"tokens of prompts per minute of all executors, without cached ones; 0 means no limit"`
	OutputTokensPerMinute int64 `help:"tokens of answers per minute of all executors; 0 means no limit"`
	MaxConcurrent         int   `help:"calls under way at all executors together; 0 means no limit"`
}

// SetDefaults fills in what suits most servers.
func (p *Profile) SetDefaults() {
	*p = Profile{
		Provider: "openai", MaxOutputTokens: 4096, OutputLimit: 65536, Timeout: 10 * time.Minute, IdleTimeout: 2 * time.Minute,
		MaxResponseBytes: 16 << 20, Retry: Retry{Attempts: 1, MaxWait: 10 * time.Second},
	}
}

// DefaultProfile is the name of the profile that DefaultConfig has.
const DefaultProfile = "default"

// DefaultConfig asks OpenAI's small model.
func DefaultConfig() Config {
	var p Profile
	p.SetDefaults()
	p.Model = "gpt-4o-mini"
	return Config{Default: DefaultProfile, Profiles: map[string]Profile{DefaultProfile: p}}
}

// Change changes the profile of that name, which begins with the defaults if it is new. Copies of c that were
// made before stay as they are.
func (c *Config) Change(name string, change func(*Profile)) {
	p, ok := c.Profiles[name]
	if !ok {
		p.SetDefaults()
	}
	change(&p)
	c.Profiles = maps.Clone(c.Profiles)
	if c.Profiles == nil {
		c.Profiles = map[string]Profile{}
	}
	c.Profiles[name] = p
}

var profileName = regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]{0,62}[a-z0-9])?$`)

// Validate reports every field that cannot be used. providers are the known ones.
func (c Config) Validate(providers []string) error {
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if _, ok := c.Profiles[c.Default]; !ok {
		add("default is %q, which is no profile", c.Default)
	}
	if p, ok := c.Profiles[c.Embeds]; c.Embeds != "" && !ok {
		add("embeds is %q, which is no profile", c.Embeds)
	} else if ok && (p.Provider != "openai" || len(p.Model) > 128) {
		add("embeds is %q: vectors are asked for by the protocol openai, of a model whose name has at most 128 bytes", c.Embeds)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		p := c.Profiles[name]
		if !profileName.MatchString(name) {
			add("profiles.%s: a name has up to 64 of a-z, 0-9, - and _, the last two inside only", name)
		}
		for _, other := range p.Fallback {
			if _, ok := c.Profiles[other]; !ok || other == name {
				add("profiles.%s.fallback: %q is no other profile", name, other)
			}
		}
		if _, ok := c.Profiles[p.WhenSoftCap]; p.WhenSoftCap != "" && (!ok || p.WhenSoftCap == name) {
			add("profiles.%s.when_soft_cap: %q is no other profile", name, p.WhenSoftCap)
		}
		if _, ok := c.Accounts[p.Account]; !ok && p.Account != "" {
			add("profiles.%s.account: there is no account %q", name, p.Account)
		}
		if !slices.Contains(providers, p.Provider) {
			add("profiles.%s.provider is %q: it is %s", name, p.Provider, strings.Join(providers, ", "))
		}
		p.validate(func(format string, args ...any) { add("profiles."+name+"."+format, args...) })
	}
	for _, name := range slices.Sorted(maps.Keys(c.Accounts)) {
		a := c.Accounts[name]
		if min(a.RequestsPerMinute, a.TokensPerMinute, a.InputTokensPerMinute, a.OutputTokensPerMinute, int64(a.MaxConcurrent)) < 0 {
			add("accounts.%s: limits must not be negative", name)
		}
		if !profileName.MatchString(name) {
			add("accounts.%s: a name has up to 64 of a-z, 0-9, - and _, the last two inside only", name)
		}
	}
	return errors.Join(faults...)
}

func (p Profile) validate(add func(format string, args ...any)) {
	if u, err := url.Parse(p.BaseURL); p.BaseURL != "" && (err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "") {
		add("base_url must be a http or https URL")
	}
	if p.Model == "" {
		add("model must be set")
	}
	if p.PriceKey != "" && (strings.HasPrefix(p.PriceKey, "/") || strings.HasSuffix(p.PriceKey, "/")) {
		add("price_key must be PROVIDER or PROVIDER/MODEL")
	}
	for key, n := range map[string]int64{"timeout": int64(p.Timeout), "max_response_bytes": int64(p.MaxResponseBytes), "max_output_tokens": p.MaxOutputTokens} {
		if n <= 0 {
			add("%s must be positive", key)
		}
	}
	for key, n := range map[string]int64{
		"context_tokens": p.ContextTokens, "first_token_timeout": int64(p.FirstTokenTimeout), "idle_timeout": int64(p.IdleTimeout), "retry.max_wait": int64(p.Retry.MaxWait),
	} {
		if n < 0 {
			add("%s must not be negative", key)
		}
	}
	if p.Retry.Attempts < 1 || p.Retry.Attempts > 10 {
		add("retry.attempts must be from 1 to 10")
	}
	if p.OutputLimit < p.MaxOutputTokens {
		add("output_limit must not be less than max_output_tokens")
	}
	if p.ContextTokens > 0 && p.MaxOutputTokens >= p.ContextTokens {
		add("max_output_tokens must be less than context_tokens, which are those of the prompt too")
	}
	for name, text := range p.Extra {
		if !json.Valid([]byte(text)) {
			add("extra.%s must be JSON; a text needs quotes of its own", name)
		}
	}
}

// Booked are the provider and the model under which usage is booked when model answered.
func (p Profile) Booked(model string) (provider, name string) {
	provider, name, _ = strings.Cut(p.PriceKey, "/")
	if provider == "" {
		provider = p.Provider
	}
	if name == "" {
		name = model
	}
	return provider, name
}

// Endpoint is what a provider needs to know of a profile.
type Endpoint struct {
	BaseURL string
	APIKey  conf.Secret
	// HTTP is traced, bounds responses and follows no redirects. Providers must use it, or Doer, for every
	// request.
	HTTP            *http.Client
	LegacyMaxTokens bool
}

// Doer is HTTP for SDKs that take whatever sends a request.
func (e Endpoint) Doer() Doer { return Doer{e.HTTP.Transport} }

// Provider opens the models of one kind of server. It does no I/O. The models send a request as it is, make
// no call twice and return what an SDK returns as an error: the caller types it. Tool names hold what
// providers take, and MaxOutputTokens is set.
type Provider func(Endpoint) (Model, error)
