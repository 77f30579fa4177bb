// Command wf scores workflow definitions.
package main

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/epigraph-run/epigraph/plan"
)

func main() {
	f, _ := os.Open("/work/shared/data/workflows.jsonl.gz")
	z, _ := gzip.NewReader(f)
	dec := json.NewDecoder(z)
	type st struct{ n, exact, nodes, edges, refused, silent int }
	all := map[string]*st{}
	show := map[string]int{}
	for {
		var r struct {
			Platform, Name string
			Nodes          []struct{ ID string }
			Edges          [][]any
			Raw            *string
		}
		if dec.Decode(&r) != nil {
			break
		}
		if r.Raw == nil {
			continue
		}
		s := all[r.Platform]
		if s == nil {
			s = &st{}
			all[r.Platform] = s
		}
		s.n++
		res := plan.Parse(*r.Raw)
		short := func(id string) string {
			if r.Platform == "argo" {
				return id[strings.LastIndex(id, "/")+1:]
			}
			return id
		}
		wn, we := map[string]bool{}, map[string]bool{}
		for _, n := range r.Nodes {
			wn[short(n.ID)] = true
		}
		for _, e := range r.Edges {
			we[short(fmt.Sprint(e[0]))+" > "+short(fmt.Sprint(e[1]))] = true
		}
		gn, ge := map[string]bool{}, map[string]bool{}
		for _, p := range res.Graph.Problems {
			gn[p.ID] = true
		}
		for _, e := range res.Graph.Edges {
			ge[e.From+" > "+e.To] = true
		}
		var diff []string
		cmp := func(w, g map[string]bool) bool {
			ok := true
			for k := range w {
				if !g[k] {
					ok = false
					diff = append(diff, "lost "+k)
				}
			}
			for k := range g {
				if !w[k] {
					ok = false
					diff = append(diff, "extra "+k)
				}
			}
			return ok
		}
		a, b := cmp(wn, gn), cmp(we, ge)
		if res.NoPlan != nil {
			s.refused++
		}
		if a {
			s.nodes++
		}
		if b {
			s.edges++
		}
		if a && b {
			s.exact++
			continue
		}
		w := 0
		for _, d := range res.Diagnostics {
			if d.Severity != plan.Info && d.Code != "ASSUMED_ORDER" {
				w++
			}
		}
		if w == 0 && res.NoPlan == nil {
			s.silent++
		}
		if len(os.Args) > 1 && os.Args[1] == r.Platform {
			show[r.Platform]++
			if show[r.Platform] <= 25 {
				sort.Strings(diff)
				fmt.Printf("--- %s %s [%s] warn=%d %.600s\n", r.Platform, r.Name, res.Dialect, w, strings.Join(diff, "; "))
				for _, d := range res.Diagnostics[:min(len(res.Diagnostics), 4)] {
					fmt.Printf("      %.200s\n", d)
				}
				if len(os.Args) > 2 {
					fmt.Printf("%.3000s\n", *r.Raw)
				}
			}
		}
	}
	for k, s := range all {
		fmt.Printf("%s %+v\n", k, *s)
	}
}
