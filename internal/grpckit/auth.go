package grpckit

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/epigraph-run/epigraph/internal/conf"
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
)

// APIKey is a secret that opens one namespace.
type APIKey struct {
	// Name says in logs whose key it is.
	Name      string
	Namespace string
	Secret    conf.Secret
}

// AuthConfig says who may call. With neither keys nor a service token the server is open to everyone,
// which fits a loopback address only.
type AuthConfig struct {
	Keys []APIKey `help:"API keys: name, namespace, secret"`
	// ServiceToken is shared by the services of one installation and may name any namespace.
	ServiceToken conf.Secret `help:"token that the services of one installation share"`
	// Anonymous lets calls in that show no credential, as in an open server; one that is shown is checked all the same.
	Anonymous bool `conf:"-"`
}

// Open reports whether everyone is let in.
func (c AuthConfig) Open() bool { return len(c.Keys) == 0 && c.ServiceToken.IsZero() }

// Validate reports every key that cannot be used.
func (c AuthConfig) Validate() error {
	var faults []error
	seen := map[[sha256.Size]byte]string{c.ServiceToken.Hash(): "the service token"}
	for i, k := range c.Keys {
		name := fmt.Sprintf("keys[%d] (%s)", i, k.Name)
		if k.Secret.IsZero() {
			faults = append(faults, fmt.Errorf("%s has no secret", name))
		} else if other, ok := seen[k.Secret.Hash()]; ok {
			faults = append(faults, fmt.Errorf("%s has the same secret as %s", name, other))
		}
		seen[k.Secret.Hash()] = name
		if !ValidNamespace(k.Namespace) {
			faults = append(faults, fmt.Errorf("%s: namespace %q is not valid", name, k.Namespace))
		}
	}
	return errors.Join(faults...)
}

// Principal is who calls.
type Principal struct {
	// Kind is "open", "key" or "service".
	Kind string
	// Name is the API key's name, else empty.
	Name string
}

var namespaceRule = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// ValidNamespace reports whether s can name a namespace.
func ValidNamespace(s string) bool { return namespaceRule.MatchString(s) }

// Authenticator checks credentials, for gRPC metadata and HTTP headers alike. It keeps hashes of the
// secrets only and is safe for concurrent use.
type Authenticator struct {
	open      bool
	anonymous bool
	service   *[sha256.Size]byte
	keys      []hashedKey
}

type hashedKey struct {
	name      string
	namespace string
	hash      [sha256.Size]byte
}

// NewAuthenticator returns an authenticator for a valid configuration.
func NewAuthenticator(cfg AuthConfig) (*Authenticator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, errs.New(errs.InvalidArgument, "AUTH_CONFIG_INVALID", "authentication: %v", err)
	}
	a := &Authenticator{open: cfg.Open(), anonymous: cfg.Anonymous}
	if !cfg.ServiceToken.IsZero() {
		h := cfg.ServiceToken.Hash()
		a.service = &h
	}
	for _, k := range cfg.Keys {
		a.keys = append(a.keys, hashedKey{name: k.Name, namespace: k.Namespace, hash: k.Secret.Hash()})
	}
	return a, nil
}

// Authenticate checks the values of the two headers, either of which may be empty, and returns who
// calls and for which namespace. Errors are Unauthenticated, PermissionDenied or InvalidArgument.
func (a *Authenticator) Authenticate(authorization, namespace string) (Principal, string, error) {
	if namespace != "" && !ValidNamespace(namespace) {
		return Principal{}, "", errs.New(errs.InvalidArgument, "NAMESPACE_INVALID", "namespace %.80q is not valid", namespace).
			Hint("lower-case letters, digits and dashes, at most 63")
	}
	if a.open || a.anonymous && authorization == "" {
		return Principal{Kind: "open"}, orDefault(namespace), nil
	}
	token, ok := bearer(authorization)
	if !ok {
		return Principal{}, "", errs.New(errs.Unauthenticated, "CREDENTIALS_MISSING", "no API key was given").
			Hint("send the header Authorization: Bearer <API key>")
	}
	hash := sha256.Sum256([]byte(token))
	if a.service != nil && subtle.ConstantTimeCompare(hash[:], a.service[:]) == 1 {
		return Principal{Kind: "service"}, orDefault(namespace), nil
	}
	// All keys are compared, so that the time tells nothing about which one is near.
	var found *hashedKey
	for i := range a.keys {
		if subtle.ConstantTimeCompare(hash[:], a.keys[i].hash[:]) == 1 {
			found = &a.keys[i]
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
	return Principal{Kind: "key", Name: found.name}, found.namespace, nil
}

func (a *Authenticator) incoming(ctx context.Context) (context.Context, error) {
	auth, ns := metadata.ValueFromIncomingContext(ctx, HeaderAuthorization), metadata.ValueFromIncomingContext(ctx, HeaderNamespace)
	if len(auth) > 1 || len(ns) > 1 {
		return ctx, errs.New(errs.InvalidArgument, "HEADER_REPEATED", "%s and %s may be given once", HeaderAuthorization, HeaderNamespace)
	}
	who, name, err := a.Authenticate(strings.Join(auth, ""), strings.Join(ns, ""))
	if err != nil {
		return ctx, err
	}
	return WithPrincipal(WithNamespace(ctx, name), who), nil
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
