// Command corpus measures how well package plan reads plans. It reads recorded, hand-written and generated
// texts, compares the result with the truth of each text, and prints tables with the aims that are met or
// missed. Only this command knows the truth of a text; the reader does not.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/plan/corpus/generate"
)

func main() {
	data := flag.String("data", "../shared/data/plans.jsonl.gz", "recorded plans, gzipped JSON Lines")
	family := flag.String("family", "", "score this family of the recorded plans only")
	misses := flag.Int("misses", 0, "list this many misses with their differences")
	mutants := flag.Int("mutants", 10, "write every n-th record in every dialect and damage the texts, and make ten times as many round trips; 0 disables both")
	part := flag.String("part", "all", "all, held (the held-out part) or dev (the rest) of the recorded plans")
	sources := flag.String("sources", "recorded,texts,held,generated", "what to score: recorded plans, hand-written texts, those held out, generated texts")
	folder := flag.String("texts", "plan/corpus/texts", "folder of the hand-written texts")
	n := flag.Int("n", 4000, "number of texts to generate")
	seed := flag.Uint64("seed", 1, "seed of the generated texts")
	freshFile := flag.String("fresh", "", "score this file of texts with truth (JSON Lines, maybe gzipped) and nothing else")
	var c choice
	flag.StringVar(&c.style, "style", "", "score this style of texts with truth only")
	flag.StringVar(&c.lang, "lang", "", "score this language of texts with truth only")
	flag.StringVar(&c.id, "id", "", "score this text with truth only, and show it")
	flag.BoolVar(&c.held, "held", false, "list misses of the held-out texts as well")
	flag.StringVar(&c.dialect, "dialect", "", "read texts with truth in this dialect only")
	flag.BoolVar(&c.body, "text", false, "list misses with their text and truth")
	flag.Parse()
	if c.style+c.lang+c.id != "" || *freshFile != "" {
		*sources = strings.Replace(*sources, "recorded", "", 1)
	}
	if c.id != "" {
		c.misses, c.body = 1, true
	}
	if *misses > 0 {
		c.misses = *misses
	}
	own, err := ownSources(*sources, *folder, *freshFile, *seed, *n)
	if err != nil {
		fmt.Fprintln(os.Stderr, "corpus:", err)
		os.Exit(2)
	}
	ok := true
	if strings.Contains(*sources, "recorded") {
		ok, err = run(os.Stdout, *data, *family, *part, *misses, *mutants)
		if errors.Is(err, fs.ErrNotExist) {
			fmt.Printf("corpus: %s does not exist; the recorded plans were not measured\n", *data)
			ok, err = true, nil
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "corpus:", err)
			os.Exit(2)
		}
	}
	for _, s := range own {
		ok = printSource(os.Stdout, s, c) && ok
	}
	if !ok {
		os.Exit(1)
	}
}

// ownSources opens the listed sources of texts with truth.
func ownSources(names, folder, freshFile string, seed uint64, n int) ([]source, error) {
	if freshFile != "" {
		texts, err := readFresh(freshFile)
		return []source{{name: freshFile, texts: texts}}, err
	}
	var out []source
	for _, name := range splitTrim(names, ",") {
		var err error
		s := source{name: name}
		switch name {
		case "recorded":
			continue
		case "texts":
			s.texts, err = readTexts(folder)
		case "held":
			s.held = true
			s.texts, err = readTexts(filepath.Join(folder, "held"))
		case "generated":
			s.halved = true
			s.texts, err = generate.Texts(seed, n)
		default:
			err = fmt.Errorf("unknown source %q", name)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// tally counts the outcomes of one family.
type tally struct {
	n, scored, exact, silent, said, refused, noPlan, noPlanWant, alarms, clean, crashed, undecided int
	bytes                                                                                          int
	took                                                                                           time.Duration
}

func (t *tally) add(r *record, o outcome) {
	t.n++
	t.bytes += len(r.Raw)
	t.took += o.took
	if r.isNoPlan() {
		t.noPlanWant++
	} else if r.Expected != nil {
		t.scored++
		t.clean++
	}
	if o.falseAlarm {
		t.alarms++
	}
	switch o.verdict {
	case exact:
		t.exact++
	case silentlyWrong:
		t.silent++
	case saidWrong:
		t.said++
	case refused:
		t.refused++
	case noPlanSeen:
		t.noPlan++
	case crashed:
		t.crashed++
	case undecided:
		t.undecided++
	}
}

func (t *tally) plus(u *tally) {
	t.n += u.n
	t.scored += u.scored
	t.exact += u.exact
	t.silent += u.silent
	t.said += u.said
	t.refused += u.refused
	t.noPlan += u.noPlan
	t.noPlanWant += u.noPlanWant
	t.alarms += u.alarms
	t.clean += u.clean
	t.crashed += u.crashed
	t.undecided += u.undecided
	t.bytes += u.bytes
	t.took += u.took
}

func (t *tally) rate() float64 {
	if t.took == 0 {
		return 0
	}
	return float64(t.bytes) / 1e6 / t.took.Seconds()
}

// missedAims returns the aims that a family misses.
func (t *tally) missedAims() []string {
	var out []string
	switch {
	case t.scored >= 100 && float64(t.exact) < 0.98*float64(t.scored):
		out = append(out, "exact")
	case t.scored < 100 && t.scored-t.exact > 1:
		out = append(out, "exact")
	}
	if float64(t.noPlan) < 0.95*float64(t.noPlanWant) {
		out = append(out, "no-plan")
	}
	if t.clean > 0 && float64(t.alarms) > 0.01*float64(t.clean) && t.alarms > 1 {
		out = append(out, "false-alarms")
	}
	if t.crashed > 0 {
		out = append(out, "crashes")
	}
	return out
}

func run(w io.Writer, path, family, part string, misses, mutants int) (bool, error) {
	records, err := readCorpus(path)
	if err != nil {
		return false, err
	}
	tallies := map[string]*tally{}
	listed := 0
	trip := &tripper{w: w, dialects: map[string]*trips{}, families: map[string]*trips{}, list: misses, every: mutants}
	for i := range records {
		r := &records[i]
		if family != "" && r.Family != family || part == "held" && !r.heldOut() || part == "dev" && r.heldOut() {
			continue
		}
		o := score(r)
		t := tallies[r.Family]
		if t == nil {
			t = &tally{}
			tallies[r.Family] = t
		}
		t.add(r, o)
		bad := o.verdict != exact && o.verdict != noPlanSeen && o.verdict != undecided
		if (bad || o.falseAlarm) && listed < misses {
			listed++
			printMiss(w, r, o)
		}
		if mutants > 0 {
			if err := trip.add(i, r, o); err != nil {
				return false, err
			}
		}
	}
	ok := printTable(w, tallies)
	if mutants > 0 && !trip.print() {
		ok = false
	}
	return ok, nil
}

func printMiss(w io.Writer, r *record, o outcome) {
	fmt.Fprintf(w, "--- %s (%s) %v: %s, read as %q, false alarm %v\n", r.ID, r.Format, r.Flags, o.verdict, o.result.Dialect, o.falseAlarm)
	if o.detail != "" {
		fmt.Fprintf(w, "%.2000s\n", o.detail)
	}
	for i, d := range o.result.Diagnostics {
		if i == 8 {
			fmt.Fprintf(w, "    … %d more\n", len(o.result.Diagnostics)-i)
			break
		}
		fmt.Fprintf(w, "    %.200s\n", d)
	}
}

func printTable(w io.Writer, tallies map[string]*tally) bool {
	names := make([]string, 0, len(tallies))
	total := &tally{}
	for name, t := range tallies {
		names = append(names, name)
		total.plus(t)
	}
	sort.Strings(names)
	fmt.Fprintf(w, "%-17s %6s %7s %8s %7s %7s %8s %9s %7s %8s %6s %7s  %s\n", "family", "n", "scored", "exact", "silent", "said", "refused", "no-plan", "alarms", "crashes", "open", "MB/s", "aims")
	met := true
	row := func(name string, t *tally, aims []string) {
		verdict := "met"
		if len(aims) > 0 {
			verdict = fmt.Sprint("MISSED ", aims)
			met = false
		}
		pct := "-"
		if t.scored > 0 {
			pct = fmt.Sprintf("%.2f%%", 100*float64(t.exact)/float64(t.scored))
		}
		fmt.Fprintf(w, "%-17s %6d %7d %8s %7d %7d %8d %5d/%-3d %7d %8d %6d %7.1f  %s\n", name, t.n, t.scored, pct, t.silent, t.said, t.refused, t.noPlan, t.noPlanWant, t.alarms, t.crashed, t.undecided, t.rate(), verdict)
	}
	for _, name := range names {
		row(name, tallies[name], tallies[name].missedAims())
	}
	var aims []string
	if scored := total.scored + total.noPlanWant; float64(total.silent) > 0.003*float64(scored) {
		aims = append(aims, "silently-wrong")
	}
	row("all", total, aims)
	return met
}
