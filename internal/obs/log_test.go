package obs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log" //nolint:depguard // its output is the subject
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

// lines is a log that is read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestHandleLog is about the process-wide log of the standard library, so nothing of it is parallel.
func TestHandleLog(t *testing.T) {
	out, flags, prefix := log.Writer(), log.Flags(), log.Prefix()
	t.Cleanup(func() { log.SetOutput(out); log.SetFlags(flags); log.SetPrefix(prefix) })
	handled := func() *lines {
		to := &lines{}
		obs.HandleLog(slog.New(slog.NewJSONHandler(to, nil)))
		return to
	}
	t.Run("Lines/OneOfAKindInHalfAMinute", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			to := handled()
			for range 100 {
				log.Printf("Unsolicited response received %s\n", strings.Repeat("x", 5000))
			}
			log.Print("other")
			time.Sleep(30 * time.Second) //nolint:forbidigo // fake time
			log.Print("Unsolicited response received again")
			got := strings.Split(strings.TrimSpace(to.String()), "\n")
			require.Len(t, got, 3)
			var first, last struct {
				Level, Line string
				Left        int `json:"lines_left_out"`
			}
			require.NoError(t, json.Unmarshal([]byte(got[0]), &first))
			require.NoError(t, json.Unmarshal([]byte(got[2]), &last))
			require.Equal(t, "WARN", first.Level)
			require.Less(t, len(first.Line), 300)
			require.Equal(t, 99, last.Left)
		})
	})
	t.Run("Receiver/ThatAnswersWithoutBeingAsked", func(t *testing.T) {
		to := handled()
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer lis.Close()
		go func() {
			for {
				c, err := lis.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				answer := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
				_, _ = c.Read(make([]byte, 4096))
				_, _ = c.Write([]byte(answer + answer))
			}
		}()
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+lis.Addr().String(), nil)
		require.NoError(t, err)
		res, err := transport.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		testkit.Eventually(t, func() bool { return strings.Contains(to.String(), "Unsolicited response") })
	})
}
