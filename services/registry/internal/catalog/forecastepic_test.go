package catalog_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
)

func piece(p50, p90 int64, after ...int) catalog.Piece {
	a := catalog.Amount{P50: &p50, P90: &p90}
	return catalog.Piece{Cost: a, DurationMS: a, Priority: 2, After: after}
}

func cost(p *catalog.Piece) catalog.Amount { return p.Cost }

func TestMakespan(t *testing.T) {
	t.Parallel()
	urgent := piece(10, 10)
	urgent.Priority = 1
	for name, c := range map[string]struct {
		pieces   []catalog.Piece
		parallel int
		p50, p90 int64
	}{
		"Nothing":               {nil, 2, 0, 0},
		"OneAfterTheOther":      {[]catalog.Piece{piece(1, 2), piece(3, 4), piece(5, 6)}, 1, 9, 12},
		"SideBySide":            {[]catalog.Piece{piece(1, 2), piece(3, 4), piece(5, 6)}, 3, 5, 6},
		"AsRoomAllows":          {[]catalog.Piece{piece(1, 1), piece(3, 3), piece(5, 5)}, 2, 6, 6},
		"TheUrgentOneFirst":     {[]catalog.Piece{piece(1, 1), piece(1, 1), urgent}, 2, 10, 10},
		"AlongDependencies":     {[]catalog.Piece{piece(1, 1), piece(2, 9, 0), piece(4, 4, 0), piece(8, 8, 1, 2)}, 4, 13, 18},
		"BeforeItInTheList":     {[]catalog.Piece{piece(1, 1, 1), piece(2, 2)}, 4, 3, 3},
		"TheCriticalPath":       {[]catalog.Piece{piece(1, 1), piece(1, 1), piece(1, 1), piece(1, 1, 0)}, 0, 2, 2},
		"StopsAtTheLargestTime": {[]catalog.Piece{piece(math.MaxInt64, math.MaxInt64), piece(5, 5, 0)}, 2, math.MaxInt64, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := catalog.Makespan(c.pieces, c.parallel)
			require.Equal(t, []int64{c.p50, c.p90}, []int64{*e.P50, *e.P90})
		})
	}
	t.Run("UnknownIsUnknown", func(t *testing.T) {
		t.Parallel()
		pieces := []catalog.Piece{piece(1, 2), {After: []int{0}}, piece(3, 4, 1)}
		for _, e := range []catalog.Estimate{catalog.Makespan(pieces, 2), catalog.Total(pieces, cost)} {
			require.Equal(t, catalog.Estimate{Known50: 4, Known90: 6, Unknown: 1}, e)
		}
	})
}

func TestEpicForecastNotes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		left int64
		says string
	}{
		"BelowTheP50": {3, "The budget of money is likely to stop it"},
		"BelowTheP90": {5, "The budget of money may stop it"},
		"Enough":      {6, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := catalog.EpicForecast{Parallel: 1, Pieces: []catalog.Piece{piece(1, 2), piece(3, 4)}}
			f.Sum(&c.left, nil)
			require.Equal(t, c.left, *f.Cost.BudgetLeft)
			last := f.Notes[len(f.Notes)-1]
			if c.says == "" {
				require.NotContains(t, last, "budget")
				return
			}
			require.Contains(t, last, c.says)
		})
	}
}
