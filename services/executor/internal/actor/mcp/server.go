package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/turns"
	"github.com/epigraph-run/epigraph/services/executor/internal/egress"
)

const (
	// firstPause and longestPause bound the pause between two attempts to reach a server that is down.
	firstPause, longestPause = time.Second, time.Minute
	// pingWithin is how long a server has to answer a ping after a call that took too long.
	pingWithin = 5 * time.Second
	// relistPause lets the changes of one moment lead to one list. A server whose list changes all the
	// time is read for one part of the time in relistShare.
	relistPause = 100 * time.Millisecond
	relistShare = 20
	// progressEvery is the least time between two reports of one call.
	progressEvery = 100 * time.Millisecond
)

// server is one configured server. It is safe for concurrent use.
type server struct {
	name      string
	cfg       Server
	guard     egress.Guard
	transport *http.Transport // nil of one that is started here
	turns     *turns.Turns
	log       *slog.Logger
	open      func(context.Context, *server) (*session, error)
	memory    Memory // nil remembers nothing
	// changed has room for one request to list the tools again.
	changed chan struct{}

	mu sync.Mutex
	// live is the connection, nil while there is none; dialing is closed at the end of the attempt under way.
	live    *session
	dialing chan struct{}
	// tools are those of the last list, also of an earlier process; nil if the server never listed any.
	tools map[string]*tool
	// kept is the last list as it was kept, and recalled says that it was looked for.
	kept     []byte
	recalled bool
	// down is why the last attempt failed, pause how long the next one waits, until again.
	down   error
	pause  time.Duration
	again  time.Time
	closed bool
	// behind is what goes on behind calls and has to end before the server is closed.
	behind sync.WaitGroup
	// reports are where progress goes, by the token of the call.
	reports map[string]*report
}

// report is where the progress of one call goes.
type report struct {
	to   func(json.RawMessage)
	last time.Time
}

// unreachable is the error of a server that cannot be reached now.
type unreachable struct {
	server string
	why    error
	after  time.Duration
}

// Error says which and why.
func (u *unreachable) Error() string {
	return fmt.Sprintf("the MCP server %q is down: %v", u.server, u.why)
}

// session is the connection, made if there is none. After a failure it is not tried again for a while.
func (sv *server) session(ctx context.Context) (*session, error) {
	for {
		sv.mu.Lock()
		if s := sv.live; s != nil {
			sv.mu.Unlock()
			return s, nil
		}
		if sv.closed {
			sv.mu.Unlock()
			return nil, &unreachable{sv.name, errors.New("this executor stops"), firstPause}
		}
		if left := time.Until(sv.again); sv.down != nil && left > 0 && sv.dialing == nil {
			err := &unreachable{sv.name, sv.down, left}
			sv.mu.Unlock()
			return nil, err
		}
		if sv.dialing == nil {
			sv.dialing = make(chan struct{})
			go sv.dial(sv.dialing)
		}
		dialing := sv.dialing
		sv.mu.Unlock()
		select {
		case <-dialing:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// dial connects and lists the tools. It ends by itself, whoever waits for it.
func (sv *server) dial(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), sv.cfg.ConnectTimeout)
	defer cancel()
	sv.recall(ctx)
	s, err := sv.open(ctx, sv)
	var tools map[string]*tool
	if err == nil {
		if tools, err = sv.list(ctx, s); err != nil {
			s.close()
		}
	}
	sv.mu.Lock()
	defer sv.mu.Unlock()
	defer close(done)
	sv.dialing = nil
	if err == nil && sv.closed {
		sv.mu.Unlock()
		s.close()
		sv.mu.Lock()
		err = errors.New("this executor stops")
	}
	if err != nil {
		sv.failed(ctx, err)
		return
	}
	if sv.down != nil {
		sv.log.InfoContext(ctx, "MCP server reached again", "server", sv.name)
	}
	sv.live, sv.tools, sv.down, sv.pause = s, tools, nil, 0
	sv.keep(tools)
	go func() {
		<-s.ended
		sv.mu.Lock()
		defer sv.mu.Unlock()
		if sv.live == s {
			sv.live = nil
			if !sv.closed {
				sv.failed(context.Background(), sv.words(s, errors.New("the connection was closed")))
			}
		}
	}()
}

// failed notes that the server is down. It is called with sv.mu held.
func (sv *server) failed(ctx context.Context, err error) {
	if sv.down == nil && !sv.closed {
		sv.log.WarnContext(ctx, "MCP server is down", "server", sv.name, "err", err)
	}
	sv.pause = min(max(firstPause, 2*sv.pause), longestPause)
	sv.down, sv.again = err, time.Now().Add(sv.pause)
}

// drop gives up a connection that does not work, so that the next call makes another one.
func (sv *server) drop(s *session, why error) {
	sv.mu.Lock()
	if sv.live == s {
		sv.live = nil
		sv.failed(context.Background(), why)
	}
	sv.mu.Unlock()
	sv.background(s.close)
}

// background does f beside its caller. Once the server is closed, f is done at once.
func (sv *server) background(f func()) {
	sv.mu.Lock()
	closed := sv.closed
	if !closed {
		sv.behind.Go(f)
	}
	sv.mu.Unlock()
	if closed {
		f()
	}
}

// relist asks for the tools to be listed again.
func (sv *server) relist() {
	select {
	case sv.changed <- struct{}{}:
	default:
	}
}

// run keeps the server connected and its list up to date, until ctx ends.
func (sv *server) run(ctx context.Context) {
	var took time.Duration // by the last list
	for ctx.Err() == nil {
		s, err := sv.session(ctx)
		if err != nil {
			wait := firstPause
			if u, ok := errors.AsType[*unreachable](err); ok {
				wait = u.after
			}
			pause(ctx, wait)
			continue
		}
		select {
		case <-ctx.Done():
		case <-s.ended:
		case <-sv.changed:
			pause(ctx, min(max(relistPause, relistShare*took), longestPause))
			began := time.Now()
			sv.listAgain(ctx, s)
			took = time.Since(began)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func (sv *server) listAgain(ctx context.Context, s *session) {
	select {
	case <-sv.changed: // one list serves all
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, sv.cfg.ConnectTimeout)
	defer cancel()
	tools, err := sv.list(ctx, s)
	if err != nil {
		if ctx.Err() == nil {
			sv.log.WarnContext(ctx, "tools of MCP server not listed again", "server", sv.name, "err", err)
		}
		return
	}
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if sv.live == s {
		sv.tools = tools
		sv.keep(tools)
	}
}

// close ends the connection and lets nobody make another one.
func (sv *server) close() {
	sv.mu.Lock()
	s, dialing := sv.live, sv.dialing
	sv.live, sv.closed = nil, true
	sv.mu.Unlock()
	if dialing != nil {
		<-dialing
	}
	if s != nil {
		s.close()
	}
	sv.behind.Wait()
	if sv.transport != nil {
		sv.transport.CloseIdleConnections()
	}
}

// listed is the last list of tools, and whether there was ever one; down is why the server cannot be reached.
func (sv *server) listed() (tools map[string]*tool, ever bool, down error) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	return maps.Clone(sv.tools), sv.tools != nil, sv.down
}

// tool is a tool of the last list; ever says whether there was one.
func (sv *server) tool(name string) (t *tool, ever bool) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	return sv.tools[name], sv.tools != nil
}

// watch has the progress of a call reported until stop is called.
func (sv *server) watch(token string, to func(json.RawMessage)) (stop func()) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.reports[token] = &report{to: to}
	return func() {
		sv.mu.Lock()
		defer sv.mu.Unlock()
		delete(sv.reports, token)
	}
}

// progressed passes on progress to the call that it belongs to.
func (sv *server) progressed(p *mcp.ProgressNotificationParams) {
	if p == nil {
		return
	}
	token, _ := p.ProgressToken.(string)
	now := time.Now()
	sv.mu.Lock()
	r, ok := sv.reports[token]
	if !ok || now.Sub(r.last) < progressEvery {
		sv.mu.Unlock()
		return
	}
	r.last = now
	sv.mu.Unlock()
	at := struct {
		Progress float64 `json:"progress"`
		Total    float64 `json:"total,omitempty"`
		Message  string  `json:"message,omitempty"`
	}{p.Progress, p.Total, errs.Clip(p.Message, 500)}
	if raw, err := json.Marshal(at); err == nil {
		r.to(raw)
	}
}

// probe looks whether a server that did not answer a call in time answers at all.
func (sv *server) probe(s *session) {
	ctx, cancel := context.WithTimeout(context.Background(), pingWithin)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.sdk.Ping(ctx, nil) }()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if _, answered := errors.AsType[*jsonrpc.Error](err); err != nil && !answered {
		sv.drop(s, errors.New("it does not answer"))
	}
}
