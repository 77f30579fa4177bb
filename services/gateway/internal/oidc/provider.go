package oidc

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// ReasonAway refuses what needs the provider when it does not answer.
const ReasonAway = "ISSUER_UNAVAILABLE"

// Bounds of what is asked of a provider and kept of it.
const (
	// keysFresh is how long keys are used before they are fetched again, beside the requests, and so
	// about how long a key that the provider withdrew still holds.
	keysFresh = 10 * time.Minute
	// keysStale is how long they are used while the provider does not answer.
	keysStale = time.Hour
	// described is how long the description of a provider is used.
	described = time.Hour
	// pause lies between two fetches of keys: whoever shows tokens of unknown keys causes one a second.
	pause = time.Second
	// patience is how long one request to a provider may take.
	patience = 5 * time.Second
	// maxAnswer bounds an answer of a provider, in bytes, and maxKeys the keys of one.
	maxAnswer, maxKeys = 256 << 10, 64
	// An RSA key of fewer bits is weak, and one of more costs too much.
	minRSA, maxRSA = 2048, 8192
)

// algorithms are those with which a token may be signed. None of them has a secret that both sides
// know, so that what a provider publishes signs nothing.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
		jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
	}
}

// provider asks an OpenID provider, seldom, and keeps what it said. It is safe for concurrent use.
type provider struct {
	issuer  Issuer
	client  *http.Client
	flights singleflight.Group

	mu     sync.Mutex
	said   *description
	keys   []jose.JSONWebKey
	got    time.Time // when the keys came
	tried  time.Time // when they were asked for
	failed error     // what came of that
}

// description is what a provider says of itself.
type description struct {
	at       time.Time
	provider *gooidc.Provider
	JWKS     string   `json:"jwks_uri"`
	Methods  []string `json:"token_endpoint_auth_methods_supported"`
}

func newProvider(i Issuer) *provider {
	p := &provider{issuer: i}
	p.client = &http.Client{
		Timeout:   patience,
		Transport: bounded{http.DefaultTransport, i.URL},
		// A provider is configured, and does not send elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return p
}

// bounded asks by https alone, unless the issuer is on this machine, and ends answers that are too
// long.
type bounded struct {
	http.RoundTripper

	issuer string
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := secure(b.issuer, r.URL.String()); err != nil {
		return nil, err
	}
	res, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(io.LimitReader(res.Body, maxAnswer), tooLong{res.Body}), res.Body}
	}
	return res, err
}

// tooLong fails if anything is left to read.
type tooLong struct{ rest io.Reader }

func (t tooLong) Read([]byte) (int, error) {
	if n, err := io.ReadFull(t.rest, make([]byte, 1)); n == 0 {
		return 0, err
	}
	return 0, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
}

func (p *provider) away(err error) error {
	if e, ok := errors.AsType[*errs.Error](err); ok {
		return e
	}
	return errs.New(errs.Unavailable, ReasonAway, "the OpenID provider %s does not answer as one", p.issuer.URL).
		Hint("nothing was done; try again when it is back, or use an API key").Set(errs.MetaNothingDone, "true").With(err)
}

// context has requests made by the client of the provider.
func (p *provider) context(ctx context.Context) context.Context {
	return gooidc.ClientContext(ctx, p.client)
}

// describe returns what the provider says of itself, once an hour from the provider.
func (p *provider) describe(ctx context.Context) (*description, error) {
	p.mu.Lock()
	said := p.said
	p.mu.Unlock()
	if said != nil && time.Since(said.at) < described {
		return said, nil
	}
	v, err := p.once(ctx, "description", func(ctx context.Context) (any, error) {
		provider, err := gooidc.NewProvider(p.context(ctx), p.issuer.URL)
		if err != nil {
			return nil, fmt.Errorf("describe: %w", err)
		}
		d := &description{at: time.Now(), provider: provider}
		if err := provider.Claims(d); err != nil {
			return nil, fmt.Errorf("describe: %w", err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.said = d
		return d, nil
	})
	if d, ok := v.(*description); ok && err == nil {
		return d, nil
	}
	if said != nil {
		return said, nil // addresses change seldom
	}
	return nil, p.away(err)
}

// once does something for all who want it at the same time. It outlives the call that began it.
func (p *provider) once(ctx context.Context, what string, do func(context.Context) (any, error)) (any, error) {
	done := p.flights.DoChan(what, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		return do(ctx)
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case res := <-done:
		return res.Val, res.Err
	}
}

// VerifySignature returns what is signed, if a key of the provider made the signature.
func (p *provider) VerifySignature(ctx context.Context, raw string) ([]byte, error) {
	token, err := jose.ParseSigned(raw, algorithms())
	if err != nil {
		return nil, fmt.Errorf("read the signature: %w", err)
	}
	if len(token.Signatures) != 1 {
		return nil, fmt.Errorf("the token has %d signatures", len(token.Signatures))
	}
	header := token.Signatures[0].Protected
	keys, err := p.keysOf(ctx, header.KeyID)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if (header.KeyID == "" || k.KeyID == header.KeyID) && (k.Algorithm == "" || k.Algorithm == header.Algorithm) {
			if payload, err := token.Verify(&k); err == nil {
				return payload, nil
			}
		}
	}
	return nil, errors.New("no key of the issuer has made the signature")
}

// keysOf returns the keys of the provider. They are fetched if there are none, or not the one that is
// asked for, and beside the request if they are old.
func (p *provider) keysOf(ctx context.Context, id string) ([]jose.JSONWebKey, error) {
	p.mu.Lock()
	keys, age, tried, failed := p.keys, time.Since(p.got), time.Since(p.tried), p.failed
	p.mu.Unlock()
	usable := len(keys) > 0 && age < keysStale
	known := usable && (id == "" || slices.ContainsFunc(keys, func(k jose.JSONWebKey) bool { return k.KeyID == id }))
	switch {
	case known && age < keysFresh:
		return keys, nil
	case tried < pause && usable:
		return keys, nil
	case tried < pause && failed != nil:
		return nil, p.away(failed)
	case known:
		p.flights.DoChan("keys", func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			defer cancel()
			return p.fetch(ctx)
		})
		return keys, nil
	}
	v, err := p.once(ctx, "keys", func(ctx context.Context) (any, error) { return p.fetch(ctx) })
	if got, ok := v.([]jose.JSONWebKey); ok && err == nil {
		return got, nil
	}
	if usable {
		return keys, nil
	}
	return nil, p.away(err)
}

// fetch asks the provider for its keys.
func (p *provider) fetch(ctx context.Context) (keys []jose.JSONWebKey, err error) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tried, p.failed = time.Now(), err
		if err == nil {
			p.keys, p.got = keys, p.tried
		}
	}()
	d, err := p.describe(ctx)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.JWKS, nil)
	if err != nil {
		return nil, fmt.Errorf("fetch keys: %w", err)
	}
	res, err := p.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetch keys: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("fetch keys: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("fetch keys: %s", res.Status)
	}
	if keys, err = readKeys(body); err == nil && len(keys) == 0 {
		err = errors.New("the provider has no keys that can be used")
	}
	return keys, err
}

// readKeys reads the public keys of a set. Keys of kinds that are not known are left out.
func readKeys(body []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("the provider has %d keys, and %d at most are read", len(set.Keys), maxKeys)
	}
	var out []jose.JSONWebKey
	for _, raw := range set.Keys {
		var k jose.JSONWebKey
		if err := json.Unmarshal(raw, &k); err != nil || !k.IsPublic() || !k.Valid() || k.Use != "" && k.Use != "sig" {
			continue
		}
		if r, ok := k.Key.(*rsa.PublicKey); ok && (r.N.BitLen() < minRSA || r.N.BitLen() > maxRSA) {
			continue
		}
		out = append(out, k)
	}
	return out, nil
}

// exchange is how the gateway presents itself at the provider.
func (p *provider) exchange(d *description, redirect string) oauth2.Config {
	endpoint := d.provider.Endpoint()
	endpoint.AuthStyle = oauth2.AuthStyleInParams
	if !p.issuer.ClientSecret.IsZero() && (len(d.Methods) == 0 || slices.Contains(d.Methods, "client_secret_basic")) {
		endpoint.AuthStyle = oauth2.AuthStyleInHeader
	}
	scopes := p.issuer.Scopes
	if len(scopes) == 0 {
		scopes = []string{"email", "profile"}
	}
	if !slices.Contains(scopes, gooidc.ScopeOpenID) {
		scopes = append([]string{gooidc.ScopeOpenID}, scopes...)
	}
	return oauth2.Config{ClientID: p.issuer.ClientID, ClientSecret: p.issuer.ClientSecret.Reveal(), Endpoint: endpoint, RedirectURL: redirect, Scopes: scopes}
}
