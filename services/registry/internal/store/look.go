package store

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/page"
)

const (
	// MaxLook is how many rows are examined for one page of a list whose filters no index serves.
	MaxLook = 10_000
	// maxLookTime is after how long no more are looked at for it, beyond the first lookStep.
	maxLookTime = 250 * time.Millisecond
	// lookStep is how many rows the first statement looks at. Each further one looks at twice as many,
	// up to lookMost: where few rows fit, the statements cost more than the rows.
	lookStep, lookMost = 64, 1024
)

// Found are the rows of a page.
type Found[T any] struct {
	Rows []T
	// Stopped is the last row that was looked at if there may be more behind it; zero if there are none, and
	// where every row is looked for by an index.
	Stopped page.Cursor
}

// LookStep is where one statement begins to look, and at how many rows it looks.
type LookStep struct {
	After page.Cursor
	Rows  int
}

// Look goes over rows in the order of a list until it has found the wanted number, has examined most of them,
// or has taken long enough. It returns the ids of the matches, and where it stopped, as Found does. step runs
// one statement and calls see for each row; once that returns false, it may stop.
func Look(ctx context.Context, after page.Cursor, wanted, most int,
	step func(ctx context.Context, s LookStep, see func(at page.Cursor, fits bool) (more bool)) error,
) (ids []string, stopped page.Cursor, err error) {
	if most <= 0 {
		most = MaxLook
	}
	begin, looked, rows := time.Now(), 0, lookStep
	for len(ids) < wanted && looked < most && (looked == 0 || time.Since(begin) < maxLookTime) {
		s, seen := LookStep{After: after, Rows: min(rows, most-looked)}, 0
		if err := step(ctx, s, func(at page.Cursor, fits bool) bool {
			seen++
			after = at
			if fits {
				ids = append(ids, at.ID)
			}
			return len(ids) < wanted
		}); err != nil {
			return nil, page.Cursor{}, err
		}
		if seen < s.Rows && len(ids) < wanted {
			return ids, page.Cursor{}, nil
		}
		looked += seen
		rows = min(2*rows, lookMost)
	}
	return ids, after, nil
}
