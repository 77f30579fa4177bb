package llm

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/genai"
	"github.com/epigraph-run/epigraph/internal/obs"
)

const scope = "github.com/epigraph-run/epigraph/internal/llm"

// observer makes the spans and metrics of calls, by the GenAI conventions.
type observer struct {
	tracer     trace.Tracer
	capture    bool
	duration   metric.Float64Histogram
	firstChunk metric.Float64Histogram
	tokens     metric.Int64Histogram
}

func newObserver(tel *obs.Telemetry, capture bool) (*observer, error) {
	o := &observer{tracer: tel.Tracer(scope), capture: capture}
	m := tel.Meter(scope)
	var err error
	if o.duration, err = m.Float64Histogram("gen_ai.client.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("Time a model call took."),
		metric.WithExplicitBucketBoundaries(.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)); err != nil {
		return nil, err
	}
	if o.firstChunk, err = m.Float64Histogram("gen_ai.client.operation.time_to_first_chunk", metric.WithUnit("s"),
		metric.WithDescription("Time to the first piece of a streamed answer."),
		metric.WithExplicitBucketBoundaries(.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 30, 60)); err != nil {
		return nil, err
	}
	o.tokens, err = m.Int64Histogram("gen_ai.client.token.usage", metric.WithUnit("{token}"),
		metric.WithDescription("Tokens a model call used, by type."),
		metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576))
	return o, err
}

// observe makes one call within the limits of time of its profile, in a span, and types its error. A response
// comes with an error as well: it may say what was used.
func (o *observer) observe(ctx context.Context, p *profile, req *Request, delta func(Delta) error) (*Response, error) {
	c := &observed{observer: o, start: time.Now()}
	ctx = c.begin(ctx, p, req)
	defer c.span.End()
	limited, stop := context.WithTimeout(context.WithValue(ctx, wireKey{}, &c.wire), p.cfg.Timeout)
	defer stop()
	limited, cancel := context.WithCancelCause(limited)
	defer cancel(nil)
	out := &Response{}
	var err error
	if delta == nil {
		*out, err = p.model.Generate(limited, *req)
	} else {
		err = c.stream(ctx, limited, cancel, p, req, out, delta)
	}
	if e := c.end(ctx, limited, out, err); e != nil {
		return out, e
	}
	return out, nil
}

// stream makes a call whose answer is streamed.
//
//go:noinline
func (c *observed) stream(ctx, limited context.Context, cancel context.CancelCauseFunc, p *profile, req *Request, out *Response, delta func(Delta) error) (err error) {
	pace := newPace(p.cfg, cancel)
	defer pace.stop()
	*out, err = p.model.Stream(limited, *req, func(d Delta) error {
		if pace.beat() {
			c.first(ctx)
		}
		if d.Text == "" && d.Call == nil {
			return nil
		}
		return delta(d)
	})
	return err
}

// observed is a call that is under way. What begins and ends it is not inlined: the stack of a call that
// waits for an answer is memory, and calls wait by the thousand.
type observed struct {
	*observer
	common []attribute.KeyValue
	span   trace.Span
	start  time.Time
	wire   wire
}

//go:noinline
func (c *observed) begin(ctx context.Context, p *profile, req *Request) context.Context {
	provider, _ := p.cfg.Booked(req.Model)
	label := p.label(req.Model)
	c.common = []attribute.KeyValue{
		genai.OperationName.String(p.operation()),
		attribute.String("gen_ai.provider.name", provider),
		attribute.String("gen_ai.request.model", label),
	}
	ctx, c.span = c.tracer.Start(ctx, p.operation()+" "+label, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(c.common...))
	c.span.SetAttributes(genai.AgentOf(ctx).Attributes()...)
	c.span.SetAttributes(attribute.String("gen_ai.request.model", errs.Clip(req.Model, maxWord)),
		attribute.String("epigraph.model.profile", p.name), attribute.Int64("gen_ai.request.max_tokens", req.MaxOutputTokens))
	if req.Temperature != nil {
		c.span.SetAttributes(attribute.Float64("gen_ai.request.temperature", *req.Temperature))
	}
	c.content(c.span, "gen_ai.input.messages", req.Messages)
	return ctx
}

// first notes the first piece of a stream.
func (c *observed) first(ctx context.Context) {
	took := time.Since(c.start).Seconds()
	c.firstChunk.Record(ctx, took, metric.WithAttributes(c.common...))
	c.span.SetAttributes(attribute.Float64("gen_ai.response.time_to_first_chunk", took))
}

// end notes the end of the call, whose context is limited, and classifies its error.
//
//go:noinline
func (c *observed) end(ctx, limited context.Context, out *Response, err error) error {
	if c.wire.host != "" {
		c.common = append(c.common, attribute.String("server.address", c.wire.host), attribute.Int("server.port", c.wire.port))
		c.span.SetAttributes(c.common[len(c.common)-2:]...)
	}
	if err != nil {
		e := classify(limited, err, &c.wire)
		kind := e.label()
		c.common = append(c.common, genai.ErrorType.String(kind))
		c.span.SetAttributes(genai.ErrorType.String(kind), attribute.String("epigraph.error.code", e.Code), attribute.String("epigraph.error.class", e.Class.String()))
		c.span.SetStatus(codes.Error, e.Message)
		c.duration.Record(ctx, time.Since(c.start).Seconds(), metric.WithAttributes(c.common...))
		return e
	}
	c.duration.Record(ctx, time.Since(c.start).Seconds(), metric.WithAttributes(c.common...))
	c.answered(ctx, c.span, c.common, out)
	return nil
}

// answered notes an answer.
func (o *observer) answered(ctx context.Context, span trace.Span, common []attribute.KeyValue, out *Response) {
	span.SetAttributes(
		attribute.String("gen_ai.response.id", out.ID), attribute.String("gen_ai.response.model", out.Model),
		attribute.StringSlice("gen_ai.response.finish_reasons", []string{out.FinishReason}))
	if out.Usage.Known {
		span.SetAttributes(
			attribute.Int64("gen_ai.usage.input_tokens", out.Usage.Input),
			attribute.Int64("gen_ai.usage.cache_read.input_tokens", out.Usage.CachedInput),
			attribute.Int64("gen_ai.usage.output_tokens", out.Usage.Output),
			attribute.Int64("gen_ai.usage.reasoning.output_tokens", out.Usage.Reasoning))
		for kind, n := range map[string]int64{"input": out.Usage.Input, "output": out.Usage.Output} {
			o.tokens.Record(ctx, n, metric.WithAttributes(append(common[:len(common):len(common)], attribute.String("gen_ai.token.type", kind))...))
		}
	}
	o.content(span, "gen_ai.output.messages", []Message{out.Message})
}

// maxContent bounds the messages in an attribute of a span, in bytes before they are JSON.
const maxContent = 64 << 10

// content records messages: the newest ones as far as they fit, of the one that does not fit the beginning of
// its text, and how many are left out.
func (o *observer) content(span trace.Span, key string, messages []Message) {
	if !o.capture || !span.IsRecording() {
		return
	}
	left := maxContent
	first := len(messages)
	var cut *Message
	for first > 0 && cut == nil && left > 0 {
		m := &messages[first-1]
		if n := m.size(); n > left {
			cut = &Message{Role: m.Role, Content: errs.Clip(m.Content, left), ToolCallID: errs.Clip(m.ToolCallID, maxWord), IsError: m.IsError}
		} else {
			left -= n
		}
		first--
	}
	told := slices.Clone(messages[first:])
	if cut != nil {
		told[0] = *cut
	}
	b, err := json.Marshal(told)
	if err != nil {
		return
	}
	span.SetAttributes(attribute.String(key, string(b)))
	if first > 0 {
		span.SetAttributes(attribute.Int(key+".omitted", first))
	}
}

// pace ends a stream that does not begin in time, or stops in the middle.
type pace struct {
	cancel context.CancelCauseFunc
	first  *time.Timer
	idle   *time.Timer
	limit  time.Duration
	began  bool
}

func newPace(cfg Profile, cancel context.CancelCauseFunc) *pace {
	p := &pace{cancel: cancel, limit: cfg.IdleTimeout}
	if cfg.FirstTokenTimeout > 0 {
		p.first = time.AfterFunc(cfg.FirstTokenTimeout, func() { cancel(errFirstToken) })
	}
	return p
}

// beat notes a piece of the answer, and reports whether it is the first.
func (p *pace) beat() (first bool) {
	first = !p.began
	p.began = true
	if p.first != nil {
		p.first.Stop()
	}
	switch {
	case p.limit <= 0:
	case p.idle == nil:
		p.idle = time.AfterFunc(p.limit, func() { p.cancel(errIdle) })
	default:
		p.idle.Reset(p.limit)
	}
	return first
}

func (p *pace) stop() {
	if p.first != nil {
		p.first.Stop()
	}
	if p.idle != nil {
		p.idle.Stop()
	}
}
