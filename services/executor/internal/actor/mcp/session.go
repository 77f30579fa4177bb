package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/egress"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// maxTools, maxToolBytes and maxPages bound the list of a server's tools: their number, what they have
	// together, and the pages in which they come.
	maxTools     = 1000
	maxToolBytes = 4 << 20
	maxPages     = 100
	// maxSchema and maxDescription bound one tool, in bytes. A larger schema is left out, and a longer
	// description is cut.
	maxSchema      = 64 << 10
	maxDescription = 1 << 10
	// maxWords bounds what an error takes over from a server.
	maxWords = 2 << 10
)

// tool is a tool as its server lists it.
type tool struct {
	name, description, version string
	// hint is the effect by the server's word, effect the one that counts.
	hint, effect workgraph.Effect
	// schema is the JSON Schema of the arguments; nil if the server's cannot be used.
	schema json.RawMessage
	// properties are the arguments that the schema names.
	properties map[string]bool
}

// session is a connection to a server.
type session struct {
	sdk     *mcp.ClientSession
	process *process // nil of a server elsewhere
	// ended is closed when the connection is over.
	ended chan struct{}
	once  sync.Once
}

// close ends the connection, and the server if it was started here. It waits for both.
func (s *session) close() {
	s.once.Do(func() {
		if s.process != nil {
			_ = s.process.Close() // first: the SDK waits for calls under way, which a hung server keeps
		}
		_ = s.sdk.Close() // the connection is given up, whatever it says
		<-s.ended
	})
}

// open starts or reaches the server and shakes hands.
func (s *Servers) open(ctx context.Context, sv *server) (*session, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "epigraph", Version: s.version}, &mcp.ClientOptions{
		// Nothing is offered to servers: no files, no model, no questions to people.
		Capabilities:                &mcp.ClientCapabilities{},
		MultiRoundTrip:              &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { sv.relist() },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { sv.progressed(r.Params) },
	})
	out := &session{ended: make(chan struct{})}
	var transport mcp.Transport
	if sv.cfg.Command != "" {
		p, err := start(sv.cfg)
		if err != nil {
			return nil, fmt.Errorf("the command cannot be started: %w", err)
		}
		out.process = p
		most := int(sv.cfg.MaxResponseBytes)
		transport = &mcp.IOTransport{Reader: readCloser{messages(p.out, most), func() error { return nil }}, Writer: p, MaxLineLength: 2*most + 1<<10}
	} else {
		web, err := s.web(sv)
		if err != nil {
			return nil, err
		}
		transport = web
	}
	sdk, err := client.Connect(ctx, transport, nil)
	if err != nil {
		err = sv.words(out, err)
		if out.process != nil {
			_ = out.process.Close() // ends the server, whatever becomes of it
		}
		return nil, err
	}
	out.sdk = sdk
	go func() {
		_ = sdk.Wait() // the next call says why
		close(out.ended)
		out.close()
	}()
	return out, nil
}

// web is the way to a server elsewhere.
func (s *Servers) web(sv *server) (mcp.Transport, error) {
	u, err := url.Parse(sv.cfg.URL)
	if err != nil {
		return nil, errors.New("the url cannot be read")
	}
	if err := sv.guard.CheckHost(u.Hostname()); err != nil {
		return nil, err
	}
	return &mcp.StreamableClientTransport{
		Endpoint: sv.cfg.URL, MaxEventSize: 2*int(sv.cfg.MaxResponseBytes) + 1<<10,
		HTTPClient: &http.Client{
			Transport: otelhttp.NewTransport(trip{sv.cfg, sv.transport}, otelhttp.WithTracerProvider(s.tracers), otelhttp.WithPropagators(s.propagator)),
			// The headers are for this server and no other.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// trip adds a server's headers to requests and bounds its answers.
type trip struct {
	cfg   Server
	inner http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t trip) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for name, v := range t.cfg.Headers {
		req.Header.Set(name, v.Reveal())
	}
	resp, err := t.inner.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	most := int(t.cfg.MaxResponseBytes)
	note, _ := req.Context().Value(noteKey{}).(*atomic.Pointer[tooLong])
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
	var body io.Reader
	switch kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";"); strings.TrimSpace(strings.ToLower(kind)) {
	case "text/event-stream":
		body = events(resp.Body, most)
	case "application/json":
		whole := bounded(bufio.NewReader(resp.Body), most)
		body = &pieces{next: func() ([]byte, error) {
			message, err := io.ReadAll(whole)
			if err == nil {
				err = io.EOF
			}
			return exact(message), err
		}}
	default:
		body = bounded(resp.Body, most)
	}
	resp.Body = readCloser{noted{body, note}, resp.Body.Close}
	return resp, nil
}

// noteKey is where the context of a call has room for the error of its answer, which the SDK does not pass
// on.
type noteKey struct{}

// noted notes that an answer is too long.
type noted struct {
	inner io.Reader
	note  *atomic.Pointer[tooLong]
}

// Read implements io.Reader.
func (n noted) Read(b []byte) (int, error) {
	k, err := n.inner.Read(b)
	if long, ok := errors.AsType[*tooLong](err); ok && n.note != nil {
		n.note.Store(long)
	}
	return k, err
}

type readCloser struct {
	io.Reader
	close func() error
}

// Close implements io.Closer.
func (r readCloser) Close() error { return r.close() }

// words is an error of the connection as whoever calls the tools may read it.
func (sv *server) words(s *session, err error) error {
	if s != nil && s.process != nil && !errors.Is(err, context.DeadlineExceeded) {
		// One that ends breaks the connection a moment before.
		if s.process.ends(endsWithin) {
			return errors.New(s.process.words())
		}
	}
	if sv.cfg.URL != "" {
		if _, ok := errors.AsType[*url.Error](err); ok {
			return errors.New(egress.Words(err))
		}
		if r, ok := errors.AsType[*egress.Refusal](err); ok {
			return r
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("it did not answer within %s", sv.cfg.ConnectTimeout)
	}
	return errors.New(errs.Clip(err.Error(), 300))
}

// list reads the tools of a server.
func (sv *server) list(ctx context.Context, s *session) (map[string]*tool, error) {
	version := ""
	if r := s.sdk.InitializeResult(); r != nil && r.ServerInfo != nil {
		version = errs.Clip(r.ServerInfo.Version, 64)
	}
	out := map[string]*tool{}
	bytes, cursor := 0, ""
	for range maxPages {
		page, err := s.sdk.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			return nil, sv.words(s, err)
		}
		for _, t := range page.Tools {
			if t == nil || !usable(t.Name) || !sv.cfg.allows(t.Name) {
				continue
			}
			known := sv.read(ctx, t, version)
			bytes += len(known.name) + len(known.description) + len(known.schema)
			if out[t.Name] = known; len(out) > maxTools || bytes > maxToolBytes {
				return nil, fmt.Errorf("it lists more than %d tools, or more than %d bytes of them; name those that are needed in tools", maxTools, maxToolBytes)
			}
		}
		if cursor = page.NextCursor; cursor == "" {
			return out, nil
		}
	}
	return nil, fmt.Errorf("its list of tools has more than %d pages", maxPages)
}

// usable reports whether a name can be a part of an actor's.
func usable(name string) bool {
	return name != "" && len(name) <= 200 && strings.IndexFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\uFFFD' }) < 0
}

// read takes from a tool what is needed of it.
func (sv *server) read(ctx context.Context, t *mcp.Tool, version string) *tool {
	out := &tool{name: t.Name, version: version, description: errs.Clip(strings.TrimSpace(strings.ToValidUTF8(t.Description, "")), maxDescription), hint: workgraph.Unsafe}
	if out.description == "" {
		out.description = errs.Clip(strings.ToValidUTF8(t.Title, ""), maxDescription)
	}
	if a := t.Annotations; a != nil {
		switch {
		case a.ReadOnlyHint:
			out.hint = workgraph.Pure
		case a.IdempotentHint:
			out.hint = workgraph.Idempotent
		}
	}
	out.effect = sv.effectOf(out)
	schema, ok := t.InputSchema.(map[string]any)
	if !ok {
		return out
	}
	delete(schema, "$schema") // it is read as 2020-12
	raw, err := json.Marshal(schema)
	if err != nil || len(raw) > maxSchema {
		return out
	}
	if _, err := workgraph.CompileSchema(ctx, raw); err != nil {
		return out // the server judges the arguments
	}
	out.schema = raw
	properties, _ := schema["properties"].(map[string]any)
	out.properties = set(properties)
	return out
}

// effectOf is the effect of a tool, which the configuration may correct.
func (sv *server) effectOf(t *tool) workgraph.Effect {
	if e, ok := sv.cfg.Effects[t.name]; ok {
		return e
	}
	return t.hint
}

// set has the keys of m.
func set[V any](m map[string]V) map[string]bool {
	out := make(map[string]bool, len(m))
	for k := range m {
		out[k] = true
	}
	return out
}
