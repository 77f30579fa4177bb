package host_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conns"
	"github.com/epigraph-run/epigraph/internal/host"
)

// preface begins a connection of HTTP/2. A client may send nothing more for two minutes.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// TestConnections opens more connections to an HTTP server than it keeps, and holds which of them are closed.
func TestConnections(t *testing.T) {
	t.Parallel()
	// The path of a request names its namespace; "/held" is answered when the caller has gone.
	handler := func(held chan<- struct{}) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/service":
				conns.Trust(r.Context())
			default:
				if conns.Know(r.Context(), r.Header.Get("Namespace")) != nil {
					w.WriteHeader(http.StatusTooManyRequests)
				}
			}
			if r.URL.Path == "/held" {
				held <- struct{}{}
				<-r.Context().Done()
			}
			_, _ = io.WriteString(w, r.RemoteAddr)
		})
	}
	// closed waits until the server has closed a connection.
	closed := func(t *testing.T, c net.Conn) {
		t.Helper()
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err := io.Copy(io.Discard, c)
		late, timed := errors.AsType[net.Error](err)
		require.False(t, timed && late.Timeout(), "it is closed")
	}
	for name, h2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		// newCaller has a connection of its own.
		newCaller := func(t *testing.T) *http.Client {
			t.Helper()
			p := new(http.Protocols)
			p.SetHTTP1(!h2)
			p.SetUnencryptedHTTP2(h2)
			tr := &http.Transport{Protocols: p}
			t.Cleanup(tr.CloseIdleConnections)
			return &http.Client{Transport: tr}
		}
		ask := func(t *testing.T, c *http.Client, url, namespace string) (int, string) {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			require.NoError(t, err)
			req.Header.Set("Namespace", namespace)
			resp, err := c.Do(req)
			require.NoError(t, err)
			defer func() { require.NoError(t, resp.Body.Close()) }()
			b, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return resp.StatusCode, string(b)
		}
		t.Run(name+"/OldStrangersAreClosed", func(t *testing.T) {
			t.Parallel()
			url, _ := serve(t, handler(nil), host.HTTPOptions{Connections: conns.New(conns.Bounds{Strangers: 50, Namespace: 9, Total: 9})})
			known := newCaller(t)
			_, own := ask(t, known, url, "a")
			var open []net.Conn
			for range 60 {
				c, err := net.Dial("tcp", url[len("http://"):])
				require.NoError(t, err)
				defer func() { _ = c.Close() }()
				_, _ = io.WriteString(c, preface)
				open = append(open, c)
			}
			for _, c := range open[:10] {
				closed(t, c)
			}
			_, again := ask(t, known, url, "a")
			require.Equal(t, own, again, "the known connection stays")
		})
		t.Run(name+"/TheOneIdleLongestOfANamespaceIsClosed", func(t *testing.T) {
			t.Parallel()
			pool := conns.New(conns.Bounds{Strangers: 50, Namespace: 3, Total: 9})
			held := make(chan struct{})
			url, _ := serve(t, handler(held), host.HTTPOptions{Connections: pool})
			other, service, busy := newCaller(t), newCaller(t), newCaller(t)
			_, ofOther := ask(t, other, url, "b")
			_, ofService := ask(t, service, url+"/service", "")
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/held", nil)
			require.NoError(t, err)
			req.Header.Set("Namespace", "a")
			ended := make(chan error, 1)
			go func() {
				resp, err := busy.Do(req)
				if err == nil {
					err = resp.Body.Close()
				}
				ended <- err
			}()
			<-held
			var callers []*http.Client
			var own []string
			for range 5 {
				c := newCaller(t)
				_, addr := ask(t, c, url, "a")
				callers, own = append(callers, c), append(own, addr)
			}
			require.Equal(t, 3, pool.Known("a"))
			_, again := ask(t, callers[4], url, "a")
			require.Equal(t, own[4], again, "the last one stays")
			_, again = ask(t, callers[0], url, "a")
			require.NotEqual(t, own[0], again, "the first one was closed")
			_, again = ask(t, other, url, "b")
			require.Equal(t, ofOther, again)
			_, again = ask(t, service, url+"/service", "")
			require.Equal(t, ofService, again)
			require.Equal(t, 3, pool.Known("a"))
			select {
			case err := <-ended:
				t.Fatalf("the request under way ended: %v", err)
			default:
			}
		})
		t.Run(name+"/ANamespaceWithoutAnIdleOneIsRefused", func(t *testing.T) {
			t.Parallel()
			pool := conns.New(conns.Bounds{Strangers: 50, Namespace: 1, Total: 9})
			held := make(chan struct{}, 1)
			url, _ := serve(t, handler(held), host.HTTPOptions{Connections: pool})
			busy := newCaller(t)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/held", nil)
			require.NoError(t, err)
			req.Header.Set("Namespace", "a")
			go func() {
				if resp, err := busy.Do(req); err == nil {
					_ = resp.Body.Close()
				}
			}()
			<-held
			status, _ := ask(t, newCaller(t), url, "a")
			require.Equal(t, http.StatusTooManyRequests, status)
			status, _ = ask(t, newCaller(t), url, "b")
			require.Equal(t, http.StatusOK, status)
		})
	}
}

// TestPlainTextToTLS holds what a caller hears who does not encrypt.
func TestPlainTextToTLS(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := host.HTTP(http.NotFoundHandler(), lis, host.HTTPOptions{TLS: &tls.Config{MinVersion: tls.VersionTLS13}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, s.Close())
	})
	c, err := net.Dial("tcp", lis.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	answer, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Contains(t, string(answer), "Client sent an HTTP request to an HTTPS server.")
}
