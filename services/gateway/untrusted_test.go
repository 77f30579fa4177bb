package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/extent"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/gateway"
)

const mib = 1 << 20

// allocated is how many bytes f allocates, in the whole process.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// guarded is a gateway with keys for the namespaces a and b.
func guarded(t *testing.T, mebibytes int64) (*rig, *inflight.Budget) {
	t.Helper()
	budget := inflight.New(mebibytes * mib)
	r := start(t, options{
		config: func(c *gateway.Config) {
			c.Keys = []grpckit.APIKey{{Name: "ada", Namespace: "a", Secret: conf.NewSecret("key-a")}, {Name: "bob", Namespace: "b", Secret: conf.NewSecret("key-b")}}
		},
		deps: func(d *gateway.Deps) { d.Budget = budget },
	})
	r.executor.start = func(context.Context, *executorv1.StartRunRequest) (*executorv1.Run, error) {
		return &executorv1.Run{Id: "run_1"}, nil
	}
	return r, budget
}

// list is a JSON list of about n bytes of an element again and again.
func list(element string, n int) string {
	return "[" + strings.Repeat(element+",", max(n/(len(element)+1)-1, 0)) + element + "]"
}

// TestUntrusted attacks the gateway as callers without a key, and with one, would. It runs alone, since it
// measures the memory of the process.
func TestUntrusted(t *testing.T) {
	// Attacks are as large as a request may be; under the race detector they still have more elements than
	// one may have.
	large := 8*mib - 64
	if testkit.Slower > 1 {
		large = 2 * mib
	}
	nodes := `{"graph":{"nodes":` + list("{}", large) + `}}`
	t.Run("NoKey/AnswersBeforeTheBody", func(t *testing.T) {
		r, _ := guarded(t, 512)
		for name, head := range map[string]string{
			"Length":   "Content-Length: 1000\r\n",
			"Chunked":  "Transfer-Encoding: chunked\r\n",
			"Large":    "Content-Length: 8000000\r\n",
			"Expected": "Content-Length: 1000\r\nExpect: 100-continue\r\n",
		} {
			t.Run(name, func(t *testing.T) {
				conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
				require.NoError(t, err)
				defer conn.Close()
				// shorter than the time for a body
				require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
				_, err = fmt.Fprintf(conn, "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s\r\n", head)
				require.NoError(t, err)
				in := bufio.NewReader(conn)
				res, err := http.ReadResponse(in, nil)
				require.NoError(t, err)
				b, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				require.Equal(t, "CREDENTIALS_MISSING", parseError(t, http.StatusUnauthorized, res.Header, string(b)).Reason)
				_, err = in.ReadByte()
				require.ErrorIs(t, err, io.EOF, "the connection is given up")
			})
		}
	})
	t.Run("NoKey/AClientThatSendsAllFirstReadsTheAnswer", func(t *testing.T) {
		r, _ := guarded(t, 512)
		for _, size := range []int{10, 100 << 10} {
			res := r.call(t, "POST", "/v1/runs", `{"args":["`+strings.Repeat("x", size)+`"]}`)
			require.Equal(t, "CREDENTIALS_MISSING", res.error(t).Reason)
		}
	})
	t.Run("NoKey/CostsNothing", func(t *testing.T) {
		r, _ := guarded(t, 512)
		raw := []byte(nodes)
		got := allocated(func() {
			for range 5 {
				conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
				require.NoError(t, err)
				_, err = fmt.Fprintf(conn, "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(nodes))
				require.NoError(t, err)
				res, err := http.ReadResponse(bufio.NewReader(conn), nil)
				require.NoError(t, err)
				require.Equal(t, http.StatusUnauthorized, res.StatusCode)
				_, _ = conn.Write(raw) // the answer is there already
				require.NoError(t, conn.Close())
			}
		})
		require.Less(t, got, uint64(16*mib))
	})
	for name, n := range map[string]int{"One": 1, "ThreeAtOnce": 3, "ThirtyAtOnce": 30} {
		t.Run("Key/EmptyNodes/"+name, func(t *testing.T) {
			r, budget := guarded(t, 512)
			r.executor.start = nil // nothing comes as far as that
			got := allocated(func() {
				var wg sync.WaitGroup
				for range n {
					wg.Go(func() {
						res := r.call(t, "POST", "/v1/runs", nodes, "Authorization", "Bearer key-a")
						switch e := res.error(t); e.Reason {
						case "REPEATED_MAX_ITEMS":
							if e.Violations[0].Field != "graph.nodes[100000]" {
								t.Errorf("got %+v", e)
							}
						case inflight.ReasonBusy:
							if res.header.Get("Retry-After") != "1" {
								t.Errorf("got %+v", res)
							}
						default:
							t.Errorf("got %+v", e)
						}
					})
				}
				wg.Wait()
			})
			require.Less(t, got, uint64(n)*32*mib+16*mib, "both sides; the nodes of each would be 1.5 GB in gateway and executor")
			require.Zero(t, budget.Used())
		})
	}
	for name, body := range map[string]struct {
		body, reason string
		budget       int64
	}{
		"Entries":     {`{"graph":{"state":{"a":{"initial":1}` + keys(600_000, `{}`) + `}}}`, extent.ReasonTooMany, 512},
		"Payloads":    {`{"args":` + list("1", large) + `}`, "REPEATED_MAX_ITEMS", 512},
		"NodeArgs":    {`{"graph":{"nodes":[{"args":` + list("1", large) + `}]}}`, extent.ReasonTooMany, 512},
		"States":      {`{"filter":{"states":` + list("1", large) + `}}`, "UNKNOWN_FIELD", 512},
		"Unknown":     {`{"a":1` + keys(700_000, "1") + `}`, "UNKNOWN_FIELD", 512},
		"PayloadKeys": {`{"graph":{},"context":{"a":1` + keys(700_000, "1") + `}}`, inflight.ReasonTooLarge, 96},
		"Faults":      {`{"args":` + list("9007199254740993", 16_000) + `}`, "INTEGER_TOO_LARGE_FOR_JSON", 512},
	} {
		t.Run("Key/"+name, func(t *testing.T) {
			r, budget := guarded(t, body.budget)
			got := allocated(func() {
				res := r.call(t, "POST", "/v1/runs", body.body, "Authorization", "Bearer key-a")
				require.Equal(t, body.reason, res.error(t).Reason, "%.400s", res.body)
			})
			require.Less(t, got, uint64(160*mib))
			require.Zero(t, budget.Used())
		})
	}
	t.Run("Key/CompressedIsRefusedBeforeTheBody", func(t *testing.T) {
		r, _ := guarded(t, 512)
		res := r.call(t, "POST", "/v1/runs", "x", "Authorization", "Bearer key-a", "Content-Encoding", "gzip")
		require.Equal(t, "UNSUPPORTED_MEDIA_TYPE", res.error(t).Reason)
	})
	t.Run("Key/LargePayloadsPass", func(t *testing.T) {
		r, budget := guarded(t, 512)
		for _, payload := range []string{`"` + strings.Repeat("x", 4*mib) + `"`, list(`{"id":1,"v":[2,3]}`, 4*mib), list("1", 4*mib)} {
			res := r.call(t, "POST", "/v1/runs", `{"graph":{},"context":`+payload+`}`, "Authorization", "Bearer key-a")
			require.Equal(t, 200, res.status, res.body)
		}
		require.Zero(t, budget.Used())
	})
	t.Run("Key/ANamespaceThatHoldsItsShareHindersNoOther", func(t *testing.T) {
		r, budget := guarded(t, 128)
		entered, leave := make(chan struct{}), make(chan struct{})
		r.executor.start = func(ctx context.Context, req *executorv1.StartRunRequest) (*executorv1.Run, error) {
			if req.GetTaskId() == "hold" {
				entered <- struct{}{}
				<-leave
			}
			return &executorv1.Run{Id: "run_1"}, nil
		}
		big := func(task string) string {
			return `{"graph":{},"taskId":"` + task + `","context":"` + strings.Repeat("x", 3*mib) + `"}`
		}
		post := func(key, body string) reply {
			return r.call(t, "POST", "/v1/runs", body, "Authorization", "Bearer "+key)
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if res := post("key-a", big("hold")); res.status != 200 {
					t.Errorf("got %+v", res)
				}
			})
			<-entered
		}
		res := post("key-a", big(""))
		require.Equal(t, inflight.ReasonBusy, res.error(t).Reason)
		require.Equal(t, http.StatusTooManyRequests, res.status)
		require.Equal(t, "1", res.header.Get("Retry-After"))
		for _, key := range []string{"key-a", "key-b"} {
			require.Equal(t, 200, post(key, `{"graph":{}}`).status, "a trivial request always passes")
		}
		require.Equal(t, 200, post("key-b", big("")).status)
		close(leave)
		wg.Wait()
		require.Equal(t, 200, post("key-a", big("")).status)
		require.Zero(t, budget.Used())
	})
}

// keys are n members of a JSON object, each after a comma.
func keys(n int, value string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%x":%s`, i, value)
	}
	return b.String()
}
