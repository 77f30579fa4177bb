package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
)

const (
	// maxSaid is how much of the end of a server's standard error is kept.
	maxSaid = 2 << 10
	// writeWithin is how long a server may leave a message unread before it counts as hung.
	writeWithin = 10 * time.Second
	// stopWithin is how long a server has to end by itself once its input is closed, and again once it was
	// told to terminate.
	stopWithin = 2 * time.Second
	// endsWithin is how long the end of a process may come after that of its output.
	endsWithin = 500 * time.Millisecond
)

// process is a server that was started here, with everything that it started in turn.
type process struct {
	cmd  *exec.Cmd
	in   *os.File
	out  io.ReadCloser
	said *tail
	done chan struct{}
	once sync.Once
}

// start starts a server. Of this process's environment it gets what programs need to run.
func start(cfg Server) (*process, error) {
	// It outlives the call that asked for it.
	cmd := exec.CommandContext(context.Background(), cfg.Command, cfg.Args...)
	cmd.Dir, cmd.Env = cfg.Dir, conf.Inherited("PATH", "HOME", "LANG", "TMPDIR", "SYSTEMROOT")
	for name, v := range cfg.Env {
		cmd.Env = append(cmd.Env, name+"="+v.Reveal())
	}
	own(cmd)
	theirs, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, in: in, said: &tail{}, done: make(chan struct{})}
	// What outlives the process and holds its output open is killed with its group.
	cmd.Stdin, cmd.Stderr, cmd.WaitDelay = theirs, p.said, stopWithin
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirs.Close(), in.Close())
	}
	p.out, cmd.Stdout = out, theirOut
	err = cmd.Start()
	err = errors.Join(err, theirs.Close(), theirOut.Close())
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	go func() {
		_ = cmd.Wait() // how it ended is in the state of the process
		close(p.done)
	}()
	return p, nil
}

// Write sends a message to the server. One that does not read is hung.
func (p *process) Write(b []byte) (int, error) {
	if err := p.in.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil && !errors.Is(err, os.ErrNoDeadline) {
		return 0, err
	}
	return p.in.Write(b)
}

// Close ends the server: its input is closed, then it is told to terminate, then it is killed, and with it
// whatever it has started. It may be called more than once.
func (p *process) Close() error {
	p.once.Do(func() {
		_ = p.in.Close() // it may have been closed by the server's end
		if !p.ends(stopWithin) {
			terminate(p.cmd)
			p.ends(stopWithin)
		}
		kill(p.cmd)
		<-p.done
		_ = p.out.Close() // nobody reads it any more
	})
	return nil
}

func (p *process) ends(within time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	select {
	case <-p.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// words says how the process ended, with the end of what it printed. It has ended.
func (p *process) words() string {
	text := "the process ended: " + p.cmd.ProcessState.String()
	if said := strings.Join(strings.Fields(p.said.String()), " "); said != "" {
		text += fmt.Sprintf(", and said %q", errs.Clip(said, maxSaid))
	}
	return text
}

// tail keeps the end of what is written to it. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b[max(0, len(b)-maxSaid):]...)
	t.text = append(t.text[:0], t.text[max(0, len(t.text)-maxSaid):]...)
	return len(b), nil
}

// String is the end of it.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.text), "")
}
