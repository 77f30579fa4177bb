// Package extent computes how large a message will be in memory, before it is decoded, and bounds its number
// of elements. It must not know any message of the suite. It is written here because the protobuf library
// measures messages only once they are decoded.
package extent

import (
	"fmt"
	"math/bits"
	"reflect"
	"sync"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/epigraph-run/epigraph/internal/errs"
)

const (
	// MaxElements bounds the parts of one message: messages, elements of lists, entries of maps, and unknown
	// fields. One can take two bytes on the wire and some hundred bytes in memory.
	MaxElements = 500_000
	// maxDepth bounds how deep messages may stand within each other, as other readers of protobuf do.
	maxDepth = 100
)

// Reasons of the errors and violations that this package returns.
const (
	// ReasonTooMany is a message with more than MaxElements.
	ReasonTooMany = "TOO_MANY_ELEMENTS"
	// ReasonTooDeep is a message with others too deep within it.
	ReasonTooDeep = "MESSAGE_TOO_DEEP"
	// ReasonInvalid is a message with a list or map that is longer than the rules of its field allow.
	ReasonInvalid = "REQUEST_INVALID"
)

// Extent is the result of decoding a message, in elements and bytes. The zero value is that of nothing.
type Extent struct {
	Elements int64
	Bytes    int64
}

// Measure adds what the decoding of a message will allocate, without decoding it. It refuses messages with
// too many elements, with lists and maps longer than the rules of their fields allow, and with messages
// nested too deep. Broken wire forms are left to the decoder.
func (x *Extent) Measure(b []byte, d protoreflect.MessageDescriptor) error {
	if e := x.message(shapeOf(d), b, 0); e != nil {
		reason := ReasonInvalid
		if e.reason == ReasonTooMany {
			reason = e.reason
		}
		return errs.New(errs.InvalidArgument, reason, "the request is not valid: %s: %s", e.field, e.text).Violate(e.field, e.reason, e.text)
	}
	return nil
}

// Value adds the n-th value of a field, without its content: an element of a list, an entry of a map, a
// message, nothing for a plain value. If that breaks a limit, the result is its reason and a text.
func (x *Extent) Value(fd protoreflect.FieldDescriptor, n int) (reason, text string) {
	f := shapeOf(fd.ContainingMessage()).field(fd.Number())
	x.Bytes += f.each
	if f.kind == messageKind && !fd.IsMap() {
		x.Bytes += f.message().size
	}
	if f.kind == messageKind || f.list {
		x.Elements++
	}
	switch {
	case f.most > 0 && int64(n) > f.most:
		return f.rule, tooLong(f.most)
	case x.Elements > MaxElements:
		return ReasonTooMany, tooMany()
	}
	return "", ""
}

func tooLong(most int64) string { return fmt.Sprintf("must have at most %d elements", most) }

func tooMany() string {
	return fmt.Sprintf("here the request has more than %d messages, list elements, map entries and unknown fields", MaxElements)
}

// excess is a limit that a message breaks, and where.
type excess struct {
	field  string
	reason string
	text   string
}

// in puts the name of a field in front of the place.
func (e *excess) in(f *fieldShape) *excess {
	if e.field == "" {
		e.field = f.name
	} else {
		e.field = f.name + "." + e.field
	}
	return e
}

// message adds what the decoding of a message makes, up to where its wire form is broken.
func (x *Extent) message(s *shape, b []byte, depth int) *excess {
	if depth > maxDepth {
		return &excess{reason: ReasonTooDeep, text: fmt.Sprintf("messages stand more than %d deep within each other", maxDepth)}
	}
	x.Bytes += s.size
	var counts [boundedFields]int64
	for len(b) > 0 {
		tag, n := protowire.ConsumeVarint(b)
		if n < 0 || tag>>3 > uint64(protowire.MaxValidNumber) {
			return nil
		}
		num, typ := protowire.Number(tag>>3), protowire.Type(tag&7)
		size := protowire.ConsumeFieldValue(num, typ, b[n:])
		if size < 0 {
			return nil
		}
		f := s.field(num)
		switch {
		case f == nil: // kept as it is
			x.Elements++
			x.Bytes += listGrowth * int64(n+size)
		case typ == protowire.BytesType && f.kind != scalarKind:
			v, _ := protowire.ConsumeBytes(b[n:])
			made, e := x.value(f, v, depth)
			if e != nil {
				return e.in(f)
			}
			if f.bounded > 0 {
				counts[f.bounded-1] += made
				if counts[f.bounded-1] > f.most {
					return &excess{f.name, f.rule, tooLong(f.most)}
				}
			}
		default:
			if f.list {
				x.Elements++
			}
			x.Bytes += f.each
		}
		if x.Elements > MaxElements {
			e := &excess{"an unknown field", ReasonTooMany, tooMany()}
			if f != nil {
				e.field = f.name
			}
			return e
		}
		b = b[n+size:]
	}
	return nil
}

// value adds what one occurrence of a field makes, and returns how many elements of its list or map that is.
func (x *Extent) value(f *fieldShape, v []byte, depth int) (int64, *excess) {
	switch f.kind {
	case messageKind:
		x.Elements++
		x.Bytes += f.each
		return 1, x.message(f.message(), v, depth+1)
	case textKind:
		if f.list {
			x.Elements++
		}
		x.Bytes += f.each + int64(len(v))
		return 1, nil
	default: // packed numbers
		n := varints(v)
		if f.width > 0 {
			n = int64(len(v)) / f.width
		}
		x.Elements += n
		x.Bytes += n * f.each
		return n, nil
	}
}

// varints counts the varints in b: each ends in the one byte of it whose highest bit is not set.
func varints(b []byte) (n int64) {
	for _, c := range b {
		n += int64(1 - c>>7)
	}
	return n
}

type fieldKind uint8

const (
	scalarKind  fieldKind = iota // a number that stands alone
	messageKind                  // a message, or an entry of a map
	textKind                     // a string or bytes
	packedKind                   // a list of numbers, packed or not
)

// boundedFields is how many lists and maps of one message are counted on their own.
const boundedFields = 8

// shape is what a message of one type is made of.
type shape struct {
	size   int64
	dense  []*fieldShape // by number
	sparse map[protowire.Number]*fieldShape
}

type fieldShape struct {
	name string
	kind fieldKind
	list bool
	// each is the memory of one element beside what it points to; width is the number of bytes of a packed
	// number on the wire, 0 for varints.
	each, width int64
	below       protoreflect.MessageDescriptor
	resolved    sync.Once
	shape       *shape
	// bounded is one more than the place of the field among those that have a rule: at most so many elements.
	bounded int
	most    int64
	rule    string
}

// message is the shape of the field's messages. It is computed on first use, since types may contain
// themselves.
func (f *fieldShape) message() *shape {
	f.resolved.Do(func() { f.shape = shapeOf(f.below) })
	return f.shape
}

func (s *shape) field(n protowire.Number) *fieldShape {
	if int(n) < len(s.dense) {
		return s.dense[n]
	}
	return s.sparse[n]
}

// shapes are those of all types that were seen; there are as many as the program has.
var shapes sync.Map //nolint:gochecknoglobals // a cache of what descriptors say, which never changes

func shapeOf(d protoreflect.MessageDescriptor) *shape {
	if s, ok := shapes.Load(d); ok {
		return s.(*shape)
	}
	s, _ := shapes.LoadOrStore(d, newShape(d))
	return s.(*shape)
}

const (
	// A list is enlarged by copying: beside the list in use there is the one before it. The same holds for
	// the table of a map.
	listGrowth = 3
	mapGrowth  = 4
	pointer    = 8
)

func newShape(d protoreflect.MessageDescriptor) *shape {
	s := &shape{size: allocated(sizeOf(d)), dense: make([]*fieldShape, 1, 32), sparse: map[protowire.Number]*fieldShape{}}
	bounded := 0
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		f := &fieldShape{name: string(fd.Name()), list: fd.IsList() || fd.IsMap(), below: fd.Message()}
		width := widthOf(fd.Kind())
		switch {
		case fd.IsMap():
			// The entry itself is never made; its shape below counts key and value.
			f.kind, f.each = messageKind, mapGrowth*(inTable(fd.MapKey())+inTable(fd.MapValue()))
			if v := fd.MapValue().Message(); v != nil { // made even if the entry has none
				f.each += allocated(sizeOf(v))
			}
		case fd.Message() != nil:
			f.kind = messageKind
			if f.list {
				f.each = listGrowth * pointer
			}
		case fd.Kind() == protoreflect.StringKind || fd.Kind() == protoreflect.BytesKind:
			f.kind = textKind
			if f.list {
				f.each = listGrowth * inTable(fd)
			}
		case f.list:
			f.kind, f.each, f.width = packedKind, listGrowth*inTable(fd), width
		}
		if of := fd.ContainingOneof(); of != nil { // a value of its own, or a pointer to one
			f.each += 32
		}
		if f.most, f.rule = mostOf(fd); f.most > 0 && bounded < boundedFields {
			bounded++
			f.bounded = bounded
		}
		if n := fd.Number(); n < 256 {
			for int(n) >= len(s.dense) {
				s.dense = append(s.dense, nil)
			}
			s.dense[n] = f
		} else {
			s.sparse[n] = f
		}
	}
	return s
}

// widthOf is how many bytes a number has on the wire, 0 for those of no fixed width.
func widthOf(k protoreflect.Kind) int64 {
	switch k {
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return 4
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return 8
	default:
		return 0
	}
}

// inTable is the memory of a value of a field where it stands in a list or in the table of a map.
func inTable(fd protoreflect.FieldDescriptor) int64 {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return 1
	case protoreflect.StringKind:
		return 16
	case protoreflect.BytesKind:
		return 24
	case protoreflect.EnumKind, protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Uint32Kind, protoreflect.Fixed32Kind,
		protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return 4
	default:
		return 8
	}
}

// sizeOf is the size of a message's Go type, without what it points to. Entries of maps have none.
func sizeOf(d protoreflect.MessageDescriptor) int64 {
	if d.IsMapEntry() {
		return 0
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		return 256
	}
	v := reflect.TypeOf(t.Zero().Interface())
	if v.Kind() != reflect.Pointer {
		return 256
	}
	return int64(v.Elem().Size())
}

// allocated is what an allocation of n bytes takes at most: Go's size classes are an eighth apart.
func allocated(n int64) int64 {
	if n <= 16 {
		return n
	}
	step := int64(1) << max(bits.Len64(uint64(n-1))-3, 3)
	return (n + step - 1) / step * step
}

// mostOf reads the rule of a field that says how long its list or map may be; 0 if there is none.
func mostOf(fd protoreflect.FieldDescriptor) (most int64, reason string) {
	if !proto.HasExtension(fd.Options(), validate.E_Field) {
		return 0, ""
	}
	rules, ok := proto.GetExtension(fd.Options(), validate.E_Field).(*validate.FieldRules)
	switch {
	case !ok:
	case rules.GetRepeated().HasMaxItems():
		return int64(min(rules.GetRepeated().GetMaxItems(), 1<<40)), "REPEATED_MAX_ITEMS"
	case rules.GetMap().HasMaxPairs():
		return int64(min(rules.GetMap().GetMaxPairs(), 1<<40)), "MAP_MAX_PAIRS"
	}
	return 0, ""
}
