package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/epigraph-run/epigraph/bench/drive"
)

// spawner starts processes from one thread that exists as long as the harness: the kernel kills them when it
// ends, also after a crash.
type spawner struct {
	work chan func()
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for f := range s.work {
			f()
		}
	}()
	return s
}

func (s *spawner) stop() { close(s.work) }

// child is one process of a contestant.
type child struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan drive.Answer
	log     string
	ended   chan struct{}
	err     error
}

func (s *spawner) start(h *harness, name string, p process, words map[string]string) (*child, error) {
	fill := func(t string) string {
		for w, v := range words {
			t = strings.ReplaceAll(t, w, v)
		}
		return t
	}
	args := make([]string, len(p.args))
	for i, a := range p.args {
		args[i] = fill(a)
	}
	p.program = fill(p.program)
	cmd := exec.Command(h.binary(p), args...)
	cmd.Env = os.Environ()
	for _, e := range p.env {
		cmd.Env = append(cmd.Env, fill(e))
	}
	cmd.Dir = h.tmp
	if p.dir != "" {
		cmd.Dir = fill(p.dir)
	}
	// A group of its own, so that Ctrl-C reaches us first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	logFile, err := os.CreateTemp(h.tmp, name+"-*.log")
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	cmd.Stderr = logFile
	if h.o.loud {
		cmd.Stderr = os.Stderr
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, in: in, answers: make(chan drive.Answer, 1), log: logFile.Name(), ended: make(chan struct{})}
	var out io.Reader
	if p.silent {
		cmd.Stdout = cmd.Stderr
	} else if out, err = cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	started := make(chan error)
	s.work <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	go func() {
		if out != nil {
			c.read(out)
		}
		c.err = cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

// read takes lines that are answers; libraries print others.
func (c *child) read(out io.Reader) {
	r := bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := r.ReadBytes('\n')
		var a drive.Answer
		if len(line) > 0 && line[0] == '{' && json.Unmarshal(line, &a) == nil {
			c.answers <- a
		}
		if err != nil {
			return
		}
	}
}

// errGone says that a process cannot be asked any more.
var errGone = errors.New("is gone")

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) ask(ctx context.Context, req drive.Request, limit time.Duration) (drive.Answer, error) {
	raw, err := json.Marshal(req)
	if err != nil {
		return drive.Answer{}, err
	}
	if _, err := c.in.Write(append(raw, '\n')); err != nil {
		return drive.Answer{}, errors.Join(fmt.Errorf("%w: %w", errGone, err), c.last())
	}
	return c.answer(ctx, limit)
}

func (c *child) answer(ctx context.Context, limit time.Duration) (drive.Answer, error) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case a := <-c.answers:
		if a.Err != "" {
			return a, errors.Join(errors.New(a.Err), c.last())
		}
		return a, nil
	case <-c.ended:
		return drive.Answer{}, errors.Join(fmt.Errorf("%s %w: %w", filepath.Base(c.cmd.Path), errGone, c.err), c.last())
	case <-t.C:
		return drive.Answer{}, errors.Join(fmt.Errorf("no answer within %s: %w", limit, errGone), c.last())
	case <-ctx.Done():
		return drive.Answer{}, ctx.Err()
	}
}

// last is the end of what the process wrote to its standard error.
func (c *child) last() error {
	raw, err := os.ReadFile(c.log)
	if err != nil || len(raw) == 0 {
		return err
	}
	return errors.New(tail(string(raw)))
}

// stop ends the process, and those that it started.
func (c *child) stop() {
	_ = c.in.Close()
	_ = syscall.Kill(-c.pid(), syscall.SIGTERM)
	for _, limit := range []time.Duration{5 * time.Second, 2 * time.Second} {
		select {
		case <-c.ended:
			_ = syscall.Kill(-c.pid(), syscall.SIGKILL)
			return
		case <-c.answers: // nobody waits for it any more
		case <-time.After(limit):
			_ = syscall.Kill(-c.pid(), syscall.SIGKILL)
		}
	}
	<-c.ended
}

func cpus() int { return runtime.NumCPU() }
