package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

type auditCmd struct {
	page
	By       string        `help:"Only what this principal did, such as key:NAME." placeholder:"PRINCIPAL"`
	Method   string        `help:"Only calls of this method, such as CancelRun." placeholder:"METHOD"`
	Resource string        `help:"Only what was done to this, by its id or name." placeholder:"ID"`
	From     time.Time     `help:"Only calls from this time on, for example 2026-01-31T00:00:00Z." placeholder:"TIME"`
	Until    time.Time     `help:"Only calls before this time." placeholder:"TIME"`
	Last     time.Duration `help:"Only calls of the last while, such as 24h; in place of --from." placeholder:"DURATION"`
}

// Help gives examples.
func (auditCmd) Help() string {
	return `Calls that change something are listed, the newest first, with those that were refused. Reads are not.

Examples:

    epigraph audit --last 24h
    epigraph audit --by key:ci --method CancelRun
    epigraph audit --resource run_01K`
}

// Run lists.
func (c *auditCmd) Run(e *env) error {
	req := &registryv1.ListAuditRequest{PageSize: c.Limit, PageToken: c.Token, Principal: c.By, Method: c.Method, Resource: c.Resource}
	if c.Last > 0 {
		c.From = time.Now().Add(-c.Last)
	}
	if !c.From.IsZero() {
		req.StartTime = timestamppb.New(c.From)
	}
	if !c.Until.IsZero() {
		req.EndTime = timestamppb.New(c.Until)
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.audit.ListAudit(ctx, req)
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string {
			if len(r.GetEntries()) == 0 {
				return "nothing was changed\n"
			}
			var rows [][]string
			for _, x := range r.GetEntries() {
				rows = append(rows, []string{view.When(x.GetTime()), view.OneLine(x.GetPrincipal(), 40), view.OneLine(x.GetMethod()[strings.LastIndexByte(x.GetMethod(), '/')+1:], 40),
					view.OneLine(x.GetResource(), 40), auditOutcome(x), view.OneLine(x.GetRemote(), 40), view.OneLine(x.GetRunId(), 40)})
			}
			return view.Table(e.io.style(), []string{"WHEN", "WHO", "WHAT", "OF", "OUTCOME", "FROM", "IN RUN"}, rows)
		})
	})
}

// auditOutcome is how a call ended, and how many before it have no entry.
func auditOutcome(x *registryv1.AuditEntry) string {
	out := view.OneLine(x.GetCode(), 32)
	if x.GetReason() != "" {
		out = view.OneLine(x.GetReason(), 60)
	}
	if n := x.GetLeftOut(); n > 0 {
		out += fmt.Sprintf(" (and %d more before)", n)
	}
	return out
}
