package load_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/bench/load"
)

func TestSleep(t *testing.T) {
	t.Run("NeverLess", func(t *testing.T) {
		var wg sync.WaitGroup
		for i := range 200 {
			d := time.Duration(i%20) * 300 * time.Microsecond
			wg.Go(func() {
				began := time.Now()
				load.Sleep(d)
				if took := time.Since(began); took < d {
					t.Errorf("slept %s of %s", took, d)
				}
			})
		}
		wg.Wait()
	})
	t.Run("AnEarlierOneComesFirst", func(t *testing.T) {
		var order []string
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, s := range []struct {
			name string
			d    time.Duration
		}{{"late", time.Second}, {"early", time.Millisecond}} {
			wg.Go(func() {
				load.Sleep(s.d)
				mu.Lock()
				defer mu.Unlock()
				order = append(order, s.name)
			})
		}
		wg.Wait()
		require.Equal(t, []string{"early", "late"}, order)
	})
	t.Run("NothingIsNoTime", func(t *testing.T) {
		load.Sleep(0)
		load.Sleep(-time.Hour)
	})
}
