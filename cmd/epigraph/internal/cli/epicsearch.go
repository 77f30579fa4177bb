package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

type epicsSearchCmd struct {
	Query []string `arg:"" optional:"" help:"Words of titles, descriptions, tags and results, those of tasks included; the newest epics without any."`
	page
	State []string `help:"Epics in any of these states." placeholder:"STATE"`
	Tags  []string `help:"Epics with any of these tags." name:"tag" placeholder:"TAG"`
	User  string   `help:"Epics of this user." placeholder:"ID"`
}

// Run finds the best first.
func (c *epicsSearchCmd) Run(e *env) error {
	states, err := enums[registryv1.EpicState]("--state", "EPIC_STATE_", registryv1.EpicState_value, c.State)
	if err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.registry.SearchEpics(ctx, &registryv1.SearchEpicsRequest{
			Query: strings.Join(c.Query, " "), PageSize: c.Limit, PageToken: c.Token, States: states, Tags: c.Tags, UserId: c.User,
		})
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string {
			if len(r.GetMatches()) == 0 {
				return "no epics\n"
			}
			var rows [][]string
			for _, m := range r.GetMatches() {
				x, rate := m.GetEpic(), "-"
				if m.SuccessRate != nil {
					rate = fmt.Sprintf("%.0f %%", m.GetSuccessRate()*100)
				}
				rows = append(rows, []string{
					x.GetId(), view.Word(x.GetState().String(), "EPIC_STATE_"), view.OneLine(x.GetTitle(), 40), rate,
					spent(x.GetSpentNanoUsd(), x.GetUnpricedCalls()), strings.Join(m.GetWorkflowSlugs(), ","), strings.Join(m.GetWords(), ","),
				})
			}
			return view.Table(e.io.style(), []string{"EPIC", "STATE", "TITLE", "SUCCESS", "COST", "WORKFLOWS", "WORDS"}, rows)
		})
	})
}
