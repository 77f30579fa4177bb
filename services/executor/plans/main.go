// Command plans has an agent carry out recorded plans on an executor. Scripted models write each plan as it
// was recorded, mend it when they are told its faults, and do its problems. The command shows what became of
// each plan, and fails if a faulty plan was done, a result was lost on its way to a problem or back to the
// planner, or a problem was told of what it does not depend on.
package main

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/plan"
)

func main() {
	data := flag.String("data", "../shared/data/plans.jsonl.gz", "recorded plans, gzipped JSON Lines")
	n := flag.Int("n", 20, "number of plans; a quarter of them have faults")
	seed := flag.Uint64("seed", 1, "of the sample")
	solver := flag.String("solver", "agent", "what does the problems: agent, or llm")
	verbose := flag.Bool("v", false, "show the problems of each plan, with what each was told and what it gave")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *data, *n, *seed, *solver, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "plans:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, data string, n int, seed uint64, solver string, verbose bool) error {
	begin := time.Now()
	if solvers()[solver] == "" {
		return fmt.Errorf("%q is no solver: use agent or llm", solver)
	}
	all, err := read(data)
	if err != nil {
		return err
	}
	sample := draw(ctx, all, n, seed)
	fmt.Fprintf(w, "%d of %d recorded plans, seed %d\n\n", len(sample), len(all), seed)
	dir, err := os.MkdirTemp("", "plans")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := open(ctx, filepath.Join(dir, "executor.db"))
	if err != nil {
		return err
	}
	defer s.close()
	var t table
	for _, r := range sample {
		one, err := s.carryOut(ctx, r, solver)
		if err != nil {
			return fmt.Errorf("plan %s: %w", r.ID, err)
		}
		t.add(w, one, verbose)
	}
	return t.end(w, time.Since(begin))
}

// record is a recorded plan.
type record struct {
	ID     string   `json:"id"`
	Family string   `json:"family"`
	Format string   `json:"format"`
	Task   string   `json:"task"`
	Raw    string   `json:"raw"`
	Flags  []string `json:"flags"`
}

// kind is the source of a plan and its notation.
func (r *record) kind() string { return r.Family + " " + r.Format }

func (r *record) flagged(of ...string) bool {
	return slices.ContainsFunc(r.Flags, func(f string) bool { return slices.Contains(of, f) })
}

// read reads the recorded plans. Texts that hold no plan, as those who recorded them say, are left out.
func read(name string) (out []record, err error) {
	f, err := os.Open(name) //nolint:gosec // the caller names it
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	for dec := json.NewDecoder(z); ; {
		var r record
		if err := dec.Decode(&r); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if !r.flagged("no_plan", "refusal", "not_a_graph") {
			out = append(out, r)
		}
	}
}

// What an agent takes.
const (
	maxProblems = 200
	maxText     = 256 << 10
)

// draw draws plans of as many kinds as there are. A quarter of them have faults.
func draw(ctx context.Context, all []record, n int, seed uint64) (out []record) {
	all = slices.Clone(all)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] }) //nolint:gosec // a sample
	taken := map[string]bool{}
	take := func(most int, faulty bool) {
		kinds := map[string]int{}
		// Each pass takes one more plan of each kind.
		for pass := 1; len(out) < most && pass <= n; pass++ {
			for _, r := range all {
				if len(out) >= most {
					return
				}
				if taken[r.ID] || kinds[r.kind()] >= pass || len(r.Raw) > maxText || r.flagged("cycle", "dangling_ref", "dup_node_id", "self_loop") != faulty {
					continue
				}
				g := plan.Parse(r.Raw, plan.WithContext(ctx))
				if g.NoPlan != nil || g.HasErrors() != faulty || len(g.Graph.Problems) > maxProblems || len(g.Graph.Edges) == 0 {
					continue
				}
				taken[r.ID] = true
				kinds[r.kind()]++
				out = append(out, r)
			}
		}
	}
	take(n/4, true)
	take(n, false)
	slices.SortFunc(out, func(a, b record) int { return strings.Compare(a.kind()+a.ID, b.kind()+b.ID) })
	return out
}

// table is the outcome of all plans.
type table struct {
	plans, mended, problems, edges, joins, arrived, back int
	faults                                               []string
}

const row = "%-44s %8v %6v %6v %6v %-34s %12s %12s\n"

func (t *table) add(w io.Writer, o *outcome, verbose bool) {
	if t.plans == 0 {
		fmt.Fprintf(w, row, "plan", "problems", "edges", "joins", "rounds", "faults told", "arrived", "given back")
	}
	t.plans++
	t.problems += len(o.problems)
	t.edges += o.edges
	t.joins += o.joins
	t.arrived += o.arrived
	t.back += o.back
	if len(o.told) > 0 {
		t.mended++
	}
	told := strings.Join(o.told, " ")
	if len(told) > 34 {
		told = told[:33] + "…"
	}
	fmt.Fprintf(w, row, o.kind, len(o.problems), o.edges, o.joins, o.rounds, told, of(o.arrived, o.edges), of(o.back, len(o.problems)))
	if verbose {
		for _, p := range o.problems {
			fmt.Fprintf(w, "    %-24.24s told of %v, gave %q\n", p.id, p.told, p.gave)
		}
	}
	for _, f := range o.faults {
		t.faults = append(t.faults, o.id+": "+f)
		fmt.Fprintln(w, "    WRONG: "+f)
	}
}

func of(n, all int) string { return fmt.Sprintf("%d of %d", n, all) }

func (t *table) end(w io.Writer, took time.Duration) error {
	fmt.Fprintf(w, "\n%d plans: %d problems, %d edges, %d joins; %d had faults, were told back and mended\n", t.plans, t.problems, t.edges, t.joins, t.mended)
	fmt.Fprintf(w, "%s results arrived as attachments, %s came back to the planner as action results; took %s\n", of(t.arrived, t.edges), of(t.back, t.problems), took.Round(100*time.Millisecond))
	if len(t.faults) > 0 {
		return fmt.Errorf("%d faults:\n%s", len(t.faults), strings.Join(t.faults, "\n"))
	}
	return nil
}
