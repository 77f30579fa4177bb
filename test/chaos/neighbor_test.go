package chaos_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/epigraph-run/epigraph/internal/sleep"

	"github.com/stretchr/testify/require"
)

// client speaks REST.
type client struct {
	url string
	web *http.Client
}

// The environment of a child process that is tenant B: the address of the suite, and how long it goes on.
const (
	envNeighbor     = "EPIGRAPH_CHAOS_NEIGHBOR"
	envNeighborTime = "EPIGRAPH_CHAOS_NEIGHBOR_TIME"
)

const (
	// neighborGap is the time between two runs of tenant B, neighborAtOnce how many of them it starts before
	// one of them has ended: few, since the other tenant is the attacker.
	neighborGap    = 100 * time.Millisecond
	neighborAtOnce = 8
	// runTime is how long a run of tenant B may take.
	runTime = 30 * time.Second
)

// sample is a run of tenant B.
type sample struct {
	// Took is the time from when the run was due to its end, or to the end of the measurement. It counts from
	// when the run was due, not from when it began, so that a standstill counts for each run that it delayed.
	Took time.Duration
	// Late is the part of it until the start was sent, Start the part until its answer; the rest passed until
	// the end was seen.
	Late, Start time.Duration
	// Longest is what the slowest of its requests took, the start from when it was due.
	Longest time.Duration
	// Ended says that the run completed. If not, Fault has the reason; without a fault it was still under
	// way, or had not begun, when the measurement ended.
	Ended bool
	Fault string
}

// requests are those of one run: what the start took, and what the slowest of all took.
type requests struct{ start, longest time.Duration }

// paced calls run on a clock for that long and records each call that became due.
func paced(long time.Duration, run func(context.Context) (requests, error), record func(sample)) {
	begin := time.Now()
	ctx, cancel := context.WithDeadline(context.Background(), begin.Add(long))
	defer cancel()
	var begun atomic.Int64
	var wg sync.WaitGroup
	for range neighborAtOnce {
		wg.Go(func() {
			for {
				after := time.Duration(begun.Add(1)-1) * neighborGap
				if after >= long {
					return
				}
				due := begin.Add(after)
				sleep.For(ctx, time.Until(due))
				late := time.Since(due)
				r, err := run(ctx)
				s := sample{Took: time.Since(due), Late: late, Start: r.start, Longest: max(late+r.start, r.longest), Ended: err == nil}
				if err != nil && ctx.Err() == nil {
					s.Fault = err.Error()
				}
				record(s)
			}
		})
	}
	wg.Wait()
}

// beNeighbor runs runs of one node and writes a sample of each, one a line.
func beNeighbor(url, long string) error {
	d, err := time.ParseDuration(long)
	if err != nil {
		return err
	}
	c := client{url: url, web: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: neighborAtOnce}}}
	var mu sync.Mutex
	var faults []error
	out := json.NewEncoder(os.Stdout)
	paced(d, c.one, func(s sample) {
		mu.Lock()
		defer mu.Unlock()
		if err := out.Encode(s); err != nil {
			faults = append(faults, err)
		}
	})
	return errors.Join(faults...)
}

// neighborGrace is how long after its time tenant B may take to end.
const neighborGrace = 10 * time.Second

// neighbor returns the runs of tenant B in that time, as it measured them. It is a process of its own,
// independent of the attackers' client.
func (s *soak) neighbor(long time.Duration) []sample {
	ctx, cancel := context.WithTimeout(s.t.Context(), long+neighborGrace)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), envNeighbor+"="+s.url, envNeighborTime+"="+long.String()), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	words, err := cmd.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, cmd.Start())
	defer func() {
		cancel()
		_ = cmd.Wait() // a killed process leaves too few samples, which the verdict finds
	}()
	var out []sample
	begin, delivered := time.Now(), 0
	for lines := bufio.NewScanner(words); s.alive() && lines.Scan(); {
		var one sample
		require.NoError(s.t, json.Unmarshal(lines.Bytes(), &one), "tenant B: %s", lines.Text())
		out = append(out, one)
		if time.Since(begin) >= soakPart {
			s.t.Log(summary("tenant B", out[delivered:]))
			delivered, begin = len(out), time.Now()
		}
	}
	return out
}

// summary is a line of a table: how many runs there were, and what they took.
func summary(name string, runs []sample) string {
	p := func(n int) time.Duration { return percentile(times(runs), n).Round(time.Millisecond) }
	late, start, end := parts(runs)
	request := percentile(longest(runs), 99).Round(time.Millisecond)
	return fmt.Sprintf("%-10s %8d %8v %8v %8v %8v   slowest: %v late, %v to start, %v to end", name, len(runs), request, p(50), p(99), p(100), late, start, end)
}

// parts are the average parts of the slowest fiftieth of the runs.
func parts(runs []sample) (late, start, end time.Duration) {
	slow := slices.SortedFunc(slices.Values(runs), func(a, b sample) int { return cmp.Compare(b.Took, a.Took) })
	slow = slow[:(len(slow)+49)/50]
	for _, r := range slow {
		late, start, end = late+r.Late, start+r.Start, end+r.Took-r.Late-r.Start
	}
	mean := func(d time.Duration) time.Duration {
		return (d / time.Duration(max(1, len(slow)))).Round(time.Millisecond)
	}
	return mean(late), mean(start), mean(end)
}

func times(runs []sample) []time.Duration {
	out := make([]time.Duration, len(runs))
	for i, r := range runs {
		out[i] = r.Took
	}
	return out
}

func longest(runs []sample) []time.Duration {
	out := make([]time.Duration, len(runs))
	for i, r := range runs {
		out[i] = r.Longest
	}
	return out
}

// bounds are asked of the runs of tenant B: of the slowest request of each, of the whole, and of the slowest
// run.
type bounds struct{ request, p99, most time.Duration }

// check returns the faults of the runs of tenant B in that time.
func (b bounds) check(runs []sample, long time.Duration) error {
	due, ended := int((long+neighborGap-1)/neighborGap), 0
	var faults []string
	for _, r := range runs {
		if r.Ended {
			ended++
		}
		if r.Fault != "" {
			faults = append(faults, r.Fault)
		}
	}
	var wrong []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf("tenant B: "+format, args...))
		}
	}
	check(len(faults) == 0, "%d runs failed: %.1000q", len(faults), faults[:min(len(faults), 5)])
	check(len(runs) >= due, "%d runs of %d that were due were reported", len(runs), due)
	check(ended >= due*9/10, "%d runs of %d that were due have ended", ended, due)
	request, p99, most := percentile(longest(runs), 99), percentile(times(runs), 99), percentile(times(runs), 100)
	check(request < b.request, "p99 of the requests is %v, must be below %v", request, b.request)
	check(p99 < b.p99, "p99 is %v, must be below %v", p99, b.p99)
	check(most < b.most, "the longest took %v, must be below %v", most, b.most)
	return errors.Join(wrong...)
}

// soakPart is the period of the reports about the runs of tenant B, whose time should not increase.
const soakPart = 30 * time.Second

// one starts a run of tenant B and waits for its end.
func (c *client) one(ctx context.Context) (r requests, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	begin := time.Now()
	var run struct{ ID, State string }
	if err := c.call(ctx, neighborKey, "POST", "/v1/runs", `{"graph": {"nodes": [{"id": "a", "actor": "cel", "named": {"expr": "1 + 1"}}]}}`, &run); err != nil {
		return r, err
	}
	r.start = time.Since(begin)
	r.longest = r.start
	for !strings.HasSuffix(run.State, "COMPLETED") {
		if strings.HasSuffix(run.State, "FAILED") {
			return r, fmt.Errorf("run %s failed", run.ID)
		}
		// Runs that take long are asked for less often, so that those that wait are no attack.
		sleep.For(ctx, min(max(3*time.Millisecond, time.Since(begin)/10), 50*time.Millisecond))
		asked := time.Now()
		if err := c.call(ctx, neighborKey, "GET", "/v1/runs/"+run.ID, "", &run); err != nil {
			return r, err
		}
		r.longest = max(r.longest, time.Since(asked))
	}
	return r, nil
}

// serves reports why such a run comes to nothing.
func (c *client) serves(ctx context.Context) error {
	_, err := c.one(ctx)
	return err
}

func (c *client) call(ctx context.Context, key, method, path, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.web.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %d %.300s", method, path, resp.StatusCode, b)
	}
	return json.Unmarshal(b, into)
}
