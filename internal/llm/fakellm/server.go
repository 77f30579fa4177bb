package fakellm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	maxBody   = 16 << 20
	chunkSize = 12
	oversize  = 64 << 20
)

// Request is one chat request as it arrived.
type Request struct {
	Model    string
	Messages []Message
	Stream   bool
	// MaxTokens is whichever limit the caller sent, 0 if none.
	MaxTokens int64
	// Format is the type of the response format, "" if none was asked for.
	Format string
	Header http.Header
	Body   json.RawMessage
	At     time.Time
}

// Server answers by a script and notes what it was asked. It is an http.Handler and safe for
// concurrent use.
type Server struct {
	mux *http.ServeMux

	mu       sync.Mutex
	script   Script
	used     []int
	requests []Request

	done      chan struct{}
	closeOnce sync.Once
	http      *http.Server
	served    chan struct{}
}

// New returns a server for use as a handler, or with Listen.
func New(script Script) *Server {
	s := &Server{mux: http.NewServeMux(), done: make(chan struct{})}
	s.Play(script)
	s.mux.HandleFunc("POST /v1/chat/completions", s.chat)
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, "not_found", "no such path: "+r.URL.Path)
	})
	return s
}

// Play replaces the script; rules count from the start again.
func (s *Server) Play(script Script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script, s.used = script, make([]int, len(script.Rules))
}

// Listen serves on a loopback address such as 127.0.0.1:0 and returns the base URL for clients, which
// ends in /v1.
func (s *Server) Listen(addr string) (baseURL string, err error) {
	lis, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return "", err
	}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	s.served = make(chan struct{})
	go func() {
		defer close(s.served)
		_ = s.http.Serve(lis)
	}()
	return "http://" + lis.Addr().String() + "/v1", nil
}

// Close frees hanging requests and stops what Listen started. It may be called more than once.
func (s *Server) Close() error {
	s.closeOnce.Do(func() { close(s.done) })
	if s.http == nil {
		return nil
	}
	err := s.http.Close()
	<-s.served
	return err
}

// Requests returns the chat requests so far, in order of arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ServeHTTP serves /v1/chat/completions and /v1/models.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	names := s.script.Models
	s.mu.Unlock()
	if len(names) == 0 {
		names = []string{"fake-1"}
	}
	var data []any
	for _, n := range names {
		data = append(data, map[string]any{"id": n, "object": "model", "created": 1, "owned_by": "fakellm"})
	}
	write(w, http.StatusOK, map[string]any{"object": "list", "data": data})
}

func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		fail(w, http.StatusRequestEntityTooLarge, "request_too_large", err.Error())
		return
	}
	var in struct {
		Model          string    `json:"model"`
		Messages       []Message `json:"messages"`
		Stream         bool      `json:"stream"`
		MaxTokens      int64     `json:"max_tokens"`
		MaxCompletion  int64     `json:"max_completion_tokens"`
		ResponseFormat struct {
			Type string `json:"type"`
		} `json:"response_format"`
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.Unmarshal(body, &in); err != nil || len(in.Messages) == 0 {
		fail(w, http.StatusBadRequest, "invalid_request", "the body is not a chat request")
		return
	}
	req := Request{
		Model: in.Model, Messages: in.Messages, Stream: in.Stream, MaxTokens: max(in.MaxTokens, in.MaxCompletion),
		Format: in.ResponseFormat.Type, Header: r.Header.Clone(), Body: body, At: time.Now(),
	}
	reply := s.next(req)
	if !s.wait(r.Context(), reply.Delay) {
		return
	}
	if reply.Fault != "" && (reply.Fault != Disconnect || !in.Stream) {
		s.fault(w, r, reply)
		return
	}
	if in.Stream {
		s.stream(w, r, req, reply, in.StreamOptions.IncludeUsage)
		return
	}
	out := envelope(req, reply, "chat.completion")
	out["choices"] = []any{map[string]any{
		"index": 0, "finish_reason": reply.FinishReason,
		"message": map[string]any{"role": "assistant", "content": reply.Text},
	}}
	if !reply.NoUsage {
		out["usage"] = usage(reply.Usage)
	}
	write(w, http.StatusOK, out)
}

// next notes the request and picks its reply, with all its gaps filled.
func (s *Server) next(req Request) Reply {
	s.mu.Lock()
	s.requests = append(s.requests, req)
	reply := s.script.Default
	last := lastUser(req.Messages)
	fromRule := false
	for i, rule := range s.script.Rules {
		if !strings.Contains(last, rule.Match) || (rule.Model != "" && rule.Model != req.Model) || (rule.Times > 0 && s.used[i] >= rule.Times) {
			continue
		}
		s.used[i]++
		reply, fromRule = rule.Reply, true
		break
	}
	s.mu.Unlock()
	if reply.Text == "" && !fromRule {
		reply.Text = echo(last, req.Format)
	}
	if reply.FinishReason == "" {
		reply.FinishReason = "stop"
	}
	if reply.Usage.Input == 0 {
		reply.Usage.Input = InputTokens(req.Messages)
	}
	if reply.Usage.Output == 0 {
		reply.Usage.Output = Tokens(reply.Text)
	}
	// A real server stops at the limit, and says so.
	if req.MaxTokens > 0 && reply.Usage.Output > req.MaxTokens && reply.Fault == "" {
		if cut := req.MaxTokens * 4; int64(len(reply.Text)) > cut {
			reply.Text = strings.ToValidUTF8(reply.Text[:cut], "")
		}
		reply.Usage.Output, reply.FinishReason = req.MaxTokens, "length"
	}
	return reply
}

func echo(last, format string) string {
	r := []rune(strings.Join(strings.Fields(last), " "))
	if len(r) > 80 {
		r = append(r[:79], '…')
	}
	text := "Done: " + string(r)
	if format == "" || format == "text" {
		return text
	}
	b, err := json.Marshal(map[string]string{"result": text})
	if err != nil {
		return "{}"
	}
	return string(b)
}

// wait reports false if the caller or the server gave up first.
func (s *Server) wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-s.done:
	}
	return false
}

func (s *Server) fault(w http.ResponseWriter, r *http.Request, reply Reply) {
	switch reply.Fault {
	case RateLimit:
		if reply.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.FormatFloat(reply.RetryAfter.Seconds(), 'f', -1, 64))
		}
		fail(w, http.StatusTooManyRequests, "rate_limit_exceeded", "too many requests")
	case QuotaExceeded:
		fail(w, http.StatusTooManyRequests, "insufficient_quota", "you exceeded your quota")
	case ServerError:
		fail(w, http.StatusInternalServerError, "server_error", "the server had an error")
	case BadGateway:
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "<html><body>Bad gateway</body></html>")
	case BadRequest:
		fail(w, http.StatusBadRequest, "context_length_exceeded", "the request is too long for this model")
	case Unauthorized:
		fail(w, http.StatusUnauthorized, "invalid_api_key", "the API key is not valid")
	case ModelNotFound:
		fail(w, http.StatusNotFound, "model_not_found", "the model does not exist")
	case Hang:
		select {
		case <-r.Context().Done():
		case <-s.done:
		}
	case Malformed:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id": "chatcmpl-1", "choices": [`)
	case NoChoices:
		write(w, http.StatusOK, map[string]any{"id": "chatcmpl-1", "object": "chat.completion", "model": "fake-1", "choices": []any{}})
	case Disconnect:
		panic(http.ErrAbortHandler)
	case Oversized:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id": "chatcmpl-1", "choices": [{"message": {"content": "`)
		block := []byte(strings.Repeat("x", 64<<10))
		for range oversize / len(block) {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
		_, _ = io.WriteString(w, `"}}]}`)
	default:
		fail(w, http.StatusInternalServerError, "script_error", "unknown fault "+string(reply.Fault))
	}
}

func (s *Server) stream(w http.ResponseWriter, r *http.Request, req Request, reply Reply, includeUsage bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	send := func(choices []any, u any) error {
		chunk := envelope(req, reply, "chat.completion.chunk")
		chunk["choices"] = choices
		chunk["usage"] = u
		b, err := json.Marshal(chunk)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", b); err != nil {
			return err
		}
		return flush.Flush()
	}
	delta := func(d map[string]any, finish any) []any {
		return []any{map[string]any{"index": 0, "delta": d, "finish_reason": finish}}
	}
	err := send(delta(map[string]any{"role": "assistant", "content": ""}, nil), nil)
	pieces := split(reply.Text)
	for i, p := range pieces {
		if err != nil || !s.wait(r.Context(), reply.ChunkDelay) {
			return
		}
		if reply.Fault == Disconnect && i >= len(pieces)/2 {
			panic(http.ErrAbortHandler)
		}
		err = send(delta(map[string]any{"content": p}, nil), nil)
	}
	err = errors.Join(err, send(delta(map[string]any{}, reply.FinishReason), nil))
	if includeUsage && !reply.NoUsage {
		err = errors.Join(err, send([]any{}, usage(reply.Usage)))
	}
	if err == nil {
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}
}

func split(text string) []string {
	var out []string
	r := []rune(text)
	for len(r) > 0 {
		n := min(chunkSize, len(r))
		out = append(out, string(r[:n]))
		r = r[n:]
	}
	return out
}

func envelope(req Request, reply Reply, object string) map[string]any {
	h := fnv.New64a()
	_, _ = h.Write(req.Body)
	_, _ = io.WriteString(h, reply.Text)
	return map[string]any{"id": fmt.Sprintf("chatcmpl-%016x", h.Sum64()), "object": object, "created": 1, "model": req.Model}
}

func usage(u Usage) map[string]any {
	return map[string]any{
		"prompt_tokens": u.Input, "completion_tokens": u.Output, "total_tokens": u.Input + u.Output,
		"prompt_tokens_details":     map[string]any{"cached_tokens": u.CachedInput},
		"completion_tokens_details": map[string]any{"reasoning_tokens": u.Reasoning},
	}
}

func fail(w http.ResponseWriter, status int, code, message string) {
	write(w, status, map[string]any{"error": map[string]any{"message": message, "type": code, "code": code, "param": nil}})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
