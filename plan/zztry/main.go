// Command zztry shows how texts are read.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/epigraph-run/epigraph/plan"
)

func main() {
	b, _ := io.ReadAll(os.Stdin)
	for _, t := range strings.Split(string(b), "\n%%%%") {
		name, t, _ := strings.Cut(t, "\n")
		var o []plan.Option
		if d := os.Getenv("D"); d != "" {
			o = append(o, plan.WithDialect(d))
		}
		r := plan.Parse(t, o...)
		fmt.Printf("=== %s", strings.TrimLeft(name, "%"))
		if r.NoPlan != nil {
			fmt.Printf("  NO PLAN %s %s\n", r.NoPlan.Reason, r.NoPlan.Message)
		} else {
			fmt.Printf("  [%s]", r.Dialect)
			for _, p := range r.Graph.Problems {
				fmt.Printf(" %s", p.ID)
			}
			fmt.Print("\n   ")
			for _, e := range r.Graph.Edges {
				fmt.Printf(" %s>%s", e.From, e.To)
				if e.Source == "LISTED_ORDER" { fmt.Print("?") }
			}
			fmt.Println()
		}
		for _, d := range r.Diagnostics {
			if d.Code == "OPEN_END" || d.Code == "ASSUMED_ORDER" { continue }
			fmt.Printf("    %v %s %q: %s\n", d.Severity, d.Code, d.Element, d.Message)
		}
		if len(os.Args) > 1 {
			for _, p := range r.Graph.Problems { fmt.Printf("    %s = %q %v\n", p.ID, p.Request, p.Args) }
		}
	}
}
