package grpckit

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/grpc/metadata"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/apikey"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/conns"
	"github.com/epigraph-run/epigraph/internal/errs"
)

const (
	// DefaultNamespace is where calls go that name none.
	DefaultNamespace = "default"
	// HeaderAuthorization carries "Bearer <API key or service token>".
	HeaderAuthorization = "authorization"
	// HeaderNamespace names the namespace; with an API key it may only repeat the key's own.
	HeaderNamespace = "x-epigraph-namespace"
	// HeaderRequestID names the request in logs of every service it passes.
	HeaderRequestID = "x-request-id"
	// HeaderPrincipal names the principal for whom a service calls, as access.Principal.Encode writes it. It
	// is read with the service token only.
	HeaderPrincipal = "x-epigraph-principal"
	// HeaderRun names the run within which a service calls. What others say of it is not heard.
	HeaderRun = "x-epigraph-run"
	// HeaderMaker names the maker for whom a service calls, as access.Maker.Encode writes it. What
	// others say of it is not heard.
	HeaderMaker = "x-epigraph-maker"
)

// APIKey is a secret that opens one namespace.
type APIKey struct {
	// Name identifies the holder of the key, in logs and in the records of what was done with it. Keys that
	// replace each other may share it.
	Name      string
	Namespace string
	Secret    conf.Secret
	// Role and Scopes are what it may do: a set of scopes by its name, or the scopes themselves, not
	// both. Without either it has access.DefaultScopes.
	Role   access.Role
	Scopes []access.Scope
}

// scopes are those that the key has.
func (k APIKey) scopes() []access.Scope {
	if k.Role != "" {
		return k.Role.Scopes()
	}
	if len(k.Scopes) == 0 {
		return access.DefaultScopes()
	}
	return k.Scopes
}

// AuthConfig says who may call. With neither keys nor a service token the server is open to everyone, which
// is acceptable on a loopback address only.
type AuthConfig struct {
	Keys []APIKey `help:"API keys: name, namespace, secret, and a role (viewer, operator, approver, admin) or scopes (read, run, worker, approve, admin); run if none is named"`
	// ServiceToken is shared by the services of one installation and may name any namespace.
	ServiceToken conf.Secret `help:"token that the services of one installation share"`
	// OldServiceTokens are accepted, too, but not shown, while the service token is replaced.
	OldServiceTokens []conf.Secret `help:"earlier service tokens that are still accepted during a replacement"`
	// Resolve finds keys that are not in the configuration; nil finds none.
	Resolve Resolver `conf:"-"`
	// Guarded refuses calls without a credential where there are neither keys nor a service token.
	Guarded bool `conf:"-"`
	// Anonymous admits calls without a credential, as an open server does; a credential that is sent is still
	// checked.
	Anonymous bool `conf:"-"`
}

// Resolver knows the keys that were made by the API. It is safe for concurrent use.
type Resolver interface {
	// Authenticate returns who shows a secret; found is false if it opens nothing.
	Authenticate(ctx context.Context, t apikey.Token) (who Principal, found bool, err error)
}

// Open reports whether everyone is let in.
func (c AuthConfig) Open() bool { return len(c.Keys) == 0 && c.ServiceToken.IsZero() && !c.Guarded }

// Validate reports every key that cannot be used.
func (c AuthConfig) Validate() error {
	var faults []error
	seen := map[[sha256.Size]byte]string{}
	if !c.ServiceToken.IsZero() {
		seen[c.ServiceToken.Hash()] = "the service token"
	}
	for i, old := range c.OldServiceTokens {
		switch {
		case old.IsZero():
			faults = append(faults, fmt.Errorf("old_service_tokens[%d] is empty", i))
		case c.ServiceToken.IsZero():
			faults = append(faults, errors.New("old_service_tokens need a service_token"))
		}
		seen[old.Hash()] = "an old service token"
	}
	for i, k := range c.Keys {
		name := fmt.Sprintf("keys[%d] (%s)", i, k.Name)
		if k.Secret.IsZero() {
			faults = append(faults, fmt.Errorf("%s has no secret", name))
		} else if other, ok := seen[k.Secret.Hash()]; ok {
			faults = append(faults, fmt.Errorf("%s has the same secret as %s", name, other))
		}
		seen[k.Secret.Hash()] = name
		if k.Name == "" || len(k.Name) > maxKeyName || strings.ContainsFunc(k.Name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			faults = append(faults, fmt.Errorf("keys[%d]: give it a name of 1 to %d printable characters: what is done with it is recorded under that", i, maxKeyName))
		}
		if k.Role != "" && len(k.Scopes) > 0 {
			faults = append(faults, fmt.Errorf("%s has a role and scopes: a role is a set of scopes, so give one of them", name))
		}
		if k.Role != "" && len(k.Role.Scopes()) == 0 {
			faults = append(faults, fmt.Errorf("%s: there is no role %q: viewer, operator, approver or admin", name, k.Role))
		}
		for _, scope := range k.Scopes {
			if !slices.Contains(access.Scopes(), scope) {
				faults = append(faults, fmt.Errorf("%s: there is no scope %q: read, run, worker, approve or admin", name, scope))
			}
		}
		if !ValidNamespace(k.Namespace) {
			faults = append(faults, fmt.Errorf("%s: namespace %q is not valid", name, k.Namespace))
		}
	}
	return errors.Join(faults...)
}

// maxKeyName bounds the name of a key in bytes.
const maxKeyName = 64

// Principal is who calls.
type Principal = access.Principal

var namespaceRule = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// ValidNamespace reports whether s can name a namespace.
func ValidNamespace(s string) bool { return namespaceRule.MatchString(s) }

// Authenticator checks credentials, for gRPC metadata and HTTP headers alike. It keeps hashes of the
// secrets only and is safe for concurrent use.
type Authenticator struct {
	open      bool
	anonymous bool
	services  [][sha256.Size]byte
	keys      []hashedKey
	resolve   Resolver
}

type hashedKey struct {
	principal Principal
	namespace string
	hash      [sha256.Size]byte
}

// NewAuthenticator returns an authenticator for a valid configuration.
func NewAuthenticator(cfg AuthConfig) (*Authenticator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, errs.New(errs.InvalidArgument, "AUTH_CONFIG_INVALID", "authentication: %v", err)
	}
	a := &Authenticator{open: cfg.Open(), anonymous: cfg.Anonymous, resolve: cfg.Resolve}
	if !cfg.ServiceToken.IsZero() {
		a.services = append(a.services, cfg.ServiceToken.Hash())
	}
	for _, old := range cfg.OldServiceTokens {
		a.services = append(a.services, old.Hash())
	}
	for _, k := range cfg.Keys {
		a.keys = append(a.keys, hashedKey{
			principal: Principal{Kind: access.Key, Name: k.Name, Scopes: slices.Clone(k.scopes())}, namespace: k.Namespace, hash: k.Secret.Hash(),
		})
	}
	return a, nil
}

// Authenticate checks the values of the two headers, either of which may be empty, and returns the caller and
// its namespace. Errors are Unauthenticated, PermissionDenied, InvalidArgument, or Unavailable if
// nobody can say now whether there is such a key.
func (a *Authenticator) Authenticate(ctx context.Context, authorization, namespace string) (Principal, string, error) {
	if namespace != "" && !ValidNamespace(namespace) {
		return Principal{}, "", errs.New(errs.InvalidArgument, "NAMESPACE_INVALID", "namespace %.80q is not valid", namespace).
			Hint("lower-case letters, digits and dashes, at most 63")
	}
	if a.open {
		return Principal{Kind: access.Open, Scopes: []access.Scope{access.Service}}, orDefault(namespace), nil
	}
	if a.anonymous && authorization == "" {
		return Principal{Kind: access.Open}, orDefault(namespace), nil
	}
	token, ok := bearer(authorization)
	if !ok {
		return Principal{}, "", errs.New(errs.Unauthenticated, "CREDENTIALS_MISSING", "no API key was given").
			Hint("send the header Authorization: Bearer <API key>")
	}
	hash := sha256.Sum256([]byte(token))
	if a.isService(hash) {
		return Principal{Kind: access.Internal}, orDefault(namespace), nil
	}
	// All keys are compared, so that the time reveals nothing about near matches.
	var found *hashedKey
	for i := range a.keys {
		if subtle.ConstantTimeCompare(hash[:], a.keys[i].hash[:]) == 1 {
			found = &a.keys[i]
		}
	}
	if found == nil {
		if t, ok := apikey.Parse(token); ok && a.resolve != nil && ValidNamespace(t.Namespace) {
			who, known, err := a.resolve.Authenticate(ctx, t)
			if err != nil {
				return Principal{}, "", err
			}
			if known {
				found = &hashedKey{principal: who, namespace: t.Namespace}
			}
		}
	}
	if found == nil {
		return Principal{}, "", errs.New(errs.Unauthenticated, "CREDENTIALS_INVALID", "the API key is not known").
			Hint("check that the key belongs to this installation and was not revoked")
	}
	if namespace != "" && namespace != found.namespace {
		return Principal{}, "", errs.New(errs.PermissionDenied, "NAMESPACE_DENIED", "this API key does not open namespace %q", namespace).
			Hint("leave out " + HeaderNamespace + ", or use a key of that namespace")
	}
	return found.principal, found.namespace, nil
}

// isService reports whether a hash is that of a service token.
func (a *Authenticator) isService(hash [sha256.Size]byte) bool {
	return slices.ContainsFunc(a.services, func(s [sha256.Size]byte) bool { return subtle.ConstantTimeCompare(hash[:], s[:]) == 1 })
}

// maxRunID bounds the id of a run in HeaderRun, in bytes.
const maxRunID = 64

// maxMaker bounds HeaderMaker, in bytes: the id of a run, and the name of a principal in which each
// byte may take three.
const maxMaker = 1 << 10

// incoming identifies the caller of a call and the principal it acts for, and checks whether that principal
// may make the call. The context of a call that it may not make says who it is, too.
func (a *Authenticator) incoming(ctx context.Context, method string) (context.Context, error) {
	auth, ns := metadata.ValueFromIncomingContext(ctx, HeaderAuthorization), metadata.ValueFromIncomingContext(ctx, HeaderNamespace)
	behalf := metadata.ValueFromIncomingContext(ctx, HeaderPrincipal)
	if len(auth) > 1 || len(ns) > 1 || len(behalf) > 1 {
		return ctx, errs.New(errs.InvalidArgument, "HEADER_REPEATED", "%s, %s and %s may be given once", HeaderAuthorization, HeaderNamespace, HeaderPrincipal)
	}
	ctx = access.WithOrigin(ctx, originOf(ctx, false))
	who, name, err := a.Authenticate(ctx, strings.Join(auth, ""), strings.Join(ns, ""))
	if err != nil {
		return ctx, err
	}
	if who.Kind == access.Internal {
		conns.Trust(ctx)
	} else if err := conns.Know(ctx, name); err != nil {
		return ctx, err
	}
	if run := metadata.ValueFromIncomingContext(ctx, HeaderRun); len(run) == 1 && len(run[0]) <= maxRunID && who.IsService() {
		ctx = access.WithRun(ctx, run[0])
	}
	if maker := metadata.ValueFromIncomingContext(ctx, HeaderMaker); len(maker) == 1 && len(maker[0]) <= maxMaker && who.IsService() {
		ctx = access.WithMaker(ctx, access.DecodeMaker(maker[0]))
	}
	if who.Kind == access.Internal {
		ctx = access.WithOrigin(ctx, originOf(ctx, true))
	}
	if len(behalf) > 0 {
		if who.Kind != access.Internal {
			return ctx, errs.New(errs.PermissionDenied, "PRINCIPAL_DENIED", "only services may say on whose behalf they call").
				Hint("leave out " + HeaderPrincipal)
		}
		if who, err = access.Decode(behalf[0]); err != nil {
			return ctx, err
		}
	}
	return WithPrincipal(WithNamespace(ctx, name), who), access.Authorize(who, method)
}

// greet handles a call that needs no credentials. A service sends its own anyway, so that its connection does
// not stay among the unauthenticated ones.
func (a *Authenticator) greet(ctx context.Context) {
	auth := metadata.ValueFromIncomingContext(ctx, HeaderAuthorization)
	if len(auth) != 1 {
		return
	}
	if token, ok := bearer(auth[0]); ok && a.isService(sha256.Sum256([]byte(token))) {
		conns.Trust(ctx)
	}
}

func bearer(header string) (token string, ok bool) {
	scheme, token, ok := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "bearer") && token != ""
}

func orDefault(namespace string) string {
	if namespace == "" {
		return DefaultNamespace
	}
	return namespace
}
