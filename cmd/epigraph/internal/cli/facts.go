package cli

import (
	"context"
	"fmt"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

type factsLsCmd struct {
	page
	Agent string  `help:"Facts of this agent." placeholder:"NAME"`
	User  *string `help:"Facts about this user; an empty name asks for those about none." placeholder:"ID"`
}

// Run lists.
func (c *factsLsCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.facts.ListFacts(ctx, &executorv1.ListFactsRequest{PageSize: c.Limit, PageToken: c.Token, Agent: c.Agent, UserId: c.User})
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string {
			if len(r.GetFacts()) == 0 {
				return "no facts\n"
			}
			var rows [][]string
			for _, f := range r.GetFacts() {
				rows = append(rows, []string{f.GetId(), view.OneLine(f.GetAgent(), 30), view.OneLine(f.GetUserId(), 30), view.When(f.GetLearnTime()),
					view.OneLine(f.GetName(), 30), view.OneLine(f.GetContent(), 80)})
			}
			return view.Table(e.io.style(), []string{"FACT", "AGENT", "USER", "LEARNED", "NAME", "CONTENT"}, rows)
		})
	})
}

type factsRmCmd struct {
	IDs []string `arg:"" name:"id" help:"The facts."`
}

// Help says what comes back.
func (factsRmCmd) Help() string { return `A fact comes back when the agent learns it again.` }

// Run deletes.
func (c *factsRmCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		for _, id := range c.IDs {
			r, err := s.facts.DeleteFact(ctx, &executorv1.DeleteFactRequest{FactId: id})
			if err != nil {
				return err
			}
			if err := e.print(r, func() string { return fmt.Sprintf("%s is deleted\n", id) }); err != nil {
				return err
			}
		}
		return nil
	})
}
