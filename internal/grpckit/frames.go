package grpckit

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/inflight"
)

// FrameSource is where the bytes of a call come from.
type FrameSource interface {
	// ReadMessageHeader fills header. It is io.EOF if nothing comes any more.
	ReadMessageHeader(header []byte) error
	// Read returns the next n bytes.
	Read(n int) (mem.BufferSlice, error)
}

// Frames reads the messages of one call from its frames: a flag, a length, and that many bytes. A message is
// admitted when there is room for it, and must arrive in time. It is for one goroutine.
type Frames struct {
	Source FrameSource
	// Share is what a message takes its room from, Weight times its length.
	Share  *inflight.Share
	Weight int64
	// Max bounds one message.
	Max int64
	// Timeout is how long a message may take to arrive; 0 or less means any time. If Patient, it begins with
	// the message, and the message waits for room; else it begins with the call.
	Timeout time.Duration
	Patient bool
	// Cut ends the reading of Source at once.
	Cut func()

	header [5]byte
}

// Next reads a message. It is io.EOF when the caller has sent all.
func (f *Frames) Next(ctx context.Context) (mem.BufferSlice, error) {
	late := timer{cut: f.Cut, after: f.Timeout}
	defer late.stop()
	if !f.Patient {
		late.start()
	}
	if err := f.Source.ReadMessageHeader(f.header[:]); err != nil {
		return nil, late.explain(err)
	}
	n := int64(binary.BigEndian.Uint32(f.header[1:]))
	switch {
	case f.header[0] != 0:
		return nil, Compressed("unknown")
	case n > f.Max:
		return nil, errs.New(errs.ResourceExhausted, ReasonMessageTooLarge, "the message has %d bytes, and one may have %d", n, f.Max).
			Hint("send large documents by reference").Set("limit_bytes", strconv.FormatInt(f.Max, 10))
	}
	if err := f.take(ctx, f.Weight*n); err != nil {
		return nil, err
	}
	late.start()
	data, err := f.body(int(n))
	if err == nil && !late.stop() { // the call was ended in this moment
		data.Free()
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, late.explain(err)
	}
	return data, nil
}

const (
	// firstChunk is the size of the first read of a message, and maxChunk that of later ones: larger reads
	// mean fewer round trips for flow control. A read keeps the pieces in which its bytes arrived.
	firstChunk, maxChunk = 64 << 10, 512 << 10
	// smallPiece is the length below which a piece takes much more memory than it has bytes.
	smallPiece = 1 << 10
)

// body reads n bytes of a message. Small pieces are joined, so that a message takes the memory it is counted
// for, however its sender split it.
func (f *Frames) body(n int) (mem.BufferSlice, error) {
	if n <= firstChunk {
		data, err := f.Source.Read(n)
		return joined(data), err
	}
	data := make(mem.BufferSlice, 0, n/maxChunk+8)
	for chunk := firstChunk; n > 0; chunk = min(2*chunk, maxChunk) {
		size := min(n, chunk)
		part, err := f.Source.Read(size)
		if err != nil {
			data.Free()
			if len(data) > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		n -= size
		data = append(data, joined(part)...)
	}
	return data, nil
}

// joined is data in one piece if its pieces are small.
func joined(data mem.BufferSlice) mem.BufferSlice {
	if len(data) < 2 || data.Len() >= len(data)*smallPiece {
		return data
	}
	defer data.Free()
	return mem.BufferSlice{mem.SliceBuffer(data.Materialize())}
}

// One reads the only message of a call.
func (f *Frames) One(ctx context.Context) (mem.BufferSlice, error) {
	data, err := f.Next(ctx)
	if errors.Is(err, io.EOF) {
		return nil, cutOffBefore()
	}
	return data, err
}

func cutOffBefore() error {
	return errs.New(errs.InvalidArgument, ReasonMessageCutOff, "the call ended before its message")
}

// End makes sure that nothing comes any more.
func (f *Frames) End() error {
	late := timer{cut: f.Cut, after: f.Timeout}
	late.start()
	defer late.stop()
	switch err := f.Source.ReadMessageHeader(f.header[:]); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return late.explain(err)
	}
	return errs.New(errs.InvalidArgument, "MESSAGE_REPEATED", "the call takes one message")
}

// take adds to what the message holds. Streams wait for room as long as needed, other calls for seconds:
// unread bytes stay with the sender.
func (f *Frames) take(ctx context.Context, n int64) error {
	if f.Patient {
		return f.Share.Wait(ctx, n)
	}
	return f.Share.Queue(ctx, n)
}

// Compressed is the error of a message that is compressed.
func Compressed(name string) error {
	return errs.New(errs.InvalidArgument, ReasonCompressed, "messages compressed with %.40q are not read here", name).Hint("send messages uncompressed")
}

// timer ends the reading of a message that does not come.
type timer struct {
	cut   func()
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
		return errs.New(errs.InvalidArgument, ReasonMessageCutOff, "the call ended within its message").With(err)
	}
	return err
}
