package journal

import (
	"context"
	"time"
)

// Retention keeps the journal from growing without bound. Journal embeds it. Every method may be ended at
// any point and called again, and by several callers at once.
type Retention interface {
	// Expired lists up to limit ended trees of runs by their roots after a place, by namespace and by the
	// time of creation. A tree is listed if all of its runs ended before the time of its namespace; the
	// zero time lists none there. DeleteRun is to delete what is listed. A run whose parent is gone counts
	// as a root.
	Expired(ctx context.Context, before func(namespace string) time.Time, after Ended, limit int) ([]Ended, error)
	// NoteArchive remembers where a run was archived; a later place replaces an earlier one.
	NoteArchive(ctx context.Context, namespace, runID, place string) error
	// ArchiveOf returns where a run was archived; "" if it was not.
	ArchiveOf(ctx context.Context, namespace, runID string) (string, error)
	// Extend makes room for events to come, by parts of the given width until ahead from now, and returns
	// what there is. A journal without parts does nothing.
	Extend(ctx context.Context, width, ahead time.Duration) (Parts, error)
	// Shrink gives back the space of deleted runs. Parts whose runs were all begun before this time go as a
	// whole, after at most about limit rows of other runs were moved out of them. It reports whether there
	// is more to do at once.
	Shrink(ctx context.Context, before time.Time, limit int) (more bool, err error)
	// SweepGraphs looks at up to limit graphs after a place, and removes those that no run refers to and
	// none took since a time, which must be GraphRest ago or earlier. It returns how many it removed and
	// the place to go on from, which is empty after the last one. A run that begins meanwhile finds its
	// graph, or writes it again.
	SweepGraphs(ctx context.Context, before time.Time, after Key, limit int) (removed int, next Key, err error)
}

// Ended is a root that has ended.
type Ended struct {
	Namespace, RunID string
	CreateTime       time.Time
	// Skipped says that its tree is not over, or not for long enough: it is a place to go on from and
	// nothing else.
	Skipped bool
}

// Parts says what parts the journal's events lie in.
type Parts struct {
	// Count is the number of parts, 0 for a journal without parts. Stray counts events that have no part of
	// their own, up to 1,000. End is where the last part ends.
	Count, Stray int
	End          time.Time
}
