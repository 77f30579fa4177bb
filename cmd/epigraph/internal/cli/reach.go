package cli

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// probeTime bounds the search for the fault of an address.
const probeTime = 5 * time.Second

// target checks how an address is written.
func target(flag, addr string) error {
	invalid := func(format string, args ...any) *errs.Error {
		return errs.New(errs.InvalidArgument, "ADDRESS_INVALID", flag+": "+format, args...)
	}
	if scheme, rest, ok := strings.Cut(addr, "://"); ok {
		if scheme == "http" || scheme == "https" {
			e := invalid("%q is the address of a web page", addr)
			host := strings.TrimRight(rest, "/")
			if scheme == "https" {
				return usage(e.Hint("give HOST:PORT of the gRPC API, and --tls: " + flag + " " + host + " --tls"))
			}
			return usage(e.Hint("give HOST:PORT of the gRPC API, which `epigraph dev` serves at " + DefaultAddr))
		}
		return nil // a way of gRPC to name servers
	}
	host, port, err := net.SplitHostPort(addr)
	here := host
	if here == "" {
		here = "127.0.0.1"
	}
	switch {
	case addr == "":
		return usage(invalid("the address is empty").Hint("leave the flag out, or write HOST:PORT: " + flag + " " + DefaultAddr))
	case err != nil && strings.Contains(err.Error(), "missing port"):
		return usage(invalid("%q has no port", addr).Hint("write HOST:PORT; `epigraph dev` serves gRPC on port 7400: " + flag + " " + strings.Trim(addr, "[]") + ":7400"))
	case err != nil:
		return usage(invalid("%q is no HOST:PORT", addr).Hint("an IPv6 address stands in brackets: [::1]:7400"))
	case port == "":
		return usage(invalid("%q has no port", addr).Hint("`epigraph dev` serves gRPC on port 7400: " + flag + " " + here + ":7400"))
	}
	if host == "" {
		return usage(invalid("%q names no host", addr).Hint("for this machine: " + flag + " 127.0.0.1:" + port))
	}
	if _, err := net.DefaultResolver.LookupPort(context.Background(), "tcp", port); err != nil {
		return usage(invalid("%q is no port", port).Hint("a number from 1 to 65535"))
	}
	return nil
}

// unreachable finds out why a gRPC server at addr cannot be talked to, and says what to do. lasting says that
// waiting does not help: nothing listens there, or something that is no server of ours.
func (c client) unreachable(ctx context.Context, addr string) (x *errs.Error, lasting bool) {
	fault := func(format string, args ...any) *errs.Error {
		return errs.New(errs.Unavailable, "SERVICE_UNAVAILABLE", format, args...)
	}
	nothing := fault("nothing answers at %s", addr).Hint("start a server with `epigraph dev`, or name one with --addr or EPIGRAPH_ADDR")
	if strings.Contains(addr, "://") {
		return nothing, false
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		host, _, _ := net.SplitHostPort(addr)
		if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
			return fault("there is no host %q", host).Hint("look at how --addr or EPIGRAPH_ADDR is written"), true
		}
		if timedOut(err) {
			return fault("%s does not answer in time", addr).Hint("a firewall may drop what is sent there; look at the address"), false
		}
		return nothing, errors.Is(err, syscall.ECONNREFUSED)
	}
	_ = conn.Close() // only whether it opens was to be seen
	if c.secure() {
		return c.secureFault(ctx, addr, fault)
	}
	switch speaks(ctx, addr) {
	case webServer:
		return webFault(ctx, addr), true
	case tlsServer:
		return fault("the server at %s speaks TLS", addr).Hint("add --tls, or set EPIGRAPH_TLS=true; --ca-file names the authority if it is your own"), true
	case other:
	}
	return fault("something else than a gRPC server answers at %s, or it breaks off", addr).
		Hint("look at the address; `epigraph dev` serves gRPC at " + DefaultAddr), false
}

// secureFault describes the fault of TLS to addr, where something listens.
func (c client) secureFault(ctx context.Context, addr string, fault func(string, ...any) *errs.Error) (x *errs.Error, lasting bool) {
	cfg, err := c.tlsConfig()
	if err != nil {
		return errs.From(err), true
	}
	cfg.NextProtos = []string{"h2"}
	conn, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", addr)
	if err == nil {
		_ = conn.Close() // only the handshake was needed
		return fault("the server at %s speaks TLS, and no gRPC, or it breaks off", addr).Hint("give the address of the gRPC API"), false
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		if c.CAFile != "" {
			return fault("the certificate of %s is not signed by an authority of %s", addr, c.CAFile).Hint("--ca-file must hold the certificate of the authority that signed the server's"), true
		}
		return fault("the certificate of %s is signed by an authority that this machine does not know", addr).Hint("name the authority's certificate with --ca-file"), true
	}
	if e, ok := errors.AsType[x509.HostnameError](err); ok {
		names := append([]string(nil), e.Certificate.DNSNames...)
		for _, ip := range e.Certificate.IPAddresses {
			names = append(names, ip.String())
		}
		return fault("the certificate of %s is for %s, not for %s", addr, list(names), e.Host).Hint("give --addr with a name that the certificate has"), true
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if e.Reason == x509.Expired {
			return fault("the certificate of %s is valid from %s to %s", addr, e.Cert.NotBefore.Format(time.DateTime), e.Cert.NotAfter.Format(time.DateTime)).
				Hint("renew it, or look at this machine's clock"), true
		}
		return fault("the certificate of %s is not valid: %v", addr, e), true
	}
	if e, ok := errors.AsType[tls.AlertError](err); ok {
		return fault("the server at %s refuses the TLS connection: %v", addr, e).Hint("it may ask for a client certificate, or take other versions of TLS only"), true
	}
	if timedOut(err) {
		return fault("the server at %s does not answer in time", addr).Hint("it may be busy, or speak no TLS: then leave --tls and --ca-file out"), false
	}
	if speaks(ctx, addr) == tlsServer {
		return fault("TLS with %s fails: %v", addr, err), true
	}
	return fault("the server at %s does not speak TLS", addr).Hint("leave --tls and --ca-file out, and EPIGRAPH_TLS and EPIGRAPH_CA_FILE unset"), true
}

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

func list(names []string) string {
	if len(names) == 0 {
		return "no name"
	}
	return strings.Join(names[:min(len(names), 5)], ", ")
}

type protocol int

const (
	other protocol = iota
	webServer
	tlsServer
)

// speaks finds out what a server speaks: it is asked a thing that each kind answers in its own way, and
// shakes hands.
func speaks(ctx context.Context, addr string) protocol {
	if conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", addr); err == nil { //nolint:gosec // nothing is sent over it
		_ = conn.Close()
		return tlsServer
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return other
	}
	defer func() { _ = conn.Close() }()
	if at, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(at) // without one it ends with the probe
	}
	host, _, _ := net.SplitHostPort(addr)
	if _, err := fmt.Fprintf(conn, "HEAD / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host); err != nil {
		return other
	}
	answer, err := io.ReadAll(io.LimitReader(bufio.NewReader(conn), 5))
	if (err == nil || len(answer) == 5) && string(answer) == "HTTP/" {
		return webServer
	}
	return other
}

// secure reports whether connections use TLS.
func (c client) secure() bool { return c.TLS || c.CAFile != "" }

// tlsConfig is that of the flags.
func (c client) tlsConfig() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, usage(errs.New(errs.InvalidArgument, "CA_FILE_INVALID", "--ca-file cannot be read: %v", err))
	}
	cfg.RootCAs = x509.NewCertPool()
	if !cfg.RootCAs.AppendCertsFromPEM(pem) {
		return nil, usage(errs.New(errs.InvalidArgument, "CA_FILE_INVALID", "--ca-file %s holds no certificate", c.CAFile).
			Hint("give the authority's certificate in PEM: -----BEGIN CERTIFICATE-----"))
	}
	return cfg, nil
}
