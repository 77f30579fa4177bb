package accounting

import (
	"context"

	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// sumUp adds the new ones of the entries to the sums of days, runs and epics. The caller holds the lock
// of the totals of the namespace, so that nobody else writes a sum of it.
func sumUp(ctx context.Context, tx store.Tx, namespace string, entries []usage.Entry, fresh []bool) error {
	var added []usage.Entry
	for i, e := range entries {
		if fresh[i] {
			added = append(added, e)
		}
	}
	sums, err := usage.SumUp(added)
	if err != nil {
		return err
	}
	return tx.AddSums(ctx, namespace, sums)
}

// Reported is a page of a report, with the sum and the number of all of its groups.
type Reported struct {
	Rows   []usage.Report
	All    usage.Sum
	Groups int64
}

// Report sums up usage by groups.
func (b *Accounts) Report(ctx context.Context, q store.ReportQuery) (Reported, error) {
	return view(ctx, b, q.Namespace, func(ctx context.Context, r store.Reader) (out Reported, err error) {
		out.Rows, out.All, out.Groups, err = r.Report(ctx, q)
		return out, err
	})
}
