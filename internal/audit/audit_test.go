package audit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/audit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/obs"
)

// shelf stores entries, and fails for some namespaces.
type shelf struct {
	mu     sync.Mutex
	stored map[string][]audit.Entry
	writes int
	fails  map[string]error
	// hangs are namespaces whose writes take until their context ends.
	hangs map[string]bool
}

func (s *shelf) write(ctx context.Context, namespace string, entries []audit.Entry) error {
	s.mu.Lock()
	s.writes++
	err, hangs := s.fails[namespace], s.hangs[namespace]
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored[namespace] = append(s.stored[namespace], entries...)
	return nil
}

func (s *shelf) of(namespace string) []audit.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored[namespace]
}

func (s *shelf) fail(namespace string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails[namespace] = err
}

func entry(namespace string) audit.Entry {
	return audit.Entry{Namespace: namespace, Principal: "key:k", Method: "m", Code: "OK"}
}

func TestLog(t *testing.T) {
	t.Parallel()
	// each runs with a log that runs, in a bubble whose time is its own. Close is called at the end.
	each := func(name string, f func(t *testing.T, s *shelf, l *audit.Log)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &shelf{stored: map[string][]audit.Entry{}, fails: map[string]error{}, hangs: map[string]bool{}}
				l, err := audit.New(s.write, obs.Noop())
				require.NoError(t, err)
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- l.Run(ctx) }()
				f(t, s, l)
				stop()
				require.NoError(t, <-done)
				require.NoError(t, l.Close())
			})
		})
	}
	each("Record/IsWrittenSoonAndTogether", func(t *testing.T, s *shelf, l *audit.Log) {
		for range 100 {
			l.Record(entry("a"), false)
		}
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		require.Len(t, s.of("a"), 100)
		require.Equal(t, 1, s.writes)
		require.Zero(t, l.Waiting())
	})
	each("Record/GivesIDsInOrder", func(t *testing.T, s *shelf, l *audit.Log) {
		l.Record(entry("a"), false)
		l.Record(entry("a"), false)
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		require.Less(t, s.of("a")[0].ID, s.of("a")[1].ID)
		require.True(t, strings.HasPrefix(s.of("a")[0].ID, "aud_"))
	})
	each("Record/CutsWhatCallersChoose", func(t *testing.T, s *shelf, l *audit.Log) {
		l.Record(audit.Entry{Namespace: "a", Principal: strings.Repeat("p", 9999), Resource: strings.Repeat("ü", 999), UserAgent: "a\x00\xffb" + strings.Repeat("ü", 999), Remote: strings.Repeat("1", 99)}, false)
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		got := s.of("a")[0]
		require.Len(t, got.Principal, 400)
		require.Len(t, got.Remote, 64)
		require.LessOrEqual(t, len(got.Resource), 256)
		require.LessOrEqual(t, len(got.UserAgent), 200)
		require.True(t, utf8.ValidString(got.UserAgent) && utf8.ValidString(got.Resource))
		require.True(t, strings.HasPrefix(got.UserAgent, "a??b"), got.UserAgent)
	})
	each("Refused/AFloodLeavesAFewAndTheirNumber", func(t *testing.T, s *shelf, l *audit.Log) {
		for range 10_000 {
			l.Record(entry("a"), true)
		}
		l.Record(entry("a"), false)
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		got := s.of("a")
		require.Len(t, got, 31)
		require.EqualValues(t, 9970, got[30].LeftOut, "the next entry counts those that were left out")
	})
	each("Refused/OfAnotherPrincipalHasItsOwnShare", func(t *testing.T, s *shelf, l *audit.Log) {
		for range 100 {
			l.Record(entry("a"), true)
		}
		other := entry("a")
		other.Principal = "key:other"
		l.Record(other, true)
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		got := s.of("a")
		require.Equal(t, "key:other", got[len(got)-1].Principal)
		require.Zero(t, got[len(got)-1].LeftOut)
	})
	each("Away/IsWrittenWhenTheRegistryIsBack", func(t *testing.T, s *shelf, l *audit.Log) {
		s.fail("a", errors.New("away"))
		l.Record(entry("a"), false)
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		require.Equal(t, 1, l.Waiting())
		require.Less(t, s.writes, 12, "the pauses grow")
		s.fail("a", nil)
		time.Sleep(16 * time.Second) //nolint:forbidigo // fake time
		require.Len(t, s.of("a"), 1)
	})
	each("Away/OthersAreWritten", func(t *testing.T, s *shelf, l *audit.Log) {
		s.hangs["a"] = true
		l.Record(entry("a"), false)
		l.Record(entry("b"), false)
		time.Sleep(300 * time.Millisecond) //nolint:forbidigo // fake time
		require.Len(t, s.of("b"), 1)
	})
	each("Away/OneNamespaceDoesNotFillTheRoom", func(t *testing.T, s *shelf, l *audit.Log) {
		s.fail("a", errors.New("away"))
		for range 30_000 {
			l.Record(entry("a"), false)
		}
		require.Equal(t, 5000, l.Waiting())
		l.Record(entry("b"), false)
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		require.Len(t, s.of("b"), 1)
		s.fail("a", nil)
		time.Sleep(16 * time.Second) //nolint:forbidigo // fake time
		l.Record(entry("a"), false)
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		require.EqualValues(t, 25_000, s.of("a")[5000].LeftOut, "the next entry counts those that are lost")
	})
	each("Faulty/DoesNotHoldUpThoseBehindIt", func(t *testing.T, s *shelf, l *audit.Log) {
		s.fail("a", errs.New(errs.InvalidArgument, "REQUEST_INVALID", "bad"))
		l.Record(entry("a"), false)
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		require.Zero(t, l.Waiting())
		s.fail("a", nil)
		l.Record(entry("a"), false)
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		require.EqualValues(t, 1, s.of("a")[0].LeftOut)
	})
	t.Run("Close/WritesWhatWaits", func(t *testing.T) {
		t.Parallel()
		s := &shelf{stored: map[string][]audit.Entry{}}
		l, err := audit.New(s.write, obs.Noop())
		require.NoError(t, err)
		for i := range 1200 {
			l.Record(entry(fmt.Sprint("n", i%2)), false)
		}
		require.NoError(t, l.Close())
		require.NoError(t, l.Close())
		require.Len(t, s.of("n0"), 600)
		require.Len(t, s.of("n1"), 600)
		require.Zero(t, l.Waiting())
	})
}
