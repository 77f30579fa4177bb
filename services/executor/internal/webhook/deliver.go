package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/retryafter"
	"github.com/epigraph-run/epigraph/services/executor/internal/egress"
	"github.com/epigraph-run/epigraph/services/executor/internal/places"
	"github.com/epigraph-run/epigraph/services/executor/internal/signature"
)

const scope = "github.com/epigraph-run/epigraph/services/executor/internal/webhook"

const (
	// MaxTries is how often a delivery is tried.
	MaxTries = 12
	// timeout bounds one try.
	timeout = 10 * time.Second
	// maxAnswer is how much of an answer is read, so that its connection can be used again.
	maxAnswer = 4 << 10
	// Places is how many deliveries are under way here at once, maxBusy how many of them are of one
	// namespace, so that receivers that are slow hold up their own namespace alone.
	Places  = 64
	maxBusy = 16
	// minPause and maxPause bound how long a delivery is put off for which there is no place.
	minPause, maxPause = 5 * time.Second, 10 * time.Minute
)

// pauses are those after each try but the last; together about a day.
var pauses = [MaxTries - 1]time.Duration{5 * time.Second, 15 * time.Second, time.Minute, 3 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 10 * time.Hour}

// Delivery is one message to one hook.
type Delivery struct {
	Hook    Hook
	Message Message
	// Trace is the trace of the run at the event.
	Trace trace.SpanContext
	// Said names the message of a chat that is delivered; empty for anything else. What was said in
	// Thread at a sequence below Before must have been sent first. Thread is empty for nothing.
	Said, Thread string
	Before       int64
}

// Outcome says what became of a try.
type Outcome string

// The outcomes.
const (
	// Delivered says that the receiver took it.
	Delivered Outcome = "delivered"
	// Again says that the delivery is to be retried after Verdict.Pause.
	Again Outcome = "again"
	// GivenUp says that it is not to be tried again.
	GivenUp Outcome = "given_up"
	// PutOff says that it was not tried to the end, and is to be after Verdict.Pause.
	PutOff Outcome = "put_off"
)

// Verdict is what became of a try, and why.
type Verdict struct {
	Outcome Outcome
	Pause   time.Duration
	// Err says why it was not delivered, without anything secret; nil if it was.
	Err error
}

// Options name the sender.
type Options struct {
	Logger         *slog.Logger
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	Propagator     propagation.TextMapPropagator
}

// Deliverer sends. It is safe for concurrent use.
type Deliverer struct {
	transport *http.Transport
	client    *http.Client
	log       *slog.Logger
	tracer    trace.Tracer
	tries     metric.Int64Counter
	places    *places.Places
}

// New returns a deliverer that reaches nothing that the guard refuses. All fields of o must be set.
func New(guard egress.Guard, o Options) (*Deliverer, error) {
	d := &Deliverer{transport: guard.Transport(), log: o.Logger, tracer: o.TracerProvider.Tracer(scope),
		places: places.New(places.Config{Total: Places, Each: maxBusy, MinPause: minPause, MaxPause: maxPause})}
	d.client = &http.Client{
		Transport: otelhttp.NewTransport(d.transport, otelhttp.WithTracerProvider(o.TracerProvider), otelhttp.WithMeterProvider(o.MeterProvider), otelhttp.WithPropagators(o.Propagator)),
		// A redirect is for the caller to follow, not for us.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	var err error
	d.tries, err = o.MeterProvider.Meter(scope).Int64Counter("epigraph.webhook.deliveries",
		metric.WithDescription("Tries to deliver to webhooks, by outcome: delivered, again, given_up, put_off."))
	if err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	return d, nil
}

// Close drops idle connections.
func (d *Deliverer) Close() { d.transport.CloseIdleConnections() }

// Enter takes a place for a delivery of a namespace, as [places.Places.Enter] does.
func (d *Deliverer) Enter(ctx context.Context, namespace string) (leave func(), pause time.Duration) {
	if leave, pause = d.places.Enter(namespace); leave == nil {
		d.count(ctx, PutOff)
	}
	return leave, pause
}

func (d *Deliverer) count(ctx context.Context, o Outcome) {
	d.tries.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", string(o))))
}

// Deliver makes the try of that number, counted from 1. The caller has a place: see Enter.
func (d *Deliverer) Deliver(ctx context.Context, x *Delivery, try int) Verdict {
	v := d.deliver(ctx, x, try)
	d.count(ctx, v.Outcome)
	attrs := []any{"delivery", x.Message.ID, "run_id", x.Message.RunID, "event", string(x.Message.Type), "host", x.Hook.Host(), "try", try}
	switch v.Outcome {
	case Delivered:
		d.log.DebugContext(ctx, "webhook delivered", attrs...)
	case Again:
		d.log.InfoContext(ctx, "webhook not delivered yet", append(attrs, "err", v.Err, "pause", v.Pause.String())...)
	case GivenUp:
		d.log.WarnContext(ctx, "webhook given up", append(attrs, "err", v.Err)...)
	case PutOff:
		d.log.DebugContext(ctx, "webhook put off", attrs...)
	}
	return v
}

func (d *Deliverer) deliver(ctx context.Context, x *Delivery, try int) Verdict {
	// The receiver's spans belong to the run; the job that caused the delivery is only linked.
	job := trace.LinkFromContext(ctx)
	if x.Trace.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, x.Trace)
	}
	ctx, span := d.tracer.Start(ctx, "webhook.deliver", trace.WithLinks(job), trace.WithAttributes(attribute.String("epigraph.run.id", x.Message.RunID),
		attribute.String("epigraph.webhook.event", string(x.Message.Type)), attribute.Int("epigraph.webhook.try", try)))
	defer span.End()
	wait, err := d.send(ctx, x)
	switch {
	case err == nil:
		return Verdict{Outcome: Delivered}
	case ctx.Err() != nil:
		return Verdict{Outcome: PutOff, Err: err} // we leave: that is no fault of the receiver
	}
	span.SetStatus(codes.Error, err.Error())
	switch {
	case wait < 0:
		return Verdict{Outcome: GivenUp, Err: err}
	case try >= MaxTries:
		return Verdict{Outcome: GivenUp, Err: fmt.Errorf("given up after %d tries: %w", try, err)}
	}
	return Verdict{Outcome: Again, Pause: max(wait, Pause(try)), Err: err}
}

// Pause is how long to wait after the try of that number, below MaxTries.
func Pause(try int) time.Duration {
	pause := pauses[min(max(try, 1), MaxTries-1)-1]
	// Deliveries that failed together need not come together again.
	return pause - pause/10 + rand.N(pause/5)
}

// never is the pause after a failure that will not change.
const never = -1

// send makes the request. With an error it returns how long the receiver wants to be left alone, or
// never.
func (d *Deliverer) send(ctx context.Context, x *Delivery) (time.Duration, error) {
	body, err := json.Marshal(&x.Message)
	if err != nil {
		return never, fmt.Errorf("the message has no JSON form: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.Hook.URL, bytes.NewReader(body))
	if err != nil {
		return never, errors.New("the address is none")
	}
	req.Header.Set("User-Agent", "epigraph")
	for k, v := range x.Hook.Headers {
		req.Header.Set(k, v)
	}
	now := time.Now()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(signature.HeaderID, x.Message.ID)
	req.Header.Set(signature.HeaderTime, strconv.FormatInt(now.Unix(), 10))
	signed, err := sign(x.Hook.Secret, x.Message.ID, now, body)
	if err != nil {
		return never, fmt.Errorf("the secret %w", err)
	}
	if signed != "" {
		req.Header.Set(signature.HeaderSignature, signed)
	}
	resp, err := d.client.Do(req)
	if err != nil {
		if r, ok := errors.AsType[*egress.Refusal](err); ok {
			return never, r
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return 0, fmt.Errorf("no answer within %v", timeout)
		}
		return 0, errors.New(egress.Words(err))
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
	return classify(resp)
}

// classify returns the consequence of an answer: see send.
func classify(resp *http.Response) (time.Duration, error) {
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return 0, nil
	case code >= 300 && code < 400:
		return never, fmt.Errorf("the receiver answered %d, which would lead elsewhere; redirects are not followed", code)
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests, code >= 500:
		return retryafter.Of(resp.Header), fmt.Errorf("the receiver answered %d", code)
	default:
		return never, fmt.Errorf("the receiver answered %d", code)
	}
}
