package remembering_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
	"github.com/epigraph-run/epigraph/services/registry/internal/remembering"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// slow is a store in which a search by meaning takes until it is let go.
type slow struct {
	store.Store
	begun chan string
	goOn  chan struct{}
}

func (s *slow) View(ctx context.Context, _ string, fn func(context.Context, store.Reader) error) error {
	return fn(ctx, slowReader{slow: s})
}

func (s *slow) Update(context.Context, string, func(context.Context, store.Tx) error) error {
	return nil
}

type slowReader struct {
	store.Reader
	slow *slow
}

func (r slowReader) FindMemories(context.Context, memory.Query, []string, time.Time) ([]memory.Hit, error) {
	return nil, nil
}

func (r slowReader) MemoriesOf(context.Context, string, []string) (map[string]memory.Entry, error) {
	return nil, nil
}

func (r slowReader) SimilarMemories(_ context.Context, q memory.Query, _ time.Time) (memory.Found, error) {
	r.slow.begun <- q.Namespace
	<-r.slow.goOn
	return memory.Found{}, nil
}

// TestTurns lets one namespace search as much as it can.
func TestTurns(t *testing.T) {
	t.Parallel()
	loud := func(t *testing.T, check func(t *testing.T, s *slow, search func(namespace string, byMeaning bool) error)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			s := &slow{begun: make(chan string, 1000), goOn: make(chan struct{})}
			m := remembering.New(s)
			search := func(namespace string, byMeaning bool) error {
				q := memory.Query{Namespace: namespace, Scopes: []memory.Scope{{Level: memory.OfNamespace}}, Text: "x", Limit: 1}
				if byMeaning {
					q.Vector = &memory.Embedding{Model: "m", Values: []float32{1}}
				}
				_, err := m.Search(t.Context(), q, memory.Read{})
				return err
			}
			for range 102 {
				go func() { _ = search("loud", true) }()
			}
			synctest.Wait()
			check(t, s, search)
			close(s.goOn)
			synctest.Wait()
		})
	}
	t.Run("Loud/HasTwoAtOnceAndOthersHaveTheirs", func(t *testing.T) {
		t.Parallel()
		loud(t, func(t *testing.T, s *slow, search func(string, bool) error) {
			require.Len(t, s.begun, 2)
			go func() { _ = search("quiet", true) }()
			synctest.Wait()
			require.Len(t, s.begun, 3)
			require.NoError(t, search("loud", false), "a search by words needs no turn")
		})
	})
	t.Run("Loud/IsRefusedWhereTooManyWait", func(t *testing.T) {
		t.Parallel()
		loud(t, func(t *testing.T, _ *slow, search func(string, bool) error) {
			err := search("loud", true)
			require.True(t, errs.Is(err, errs.ResourceExhausted), "got %v", err)
			require.Equal(t, dbkit.ReasonBusy, errs.ReasonOf(err))
		})
	})
}
