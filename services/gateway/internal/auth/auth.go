// Package auth owns who a REST request comes from: it turns an API key into the namespace that the
// key is bound to, and decides when a request without a key is let in. It must not know routes or
// what the caller wants to do.
package auth

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
)

// Identity is who a request comes from.
type Identity struct {
	Principal grpckit.Principal
	// Namespace is the tenant in which everything the request does happens.
	Namespace string
}

// Keyring knows the keys. It is immutable and safe for concurrent use.
type Keyring struct {
	keys      *grpckit.Authenticator // nil when there are none
	anonymous bool
	origins   *http.CrossOriginProtection
}

// New makes a keyring. If anonymous, requests without a key are let in; this is meant for servers
// that listen on loopback, and such requests must name a loopback host and not come from a page of
// another origin, but for the trusted ones, so that no web site can drive the server through a browser.
func New(keys []grpckit.APIKey, anonymous bool, trusted ...string) (*Keyring, error) {
	k := &Keyring{anonymous: anonymous, origins: http.NewCrossOriginProtection()}
	for _, origin := range trusted {
		if err := k.origins.AddTrustedOrigin(origin); err != nil {
			return nil, errs.New(errs.InvalidArgument, "ORIGIN_INVALID", "%q is no origin: %v", origin, err).
				Hint("write it as https://host or https://host:port")
		}
	}
	if len(keys) == 0 {
		return k, nil
	}
	var err error
	k.keys, err = grpckit.NewAuthenticator(grpckit.AuthConfig{Keys: keys})
	return k, err
}

// Authenticate reads Authorization: Bearer or X-Api-Key. A wrong key is refused even where none is
// needed. X-Epigraph-Namespace may repeat a key's namespace, or choose one where no key is needed.
func (k *Keyring) Authenticate(r *http.Request) (Identity, error) {
	for _, name := range []string{"Authorization", "X-Api-Key", grpckit.HeaderNamespace} {
		if len(r.Header.Values(name)) > 1 {
			// A proxy that checks another one of the values would admit somebody else.
			return Identity{}, errs.New(errs.InvalidArgument, "HEADER_REPEATED", "the header %s may be given once", name)
		}
	}
	given, err := credential(r)
	if err != nil {
		return Identity{}, err
	}
	namespace := r.Header.Get(grpckit.HeaderNamespace)
	if given == "" {
		return k.nobody(r, namespace)
	}
	if k.keys == nil {
		return Identity{}, errs.New(errs.Unauthenticated, "CREDENTIALS_INVALID", "the API key is not known").
			Hint("this server has no keys; leave the key out")
	}
	who, namespace, err := k.keys.Authenticate("Bearer "+given, namespace)
	return Identity{Principal: who, Namespace: namespace}, err
}

func credential(r *http.Request) (string, error) {
	header := r.Header.Get("Authorization")
	key := strings.TrimSpace(r.Header.Get("X-Api-Key"))
	if header == "" {
		return key, nil
	}
	scheme, token, _ := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", errs.New(errs.Unauthenticated, "CREDENTIALS_UNREADABLE", "the Authorization header is not of the form Bearer KEY").
			Hint("send Authorization: Bearer KEY, or X-Api-Key: KEY")
	}
	if key != "" && key != token {
		return "", errs.New(errs.Unauthenticated, "CREDENTIALS_AMBIGUOUS", "Authorization and X-Api-Key hold different keys").
			Hint("send one of them")
	}
	return token, nil
}

func (k *Keyring) nobody(r *http.Request, namespace string) (Identity, error) {
	if !k.anonymous {
		return Identity{}, errs.New(errs.Unauthenticated, "CREDENTIALS_MISSING", "this request needs an API key").
			Hint("send Authorization: Bearer KEY, or X-Api-Key: KEY")
	}
	if !loopbackHost(r.Host) {
		return Identity{}, errs.New(errs.PermissionDenied, "HOST_NOT_LOOPBACK", "without an API key this server answers only to loopback host names").
			Hint("call it as localhost or 127.0.0.1, or send an API key")
	}
	if err := k.origins.Check(r); err != nil {
		return Identity{}, errs.New(errs.PermissionDenied, "CROSS_ORIGIN", "without an API key no page of another origin may change anything here").
			Hint("send an API key").With(err)
	}
	if namespace == "" {
		namespace = grpckit.DefaultNamespace
	}
	if !grpckit.ValidNamespace(namespace) {
		return Identity{}, errs.New(errs.InvalidArgument, "NAMESPACE_INVALID", "namespace %.80q is not valid", namespace).
			Hint("lower-case letters, digits and dashes, at most 63")
	}
	return Identity{Principal: grpckit.Principal{Kind: access.Open}, Namespace: namespace}, nil
}

// loopbackHost reports whether a Host header names this machine. A page that had its own name
// resolved to 127.0.0.1 does not.
func loopbackHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return Loopback(host)
}

// Loopback reports whether host is localhost or a loopback address.
func Loopback(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
