// Package oidc owns the people who prove who they are at an OpenID provider: the issuers whose tokens
// are believed, the login of a browser, and the session that a login begins. It must not know what a
// caller wants to do, nor how its calls are served.
package oidc

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
)

// Config says whose tokens are believed, and for how long a login holds. DefaultConfig gives the
// defaults.
type Config struct {
	// Issuers are the OpenID providers. Without any, nobody logs in.
	Issuers []Issuer `help:"OpenID providers whose users are let in: name, url, client_id, client_secret, audiences, scopes, user_claim, groups_claim, grants (group, namespace, role); see access.md"`
	// SessionKeys seal the sessions of browsers. The first seals, and all of them open.
	SessionKeys []conf.Secret `help:"secrets of at least 32 characters that seal the sessions of browsers: the first seals and all open, so that one can replace another; none offers no login"`
	// SessionIdle is how long a session holds without a request.
	SessionIdle time.Duration `help:"how long the session of a browser lasts without a request"`
	// SessionLifetime is how long a session holds at most, and so how long the groups of its user hold.
	SessionLifetime time.Duration `help:"how long the session of a browser lasts at most, and with it the groups that its user had at the login"`
}

// Issuer is an OpenID provider.
type Issuer struct {
	// Name stands before the names of its users, as NAME/USER. It is required where there are
	// several issuers.
	Name string
	// URL is that of the tokens' claim iss, below which the provider describes itself.
	URL string `conf:"url"`
	// ClientID is that of the gateway at the provider. ClientSecret may be empty for a public client.
	ClientID     string `conf:"client_id"`
	ClientSecret conf.Secret
	// Audiences are accepted in tokens of the Authorization header besides the client's id.
	Audiences []string
	// Scopes are asked for at a login; openid, email and profile if there are none.
	Scopes []string
	// UserClaim names the claim with the name of the user; sub if it is empty.
	UserClaim string
	// GroupsClaim names the claim with the groups of the user; groups if it is empty.
	GroupsClaim string
	// Grants say what the groups may do.
	Grants []Grant
}

// Grant gives the users of a group a role in a namespace.
type Grant struct {
	// Group is one of the values of the groups claim, or * for all users of the issuer.
	Group     string
	Namespace string
	Role      access.Role
}

// Everyone is the group that all users of an issuer are in.
const Everyone = "*"

// DefaultConfig believes nobody.
func DefaultConfig() Config {
	return Config{SessionIdle: time.Hour, SessionLifetime: 12 * time.Hour}
}

// Bounds of a configuration.
const (
	maxIssuers     = 20
	maxGrants      = 1000
	maxSessionKeys = 8
	minSessionKey  = 32
)

var nameRule = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// Login reports whether browsers can log in.
func (c Config) Login() bool { return len(c.SessionKeys) > 0 && len(c.Issuers) > 0 }

// Validate reports every setting that cannot be used. publicURL is where browsers reach the gateway.
func (c Config) Validate(publicURL string) []error {
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf("oidc."+format, args...)) }
	if len(c.Issuers) > maxIssuers {
		bad("issuers: there are %d, and %d at most can be used", len(c.Issuers), maxIssuers)
	}
	names, urls := map[string]bool{}, map[string]bool{}
	for i, issuer := range c.Issuers {
		at := fmt.Sprintf("issuers[%d]", i)
		if len(c.Issuers) > 1 && issuer.Name == "" {
			bad("%s: where there are several issuers each needs a name, so that their users are told apart", at)
		}
		if names[issuer.Name] || urls[issuer.URL] {
			bad("%s has the name or the url of another one", at)
		}
		names[issuer.Name], urls[issuer.URL] = true, true
		for _, fault := range issuer.validate() {
			bad("%s: %w", at, fault)
		}
		if len(c.SessionKeys) > 0 && issuer.ClientID == "" {
			bad("%s: a login needs the client_id", at)
		}
	}
	if len(c.SessionKeys) > 0 && len(c.Issuers) == 0 {
		bad("session_keys: there are no issuers to log in at")
	}
	if c.Login() && publicURL == "" {
		bad("session_keys: a login needs public_url, to which the provider sends browsers back")
	}
	if len(c.SessionKeys) > maxSessionKeys {
		bad("session_keys: there are %d, and %d at most can be used", len(c.SessionKeys), maxSessionKeys)
	}
	for i, key := range c.SessionKeys {
		if len(key.Reveal()) < minSessionKey {
			bad("session_keys[%d] has fewer than %d characters", i, minSessionKey)
		}
	}
	if c.SessionIdle < time.Minute || c.SessionLifetime < c.SessionIdle {
		bad("session_idle must be at least a minute, and session_lifetime as long as that")
	}
	return faults
}

func (i Issuer) validate() (faults []error) {
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if i.Name != "" && !nameRule.MatchString(i.Name) {
		bad("name %q is not valid: lower-case letters, digits and dashes, at most 32", i.Name)
	}
	u, err := url.Parse(i.URL)
	switch {
	case err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		bad("url %q is no address of an issuer; write it as https://host/path, as the issuer itself does", i.URL)
	case u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())):
		bad("url %q is not https, which it must be on all but loopback addresses", i.URL)
	}
	if i.ClientID == "" && len(i.Audiences) == 0 {
		bad("a client_id or audiences are needed: tokens for others must not open anything here")
	}
	if slices.Contains(i.Audiences, "") {
		bad("audiences has an empty one")
	}
	if len(i.Grants) == 0 || len(i.Grants) > maxGrants {
		bad("1 to %d grants are needed: group, namespace and role", maxGrants)
	}
	for n, g := range i.Grants {
		if g.Group == "" || !grpckit.ValidNamespace(g.Namespace) || len(g.Role.Scopes()) == 0 {
			bad("grants[%d]: group %q, namespace %q, role %q: give a group or *, a namespace, and viewer, operator, approver or admin", n, g.Group, g.Namespace, g.Role)
		}
	}
	return faults
}

// audiences are all that a token of the Authorization header may be for.
func (i Issuer) audiences() []string {
	out := slices.Clone(i.Audiences)
	if i.ClientID != "" {
		out = append(out, i.ClientID)
	}
	return out
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.IsLoopback()
}

// secure reports whether a provider that is reached by one scheme may be asked at an address.
func secure(issuer, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return errors.New("it is no address")
	}
	host := u.Hostname()
	if u.Scheme == "https" || u.Scheme == "http" && strings.HasPrefix(issuer, "http://") && loopback(host) {
		return nil
	}
	return fmt.Errorf("%s is not https", net.JoinHostPort(host, u.Port()))
}
