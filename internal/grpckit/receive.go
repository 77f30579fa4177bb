package grpckit

import (
	"context"
	"errors"
	"io"
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
	// maxExempt bounds a message of a caller that needs no credentials, and exemptTimeout the time in which
	// it must arrive.
	maxExempt     = 4 << 10
	exemptTimeout = 5 * time.Second
)

// transportStream is the stream of gRPC's own transport: it returns the length of a message before the
// message is read. Until then flow control keeps all but a window of it with the sender.
type transportStream interface {
	RecvCompress() string
	FrameSource
}

// receiver reads the messages of one call. Each holds its part of the budget until the next one is read, or
// the call ends.
type receiver struct {
	codec  *interned
	stream transportStream // nil if the transport is of another kind
	plain  func(any) error // receives as gRPC does
	share  inflight.Share
	frames Frames

	// mu guards the owner of share: a handler may return while a goroutine of its own still reads, which then
	// frees it.
	mu             sync.Mutex
	reading, ended bool
}

func newReceiver(ctx context.Context, codec *interned, budget *inflight.Budget, most int, timeout time.Duration, plain func(any) error) *receiver {
	r := &receiver{codec: codec, plain: plain, share: budget.Share(Namespace(ctx))}
	r.stream, _ = grpc.ServerTransportStreamFromContext(ctx).(transportStream)
	cut, _ := ctx.Value(cutKey{}).(context.CancelFunc)
	r.frames = Frames{Source: r.stream, Share: &r.share, Weight: 1, Max: int64(most), Timeout: timeout, Cut: cut}
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

// end frees what the call holds, once no goroutine reads any more. Nothing is read after it.
func (r *receiver) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended = true; !r.reading {
		r.share.Free()
	}
}

// next reads a message into m. It is io.EOF when the caller has sent all. One goroutine at a time may read.
func (r *receiver) next(ctx context.Context, m any) error { return r.read(ctx, m, false) }

// last reads the one message of a call whose caller sends no more.
func (r *receiver) last(ctx context.Context, m any) error { return r.read(ctx, m, true) }

func (r *receiver) read(ctx context.Context, m any, one bool) error {
	if !r.begin() {
		return context.Canceled
	}
	defer r.done()
	r.share.Free()
	if r.stream == nil {
		in := &incoming{into: m, share: &r.share}
		err := r.plain(in)
		if one && errors.Is(err, io.EOF) {
			return cutOffBefore()
		}
		if err != nil {
			return err
		}
		return in.err
	}
	if c := r.stream.RecvCompress(); c != "" && c != encoding.Identity {
		return Compressed(c)
	}
	read := r.frames.Next
	if one {
		read = r.frames.One
	}
	data, err := read(ctx)
	if err != nil {
		return err
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	data.Free()
	defer buf.Free()
	if err := r.codec.decode(buf.ReadOnlyData(), m, func(n int64) error { return r.frames.take(ctx, n) }); err != nil || !one {
		return err
	}
	return r.frames.End()
}

type cutKey struct{}

// tapped gives each call a context that its server can end while it reads: gRPC has no deadline for that.
func tapped(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithCancel(ctx)
	return context.WithValue(ctx, cutKey{}, cancel), nil
}

// incoming takes the place of a message when gRPC reads it: gRPC would send an error of the codec to the
// caller in its own words.
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

// decode decodes b into v, except for the parts that it shares with earlier messages. The size of the result
// is counted first, and take must accept it.
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
