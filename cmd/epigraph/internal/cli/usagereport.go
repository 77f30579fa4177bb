package cli

import (
	"context"
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// usageCmds are what is said of usage. Listing entries is the default.
type usageCmds struct {
	List   usageCmd       `cmd:"" default:"withargs" help:"List usage entries, newest first."`
	Report usageReportCmd `cmd:"" help:"Sum up usage by one or two of epic, task, run, node, actor, model and day."`
}

type usageReportCmd struct {
	page
	By   []string `help:"What to group by: one or two of epic, task, run, node, actor, model, day." default:"model" placeholder:"KEY,KEY"`
	Epic string   `help:"Calls that this epic paid for." placeholder:"ID"`
	Task string   `help:"Calls that this task paid for." placeholder:"ID"`
	RunX string   `help:"Calls of this run." name:"run" placeholder:"ID"`
	From string   `help:"The first day, in UTC, such as 2026-01-31." placeholder:"DATE"`
	To   string   `help:"The last day, in UTC; it belongs to the report." placeholder:"DATE"`
	Kind string   `help:"Calls of this kind only: model, tool, overhead or embedding." placeholder:"KIND"`
	CSV  bool     `help:"Print all rows as CSV, with a heading and costs in nano-USD." name:"csv"`
}

// Help says what is in the sums.
func (usageReportCmd) Help() string {
	return `The dearest groups come first, and the last line has the sum of all. Calls that failed, and those of runs that failed, are in the sums. A cost with "+ N unpriced" leaves out N calls whose price is not known.

    epigraph usage report --by epic
    epigraph usage report --by model,day --from 2026-01-01 --to 2026-01-31 --csv > january.csv`
}

// Run reports.
func (c *usageReportCmd) Run(e *env) error {
	by, err := enums[registryv1.ReportKey]("--by", "REPORT_KEY_", registryv1.ReportKey_value, c.By)
	if err != nil {
		return err
	}
	if len(by) > 2 || len(by) == 2 && by[0] == by[1] {
		return usage(errs.New(errs.InvalidArgument, "VALUE_INVALID", "--by takes one key, or two different ones").Hint("make two reports"))
	}
	if c.CSV && e.json {
		return usage(errs.New(errs.InvalidArgument, "VALUE_INVALID", "--csv and --json cannot both be given").Hint("leave one out"))
	}
	req := &registryv1.ReportUsageRequest{
		By: by, EpicId: c.Epic, TaskId: c.Task, RunId: c.RunX, FromDay: c.From, ToDay: c.To, PageSize: c.Limit, PageToken: c.Token,
	}
	if c.Kind != "" {
		kind, err := enums[registryv1.UsageKind]("--kind", "USAGE_KIND_", registryv1.UsageKind_value, []string{c.Kind})
		if err != nil {
			return err
		}
		req.Kind = kind[0]
	}
	return e.with(func(ctx context.Context, s *services) error {
		if c.CSV {
			return reportCSV(ctx, e, s, req, c.By)
		}
		r, err := s.registry.ReportUsage(ctx, req)
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string { return reportText(e, r, c.By) })
	})
}

func reportText(e *env, r *registryv1.ReportUsageResponse, by []string) string {
	if r.GetTotalRows() == 0 {
		return "nothing was booked\n"
	}
	headings := make([]string, 0, len(by)+8)
	for _, k := range by {
		headings = append(headings, strings.ToUpper(k))
	}
	headings = append(headings, "COST", "CALLS", "FAILED", "INPUT", "CACHED", "OUTPUT", "REASONING")
	line := func(keys []string, u *registryv1.UsageSum) []string {
		return append(keys, spent(u.GetNanoUsd(), u.GetUnpricedCalls()), view.Count(u.GetCalls()), view.Count(u.GetFailedCalls()), view.Count(u.GetInputTokens()),
			view.Count(u.GetCachedInputTokens()), view.Count(u.GetOutputTokens()), view.Count(u.GetReasoningTokens()))
	}
	var rows [][]string
	for _, row := range r.GetRows() {
		keys := make([]string, 0, len(headings))
		for _, k := range row.GetKeys() {
			if k == "" {
				k = "-"
			}
			keys = append(keys, k)
		}
		rows = append(rows, line(keys, row.GetSum()))
	}
	total := []string{"in all, " + view.Plural(int(r.GetTotalRows()), "row"), ""}[:len(by)]
	return view.Table(e.io.style(), headings, append(rows, line(total, r.GetTotal())))
}

// reportCSV writes the rows of all pages.
func reportCSV(ctx context.Context, e *env, s *services, req *registryv1.ReportUsageRequest, by []string) error {
	w := csv.NewWriter(e.io.Out)
	head := append(append([]string{}, by...), "nano_usd", "calls", "failed_calls", "unpriced_calls", "input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens")
	if err := w.Write(head); err != nil {
		return err
	}
	req.PageSize = maxReportPage
	for {
		r, err := s.registry.ReportUsage(ctx, req)
		if err != nil {
			return err
		}
		for _, row := range r.GetRows() {
			var line []string
			for _, k := range row.GetKeys() {
				line = append(line, cell(k))
			}
			u := row.GetSum()
			for _, n := range []int64{
				u.GetNanoUsd(), u.GetCalls(), u.GetFailedCalls(), u.GetUnpricedCalls(), u.GetInputTokens(), u.GetCachedInputTokens(), u.GetOutputTokens(), u.GetReasoningTokens(),
			} {
				line = append(line, strconv.FormatInt(n, 10))
			}
			if err := w.Write(line); err != nil {
				return err
			}
		}
		if req.PageToken = r.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	return nil
}

// maxReportPage is the largest page of a report.
const maxReportPage = 1000

// cell keeps a spreadsheet from running a name as a formula: names of models and nodes are of others.
func cell(s string) string {
	if s != "" && strings.ContainsAny(s[:1], "=+-@\t\r") {
		return "'" + s
	}
	return s
}
