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

// maxStories is how many runs are told of in full when something is wrong.
const maxStories = 3

var runID = regexp.MustCompile(`run_[0-9A-Za-z]{26}`)

// stories tells all that is known of the runs that texts name: what went wrong with them can be found out long after the storm.
func (c *cluster) stories(ctx context.Context, o *outside, texts ...string) string {
	var ids []string
	for _, id := range runID.FindAllString(strings.Join(texts, "\n"), -1) {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	var b strings.Builder
	for _, id := range ids[:min(len(ids), maxStories)] {
		c.story(ctx, o, id, &b)
	}
	return b.String()
}

// story tells of one run: its journal, its row, its mail and jobs, its children, what came in outside, and what executors and workers said of it.
func (c *cluster) story(ctx context.Context, o *outside, id string, b *strings.Builder) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
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
	ask("row", `SELECT 'state ' || state || ' ' || state_reason || ', last_seq ' || last_seq || ', owner ' || coalesce(owner_id, '') || ', takeovers ' || takeovers FROM runs WHERE run_id = '%s'`)
	lines, err := c.journalOf(ctx, id)
	part("journal", lines, err)
	ask("mail", `SELECT id || ' kind ' || kind FROM mail WHERE run_id = '%s'`)
	ask("jobs", `SELECT kind || ' ' || state || ', attempt ' || attempt || ', errors ' || coalesce(CAST(errors AS text), '') FROM river_job WHERE CAST(args AS text) LIKE '%%%s%%'`)
	ask("children", `SELECT run_id || ' state ' || state || ' ' || state_reason FROM runs WHERE parent_run_id = '%s'`)
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

// journalOf is the run's events, one line each.
func (c *cluster) journalOf(ctx context.Context, id string) (lines []string, err error) {
	if len(c.replicas) == 0 {
		return nil, errors.New("there is no executor to ask")
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	stream, err := c.replicas[0].exec.WatchRun(ctx, &executorv1.WatchRunRequest{RunId: id, DurableOnly: true})
	for err == nil {
		var ev *executorv1.RunEvent
		if ev, err = stream.Recv(); err == nil {
			lines = append(lines, protojson.Format(ev))
		}
	}
	for i, l := range lines {
		lines[i] = strings.Join(strings.Fields(l), " ")
	}
	if errors.Is(err, io.EOF) {
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
