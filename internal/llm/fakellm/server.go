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
	"strings"
	"sync"
	"time"
)

const (
	maxBody   = 16 << 20
	chunkSize = 12
	oversize  = 64 << 20
)

// Request is one request as it arrived.
type Request struct {
	// Protocol is openai, anthropic or google, or embeddings for vectors in the protocol of OpenAI:
	// then each text is a message of the user.
	Protocol string
	Model    string
	// Messages begin with the system message, wherever the protocol has it.
	Messages []Message
	Stream   bool
	// Tools are the names of the tools, ToolChoice is what the caller sent about them, in the words of
	// OpenAI.
	Tools      []string
	ToolChoice string
	Stop       []string
	// MaxTokens is whichever limit the caller sent, 0 if none.
	MaxTokens int64
	// Format is the type of the response format, "" if none was asked for.
	Format string
	Header http.Header
	Body   json.RawMessage
	At     time.Time

	// noUsage says that the caller did not ask for the usage of a stream.
	noUsage bool
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
	meter     Meter
}

// New returns a server for use as a handler, or with Listen.
func New(script Script) *Server {
	s := &Server{mux: http.NewServeMux(), done: make(chan struct{})}
	s.Play(script)
	s.mux.HandleFunc("POST /v1/chat/completions", s.serve(openai))
	s.mux.HandleFunc("POST /v1/embeddings", s.embeddings)
	s.mux.HandleFunc("POST /v1/messages", s.serve(anthropic))
	s.mux.HandleFunc("POST /v1beta/models/{call}", s.serve(google))
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		openai.fail(w, http.StatusNotFound, "not_found", "no such path: "+r.URL.Path, 0)
	})
	return s
}

// Play replaces the script; rules count from the start again.
func (s *Server) Play(script Script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script, s.used = script, make([]int, len(script.Rules))
}

// Listen serves on a loopback address such as 127.0.0.1:0 and returns the base URL for clients of OpenAI,
// which ends in /v1. That of the other protocols lacks this end.
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

// Requests returns the requests so far, in order of arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ServeHTTP serves the three protocols, and OpenAI's list of models.
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

// protocol is how one provider writes requests and answers.
type protocol struct {
	name string
	// read fills in what the body and the path say.
	read func(r *http.Request, body []byte, into *Request) error
	fail func(w http.ResponseWriter, status int, code, message string, retryAfter time.Duration)
	// codes are the provider's words for faults, and its statuses where they are not those of OpenAI.
	codes map[Fault]code
	// failure is an error as an event of a stream, and errorEvent the name of the event.
	failure    func(code) any
	errorEvent string
	// whole is a whole answer, and none one without any content.
	whole func(*Request, Reply) any
	none  func(*Request) any
	// stream sends the events of a streamed answer.
	stream func(*Request, Reply, *sender) error
}

type code struct {
	status        int
	code, message string
}

func (s *Server) serve(p protocol) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			p.fail(w, http.StatusRequestEntityTooLarge, "request_too_large", err.Error(), 0)
			return
		}
		req := Request{Protocol: p.name, Header: r.Header.Clone(), Body: body, At: time.Now()}
		if err := p.read(r, body, &req); err != nil || len(req.Messages) == 0 {
			p.fail(w, http.StatusBadRequest, "invalid_request", fmt.Sprintf("the body is no request: %v", err), 0)
			return
		}
		reply, limits := s.next(req)
		if limits != nil {
			use, after := s.meter.Enter(*limits, reply.Usage.Input, req.At)
			if use == nil {
				p.fail(w, http.StatusTooManyRequests, "rate_limit_exceeded", "the account has reached its limit", after)
				return
			}
			defer func() { s.meter.Leave(use, reply.Usage.Output, time.Now()) }()
		}
		if !s.wait(r.Context(), reply.Delay) {
			return
		}
		within := reply.Fault == Disconnect || reply.Fault == StreamError || reply.Fault == EarlyError || reply.Fault == Stall
		switch {
		case reply.Fault != "" && reply.Fault != Filtered && (!within || !req.Stream):
			s.fault(w, r, p, &req, reply)
		case req.Stream:
			s.stream(w, r, p, &req, reply)
		default:
			write(w, http.StatusOK, p.whole(&req, reply))
		}
	}
}

// next notes the request and picks its reply, with all its gaps filled.
func (s *Server) next(req Request) (Reply, *Limits) {
	s.mu.Lock()
	s.requests = append(s.requests, req)
	reply, limits := s.script.Default, s.script.Limits
	answer := s.script.Answer
	s.mu.Unlock()
	last := lastUser(req.Messages)
	fromRule := false
	if answer != nil {
		if r, ok := answer(req); ok {
			reply, fromRule = r, true
		}
	}
	s.mu.Lock()
	for i, rule := range s.script.Rules {
		if fromRule || !rule.fits(&req) || (rule.Times > 0 && s.used[i] >= rule.Times) {
			continue
		}
		s.used[i]++
		reply, fromRule = rule.Reply, true
		break
	}
	s.mu.Unlock()
	if reply.Text == "" && len(reply.ToolCalls) == 0 && reply.Refusal == "" && !fromRule {
		reply.Text = echo(last, req.Format)
	}
	calls := slices.Clone(reply.ToolCalls)
	for i := range calls {
		if calls[i].ID == "" {
			calls[i].ID = fmt.Sprintf("call_%d_%s", i+1, hashed(&req, reply)[:8])
		}
	}
	reply.ToolCalls = calls
	if reply.FinishReason == "" {
		reply.FinishReason = "stop"
		if len(calls) > 0 {
			reply.FinishReason = "tool_calls"
		}
	}
	if reply.Usage.Input == 0 {
		reply.Usage.Input = InputTokens(req.Messages)
	}
	if reply.Usage.Output == 0 {
		reply.Usage.Output = Tokens(reply.Text)
		for _, c := range calls {
			reply.Usage.Output += Tokens(c.Name + c.Arguments)
		}
	}
	// A real server stops at the limit, and says so.
	if req.MaxTokens > 0 && reply.Usage.Output > req.MaxTokens && reply.Fault == "" {
		if cut := req.MaxTokens * 4; int64(len(reply.Text)) > cut {
			reply.Text = strings.ToValidUTF8(reply.Text[:cut], "")
		}
		reply.Usage.Output, reply.FinishReason = req.MaxTokens, "length"
	}
	return reply, limits
}

// Meter counts what the limits of the script bound.
func (s *Server) Meter() *Meter { return &s.meter }

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

func (s *Server) fault(w http.ResponseWriter, r *http.Request, p protocol, req *Request, reply Reply) {
	switch reply.Fault {
	case StreamError:
		reply.Fault = ServerError
	case EarlyError:
		reply.Fault = Overloaded
	case Stall:
		reply.Fault = Hang
	}
	if c, ok := p.codes[reply.Fault]; ok {
		p.fail(w, c.status, c.code, c.message, reply.RetryAfter)
		return
	}
	switch reply.Fault {
	case BadGateway:
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "<html><body>Bad gateway</body></html>")
	case Hang:
		select {
		case <-r.Context().Done():
		case <-s.done:
		}
	case Malformed:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id": "chatcmpl-1", "choices": [`)
	case NoChoices:
		write(w, http.StatusOK, p.none(req))
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
		p.fail(w, http.StatusInternalServerError, "script_error", "unknown fault "+string(reply.Fault), 0)
	}
}

// sender writes the events of one stream.
type sender struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	// pause waits before the next piece of a text, of which this much was sent; false if the caller or the
	// server gave up.
	pause func(sent string) bool
	// halt ends the stream in the middle as the fault of the reply says, and reports whether it did.
	halt func(i, n int) bool
}

var errHalted = errors.New("the stream was ended by the script")

// event sends one event; a name is left out if it is empty.
func (s *sender) event(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	if _, err := fmt.Fprintf(s.w, "%sdata: %s\n\n", name, b); err != nil {
		return err
	}
	return s.flush.Flush()
}

// pieces calls each for the pieces of a text, at the pace of the script.
func (s *sender) pieces(text string, each func(string) error) error {
	parts := split(text)
	sent := 0
	for i, p := range parts {
		if !s.pause(text[:sent]) || s.halt(i, len(parts)) {
			return errHalted
		}
		sent += len(p)
		if err := each(p); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) stream(w http.ResponseWriter, r *http.Request, p protocol, req *Request, reply Reply) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := &sender{w: w, flush: http.NewResponseController(w), pause: func(sent string) bool {
		return s.wait(r.Context(), reply.ChunkDelay) && (reply.Hold == nil || reply.Hold(r.Context(), sent))
	}}
	out.halt = func(i, n int) bool {
		if i < n/2 {
			return false
		}
		switch reply.Fault {
		case Disconnect:
			panic(http.ErrAbortHandler)
		case StreamError:
			_ = out.event(p.errorEvent, p.failure(p.codes[ServerError]))
			return true
		case Stall:
			select {
			case <-r.Context().Done():
			case <-s.done:
			}
			return true
		}
		return false
	}
	if reply.Fault == EarlyError {
		_ = out.event(p.errorEvent, p.failure(p.codes[Overloaded]))
		return
	}
	_ = p.stream(req, reply, out) // whoever asked has gone
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

// hashed is a text that stems from a request and its reply.
func hashed(req *Request, reply Reply) string {
	h := fnv.New64a()
	_, _ = h.Write(req.Body)
	_, _ = io.WriteString(h, reply.Text)
	return fmt.Sprintf("%016x", h.Sum64())
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
