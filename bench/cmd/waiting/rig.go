package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/epigraph-run/epigraph/bench/drive"
	"github.com/epigraph-run/epigraph/bench/measure"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// rig is executors on a database of their own.
type rig struct {
	store
	database
	hosts []*host
}

// host is an executor's process, and a connection to it.
type host struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	conn *grpc.ClientConn
	// debug is where it tells about itself.
	debug string
	api   executorv1.ExecutorServiceClient
}

// in starts executors on a fresh database for the time that f takes.
func in(ctx context.Context, binary string, s store, executors int, f func(*rig) error, args ...string) (err error) {
	r := &rig{store: s}
	if r.database, err = s.fresh(ctx); err != nil {
		return err
	}
	defer func() {
		for _, h := range r.hosts {
			err = errors.Join(err, h.stop())
		}
		err = errors.Join(err, r.database.close())
	}()
	for i := range executors {
		h, err := startHost(binary, r.target(), fmt.Sprintf("e%d", i), args...)
		if err != nil {
			return err
		}
		r.hosts = append(r.hosts, h)
		// It serves a moment before it takes runs.
		g := &graphv1.Graph{Name: "first", Nodes: []*graphv1.Node{{Id: "n", Actor: "bench"}}}
		if err := until(ctx, func() (bool, error) {
			_, err := h.api.StartRun(ctx, &executorv1.StartRunRequest{Graph: g})
			if status.Code(err) == codes.Unavailable {
				return false, nil
			}
			return err == nil, err
		}); err != nil {
			return err
		}
	}
	return f(r)
}

func startHost(binary, target, id string, args ...string) (*host, error) {
	cmd := exec.Command(binary, append([]string{"-store", target, "-id", id, "-debug"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	h := &host{cmd: cmd, in: in}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var a drive.Answer
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	if err == nil {
		h.debug = a.Debug
		h.conn, err = grpc.NewClient(a.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start an executor: %w", err), h.stop())
	}
	h.api = executorv1.NewExecutorServiceClient(h.conn)
	return h, nil
}

// stop ends the process, which it does by itself when its input ends.
func (h *host) stop() error {
	var err error
	if h.conn != nil {
		err = h.conn.Close()
	}
	_ = h.in.Close() // stops it
	kill := time.AfterFunc(time.Minute, func() { _ = h.cmd.Process.Kill() })
	defer kill.Stop()
	return errors.Join(err, h.cmd.Wait())
}

// memory is what the process holds once it has given back what it does not need.
func (h *host) memory() (int64, error) {
	var least int64
	for range 5 {
		if err := h.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
			return 0, err
		}
		time.Sleep(300 * time.Millisecond)
		n, err := measure.RssAnon(h.cmd.Process.Pid)
		if err != nil {
			return 0, err
		}
		if least == 0 || n < least {
			least = n
		}
	}
	return least, nil
}

// inUse is the memory that the process has in use.
func (h *host) inUse(ctx context.Context) (m drive.Memory, err error) {
	text, err := h.get(ctx, "/memory")
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	return m, err
}

// get reads what the process serves about itself.
func (h *host) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.debug+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", path, res.Status)
	}
	return io.ReadAll(res.Body)
}

// until polls cond, a few times a second.
func until(ctx context.Context, cond func() (bool, error)) error {
	for {
		ok, err := cond()
		if ok || err != nil {
			return err
		}
		if err := drive.Rest(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// end waits for the end of a run on a watch.
func (h *host) end(ctx context.Context, id string, watch executorv1.ExecutorService_WatchRunClient) error {
	for {
		ev, err := watch.Recv()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("the watch on %s ended before the run", id)
		}
		if err != nil {
			return err
		}
		if e := ev.GetRunEnded(); e != nil {
			if e.GetState() != executorv1.RunState_RUN_STATE_COMPLETED {
				return fmt.Errorf("%s ended %s: %s", id, e.GetState(), e.GetReason())
			}
			return ctx.Err()
		}
	}
}

// spread formats the middle and the tail of durations.
func spread(ds []time.Duration) string {
	if len(ds) == 0 {
		return "none"
	}
	ds = slices.Clone(ds)
	slices.Sort(ds)
	at := func(q float64) time.Duration {
		return ds[min(int(q*float64(len(ds))), len(ds)-1)].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("p50 %s, p99 %s, max %s", at(0.5), at(0.99), at(1))
}
