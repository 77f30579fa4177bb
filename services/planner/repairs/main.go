// Command repairs measures how far the rounds of CreatePlan mend faulty plans. It takes recorded plans that
// cannot run, has a scripted model write each of them, and lets that model mend what it is told: all of it,
// or half. The model knows the conversation alone, as a real one does.
package main

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/plan"
	planv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/plan/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	"github.com/epigraph-run/epigraph/services/planner"
)

func main() {
	data := flag.String("data", "../shared/data/plans.jsonl.gz", "recorded plans, gzipped JSON Lines")
	rounds := flag.Int("rounds", 4, "answers of the model at most")
	verbose := flag.Bool("v", false, "list the plans that were not mended")
	flag.Parse()
	if err := measure(context.Background(), os.Stdout, *data, *rounds, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "repairs:", err)
		os.Exit(1)
	}
}

// record is a recorded plan.
type record struct {
	ID    string   `json:"id"`
	Task  string   `json:"task"`
	Raw   string   `json:"raw"`
	Flags []string `json:"flags"`
	// codes are the faults of the text.
	codes []string
	tools []*plannerv1.PlanTool
}

func measure(ctx context.Context, w io.Writer, data string, rounds int, verbose bool) error {
	begin := time.Now()
	all, list, err := faulty(ctx, data)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d of %d recorded plans have faults\n\n", len(list), all)
	var faults error
	for _, share := range []struct {
		name  string
		whole bool
	}{{"a model that mends what it is told", true}, {"a model that mends half of it", false}} {
		t, err := play(ctx, list, share.whole, rounds)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s:\n", share.name)
		t.print(w, verbose)
		if share.whole && t.mended < t.plans {
			faults = fmt.Errorf("%d plans were not mended though the model mends all that it is told", t.plans-t.mended)
		}
	}
	fmt.Fprintf(w, "took %s\n", time.Since(begin).Round(time.Second))
	return faults
}

// faulty reads the recorded plans that cannot run. Texts that hold no plan, as those who recorded them say,
// are left out.
func faulty(ctx context.Context, name string) (all int, out []record, err error) {
	f, err := os.Open(name) //nolint:gosec // the caller names it
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return 0, nil, err
	}
	dec := json.NewDecoder(z)
	for {
		var r record
		if err := dec.Decode(&r); errors.Is(err, io.EOF) {
			return all, out, nil
		} else if err != nil {
			return 0, nil, fmt.Errorf("read %s: %w", name, err)
		}
		if slices.ContainsFunc(r.Flags, func(f string) bool { return f == "no_plan" || f == "refusal" || f == "not_a_graph" }) {
			continue
		}
		all++
		read := plan.Parse(r.Raw, plan.WithComplete(), plan.WithContext(ctx))
		if read.NoPlan != nil {
			r.codes = append(r.codes, "NO_PLAN")
		}
		named := map[string]bool{}
		for _, p := range read.Graph.Problems {
			if p.Tool != "" && !named[p.Tool] && len(p.Tool) <= 256 {
				named[p.Tool] = true
				r.tools = append(r.tools, &plannerv1.PlanTool{Name: p.Tool})
			}
		}
		for _, d := range read.Diagnostics {
			if d.Severity == plan.Error && !slices.Contains(r.codes, string(d.Code)) {
				r.codes = append(r.codes, string(d.Code))
			}
		}
		if len(r.codes) > 0 && len(r.tools) <= 500 {
			out = append(out, r)
		}
	}
}

// table is the outcome of all plans with one model.
type table struct {
	plans, mended int
	// in counts the mended plans by rounds, ends the others by the reason.
	in   map[int]int
	ends map[string]int
	// had and left count plans by the faults of the text, and by those that remained.
	had, left map[string]int
	tokens    int64
	lost      []string
}

// play has the planner ask a model that mends all that it is told, or half of it.
func play(ctx context.Context, list []record, whole bool, rounds int) (table, error) {
	var now record
	fake := fakellm.New(fakellm.Script{Answer: func(req fakellm.Request) (fakellm.Reply, bool) {
		if len(req.Messages) < 4 {
			return fakellm.Reply{Text: now.Raw}, true
		}
		return fakellm.Reply{Text: mended(req.Messages[2].Content, req.Messages[3].Content, whole)}, true
	}})
	url, err := fake.Listen("127.0.0.1:0")
	if err != nil {
		return table{}, err
	}
	defer func() { _ = fake.Close() }()
	client, done, err := serve(ctx, url, rounds)
	if err != nil {
		return table{}, err
	}
	defer done()
	t := table{in: map[int]int{}, ends: map[string]int{}, had: map[string]int{}, left: map[string]int{}}
	for _, now = range list {
		r, err := client.CreatePlan(ctx, &plannerv1.CreatePlanRequest{Goal: "Plan: " + strings.ToValidUTF8(now.Task[:min(len(now.Task), 10_000)], ""), Tools: now.tools})
		if err != nil {
			return table{}, fmt.Errorf("plan %s: %w", now.ID, err)
		}
		t.add(now, r)
	}
	return t, nil
}

// serve serves a planner that asks the model at url.
func serve(ctx context.Context, url string, rounds int) (plannerv1.PlannerServiceClient, func(), error) {
	cfg := planner.DefaultConfig()
	cfg.Author.Rounds, cfg.Author.MaxTokens, cfg.Author.MaxOutputTokens = rounds, 10_000_000, 1_000_000
	cfg.Models.Change("default", func(p *llm.Profile) { p.BaseURL, p.Model, p.OutputLimit = url, "fake-1", cfg.Author.MaxOutputTokens })
	s, err := planner.Open(ctx, cfg, planner.Deps{})
	if err != nil {
		return nil, nil, err
	}
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	server := grpc.NewServer()
	s.Register(server)
	go func() { _ = server.Serve(lis) }()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return nil, nil, err
	}
	return plannerv1.NewPlannerServiceClient(conn), func() {
		_ = conn.Close()
		server.Stop()
		_ = s.Close()
	}, nil
}

func (t *table) add(r record, got *plannerv1.CreatePlanResponse) {
	t.plans++
	for _, c := range r.codes {
		t.had[c]++
	}
	a := got.GetAuthoring()
	t.tokens += a.GetInputTokens() + a.GetOutputTokens()
	if got.GetGraph() != nil {
		t.mended++
		t.in[len(a.GetRounds())]++
		return
	}
	t.ends[strings.TrimPrefix(a.GetEnd().String(), "AUTHOR_END_")]++
	rounds := a.GetRounds()
	codes := map[string]bool{}
	if len(rounds) > 0 {
		for _, d := range rounds[len(rounds)-1].GetDiagnostics() {
			if d.GetSeverity() == planv1.Severity_SEVERITY_ERROR {
				codes[d.GetCode()] = true
			}
		}
	}
	for c := range codes {
		t.left[c]++
	}
	t.lost = append(t.lost, fmt.Sprintf("%s: %s %s, had %s", r.ID, a.GetEnd(), slices.Sorted(maps.Keys(codes)), r.codes))
}

func (t *table) print(w io.Writer, verbose bool) {
	fmt.Fprintf(w, "  mended %d of %d (%.1f %%), %d tokens a plan\n", t.mended, t.plans, 100*float64(t.mended)/float64(max(t.plans, 1)), t.tokens/int64(max(t.plans, 1)))
	for _, n := range slices.Sorted(maps.Keys(t.in)) {
		fmt.Fprintf(w, "    in %d rounds: %d\n", n, t.in[n])
	}
	for _, e := range slices.Sorted(maps.Keys(t.ends)) {
		fmt.Fprintf(w, "    not, ended by %s: %d\n", e, t.ends[e])
	}
	fmt.Fprintf(w, "  %-22s %8s %8s\n", "fault", "had it", "kept it")
	for _, c := range slices.Sorted(maps.Keys(t.had)) {
		fmt.Fprintf(w, "  %-22s %8d %8d\n", c, t.had[c], t.left[c])
	}
	for _, c := range slices.Sorted(maps.Keys(t.left)) {
		if t.had[c] == 0 {
			fmt.Fprintf(w, "  %-22s %8d %8d\n", c, 0, t.left[c])
		}
	}
	if verbose {
		for _, l := range t.lost {
			fmt.Fprintln(w, "    "+l)
		}
	}
	fmt.Fprintln(w)
}
