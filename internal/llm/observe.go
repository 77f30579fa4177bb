package llm

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

const scope = "github.com/epigraph-run/epigraph/internal/llm"

type metrics struct {
	duration metric.Float64Histogram
	tokens   metric.Int64Histogram
}

func newMetrics(m metric.Meter) (out metrics, err error) {
	out.duration, err = m.Float64Histogram("gen_ai.client.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("Time a model call took."),
		metric.WithExplicitBucketBoundaries(.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92))
	if err != nil {
		return out, err
	}
	out.tokens, err = m.Int64Histogram("gen_ai.client.token.usage", metric.WithUnit("{token}"),
		metric.WithDescription("Tokens a model call used, by type."),
		metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576))
	return out, err
}

// observe runs one call under the time limit, in a span by the GenAI conventions, and types its error.
func (c *Client) observe(ctx context.Context, req Request, call func(context.Context) (Response, *http.Response, error)) (Response, error) {
	common := []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", "chat"),
		attribute.String("gen_ai.provider.name", c.cfg.Provider),
		attribute.String("gen_ai.request.model", req.Model),
		attribute.String("server.address", c.host),
		attribute.Int("server.port", c.port),
	}
	ctx, span := c.tel.Tracer(scope).Start(ctx, "chat "+req.Model, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(common...))
	defer span.End()
	if req.MaxOutputTokens > 0 {
		span.SetAttributes(attribute.Int64("gen_ai.request.max_tokens", req.MaxOutputTokens))
	}
	if req.Temperature != nil {
		span.SetAttributes(attribute.Float64("gen_ai.request.temperature", *req.Temperature))
	}
	c.content(span, "gen_ai.input.messages", req.Messages)

	start := time.Now()
	bounded, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	out, raw, err := call(bounded) //nolint:bodyclose // the client has read and closed the body; raw is for status and headers
	if err != nil {
		e := classify(ctx, err, raw)
		common = append(common, attribute.String("error.type", e.Code))
		span.SetAttributes(attribute.String("error.type", e.Code), attribute.String("epigraph.error.class", e.Class.String()))
		span.SetStatus(codes.Error, e.Message)
		c.metrics.duration.Record(ctx, time.Since(start).Seconds(), metric.WithAttributes(common...))
		return Response{}, e
	}
	c.metrics.duration.Record(ctx, time.Since(start).Seconds(), metric.WithAttributes(common...))
	span.SetAttributes(
		attribute.String("gen_ai.response.id", out.ID), attribute.String("gen_ai.response.model", out.Model),
		attribute.StringSlice("gen_ai.response.finish_reasons", []string{out.FinishReason}))
	if out.Usage.Known {
		span.SetAttributes(
			attribute.Int64("gen_ai.usage.input_tokens", out.Usage.Input),
			attribute.Int64("gen_ai.usage.output_tokens", out.Usage.Output))
		c.metrics.tokens.Record(ctx, out.Usage.Input, metric.WithAttributes(append(common, attribute.String("gen_ai.token.type", "input"))...))
		c.metrics.tokens.Record(ctx, out.Usage.Output, metric.WithAttributes(append(common, attribute.String("gen_ai.token.type", "output"))...))
	}
	c.content(span, "gen_ai.output.messages", []Message{{Role: "assistant", Content: out.Text}})
	return out, nil
}

func (c *Client) content(span trace.Span, key string, messages []Message) {
	if !c.cfg.CaptureContent || !span.IsRecording() {
		return
	}
	b, err := json.Marshal(messages)
	if err != nil {
		return
	}
	span.SetAttributes(attribute.String(key, string(b)))
}
