package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Report is the outcome, as written with -json.
type Report struct {
	Machine    string         `json:"machine"`
	Go         string         `json:"go"`
	Postgres   string         `json:"postgres,omitempty"`
	Rounds     int            `json:"rounds"`
	PeerRounds int            `json:"peer_rounds"`
	Graphs     map[string]int `json:"graphs,omitempty"`
	Quick      bool           `json:"quick,omitempty"`
	// Stopped says that the run did not come to its end.
	Stopped     bool      `json:"stopped,omitempty"`
	Took        string    `json:"took"`
	Contestants []Line    `json:"contestants"`
	Aims        []Verdict `json:"aims"`
	Faults      []Fault   `json:"faults,omitempty"`
}

// Line is one contestant's figures: all of each, by round.
type Line struct {
	Name       string               `json:"name"`
	Class      string               `json:"class"`
	Durability string               `json:"durability"`
	Median     map[string]float64   `json:"median"`
	Rounds     map[string][]float64 `json:"rounds"`
	Skipped    map[string]string    `json:"skipped,omitempty"`
	// Turns is in how many rounds it took part, by load.
	Turns map[string]int `json:"turns,omitempty"`
	// Late are loads for which there was no time.
	Late []string `json:"late,omitempty"`
	// Repeats counts nodes that ran again, which an engine that promises "at least once" may let happen.
	Repeats int `json:"repeats,omitempty"`

	one, group figures
	figures    figures
	peer       bool
}

func (h *harness) report(took time.Duration) *Report {
	r := &Report{Machine: machine(), Go: runtime.Version(), Postgres: h.version, Rounds: h.o.rounds, PeerRounds: h.o.peerRounds, Graphs: h.graphs, Quick: h.o.quick,
		Took: took.Round(time.Second).String(), Faults: h.faults}
	by := map[string]figures{}
	for _, c := range h.contestants {
		c.figures.finished()
		by[c.name] = c.figures
	}
	for _, c := range h.contestants {
		l := Line{Name: c.name, Class: c.class, Durability: c.durability, Median: map[string]float64{}, Rounds: map[string][]float64{}, figures: c.figures, Skipped: c.skip, Turns: c.rounds, Late: c.late, Repeats: c.repeats, peer: c.peer}
		for name := range c.figures {
			l.Median[name], _ = c.figures.value(name)
			l.Rounds[name] = c.figures.all(name)
		}
		one, group := c.baselines()
		l.one, l.group = by[one], by[group]
		r.Contestants = append(r.Contestants, l)
	}
	r.Aims = h.verdicts()
	return r
}

// column is one column of the table: a figure, and against which floor it is held.
type column struct {
	title  string
	figure string
	with   func(l Line) string
}

func plain(title, figure string) column {
	return column{title, figure, func(l Line) string {
		v, ok := l.figures.value(figure)
		if !ok {
			return ""
		}
		return number(v)
	}}
}

func against(title, figure string, one, percent bool) column {
	return column{title, figure, func(l Line) string {
		v, ok := l.figures.value(figure)
		if !ok {
			return ""
		}
		base := l.group
		if one {
			base = l.one
		}
		if base == nil {
			return number(v)
		}
		ratio, ok := l.figures.ratio(base, figure)
		switch {
		case !ok:
			return number(v)
		case percent:
			return fmt.Sprintf("%s (%.3g%%)", number(v), 100*ratio)
		}
		return fmt.Sprintf("%s (%.2fx)", number(v), ratio)
	}}
}

func joined(title, first, second, between string) column {
	return column{title, first, func(l Line) string {
		v, ok := l.figures.value(first)
		w, also := l.figures.value(second)
		switch {
		case !ok && !also:
			return ""
		case !ok:
			return "-" + between + number(w)
		case !also:
			return number(v)
		}
		return number(v) + between + number(w)
	}}
}

func columns() []column {
	return []column{
		against("W1 ms (floor-1)", w1+wall, true, false),
		against("W2/100 ms (floor-B)", w2small+wall, false, false),
		against("W2/1000 ms (floor-B)", w2large+wall, false, false),
		plain("W3 nodes/s", rate),
		against("W3 nodes/CPU-s (floor-B)", perCPU, false, true),
		plain("W3 run p50 ms", runTime),
		plain("W4 x path", w4+overPath),
		joined("W5 start p50/p99 ms", startP50, startP99, " / "),
		against("W5 done p50 ms (floor-1)", doneP50, true, false),
		joined("W7 x path, 1/16", w7alone+overPath, w7many+overPath, " / "),
		against("WAL B/node (floor-B)", walBytes, false, false),
		plain("+ page images", pageBytes),
		plain("DB B/node", dbBytes),
		plain("RssAnon MB", rssPeak),
	}
}

// table is rows of cells; a row of one cell is a heading.
func (r *Report) table() [][]string {
	cols := slices.DeleteFunc(columns(), func(c column) bool {
		return !slices.ContainsFunc(r.Contestants, func(l Line) bool { return c.with(l) != "" })
	})
	head := []string{"contestant"}
	for _, c := range cols {
		head = append(head, c.title)
	}
	rows := [][]string{head}
	for _, class := range []string{localClass, remoteClass, sqliteClass, memoryClass} {
		first := true
		for _, l := range r.Contestants {
			if l.Class != class {
				continue
			}
			if first {
				rows, first = append(rows, []string{class}), false
			}
			row := []string{l.Name}
			for _, c := range cols {
				row = append(row, c.with(l)+r.mark(l.Name, figureLoad(c.figure), c.with(l) == ""))
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// mark points to the faults of a contestant at a load; a cell that has no figure says why.
func (r *Report) mark(name, load string, empty bool) string {
	var marks []string
	for i, f := range r.Faults {
		if f.Contestant == name && (f.Load == load || f.Load == "" && empty) {
			marks = append(marks, fmt.Sprintf("[%d]", i+1))
		}
	}
	if len(marks) == 0 {
		return ""
	}
	if empty {
		return "failed " + strings.Join(marks, "")
	}
	return " " + strings.Join(marks, "")
}

// wakes are rows of the table of wake-ups.
func (r *Report) wakes() [][]string {
	rows := [][]string{{"wake-up: ms until the next node is called", "n", "on another replica", "p50", "p99", "max"}}
	for _, l := range r.Contestants {
		if l.Class != wakeClass {
			continue
		}
		var kinds []string
		for name := range l.Median {
			if kind, ok := strings.CutSuffix(name, "|n"); ok {
				kinds = append(kinds, kind)
			}
		}
		slices.Sort(kinds)
		for _, k := range kinds {
			row := []string{strings.TrimPrefix(k, w8+" ")}
			for _, v := range []string{"|n", "|elsewhere", "|p50", "|p99", "|max"} {
				row = append(row, number(l.Median[k+v]))
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 1 {
		return nil
	}
	return rows
}

// limits is what needs no load.
func (r *Report) limits() [][]string {
	var rows [][]string
	for _, l := range r.Contestants {
		if l.Class != limitClass || len(l.Median) == 0 {
			continue
		}
		var parts []string
		for name, v := range l.Median {
			parts = append(parts, strings.TrimPrefix(name, limitsKey+" ")+": "+number(v))
		}
		slices.Sort(parts)
		rows = append(rows, []string{l.Name, strings.Join(parts, "; ")})
	}
	return rows
}

func (r *Report) text(w io.Writer) {
	fmt.Fprintf(w, "%s, %s, PostgreSQL %s; medians of up to %d interleaved rounds (peers: %d), %s\n", r.Machine, r.Go, r.Postgres, r.Rounds, r.PeerRounds, r.Took)
	if r.Stopped {
		fmt.Fprintln(w, "STOPPED before its end: what is missing was not measured.")
	}
	if r.Quick {
		fmt.Fprintln(w, "QUICK: one round of tiny loads. These figures show that everything runs, and nothing else.")
	}
	for _, l := range r.limits() {
		fmt.Fprintf(w, "%s: %s\n", l[0], l[1])
	}
	if n := r.Graphs; len(n) > 0 {
		fmt.Fprintf(w, "W7: %d graphs one at a time, %d graphs 16 at a time\n", n[w7alone], n[w7many])
	}
	fmt.Fprintln(w)
	if rows := r.table(); len(rows[0]) > 1 {
		aligned(w, rows)
	}
	if rows := r.wakes(); rows != nil {
		fmt.Fprintln(w)
		aligned(w, rows)
	}
	fmt.Fprintln(w, "\nAims")
	for _, v := range r.Aims {
		fmt.Fprintf(w, "  %-4s  %-28s %-52s %s\n", verdict(v), v.Contestant, v.Aim, v.Shown)
	}
	r.notes(w, "  ")
}

// fewer says at which loads a contestant took part in fewer rounds than others of its kind.
func (r *Report) fewer(l Line) string {
	most := map[string]int{}
	for _, o := range r.Contestants {
		if o.peer == l.peer {
			for load, n := range o.Turns {
				most[load] = max(most[load], n)
			}
		}
	}
	var out []string
	for _, load := range slices.Sorted(maps.Keys(l.Turns)) {
		if n := l.Turns[load]; n < most[load] {
			out = append(out, fmt.Sprintf("%s %d of %d", load, n, most[load]))
		}
	}
	return strings.Join(out, ", ")
}

// aligned writes rows in columns; a row of one cell is a heading.
func aligned(w io.Writer, rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		if len(row) == 1 {
			continue
		}
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range rows {
		if len(row) == 1 {
			fmt.Fprintf(w, "-- %s\n", row[0])
			continue
		}
		for i, cell := range row {
			space := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				fmt.Fprint(w, cell, space)
			} else {
				fmt.Fprint(w, "  ", space, cell)
			}
		}
		fmt.Fprintln(w)
		if n == 0 {
			fmt.Fprintln(w)
		}
	}
}

func (r *Report) notes(w io.Writer, indent string) {
	fmt.Fprintln(w, "\nWhat is durable when a node's successors start, and settings")
	for _, l := range r.Contestants {
		if l.Class != limitClass {
			fmt.Fprintf(w, "%s%s: %s\n", indent, l.Name, l.Durability)
		}
		for _, load := range slices.Sorted(maps.Keys(l.Skipped)) {
			fmt.Fprintf(w, "%s%s: no %s: %s\n", indent, l.Name, load, l.Skipped[load])
		}
		if few := r.fewer(l); few != "" {
			fmt.Fprintf(w, "%s%s: fewer rounds, since each takes long: %s\n", indent, l.Name, few)
		}
		if len(l.Late) > 0 {
			fmt.Fprintf(w, "%s%s: no time was left for %s\n", indent, l.Name, strings.Join(l.Late, ", "))
		}
		if l.Repeats > 0 {
			fmt.Fprintf(w, "%s%s: %d nodes ran again, which its promise (at least once) allows\n", indent, l.Name, l.Repeats)
		}
	}
	if len(r.Faults) == 0 {
		return
	}
	fmt.Fprintln(w, "\nFaults")
	for i, f := range r.Faults {
		fmt.Fprintf(w, "%s[%d] %s %s: %s\n", indent, i+1, f.Contestant, f.Load, strings.ReplaceAll(f.Text, "\n", "\n"+indent+"  "))
	}
}

func (r *Report) markdown(w io.Writer) {
	fmt.Fprintf(w, "%s, %s, PostgreSQL %s; medians of up to %d interleaved rounds (peers: %d), %s.\n\n", r.Machine, r.Go, r.Postgres, r.Rounds, r.PeerRounds, r.Took)
	for _, l := range r.limits() {
		fmt.Fprintf(w, "- %s: %s\n", l[0], l[1])
	}
	if n := r.Graphs; len(n) > 0 {
		fmt.Fprintf(w, "- W7: %d graphs one at a time, %d graphs 16 at a time\n", n[w7alone], n[w7many])
	}
	if rows := r.table(); len(rows[0]) > 1 {
		piped(w, rows)
	}
	if rows := r.wakes(); rows != nil {
		piped(w, rows)
	}
	fmt.Fprint(w, "\n| aim | contestant | got | |\n|---|---|---|---|\n")
	for _, v := range r.Aims {
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", v.Aim, v.Contestant, v.Shown, verdict(v))
	}
	r.notes(w, "- ")
}

// piped writes rows as a table of Markdown.
func piped(w io.Writer, rows [][]string) {
	fmt.Fprintf(w, "\n| %s |\n|%s\n", strings.Join(rows[0], " | "), strings.Repeat("---|", len(rows[0])))
	for _, row := range rows[1:] {
		if len(row) == 1 {
			row = append([]string{"**" + row[0] + "**"}, make([]string, len(rows[0])-1)...)
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
	}
}

func verdict(v Verdict) string {
	switch {
	case !v.Measured:
		return "-"
	case v.Met:
		return "met"
	}
	return "MISS"
}

func (r *Report) write(o options, out io.Writer) (err error) {
	r.text(out)
	if err := to(o.mdPath, out, r.markdown); err != nil {
		return err
	}
	return to(o.jsonPath, out, func(w io.Writer) {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		err = enc.Encode(r)
	})
}

func to(path string, out io.Writer, write func(io.Writer)) error {
	switch path {
	case "":
		return nil
	case "-":
		write(out)
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	write(f)
	return errors.Join(f.Close())
}

// number writes three digits that mean something.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1000:
		s := fmt.Sprintf("%.0f", v)
		for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
