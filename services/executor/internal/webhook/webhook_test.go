package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/services/executor/internal/egress"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const secret = "a secret of this length"

func TestCheck(t *testing.T) {
	t.Parallel()
	good := Hook{URL: "https://example.com:8443/hook?x=1", Events: []Event{RunPaused, RunEnded}, Headers: map[string]string{"authorization": "Bearer x"}, Secret: secret}
	with := func(change func(*Hook)) []Hook {
		h := good
		change(&h)
		return []Hook{good, h}
	}
	many := map[string]string{}
	for i := range 17 {
		many[fmt.Sprint("x-", i)] = "v"
	}
	require.NoError(t, Check([]Hook{good, {URL: "http://example.com"}, {URL: "https://[2001:4860:4860::8888]/"}}, egress.Guard{}))
	require.NoError(t, Check(with(func(h *Hook) { h.Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" }), egress.Guard{}))
	require.NoError(t, Check(nil, egress.Guard{}))
	for name, c := range map[string]struct {
		hooks         []Hook
		place, reason string
	}{
		"Scheme":       {with(func(h *Hook) { h.URL = "ftp://example.com" }), "webhooks[1].url", ReasonInvalid},
		"NoScheme":     {with(func(h *Hook) { h.URL = "example.com/hook" }), "webhooks[1].url", ReasonInvalid},
		"NoHost":       {with(func(h *Hook) { h.URL = "https:///x" }), "webhooks[1].url", ReasonInvalid},
		"Opaque":       {with(func(h *Hook) { h.URL = "https:example.com" }), "webhooks[1].url", ReasonInvalid},
		"Port":         {with(func(h *Hook) { h.URL = "https://example.com:99999/" }), "webhooks[1].url", ReasonInvalid},
		"User":         {with(func(h *Hook) { h.URL = "https://u:p@example.com/" }), "webhooks[1].url", ReasonInvalid},
		"Fragment":     {with(func(h *Hook) { h.URL = "https://example.com/#x" }), "webhooks[1].url", ReasonInvalid},
		"Control":      {with(func(h *Hook) { h.URL = "https://example.com/\n" }), "webhooks[1].url", ReasonInvalid},
		"Long":         {with(func(h *Hook) { h.URL = "https://example.com/" + strings.Repeat("x", 2048) }), "webhooks[1].url", ReasonInvalid},
		"Private":      {with(func(h *Hook) { h.URL = "http://169.254.169.254/" }), "webhooks[1].url", ReasonAddress},
		"Localhost":    {with(func(h *Hook) { h.URL = "http://localhost:8080/" }), "webhooks[1].url", ReasonAddress},
		"Event":        {with(func(h *Hook) { h.Events = []Event{"run.started"} }), "webhooks[1].events", ReasonInvalid},
		"Header":       {with(func(h *Hook) { h.Headers = map[string]string{"a b": "x"} }), "webhooks[1].headers", ReasonInvalid},
		"HeaderValue":  {with(func(h *Hook) { h.Headers = map[string]string{"a": "x\r\ny: z"} }), "webhooks[1].headers", ReasonInvalid},
		"HeaderOurs":   {with(func(h *Hook) { h.Headers = map[string]string{"webhook-id": "x"} }), "webhooks[1].headers", ReasonInvalid},
		"HeaderHost":   {with(func(h *Hook) { h.Headers = map[string]string{"host": "x"} }), "webhooks[1].headers", ReasonInvalid},
		"HeaderTwice":  {with(func(h *Hook) { h.Headers = map[string]string{"x-a": "1", "X-A": "2"} }), "webhooks[1].headers", ReasonInvalid},
		"HeadersMany":  {with(func(h *Hook) { h.Headers = many }), "webhooks[1].headers", ReasonInvalid},
		"HeadersLarge": {with(func(h *Hook) { h.Headers = map[string]string{"x": strings.Repeat("x", 8192)} }), "webhooks[1].headers", ReasonInvalid},
		"SecretShort":  {with(func(h *Hook) { h.Secret = "short" }), "webhooks[1].secret", ReasonInvalid},
		"SecretCoded":  {with(func(h *Hook) { h.Secret = "whsec_not base64 at all" }), "webhooks[1].secret", ReasonInvalid},
		"SecretWeak":   {with(func(h *Hook) { h.Secret = "whsec_AAAA" }), "webhooks[1].secret", ReasonInvalid},
		"Many":         {slices.Repeat([]Hook{{URL: "https://example.com"}}, 9), "webhooks", ReasonInvalid},
		"Large":        {slices.Repeat([]Hook{{URL: "https://example.com", Headers: map[string]string{"x": strings.Repeat("x", 4000)}}}, 8), "webhooks", ReasonInvalid},
	} {
		t.Run("Refused/"+name, func(t *testing.T) {
			err := Check(c.hooks, egress.Guard{})
			require.True(t, errs.Is(err, errs.InvalidArgument), "%v", err)
			require.Equal(t, c.reason, errs.ReasonOf(err))
			e := errs.From(err)
			require.Len(t, e.Violations, 1, "%v", e.Violations)
			require.Equal(t, c.place, e.Violations[0].Field)
			require.NotContains(t, err.Error()+fmt.Sprint(e.Violations), "p@example")
		})
	}
	t.Run("Refused/AllAtOnce", func(t *testing.T) {
		err := Check([]Hook{{URL: "x", Secret: "y"}, {URL: "ftp://z"}}, egress.Guard{})
		require.Len(t, errs.From(err).Violations, 3)
	})
}

func TestHook(t *testing.T) {
	t.Parallel()
	h := Hook{URL: "https://example.com/path?token=hidden", Headers: map[string]string{"authorization": "hidden"}, Secret: "hidden"}
	t.Run("Print/HidesWhatIsSecret", func(t *testing.T) {
		var b bytes.Buffer
		slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "hook", h, "hooks", fmt.Sprint([]Hook{h}), "go", fmt.Sprintf("%#v %+v", h, &h))
		require.NotContains(t, b.String(), "hidden")
		require.Contains(t, b.String(), "example.com")
	})
	t.Run("Without/LeavesTheOriginal", func(t *testing.T) {
		out := Without([]Hook{h})
		require.Equal(t, []Hook{{URL: h.URL}}, out)
		require.Equal(t, "hidden", h.Secret)
	})
	t.Run("Wants/EndsByDefault", func(t *testing.T) {
		hooks := []Hook{{}, {Events: []Event{RunPaused}}, {Events: []Event{RunPaused, RunEnded, InterruptOpened}}}
		require.Equal(t, []int{0, 2}, Wanting(hooks, RunEnded))
		require.Equal(t, []int{1, 2}, Wanting(hooks, RunPaused))
		require.Equal(t, []int{2}, Wanting(hooks, InterruptOpened))
	})
	t.Run("Args/HoldNothingSecret", func(t *testing.T) {
		a := Args{Namespace: "acme", RunID: "run_1", Event: RunEnded, Seq: 7, Hook: 1}
		require.Equal(t, "run_1/7/1", a.ID())
		require.Equal(t, "run_1", a.Holder())
		got, err := DecodeArgs(a.Job().Args)
		require.NoError(t, err)
		require.Equal(t, a, got)
		q := Args{RunID: "run_2", Seq: 3, Hook: 0, Of: "run_1", InterruptID: "int_1"}
		require.Equal(t, "int_1/0", q.ID())
		require.Equal(t, "run_1", q.Holder())
		_, err = DecodeArgs([]byte("[]"))
		require.True(t, errs.Is(err, errs.InvalidArgument))
	})
}

// receiver answers as set and keeps the requests.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	answer http.HandlerFunc
	got    []*http.Request
	bodies [][]byte
}

func receive(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.got, r.bodies = append(r.got, req), append(r.bodies, body)
		answer := r.answer
		r.mu.Unlock()
		if answer != nil {
			answer(w, req)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answers(f http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer, r.got, r.bodies = f, nil, nil
}

func deliverer(t *testing.T, allow ...string) *Deliverer {
	t.Helper()
	g, err := egress.NewGuard(allow)
	require.NoError(t, err)
	d, err := New(g, Options{Logger: testkit.Logger(t), TracerProvider: sdktrace.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider(), Propagator: propagation.TraceContext{}})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

func message() Message {
	return Message{ID: "run_1/7/0", Type: RunEnded, Namespace: "acme", RunID: "run_1", RootRunID: "run_1", Sequence: 7, Time: time.Now().UTC(),
		State: "RUN_STATE_COMPLETED", Result: json.RawMessage(`{"n":9007199254740993}`), Labels: map[string]string{"team": "blue"}, Link: "/v1/runs/run_1"}
}

func TestDeliver(t *testing.T) {
	t.Parallel()
	r := receive(t)
	d := deliverer(t, "all")
	x := &Delivery{Hook: Hook{URL: r.URL + "/hook?a=b", Headers: map[string]string{"authorization": "Bearer x"}, Secret: secret}, Message: message(),
		Trace: trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true})}
	t.Run("Request/IsSignedAndTraced", func(t *testing.T) {
		r.answers(nil)
		require.Equal(t, Verdict{Outcome: Delivered}, d.Deliver(t.Context(), x, 1))
		require.Len(t, r.got, 1)
		req := r.got[0]
		require.Equal(t, "/hook?a=b", req.URL.String())
		require.Equal(t, "run_1/7/0", req.Header.Get("webhook-id"))
		require.Equal(t, "Bearer x", req.Header.Get("authorization"))
		require.Equal(t, "application/json", req.Header.Get("content-type"))
		require.Contains(t, req.Header.Get("traceparent"), trace.TraceID{1}.String())
		m, err := epigraph.VerifyWebhook(secret, req.Header, r.bodies[0])
		require.NoError(t, err)
		require.Equal(t, x.Message.Result, m.Result)
		require.Equal(t, x.Message.Labels, m.Labels)
		require.True(t, x.Message.Time.Equal(m.Time))
		_, err = epigraph.VerifyWebhook("another secret of length", req.Header, r.bodies[0])
		require.ErrorIs(t, err, epigraph.ErrWebhookSignature)
	})
	t.Run("Request/NotSignedWithoutSecret", func(t *testing.T) {
		r.answers(nil)
		y := *x
		y.Hook.Secret = ""
		require.Equal(t, Delivered, d.Deliver(t.Context(), &y, 1).Outcome)
		require.Empty(t, r.got[0].Header.Get("webhook-signature"))
	})
	for code, want := range map[int]Outcome{200: Delivered, 202: Delivered, 204: Delivered, 301: GivenUp, 302: GivenUp, 307: GivenUp, 400: GivenUp, 401: GivenUp,
		404: GivenUp, 410: GivenUp, 408: Again, 425: Again, 429: Again, 500: Again, 503: Again} {
		t.Run(fmt.Sprint("Status/", code), func(t *testing.T) {
			r.answers(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(code)
			})
			v := d.Deliver(t.Context(), x, 1)
			require.Equal(t, want, v.Outcome, "%v", v.Err)
			require.Len(t, r.got, 1, "nothing else is asked")
			if want == Again {
				require.InDelta(t, 5*time.Second, v.Pause, float64(time.Second))
			}
		})
	}
	t.Run("Pause/IsTheReceiversIfLonger", func(t *testing.T) {
		r.answers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "120")
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		require.Equal(t, 2*time.Minute, d.Deliver(t.Context(), x, 1).Pause)
		require.Greater(t, d.Deliver(t.Context(), x, 5).Pause, 8*time.Minute)
	})
	t.Run("Pause/GrowsUntilItIsGivenUp", func(t *testing.T) {
		r.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
		var sum time.Duration
		for try := 1; try < MaxTries; try++ {
			v := d.Deliver(t.Context(), x, try)
			require.Equal(t, Again, v.Outcome)
			sum += v.Pause
		}
		require.InDelta(t, 24*time.Hour, sum, float64(4*time.Hour))
		v := d.Deliver(t.Context(), x, MaxTries)
		require.Equal(t, GivenUp, v.Outcome)
		require.ErrorContains(t, v.Err, "12 tries")
	})
	t.Run("Answer/IsNotReadForEver", func(t *testing.T) {
		done := make(chan struct{})
		r.answers(func(w http.ResponseWriter, req *http.Request) {
			defer close(done)
			for {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil || req.Context().Err() != nil {
					return
				}
			}
		})
		require.Equal(t, Delivered, d.Deliver(t.Context(), x, 1).Outcome)
		<-done
	})
	t.Run("Stop/IsNoFaultOfTheReceiver", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r.answers(func(_ http.ResponseWriter, req *http.Request) {
			cancel()
			<-req.Context().Done()
		})
		require.Equal(t, PutOff, d.Deliver(ctx, x, 3).Outcome)
	})
	t.Run("Error/TellsNoAddress", func(t *testing.T) {
		y := *x
		y.Hook.URL = "http://127.0.0.1:1/hidden?token=hidden"
		v := d.Deliver(t.Context(), &y, 1)
		require.Equal(t, Again, v.Outcome)
		require.NotContains(t, v.Err.Error(), "hidden")
	})
}

func TestDeliverGuarded(t *testing.T) {
	t.Parallel()
	r := receive(t)
	d := deliverer(t)
	v := d.Deliver(t.Context(), &Delivery{Hook: Hook{URL: strings.Replace(r.URL, "127.0.0.1", "localhost", 1)}, Message: message()}, 1)
	require.Equal(t, GivenUp, v.Outcome)
	var refusal *egress.Refusal
	require.ErrorAs(t, v.Err, &refusal)
	require.Empty(t, r.got)
}

func FuzzCheck(f *testing.F) {
	f.Add("https://example.com/x", "authorization", "Bearer x", secret)
	f.Add("http://[::1]:80/", "x", "y", "whsec_AAAA")
	f.Fuzz(func(t *testing.T, url, name, value, secret string) {
		h := []Hook{{URL: url, Headers: map[string]string{name: value}, Secret: secret}}
		if Check(h, egress.Guard{}) != nil {
			return
		}
		// An accepted value can be sent.
		req, err := http.NewRequest(http.MethodPost, url, http.NoBody)
		require.NoError(t, err)
		require.NotEmpty(t, req.URL.Host)
		_, err = sign(secret, "x", time.Now(), nil)
		require.NoError(t, err)
	})
}
