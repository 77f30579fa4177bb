package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

type limitsListCmd struct {
	page
}

// Run lists.
func (c *limitsListCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.limits.ListLimits(ctx, &executorv1.ListLimitsRequest{PageSize: c.Limit, PageToken: c.Token})
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string {
			if len(r.GetLimits()) == 0 {
				return "no limits\n"
			}
			var rows [][]string
			for _, x := range r.GetLimits() {
				rows = append(rows, []string{view.OneLine(x.GetName(), 60), limitText(x), view.When(x.GetUpdateTime()), view.OneLine(x.GetPrincipal(), 40)})
			}
			return view.Table(e.io.style(), []string{"LIMIT", "WHAT", "CHANGED", "PRINCIPAL"}, rows)
		})
	})
}

func limitText(x *executorv1.Limit) string {
	var out []string
	if x.GetMaxConcurrent() > 0 {
		out = append(out, fmt.Sprintf("%d of %d at once", x.GetRunning(), x.GetMaxConcurrent()))
	}
	if x.GetMaxRate() > 0 {
		out = append(out, fmt.Sprintf("%d per %s", x.GetMaxRate(), x.GetRateInterval().AsDuration()))
	}
	if x.GetMaxOpenRuns() > 0 {
		out = append(out, fmt.Sprintf("%d of %d open runs", x.GetOpenRuns(), x.GetMaxOpenRuns()))
	}
	if x.GetMaxPendingRuns() > 0 {
		out = append(out, fmt.Sprintf("%d pending runs", x.GetMaxPendingRuns()))
	}
	if x.GetMaxFanOut() > 0 {
		out = append(out, fmt.Sprintf("%d at once for one visit", x.GetMaxFanOut()))
	}
	if x.GetRetention() != nil {
		out = append(out, "runs kept for "+x.GetRetention().AsDuration().String())
	}
	if x.GetMaxBytes() > 0 {
		out = append(out, fmt.Sprintf("%s bytes", view.Count(x.GetMaxBytes())))
	}
	return strings.Join(out, ", ")
}

type limitsPutCmd struct {
	Name       string        `arg:"" help:"namespace, actor/NAME or key/KEY."`
	Concurrent int32         `help:"Attempts that may run at once." placeholder:"N"`
	Rate       int32         `help:"Attempts that may begin in an interval." placeholder:"N"`
	Per        time.Duration `help:"Interval of --rate; default a second." placeholder:"DURATION"`
	OpenRuns   int64         `help:"Runs of the namespace that may be open." placeholder:"N"`
	Pending    int64         `help:"Runs of the namespace that may wait for their start." name:"pending-runs" placeholder:"N"`
	FanOut     int32         `help:"Nodes of one graph, and children of one visit, at most." placeholder:"N"`
	Retention  time.Duration `help:"Keep runs of the namespace this long after their end, in place of the server's setting." placeholder:"DURATION"`
	Bytes      conf.Bytes    `help:"Storage of the open runs of the namespace, for example 1GiB." placeholder:"SIZE"`
}

// Help gives examples.
func (limitsPutCmd) Help() string {
	return `Examples:

    epigraph limits put actor/llm --concurrent 8 --rate 60 --per 1m
    epigraph limits put key/customer-7 --concurrent 1
    epigraph limits put namespace --open-runs 10000`
}

// Run puts.
func (c *limitsPutCmd) Run(e *env) error {
	l := &executorv1.Limit{
		Name: c.Name, MaxConcurrent: c.Concurrent, MaxRate: c.Rate, MaxOpenRuns: c.OpenRuns, MaxPendingRuns: c.Pending, MaxFanOut: c.FanOut, MaxBytes: int64(c.Bytes),
	}
	if c.Per > 0 {
		l.RateInterval = durationpb.New(c.Per)
	}
	if c.Retention > 0 {
		l.Retention = durationpb.New(c.Retention)
	}
	if limitText(l) == "" {
		return usage(errs.New(errs.InvalidArgument, "LIMIT_EMPTY", "nothing is limited").Hint("give --concurrent, --rate or another bound; `epigraph limits delete " + c.Name + "` takes a limit away"))
	}
	return e.with(func(ctx context.Context, s *services) error {
		x, err := s.limits.UpdateLimit(ctx, &executorv1.UpdateLimitRequest{Limit: l, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"*"}}, AllowMissing: true})
		if err != nil {
			return err
		}
		if w := x.GetWarning(); w != "" && !e.json { // the answer has it
			e.note("warning: %s", view.Message(w))
		}
		return e.print(x, func() string { return fmt.Sprintf("%s: %s\n", view.OneLine(x.GetName(), 60), limitText(x)) })
	})
}

type limitsDeleteCmd struct {
	Name string `arg:"" help:"The limit."`
}

// Run deletes.
func (c *limitsDeleteCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.limits.DeleteLimit(ctx, &executorv1.DeleteLimitRequest{Name: c.Name})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return "deleted\n" })
	})
}

type workersListCmd struct{}

// Run lists.
func (workersListCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.workers.ListWorkers(ctx, &executorv1.ListWorkersRequest{})
		if err != nil {
			return err
		}
		return e.print(r, func() string {
			if len(r.GetWorkers()) == 0 {
				return "no workers\n"
			}
			var rows [][]string
			for _, x := range r.GetWorkers() {
				busy := "?"
				if x.GetBusy() >= 0 {
					busy = fmt.Sprint(x.GetBusy())
				}
				state := ""
				if x.GetDraining() {
					state = "draining"
				}
				rows = append(rows, []string{
					view.OneLine(x.GetWorkerId(), 40), view.OneLine(x.GetExecutorId(), 30), busy + "/" + fmt.Sprint(x.GetSlots()), view.When(x.GetConnectTime()),
					view.OneLine(x.GetUserAgent(), 30), state, view.OneLine(strings.Join(x.GetActors(), ","), 60),
				})
			}
			return view.Table(e.io.style(), []string{"WORKER", "EXECUTOR", "BUSY", "SINCE", "MADE BY", "STATE", "ACTORS"}, rows)
		})
	})
}
