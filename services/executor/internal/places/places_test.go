package places

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEnter(t *testing.T) {
	t.Parallel()
	cfg := Config{Total: 64, Each: 16, MinPause: 5 * time.Second, MaxPause: 10 * time.Minute}
	fill := func(p *Places, namespace string, most int) (leaves []func()) {
		for range most {
			leave, _ := p.Enter(namespace)
			if leave == nil {
				return leaves
			}
			leaves = append(leaves, leave)
		}
		return leaves
	}
	t.Run("Namespace/HasOnlySoMany", func(t *testing.T) {
		p := New(cfg)
		held := fill(p, "acme", 100)
		require.Len(t, held, cfg.Each)
		_, pause := p.Enter("acme")
		require.GreaterOrEqual(t, pause, cfg.MinPause)
		require.Len(t, fill(p, "other", 1), 1)
		held[0]()
		held[0]()
		require.Len(t, fill(p, "acme", 100), 1, "one was given back, once")
	})
	t.Run("Places/AreLeftForWhoComesNext", func(t *testing.T) {
		p := New(cfg)
		for _, namespace := range []string{"a", "b", "c", "d", "e"} {
			require.NotEmpty(t, fill(p, namespace, 100), namespace)
		}
		require.Len(t, fill(p, "late", 1), 1)
	})
	t.Run("Line/ComesAgainAtThePaceOfItsPlaces", func(t *testing.T) {
		const took = 10 * time.Second
		synctest.Test(t, func(t *testing.T) {
			p := New(cfg)
			held := fill(p, "acme", 100)
			time.Sleep(took) //nolint:forbidigo // fake time
			for _, leave := range held[1:] {
				leave()
			}
			fill(p, "acme", 100)
			soon, last := 0, time.Duration(0)
			for range 1000 {
				leave, pause := p.Enter("acme")
				require.Nil(t, leave)
				if pause < cfg.MinPause+time.Minute {
					soon++
				}
				last = max(last, pause)
			}
			require.InDelta(t, int(time.Minute/took)*cfg.Each, soon, 3, "as many as find a place within a minute")
			require.Greater(t, last, cfg.MaxPause/2)
			require.LessOrEqual(t, last, cfg.MaxPause)
			leave, pause := p.Enter("other")
			require.NotNil(t, leave, "put off for %v", pause)
			leave()
		})
	})
	t.Run("Line/IsForgotten", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := New(cfg)
			for _, leave := range fill(p, "acme", 100) {
				leave()
			}
			require.NotEmpty(t, p.lines, "one was put off")
			time.Sleep(2 * cfg.MinPause) //nolint:forbidigo // fake time
			leave, _ := p.Enter("other")
			leave()
			require.Empty(t, p.lines)
			require.Zero(t, p.total)
		})
	})
}
