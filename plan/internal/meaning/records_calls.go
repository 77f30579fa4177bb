package meaning

import (
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// formulas are functions of spreadsheets, queries and languages. An expression of these is a formula, not a
// plan.
var formulas = wordSet("print, len, str, int, float, list, dict, set, sorted, range, sum, max, min, abs, if, and, or, not, round, vlookup, xlookup, iferror, index, match, concat, concatenate, now, today, date, coalesce, count, countif, sumif, avg, average, sin, cos, tan, log, exp, sqrt, pow, lower, upper, trim, substring, cast, console.log, math.max, math.min, println, printf, defun, let, lambda, define, car, cdr, cons")

// combinators only order the calls in their arguments, which are read as code.
var combinators = wordSet("chain, group, chord, gather, asyncio.gather, parallel, sequence, seq, par, pipe, compose, then, series, all, promise.all, sequential, serial, concurrent, workflow, pipeline, plan, steps")

// callsInside is the evidence for a plan that is a single expression.
const callsInside = "calls in the arguments of calls"

// nestedCalls reads a plan that is a single expression: each call needs the calls in its arguments.
func nestedCalls(src *form.Source) *Reading {
	var root *form.Nest
	for i := range src.Lines {
		if strings.HasPrefix(src.Lines[i].Text, "def ") {
			return nil // a program is read by its statements
		}
	}
	for _, c := range form.Nests(src) {
		if len(c.Kids) == 0 {
			continue
		}
		if root != nil {
			return nil // several statements are a program
		}
		root = c
	}
	if root == nil {
		return nil
	}
	r := &Reading{Form: "records", Stated: true, Start: root.Off, End: root.End, Weight: 91, Evidence: []string{callsInside}}
	count := map[string]int{}
	known := 0
	var add func(c *form.Nest) string
	add = func(c *form.Nest) string {
		if formulas[strings.ToLower(c.Name)] {
			known++
		}
		id := c.Name
		if count[id]++; count[id] > 1 {
			id += "#" + strconv.Itoa(count[id])
			r.Notes = append(r.Notes, Note{Code: "AMBIGUOUS", Element: id, Off: c.Off, Message: c.Name + " is called more than once; this call is named " + id})
		}
		at := len(r.Items)
		r.Items = append(r.Items, Item{ID: id, Shown: true, Title: form.Clip(src.Text[c.Off:c.End]), Parent: -1, Off: c.Off, End: c.End})
		var text strings.Builder // the call, with inner calls replaced by their ids
		from := c.Off
		for _, k := range c.Kids {
			if len(r.Items) > src.MaxItems {
				break
			}
			kid := add(k)
			r.Links = append(r.Links, Link{From: kid, To: r.Items[at].ID, Source: Stated, Off: k.Off})
			text.WriteString(src.Text[from:k.Off] + kid)
			from = k.End
		}
		if text.WriteString(src.Text[from:max(from, c.End)]); strings.ContainsAny(text.String(), "\"'0123456789=:") {
			r.Items[at].Attrs = []Attr{{Role: Args, Value: form.Quote(text.String()), Off: c.Off, Refers: len(c.Kids) > 0}}
		}
		return id
	}
	if strings.Contains(src.Text[root.Off:root.End], "=> {") {
		return nil // a program that passes functions on
	}
	if combinators[strings.ToLower(root.Name)] {
		return nil
	}
	add(root)
	n := len(r.Items)
	if n < 3 || known*3 > n {
		return nil
	}
	if root.Open {
		r.Notes = append(r.Notes, Note{Fault: true, Code: "TRUNCATED", Element: r.Items[n-1].ID, Off: root.End, Message: "the text ends inside this call", Hint: "ask for the rest of the plan"})
	}
	return r
}
