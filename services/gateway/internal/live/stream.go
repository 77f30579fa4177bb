package live

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// connection is one client's connection.
type connection struct {
	Options
	w        http.ResponseWriter
	rc       *http.ResponseController
	r        *http.Request
	stopping <-chan struct{}

	// content is the content type of the answer, opening its first bytes, and silence what is written when
	// nothing happens for long.
	content, opening, silence string
	// again tells a client how to go on when the server stops.
	again string
	begun bool
	// unsent says that the headers were not sent yet.
	unsent bool
	buf    bytes.Buffer
}

const eventStream = "text/event-stream; charset=utf-8"

func newConnection(o Options, w http.ResponseWriter, r *http.Request) connection {
	return connection{Options: o, w: w, rc: http.NewResponseController(w), r: r, content: eventStream, silence: ": keep-alive\n\n"}
}

// received is an event of an upstream, or its end.
type received[T any] struct {
	event T
	err   error
}

// writer puts the events of an upstream into the buffer of its connection. The headers have been written
// before.
type writer[T any] interface {
	// take writes one event; over says that it was the last.
	take(event T) (over bool, err error)
	// end writes the end of the upstream, fail an error as the end, and stop that the server stops.
	end() error
	fail(cause error) error
	stop(cause error) error
}

// serve answers with the events of an upstream until it ends, the client has gone, or the server stops. A
// request that fails before its first event, or before FirstEvent is over, is answered with an error and not
// with a stream. The error says why a stream was cut off.
func serve[T any](c *connection, to writer[T], open func(context.Context) (interface{ Recv() (T, error) }, error)) error {
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	upstream, err := open(ctx)
	if err != nil {
		c.Fail(c.w, c.r, c.FromStatus(err))
		return nil
	}
	c.stopping = c.Stopping(ctx)
	in := make(chan received[T], ahead)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			ev, err := upstream.Recv()
			select {
			case in <- received[T]{ev, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() { cancel(); <-done }()
	if err := pump(ctx, c, to, in); ctx.Err() == nil {
		return err
	}
	return nil
}

func pump[T any](ctx context.Context, c *connection, to writer[T], in <-chan received[T]) error {
	quiet := time.NewTimer(c.FirstEvent)
	defer quiet.Stop()
	last := func(err error) error { return errors.Join(err, c.flush()) }
	for {
		if len(in) == 0 || c.buf.Len() > 64<<10 {
			if err := c.flush(); err != nil {
				return err
			}
		}
		select {
		case got := <-in:
			switch {
			case got.err != nil && !errors.Is(got.err, io.EOF):
				return last(c.failed(c.FromStatus(got.err), to.fail))
			case got.err != nil:
				c.begin()
				return last(to.end())
			}
			c.begin()
			if over, err := to.take(got.event); over || err != nil {
				return last(err)
			}
		case <-quiet.C:
			if c.begun {
				c.buf.WriteString(c.silence)
			}
			c.begin()
		case <-c.stopping:
			return last(c.failed(errs.New(errs.Unavailable, "STOPPING", "this server is stopping").Hint(c.again), to.stop))
		case <-ctx.Done():
			return ctx.Err()
		}
		quiet.Reset(c.KeepAlive)
	}
}

// failed answers with an error if nothing was sent, and else lets the writer tell it.
func (c *connection) failed(cause error, tell func(error) error) error {
	if c.begun {
		return tell(cause)
	}
	c.Fail(c.w, c.r, cause)
	return nil
}

// begin writes the headers, once.
func (c *connection) begin() {
	if c.begun {
		return
	}
	c.begun, c.unsent = true, true
	hd := c.w.Header()
	hd.Set("Content-Type", c.content)
	hd.Set("Cache-Control", "no-cache, no-transform")
	hd.Set("X-Accel-Buffering", "no") // nginx would hold events back
	c.w.WriteHeader(http.StatusOK)
	c.buf.WriteString(c.opening)
}

// event writes one server-sent event.
func (c *connection) event(id, name string, data []byte) {
	if id != "" {
		c.buf.WriteString("id: " + id + "\n")
	}
	c.buf.WriteString("event: " + name + "\n")
	for line := range bytes.Lines(data) {
		c.buf.WriteString("data: ")
		c.buf.Write(bytes.TrimRight(line, "\r\n"))
		c.buf.WriteByte('\n')
	}
	c.buf.WriteByte('\n')
}

// flush sends what was written.
func (c *connection) flush() error {
	if c.buf.Len() == 0 && !c.unsent {
		return nil
	}
	// Not every writer has deadlines; then the connection's own limits hold.
	_ = c.rc.SetWriteDeadline(time.Now().Add(c.WriteTimeout))
	_, err := c.w.Write(c.buf.Bytes())
	c.unsent = false
	c.buf.Reset()
	if c.buf.Cap() > 256<<10 {
		c.buf = bytes.Buffer{}
	}
	if err != nil {
		return err
	}
	return c.rc.Flush()
}
