package command

import (
	"fmt"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// refuseApproved refuses, with this reason, to change the graph of a run that follows from an approval
// elsewhere: in an ancestor, or in the run that it was forked from.
func refuseApproved(row journal.Run, reason string) error {
	f, err := record.LineageOf(row)
	if err != nil || f.Approved == nil {
		return err
	}
	by := f.Approved
	text := fmt.Sprintf("the run follows from what was approved at %s of run %s, and that covers its graph", by.At, by.Run)
	return errs.New(errs.FailedPrecondition, reason, "%s", text).Violate("graph", workgraph.CodeApproved, text).
		Hint("fork run " + by.Run + " from " + by.At.Node + ": it is asked again there")
}

// checkApproved refuses a fork with another graph if the run follows from an approval elsewhere.
func checkApproved(row journal.Run, before, after *workgraph.Graph) error {
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
	return refuseApproved(row, ReasonForkChangesApproved)
}
