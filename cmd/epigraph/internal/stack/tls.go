package stack

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"os"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// server is the TLS configuration of a server; nil means plain text.
func (t TLS) server() (*tls.Config, error) {
	if t.CertFile == "" {
		return nil, nil
	}
	own := certificate{TLS: t}
	if _, err := own.pair(); err != nil {
		return nil, err
	}
	cfg := &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own.pair() },
	}
	if t.CAFile != "" {
		pool, err := t.authorities()
		if err != nil {
			return nil, err
		}
		cfg.ClientCAs, cfg.ClientAuth = pool, tls.RequireAndVerifyClientCert
		if t.ClientCerts == clientCertsOptional {
			cfg.ClientAuth = tls.VerifyClientCertIfGiven
		}
	}
	return cfg, nil
}

// client is the TLS configuration of a connection; nil means plain text.
func (t TLS) client() (*tls.Config, error) {
	if t.CAFile == "" {
		return nil, nil
	}
	pool, err := t.authorities()
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: t.ServerName}
	if t.CertFile != "" {
		own := certificate{TLS: t}
		if _, err := own.pair(); err != nil {
			return nil, err
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own.pair() }
	}
	return cfg, nil
}

// certificate is a pair of files as it was read last. It is safe for concurrent use.
type certificate struct {
	TLS

	mu    sync.Mutex
	state [2]fileState
	last  *tls.Certificate
}

// fileState detects changes of a file.
type fileState struct {
	modified time.Time
	size     int64
}

// pair checks the files at every handshake, so that a renewed certificate needs no restart. While they cannot
// be read, as between the writing of the one and the other, the previous pair stays.
func (c *certificate) pair() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var now [2]fileState
	for i, name := range []string{c.CertFile, c.KeyFile} {
		if info, err := os.Stat(name); err == nil {
			now[i] = fileState{info.ModTime(), info.Size()}
		}
	}
	if c.last != nil && now == c.state {
		return c.last, nil
	}
	p, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err == nil {
		c.last, c.state = &p, now
	}
	if c.last != nil {
		return c.last, nil
	}
	of := cmp.Or(c.of, "grpc.tls")
	return nil, errs.New(errs.InvalidArgument, "TLS_CERTIFICATE_UNREADABLE", "the certificate cannot be used: %v", err).
		Hint("check " + of + ".cert_file and " + of + ".key_file").With(err)
}

// gatewayTLS is the TLS configuration of the gateway's address; nil means plain text.
func (c Config) gatewayTLS() (*tls.Config, error) {
	return TLS{CertFile: c.Gateway.TLS.CertFile, KeyFile: c.Gateway.TLS.KeyFile, of: "gateway.tls"}.server()
}

func (t TLS) authorities() (*x509.CertPool, error) {
	text, err := os.ReadFile(t.CAFile)
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(text) {
		return nil, errs.New(errs.InvalidArgument, "TLS_AUTHORITY_UNREADABLE", "no certificate can be read from %s", t.CAFile).
			Hint("check grpc.tls.ca_file").With(err)
	}
	return pool, nil
}
