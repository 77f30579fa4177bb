package oidc

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	gooidc "github.com/coreos/go-oidc/v3/oidc"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/bucket"
	"github.com/epigraph-run/epigraph/internal/errs"
)

// Bounds of what a token or a provider says of a user.
const (
	// maxToken bounds a token, in bytes. It is checked before anything of the token is read.
	maxToken = 16 << 10
	// skew is by how much the clocks of a provider and of the gateway may differ.
	skew = time.Minute
	// maxName bounds the name of a user, and maxGroup that of a group, in bytes.
	maxName, maxGroup = 200, 200
)

const reasonInvalid = "CREDENTIALS_INVALID"

// User is somebody who proved who it is.
type User struct {
	// Name is that of the user claim, behind the name of the issuer if that has one.
	Name string
	// Rooms are the namespaces in which the user has roles, in the order of the configuration.
	Rooms []Room
	// Chosen is the namespace of a session, or "".
	Chosen string
}

// Room is a namespace with what a user may do there.
type Room struct {
	Namespace string
	Scopes    []access.Scope
}

// In returns who the user is in a namespace, and the namespace: the one that is asked for, that of the
// session, or the only one.
func (u User) In(namespace string) (access.Principal, string, error) {
	var names []string
	for _, r := range u.Rooms {
		names = append(names, r.Namespace)
	}
	if namespace == "" {
		namespace = u.Chosen
	}
	if namespace == "" && len(names) == 1 {
		namespace = names[0]
	}
	if namespace == "" {
		return access.Principal{}, "", errs.New(errs.InvalidArgument, "NAMESPACE_REQUIRED", "the user %q has roles in %d namespaces: %s", u.Name, len(names), strings.Join(names[:min(len(names), 10)], ", ")).
			Hint("name one of them in X-Epigraph-Namespace")
	}
	i := slices.Index(names, namespace)
	if i < 0 {
		return access.Principal{}, "", errs.New(errs.PermissionDenied, "NAMESPACE_DENIED", "the user %q has no role in namespace %.80q", u.Name, namespace).
			Hint("name another one in X-Epigraph-Namespace, or ask for a group with a role there: gateway.oidc.issuers.grants")
	}
	return access.Principal{Kind: access.User, Name: u.Name, Scopes: u.Rooms[i].Scopes}, namespace, nil
}

// Users knows the users of the configured issuers. It is safe for concurrent use.
type Users struct {
	cfg       Config
	public    string // where browsers reach the gateway, without a slash at the end
	secure    bool
	providers []*provider
	seals     *seals // nil without a login
	logins    *bucket.Buckets[string]
	origins   *http.CrossOriginProtection
}

// New returns the users of a valid configuration. publicURL is where browsers reach the gateway;
// tls says that it serves with a certificate.
func New(cfg Config, publicURL string, tls bool) (*Users, error) {
	u := &Users{cfg: cfg, public: strings.TrimRight(publicURL, "/"), logins: bucket.New[string](loginsPerSecond, logins, loginSources), origins: http.NewCrossOriginProtection()}
	u.secure = tls || strings.HasPrefix(u.public, "https://")
	for _, i := range cfg.Issuers {
		u.providers = append(u.providers, newProvider(i))
	}
	if !cfg.Login() {
		return u, nil
	}
	// A proxy may pass another Host on than browsers know.
	if err := u.origins.AddTrustedOrigin(u.public); err != nil {
		return nil, errs.New(errs.InvalidArgument, "ORIGIN_INVALID", "public_url: %v", err).Hint("write it as https://host, without a path")
	}
	var err error
	u.seals, err = newSeals(cfg.SessionKeys, u.public)
	return u, err
}

// Token reports whether a credential is to be read as a token of an issuer.
func (u *Users) Token(credential string) bool {
	return u != nil && len(u.providers) > 0 && strings.HasPrefix(credential, "eyJ") && strings.Count(credential, ".") == 2
}

// Authenticate returns whom a token of an Authorization header is about.
func (u *Users) Authenticate(ctx context.Context, token string) (User, error) {
	if len(token) > maxToken {
		return User{}, refused("the token has more than %d bytes", maxToken).Hint("have the issuer put fewer groups into it")
	}
	p, err := u.issuerOf(token)
	if err != nil {
		return User{}, err
	}
	claims, err := p.verify(ctx, token, p.issuer.audiences())
	if err != nil {
		return User{}, err
	}
	name, groups, err := p.issuer.person(claims)
	if err != nil {
		return User{}, err
	}
	return p.issuer.user(name, groups)
}

// issuerOf finds the provider that a token names, before the token is believed.
func (u *Users) issuerOf(token string) (*provider, error) {
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	var said struct {
		Issuer string `json:"iss"`
	}
	b, err := base64.RawURLEncoding.DecodeString(payload)
	if err == nil {
		err = json.Unmarshal(b, &said)
	}
	if err != nil {
		return nil, refused("the token cannot be read").Hint("send the ID token as the issuer made it").With(err)
	}
	for _, p := range u.providers {
		if p.issuer.URL == said.Issuer {
			return p, nil
		}
	}
	return nil, refused("tokens of the issuer %.200q are not accepted here", said.Issuer).Hint("gateway.oidc.issuers names those that are")
}

func refused(format string, args ...any) *errs.Error {
	return errs.New(errs.Unauthenticated, reasonInvalid, format, args...)
}

// verify checks the signature of a token, for whom it is and its times, and returns its claims.
func (p *provider) verify(ctx context.Context, raw string, audiences []string) (map[string]any, error) {
	var names []string
	for _, a := range algorithms() {
		names = append(names, string(a))
	}
	// Audience and times are checked below, where several audiences and a skew are known.
	keys := &asked{provider: p}
	verifier := gooidc.NewVerifier(p.issuer.URL, keys, &gooidc.Config{SkipClientIDCheck: true, SkipExpiryCheck: true, SupportedSigningAlgs: names})
	token, err := verifier.Verify(ctx, raw)
	if err != nil {
		if errs.Is(keys.err, errs.Unavailable) {
			return nil, keys.err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, refused("the token is not one of %s: its signature does not hold, or its algorithm is not accepted", p.issuer.URL).
			Hint("send the ID token as the issuer made it, signed by one of its published keys").With(err)
	}
	if !slices.ContainsFunc(token.Audience, func(a string) bool { return slices.Contains(audiences, a) }) {
		return nil, refused("the token is for others: its audience is %.200q", token.Audience).
			Hint("get one for the client of this installation, or add the audience to gateway.oidc.issuers.audiences")
	}
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return nil, refused("the claims of the token cannot be read").With(err)
	}
	now := time.Now()
	if !now.Before(token.Expiry.Add(skew)) {
		return nil, refused("the token has expired").Hint("get a new one of the issuer")
	}
	if start, ok := claims["nbf"].(float64); ok && now.Add(skew).Before(time.Unix(int64(start), 0)) || now.Add(skew).Before(token.IssuedAt) {
		return nil, refused("the token is not valid yet").Hint("compare the clocks of the issuer and of this machine")
	}
	if _, logout := claims["events"]; logout || token.Subject == "" {
		return nil, refused("the token is none of a user")
	}
	return claims, nil
}

// asked keeps why the keys of a provider did not confirm a signature: the verifier keeps its text
// alone.
type asked struct {
	*provider

	err error
}

// VerifySignature implements the key set of the verifier.
func (a *asked) VerifySignature(ctx context.Context, raw string) (payload []byte, err error) {
	payload, a.err = a.provider.VerifySignature(ctx, raw)
	return payload, a.err
}

// person reads the name of a user from claims, and the groups of which the configuration knows.
func (i Issuer) person(claims map[string]any) (name string, groups []string, err error) {
	key := i.userClaim()
	name, _ = claim(claims, key).(string)
	if name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.TrimSpace(name) != name || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "", nil, refused("the claim %q of the token is no name of 1 to %d printable characters", key, maxName).
			Hint("have the issuer set it, or name another claim in gateway.oidc.issuers.user_claim")
	}
	if key == "email" {
		if v, said := claims["email_verified"]; said && v != true && v != "true" {
			return "", nil, refused("the issuer has not verified the address of this user").Hint("verify it there, or let gateway.oidc.issuers.user_claim be sub")
		}
	}
	var said []any
	switch v := claim(claims, i.groupsClaim()).(type) {
	case string:
		said = []any{v}
	case []any:
		said = v
	}
	known := map[string]bool{}
	for _, g := range i.Grants {
		known[g.Group] = true
	}
	for _, v := range said {
		if g, ok := v.(string); ok && len(g) <= maxGroup && g != Everyone && known[g] && !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	return name, groups, nil
}

func (i Issuer) userClaim() string {
	if i.UserClaim == "" {
		return "sub"
	}
	return i.UserClaim
}

func (i Issuer) groupsClaim() string {
	if i.GroupsClaim == "" {
		return "groups"
	}
	return i.GroupsClaim
}

// claim finds a claim by its name, or by a path with dots.
func claim(claims map[string]any, name string) any {
	if v, ok := claims[name]; ok {
		return v
	}
	first, rest, nested := strings.Cut(name, ".")
	if inner, ok := claims[first].(map[string]any); ok && nested {
		return claim(inner, rest)
	}
	return nil
}

// user is somebody of the issuer, with the roles that the configuration gives its groups now.
func (i Issuer) user(name string, groups []string) (User, error) {
	u := User{Name: name}
	if i.Name != "" {
		u.Name = i.Name + "/" + name
	}
	for _, g := range i.Grants {
		if g.Group != Everyone && !slices.Contains(groups, g.Group) {
			continue
		}
		at := slices.IndexFunc(u.Rooms, func(r Room) bool { return r.Namespace == g.Namespace })
		if at < 0 {
			at = len(u.Rooms)
			u.Rooms = append(u.Rooms, Room{Namespace: g.Namespace})
		}
		for _, s := range g.Role.Scopes() {
			if !slices.Contains(u.Rooms[at].Scopes, s) {
				u.Rooms[at].Scopes = append(u.Rooms[at].Scopes, s)
			}
		}
	}
	if len(u.Rooms) == 0 {
		return User{}, errs.New(errs.PermissionDenied, "USER_WITHOUT_ROLE", "the user %q has no role in any namespace", u.Name).
			Hint(fmt.Sprintf("ask for a group that has one: gateway.oidc.issuers.grants, by the claim %q", i.groupsClaim()))
	}
	return u, nil
}
