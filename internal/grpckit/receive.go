package grpckit

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/extent"
	"github.com/epigraph-run/epigraph/internal/inflight"
)

// Reasons of messages that are refused before they are read, or while they are.
const (
	ReasonMessageTooLarge = "MESSAGE_TOO_LARGE"
	ReasonCompressed      = "COMPRESSION_NOT_SUPPORTED"
	ReasonMessageTimeout  = "MESSAGE_TIMEOUT"
	ReasonMessageCutOff   = "MESSAGE_CUT_OFF"
)

const (
	// maxExempt bounds a message of a caller who need not say who they are, and exemptTimeout the time in which it must come.
	maxExempt     = 4 << 10
	exemptTimeout = 5 * time.Second
)

// transportStream is what a stream of gRPC's own transport can do: say how long a message is before it is let in. Until a message is asked for, flow control
// keeps all but a window of it out.
type transportStream interface {
	RecvCompress() string
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
}

// receiver takes in the messages of one call. Each holds its part of the budget until the next one is read, or the call ends.
type receiver struct {
	codec  *interned
	stream transportStream // nil if the transport is of another kind
	plain  func(any) error // receives as gRPC does
	cut    context.CancelFunc
	share  inflight.Share
	max    int
	// timeout is how long a message may take to come; 0 or less means any time. If patient, it begins with the message, else with the call.
	timeout time.Duration
	patient bool
	header  [5]byte

	// mu guards who owns share: a handler may return while a goroutine of its own still reads, which then frees it.
	mu             sync.Mutex
	reading, ended bool
}

func newReceiver(ctx context.Context, codec *interned, budget *inflight.Budget, most int, timeout time.Duration, plain func(any) error) *receiver {
	r := &receiver{codec: codec, plain: plain, max: most, timeout: timeout, share: budget.Share(Namespace(ctx))}
	r.stream, _ = grpc.ServerTransportStreamFromContext(ctx).(transportStream)
	r.cut, _ = ctx.Value(cutKey{}).(context.CancelFunc)
	return r
}

// begin reports whether a message may be read; after it done must be called.
func (r *receiver) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading = !r.ended
	return r.reading
}

func (r *receiver) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reading = false; r.ended {
		r.share.Free()
	}
}

// end gives back what the call holds, as soon as nobody reads any more. Nothing is read after it.
func (r *receiver) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended = true; !r.reading {
		r.share.Free()
	}
}

// next reads a message into m. It is io.EOF when the caller has sent all. One goroutine at a time may read.
func (r *receiver) next(ctx context.Context, m any) error {
	if !r.begin() {
		return context.Canceled
	}
	defer r.done()
	r.share.Free()
	if r.stream == nil {
		in := &incoming{into: m, share: &r.share}
		if err := r.plain(in); err != nil {
			return err
		}
		return in.err
	}
	if c := r.stream.RecvCompress(); c != "" && c != encoding.Identity {
		return compressed(c)
	}
	late := timer{cut: r.cut, after: r.timeout}
	defer late.stop()
	if !r.patient {
		late.start()
	}
	if err := r.stream.ReadMessageHeader(r.header[:]); err != nil {
		return late.explain(err)
	}
	n := int64(binary.BigEndian.Uint32(r.header[1:]))
	switch {
	case r.header[0] != 0:
		return compressed("unknown")
	case n > int64(r.max):
		return errs.New(errs.ResourceExhausted, ReasonMessageTooLarge, "the message has %d bytes, and one may have %d", n, r.max).
			Hint("send large documents by reference").Set("limit_bytes", strconv.Itoa(r.max))
	}
	if err := r.take(ctx, n); err != nil {
		return err
	}
	late.start()
	data, err := r.stream.Read(int(n))
	if err != nil {
		return late.explain(err)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	data.Free()
	defer buf.Free()
	if !late.stop() { // the call was ended in this moment
		return late.explain(io.ErrUnexpectedEOF)
	}
	return r.codec.decode(buf.ReadOnlyData(), m, func(n int64) error { return r.take(ctx, n) })
}

// last reads the one message of a call whose caller sends no more.
func (r *receiver) last(ctx context.Context, m any) error {
	err := r.next(ctx, m)
	if errors.Is(err, io.EOF) {
		return errs.New(errs.InvalidArgument, ReasonMessageCutOff, "the call ended before its message")
	}
	if err != nil || r.stream == nil {
		return err
	}
	late := timer{cut: r.cut, after: r.timeout}
	late.start()
	defer late.stop()
	switch err := r.stream.ReadMessageHeader(r.header[:]); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return late.explain(err)
	}
	return errs.New(errs.InvalidArgument, "MESSAGE_REPEATED", "the call takes one message")
}

// take adds to what the message holds. Who streams can be made to wait, others for seconds: what is not read stays with the sender.
func (r *receiver) take(ctx context.Context, n int64) error {
	if r.patient {
		return r.share.Wait(ctx, n)
	}
	return r.share.Queue(ctx, n)
}

func compressed(name string) error {
	return errs.New(errs.InvalidArgument, ReasonCompressed, "messages compressed with %.40q are not read here", name).Hint("send messages uncompressed")
}

// timer ends the reading of a message that does not come.
type timer struct {
	cut   context.CancelFunc
	after time.Duration
	t     *time.Timer
	over  bool
}

func (l *timer) start() {
	if l.t == nil && !l.over && l.cut != nil && l.after > 0 {
		l.t = time.AfterFunc(l.after, l.cut)
	}
}

// stop reports whether the time was not over.
func (l *timer) stop() bool {
	l.over = l.over || l.t != nil && !l.t.Stop()
	l.t = nil
	return !l.over
}

// explain says why a message was not read to its end.
func (l *timer) explain(err error) error {
	switch {
	case !l.stop():
		return errs.New(errs.DeadlineExceeded, ReasonMessageTimeout, "the message did not arrive within %s", l.after)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errs.New(errs.InvalidArgument, ReasonMessageCutOff, "the call ended within its message")
	}
	return err
}

type cutKey struct{}

// tapped gives each call a context that its server can end while it reads: gRPC has no deadline for that.
func tapped(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithCancel(ctx)
	return context.WithValue(ctx, cutKey{}, cancel), nil
}

// incoming is what the codec is given in place of a message when gRPC reads it: gRPC would send an error of the codec to the caller in its own words.
type incoming struct {
	into  any
	share *inflight.Share
	err   error
	done  bool
}

func (i *incoming) read(codec *interned, b []byte) error {
	if i.done {
		return errors.New("grpckit: the call takes one message")
	}
	i.done = true
	if i.err = i.share.Take(int64(len(b))); i.err == nil {
		i.err = codec.decode(b, i.into, i.share.Take)
	}
	return nil
}

// decode decodes b into v, but not again what it shares with messages that came before. What that makes is counted first, and must be taken.
func (n *interned) decode(b []byte, v any, take func(int64) error) error {
	m, ok := v.(proto.Message)
	if !ok {
		return errs.New(errs.Internal, errs.ReasonInternal, "%T is no message", v)
	}
	d := m.ProtoReflect().Descriptor()
	return n.unmarshal(b, m, func(parts ...[]byte) error {
		var x extent.Extent
		for _, part := range parts {
			if err := x.Measure(part, d); err != nil {
				return err
			}
		}
		return take(x.Bytes)
	})
}
