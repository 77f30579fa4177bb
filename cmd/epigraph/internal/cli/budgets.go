package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// budgetOf are the flags that say whose budget is meant.
type budgetOf struct {
	Epic string `help:"That of this epic; without --epic and --task that of the namespace." placeholder:"ID"`
	Task string `help:"That of this task." placeholder:"ID"`
}

func (f *budgetOf) name() (string, error) {
	switch {
	case f.Epic != "" && f.Task != "":
		return "", usage(errs.New(errs.InvalidArgument, "VALUE_INVALID", "--epic and --task cannot both be given").Hint("set the caps of one after the other"))
	case f.Epic != "":
		return "epic/" + f.Epic, nil
	case f.Task != "":
		return "task/" + f.Task, nil
	}
	return "namespace", nil
}

type budgetsShowCmd struct{ budgetOf }

// Run shows.
func (c *budgetsShowCmd) Run(e *env) error {
	name, err := c.name()
	if err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		b, err := s.registry.GetBudget(ctx, &registryv1.GetBudgetRequest{Name: name})
		if err != nil {
			return err
		}
		return e.print(b, func() string { return allowance(b) })
	})
}

type budgetsSetCmd struct {
	budgetOf
	HardUSD    string `help:"Dollars that are never exceeded, or none." name:"hard-usd" placeholder:"X"`
	HardTokens string `help:"Tokens that are never exceeded, or none." placeholder:"N"`
	SoftUSD    string `help:"Dollars beyond which it is told, or none." name:"soft-usd" placeholder:"X"`
	SoftTokens string `help:"Tokens beyond which it is told, or none." placeholder:"N"`
}

// Help says what stays.
func (budgetsSetCmd) Help() string {
	return `Caps that are not named stay. At a hard cap runs are paused with CAP_REACHED; they go on by themselves, within a minute, once it is raised.`
}

// Run changes caps.
func (c *budgetsSetCmd) Run(e *env) error {
	name, err := c.name()
	if err != nil {
		return err
	}
	if c.HardUSD+c.HardTokens+c.SoftUSD+c.SoftTokens == "" {
		return usage(errs.New(errs.InvalidArgument, "NOTHING_TO_CHANGE", "no cap is given").Hint("give --hard-usd, --hard-tokens, --soft-usd or --soft-tokens"))
	}
	changed := &registryv1.Budget{Name: name, Hard: &registryv1.Caps{}, Soft: &registryv1.Caps{}}
	if err := c.change(changed); err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		b, err := s.registry.GetBudget(ctx, &registryv1.GetBudgetRequest{Name: name})
		if err != nil {
			return err
		}
		in := &registryv1.Budget{Name: name, Etag: b.GetEtag(), Hard: copied(b.GetHard()), Soft: copied(b.GetSoft())}
		if err := c.change(in); err != nil {
			return err
		}
		if b, err = s.registry.SetBudget(ctx, &registryv1.SetBudgetRequest{Budget: in}); err != nil {
			return err
		}
		return e.print(b, func() string { return allowance(b) })
	})
}

func copied(c *registryv1.Caps) *registryv1.Caps {
	if c == nil {
		return &registryv1.Caps{}
	}
	return &registryv1.Caps{Tokens: c.Tokens, NanoUsd: c.NanoUsd}
}

// change puts the caps of the flags into a budget.
func (c *budgetsSetCmd) change(b *registryv1.Budget) error {
	for _, f := range []struct {
		flag, value string
		money       bool
		to          **int64
	}{
		{"--hard-usd", c.HardUSD, true, &b.Hard.NanoUsd},
		{"--hard-tokens", c.HardTokens, false, &b.Hard.Tokens},
		{"--soft-usd", c.SoftUSD, true, &b.Soft.NanoUsd},
		{"--soft-tokens", c.SoftTokens, false, &b.Soft.Tokens},
	} {
		switch f.value {
		case "":
		case "none":
			*f.to = nil
		default:
			n, err := amount(f.flag, f.value, f.money)
			if err != nil {
				return err
			}
			*f.to = &n
		}
	}
	return nil
}

func amount(flag, value string, money bool) (int64, error) {
	if money {
		usd, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, usage(errs.New(errs.InvalidArgument, "VALUE_INVALID", "%s: %.40q is no number of dollars", flag, value).Hint("write it as 2.50, or none"))
		}
		return nanoUSD(flag, usd)
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return 0, usage(errs.New(errs.InvalidArgument, "VALUE_INVALID", "%s: %.40q is no number of tokens", flag, value).Hint("write it as 100000, or none"))
	}
	return n, nil
}

// allowance shows a budget.
func allowance(b *registryv1.Budget) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s has spent %s and %s\n", b.GetName(), view.Money(b.GetSpentNanoUsd()), view.Plural(int(b.GetSpentTokens()), "token"))
	if b.GetReservedNanoUsd() > 0 || b.GetReservedTokens() > 0 {
		fmt.Fprintf(&out, "calls under way may use %s and %s\n", view.Money(b.GetReservedNanoUsd()), view.Plural(int(b.GetReservedTokens()), "token"))
	}
	for _, c := range []struct {
		word string
		caps *registryv1.Caps
	}{{"hard", b.GetHard()}, {"soft", b.GetSoft()}} {
		var parts []string
		if c.caps != nil && c.caps.NanoUsd != nil {
			parts = append(parts, view.Money(c.caps.GetNanoUsd()))
		}
		if c.caps != nil && c.caps.Tokens != nil {
			parts = append(parts, view.Plural(int(c.caps.GetTokens()), "token"))
		}
		if len(parts) == 0 {
			parts = append(parts, "none")
		}
		fmt.Fprintf(&out, "%s cap: %s\n", c.word, strings.Join(parts, ", "))
	}
	if b.GetOverSoft() {
		out.WriteString("the soft cap is exceeded\n")
	}
	return out.String()
}
