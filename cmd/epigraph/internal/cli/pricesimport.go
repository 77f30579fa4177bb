package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/pricelist"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

type pricesImportCmd struct {
	File string `arg:"" help:"The file, in YAML, JSON or, with --csv or a name that ends in .csv, CSV; - reads standard input."`
	CSV  bool   `help:"The file is CSV, whatever its name." name:"csv"`
}

// Help shows a file.
func (pricesImportCmd) Help() string {
	return `All prices of the file are added, or none; every fault is told with its line. Prices that are there with the same rates stay as they are, so that a file can be imported again. Rates are dollars per million tokens; cached_input and reasoning may be left out.

    as_of: "2026-01-31"
    source: the price page of the provider
    prices:
      - {model: "gpt-5*", provider: openai, valid_from: "2026-01-31", input: 1.25, cached_input: 0.125, output: 10}

CSV has a first line with these names: provider,model,valid_from,input,cached_input,output,reasoning.`
}

// Run imports.
func (c *pricesImportCmd) Run(e *env) error {
	text, err := e.readText(c.File)
	if err != nil {
		return err
	}
	list, err := pricelist.Read([]byte(text), c.CSV || strings.EqualFold(filepath.Ext(c.File), ".csv"))
	if err != nil {
		return errs.New(errs.InvalidArgument, "PRICES_INVALID", "%s cannot be imported:\n%v", sourceName(c.File), err).Hint("see `epigraph prices import --help` for the form of the file")
	}
	req := &registryv1.ImportPricesRequest{}
	for _, p := range list.Prices {
		req.Prices = append(req.Prices, &registryv1.Price{
			Provider: p.Provider, Model: p.Model, ValidFrom: timestamppb.New(p.ValidFrom), InputPerMillion: p.Input, CachedInputPerMillion: p.CachedInput,
			OutputPerMillion: p.Output, ReasoningPerMillion: p.Reasoning,
		})
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.registry.ImportPrices(ctx, req)
		if err != nil {
			return inFile(sourceName(c.File), list, err)
		}
		return e.print(r, func() string {
			return fmt.Sprintf("%s added, %d unchanged\n", view.Plural(int(r.GetAdded()), "price"), r.GetUnchanged())
		})
	})
}

// inFile tells the faults that a server has found by their lines.
func inFile(name string, list pricelist.List, err error) error {
	x := errs.From(grpckit.FromStatus(err))
	var faults []string
	for _, v := range x.Violations {
		var i int
		if n, _ := fmt.Sscanf(v.Field, "prices[%d]", &i); n == 1 && i >= 0 && i < len(list.Prices) {
			faults = append(faults, fmt.Sprintf("line %d: %s", list.Prices[i].Line, v.Message))
		}
	}
	if len(faults) == 0 {
		return err
	}
	return errs.New(x.Kind, x.Reason, "%s cannot be imported:\n%s", name, strings.Join(faults, "\n")).Hint(x.HintText())
}
