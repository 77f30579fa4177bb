package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// maxStories is how many runs are reported in full after a fault.
const maxStories = 3

var runID = regexp.MustCompile(`run_[0-9A-Za-z]{26}`)

// stories reports everything about the runs that the lines name: the cause of a fault can be found long after
// the trial.
func (c *cluster) stories(ctx context.Context, o *outside, lines ...string) string {
	var ids []string
	for _, id := range runID.FindAllString(strings.Join(lines, "\n"), -1) {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	var b strings.Builder
	for _, id := range ids[:min(len(ids), maxStories)] {
		why := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.Contains(l, id) })
		c.story(ctx, o, id, why, &b)
	}
	return b.String()
}

// story reports one run: the reason of the report, its row, its journal, its commands and jobs, its children,
// the calls that arrived outside, and the log lines of executors and workers about it.
func (c *cluster) story(ctx context.Context, o *outside, id string, why []string, b *strings.Builder) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute) // time may be what ran out
	defer cancel()
	fmt.Fprintf(b, "\n==== %s\n", id)
	part := func(title string, lines []string, err error) {
		fmt.Fprintf(b, "-- %s\n", title)
		if err != nil {
			fmt.Fprintf(b, "   cannot be told: %v\n", err)
		}
		for _, l := range lines {
			fmt.Fprintf(b, "   %s\n", l)
		}
	}
	ask := func(title, sql string) {
		lines, err := c.query(ctx, fmt.Sprintf(sql, id))
		part(title, lines, err)
	}
	part("what is wrong", why, nil)
	ask("row", `SELECT 'state ' || `+stateName+` || ' ' || state_reason || ', last_seq ' || last_seq || ', owner ' || coalesce(owner_id, '') || ', takeovers ' || takeovers FROM runs WHERE run_id = '%s'`)
	lines, err := c.journalOf(ctx, id)
	part("journal", lines, err)
	ask("commands", `SELECT id || ' kind ' || kind FROM commands WHERE run_id = '%s'`)
	ask("jobs", `SELECT kind || ' ' || state || ', attempt ' || attempt || ', errors ' || coalesce(CAST(errors AS text), '') FROM river_job WHERE CAST(args AS text) LIKE '%%%s%%'`)
	ask("children", `SELECT run_id || ' state ' || `+stateName+` || ' ' || state_reason FROM runs WHERE parent_run_id = '%s'`)
	part("calls that came in outside, by key", o.of(id), nil)
	logs, err := filepath.Glob(filepath.Join(c.dir, "*.log"))
	for _, log := range logs {
		text, rerr := os.ReadFile(log)
		err = errors.Join(err, rerr)
		var said []string
		for l := range strings.Lines(string(text)) {
			if strings.Contains(l, id) {
				said = append(said, strings.TrimSpace(l))
			}
		}
		part("what "+strings.TrimSuffix(filepath.Base(log), ".log")+" said of it", said, err)
	}
}

// journalOf is the run's events, one line each, from an executor or, if none answers, from the database.
func (c *cluster) journalOf(ctx context.Context, id string) (lines []string, err error) {
	for _, r := range c.replicas {
		if lines, err = r.eventsOf(ctx, id); err == nil {
			return lines, nil
		}
	}
	data := `CAST(data AS text)`
	if c.store == "postgres" {
		data = `encode(data, 'escape')`
	}
	lines, qerr := c.query(ctx, fmt.Sprintf(`SELECT seq || ' kind ' || kind || ' ' || node_id || '/' || visit || ' ' || coalesce(%s, '') FROM events WHERE run_id = '%s' ORDER BY seq`, data, id))
	return lines, errors.Join(err, qerr)
}

func (r *replica) eventsOf(ctx context.Context, id string) (lines []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	stream, err := r.exec.WatchRun(ctx, &executorv1.WatchRunRequest{RunId: id, DurableOnly: true})
	for err == nil {
		var ev *executorv1.RunEvent
		if ev, err = stream.Recv(); err == nil {
			lines = append(lines, strings.Join(strings.Fields(protojson.Format(ev)), " "))
		}
	}
	if errors.Is(err, io.EOF) || len(lines) > 0 && ctx.Err() != nil { // a live run continues later
		err = nil
	}
	return lines, err
}

// of lists the calls of a run that came, by their keys.
func (o *outside) of(run string) (out []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, calls := range []map[string]int{o.unsafe, o.safe} {
		for _, key := range slices.Sorted(maps.Keys(calls)) {
			if strings.HasPrefix(key, run+"/") {
				out = append(out, fmt.Sprintf("%s: %d times", key, calls[key]))
			}
		}
	}
	return out
}
