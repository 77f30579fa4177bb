package stack

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// server is the TLS configuration of a server; nil means plain text.
func (t TLS) server() (*tls.Config, error) {
	if t.CertFile == "" {
		return nil, nil
	}
	if _, err := t.pair(); err != nil {
		return nil, err
	}
	cfg := &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return t.pair() },
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
		if _, err := t.pair(); err != nil {
			return nil, err
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return t.pair() }
	}
	return cfg, nil
}

// pair reads the certificate at every handshake: they are rare, since connections last, and so a renewed one needs no restart.
func (t TLS) pair() (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, "TLS_CERTIFICATE_UNREADABLE", "the certificate cannot be used: %v", err).
			Hint("check grpc.tls.cert_file and grpc.tls.key_file").With(err)
	}
	return &c, nil
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
