package grpckit

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conns"
	"github.com/epigraph-run/epigraph/internal/inflight"
)

const (
	// answerMemory is how often an answer is there until it is handed to gRPC: as a message and as its bytes.
	answerMemory = 2
	// pieceBytes is the size of the pieces in which an answer is sent. A caller that takes a piece within the
	// write timeout counts as present.
	pieceBytes = 256 << 10
	// tinyAnswer is not counted: the connection holds as much anyway.
	tinyAnswer = inflight.Tiny
)

// outgoing is a message on its way out, for the codec. It counts in its namespace's share until gRPC has
// written it or dropped it. gRPC holds all of it meanwhile, and signals the end only by freeing its buffers.
type outgoing struct {
	message proto.Message
	held    *inflight.Answer
	writes  *writes
	timeout time.Duration

	mu     sync.Mutex
	pieces int
	late   *time.Timer
}

// send returns the value to give to gRPC in place of m, which holds at least its size.
func (k *chain) send(ctx context.Context, m proto.Message, held *inflight.Answer) any {
	o := &outgoing{message: m, held: held, writes: writesOf(ctx)}
	if PrincipalOf(ctx).Kind == access.Key {
		// a service has many callers on one connection, and cancels calls by itself
		o.timeout = k.writeTimeout
	}
	return o
}

// buffers are the bytes of the message, each of which reports when it is freed.
func (o *outgoing) buffers(b []byte) mem.BufferSlice {
	o.held.Shrink(int64(len(b)))
	o.message = nil
	pieces := slices.Collect(slices.Chunk(b, pieceBytes))
	o.pieces = len(pieces)
	out := make(mem.BufferSlice, len(pieces))
	for i := range pieces {
		// By its capacity gRPC decides whether a buffer is worth giving back.
		out[i] = mem.NewBuffer(&pieces[i], o)
	}
	if last := len(pieces) - 1; last >= 0 && mem.IsBelowBufferPoolingThreshold(cap(pieces[last])) {
		o.pieces--
	}
	if o.pieces <= 0 {
		o.held.Free()
		return out
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writes.add(o)
	if o.timeout > 0 {
		o.late = time.AfterFunc(o.timeout, o.writes.cut)
	}
	return out
}

// Get implements mem.BufferPool; nobody asks for buffers here.
func (*outgoing) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// Put implements mem.BufferPool: a piece is written, or given up.
func (o *outgoing) Put(*[]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pieces--; o.pieces > 0 {
		if o.late != nil {
			o.late.Reset(o.timeout)
		}
		return
	}
	o.end()
}

// end gives back what the message holds. It is idempotent. The lock is held.
func (o *outgoing) end() {
	if o.late != nil {
		o.late.Stop()
		o.late = nil
	}
	o.held.Free()
	o.writes.remove(o)
}

// writes are the messages that are on their way out on one connection. gRPC gives nothing back of a
// connection that ends.
type writes struct {
	conn *conns.Conn

	mu    sync.Mutex
	open  map[*outgoing]struct{}
	ended bool
}

func (w *writes) add(o *outgoing) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		o.held.Free()
		return
	}
	w.open[o] = struct{}{}
}

func (w *writes) remove(o *outgoing) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, o)
}

// cut ends the connection: its caller does not take what it asked for, and gRPC has no other way to let go of
// that.
func (w *writes) cut() {
	if w != nil && w.conn != nil {
		_ = w.conn.Close() // it may have gone by itself
	}
}

// end handles the end of the connection.
func (w *writes) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for o := range w.open {
		o.held.Free()
	}
	clear(w.open)
}

type writesKey struct{}

func writesOf(ctx context.Context) *writes {
	w, _ := ctx.Value(writesKey{}).(*writes)
	return w
}

// writers connects messages on their way out with the end of their connections. It comes after tagger, which
// knows the connections.
type writers struct{}

// TagConn implements stats.Handler.
func (writers) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, writesKey{}, &writes{conn: conns.Of(ctx), open: map[*outgoing]struct{}{}})
}

// HandleConn implements stats.Handler.
func (writers) HandleConn(ctx context.Context, c stats.ConnStats) {
	if _, ok := c.(*stats.ConnEnd); ok {
		if w := writesOf(ctx); w != nil {
			w.end()
		}
	}
}

// TagRPC implements stats.Handler.
func (writers) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler. It is called for every message that gRPC has taken. A message that
// comes just after the caller has ended the call is dropped by gRPC without freeing its buffers.
func (writers) HandleRPC(ctx context.Context, s stats.RPCStats) {
	p, ok := s.(*stats.OutPayload)
	if !ok || ctx.Err() == nil {
		return
	}
	if o, ok := p.Payload.(*outgoing); ok {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.end()
	}
}
