// Command peers runs the same loads on Epigraph, on what the databases allow, and on other engines, side by
// side on one machine in one run, and prints one table. It must not know how a contestant works inside: each
// is a set of processes that speak the protocol of package drive.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are what the flags say.
type options struct {
	dir        string
	only       string
	loads      string
	store      string
	rounds     int
	peerRounds int
	quick      bool
	dags       string
	dagCount   int
	waiting    int
	wakes      int
	most       time.Duration
	profile    string
	jsonPath   string
	mdPath     string
	list       bool
	loud       bool
	cache      string
}

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", ".", "directory of the bench module")
	flag.StringVar(&o.only, "only", "", "regular expression: the contestants to run (the floors run always)")
	flag.StringVar(&o.loads, "loads", "", "the loads to run, like W1,W3 (default all)")
	flag.StringVar(&o.store, "store", "all", "postgres, sqlite or all: the stores to compare on")
	flag.IntVar(&o.rounds, "rounds", 5, "interleaved rounds of Epigraph and the floors")
	flag.IntVar(&o.peerRounds, "peer-rounds", 3, "of those, in how many the other engines take part")
	flag.BoolVar(&o.quick, "quick", false, "one round of tiny loads: shows that everything works and measures nothing")
	flag.StringVar(&o.dags, "dags", os.Getenv("EPIGRAPH_BENCH_DAGS"), "JSON lines of real graphs for W7 (EPIGRAPH_BENCH_DAGS); none leaves W7 out")
	flag.IntVar(&o.dagCount, "dag-count", 100, "how many of them at most: fewer if time is short, and the table says how many")
	flag.IntVar(&o.waiting, "waiting", 5000, "runs that wait, to see what memory each takes; 0 leaves it out")
	flag.IntVar(&o.wakes, "wakes", 1000, "wake-ups of each kind between two replicas; 0 leaves them out")
	flag.DurationVar(&o.most, "time", 13*time.Minute, "about how long all may take: rounds beyond the first are given out by what they cost")
	flag.StringVar(&o.profile, "cpuprofile", "", "prefix of CPU profiles of Epigraph's own process, one for each turn")
	flag.StringVar(&o.jsonPath, "json", "", "write the figures as JSON to this file; - is the standard output")
	flag.StringVar(&o.mdPath, "markdown", "", "write the table as Markdown to this file; - is the standard output")
	flag.BoolVar(&o.list, "list", false, "list contestants and loads, and end")
	flag.BoolVar(&o.loud, "v", false, "show what the contestants write to their standard error")
	flag.StringVar(&o.cache, "cache", "", "directory that keeps built peers between runs (default .peers in the module)")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	signal.Ignore(syscall.SIGPIPE) // Ctrl-C ends the other end of a pipe too, and we still have to clean up
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := bench(ctx, o, log, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// bench does everything. All its processes have ended when it returns.
func bench(ctx context.Context, o options, log *slog.Logger, out io.Writer) (err error) {
	loads, err := plan(o)
	if err != nil {
		return err
	}
	specs, err := choose(o)
	if err != nil {
		return err
	}
	if o.list {
		for _, l := range loads {
			fmt.Fprintf(out, "%-9s %s\n", l.key, l.title)
		}
		for _, s := range specs {
			fmt.Fprintf(out, "%-28s %-28s %s\n", s.name, s.class, s.durability)
		}
		return nil
	}
	began := time.Now()
	h, err := open(ctx, o, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	h.start(ctx, specs)
	h.schedule = newSchedule(began, o.most-o.after(), loads)
	var stopped error
	for _, l := range loads {
		if stopped = h.run(ctx, l); stopped != nil {
			break
		}
	}
	if stopped == nil {
		stopped = h.waiting(ctx)
	}
	// Figures measured before an interruption are reported too.
	rep := h.report(time.Since(began))
	rep.Stopped = stopped != nil
	if err := errors.Join(rep.write(o, out), stopped); err != nil {
		return err
	}
	var ours []string
	for _, f := range h.faults {
		if f.Ours {
			ours = append(ours, strings.TrimSpace(f.Contestant+" "+f.Load))
		}
	}
	if len(ours) > 0 {
		return fmt.Errorf("failed: %s: see the notes above", strings.Join(ours, "; "))
	}
	return nil
}

// after is what comes after the loads: memory of runs that wait, and the end of all processes.
func (o options) after() time.Duration {
	if o.waiting == 0 || !wanted(o.loads, w6) {
		return 10 * time.Second
	}
	return 30 * time.Second
}

// choose filters the contestants.
func choose(o options) ([]*spec, error) {
	re, err := regexp.Compile(o.only)
	if err != nil {
		return nil, err
	}
	switch o.store {
	case "all", onPostgres, onSQLite:
	default:
		return nil, fmt.Errorf("-store must be all, postgres or sqlite, got %q", o.store)
	}
	specs := slices.DeleteFunc(contestants(), func(s *spec) bool {
		if o.store != "all" && s.store != "" && s.store != o.store {
			return true
		}
		return !s.floor && !re.MatchString(s.name)
	})
	// Floors of a store on which nobody runs say nothing.
	return slices.DeleteFunc(specs, func(s *spec) bool {
		return s.floor && !re.MatchString(s.name) && !slices.ContainsFunc(specs, func(o *spec) bool { return !o.floor && o.store == s.store })
	}), nil
}

func wanted(list, key string) bool {
	if list == "" {
		return true
	}
	for _, w := range strings.Split(list, ",") {
		if w = strings.TrimSpace(w); w != "" && strings.HasPrefix(key, w) {
			return true
		}
	}
	return false
}
