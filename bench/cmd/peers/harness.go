package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/epigraph-run/epigraph/bench/drive"
	"github.com/epigraph-run/epigraph/bench/measure"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
)

// harness holds what all turns share: the one PostgreSQL server, the contestants that run, and their figures.
type harness struct {
	o     options
	log   *slog.Logger
	dir   string // the bench module
	tmp   string
	bin   string
	cache string
	spawn *spawner

	server  *pgtest.Server
	pg      *measure.Postgres
	pgRoot  int
	version string

	contestants []*contestant
	faults      []Fault
	graphs      map[string]int // of W7, by load
	schedule    *schedule
}

// Fault is the failure of a contestant. It ends neither the run nor, unless it is about all of them, the
// contestant's other loads.
type Fault struct {
	Contestant string `json:"contestant"`
	// Load is empty if the contestant took part in nothing.
	Load string `json:"load,omitempty"`
	Text string `json:"text"`
	// Ours marks faults of Epigraph and of its floors, in contrast to other engines.
	Ours bool `json:"ours,omitempty"`
}

// contestant is a spec whose processes run.
type contestant struct {
	*spec
	databases []string
	files     string
	procs     []*child
	figures   figures
	// failed are the loads at which it failed; it takes no further turns at them.
	failed map[string]bool
	// rounds is in how many rounds it took part, by load.
	rounds map[string]int
	// late are the loads at which it had no turn, since there was no time.
	late []string
	// repeats counts nodes that ran again, where that is allowed.
	repeats int
	// starts is how often its processes were started.
	starts int
}

func (c *contestant) driver() *child { return c.procs[len(c.procs)-1] }

// ours says that the contestant is an executor whose memory is measured.
func (c *contestant) ours() bool { return c.name == epigraphLocal || c.name == epigraphLite }

func (c *contestant) pids() []int {
	var out []int
	for _, p := range c.procs {
		out = append(out, p.pid())
	}
	return out
}

// engines are the processes whose memory counts.
func (c *contestant) engines() []int {
	var out []int
	for i, p := range c.procs {
		if c.processes[i].engine {
			out = append(out, p.pid())
		}
	}
	return out
}

// settings keep checkpoints out of the turns: the harness makes one before each turn that needs it. All else
// is as it comes. All contestants stay connected at once, some with several processes that have a pool each.
var settings = map[string]string{"checkpoint_timeout": "30min", "max_wal_size": "8GB", "listen_addresses": "", "max_connections": "1000"}

func open(ctx context.Context, o options, log *slog.Logger) (_ *harness, err error) {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "contestant", "floor")); err != nil {
		return nil, fmt.Errorf("-dir must name the bench module: %w", err)
	}
	h := &harness{o: o, log: log, dir: dir, cache: o.cache, graphs: map[string]int{}, spawn: newSpawner()}
	if h.cache == "" {
		h.cache = filepath.Join(dir, ".peers")
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	if h.tmp, err = os.MkdirTemp("", "epigraph-bench-"); err != nil {
		return nil, err
	}
	h.bin = filepath.Join(h.tmp, "bin")
	log.InfoContext(ctx, "building", "dir", dir)
	if err := h.command(ctx, dir, nil, "go", "build", "-o", h.bin+"/", "./contestant/..."); err != nil {
		return nil, err
	}
	if o.store == onSQLite {
		return h, nil
	}
	if h.server, err = pgtest.Start(ctx, "", pgtest.Options{Settings: settings}); err != nil {
		return nil, err
	}
	if h.pg, err = measure.OpenPostgres(ctx, h.server.URL("")); err != nil {
		return nil, err
	}
	if err := h.pg.Durable(ctx); err != nil {
		return nil, err
	}
	if h.version, err = h.pg.Version(ctx); err != nil {
		return nil, err
	}
	h.pgRoot, err = h.pg.Root(ctx)
	return h, err
}

// close stops everything, last first.
func (h *harness) close() error {
	var faults []error
	for _, c := range slices.Backward(h.contestants) {
		h.stop(c)
	}
	h.spawn.stop()
	if h.pg != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		faults = append(faults, h.pg.Close(ctx))
	}
	if h.server != nil {
		faults = append(faults, h.server.Stop())
	}
	if h.tmp != "" {
		faults = append(faults, os.RemoveAll(h.tmp))
	}
	return errors.Join(faults...)
}

// command runs a build step to its end.
func (h *harness) command(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOWORK=off"), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, tail(string(out)))
	}
	return nil
}

func tail(s string) string {
	if len(s) > 2000 {
		return "…" + s[len(s)-2000:]
	}
	return s
}

var notWord = regexp.MustCompile(`[^a-z0-9]+`)

// start starts the contestants, each with a database of its own. A contestant that does not start is left
// out, and named.
func (h *harness) start(ctx context.Context, specs []*spec) {
	for _, s := range specs {
		if ctx.Err() != nil {
			return
		}
		c := &contestant{spec: s, figures: figures{}, failed: map[string]bool{}, rounds: map[string]int{}}
		if err := h.startOne(ctx, c); err != nil {
			h.fail(ctx, c, "", fmt.Errorf("did not start: %w", err))
			continue
		}
		h.contestants = append(h.contestants, c)
	}
}

func (h *harness) fail(ctx context.Context, c *contestant, load string, err error) {
	if ctx.Err() != nil {
		return
	}
	h.log.ErrorContext(ctx, "contestant failed", "contestant", c.name, "load", load, "err", err)
	h.faults = append(h.faults, Fault{Contestant: c.name, Load: load, Text: err.Error(), Ours: !c.peer})
}

// startOne starts the processes of a contestant on a fresh database.
func (h *harness) startOne(ctx context.Context, c *contestant) (err error) {
	s := c.spec
	h.log.InfoContext(ctx, "starting", "contestant", s.name)
	slug := strings.Trim(notWord.ReplaceAllString(strings.ToLower(s.name), "_"), "_")
	if c.starts++; c.starts > 1 {
		slug += "_" + strconv.Itoa(c.starts)
	}
	dir := filepath.Join(h.tmp, slug)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if s.prepare != nil && c.starts == 1 {
		if err := s.prepare(ctx, h); err != nil {
			return err
		}
	}
	c.databases = nil
	words := map[string]string{"{dir}": dir, "{cache}": h.cache, "{bench}": h.dir, "{bin}": h.bin, "{profile}": ""}
	if h.o.profile != "" {
		words["{profile}"] = h.o.profile + "-" + slug
	}
	switch s.store {
	case onPostgres:
		name := "bench_" + slug
		for _, suffix := range append([]string{""}, s.also...) {
			c.databases = append(c.databases, name+suffix)
			if err := h.pg.CreateDatabase(ctx, name+suffix); err != nil {
				return err
			}
		}
		words["{store}"], words["{database}"] = h.server.URL(name), name
		if words["{socket}"], err = h.pg.Socket(ctx); err != nil {
			return err
		}
	case onSQLite:
		c.files = filepath.Join(dir, "store.db")
		words["{store}"] = c.files
	}
	defer func() {
		if err != nil {
			h.stop(c)
		}
	}()
	for k, p := range s.processes {
		for i := range p.ports {
			if words[fmt.Sprintf("{port%d}", i)], err = freePort(); err != nil {
				return err
			}
		}
		if p.before != nil {
			if err := p.before(ctx, h, c, words); err != nil {
				return err
			}
		}
		child, err := h.spawn.start(h, slug, p, words)
		if err != nil {
			return err
		}
		c.procs = append(c.procs, child)
		if p.silent {
			continue
		}
		a, err := child.answer(ctx, 2*time.Minute)
		if err != nil {
			return err
		}
		if a.Addr != "" {
			words["{addr}"], words[fmt.Sprintf("{addr%d}", k)] = a.Addr, a.Addr
		}
	}
	return nil
}

// stop ends a contestant's processes, last first.
func (h *harness) stop(c *contestant) {
	for _, p := range slices.Backward(c.procs) {
		p.stop()
	}
	c.procs = nil
}

// freePort finds a port below those that the kernel gives out, which one of the peers cannot store.
func freePort() (string, error) {
	var last error
	for range 100 {
		port := strconv.Itoa(20_000 + rand.IntN(12_000))
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err == nil {
			return port, l.Close()
		}
		last = err
	}
	return "", last
}

// run has every contestant take its turns at one load: round by round, so that what the machine does
// meanwhile hits all alike.
func (h *harness) run(ctx context.Context, l *loadSpec) error {
	until := h.schedule.share(l, time.Now())
	share, out := time.Until(until), map[*contestant]bool{}
	if l.fit != nil {
		if err := l.fit(l, time.Until(until), len(h.able(l))); err != nil {
			return err
		}
	}
	h.log.InfoContext(ctx, "load", "load", l.key, "what", l.title, "graphs", len(l.req.Graphs), "share", time.Until(until).Round(time.Second))
	rounds := h.o.rounds
	if h.o.quick || l.once {
		rounds = 1
	}
	if len(l.warm.Graphs) > 0 {
		for _, c := range h.able(l) {
			req := l.warm
			if c.peer && l.peerWarm != nil {
				req = *l.peerWarm
			}
			a, err := h.ask(ctx, c, req)
			if err != nil {
				h.drop(ctx, c, l, err)
				continue
			}
			if needs := l.foresee(a.Took); c.peer && !h.o.quick && needs > share/4 {
				c.late = append(c.late, fmt.Sprintf("%s, one run of which would have taken about %s", l.key, needs.Round(time.Second)))
				out[c] = true
			}
		}
	}
	from := time.Now()
	costs := map[*contestant]time.Duration{}
	for r := range rounds {
		began := time.Now()
		able := slices.DeleteFunc(h.able(l), func(c *contestant) bool { return out[c] })
		takers := h.o.takes(able, r, costs, time.Until(until))
		if len(takers) == 0 {
			break
		}
		for k := range takers {
			c := takers[(k+r)%len(takers)]
			at := time.Now()
			if c.peer && !h.o.quick && at.After(h.schedule.until) && at.Sub(from) > leastFirst {
				c.late = append(c.late, l.key)
				continue
			}
			if err := h.turn(ctx, c, l, r); err != nil {
				h.drop(ctx, c, l, err)
			}
			if took := time.Since(at); took > 10*time.Second || l.once {
				h.log.InfoContext(ctx, "turn", "load", l.key, "contestant", c.name, "took", took.Round(100*time.Millisecond))
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			costs[c] = time.Since(at)
			c.rounds[l.key]++
			if len(l.critical) > 1 {
				h.graphs[l.key] = len(l.critical)
			}
		}
		h.log.InfoContext(ctx, "round", "load", l.key, "round", fmt.Sprintf("%d/%d", r+1, rounds), "contestants", len(takers),
			"took", time.Since(began).Round(100*time.Millisecond), "slowest", slowest(takers, costs), "gone", time.Since(h.schedule.began).Round(time.Second),
			"to_go_at_most", max(0, time.Until(h.schedule.until)).Round(time.Second))
	}
	for _, c := range h.able(l) {
		if _, err := h.ask(ctx, c, drive.Request{Op: drive.OpVerify}); err != nil {
			h.drop(ctx, c, l, fmt.Errorf("what ran is not in the store: %w", err))
		}
	}
	return ctx.Err()
}

func slowest(takers []*contestant, costs map[*contestant]time.Duration) string {
	c := slices.MaxFunc(takers, func(a, b *contestant) int { return cmp.Compare(costs[a], costs[b]) })
	return fmt.Sprintf("%s %s", c.name, costs[c].Round(100*time.Millisecond))
}

// able are the contestants that take part in a load, unless they failed at it.
func (h *harness) able(l *loadSpec) []*contestant {
	var out []*contestant
	for _, c := range h.contestants {
		if c.takes(l.key) && len(c.procs) > 0 && !c.failed[l.key] {
			out = append(out, c)
		}
	}
	return out
}

// drop takes a contestant out of a load at which it failed. Its figures there do not count. It restarts for
// the other loads: the rest of the failed runs would distort the comparison.
func (h *harness) drop(ctx context.Context, c *contestant, l *loadSpec, err error) {
	if ctx.Err() != nil {
		return
	}
	h.fail(ctx, c, l.key, err)
	c.failed[l.key] = true
	for name := range c.figures {
		if figureLoad(name) == l.key {
			delete(c.figures, name)
		}
	}
	h.stop(c)
	if c.starts >= maxStarts {
		h.fail(ctx, c, "", errors.New("it failed too often to take part any longer"))
		return
	}
	if err := h.startOne(ctx, c); err != nil {
		h.fail(ctx, c, "", fmt.Errorf("did not start again: %w", err))
	}
}

// leastFirst is how long the first round of a load may take, once the time is over, before peers are left out
// of it.
const leastFirst = 20 * time.Second

// maxStarts is how often a contestant is started that fails again and again.
const maxStarts = 4

// turnLimit bounds a turn of any contestant.
const turnLimit = time.Minute

func (h *harness) ask(ctx context.Context, c *contestant, req drive.Request) (drive.Answer, error) {
	limit := turnLimit
	if req.Op == drive.OpMeasure || req.Op == drive.OpWait {
		limit = 3 * time.Minute
	}
	return c.driver().ask(ctx, req, limit)
}

func (h *harness) turn(ctx context.Context, c *contestant, l *loadSpec, round int) error {
	counted := l.key == w3 && c.store == onPostgres
	var before, after string
	var size int64
	var err error
	if l.key == w3 {
		if size, err = h.size(ctx, c); err != nil {
			return err
		}
	}
	if counted {
		if err := h.pg.Checkpoint(ctx); err != nil {
			return err
		}
		if before, err = h.pg.WALPosition(ctx); err != nil {
			return err
		}
	}
	h.profile(c)
	rss := sampleRSS(c.engines())
	cpu, err := h.cpu(c)
	if err != nil {
		return err
	}
	a, err := h.ask(ctx, c, l.req)
	peak := rss()
	h.profile(c)
	if err != nil {
		return err
	}
	spent, err := h.cpu(c)
	if err != nil {
		return err
	}
	t := turn{round: round, answer: a, cpu: spent - cpu, rss: peak}
	if counted {
		if after, err = h.pg.WALPosition(ctx); err != nil {
			return err
		}
		if t.wal, err = h.pg.WALBetween(ctx, before, after); err != nil {
			return err
		}
	}
	if l.key == w3 {
		now, err := h.size(ctx, c)
		if err != nil {
			return err
		}
		t.growth = now - size
		if c.ours() {
			if t.settled, err = h.settled(ctx, c); err != nil {
				return err
			}
		}
	}
	c.figures.add(l, t)
	c.repeats += a.Repeats
	return nil
}

func (h *harness) size(ctx context.Context, c *contestant) (int64, error) {
	switch c.store {
	case onPostgres:
		return h.pg.Size(ctx, c.databases...)
	case onSQLite:
		return measure.Files(c.files)
	}
	return 0, nil
}

// cpu is what the contestant's processes, clients included, and its database have used so far.
func (h *harness) cpu(c *contestant) (time.Duration, error) {
	sum, err := measure.CPU(c.pids()...)
	if err != nil || c.store != onPostgres {
		return sum, err
	}
	pg, err := measure.PostgresCPU(h.pgRoot, c.databases...)
	return sum + pg, err
}

// profile starts or ends the CPU profile of an executor of ours.
func (h *harness) profile(c *contestant) {
	if h.o.profile == "" {
		return
	}
	for i, p := range c.procs {
		if c.processes[i].program == "contestant/host" {
			_ = syscall.Kill(p.pid(), syscall.SIGUSR2)
		}
	}
}

// waiting looks at the memory of an executor: of runs that have ended, and of runs that wait.
func (h *harness) waiting(ctx context.Context) error {
	if h.o.waiting == 0 || !wanted(h.o.loads, w6) {
		return nil
	}
	n := h.o.waiting
	if h.o.quick {
		n = 50
	}
	for _, c := range h.contestants {
		if len(c.procs) == 0 || !c.ours() {
			continue
		}
		if err := h.held(ctx, c, n); err != nil {
			h.drop(ctx, c, &loadSpec{key: w6}, err)
		}
	}
	return ctx.Err()
}

func (h *harness) held(ctx context.Context, c *contestant, n int) error {
	before, err := h.settled(ctx, c)
	if err != nil {
		return err
	}
	if _, err := h.ask(ctx, c, drive.Request{Op: drive.OpWait, Runs: n}); err != nil {
		return err
	}
	after, err := h.settled(ctx, c)
	if err != nil {
		return err
	}
	c.figures.put(waitingBytes, 0, max(0, float64(after-before)/float64(n)))
	return nil
}

// settled is the memory of the contestant's engine after it gave back what it does not use.
func (h *harness) settled(ctx context.Context, c *contestant) (int64, error) {
	for range 2 { // the second time frees what finalizers let go
		for _, pid := range c.engines() {
			if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
				return 0, err
			}
		}
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	var sum int64
	for _, pid := range c.engines() {
		n, err := measure.RssAnon(pid)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// sampleRSS watches memory until the returned function is called, which gives the peak.
func sampleRSS(pids []int) func() int64 {
	stop, done := make(chan struct{}), make(chan int64)
	go func() {
		tick := time.NewTicker(25 * time.Millisecond)
		defer tick.Stop()
		var peak int64
		for {
			var sum int64
			for _, pid := range pids {
				if n, err := measure.RssAnon(pid); err == nil {
					sum += n
				}
			}
			peak = max(peak, sum)
			select {
			case <-tick.C:
			case <-stop:
				done <- peak
				return
			}
		}
	}()
	return func() int64 { close(stop); return <-done }
}

func machine() string {
	model := "unknown processor"
	if raw, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(raw)) {
			if name, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(v)
				break
			}
		}
	}
	return strconv.Itoa(cpus()) + " × " + model
}
