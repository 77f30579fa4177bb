package cli

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// serveGRPC is the address of a gRPC server without services.
func serveGRPC(t *testing.T, o ...grpc.ServerOption) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer(o...)
	go func() { _ = s.Serve(lis) }()
	t.Cleanup(s.Stop)
	return lis.Addr().String()
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	secureWeb := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secureWeb.Close)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secureWeb.Certificate().Raw}), 0o600))
	plain := serveGRPC(t)
	secure := serveGRPC(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: secureWeb.TLS.Certificates, MinVersion: tls.VersionTLS12})))
	port := func(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }
	address := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	for _, c := range []struct {
		name, addr string
		client     client
		says, help string
	}{
		{"Nobody", "127.0.0.1:1", client{}, "nothing answers at 127.0.0.1:1", "epigraph dev"},
		{"Host", "no-such-host.invalid:7400", client{}, "", "--addr"},
		{"RESTInPlaceOfGRPC", address(web), client{}, "a web server answers", "7400"},
		{"TLSServer", secure, client{}, "speaks TLS", "--tls"},
		{"TLSWebServer", address(secureWeb), client{}, "speaks TLS", "--tls"},
		{"PlainServer", plain, client{TLS: true}, "does not speak TLS", "leave --tls"},
		{"PlainWebServer", address(web), client{TLS: true}, "does not speak TLS", "leave --tls"},
		{"UnknownAuthority", secure, client{TLS: true}, "an authority that this machine does not know", "--ca-file"},
		{"OtherAuthority", secure, client{CAFile: "another"}, "not signed by an authority of", "--ca-file"},
		{"OtherName", "localhost:" + port(secure), client{CAFile: authority}, "the certificate of localhost", "a name that the certificate has"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.client.CAFile != "" && c.client.CAFile != authority {
				c.client.CAFile = otherAuthority(t)
			}
			x, lasting := c.client.unreachable(t.Context(), c.addr)
			require.True(t, lasting || c.name == "Host", "there is nothing to wait for")
			require.Equal(t, "SERVICE_UNAVAILABLE", x.Reason)
			require.Contains(t, x.Message, c.says)
			require.Contains(t, x.HintText(), c.help)
		})
	}
	t.Run("CAFile/LetsCallsThrough", func(t *testing.T) {
		t.Parallel()
		conn, err := client{CAFile: authority, Addr: secure}.dial("")
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		err = conn.Invoke(t.Context(), "/none/Such", &emptypb.Empty{}, &emptypb.Empty{})
		require.ErrorContains(t, err, "unknown service", "the server itself answers")
	})
	t.Run("Silence/IsNoWordAboutTLS", func(t *testing.T) {
		t.Parallel()
		silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel opens its connections and nobody answers
		require.NoError(t, err)
		t.Cleanup(func() { _ = silent.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		x, lasting := client{TLS: true}.unreachable(ctx, silent.Addr().String())
		require.Contains(t, x.Message, "does not answer in time")
		require.False(t, lasting, "it may be busy")
	})
	t.Run("CAFile/MustHoldACertificate", func(t *testing.T) {
		t.Parallel()
		none := filepath.Join(t.TempDir(), "none.pem")
		require.NoError(t, os.WriteFile(none, []byte("nothing"), 0o600))
		_, err := client{CAFile: none}.tlsConfig()
		require.Equal(t, "CA_FILE_INVALID", errs.ReasonOf(err))
		_, err = client{CAFile: none + "x"}.tlsConfig()
		require.Equal(t, "CA_FILE_INVALID", errs.ReasonOf(err))
	})
}

func TestLookOut(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	for name, addr := range map[string]string{"Nobody": "127.0.0.1:1", "WebServer": web.Listener.Addr().String()} {
		t.Run("Lasting/"+name, func(t *testing.T) {
			t.Parallel()
			e := &env{ctx: t.Context(), json: true, client: client{Addr: addr, Timeout: time.Hour}}
			err := e.with(func(ctx context.Context, s *services) error {
				s.conns[0].Connect()
				<-ctx.Done() // as a call does that is tried again until its time is up
				return context.Cause(ctx)
			})
			require.Equal(t, "SERVICE_UNAVAILABLE", errs.ReasonOf(err))
		})
	}
	t.Run("Server/IsLeftAlone", func(t *testing.T) {
		t.Parallel()
		e := &env{ctx: t.Context(), json: true, client: client{Addr: serveGRPC(t), Timeout: time.Hour}}
		require.ErrorContains(t, e.with(func(ctx context.Context, s *services) error {
			return s.conns[0].Invoke(ctx, "/none/Such", &emptypb.Empty{}, &emptypb.Empty{})
		}), "unknown service")
		require.NoError(t, e.ctx.Err())
	})
}

// otherAuthority is the file of an authority that signed nothing here.
func otherAuthority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "another"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "other.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600))
	return file
}

func TestTarget(t *testing.T) {
	t.Parallel()
	for addr, says := range map[string]string{
		"localhost": "has no port", "127.0.0.1": "has no port", "host:": "has no port", "http://host:8080": "the address of a web page", "https://host": "--tls",
		"::1": "no HOST:PORT", "": "127.0.0.1:7400", ":": "--addr 127.0.0.1:7400", ":7400": "--addr 127.0.0.1:7400", "host:port": "is no port", "host:99999": "is no port",
	} {
		err := target("--addr", addr)
		require.Error(t, err, addr)
		require.Contains(t, errs.From(err).Message+errs.From(err).HintText(), says, addr)
		_, misused := errors.AsType[misuse](err)
		require.True(t, misused, addr)
	}
	for _, addr := range []string{"localhost:7400", "[::1]:7400", "dns:///host:7400", "unix:///tmp/x"} {
		require.NoError(t, target("--addr", addr))
	}
}
