package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// liveMessage is what these tests read of a message of the live door.
type liveMessage struct {
	Type   string
	Cursor string
	Data   struct{ Title, Reason string }
}

// liveDial connects to a gateway with a key and subscribes to a channel, from a cursor if there is one.
func liveDial(ctx context.Context, url, key, channel, from string) (*websocket.Conn, error) {
	o := &websocket.DialOptions{HTTPHeader: map[string][]string{"Authorization": {"Bearer " + key}}}
	conn, res, err := websocket.Dial(ctx, strings.Replace(url, "http", "ws", 1)+"/v1/live", o)
	if err != nil {
		return nil, err
	}
	if res.Body != nil {
		_ = res.Body.Close() // the connection is the WebSocket's
	}
	if from != "" {
		from = `,"from":"` + from + `"`
	}
	return conn, conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"type":"subscribe","channel":%q%s}`, channel, from))
}

func liveRead(ctx context.Context, conn *websocket.Conn) (m liveMessage, err error) {
	_, data, err := conn.Read(ctx)
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	return m, err
}

// accounts is a client of the registry itself, for one namespace.
func (s *suite) accounts(t *testing.T, namespace string) registryv1.RegistryServiceClient {
	t.Helper()
	conn, err := grpckit.Dial(s.procs["registry"].addr, grpckit.DialOptions{Token: conf.NewSecret("shared-by-the-services"), Namespace: namespace})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return registryv1.NewRegistryServiceClient(conn)
}

// TestLive follows an epic over restarts of the gateway and the registry.
func TestLive(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"sqlite", "postgres"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			s := start(t, options{store: store})
			c := s.accounts(t, namespaceA)
			epic, err := c.CreateEpic(within(t), &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "0"}})
			require.NoError(t, err)

			var url atomic.Value
			url.Store(s.url)
			var mu sync.Mutex
			var titles []string
			connects := 0
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			var g errgroup.Group
			g.Go(func() error {
				for from := "0"; ctx.Err() == nil; {
					conn, err := liveDial(ctx, url.Load().(string), keyA, "epic:"+epic.GetId(), from)
					if err != nil {
						continue // the gateway is away
					}
					mu.Lock()
					connects++
					mu.Unlock()
					for {
						m, err := liveRead(ctx, conn)
						if err != nil {
							break
						}
						switch m.Type {
						case "error":
							return fmt.Errorf("the channel has ended: %s", m.Data.Reason)
						case "epic_created", "epic_updated":
							mu.Lock()
							titles, from = append(titles, m.Data.Title), m.Cursor
							mu.Unlock()
						}
					}
					_ = conn.CloseNow() // it has ended
				}
				return nil
			})

			want := []string{"0"}
			write := func() {
				for range 20 {
					title := strconv.Itoa(len(want))
					testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
						_, err := c.UpdateEpic(within(t), &registryv1.UpdateEpicRequest{Epic: &registryv1.Epic{Id: epic.GetId(), Title: title}, RequestId: "live-" + title})
						return err == nil
					})
					want = append(want, title)
				}
			}
			caughtUp := func() {
				testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
					mu.Lock()
					defer mu.Unlock()
					return len(titles) >= len(want)
				})
			}
			write()
			caughtUp()
			s.procs["gateway"].stop(t)
			write()
			s.serve(t, "gateway", "")
			url.Store(s.url)
			write()
			s.procs["registry"].kill()
			s.serve(t, "registry", s.procs["registry"].addr)
			write()
			s.procs["gateway"].kill()
			s.procs["registry"].stop(t)
			s.serve(t, "registry", s.procs["registry"].addr)
			write()
			s.serve(t, "gateway", "")
			url.Store(s.url)
			caughtUp()
			write()
			caughtUp()
			cancel()
			require.NoError(t, g.Wait())
			require.Equal(t, want, titles, "no gap, and nothing twice")
			require.GreaterOrEqual(t, connects, 3)
		})
	}
}

// subscribersVariable is how many subscribers TestLiveSubscribers has.
const subscribersVariable = "EPIGRAPH_E2E_SUBSCRIBERS"

// subscriberBytes is what one subscriber may take at the gateway, and subscriberDelay how late 99 of 100
// events may come.
const subscriberBytes, subscriberDelay = 40 << 10, 250 * time.Millisecond

// TestLiveSubscribers has many subscribers of 100 epics at one gateway, which is a process of its own,
// over loopback. Where their number is asked for, it bounds what a subscriber costs the gateway, and how long
// after the beginning of a write its event comes. 10,000 of them:
//
//	EPIGRAPH_E2E_SUBSCRIBERS=10000 go test ./test/e2e -run TestLiveSubscribers -v -count=1
func TestLiveSubscribers(t *testing.T) {
	subscribers, epics, rounds, namespaces, asked := 200, 100, 3, 10, false
	if text := os.Getenv(subscribersVariable); text != "" {
		var err error
		subscribers, err = strconv.Atoi(text)
		require.NoError(t, err)
		rounds, asked = 10, true
	} else {
		t.Parallel()
	}
	keys := ""
	for i := range namespaces {
		keys += fmt.Sprintf("    - {name: crowd-%d, namespace: crowd-%d, secret: secret-of-the-crowd-%d-0123456789, scopes: [run]}\n", i, i, i)
	}
	s := start(t, options{store: "sqlite", keys: keys, env: []string{"GOMEMLIMIT=4GiB"}})

	// Each epic belongs to one of the namespaces.
	ids, clients := make([]string, epics), make([]registryv1.RegistryServiceClient, namespaces)
	for i := range clients {
		clients[i] = s.accounts(t, fmt.Sprintf("crowd-%d", i))
	}
	for i := range ids {
		e, err := clients[i%namespaces].CreateEpic(within(t), &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "0"}})
		require.NoError(t, err)
		ids[i] = e.GetId()
	}
	before := residentBytes(t, s.procs["gateway"].cmd.Process.Pid)
	conns := make([]*websocket.Conn, subscribers)
	var dialing errgroup.Group
	dialing.SetLimit(32)
	for i := range conns {
		dialing.Go(func() error {
			e := i % epics
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			conn, err := liveDial(ctx, s.url, fmt.Sprintf("secret-of-the-crowd-%d-0123456789", e%namespaces), "epic:"+ids[e], "")
			if err != nil {
				return fmt.Errorf("subscriber %d: %w", i, err)
			}
			conns[i] = conn
			m, err := liveRead(ctx, conn)
			if err == nil && m.Type != "subscribed" {
				err = fmt.Errorf("subscriber %d: %+v", i, m)
			}
			return err
		})
	}
	require.NoError(t, dialing.Wait())

	began := make([][]atomic.Int64, epics)
	for e := range began {
		began[e] = make([]atomic.Int64, rounds+1)
	}
	delays := make([][]time.Duration, subscribers)
	var reading errgroup.Group
	for i, conn := range conns {
		t.Cleanup(func() { _ = conn.CloseNow() }) // the gateway may have gone
		reading.Go(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			for want := 1; want <= rounds; want++ {
				m, err := liveRead(ctx, conn)
				if err != nil {
					return fmt.Errorf("subscriber %d: %w", i, err)
				}
				if m.Type != "epic_updated" || m.Data.Title != strconv.Itoa(want) {
					return fmt.Errorf("subscriber %d waits for %d and gets %+v", i, want, m)
				}
				delays[i] = append(delays[i], time.Duration(time.Now().UnixNano()-began[i%epics][want].Load()))
			}
			return nil
		})
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for round := 1; round <= rounds; round++ {
		for e, id := range ids {
			<-tick.C
			began[e][round].Store(time.Now().UnixNano())
			_, err := clients[e%namespaces].UpdateEpic(within(t), &registryv1.UpdateEpicRequest{Epic: &registryv1.Epic{Id: id, Title: strconv.Itoa(round)}})
			require.NoError(t, err)
		}
	}
	after := residentBytes(t, s.procs["gateway"].cmd.Process.Pid)
	require.NoError(t, reading.Wait())
	all := slices.Concat(delays...)
	slices.Sort(all)
	require.Len(t, all, subscribers*rounds)
	each, p99 := (after-before)/int64(subscribers), all[len(all)*99/100]
	t.Logf("%d subscribers of %d epics: %.1f KiB each at the gateway, delay p50 %v, p99 %v, max %v", subscribers, epics,
		float64(each)/1024, all[len(all)/2], p99, all[len(all)-1])
	if !asked { // what the process takes in any case is more than what few subscribers do
		return
	}
	require.LessOrEqual(t, each, int64(subscriberBytes), "bytes of a subscriber at the gateway")
	require.LessOrEqual(t, p99, subscriberDelay, "the delay of 99 of 100 events")
}

// residentBytes is the memory of a process, garbage included.
func residentBytes(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if os.IsNotExist(err) {
		return 0 // no such files on this system
	}
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	require.NoError(t, err)
	return n << 10
}
