// Package llm owns calls to language models that speak the OpenAI chat protocol: one request, one answer,
// whole or streamed, with usage, typed errors and a span by the GenAI conventions. It never retries, since
// its callers record attempts. It must not know prices, budgets or actors.
//
// The protocol is one POST, so it is written here: OpenAI's own Go client adds 7 MB to a binary.
package llm

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/obs"
)

// Config says which server is asked and how.
type Config struct {
	BaseURL string      `help:"base URL of an OpenAI-compatible server, usually ending in /v1"`
	APIKey  conf.Secret `help:"API key of that server"`
	// Provider names the server in telemetry, such as openai or ollama.
	Provider string `help:"name of the provider in telemetry"`
	// Timeout bounds one call, streaming included; callers may set earlier deadlines.
	Timeout time.Duration `help:"longest time for one model call"`
	// MaxResponseBytes bounds the bytes that are read of one response.
	MaxResponseBytes conf.Bytes `help:"largest response of a model"`
	// LegacyMaxTokens sends max_tokens for servers that do not know max_completion_tokens.
	LegacyMaxTokens bool `help:"send max_tokens in place of max_completion_tokens"`
	// CaptureContent records prompts and answers in spans.
	CaptureContent bool `help:"record prompts and answers in traces"`
}

// DefaultConfig asks OpenAI.
func DefaultConfig() Config {
	return Config{BaseURL: "https://api.openai.com/v1", Provider: "openai", Timeout: 10 * time.Minute, MaxResponseBytes: 16 << 20}
}

// Validate reports every field that cannot be used.
func (c Config) Validate() error {
	var faults []error
	if u, err := url.Parse(c.BaseURL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		faults = append(faults, errors.New("base_url must be a http or https URL"))
	}
	if c.Timeout <= 0 {
		faults = append(faults, errors.New("timeout must be positive"))
	}
	if c.MaxResponseBytes <= 0 {
		faults = append(faults, errors.New("max_response_bytes must be positive"))
	}
	return errors.Join(faults...)
}

// Message is one message of a conversation; roles are system, developer, user and assistant.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Format asks for JSON. With a Schema the answer must fit it, without one any JSON object will do.
type Format struct {
	Name   string
	Schema json.RawMessage
	Strict bool
}

// Request is one call.
type Request struct {
	Model    string
	Messages []Message
	// MaxOutputTokens bounds the answer; 0 sends no limit.
	MaxOutputTokens int64
	// Temperature is left to the server if nil.
	Temperature *float64
	// Format is nil for plain text.
	Format *Format
	// Extra are further top-level fields of the request, by name, as JSON.
	Extra map[string]json.RawMessage
	// IdempotencyKey, if set, is sent as the header Idempotency-Key.
	IdempotencyKey string
}

// Usage is what a call used, in tokens. CachedInput is part of Input, and Reasoning of Output.
type Usage struct {
	Input       int64
	CachedInput int64
	Output      int64
	Reasoning   int64
	// Known is false if the server reported nothing.
	Known bool
}

// Response is an answer.
type Response struct {
	ID    string
	Model string
	Text  string
	// Refusal is what the model said in place of an answer, usually empty.
	Refusal string
	// FinishReason is stop, length, content_filter, or what else the server said.
	FinishReason string
	Usage        Usage
}

// Client calls one server. It is safe for concurrent use.
type Client struct {
	cfg     Config
	url     string
	client  *http.Client
	http    *http.Transport
	metrics metrics
	host    string
	port    int
	tel     *obs.Telemetry
}

// New returns a client for a valid configuration; it connects when first used. A nil tel means no
// telemetry.
func New(cfg Config, tel *obs.Telemetry) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, errs.New(errs.InvalidArgument, "LLM_CONFIG_INVALID", "llm: %v", err)
	}
	if tel == nil {
		tel = obs.Noop()
	}
	c := &Client{cfg: cfg, tel: tel}
	u, err := url.Parse(cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	c.host = u.Hostname()
	if c.port, err = strconv.Atoi(u.Port()); err != nil {
		c.port = map[string]int{"http": 80, "https": 443}[u.Scheme]
	}
	if c.metrics, err = newMetrics(tel.Meter(scope)); err != nil {
		return nil, err
	}
	c.http = &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        90 * time.Second,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: 64 << 10,
	}
	transport := otelhttp.NewTransport(boundedTransport{next: c.http, limit: int64(cfg.MaxResponseBytes)},
		otelhttp.WithTracerProvider(tel.TracerProvider), otelhttp.WithMeterProvider(tel.MeterProvider), otelhttp.WithPropagators(tel.Propagator))
	c.url = u.JoinPath("chat", "completions").String()
	c.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

// Close drops idle connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Chat returns the whole answer. Errors are *Error.
func (c *Client) Chat(ctx context.Context, req Request) (Response, error) {
	return c.observe(ctx, req, func(ctx context.Context) (_ Response, raw *http.Response, err error) {
		raw, err = c.post(ctx, req, false)
		if err != nil {
			return Response{}, raw, err
		}
		defer func() { err = errors.Join(err, raw.Body.Close()) }()
		out, err := decodeWhole(raw.Body)
		if err != nil {
			return Response{}, raw, err
		}
		if len(out.Choices) == 0 {
			return Response{}, raw, &Error{Class: Unknown, Code: "MALFORMED", Message: "the answer has no choice"}
		}
		first := out.Choices[0]
		return Response{
			ID: out.ID, Model: out.Model, Text: first.Message.Content, Refusal: first.Message.Refusal,
			FinishReason: first.FinishReason, Usage: out.Usage.report(),
		}, raw, nil
	})
}

// Stream is Chat with the text as it arrives: delta is called for each piece, in order, on the calling
// goroutine. An error from delta ends the call and is returned as the cause. A stream that breaks is an
// error, even after pieces were delivered.
func (c *Client) Stream(ctx context.Context, req Request, delta func(text string) error) (Response, error) {
	return c.observe(ctx, req, func(ctx context.Context) (_ Response, raw *http.Response, err error) {
		raw, err = c.post(ctx, req, true)
		if err != nil {
			return Response{}, raw, err
		}
		defer func() { err = errors.Join(err, raw.Body.Close()) }()
		var out Response
		var text []byte
		err = pieces(raw.Body, int(c.cfg.MaxResponseBytes)+1, func(chunk completion) error {
			if out.ID == "" {
				out.ID, out.Model = chunk.ID, chunk.Model
			}
			if used := chunk.Usage.report(); used.Known {
				out.Usage = used
			}
			if len(chunk.Choices) == 0 {
				return nil
			}
			first := chunk.Choices[0]
			if first.FinishReason != "" {
				out.FinishReason = first.FinishReason
			}
			out.Refusal += first.Delta.Refusal
			if first.Delta.Content == "" {
				return nil
			}
			text = append(text, first.Delta.Content...)
			if err := delta(first.Delta.Content); err != nil {
				return &Error{Class: Unknown, Code: "CANCELED", Message: "the reader of the stream gave up", Err: err}
			}
			return nil
		})
		if _, got := errors.AsType[*Error](err); err != nil && !got && ctx.Err() == nil && !errors.Is(err, errTooLarge) {
			err = &Error{Class: Unknown, Code: "TRUNCATED", Message: "the stream broke", Err: err}
		}
		if err != nil {
			return Response{}, raw, err
		}
		if out.FinishReason == "" {
			return Response{}, raw, &Error{Class: Unknown, Code: "TRUNCATED", Message: "the stream ended before the answer did"}
		}
		out.Text = string(text)
		return out, raw, nil
	})
}

// boundedTransport fails the reading of a response at its limit, so that no server can fill our memory.
type boundedTransport struct {
	next  http.RoundTripper
	limit int64
}

func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	res.Body = &boundedBody{ReadCloser: res.Body, left: t.limit}
	return res, nil
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

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
