package mcpserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/epigraph-run/epigraph/internal/errs"
)

const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
	maxSession    = 128
)

// errGone ends the wait of a call whose client is gone. It is not a cancel: clients of earlier
// versions of the protocol may lose their connection and come back.
var errGone = errors.New("the client is gone")

// callKey names a call of a client of an earlier version of the protocol, which cancels it by a
// request of its own. Its session is a name alone: nothing is kept of it.
type callKey struct{ namespace, session, id string }

// doorKey is the key of the context of a request over HTTP. Handlers of earlier versions of the
// protocol have a context that does not end with the request.
type doorKey struct{}

type door struct {
	ctx context.Context //nolint:containedctx // the context of the request, which the library detaches handlers from
}

// overHTTP reports whether a client of an earlier version of the protocol is served over HTTP. Nothing is
// kept of it, so that it cannot be told of changes.
func overHTTP(ctx context.Context) bool { return ctx.Value(doorKey{}) != nil }

// tied returns a context that ends with the request over HTTP, if there is one.
func tied(ctx context.Context) (context.Context, func()) {
	d, ok := ctx.Value(doorKey{}).(door)
	if !ok {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.ctx, func() { cancel(context.Cause(d.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// message is what is read of a message before the library does.
type message struct {
	Method string          `json:"method"`
	ID     json.RawMessage `json:"id"`
	Params struct {
		RequestID json.RawMessage `json:"requestId"`
	} `json:"params"`
}

// Serve answers a request over HTTP, whose whole body was read. The context says who calls.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, body []byte) error {
	if b := bytes.TrimLeft(body, " \t\r\n"); len(b) > 0 && b[0] == '[' {
		return errs.New(errs.InvalidArgument, "BATCH_UNSUPPORTED", "several messages in one request are not read here").Hint("send each message in a request of its own")
	}
	var m message
	_ = json.Unmarshal(body, &m) // the library tells what is wrong
	session := r.Header.Get(headerSession)
	if len(session) > maxSession {
		return errs.New(errs.InvalidArgument, "SESSION_INVALID", "%s has more than %d bytes", headerSession, maxSession)
	}
	key := callKey{s.Namespace(r.Context()), session, string(m.ID)}
	legacy := r.Header.Get(headerVersion) < versionStateless
	switch {
	case m.Method == "initialize":
		w.Header().Set(headerSession, rand.Text())
	case m.Method == "notifications/cancelled" && legacy:
		key.id = string(m.Params.RequestID)
		s.cancel(key)
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	ctx := r.Context()
	if legacy {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(context.WithoutCancel(ctx))
		stop := context.AfterFunc(r.Context(), func() { cancel(errGone) })
		defer stop()
		defer cancel(nil)
		if session != "" && len(m.ID) > 0 {
			defer s.register(key, cancel)()
		}
		ctx = context.WithValue(r.Context(), doorKey{}, door{ctx})
	}
	if m.Method == methodListen {
		var stop func()
		ctx, stop = s.listen(ctx)
		defer stop()
	}
	r = r.WithContext(ctx)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	s.http.ServeHTTP(w, r)
	return nil
}

// register keeps how a call is canceled until the returned function is called.
func (s *Server) register(key callKey, cancel context.CancelCauseFunc) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[key] != nil {
		return func() {} // the client has used the id twice
	}
	s.calls[key] = cancel
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.calls, key)
	}
}

func (s *Server) cancel(key callKey) {
	s.mu.Lock()
	cancel := s.calls[key]
	s.mu.Unlock()
	if cancel != nil {
		cancel(context.Canceled)
	}
}
