package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

type runsExplainCmd struct {
	ID string `arg:"" help:"The run."`
}

// Help describes the command.
func (runsExplainCmd) Help() string {
	return `Explains why a run does not move: its waits, the holders of what it needs, and the commands that help. The most likely reason comes first. A run that waits for others is followed by those that hold it up, as far as they are few.`
}

// Run explains.
func (c *runsExplainCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.executor.ExplainRun(ctx, &executorv1.ExplainRunRequest{RunId: c.ID})
		if err != nil {
			return err
		}
		return e.print(r, func() string {
			left := maxExplained
			return explainDown(ctx, e, s, r, &left)
		})
	})
}

const (
	// maxExplained bounds the runs that one command explains, and maxAside those below one run that are
	// explained beside each other.
	maxExplained, maxAside = 12, 3
)

// explainDown explains a run, and below it the runs that hold it up. left is how many runs may still be
// explained.
func explainDown(ctx context.Context, e *env, s *services, r *executorv1.ExplainRunResponse, left *int) string {
	*left--
	var below strings.Builder
	for _, id := range holders(ctx, s, r) {
		if *left == 0 {
			break
		}
		x, err := s.executor.ExplainRun(ctx, &executorv1.ExplainRunRequest{RunId: id})
		if err != nil {
			continue // the run above has told of it
		}
		for _, b := range r.GetBlockers() {
			if strings.HasPrefix(b.GetHint(), "`epigraph runs explain "+id+"`") {
				b.Hint = ""
			}
		}
		below.WriteString(explainDown(ctx, e, s, x, left))
	}
	return explainText(e, r) + below.String()
}

// holders are the open children that hold a run up: the only one that it waits for, or those of several that
// are paused or wait for a person.
func holders(ctx context.Context, s *services, r *executorv1.ExplainRunResponse) (out []string) {
	var all []string
	for _, b := range r.GetBlockers() {
		if b.GetKind() == executorv1.BlockerKind_BLOCKER_KIND_CHILDREN {
			all = append(all, b.GetRunIds()...)
		}
	}
	if len(all) == 1 {
		return all
	}
	for _, id := range all[:min(len(all), maxLooks)] {
		c, err := s.executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: id})
		if err == nil && (standsStill(c) || c.GetOpenInterrupts() > 0) {
			out = append(out, id)
		}
		if len(out) == maxAside {
			break
		}
	}
	return out
}

func explainText(e *env, r *executorv1.ExplainRunResponse) string {
	var b strings.Builder
	s := e.io.style()
	fmt.Fprintf(&b, "%s %s", r.GetRunId(), s.State(view.Word(r.GetState().String(), "RUN_STATE_")))
	if len(r.GetBlockers()) == 0 || !strings.HasPrefix(r.GetSummary(), r.GetBlockers()[0].GetMessage()) {
		// else the first line below repeats it
		b.WriteString(": " + view.LocalTimes(view.OneLine(view.Dollars(r.GetSummary()), 0)))
	}
	b.WriteString("\n")
	if r.GetOwner() != "" {
		fmt.Fprintf(&b, "owner: %s\n", view.OneLine(r.GetOwner(), 80))
	}
	for _, x := range r.GetBlockers() {
		kind := strings.ReplaceAll(view.Word(x.GetKind().String(), "BLOCKER_KIND_"), "_", " ")
		where := ""
		if x.GetVisit() != nil {
			where = " " + refText(x.GetVisit())
		}
		fmt.Fprintf(&b, "- %s%s: %s\n", s.Bold(kind), where, view.LocalTimes(view.OneLine(view.Dollars(x.GetMessage()), 0)))
		// The sentence says the beginning of an error on one line; the rest, and a picture of the place,
		// stand below.
		if err := x.GetError(); err != nil && !strings.Contains(x.GetMessage(), err.GetMessage()) {
			b.WriteString("    " + s.Said(err.GetReason()+":", err.GetMessage(), "      ") + "\n")
		}
		var facts []string
		if x.GetUntil() != nil {
			facts = append(facts, "until "+view.When(x.GetUntil()))
		}
		if x.GetSince() != nil {
			facts = append(facts, "since "+view.When(x.GetSince()))
		}
		for _, list := range []struct {
			what string
			ids  []string
		}{{"runs", x.GetRunIds()}, {"nodes", x.GetNodeIds()}, {"interrupts", x.GetInterruptIds()}} {
			if len(list.ids) > 0 {
				facts = append(facts, list.what+" "+some(list.ids, 5))
			}
		}
		if x.GetEffectKey() != "" {
			facts = append(facts, "effect key "+view.OneLine(x.GetEffectKey(), 0))
		}
		if len(facts) > 0 {
			fmt.Fprintf(&b, "    %s\n", s.Dim(strings.Join(facts, "  ")))
		}
		if x.GetHint() != "" {
			fmt.Fprintf(&b, "    %s\n", view.OneLine(x.GetHint(), 0))
		}
	}
	if r.GetMore() > 0 {
		fmt.Fprintf(&b, "… and %d more\n", r.GetMore())
	}
	return b.String()
}

// some names the first of a list.
func some(list []string, most int) string {
	out := make([]string, 0, most)
	for _, x := range list[:min(len(list), most)] {
		out = append(out, view.OneLine(x, 60))
	}
	if n := len(list) - most; n > 0 {
		return strings.Join(out, ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(out, ", ")
}
