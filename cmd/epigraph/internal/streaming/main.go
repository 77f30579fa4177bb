// Command streaming measures the time that is won when the tasks of a plan begin while a model still writes
// it. A scripted model writes recorded plans at the pace of a real one. Each plan is done in both ways side
// by side, on a whole installation in this process: written, and then started; and started while it is
// written.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/sdk/worker"
)

// options say what is played, and at which pace.
type options struct {
	data     string
	plans    int
	seed     uint64
	pace     float64
	first    time.Duration
	answer   int
	parallel int
	verbose  bool
	// rewritten has the plans written in the notation that the planner asks for.
	rewritten bool
}

func main() {
	var o options
	flag.StringVar(&o.data, "data", "../shared/data/plans.jsonl.gz", "recorded plans, gzipped JSON Lines")
	flag.IntVar(&o.plans, "plans", 50, "plans in the sample")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the sample")
	flag.Float64Var(&o.pace, "pace", 60, "tokens that the model writes in a second")
	flag.DurationVar(&o.first, "first", 500*time.Millisecond, "time until the first token of an answer")
	flag.IntVar(&o.answer, "answer", 90, "tokens of the answer of each task")
	flag.IntVar(&o.parallel, "parallel", 2, "plans that are done at the same time")
	flag.BoolVar(&o.rewritten, "rewritten", false, "have the plans written in the notation that the planner asks for")
	flag.BoolVar(&o.verbose, "v", false, "list the plans")
	flag.Parse()
	if err := measure(context.Background(), os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "streaming:", err)
		os.Exit(1)
	}
}

// chunk is how many tokens a piece of the scripted model has: 12 characters.
const chunk = 3

// delay is the time between two pieces.
func (o *options) delay() time.Duration {
	return time.Duration(chunk / o.pace * float64(time.Second))
}

// reply is a text at the pace of the model. An answer that is wanted whole comes when the last piece would.
func (o *options) reply(r *fakellm.Request, text string) fakellm.Reply {
	out := fakellm.Reply{Text: text, Delay: o.first, ChunkDelay: o.delay()}
	if !r.Stream {
		pieces := (len([]rune(text)) + 4*chunk - 1) / (4 * chunk)
		out.Delay += time.Duration(pieces) * o.delay()
	}
	return out
}

func measure(ctx context.Context, w io.Writer, o options) error {
	list, all, err := sample(ctx, o)
	if err != nil {
		return err
	}
	byGoal := map[string]string{}
	tools := map[string]bool{}
	for _, r := range list {
		byGoal[r.goal()] = r.Raw
		for _, t := range r.tools {
			tools[t] = true
		}
	}
	task := all.text(o.answer)
	fake := fakellm.New(fakellm.Script{Answer: func(r fakellm.Request) (fakellm.Reply, bool) {
		for _, m := range r.Messages {
			if goal, _, ok := strings.Cut(m.Content, " (recorded)"); ok {
				if raw, ok := byGoal[goal[strings.LastIndexByte(goal, '\n')+1:]+" (recorded)"]; ok {
					return o.reply(&r, raw), true
				}
			}
		}
		return o.reply(&r, task), true
	}})
	url, err := fake.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = fake.Close() }()
	c, stop, err := installation(ctx, url)
	if err != nil {
		return err
	}
	defer stop()
	rest, err := hands(ctx, c, tools, task, o)
	if err != nil {
		return err
	}
	defer rest()
	results := make([]result, len(list))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(o.parallel)
	for i, r := range list {
		g.Go(func() (err error) {
			if results[i], err = both(ctx, c, r); err != nil {
				return fmt.Errorf("plan %s: %w", r.ID, err)
			}
			if o.verbose {
				fmt.Fprintln(os.Stderr, results[i])
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	report(w, results, o)
	return nil
}

// installation is a whole one in this process, with a client.
func installation(ctx context.Context, url string) (*epigraph.Client, func(), error) {
	dir, err := os.MkdirTemp("", "streaming")
	if err != nil {
		return nil, nil, err
	}
	cfg := stack.DevConfig()
	cfg.Telemetry.LogLevel = "error"
	cfg.Planner.Author.Timeout, cfg.Planner.Author.MaxTokens, cfg.Planner.Author.MaxOutputTokens = time.Hour, 10_000_000, 1_000_000
	cfg.GRPC.UnaryTimeout, cfg.Gateway.RequestTimeout = time.Hour, time.Hour
	cfg.Models.Change(cfg.Models.Default, func(p *llm.Profile) {
		p.Model, p.BaseURL, p.APIKey, p.Timeout, p.OutputLimit = "fake-1", url, conf.NewSecret("none"), time.Hour, cfg.Planner.Author.MaxOutputTokens
	})
	d, err := stack.OpenDev(ctx, stack.DevOptions{DataDir: dir, HTTPAddr: "127.0.0.1:0", GRPCAddr: "127.0.0.1:0", Config: cfg})
	if err != nil {
		return nil, nil, err
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- d.Run(running) }()
	stop := func() {
		cancel()
		<-ended
		_ = os.RemoveAll(dir)
	}
	if err := d.Ready(ctx); err != nil {
		stop()
		return nil, nil, err
	}
	c, err := epigraph.Dial(d.GRPCAddr(), epigraph.WithPlanner(d.GRPCAddr()), epigraph.WithRegistry(d.GRPCAddr()))
	if err != nil {
		stop()
		return nil, nil, err
	}
	return c, func() { _ = c.Close(); stop() }, nil
}

// hands serve the tools of the plans. A call takes as long as an answer of the model, and gives the same.
func hands(ctx context.Context, c *epigraph.Client, tools map[string]bool, task string, o options) (func(), error) {
	if len(tools) == 0 {
		return func() {}, nil
	}
	w := worker.New(c, worker.Options{Slots: 1000})
	took := o.first + time.Duration(float64(o.answer)/o.pace*float64(time.Second))
	for t := range tools {
		worker.Register(w, t, func(ctx context.Context, _ map[string]any) (string, error) {
			select {
			case <-time.After(took):
				return task, nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}, worker.Effect(worker.Idempotent))
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(running) }()
	return func() { cancel(); <-ended }, w.Ready(ctx)
}

// way is how long one way of doing a plan took, from the request on.
type way struct{ first, end time.Duration }

// result are both ways of one plan.
type result struct {
	record
	dialect string
	tasks   int
	// started are the tasks that began before the whole plan was there.
	started           int
	written, streamed way
}

func (r result) String() string {
	return fmt.Sprintf("%-30s %-14s %3d tasks, %3d early: first %6s %6s, end %6s %6s", r.ID, r.dialect, r.tasks, r.started,
		short(r.written.first), short(r.streamed.first), short(r.written.end), short(r.streamed.end))
}

// both does a plan in both ways side by side.
func both(ctx context.Context, c *epigraph.Client, r record) (result, error) {
	out := result{record: r}
	var opts []epigraph.AuthorOption
	for _, t := range r.tools {
		opts = append(opts, epigraph.PlanTool(t, "", nil))
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		begin := time.Now()
		p, err := c.CreatePlan(ctx, r.goal(), opts...)
		if err != nil {
			return err
		}
		if p.GetGraph() == nil {
			return errors.New("no plan: " + p.GetAuthoring().GetMessage())
		}
		run, err := c.StartGraph(ctx, p.GetGraph())
		if err != nil {
			return err
		}
		out.dialect, out.tasks = p.GetPlan().GetDialect(), len(p.GetGraph().GetNodes())
		out.written, err = timed(ctx, run, begin)
		return err
	})
	g.Go(func() error {
		begin := time.Now()
		var run *epigraph.Run
		var result *plannerv1.CreatePlanResponse
		for m, err := range c.RunPlan(ctx, r.goal(), nil, opts...) {
			switch {
			case err != nil:
				return err
			case m.GetRun() != nil:
				run = c.Run(m.GetRun().GetRunId())
			case m.GetPart().GetStarted():
				out.started += len(m.GetPart().GetNodes())
			case m.GetResult() != nil:
				result = m.GetResult()
			}
		}
		if result.GetGraph() == nil {
			return errors.New("no plan: " + result.GetAuthoring().GetMessage())
		}
		var err error
		out.streamed, err = timed(ctx, run, begin)
		return err
	})
	return out, g.Wait()
}

// timed waits for the end of a run.
func timed(ctx context.Context, run *epigraph.Run, begin time.Time) (way, error) {
	m, err := run.Wait(ctx)
	if err != nil {
		return way{}, err
	}
	if m.GetState() != executorv1.RunState_RUN_STATE_COMPLETED {
		return way{}, fmt.Errorf("run %s ended as %s: %s", m.GetId(), m.GetState(), m.GetError().GetMessage())
	}
	out := way{first: time.Hour, end: m.GetEndTime().AsTime().Sub(begin)}
	for v, err := range run.Visits(ctx, "") {
		if err != nil {
			return way{}, err
		}
		if at := v.GetStartTime(); at != nil && v.GetState() == executorv1.VisitState_VISIT_STATE_COMPLETED {
			out.first = min(out.first, at.AsTime().Sub(begin))
		}
	}
	return out, nil
}

func short(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// report prints the times by notation, and of all together.
func report(w io.Writer, list []result, o options) {
	by := map[string][]result{}
	early, streams := 0, 0
	for _, r := range list {
		by[r.dialect] = append(by[r.dialect], r)
		if r.started > 0 {
			streams++
			early += r.started
		}
	}
	fmt.Fprintf(w, "%d plans at %.0f tokens a second; of %d plans tasks began before the end of the text, %d tasks in all\n\n", len(list), o.pace, streams, early)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "notation\tplans\ttasks\tearly\tfirst: written\tstreamed\tend: written\tstreamed\tsaved")
	line := func(name string, rs []result) {
		tasks, early := 0, 0
		for _, r := range rs {
			tasks, early = tasks+r.tasks, early+r.started
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", name, len(rs), tasks, early,
			middle(rs, func(r result) float64 { return r.written.first.Seconds() }, "%.1f s"), middle(rs, func(r result) float64 { return r.streamed.first.Seconds() }, "%.1f s"),
			middle(rs, func(r result) float64 { return r.written.end.Seconds() }, "%.1f s"), middle(rs, func(r result) float64 { return r.streamed.end.Seconds() }, "%.1f s"),
			middle(rs, func(r result) float64 { return 100 * (1 - r.streamed.end.Seconds()/r.written.end.Seconds()) }, "%.0f %%"))
	}
	names := make([]string, 0, len(by))
	for name := range by {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(by[b]), len(by[a])), cmp.Compare(a, b)) })
	for _, name := range names {
		line(name, by[name])
	}
	var streamed []result
	for _, r := range list {
		if r.started > 0 {
			streamed = append(streamed, r)
		}
	}
	line("all that stream", streamed)
	line("all", list)
	_ = t.Flush()
	fmt.Fprintln(w, "\nTimes are medians (p10 to p90), from the request on.")
}

// middle is the median of a value with its 10th and 90th percentile.
func middle(rs []result, of func(result) float64, format string) string {
	if len(rs) == 0 {
		return "-"
	}
	vs := make([]float64, len(rs))
	for i, r := range rs {
		vs[i] = of(r)
	}
	slices.Sort(vs)
	at := func(p float64) string { return fmt.Sprintf(format, vs[int(math.Round(p*float64(len(vs)-1)))]) }
	return fmt.Sprintf("%s (%s-%s)", at(.5), at(.1), at(.9))
}
