package oidc

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/apikey"
	"github.com/epigraph-run/epigraph/internal/errs"
)

// Where browsers log in and out.
const (
	LoginPath    = "/auth/login"
	CallbackPath = "/auth/callback"
	LogoutPath   = "/auth/logout"
)

// Bounds of logins.
const (
	// loginLasts is how long a login may take at the provider.
	loginLasts = 10 * time.Minute
	// maxReturn bounds the place to return to, in bytes.
	maxReturn = 512
	// logins are how many requests of logins an address may make at once, loginsPerSecond how many a
	// second after that. It is known of loginSources addresses.
	logins, loginsPerSecond, loginSources = 50, 5, 10_000
)

// login is what a browser holds while it is at the provider.
type login struct {
	Issuer    string `json:"i"`
	State     string `json:"s"`
	Nonce     string `json:"n"`
	Verifier  string `json:"v"`
	Return    string `json:"r"`
	Namespace string `json:"ns,omitempty"`
	Began     int64  `json:"b"`
}

// Offer is a provider at which browsers may log in.
type Offer struct {
	// Name is that of the issuer; empty for the only one.
	Name string `json:"name,omitempty"`
	// URL begins the login. The parameter return_to may name the page to come back to.
	URL string `json:"url"`
}

// Offers are the providers at which browsers may log in.
func (u *Users) Offers() []Offer {
	if u == nil || u.seals == nil {
		return nil
	}
	var out []Offer
	for _, p := range u.providers {
		o := Offer{Name: p.issuer.Name, URL: LoginPath}
		if o.Name != "" {
			o.URL += "?issuer=" + url.QueryEscape(o.Name)
		}
		out = append(out, o)
	}
	return out
}

// offered refuses logins where there are none.
func (u *Users) offered() error {
	if u == nil || u.seals == nil {
		return errs.New(errs.FailedPrecondition, "LOGIN_NOT_OFFERED", "this server offers no login").
			Hint("use an API key, or set gateway.oidc.issuers and gateway.oidc.session_keys")
	}
	return nil
}

// admit refuses another login from an address that has begun many.
func (u *Users) admit(r *http.Request) error {
	if err := u.offered(); err != nil {
		return err
	}
	if !u.logins.Take(apikey.Source(access.OriginOf(r.Context()).Remote)) {
		return errs.New(errs.ResourceExhausted, "TOO_MANY_LOGINS", "too many logins were begun from this address").
			Hint("try again in a moment").RetryAfter(time.Second)
	}
	return nil
}

// Login sends a browser to the provider.
func (u *Users) Login(w http.ResponseWriter, r *http.Request) error {
	if err := u.admit(r); err != nil {
		return err
	}
	q, err := only(r, "issuer", "return_to", "namespace")
	if err != nil {
		return err
	}
	back, err := returnTo(q.Get("return_to"))
	if err != nil {
		return err
	}
	i := slices.IndexFunc(u.providers, func(p *provider) bool { return p.issuer.Name == q.Get("issuer") })
	if i < 0 && q.Get("issuer") == "" {
		i = 0
	}
	if i < 0 {
		return errs.New(errs.InvalidArgument, "ISSUER_UNKNOWN", "there is no issuer %.80q to log in at", q.Get("issuer")).
			Hint("GET /v1/info lists those that there are")
	}
	p := u.providers[i]
	d, err := p.describe(r.Context())
	if err != nil {
		return err
	}
	if err := secure(p.issuer.URL, d.provider.Endpoint().AuthURL); err != nil {
		return p.away(fmt.Errorf("send a browser to log in: %w", err))
	}
	l := login{Issuer: p.issuer.URL, State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Return: back, Namespace: clip(q.Get("namespace"), 63), Began: time.Now().Unix()}
	sealed, err := u.seals.seal(forLogin, l)
	if err != nil {
		return err
	}
	http.SetCookie(w, u.cookie(forLogin, sealed, loginLasts))
	client := p.exchange(d, u.public+CallbackPath)
	redirect(w, client.AuthCodeURL(l.State, gooidc.Nonce(l.Nonce), oauth2.S256ChallengeOption(l.Verifier)))
	return nil
}

// Callback ends a login, and returns who logged in: the provider has sent the browser back with a code.
func (u *Users) Callback(w http.ResponseWriter, r *http.Request) (who User, err error) {
	if err := u.admit(r); err != nil {
		return User{}, err
	}
	q := r.URL.Query()
	l, err := u.begun(r, q.Get("state"))
	if err != nil {
		return User{}, err
	}
	// A code is shown once, whatever comes of it.
	http.SetCookie(w, u.cookie(forLogin, "", 0))
	i := slices.IndexFunc(u.providers, func(p *provider) bool { return p.issuer.URL == l.Issuer })
	if i < 0 {
		return User{}, errs.New(errs.InvalidArgument, "ISSUER_UNKNOWN", "the issuer of this login is no longer configured").Hint("log in again at " + LoginPath)
	}
	p := u.providers[i]
	if from := q.Get("iss"); from != "" && from != p.issuer.URL {
		return User{}, stranger("the answer comes from another issuer than the login went to")
	}
	if code := q.Get("error"); code != "" {
		return User{}, errs.New(errs.Unauthenticated, "LOGIN_REFUSED", "the OpenID provider refused the login: %.80q %.200q", code, q.Get("error_description")).
			Hint("log in again at " + LoginPath)
	}
	ctx, cancel := context.WithTimeout(r.Context(), 4*patience)
	defer cancel()
	claims, err := p.redeem(ctx, q.Get("code"), l, u.public+CallbackPath)
	if err != nil {
		return User{}, err
	}
	name, groups, err := p.issuer.person(claims)
	if err != nil {
		return User{}, err
	}
	if who, err = p.issuer.user(name, groups); err != nil {
		return User{}, err
	}
	s := session{Issuer: l.Issuer, Name: name, Groups: groups, Namespace: l.Namespace, Began: time.Now().Unix(), Seen: time.Now().Unix()}
	if s.Namespace == "" {
		s.Namespace = who.Rooms[0].Namespace
	}
	if _, _, err := who.In(s.Namespace); err != nil {
		return User{}, err
	}
	sealed, err := u.seals.seal(forSession, s)
	if err != nil {
		return User{}, err
	}
	if len(sealed) > maxCookie {
		return User{}, errs.New(errs.FailedPrecondition, "SESSION_TOO_LARGE", "the user %q is in %d groups that have grants, which a browser cannot hold", who.Name, len(groups)).
			Hint("grant roles to fewer groups, or to groups with shorter names: gateway.oidc.issuers.grants")
	}
	http.SetCookie(w, u.cookie(forSession, sealed, min(u.cfg.SessionIdle, u.cfg.SessionLifetime)))
	redirect(w, u.public+l.Return)
	return who, nil
}

// Logout has the browser forget its session. The provider may still know the user.
func (u *Users) Logout(w http.ResponseWriter, r *http.Request) error {
	if err := u.offered(); err != nil {
		return err
	}
	if err := u.origins.Check(r); err != nil {
		return errs.New(errs.PermissionDenied, "CROSS_ORIGIN", "pages of another origin may not end a session").Hint("send the request from a page of this server").With(err)
	}
	http.SetCookie(w, u.cookie(forSession, "", 0))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// begun is the login that this browser began, if the provider answers to that one.
func (u *Users) begun(r *http.Request, state string) (l login, err error) {
	found := r.CookiesNamed(u.name(forLogin))
	if len(found) != 1 || u.seals.open(forLogin, found[0].Value, &l) != nil {
		return l, stranger("no login is under way in this browser")
	}
	if subtle.ConstantTimeCompare([]byte(l.State), []byte(state)) != 1 {
		return l, stranger("the answer belongs to another login than the one that is under way in this browser")
	}
	if age := time.Since(time.Unix(l.Began, 0)); age > loginLasts || age < -skew {
		return l, stranger("the login took more than %v", loginLasts)
	}
	return l, nil
}

func stranger(format string, args ...any) error {
	return errs.New(errs.InvalidArgument, "LOGIN_STATE_INVALID", format, args...).Hint("log in again at " + LoginPath)
}

// redeem exchanges the code of a login for the claims about its user.
func (p *provider) redeem(ctx context.Context, code string, l login, redirect string) (map[string]any, error) {
	no := func(err error) error {
		return errs.New(errs.Unauthenticated, "LOGIN_REFUSED", "the OpenID provider did not confirm the login").Hint("log in again at " + LoginPath).With(err)
	}
	if code == "" || len(code) > maxToken {
		return nil, no(errors.New("the answer has no code"))
	}
	d, err := p.describe(ctx)
	if err != nil {
		return nil, err
	}
	client := p.exchange(d, redirect)
	token, err := client.Exchange(p.context(ctx), code, oauth2.VerifierOption(l.Verifier))
	if err != nil {
		if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok && e.Response != nil && e.Response.StatusCode < 500 {
			return nil, no(err)
		}
		return nil, p.away(err)
	}
	raw, _ := token.Extra("id_token").(string)
	if raw == "" || len(raw) > maxToken {
		return nil, no(errors.New("the provider sent no ID token, or one that is too long"))
	}
	claims, err := p.verify(ctx, raw, []string{p.issuer.ClientID})
	if err != nil {
		return nil, err
	}
	if nonce, _ := claims["nonce"].(string); subtle.ConstantTimeCompare([]byte(nonce), []byte(l.Nonce)) != 1 {
		return nil, no(errors.New("the ID token is of another login"))
	}
	if by, said := claims["azp"]; said && by != p.issuer.ClientID {
		return nil, no(errors.New("the ID token was made for another client"))
	}
	return claims, p.complete(ctx, d, token, claims)
}

// complete adds the claims that the provider tells at its userinfo endpoint alone.
func (p *provider) complete(ctx context.Context, d *description, token *oauth2.Token, claims map[string]any) error {
	if claim(claims, p.issuer.userClaim()) != nil && claim(claims, p.issuer.groupsClaim()) != nil || d.provider.UserInfoEndpoint() == "" {
		return nil
	}
	info, err := d.provider.UserInfo(p.context(ctx), oauth2.StaticTokenSource(token))
	if err != nil {
		return p.away(fmt.Errorf("ask for the user: %w", err))
	}
	if info.Subject != claims["sub"] {
		return refused("the provider told of another user than the one who logged in")
	}
	var more map[string]any
	if err := info.Claims(&more); err != nil {
		return p.away(fmt.Errorf("ask for the user: %w", err))
	}
	for k, v := range more {
		if _, said := claims[k]; !said {
			claims[k] = v
		}
	}
	return nil
}

// returnTo is the place of this server that a browser comes back to. One of another server is refused.
func returnTo(text string) (string, error) {
	if text == "" {
		return "/", nil
	}
	u, err := url.Parse(text)
	bad := err != nil || len(text) > maxReturn || u.Scheme != "" || u.Host != "" || u.User != nil ||
		!strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") || strings.ContainsAny(text, "\\") ||
		strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f })
	if bad {
		return "", errs.New(errs.InvalidArgument, "RETURN_INVALID", "return_to is no path of this server of at most %d bytes", maxReturn).
			Hint("write it as /runs/RUN, without a host")
	}
	return text, nil
}

// only is a query that has no other parameters than these, each once.
func only(r *http.Request, names ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, "INVALID_QUERY", "the query cannot be read: %v", err)
	}
	for name, values := range q {
		if !slices.Contains(names, name) || len(values) != 1 {
			return nil, errs.New(errs.InvalidArgument, "INVALID_QUERY", "the parameter %.80q is not known, or given twice", name).Hint("there are " + strings.Join(names, ", "))
		}
	}
	return q, nil
}

func clip(s string, most int) string { return s[:min(len(s), most)] }

func redirect(w http.ResponseWriter, to string) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}
