// Package http is the actor that makes one HTTP request. It owns the rules about reachable addresses and the
// size of answers; the address and everything in it may come from a model.
package http

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/net/http/httpguts"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/retryafter"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/egress"
	"github.com/epigraph-run/epigraph/workgraph"
)

const schema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["url"],
  "properties": {
    "url": {"type": "string", "format": "uri", "description": "The http or https address."},
    "method": {"enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"], "description": "GET when absent."},
    "headers": {"type": "object", "additionalProperties": {"type": "string"}},
    "query": {"type": "object", "description": "Parameters to add to the address.", "additionalProperties": {"type": ["string", "number", "boolean"]}},
    "json": {"description": "A body, sent as JSON. A problem of a plan that has neither json nor body is sent itself, by POST, PUT and PATCH: {request, tool, arguments, references, attachments}."},
    "body": {"type": "string", "description": "A body, sent as it is."},
    "expect_status": {"type": "array", "items": {"type": "integer"}, "description": "Statuses that count as success; 200 to 299 when absent."}
  }
}`

// Config bounds requests. The zero value of a field means its default.
type Config struct {
	// Timeout bounds one request, redirects and body included. Default 60s; a node's own timeout may be
	// shorter.
	Timeout time.Duration `conf:"timeout" help:"time limit of one request, redirects and body included"`
	// MaxRequestBytes and MaxResponseBytes bound the bodies. Default 1 MiB and 4 MiB.
	MaxRequestBytes  conf.Bytes `conf:"max_request_bytes" help:"maximum size of a request body"`
	MaxResponseBytes conf.Bytes `conf:"max_response_bytes" help:"maximum size of a response body"`
	// MaxRedirects bounds redirects. Default 5.
	MaxRedirects int `conf:"max_redirects" help:"maximum number of redirects"`
	// AllowPrivate lists networks like 10.0.0.0/8 that are reachable although they are not public; "all"
	// allows every address.
	AllowPrivate []string `conf:"allow_private" help:"allowed networks that are not public, such as 10.0.0.0/8; all allows every address"`
}

// DefaultConfig reaches public addresses only.
func DefaultConfig() Config {
	return Config{Timeout: time.Minute, MaxRequestBytes: 1 << 20, MaxResponseBytes: 4 << 20, MaxRedirects: 5}
}

// Validate reports every bound that is negative and every network that cannot be read.
func (c Config) Validate() error {
	_, err := c.guard()
	for name, v := range map[string]int64{
		"timeout": int64(c.Timeout), "max_request_bytes": int64(c.MaxRequestBytes), "max_response_bytes": int64(c.MaxResponseBytes), "max_redirects": int64(c.MaxRedirects),
	} {
		if v < 0 {
			err = errors.Join(err, fmt.Errorf("http.%s must not be negative", name))
		}
	}
	return err
}

func (c Config) guard() (egress.Guard, error) {
	g, err := egress.NewGuard(c.AllowPrivate)
	if err != nil {
		err = fmt.Errorf("http.allow_private: %w", err)
	}
	return g, err
}

// Reasons of failed requests.
const (
	ReasonAddress       = "ADDRESS_REFUSED"
	ReasonStatus        = "HTTP_STATUS"
	ReasonConnection    = "HTTP_CONNECTION"
	ReasonResponseSize  = "RESPONSE_TOO_LARGE"
	ReasonRequestSize   = "REQUEST_TOO_LARGE"
	ReasonRedirects     = "TOO_MANY_REDIRECTS"
	ReasonRedirect      = "HTTP_REDIRECT"
	ReasonEffectTooWeak = "EFFECT_MISMATCH"
)

// Spec describes the actor. The providers make spans of requests and carry the trace on.
func Spec(cfg Config, tp trace.TracerProvider, prop propagation.TextMapPropagator) (actor.Spec, error) {
	guard, err := cfg.guard()
	if err != nil {
		return actor.Spec{}, err
	}
	def := DefaultConfig()
	cfg.MaxRequestBytes = cmp.Or(cfg.MaxRequestBytes, def.MaxRequestBytes)
	cfg.MaxResponseBytes = cmp.Or(cfg.MaxResponseBytes, def.MaxResponseBytes)
	cfg.Timeout = cmp.Or(cfg.Timeout, def.Timeout)
	cfg.MaxRedirects = cmp.Or(cfg.MaxRedirects, def.MaxRedirects)
	transport := guard.Transport()
	// A transport repeats a request by itself when a reused connection breaks, and treats an Idempotency-Key
	// as leave to do so with a POST. On a fresh connection it never does.
	once := transport.Clone()
	once.DisableKeepAlives = true
	through := func(t *http.Transport) *http.Client {
		return &http.Client{
			Transport:     otelhttp.NewTransport(t, otelhttp.WithTracerProvider(tp), otelhttp.WithPropagators(prop)),
			CheckRedirect: func(req *http.Request, via []*http.Request) error { return redirect(req, via, cfg.MaxRedirects, guard) },
		}
	}
	a := &client{cfg: cfg, guard: guard, http: through(transport), once: through(once)}
	// Following a redirect of an UNSAFE call would be another call, with an unknown effect.
	a.once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return actor.Spec{
		Name: "http", Version: "1", Elsewhere: true, Effect: workgraph.Unsafe, EffectOf: effectOf, Schema: schema, Examine: examine, Actor: a,
		Description: "Makes one HTTP request; private addresses are refused unless the operator allows them.",
	}, nil
}

// examine returns the faults of a node's own arguments. The call itself checks whether the address may be
// reached.
func examine(_ context.Context, n *workgraph.Node) []workgraph.Argument {
	var out []workgraph.Argument
	if text, ok := actor.OwnText(n, "url"); ok {
		_, err := address(text)
		out = append(out, actor.Faulty("url", err)...)
	}
	if _, ok := actor.OwnText(n, "body"); ok && len(n.Named["json"]) > 0 {
		out = append(out, actor.Faulty("body", errTwoBodies)...)
	}
	return out
}

var errTwoBodies = actor.BadArguments("give json or body, not both")

// address reads the address of a request.
func address(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme == "" {
		return nil, actor.BadArguments("url %q: give a whole http or https address", text)
	}
	return u, nil
}

// effectOf is the effect of the node's own method. A propagated method is unknown here and counts as GET, the
// default, until the call, which refuses a stronger one.
func effectOf(n *workgraph.Node) workgraph.Effect {
	raw, ok := n.Named["method"]
	if !ok {
		return workgraph.Pure
	}
	var m string
	if json.Unmarshal(raw, &m) != nil {
		return workgraph.Unsafe
	}
	return methodEffect(strings.ToUpper(m))
}

func methodEffect(method string) workgraph.Effect {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions:
		return workgraph.Pure
	case http.MethodPut, http.MethodDelete:
		return workgraph.Idempotent
	}
	return workgraph.Unsafe
}

// redirect decides whether a request follows a redirect. req has the headers of the first request.
func redirect(req *http.Request, via []*http.Request, most int, guard egress.Guard) error {
	first := via[0]
	if req.Method != first.Method {
		// net/http turns every other request into a GET: its success would say nothing about the original
		// request.
		return http.ErrUseLastResponse
	}
	if len(via) > most {
		return workgraph.Errorf(workgraph.Permanent, ReasonRedirects, "more than %d redirects", most)
	}
	if err := addressFault(req.URL, guard); err != nil {
		return err
	}
	req.Header.Del("Referer") // the address may have secrets in its query
	for _, earlier := range via {
		if !sameParty(earlier.URL, req.URL) || !sameParty(first.URL, earlier.URL) {
			// The author of the headers meant them for the first host. They are not sent again after a
			// redirect back to it: the author did not choose that way.
			foreign := http.Header{"User-Agent": {userAgent}}
			for _, name := range []string{"Accept", "Content-Type"} { // they only say what the bytes are
				if v := req.Header.Values(name); len(v) > 0 {
					foreign[name] = v
				}
			}
			req.Header, req.Host = foreign, ""
			return nil
		}
	}
	return nil
}

// sameParty reports whether data for one address may be sent to the other: the same host and port, with no
// weaker encryption.
func sameParty(from, to *url.URL) bool {
	if !strings.EqualFold(from.Hostname(), to.Hostname()) {
		return false
	}
	if from.Scheme == to.Scheme {
		return port(from) == port(to)
	}
	return from.Scheme == "http" && to.Scheme == "https" && port(from) == "80" && port(to) == "443"
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

const userAgent = "epigraph"

type client struct {
	cfg   Config
	guard egress.Guard
	http  *http.Client
	once  *http.Client // for UNSAFE calls
}

type arguments struct {
	URL     string                     `json:"url"`
	Method  string                     `json:"method"`
	Headers map[string]string          `json:"headers"`
	Query   map[string]json.RawMessage `json:"query"`
	JSON    json.RawMessage            `json:"json"`
	Body    *string                    `json:"body"`
	Expect  []int                      `json:"expect_status"`
}

// answer is the result: headers with several values are joined by ", "; the body is JSON if the answer says
// so, else text.
type answer struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`
}

// Call makes the request.
func (a *client) Call(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var args arguments
	if err := actor.Decode(c.Named, &args); err != nil {
		return workgraph.Outcome{}, err
	}
	within, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	req, err := a.request(within, &args, c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	var wrote atomic.Bool
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		WroteHeaders: func() { wrote.Store(true) },
	}))
	through := a.http
	if c.Effect == workgraph.Unsafe {
		through = a.once
	}
	resp, err := through.Do(req)
	if err != nil {
		return workgraph.Outcome{}, a.broken(ctx, within, err, wrote.Load(), c.Effect)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := a.read(within, resp)
	if err != nil {
		return workgraph.Outcome{}, a.broken(ctx, within, err, true, c.Effect)
	}
	if conf.Bytes(len(body)) > a.cfg.MaxResponseBytes {
		return workgraph.Outcome{}, workgraph.Errorf(afterEffect(workgraph.Permanent, c.Effect), ReasonResponseSize, "the answer is longer than %d bytes", int64(a.cfg.MaxResponseBytes))
	}
	if !expected(resp.StatusCode, args.Expect) {
		return workgraph.Outcome{}, statusError(resp, body, c.Effect)
	}
	out := answer{Status: resp.StatusCode, Headers: make(map[string]string, len(resp.Header)), Body: bodyJSON(resp.Header.Get("Content-Type"), body)}
	for k, v := range resp.Header {
		out.Headers[strings.ToLower(k)] = strings.Join(v, ", ")
	}
	return actor.Value(out)
}

// smallBody is the part of an answer that is read even without free memory.
const smallBody = 64 << 10

// read is the body of an answer, or one byte more of it than it may have. A large one waits for room.
func (a *client) read(ctx context.Context, resp *http.Response) ([]byte, error) {
	most := int64(a.cfg.MaxResponseBytes) + 1
	body, err := io.ReadAll(io.LimitReader(resp.Body, min(most, smallBody)))
	if err != nil || int64(len(body)) < min(most, smallBody) {
		return body, err
	}
	if n := resp.ContentLength; n >= 0 && n < most {
		most = n
	}
	if err := actor.Room(ctx, most); err != nil {
		return nil, err
	}
	rest, err := io.ReadAll(io.LimitReader(resp.Body, most-int64(len(body))))
	return append(body, rest...), err
}

func (a *client) request(ctx context.Context, args *arguments, c *workgraph.Call) (*http.Request, error) {
	method := strings.ToUpper(args.Method)
	if method == "" {
		method = http.MethodGet
	}
	// The effect follows from the node's own method, or was declared by somebody who knows the server. A
	// propagated method was never checked.
	if method != ownMethod(c) && rank(methodEffect(method)) > rank(c.Effect) {
		return nil, workgraph.Errorf(workgraph.Permanent, ReasonEffectTooWeak,
			"the method %s, which came in with the arguments, is %s, but the node counts as %s: set the method on the node itself", method, methodEffect(method), c.Effect)
	}
	u, err := address(args.URL)
	if err != nil {
		return nil, err
	}
	if err := addressFault(u, a.guard); err != nil {
		return nil, err
	}
	if len(args.Query) > 0 {
		q := u.Query()
		for k, v := range args.Query {
			q.Set(k, queryText(v))
		}
		u.RawQuery = q.Encode()
	}
	if len(args.JSON) > 0 && args.Body != nil {
		return nil, errTwoBodies
	}
	if c.Kind == workgraph.ProblemKind && len(args.JSON) == 0 && args.Body == nil && sends(method) {
		if args.JSON, err = actor.Problem(c); err != nil {
			return nil, actor.BadArguments("the problem cannot be sent: %v", err)
		}
	}
	body := []byte(args.JSON)
	if args.Body != nil {
		body = []byte(*args.Body)
	}
	if conf.Bytes(len(body)) > a.cfg.MaxRequestBytes {
		return nil, workgraph.Errorf(workgraph.Permanent, ReasonRequestSize, "the body is longer than %d bytes", int64(a.cfg.MaxRequestBytes))
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, actor.BadArguments("%v", err)
	}
	req.Header.Set("User-Agent", userAgent)
	if len(args.JSON) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range args.Headers {
		if !httpguts.ValidHeaderFieldName(k) || !httpguts.ValidHeaderFieldValue(v) {
			return nil, actor.BadArguments("the header %q cannot be sent", k)
		}
		if http.CanonicalHeaderKey(k) == "Host" {
			req.Host = v
			continue
		}
		req.Header.Set(k, v)
	}
	if methodEffect(method) != workgraph.Pure && req.Header.Get("Idempotency-Key") == "" {
		req.Header.Set("Idempotency-Key", c.EffectKey())
	}
	return req, nil
}

// sends reports whether requests of the method have a body.
func sends(method string) bool {
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
}

// ownMethod is the method that the node itself names.
func ownMethod(c *workgraph.Call) string {
	var m string
	if json.Unmarshal(c.Own["method"], &m) != nil || m == "" {
		return http.MethodGet
	}
	return strings.ToUpper(m)
}

func rank(e workgraph.Effect) int {
	return slices.Index([]workgraph.Effect{workgraph.Pure, workgraph.Idempotent, workgraph.Unsafe}, e)
}

func addressFault(u *url.URL, guard egress.Guard) error {
	if u.Scheme != "http" && u.Scheme != "https" {
		return workgraph.Errorf(workgraph.Permanent, ReasonAddress, "the scheme %q is not http or https", u.Scheme)
	}
	if err := guard.CheckHost(u.Hostname()); err != nil {
		return workgraph.Errorf(workgraph.Permanent, ReasonAddress, "%v", err)
	}
	return nil
}

func queryText(v json.RawMessage) string {
	var s string
	if json.Unmarshal(v, &s) == nil {
		return s
	}
	return string(v)
}

func expected(status int, want []int) bool {
	if len(want) == 0 {
		return status >= 200 && status < 300
	}
	return slices.Contains(want, status)
}

// afterEffect is the type of a failure that came after an answer: for an UNSAFE call its effect is unknown.
func afterEffect(t workgraph.ErrorType, e workgraph.Effect) workgraph.ErrorType {
	if e == workgraph.Unsafe {
		return workgraph.Unknown
	}
	return t
}

// statusError types an answer that is no success. A 4xx says that the request was not carried out; after a
// 5xx nobody knows. One below 400 that the node did not expect says that something was done, but not what.
func statusError(resp *http.Response, body []byte, effect workgraph.Effect) error {
	t := workgraph.Permanent
	switch code := resp.StatusCode; {
	case redirects(resp):
		return redirectError(resp, effect)
	case code == http.StatusTooManyRequests || code == http.StatusTooEarly:
		t = workgraph.Retryable
		if effect == workgraph.Unsafe {
			t = workgraph.NotPerformed
		}
	case code == http.StatusRequestTimeout || code >= 500:
		t = afterEffect(workgraph.Retryable, effect)
	case code < 400:
		t = afterEffect(workgraph.Permanent, effect)
	}
	e := workgraph.Errorf(t, ReasonStatus, "%s %s answered %s: %s", resp.Request.Method, resp.Request.URL.Redacted(), resp.Status, excerpt(body))
	e.RetryAfter = workgraph.Duration(retryafter.Of(resp.Header))
	return e
}

// redirects reports whether an answer leads elsewhere.
func redirects(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return resp.Header.Get("Location") != ""
	}
	return false
}

// redirectError types a redirect that was not followed. 307 and 308 say that the request is to be made
// elsewhere, so it was not carried out here. Servers use the others also to answer a request that they have
// carried out, so after an UNSAFE call the effect is unknown.
func redirectError(resp *http.Response, effect workgraph.Effect) error {
	t := workgraph.Permanent
	if code := resp.StatusCode; code != http.StatusTemporaryRedirect && code != http.StatusPermanentRedirect {
		t = afterEffect(t, effect)
	}
	return workgraph.Errorf(t, ReasonRedirect, "%s %s answered %s with Location %q, which is not followed: call that address, or list %d in expect_status if it says that all is done",
		resp.Request.Method, resp.Request.URL.Redacted(), resp.Status, errs.Clip(strings.ToValidUTF8(resp.Header.Get("Location"), ""), 300), resp.StatusCode)
}

func excerpt(body []byte) string {
	s := strings.ToValidUTF8(string(body[:min(len(body), 300)]), "")
	return strings.Join(strings.Fields(s), " ")
}

// broken types a request that got no answer, or no whole one. Before its headers were written nothing can
// have happened. call is the context of the call, within that of the request.
func (a *client) broken(call, within context.Context, err error, wrote bool, effect workgraph.Effect) error {
	if e, ok := errors.AsType[*workgraph.Error](err); ok {
		return e
	}
	if r, ok := errors.AsType[*egress.Refusal](err); ok {
		return workgraph.Errorf(workgraph.Permanent, ReasonAddress, "%v", r)
	}
	t := workgraph.Retryable
	switch {
	case effect == workgraph.Unsafe && !wrote:
		t = workgraph.NotPerformed
	case effect == workgraph.Unsafe, call.Err() != nil: // the server may go on with it
		t = workgraph.Unknown
	}
	switch {
	case call.Err() != nil:
		return actor.Interrupted(t)
	case within.Err() != nil:
		return workgraph.Errorf(t, workgraph.ReasonTimeout, "no answer came within %s", a.cfg.Timeout)
	}
	return workgraph.Errorf(t, ReasonConnection, "%s", egress.Words(err))
}

func bodyJSON(contentType string, body []byte) json.RawMessage {
	mime, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	mime = strings.TrimSpace(mime)
	if (mime == "application/json" || strings.HasSuffix(mime, "+json")) && json.Valid(body) {
		return body
	}
	text, _ := json.Marshal(strings.ToValidUTF8(string(body), "\uFFFD")) // a string always marshals
	return text
}
