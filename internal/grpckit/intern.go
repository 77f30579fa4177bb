package grpckit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"buf.build/go/protovalidate"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/lru"
)

// Interner is a server whose services may name a part of a request that is often repeated. See Server.Intern.
type Interner interface {
	Intern(request proto.Message, field protoreflect.Name)
}

// Intern declares that clients send the same value of a message field of request many times, as they do with
// graphs. A repeated value is decoded and validated once, and then shared by all requests that contain it:
// nobody may change it. Call it before Serve. It panics if there is no such field.
//
// Without it a start of a graph of twenty nodes takes twice the CPU time and 2.6 times the allocations
// (BenchmarkStartRun/SameGraph against SameGraphWithoutIntern).
func (s *Server) Intern(request proto.Message, field protoreflect.Name) {
	s.chain.interned.add(request, field)
}

// Shared is a value that several requests share, with notes of their handlers about it. It is safe for
// concurrent use.
type Shared struct {
	field protoreflect.FieldDescriptor
	value protoreflect.Value
	bytes []byte
	key   uint64
	// valid is set once a request with it was validated.
	valid atomic.Bool
	note  atomic.Pointer[any]
}

// Note returns what SetNote kept last, or nil.
func (s *Shared) Note() any {
	if v := s.note.Load(); v != nil {
		return *v
	}
	return nil
}

// SetNote keeps v for the next requests with the same value. It is kept as long as the value and is not
// counted, so it must not be much larger.
func (s *Shared) SetNote(v any) { s.note.Store(&v) }

type sharedKey struct{}

// SharedOf returns the value that the request of ctx shares with others; nil if it shares none.
func SharedOf(ctx context.Context) *Shared {
	s, _ := ctx.Value(sharedKey{}).(*Shared)
	return s
}

const (
	// maxShared bounds one shared value, maxSharedBytes all of them, as they are on the wire.
	maxShared      = 256 << 10
	maxSharedBytes = 1 << 20
	// sightings is the number of values that are remembered as seen once: only repeated values are worth
	// their memory.
	sightings = 1 << 10
)

// interned keeps the values of fields that are repeated. It is a server's codec, and safe for concurrent use.
type interned struct {
	encoding.CodecV2
	seed   maphash.Seed
	fields map[protoreflect.FullName]*internedField

	mu      sync.Mutex
	seen    [sightings]uint64
	byKey   *lru.Cache[uint64, *Shared]
	byValue map[proto.Message]*Shared
}

// internedField is a field that is shared, and the filter that leaves it out of a validation.
type internedField struct {
	field protoreflect.FieldDescriptor
	rest  protovalidate.Filter
}

func newInterned() *interned {
	n := &interned{CodecV2: encoding.GetCodecV2(protocodec.Name), seed: maphash.MakeSeed(), fields: map[protoreflect.FullName]*internedField{},
		byKey: lru.New[uint64, *Shared](maxSharedBytes), byValue: map[proto.Message]*Shared{}}
	n.byKey.OnDrop(func(_ uint64, s *Shared) { delete(n.byValue, s.value.Message().Interface()) })
	return n
}

func (n *interned) add(request proto.Message, field protoreflect.Name) {
	d := request.ProtoReflect().Descriptor()
	f := d.Fields().ByName(field)
	if f == nil || f.Kind() != protoreflect.MessageKind || f.Cardinality() == protoreflect.Repeated {
		panic(fmt.Sprintf("grpckit: %s has no message field %s that could be shared", d.FullName(), field))
	}
	n.fields[d.FullName()] = &internedField{f, protovalidate.FilterFunc(func(_ protoreflect.Message, d protoreflect.Descriptor) bool { return d != f })}
}

// Marshal implements encoding.CodecV2.
func (n *interned) Marshal(v any) (mem.BufferSlice, error) {
	o, ok := v.(*outgoing)
	if !ok {
		return n.CodecV2.Marshal(v)
	}
	b, err := proto.Marshal(o.message)
	if err != nil {
		o.held.Free()
		return nil, err
	}
	return o.buffers(b), nil
}

// Unmarshal implements encoding.CodecV2.
func (n *interned) Unmarshal(data mem.BufferSlice, v any) error {
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	if in, ok := v.(*incoming); ok {
		return in.read(n, buf.ReadOnlyData())
	}
	return n.decode(buf.ReadOnlyData(), v, func(int64) error { return nil })
}

// unmarshal decodes b into m after admit has seen the parts of it that have to be decoded.
func (n *interned) unmarshal(b []byte, m proto.Message, admit func(parts ...[]byte) error) error {
	all := func() error {
		if err := admit(b); err != nil {
			return err
		}
		return malformed(proto.Unmarshal(b, m))
	}
	r := m.ProtoReflect()
	f := n.fields[r.Descriptor().FullName()]
	if f == nil {
		return all()
	}
	begin, from, end, err := only(b, f.field.Number())
	if err != nil || from == end || end-from > maxShared {
		return all()
	}
	key := maphash.Bytes(n.seed, b[from:end])
	s, again := n.find(key, b[from:end])
	if s == nil {
		if err := all(); err != nil || !again {
			return err
		}
		n.store(&Shared{field: f.field, value: r.Get(f.field), bytes: bytes.Clone(b[from:end]), key: key})
		return nil
	}
	if err := admit(b[:begin], b[end:]); err != nil {
		return err
	}
	if err := proto.Unmarshal(b[:begin], m); err != nil {
		return malformed(err)
	}
	if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(b[end:], m); err != nil {
		return malformed(err)
	}
	r.Set(f.field, s.value)
	return nil
}

func malformed(err error) error {
	if err == nil {
		return nil
	}
	return errs.New(errs.InvalidArgument, "MESSAGE_MALFORMED", "the message cannot be decoded").Hint("check that client and server speak of the same method").With(err)
}

// find returns the kept form of a value; again says that the value was seen before, though nothing is kept of
// it.
func (n *interned) find(key uint64, b []byte) (s *Shared, again bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, known := n.byKey.Get(key)
	if !known {
		at := &n.seen[key%sightings]
		again = *at == key
		*at = key
		return nil, again
	}
	if !bytes.Equal(s.bytes, b) {
		return nil, false
	}
	return s, false
}

func (n *interned) store(s *Shared) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.byKey.Get(s.key); known {
		return
	}
	n.byKey.Put(s.key, s, int64(len(s.bytes)))
	n.byValue[s.value.Message().Interface()] = s
}

// of returns the value that a request shares with others, and the filter that leaves it out of a validation.
func (n *interned) of(request any) (*Shared, protovalidate.Filter) {
	m, ok := request.(proto.Message)
	if !ok || len(n.fields) == 0 {
		return nil, nil
	}
	r := m.ProtoReflect()
	f := n.fields[r.Descriptor().FullName()]
	if f == nil || !r.Has(f.field) {
		return nil, nil
	}
	v := r.Get(f.field).Message().Interface()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byValue[v], f.rest
}

var errNotOnce = errors.New("grpckit: not once in the message")

// only finds the field in the wire form of a message: where its tag begins, and where its value begins and
// ends. A repeated occurrence would have to be merged, so it is not found.
func only(b []byte, number protowire.Number) (begin, from, end int, err error) {
	for at := 0; at < len(b); {
		num, typ, n := protowire.ConsumeTag(b[at:])
		if n < 0 {
			return 0, 0, 0, protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(num, typ, b[at+n:])
		if size < 0 {
			return 0, 0, 0, protowire.ParseError(size)
		}
		if num == number {
			if end > 0 || typ != protowire.BytesType {
				return 0, 0, 0, errNotOnce
			}
			v, _ := protowire.ConsumeBytes(b[at+n:])
			begin, end = at, at+n+size
			from = end - len(v)
		}
		at += n + size
	}
	if end == 0 {
		return 0, 0, 0, errNotOnce
	}
	return begin, from, end, nil
}
