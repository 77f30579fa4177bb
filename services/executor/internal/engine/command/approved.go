package command

import (
	"fmt"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// approvedElsewhere refuses, with a reason, a change of a run that is part of what was approved in a run
// above it, or above that of which it is a fork.
func approvedElsewhere(row journal.Run, reason string) error {
	f, err := record.LineageOf(row)
	if err != nil || f.Approved == nil {
		return err
	}
	by := f.Approved
	text := fmt.Sprintf("the run follows from what was approved at %s of run %s, and that covers its graph", by.At, by.Run)
	return errs.New(errs.FailedPrecondition, reason, "%s", text).Violate("graph", workgraph.CodeApproved, text).
		Hint("fork run " + by.Run + " from " + by.At.Node + ": it is asked again there")
}

// asApproved refuses a fork with another graph if that of the run is part of what was approved elsewhere.
func asApproved(row journal.Run, before, after *workgraph.Graph) error {
	if before == after {
		return nil
	}
	was, err := before.Hash()
	if err != nil {
		return err
	}
	if is, err := after.Hash(); err != nil || is == was {
		return err
	}
	return approvedElsewhere(row, ReasonForkChangesApproved)
}
