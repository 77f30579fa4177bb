package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/epigraph-run/epigraph/internal/obs"
)

// wire is what the transport saw of one call, whatever an SDK makes of it.
type wire struct {
	host string
	port int
	// status and header are those of the response, 0 and nil if there was none.
	status int
	header http.Header
	// body is the start of the body of a response of status 400 or more.
	body []byte
}

type wireKey struct{}

type sentKey struct{}

// withSent has f called when a request of ctx was written to its connection.
func withSent(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, sentKey{}, f)
}

func wireOf(ctx context.Context) *wire {
	w, _ := ctx.Value(wireKey{}).(*wire)
	if w == nil {
		return &wire{}
	}
	return w
}

// maxRefusal bounds the part of an error response that is read.
const maxRefusal = 64 << 10

// transport fails the reading of a response at its limit, so that no server can fill our memory, and notes
// what it saw in the wire of the request's context.
type transport struct {
	next  http.RoundTripper
	limit int64
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	w := wireOf(r.Context())
	w.host, w.port = r.URL.Hostname(), port(r.URL)
	if sent, ok := r.Context().Value(sentKey{}).(func()); ok {
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent() }}))
	}
	res, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	w.status, w.header = res.StatusCode, res.Header
	if res.StatusCode < http.StatusBadRequest {
		bounded := &boundedBody{ReadCloser: res.Body, left: t.limit}
		res.Body = bounded
		if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
			// Some servers leave out the empty line that ends the last event, and clients then drop it.
			res.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(bounded, strings.NewReader("\n\n")), bounded}
		}
		return res, nil
	}
	// What cannot be read of a refusal is not missed: the status is known.
	w.body, _ = io.ReadAll(io.LimitReader(res.Body, min(maxRefusal, t.limit)))
	_ = res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(w.body))
	res.ContentLength = int64(len(w.body))
	return res, nil
}

func port(u *url.URL) int {
	if n, err := strconv.Atoi(u.Port()); err == nil {
		return n
	}
	if u.Scheme == "http" {
		return 80
	}
	return 443
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errTooLarge
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// connections are what all profiles of a set share.
func connections() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxIdleConnsPerHost:    64,
		ReadBufferSize:         1 << 10, // connections wait, one for each call
		WriteBufferSize:        1 << 10,
		IdleConnTimeout:        90 * time.Second,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// httpClient is the client of one profile: traced, bounded, without redirects.
func httpClient(shared *http.Transport, limit int64, tel *obs.Telemetry) *http.Client {
	return &http.Client{
		Transport: otelhttp.NewTransport(transport{next: shared, limit: limit},
			otelhttp.WithTracerProvider(tel.TracerProvider), otelhttp.WithMeterProvider(tel.MeterProvider), otelhttp.WithPropagators(tel.Propagator)),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Doer sends requests by a transport, without what http.Client does for redirects and cookies. A call waits
// for its answer for seconds, and would hold the stack and the copies of the headers that this takes.
type Doer struct{ transport http.RoundTripper }

// platformPrefix begins the names of the headers in which SDKs tell on which platform they run.
const platformPrefix = "X-Stainless-"

// Do sends a request, which it may change. The headers about the platform are left out.
func (d Doer) Do(r *http.Request) (*http.Response, error) {
	sent := make(http.Header, len(r.Header))
	for name, values := range r.Header {
		if !strings.HasPrefix(name, platformPrefix) {
			sent[name] = values
		}
	}
	r.Header = sent
	if u := r.URL.User; u != nil && sent.Get("Authorization") == "" {
		password, _ := u.Password()
		r.SetBasicAuth(u.Username(), password)
	}
	return d.transport.RoundTrip(r)
}

// Encode writes the parameters of a call, on a goroutine of its own: SDKs take more stack for that than for
// all the rest of a call, which would hold a stack of that size while it waits for its answer.
func Encode(params json.Marshaler) (body []byte, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = &Error{Class: Permanent, Code: "REQUEST", Message: fmt.Sprintf("the request cannot be written: %v", p)}
			}
		}()
		body, err = params.MarshalJSON()
	}()
	<-done
	return body, err
}

var errTooLarge = errors.New("response is larger than allowed")
