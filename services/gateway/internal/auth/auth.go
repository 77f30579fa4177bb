// Package auth owns who a REST request comes from: it turns an API key into the namespace that the
// key is bound to, a token or a session into a user, and decides when a request without any is let in.
// It must not know routes or what the caller wants to do.
package auth

import (
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/services/gateway/internal/oidc"
)

// Identity is who a request comes from.
type Identity struct {
	Principal grpckit.Principal
	// Namespace is the tenant in which everything the request does happens.
	Namespace string
	// Namespaces are all in which a user has roles.
	Namespaces []string
	// Cookie is to be set in the answer: the session of a browser, renewed or forgotten. It is there
	// beside an error, too.
	Cookie *http.Cookie
}

// Keyring knows the keys. It is immutable and safe for concurrent use.
type Keyring struct {
	keys      *grpckit.Authenticator // nil when there are none
	users     *oidc.Users            // nil when there are none
	anonymous bool
	origins   *http.CrossOriginProtection
}

// New makes a keyring. If anonymous, requests without a key are let in; this is meant for servers
// that listen on loopback, and such requests must name a loopback host and not come from a page of
// another origin, but for the trusted ones, so that no web site can drive the server through a browser.
// resolve knows the keys that are not in the configuration, and users those who log in; nil knows none.
func New(keys []grpckit.APIKey, resolve grpckit.Resolver, users *oidc.Users, anonymous bool, trusted ...string) (*Keyring, error) {
	k := &Keyring{users: users, anonymous: anonymous, origins: http.NewCrossOriginProtection()}
	for _, origin := range trusted {
		if err := k.origins.AddTrustedOrigin(origin); err != nil {
			return nil, errs.New(errs.InvalidArgument, "ORIGIN_INVALID", "%q is no origin: %v", origin, err).
				Hint("write it as https://host or https://host:port")
		}
	}
	if len(keys) == 0 && resolve == nil {
		return k, nil
	}
	var err error
	k.keys, err = grpckit.NewAuthenticator(grpckit.AuthConfig{Keys: keys, Resolve: resolve, Guarded: true})
	return k, err
}

// Authenticate reads Authorization: Bearer or X-Api-Key, which have a key or the token of an
// issuer, else the session of a browser. A wrong one is refused even where none is needed.
// X-Epigraph-Namespace may repeat a key's namespace, or choose one of a user's, or one where no key
// is needed.
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
		if text := k.users.Cookie(r); text != "" {
			user, cookie, err := k.users.Session(r, text)
			return in(user, namespace, cookie, err)
		}
		return k.nobody(r, namespace)
	}
	if k.users.Token(given) {
		user, err := k.users.Authenticate(r.Context(), given)
		return in(user, namespace, nil, err)
	}
	if k.keys == nil {
		return Identity{}, errs.New(errs.Unauthenticated, "CREDENTIALS_INVALID", "the API key is not known").
			Hint("this server has no keys; leave the key out")
	}
	who, namespace, err := k.keys.Authenticate(r.Context(), "Bearer "+given, namespace)
	return Identity{Principal: who, Namespace: namespace}, err
}

// in is who a user is in a namespace.
func in(user oidc.User, namespace string, cookie *http.Cookie, err error) (Identity, error) {
	id := Identity{Cookie: cookie}
	if err == nil {
		id.Principal, id.Namespace, err = user.In(namespace)
	}
	for _, r := range user.Rooms {
		id.Namespaces = append(id.Namespaces, r.Namespace)
	}
	return id, err
}

// KeyProtocol is what a WebSocket client that can set no headers, such as a browser, puts before
// its API key among the subprotocols that it offers: the key follows as base64url without padding.
const KeyProtocol = "epigraph.key."

// AuthenticateSocket is Authenticate for the handshake of a WebSocket. The key may also be among
// the offered subprotocols. It is never taken from the address, since addresses are written to
// logs. Browsers let a page of any origin make a WebSocket, so the origin must be that of the
// server, or a trusted one; everywhere lets all of them in that have a key.
func (k *Keyring) AuthenticateSocket(r *http.Request, everywhere bool) (Identity, error) {
	if r.URL.RawQuery != "" {
		return Identity{}, errs.New(errs.InvalidArgument, "INVALID_QUERY", "a WebSocket takes nothing in its query").
			Hint("send the key as Authorization: Bearer KEY, or offer the subprotocol " + KeyProtocol + "KEY with the key in base64url")
	}
	r = r.Clone(r.Context())
	r.Method = http.MethodPost // a handshake is no safe request, though it is a GET
	key, given, err := offered(r)
	if err != nil {
		return Identity{}, err
	}
	if given {
		if r.Header.Get("Authorization") != "" || r.Header.Get("X-Api-Key") != "" {
			return Identity{}, errs.New(errs.Unauthenticated, "CREDENTIALS_AMBIGUOUS", "there is a key in a header and one in a subprotocol").Hint("send one of them")
		}
		r.Header.Set("X-Api-Key", key)
	}
	who, err := k.Authenticate(r)
	if err != nil {
		return who, err
	}
	if err := k.origins.Check(r); err != nil && !everywhere {
		return Identity{}, errs.New(errs.PermissionDenied, "CROSS_ORIGIN", "a page of this origin may not connect").
			Hint("name the origin in gateway.cors_origins").With(err)
	}
	return who, nil
}

// offered is the key among the offered subprotocols.
func offered(r *http.Request) (key string, given bool, err error) {
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(line, ",") {
			text, ok := strings.CutPrefix(strings.TrimSpace(name), KeyProtocol)
			if !ok {
				continue
			}
			b, err := base64.RawURLEncoding.DecodeString(text)
			if err != nil || given || len(b) == 0 {
				return "", false, errs.New(errs.Unauthenticated, "CREDENTIALS_UNREADABLE", "the subprotocol %sKEY has no key in base64url, or is given twice", KeyProtocol).
					Hint("encode the key as base64url without padding")
			}
			key, given = string(b), true
		}
	}
	return key, given, nil
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
