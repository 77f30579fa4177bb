package journal

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// ReasonRunNotEnded is the reason when a run that goes on cannot be deleted.
const ReasonRunNotEnded = "RUN_NOT_ENDED"

// Deleted is the namespace of runs that are marked for PurgeRuns. No caller can be in it, so nobody sees
// them. Drivers only.
const Deleted = "!deleted"

// Deletion removes runs. Journal embeds it.
type Deletion interface {
	// DeleteRun hides a run that has ended, and the ended runs below it, from every caller in one
	// transaction, and returns how many they are. Revision, if not 0, must be the run's present one.
	// PurgeRuns removes their rows. The items of tell are written in that transaction; nil makes none.
	// ReasonRunNotFound, ReasonRunNotEnded, ReasonEtagMismatch.
	DeleteRun(ctx context.Context, namespace, runID string, revision int64, tell TellDeleted) (int, error)
	// PurgeRuns removes up to about limit rows of deleted runs, the row of the run last, and reports
	// whether there is more to do. A run with items in the outbox is left alone until they have been
	// acknowledged.
	PurgeRuns(ctx context.Context, limit int) (more bool, err error)
}

// TellDeleted are the outbox items that tell of a run that is deleted, with which n runs are gone. Of the run
// its ids, workflow, epic and LastSeq are set. It must have no effect, and may be called more than once.
type TellDeleted func(r *Run, n int) ([]Out, error)

// RunNotEnded returns the error of a run that goes on.
func RunNotEnded(id string, s State) error {
	return errs.New(errs.FailedPrecondition, ReasonRunNotEnded, "run %q has not ended", id).Set("state", s.String()).Hint("cancel it first")
}

// PurgeTable is a table of a run's rows, by run_id. The key tells the rows of one run apart. Drivers only.
type PurgeTable struct{ Name, Key string }

// PurgeTables are the tables of a run's rows, largest first, but for that of the run itself. Drivers only.
func PurgeTables() []PurgeTable {
	return []PurgeTable{
		{"events", "seq"}, {"snapshots", "run_id"}, {"blob_refs", "hash"}, {"interrupts", "id"}, {"commands", "id"},
		{"run_labels", "key"}, {"run_costs", "run_id"}, {"run_details", "run_id"},
	}
}
