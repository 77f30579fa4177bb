// Package grpcproxy passes gRPC calls on to the services unchanged: messages stay bytes, and headers,
// deadlines, trailers and errors go through. Messages are read one at a time, within the budget of the
// process, and only as fast as the service takes them. It must not know the content of messages, nor the
// rights of callers.
package grpcproxy

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/services/gateway/internal/paced"
)

// contentType is the type of gRPC over HTTP/2 with the only codec in use.
const contentType = "application/grpc"

// ReasonUnimplemented is the reason for a missing method; gRPC has a code for that, which other errors share.
const ReasonUnimplemented = "RPC_UNIMPLEMENTED"

const codeUnimplemented = 12

// Is reports whether a request is a gRPC call.
func Is(r *http.Request) bool {
	ct := r.Header.Get("Content-Type")
	return r.ProtoMajor == 2 && r.Method == http.MethodPost && (ct == contentType || ct == contentType+"+proto" || strings.HasPrefix(ct, contentType+";"))
}

// Options are what a Proxy needs; all are required but Draining.
type Options struct {
	// Budget is what messages on their way in may hold.
	Budget *inflight.Budget
	// MaxBytes bounds one message on its way in.
	MaxBytes int64
	// MessageTimeout bounds the time in which the message of a unary call must come, Timeout that call as a
	// whole.
	MessageTimeout, Timeout time.Duration
	// WriteTimeout is for how long a caller may refuse to take a message.
	WriteTimeout time.Duration
	// Draining returns a channel that closes when the server begins to stop; nil never does.
	Draining func(context.Context) <-chan struct{}
}

// Method is a method of a service, and its connection. Callers without the right must have been refused
// before.
type Method struct {
	Options
	Desc protoreflect.MethodDescriptor
	Conn grpc.ClientConnInterface
}

// Path is the path at which gRPC calls a method.
func Path(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

// ServeHTTP passes one call on.
func (m *Method) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	md, err := incoming(r.Header)
	if err != nil {
		Fail(w, r, err)
		return
	}
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(r.Context(), md))
	defer cancel()
	if t := r.Header.Get("Grpc-Timeout"); t != "" {
		d, err := timeout(t)
		if err != nil {
			Fail(w, r, err)
			return
		}
		var end context.CancelFunc
		ctx, end = context.WithTimeoutCause(ctx, d, grpckit.ErrCallersTime)
		defer end()
	}
	if enc := r.Header.Get("Grpc-Encoding"); enc != "" && enc != encoding.Identity {
		Fail(w, r, grpckit.Compressed(enc))
		return
	}
	ns := grpckit.Namespace(ctx)
	c := &call{Method: m, w: paced.New(w, m.WriteTimeout), r: r, rc: http.NewResponseController(w), share: m.Budget.Share(ns), out: m.Budget.Answer(ns)}
	defer c.share.Free()
	defer c.out.Free()
	c.frames = grpckit.Frames{Source: body{r.Body}, Share: &c.share, Weight: 2, // here, and on the way out
		Max: m.MaxBytes, Timeout: m.MessageTimeout, Patient: m.Desc.IsStreamingClient(), Cut: c.cutReading}
	// Not every writer has deadlines; then the server's own limits hold.
	_ = c.rc.SetReadDeadline(time.Time{})
	if m.Desc.IsStreamingClient() || m.Desc.IsStreamingServer() {
		c.stream(ctx, cancel)
		return
	}
	c.unary(ctx)
}

// call is one call on its way.
type call struct {
	*Method
	w      *paced.Writer
	r      *http.Request
	rc     *http.ResponseController
	share  inflight.Share
	frames grpckit.Frames
	out    *inflight.Answer
	begun  bool

	mu   sync.Mutex
	over bool // nothing is read any more
}

// body is where the frames of a call over net/http come from.
type body struct{ r io.Reader }

func (b body) ReadMessageHeader(header []byte) error {
	_, err := io.ReadFull(b.r, header)
	return cutOff(err)
}

func (b body) Read(n int) (mem.BufferSlice, error) {
	data := make([]byte, n)
	if _, err := io.ReadFull(b.r, data); errors.Is(err, io.EOF) {
		return nil, io.ErrUnexpectedEOF
	} else if err != nil {
		return nil, cutOff(err)
	}
	return mem.BufferSlice{mem.SliceBuffer(data)}, nil
}

// cutOff takes whatever ended a body early for its end.
func cutOff(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err)
}

// cutReading ends the reading of the body, unless that is over.
func (c *call) cutReading() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		_ = c.rc.SetReadDeadline(time.Now())
	}
}

func (c *call) stopReading() {
	c.cutReading()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
}

func (c *call) unary(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	c.w.Until(time.Now().Add(c.Timeout + c.WriteTimeout))
	in, err := c.last(ctx)
	if err != nil {
		c.end(nil, err)
		return
	}
	var out []byte
	var head, trail metadata.MD
	err = c.Conn.Invoke(ctx, Path(c.Desc), &in, &out, grpc.ForceCodecV2(raw{}), grpc.Header(&head), grpc.Trailer(&trail))
	c.share.Free()
	if err == nil {
		err = c.out.Hold(ctx, int64(len(out)))
	}
	if err != nil {
		c.end(trail, c.named(err))
		return
	}
	c.begin(head)
	if err := c.write(out); err != nil {
		panic(http.ErrAbortHandler) // the caller is gone, or must not take it for a whole answer
	}
	c.end(trail, nil)
}

func (c *call) stream(ctx context.Context, cancel context.CancelFunc) {
	var first []byte
	if !c.Desc.IsStreamingClient() {
		var err error
		if first, err = c.last(ctx); err != nil {
			c.end(nil, err)
			return
		}
		if c.Draining != nil {
			stop := c.Draining(ctx)
			go func() {
				select {
				case <-stop:
					cancel()
				case <-ctx.Done():
				}
			}()
		}
	}
	up, err := c.Conn.NewStream(grpckit.WithRequestSize(ctx, len(first)), &grpc.StreamDesc{ClientStreams: c.Desc.IsStreamingClient(), ServerStreams: c.Desc.IsStreamingServer()}, Path(c.Desc), grpc.ForceCodecV2(raw{}))
	if err != nil {
		c.end(nil, c.named(err))
		return
	}
	sent := make(chan error, 1)
	if !c.Desc.IsStreamingClient() {
		err := up.SendMsg(&first)
		c.share.Free()
		if err == nil {
			err = up.CloseSend()
		}
		if err != nil && !errors.Is(err, io.EOF) { // io.EOF: RecvMsg returns the error
			c.end(nil, err)
			return
		}
		sent <- nil
	} else {
		go func() {
			err := c.pump(ctx, up)
			sent <- err
			if err != nil {
				cancel()
			}
		}()
	}
	var fault error
	var trail metadata.MD
	for fault == nil {
		var m []byte
		if fault = up.RecvMsg(&m); fault != nil {
			fault = c.named(fault)
			trail = up.Trailer() // only now may it be asked for
			break
		}
		if !c.begun {
			head, _ := up.Header() // it is there: a message came
			c.begin(head)
		}
		err := c.out.Await(ctx, int64(len(m)))
		if err == nil {
			err = c.write(m)
			c.out.Shrink(0)
		}
		if err != nil {
			cancel()
			fault = err
		}
	}
	// The reader ends before the handler does: the body is not its own after that.
	select {
	case err := <-sent:
		if err != nil && errs.KindOf(err) != errs.Internal {
			fault = err // it is why the stream was given up
		}
	default:
		cancel() // it may wait for room
		c.stopReading()
		<-sent
	}
	if errors.Is(fault, io.EOF) {
		fault = nil
	}
	if c.Draining != nil && fault != nil && c.r.Context().Err() == nil {
		select {
		case <-c.Draining(c.r.Context()):
			fault = errs.New(errs.Unavailable, "GATEWAY_STOPPING", "the gateway is stopping").Hint("call again, another one answers")
		default:
		}
	}
	c.end(trail, fault)
}

// named adds the name of an unreachable service to err, which the gateway itself answers.
func (c *call) named(err error) error {
	if e, ok := errors.AsType[*errs.Error](err); ok && e.Reason == grpckit.ReasonServiceAway {
		parts := strings.Split(string(c.Desc.ParentFile().Package()), ".") // epigraph.SERVICE.v1
		return grpckit.ServiceAway(parts[len(parts)-2]).With(err)
	}
	return err
}

// pump passes on what the caller sends until that ends.
func (c *call) pump(ctx context.Context, up grpc.ClientStream) error {
	for {
		data, err := c.frames.Next(ctx)
		if errors.Is(err, io.EOF) {
			return up.CloseSend()
		}
		if err != nil {
			return err
		}
		in := bytesOf(data)
		err = up.SendMsg(&in)
		c.share.Free()
		if err != nil {
			return nil // RecvMsg says why
		}
	}
}

// last reads the one message of a caller who sends no more.
func (c *call) last(ctx context.Context) ([]byte, error) {
	data, err := c.frames.One(ctx)
	if err != nil {
		return nil, err
	}
	return bytesOf(data), c.frames.End()
}

// bytesOf is a message without another copy of it.
func bytesOf(data mem.BufferSlice) []byte {
	return data.MaterializeToBuffer(mem.NopBufferPool{}).ReadOnlyData()
}

// begin sends the headers of an answer.
func (c *call) begin(md metadata.MD) {
	c.begun = true
	h := c.w.Header()
	h.Set("Content-Type", contentType)
	outgoing(h, "", md)
	c.w.WriteHeader(http.StatusOK)
}

func (c *call) write(m []byte) error {
	var head [5]byte
	if int64(len(m)) > int64(^uint32(0)) {
		return fmt.Errorf("a message of %d bytes has no frame", len(m))
	}
	binary.BigEndian.PutUint32(head[1:], uint32(len(m)))
	for _, part := range [][]byte{head[:], m} {
		if _, err := c.w.Write(part); err != nil {
			return err
		}
	}
	return c.rc.Flush()
}

// end sends the status of a call.
func (c *call) end(md metadata.MD, err error) {
	prefix := ""
	if c.begun {
		prefix = http.TrailerPrefix
	} else if err == nil {
		c.begin(nil)
		prefix = http.TrailerPrefix
	}
	outgoing(c.w.Header(), prefix, md)
	conclude(c.w, c.r, prefix, err)
}

// Fail answers a call that does not come to anything.
func Fail(w http.ResponseWriter, r *http.Request, err error) { conclude(w, r, "", err) }

func conclude(w http.ResponseWriter, r *http.Request, prefix string, err error) {
	h := w.Header()
	if err == nil {
		h.Set(prefix+"Grpc-Status", "0")
		return
	}
	st := grpckit.ToStatus(r.Context(), err).Proto() // a copy
	if errs.ReasonOf(err) == ReasonUnimplemented {
		st.Code = codeUnimplemented // clients hold the details against the header
	}
	h.Set(prefix+"Grpc-Status", strconv.Itoa(int(st.GetCode())))
	h.Set(prefix+"Grpc-Message", percent(st.GetMessage()))
	if b, err := proto.Marshal(st); err == nil && len(st.GetDetails()) > 0 {
		h.Set(prefix+"Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(b))
	}
	if prefix == "" {
		h.Set("Content-Type", contentType)
		w.WriteHeader(http.StatusOK)
	}
}

// percent encodes the message of a status as gRPC does.
func percent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c >= ' ' && c <= '~' && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// ReasonMetadataTooLarge is the reason when a call has more headers than are passed on.
const ReasonMetadataTooLarge = "METADATA_TOO_LARGE"

// maxMetadata and maxMetadataBytes bound the headers of a caller that go on. All namespaces share the
// connection on which they do.
const (
	maxMetadata      = 64
	maxMetadataBytes = 8 << 10
)

// incoming are the headers of a caller that are passed on. The gateway sets the headers about the caller and
// the trace itself.
func incoming(h http.Header) (metadata.MD, error) {
	md := metadata.MD{}
	n, size := 0, 0
	for k, vs := range h {
		k = strings.ToLower(k)
		if reserved(k) {
			continue
		}
		for _, v := range vs {
			if n, size = n+1, size+len(k)+len(v); n > maxMetadata || size > maxMetadataBytes {
				return nil, errs.New(errs.ResourceExhausted, ReasonMetadataTooLarge, "a call may bring %d headers of %d bytes together to a service", maxMetadata, maxMetadataBytes).
					Hint("leave headers out that no service of the suite reads")
			}
			if strings.HasSuffix(k, "-bin") {
				b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(v, "="))
				if err != nil {
					continue
				}
				v = string(b)
			}
			md.Append(k, v)
		}
	}
	return md, nil
}

func reserved(k string) bool {
	switch k {
	case "content-type", "content-length", "te", "trailer", "connection", "host", "user-agent", "accept-encoding", "x-api-key", "cookie", "forwarded",
		"traceparent", "tracestate", "baggage", grpckit.HeaderAuthorization, grpckit.HeaderNamespace, grpckit.HeaderPrincipal, grpckit.HeaderRequestID,
		grpckit.HeaderRun, grpckit.HeaderMaker, grpckit.HeaderOrigin:
		return true
	}
	return strings.HasPrefix(k, "grpc-") || strings.HasPrefix(k, ":") || strings.HasPrefix(k, "sec-") || strings.HasPrefix(k, "x-forwarded-")
}

// outgoing are the headers or trailers of a service.
func outgoing(h http.Header, prefix string, md metadata.MD) {
	for k, vs := range md {
		if k == "content-type" || strings.HasPrefix(k, "grpc-") || strings.HasPrefix(k, ":") {
			continue
		}
		for i, v := range vs {
			if strings.HasSuffix(k, "-bin") {
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
			if name := prefix + textproto.CanonicalMIMEHeaderKey(k); i == 0 {
				h.Set(name, v)
			} else {
				h.Add(name, v)
			}
		}
	}
}

// timeout reads what Grpc-Timeout says: at most eight digits and a unit.
func timeout(s string) (time.Duration, error) {
	units := map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}
	if n := len(s) - 1; n >= 1 && n <= 8 {
		unit := units[s[n]]
		if v, err := strconv.ParseUint(s[:n], 10, 32); err == nil && unit > 0 {
			if most := uint64((1<<63 - 1) / unit); v > most {
				v = most
			}
			return time.Duration(v) * unit, nil
		}
	}
	return 0, errs.New(errs.InvalidArgument, "TIMEOUT_INVALID", "grpc-timeout %.20q is no time", s)
}

// raw leaves messages as they are. It goes by protobuf's name, since that is what the bytes are.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("grpcproxy: %T is no message here", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("grpcproxy: %T is no message here", v)
	}
	*b = data.Materialize()
	return nil
}
