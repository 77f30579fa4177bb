package remember_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/remember"
)

// bare is a registry with entries that have no vectors. Entries that changed refuse theirs.
type bare struct {
	mu           sync.Mutex
	list         []remember.Bare
	set, refused []string
}

func (b *bare) Lease(_ context.Context, model string, limit int) ([]remember.Bare, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if model != "vec" {
		return nil, errors.New("another model")
	}
	n := min(limit, len(b.list))
	out := b.list[:n:n]
	b.list = b.list[n:]
	return out, nil
}

func (b *bare) Embed(_ context.Context, e remember.Bare, v remember.Vector) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e.Etag {
	case "old":
		return errs.New(errs.Conflict, "ETAG_MISMATCH", "changed")
	case "zero":
		return errs.New(errs.InvalidArgument, "MEMORY_INVALID", "all zero")
	}
	b.set = append(b.set, e.Namespace+"/"+e.ID)
	return nil
}

func (b *bare) Refused(_ context.Context, e remember.Bare, model, why string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = append(b.refused, e.ID+" "+model+": "+why)
	return nil
}

// budgets are those of namespaces: those that begin with "poor" have none left.
type budgets struct {
	mu                sync.Mutex
	reserved, settled map[string]int64
	refused           int
}

func (b *budgets) Reserve(_ context.Context, namespace, id string, most llm.Spent) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if strings.HasPrefix(namespace, "poor") {
		b.refused++
		return "no room", nil
	}
	b.reserved[namespace+id] = most.Usage.Input
	return "", nil
}

func (b *budgets) Settle(_ context.Context, namespace, id string, spent []llm.Spent) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settled[namespace+id] = 0
	for _, s := range spent {
		b.settled[namespace+id] += s.Usage.Input
	}
	return nil
}

// filling runs a filler in a bubble until it has nothing to do, and then check.
func filling(t *testing.T, e *meanings, list []remember.Bare, check func(t *testing.T, b *bare, p *budgets)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		b, p, n := &bare{list: list}, &budgets{reserved: map[string]int64{}, settled: map[string]int64{}}, 0
		f := remember.Filler{Entries: b, Embedder: e, Model: "vec", Booked: llm.Spent{Provider: "openai", Model: "vec-1"}, Payer: p, Every: time.Minute, Log: slog.New(slog.DiscardHandler),
			NewID: func() string { n++; return strconv.Itoa(n) }}
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.Run(ctx)
		}()
		time.Sleep(30 * time.Second) //nolint:forbidigo // in a bubble
		synctest.Wait()
		check(t, b, p)
		stop()
		<-done
	})
}

func TestFill(t *testing.T) {
	t.Parallel()
	entry := func(namespace, id, text, etag string) remember.Bare {
		return remember.Bare{Namespace: namespace, ID: id, Etag: etag, Entry: remember.Entry{Text: text}}
	}
	t.Run("Refused/KeepsNoOtherWaitingAndIsTold", func(t *testing.T) {
		t.Parallel()
		e := &meanings{}
		filling(t, e, []remember.Bare{entry("a", "1", "x", "1"), entry("a", "2", "bad", "1"), entry("a", "3", "y", "old"), entry("b", "4", "z", "1"), entry("b", "5", "o", "zero")}, func(t *testing.T, b *bare, _ *budgets) {
			require.ElementsMatch(t, []string{"a/1", "b/4"}, b.set, "neither one that is refused nor one that changed keeps others waiting")
			require.Equal(t, []string{"2 vec: bad words", "5 vec: all zero"}, b.refused)
			require.ElementsMatch(t, []string{"a", "a", "a", "a", "a", "b"}, e.of, "each call is that of a namespace: two are for all, one that tries the model, and three for one each")
			b.mu.Lock()
			for range 100 {
				b.list = append(b.list, entry("a", "n", "x", "1"))
			}
			b.mu.Unlock()
			time.Sleep(time.Minute) //nolint:forbidigo // in a bubble
			synctest.Wait()
			require.Len(t, b.set, 102, "it goes on while there is more")
		})
	})
	t.Run("Slow/KeepsNoOtherWaitingForLong", func(t *testing.T) {
		t.Parallel()
		filling(t, &meanings{}, []remember.Bare{entry("a", "1", "slow", "1"), entry("b", "2", "z", "1")}, func(t *testing.T, b *bare, _ *budgets) {
			require.Equal(t, []string{"b/2"}, b.set)
			require.Equal(t, []string{"1 vec: late"}, b.refused, "the model has taken another text meanwhile")
		})
	})
	for name, fault := range map[string]*llm.Error{
		"Away": {Class: llm.Retryable, Status: 503}, "NoKey": {Class: llm.Permanent, Status: 401}, "NotRecorded": {Class: llm.Permanent, Code: "NOT_RECORDED"}, "NoProfile": {Class: llm.Permanent, Code: "PROFILE"},
	} {
		t.Run("Model/"+name+"IsNoFaultOfATextAndEndsTheTurn", func(t *testing.T) {
			t.Parallel()
			e := &meanings{err: fault}
			filling(t, e, []remember.Bare{entry("a", "1", "x", "1"), entry("a", "2", "y", "1"), entry("b", "3", "z", "1")}, func(t *testing.T, b *bare, p *budgets) {
				require.Empty(t, b.refused)
				require.LessOrEqual(t, len(e.calls), 2, "one for the entries, and at most one that tries the model")
				for id := range p.reserved {
					require.Contains(t, p.settled, id, "it is given back")
				}
			})
		})
	}
	t.Run("Busy/IsNoFaultOfAnEntryThatIsTriedAlone", func(t *testing.T) {
		t.Parallel()
		e := &meanings{}
		filling(t, e, []remember.Bare{entry("a", "1", "busy", "1"), entry("a", "2", "x", "1")}, func(t *testing.T, b *bare, _ *budgets) {
			require.Empty(t, b.refused)
		})
	})
	t.Run("Budget/IsReservedAndBooked", func(t *testing.T) {
		t.Parallel()
		e := &meanings{}
		filling(t, e, []remember.Bare{entry("poor", "1", "x", "1"), entry("a", "2", "twelve bytes", "1")}, func(t *testing.T, b *bare, p *budgets) {
			require.Equal(t, []string{"a/2"}, b.set)
			require.Equal(t, []string{"a"}, e.of, "no call is made without room")
			require.Equal(t, map[string]int64{"a2": 5}, p.reserved)
			require.Equal(t, map[string]int64{"a2": 3}, p.settled)
		})
	})
	t.Run("Budget/OfManyNamespacesKeepsNoOtherWaiting", func(t *testing.T) {
		t.Parallel()
		var list []remember.Bare
		for i := range 64 {
			list = append(list, entry("poor"+strconv.Itoa(i%32), strconv.Itoa(i), "x", "1"))
		}
		filling(t, &meanings{}, append(list, entry("a", "1", "x", "1")), func(t *testing.T, b *bare, p *budgets) {
			require.Equal(t, []string{"a/1"}, b.set)
			require.Equal(t, 32, p.refused)
		})
	})
	t.Run("Budget/OfOneNamespaceKeepsNoOtherWaiting", func(t *testing.T) {
		t.Parallel()
		var list []remember.Bare
		for i := range 200 {
			list = append(list, entry("poor", "p"+strconv.Itoa(i), "x", "1"), entry("a", strconv.Itoa(i), "x", "1"))
		}
		filling(t, &meanings{}, list, func(t *testing.T, b *bare, p *budgets) {
			require.Len(t, b.set, 200, "the others do not wait for the budget of one")
			require.Equal(t, 1, p.refused, "it is not asked for again before the pause is over")
			b.mu.Lock()
			b.list = append(b.list, entry("poor", "p", "x", "1"))
			b.mu.Unlock()
			time.Sleep(time.Minute) //nolint:forbidigo // in a bubble
			synctest.Wait()
			require.Equal(t, 2, p.refused)
		})
	})
}
