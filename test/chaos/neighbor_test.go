package chaos_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
)

// client speaks REST.
type client struct {
	url string
	web *http.Client
}

// envNeighbor is the address at which a child process is tenant B.
const envNeighbor = "EPIGRAPH_CHAOS_NEIGHBOR"

// neighborError is what a child process says of a run that failed, before why.
const neighborError = "error "

// beNeighbor runs a run of one node after the other and writes how many nanoseconds each took from its start to its
// end, until nobody reads that.
func beNeighbor(url string) error {
	c := client{url: url, web: &http.Client{}}
	for {
		d, err := c.one(context.Background())
		line := strconv.FormatInt(int64(d), 10)
		if err != nil {
			line = neighborError + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		if _, err := fmt.Println(line); err != nil {
			return err
		}
		pause(context.Background(), 20*time.Millisecond)
	}
}

// neighbor says how long the runs of tenant B took. Tenant B is a process of its own: it has nothing to do with what
// the attackers' client does.
func (s *soak) neighbor(ctx context.Context, long time.Duration) []time.Duration {
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), envNeighbor+"="+s.url), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	words, err := cmd.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, cmd.Start())
	defer func() {
		cancel()
		_ = cmd.Wait() // it is killed
	}()
	var out []time.Duration
	begin, told := time.Now(), 0
	for lines := bufio.NewScanner(words); s.alive() && lines.Scan(); {
		line := lines.Text()
		n, err := strconv.ParseInt(line, 10, 64)
		if err != nil {
			s.t.Errorf("tenant B: %s", strings.TrimPrefix(line, neighborError))
			n = int64(time.Minute)
		}
		out = append(out, time.Duration(n))
		if part := out[told:]; time.Since(begin) >= soakPart {
			s.t.Logf("tenant B   %8d %8v %8v", len(part), percentile(part, 50).Round(time.Millisecond), percentile(part, 99).Round(time.Millisecond))
			told, begin = len(out), time.Now()
		}
	}
	return out
}

// soakPart is after how long it is told how long the runs of tenant B took: they should not take longer and
// longer.
const soakPart = 30 * time.Second

// one starts a run of tenant B and waits for its end.
func (c *client) one(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	var run struct{ ID, State string }
	if err := c.call(ctx, neighborKey, "POST", "/v1/runs", `{"graph": {"nodes": [{"id": "a", "actor": "cel", "named": {"expr": "1 + 1"}}]}}`, &run); err != nil {
		return 0, err
	}
	for !strings.HasSuffix(run.State, "COMPLETED") {
		if strings.HasSuffix(run.State, "FAILED") {
			return 0, fmt.Errorf("run %s failed", run.ID)
		}
		pause(ctx, 3*time.Millisecond)
		if err := c.call(ctx, neighborKey, "GET", "/v1/runs/"+run.ID, "", &run); err != nil {
			return 0, err
		}
	}
	return time.Since(begin), nil
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
