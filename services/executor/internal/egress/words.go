package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"syscall"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// maxWords bounds what Words takes over from the other side, in bytes.
const maxWords = 300

// Words says why a request got no answer, to whoever asked for it. Errors of the network name addresses of
// ours (the resolver's, this process's own, and the one that a name stands for inside), so none of their text
// is taken over.
func Words(err error) string {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err // the address is in the arguments, with its secrets
	}
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Error()
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		switch {
		case dns.IsNotFound:
			return "there is no host of that name"
		case dns.IsTimeout:
			return "the name of the host could not be looked up in time"
		}
		return "the name of the host could not be looked up"
	}
	if cert, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the certificate of the host cannot be trusted: " + certificateWords(cert.Err)
	}
	op, onWire := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the host refused the connection"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "the host cannot be reached"
	case onWire && op.Op == "dial" && op.Timeout():
		return "the host took no connection in time"
	case errors.Is(err, context.DeadlineExceeded), timeout(err):
		return "no answer came in time"
	case errors.Is(err, context.Canceled):
		return "the request was canceled"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the connection broke before the answer was whole"
	case onWire && op.Op == "dial":
		return "no connection could be made"
	case onWire && (op.Op == "remote error" || op.Op == "local error"): // of TLS: its alerts name nobody
		return errs.Clip(op.Err.Error(), maxWords)
	case onWire:
		return "the connection broke"
	}
	return errs.Clip(err.Error(), maxWords)
}

// certificateWords describes the fault of a certificate, which is as public as the certificate.
func certificateWords(err error) string {
	if name, ok := errors.AsType[x509.HostnameError](err); ok {
		return "it is not that of " + name.Host
	}
	return errs.Clip(err.Error(), maxWords)
}

func timeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}
