package http_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/actortest"
	actorhttp "github.com/epigraph-run/epigraph/services/executor/internal/actor/http"
	"github.com/epigraph-run/epigraph/workgraph"
)

func spec(t *testing.T, cfg actorhttp.Config) actor.Spec {
	t.Helper()
	s, err := actorhttp.Spec(cfg, tracenoop.NewTracerProvider(), propagation.TraceContext{})
	require.NoError(t, err)
	return s
}

func server(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func args(t *testing.T, kv ...any) string {
	t.Helper()
	m := map[string]any{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i].(string)] = kv[i+1]
	}
	b, err := json.Marshal(m)
	require.NoError(t, err)
	return string(b)
}

var loopback = actorhttp.Config{AllowPrivate: []string{"127.0.0.0/8"}}

func TestRequest(t *testing.T) {
	t.Parallel()
	echo := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_ = json.NewEncoder(w).Encode(map[string]string{
			"method": r.Method, "query": r.URL.RawQuery, "body": string(body), "key": r.Header.Get("Idempotency-Key"),
			"type": r.Header.Get("Content-Type"), "x": r.Header.Get("X-Test"),
		})
	})
	type answer struct {
		Status  int
		Headers map[string]string
		Body    map[string]string
	}
	do := func(t *testing.T, named string) answer {
		t.Helper()
		var a answer
		require.NoError(t, json.Unmarshal([]byte(actortest.Value(t, spec(t, loopback), named)), &a))
		return a
	}
	t.Run("Get/CarriesQueryAndHeaders", func(t *testing.T) {
		t.Parallel()
		a := do(t, args(t, "url", echo+"?a=1", "query", map[string]any{"n": 5, "s": "x y"}, "headers", map[string]string{"X-Test": "v"}))
		require.Equal(t, 200, a.Status)
		require.Equal(t, "a=1&n=5&s=x+y", a.Body["query"])
		require.Equal(t, "v", a.Body["x"])
		require.Empty(t, a.Body["key"], "a read needs no key")
	})
	t.Run("Post/CarriesJSONAndTheEffectKey", func(t *testing.T) {
		t.Parallel()
		a := do(t, args(t, "url", echo, "method", "POST", "json", map[string]int{"n": 1}))
		require.JSONEq(t, `{"n": 1}`, a.Body["body"])
		require.Equal(t, "application/json", a.Body["type"])
		require.Equal(t, "run_1/n/1/0/1", a.Body["key"])
	})
	t.Run("Put/TextIsSentAsItIs", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "raw {", do(t, args(t, "url", echo, "method", "put", "body", "raw {")).Body["body"])
	})
}

func TestEffect(t *testing.T) {
	t.Parallel()
	s := spec(t, loopback)
	for method, want := range map[string]workgraph.Effect{
		"": workgraph.Pure, "GET": workgraph.Pure, "HEAD": workgraph.Pure, "PUT": workgraph.Idempotent, "DELETE": workgraph.Idempotent,
		"POST": workgraph.Unsafe, "PATCH": workgraph.Unsafe,
	} {
		named := map[string]json.RawMessage{}
		if method != "" {
			named["method"] = json.RawMessage(strconv.Quote(method))
		}
		require.Equal(t, want, s.EffectOf(&workgraph.Node{Named: named}), method)
	}
	t.Run("ATravellingMethodCannotBeStrongerThanTheNode", func(t *testing.T) {
		t.Parallel()
		var called atomic.Bool
		url := server(t, func(http.ResponseWriter, *http.Request) { called.Store(true) })
		e := actortest.Fails(t, s, args(t, "url", url, "method", "POST"), func(s *workgraph.Start) { s.Effect, s.Own = workgraph.Pure, nil })
		require.Equal(t, actorhttp.ReasonEffectTooWeak, e.Reason)
		require.False(t, called.Load())
	})
	t.Run("ADeclaredEffectOfTheNodesOwnMethodHolds", func(t *testing.T) {
		t.Parallel()
		url := server(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || r.Header.Get("Idempotency-Key") == "" {
				w.WriteHeader(http.StatusBadRequest)
			}
		})
		declared := func(s *workgraph.Start) { s.Effect = workgraph.Idempotent }
		require.Contains(t, actortest.Value(t, s, args(t, "url", url, "method", "POST"), declared), `"status":200`)
	})
}

func TestAddress(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"http://127.0.0.1:1/", "http://localhost:1/", "http://[::1]:1/", "http://10.0.0.1/", "http://169.254.169.254/latest",
		"http://192.168.1.1/", "http://0.0.0.0:1/", "http://[::ffff:127.0.0.1]:1/", "http://100.64.0.1/", "http://[fd00::1]/",
		"http://2130706433/", "ftp://example.com/", "file:///etc/passwd", "gopher://127.0.0.1/",
	} {
		e := actortest.Fails(t, spec(t, actorhttp.Config{}), args(t, "url", url))
		require.Contains(t, []string{actorhttp.ReasonAddress, "ARGUMENTS_INVALID", actorhttp.ReasonConnection}, e.Reason, url)
		require.NotEqual(t, actorhttp.ReasonConnection, e.Reason, url)
	}
	t.Run("ARedirectIsHeldToTheSameRule", func(t *testing.T) {
		t.Parallel()
		var hidden atomic.Bool
		inner, err := net.Listen("tcp", "127.0.0.2:0")
		require.NoError(t, err)
		other := &httptest.Server{Listener: inner, Config: &http.Server{
			ReadHeaderTimeout: time.Second,
			Handler:           http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hidden.Store(true) }),
		}}
		other.Start()
		t.Cleanup(other.Close)
		url := server(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+inner.Addr().String()+"/", http.StatusFound)
		})
		e := actortest.Fails(t, spec(t, actorhttp.Config{AllowPrivate: []string{"127.0.0.1/32"}}), args(t, "url", url))
		require.Equal(t, actorhttp.ReasonAddress, e.Reason)
		require.False(t, hidden.Load())
	})
	t.Run("RedirectsAreCounted", func(t *testing.T) {
		t.Parallel()
		url := server(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/again", http.StatusFound) })
		require.Equal(t, actorhttp.ReasonRedirects, actortest.Fails(t, spec(t, loopback), args(t, "url", url)).Reason)
	})
	t.Run("AMistypedNetworkIsRefused", func(t *testing.T) {
		t.Parallel()
		require.ErrorContains(t, actorhttp.Config{AllowPrivate: []string{"10.0.0.1"}}.Validate(), "10.0.0.1")
	})
}

// TestRedirect holds what an answer may do with a request by leading it elsewhere.
func TestRedirect(t *testing.T) {
	t.Parallel()
	type seen struct {
		method string
		header http.Header
		body   string
	}
	record := func(t *testing.T) (string, *atomic.Pointer[seen]) {
		var last atomic.Pointer[seen]
		return server(t, func(_ http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			last.Store(&seen{r.Method, r.Header.Clone(), string(b)})
		}), &last
	}
	lead := func(t *testing.T, to string, code int) string {
		return server(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/here" {
				w.Header().Set("Saw", r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"))
				return
			}
			w.Header().Set("Location", to)
			w.WriteHeader(code)
		})
	}
	secrets := map[string]string{"Authorization": "Bearer s", "Cookie": "a=b", "X-Api-Key": "k", "X-Any": "v", "User-Agent": "mine"}
	t.Run("OtherHost/GetsNoneOfTheNodesHeaders", func(t *testing.T) {
		t.Parallel()
		url, last := record(t)
		// The other address is the same machine under the same name: the port makes it another's.
		actortest.Value(t, spec(t, loopback), args(t, "url", lead(t, url, http.StatusFound)+"/?key=s3cret", "headers", secrets))
		for _, name := range []string{"Authorization", "Cookie", "X-Api-Key", "X-Any", "Referer"} {
			require.Empty(t, last.Load().header.Values(name), name)
		}
		require.Equal(t, "epigraph", last.Load().header.Get("User-Agent"))
	})
	t.Run("OtherHost/AnIdempotentCallGoesOnWithoutItsKey", func(t *testing.T) {
		t.Parallel()
		url, last := record(t)
		actortest.Value(t, spec(t, loopback), args(t, "url", lead(t, url, http.StatusTemporaryRedirect), "method", "PUT", "json", 7, "headers", secrets))
		require.Equal(t, "PUT", last.Load().method)
		require.Equal(t, "7", last.Load().body)
		require.Equal(t, "application/json", last.Load().header.Get("Content-Type"))
		require.Empty(t, last.Load().header.Values("Idempotency-Key"))
		require.Empty(t, last.Load().header.Values("Authorization"))
	})
	t.Run("OtherHost/TheWayBackDoesNotBringThemBack", func(t *testing.T) {
		t.Parallel()
		var first, back atomic.Pointer[http.Header]
		home := httptest.NewUnstartedServer(nil)
		away := server(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+home.Listener.Addr().String()+"/back", http.StatusFound)
		})
		home.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := r.Header.Clone()
			if r.URL.Path == "/back" {
				back.Store(&h)
				return
			}
			first.Store(&h)
			http.Redirect(w, r, away, http.StatusFound)
		})
		home.Start()
		t.Cleanup(home.Close)
		actortest.Value(t, spec(t, loopback), args(t, "url", home.URL, "headers", secrets))
		require.Equal(t, "Bearer s", first.Load().Get("Authorization"))
		require.Empty(t, back.Load().Get("Authorization"))
		require.Empty(t, back.Load().Get("X-Any"))
	})
	t.Run("SameHost/KeepsThem", func(t *testing.T) {
		t.Parallel()
		v := actortest.Value(t, spec(t, loopback), args(t, "url", lead(t, "/here", http.StatusFound), "headers", secrets))
		require.Contains(t, v, `"saw":"Bearer sk"`)
	})
	for code, want := range map[int]workgraph.ErrorType{301: workgraph.Unknown, 302: workgraph.Unknown, 303: workgraph.Unknown, 307: workgraph.Permanent, 308: workgraph.Permanent} {
		t.Run("Unsafe/IsNotLedElsewhere/"+strconv.Itoa(code), func(t *testing.T) {
			t.Parallel()
			url, last := record(t)
			from := lead(t, url, code)
			e := actortest.Fails(t, spec(t, loopback), args(t, "url", from, "method", "POST", "body", "x"))
			require.Equal(t, actorhttp.ReasonRedirect, e.Reason)
			require.Equal(t, want, e.Type)
			require.Contains(t, e.Message, url)
			require.Contains(t, actortest.Value(t, spec(t, loopback), args(t, "url", from, "method", "POST", "body", "x", "expect_status", []int{code})), `"location":"`+url)
			require.Nil(t, last.Load())
		})
	}
	t.Run("Idempotent/ADeleteThatWouldBecomeAGetIsNoSuccess", func(t *testing.T) {
		t.Parallel()
		url, last := record(t)
		e := actortest.Fails(t, spec(t, loopback), args(t, "url", lead(t, url, http.StatusFound), "method", "DELETE"))
		require.Equal(t, actorhttp.ReasonRedirect, e.Reason)
		require.Equal(t, workgraph.Permanent, e.Type)
		require.Nil(t, last.Load())
	})
}

func TestFailure(t *testing.T) {
	t.Parallel()
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, "sorry\n\tnot now")
		}
	}
	for _, tt := range []struct {
		code         int
		read, unsafe workgraph.ErrorType
	}{
		{400, workgraph.Permanent, workgraph.Permanent}, {404, workgraph.Permanent, workgraph.Permanent},
		{429, workgraph.Retryable, workgraph.NotPerformed}, {500, workgraph.Retryable, workgraph.Unknown}, {503, workgraph.Retryable, workgraph.Unknown},
	} {
		t.Run("Status/"+strconv.Itoa(tt.code), func(t *testing.T) {
			t.Parallel()
			url := server(t, status(tt.code, "Retry-After", "7"))
			e := actortest.Fails(t, spec(t, loopback), args(t, "url", url))
			require.Equal(t, tt.read, e.Type)
			require.Contains(t, e.Message, "sorry not now")
			require.Equal(t, workgraph.Duration(7*time.Second), e.RetryAfter)
			require.Equal(t, tt.unsafe, actortest.Fails(t, spec(t, loopback), args(t, "url", url, "method", "POST")).Type)
		})
	}
	for _, code := range []int{200, 204, 304, 307} {
		t.Run("Status/UnexpectedSuccessIsUnknown/"+strconv.Itoa(code), func(t *testing.T) {
			t.Parallel()
			a := args(t, "url", server(t, status(code)), "expect_status", []int{201})
			require.Equal(t, workgraph.Permanent, actortest.Fails(t, spec(t, loopback), a).Type)
			a = args(t, "url", server(t, status(code)), "method", "POST", "expect_status", []int{201})
			require.Equal(t, workgraph.Unknown, actortest.Fails(t, spec(t, loopback), a).Type)
		})
	}
	t.Run("Status/MayBeExpected", func(t *testing.T) {
		t.Parallel()
		url := server(t, status(404))
		require.Contains(t, actortest.Value(t, spec(t, loopback), args(t, "url", url, "expect_status", []int{404})), `"status":404`)
	})
	t.Run("Connection/RefusedWasNotPerformed", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		e := actortest.Fails(t, spec(t, loopback), args(t, "url", "http://"+l.Addr().String(), "method", "POST"))
		require.Equal(t, workgraph.NotPerformed, e.Type)
		require.Equal(t, actorhttp.ReasonConnection, e.Reason)
	})
	t.Run("Connection/CutAfterSendingIsUnknown", func(t *testing.T) {
		t.Parallel()
		url := server(t, func(w http.ResponseWriter, r *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = c.Close()
			}
		})
		require.Equal(t, workgraph.Unknown, actortest.Fails(t, spec(t, loopback), args(t, "url", url, "method", "POST", "body", "x")).Type)
		require.Equal(t, workgraph.Retryable, actortest.Fails(t, spec(t, loopback), args(t, "url", url)).Type)
	})
	t.Run("Connection/AnUnsafeRequestIsSentOnce", func(t *testing.T) {
		t.Parallel()
		var posts atomic.Int32
		url := server(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if r.URL.Path == "/" || posts.Add(1) > 1 {
				return
			}
			if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
				_ = c.Close()
			}
		})
		// one transport, so that the second call could find the connection of the first
		s := spec(t, loopback)
		for range 3 {
			actortest.Value(t, s, args(t, "url", url, "method", "POST", "body", "x"))
		}
		require.Equal(t, workgraph.Unknown, actortest.Fails(t, s, args(t, "url", url+"/act", "method", "POST", "body", "x")).Type)
		require.EqualValues(t, 1, posts.Load())
	})
	t.Run("Size/ALongAnswerIsRefused", func(t *testing.T) {
		t.Parallel()
		url := server(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 2000)) })
		cfg := loopback
		cfg.MaxResponseBytes = 1000
		require.Equal(t, actorhttp.ReasonResponseSize, actortest.Fails(t, spec(t, cfg), args(t, "url", url)).Reason)
	})
	t.Run("Size/OnlyALargeAnswerAsksForRoom", func(t *testing.T) {
		t.Parallel()
		url := server(t, func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.URL.Query().Get("n"))
			if r.URL.Query().Get("unknown") == "" {
				w.Header().Set("Content-Length", strconv.Itoa(n))
			}
			_, _ = io.WriteString(w, strings.Repeat("x", n))
		})
		cfg := loopback
		cfg.MaxResponseBytes = 1 << 20
		a := spec(t, cfg)
		for _, tt := range []struct {
			name  string
			n     int
			query string
			asked []int64
			size  int
		}{
			{name: "Small", n: 1000, size: 1000},
			{name: "Large", n: 200_000, asked: []int64{200_000}, size: 200_000},
			{name: "OfUnknownLength", n: 200_000, query: "&unknown=1", asked: []int64{1<<20 + 1}, size: 200_000},
		} {
			var asked []int64
			ctx := actor.WithRoom(t.Context(), func(_ context.Context, n int64) error { asked = append(asked, n); return nil })
			var named map[string]json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(args(t, "url", url+"?n="+strconv.Itoa(tt.n)+tt.query)), &named))
			out, err := a.Actor.Call(ctx, workgraph.NewCall(workgraph.Start{Actor: a.Name, Own: named, Named: named, Effect: workgraph.Pure}, workgraph.CallOptions{}))
			require.NoError(t, err, tt.name)
			require.Equal(t, tt.asked, asked, tt.name)
			var got struct{ Body string }
			require.NoError(t, json.Unmarshal(out.Values[0], &got))
			require.Len(t, got.Body, tt.size, tt.name)
		}
		_, err := a.Actor.Call(actor.WithRoom(t.Context(), func(context.Context, int64) error { return context.Canceled }),
			workgraph.NewCall(workgraph.Start{Actor: a.Name, Named: map[string]json.RawMessage{"url": json.RawMessage(strconv.Quote(url + "?n=100000"))}}, workgraph.CallOptions{}))
		require.ErrorContains(t, err, "canceled")
	})
	t.Run("Size/ALongRequestIsRefused", func(t *testing.T) {
		t.Parallel()
		cfg := loopback
		cfg.MaxRequestBytes = 10
		require.Equal(t, actorhttp.ReasonRequestSize, actortest.Fails(t, spec(t, cfg), args(t, "url", "http://127.0.0.1:1", "method", "POST", "body", "01234567890")).Reason)
	})
	t.Run("Time/ASlowServerIsLeft", func(t *testing.T) {
		t.Parallel()
		url := server(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		cfg := loopback
		cfg.Timeout = 50 * time.Millisecond
		e := actortest.Fails(t, spec(t, cfg), args(t, "url", url))
		require.Equal(t, workgraph.Retryable, e.Type)
		require.Equal(t, workgraph.ReasonTimeout, e.Reason)
		require.Equal(t, workgraph.Unknown, actortest.Fails(t, spec(t, cfg), args(t, "url", url, "method", "POST")).Type)
	})
	for name, tt := range map[string]struct {
		method, path string
		want         workgraph.ErrorType
	}{
		"Read":              {"GET", "/", workgraph.Unknown},
		"Read/OfHalfABody":  {"GET", "/half", workgraph.Unknown},
		"Idempotent":        {"PUT", "/", workgraph.Unknown},
		"Unsafe/Sent":       {"POST", "/", workgraph.Unknown},
		"Unsafe/NeverBegun": {"POST", "", workgraph.NotPerformed},
	} {
		t.Run("Ended/WhoeverEndedTheCallNamesTheReason/"+name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			url := server(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/half" {
					_, _ = io.WriteString(w, "half")
					_ = http.NewResponseController(w).Flush()
				}
				cancel(errors.New("its time is over"))
				<-r.Context().Done()
			})
			if tt.path == "" {
				cancel(errors.New("its time is over"))
			}
			s := spec(t, loopback)
			named := map[string]json.RawMessage{"url": json.RawMessage(strconv.Quote(url + tt.path)), "method": json.RawMessage(strconv.Quote(tt.method))}
			_, err := s.Actor.Call(ctx, workgraph.NewCall(workgraph.Start{Actor: s.Name, Own: named, Named: named,
				Effect: s.EffectOf(&workgraph.Node{Named: named})}, workgraph.CallOptions{}))
			require.Equal(t, &workgraph.Error{Type: tt.want}, err)
		})
	}
	t.Run("Header/ABrokenOneIsRefused", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "ARGUMENTS_INVALID", actortest.Fails(t, spec(t, loopback), args(t, "url", "http://127.0.0.1:1", "headers", map[string]string{"X": "a\r\nY: b"})).Reason)
	})
}
