// Package jsonview owns how a protobuf message looks as REST JSON: protojson, but for
// epigraph.graph.v1.Payload, which appears as the plain JSON value that it holds. It reads strictly
// (every fault of a body at once, each with its path, line and column) and never turns a number into
// a float. It must not know HTTP, routes or any service.
//
// Two choices about payloads. A null where a payload may stand is the JSON value null, not an absent
// payload, so that null can be passed as an argument; leave the field out to say "absent". A payload
// without a value is left out, and is null within a list or map.
package jsonview

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/extent"
)

// Reasons of the errors and violations that this package returns.
const (
	// ReasonInvalidJSON is a text that is not JSON.
	ReasonInvalidJSON = "INVALID_JSON"
	// ReasonTooDeep is a text that nests more values than allowed.
	ReasonTooDeep = "JSON_TOO_DEEP"
	// ReasonInvalidBody is JSON that does not fit the message; its violations say where.
	ReasonInvalidBody = "INVALID_BODY"
	// ReasonUnknownField is a key that the message does not have.
	ReasonUnknownField = "UNKNOWN_FIELD"
	// ReasonWrongType is a value of another type than the field's.
	ReasonWrongType = "WRONG_TYPE"
	// ReasonUnknownValue is a name that an enum does not have.
	ReasonUnknownValue = "UNKNOWN_ENUM_VALUE"
	// ReasonDuplicateKey is a key or field that is given twice.
	ReasonDuplicateKey = "DUPLICATE_KEY"
	// ReasonOneofConflict is the reason for a second field of a oneof.
	ReasonOneofConflict = "ONEOF_CONFLICT"
	// ReasonIntegerTooLarge is an integer in a payload of a body that JSON readers with doubles would change.
	ReasonIntegerTooLarge = "INTEGER_TOO_LARGE_FOR_JSON"
	// ReasonPayloadInvalid is a stored payload that is not JSON.
	ReasonPayloadInvalid = "PAYLOAD_INVALID"
)

const (
	// MaxDepth is how deep the values of a request body may nest.
	MaxDepth = 200
	// maxDepthOut is how deep the values of an answer may nest, which came in by gRPC.
	maxDepthOut = 10_000
	maxFaults   = 50

	payloadName = protoreflect.FullName("epigraph.graph.v1.Payload")

	integerHint = "send the integer as a string, or use the gRPC API, which keeps all digits"
)

// edit replaces in[from:to].
type edit struct {
	from, to int
	text     string
}

type decoder struct {
	scanner
	edits []edit
	// made is what the message will be made of; of its bytes, taken are taken.
	made  extent.Extent
	taken int64
	take  func(int64) error
	// lost says that the message cannot be built without the faulty part.
	lost bool
}

// batch is how much memory is taken at once.
const batch = 256 << 10

// Decode checks a REST body against a message and turns it into protojson. Its errors are *errs.Error of kind
// InvalidArgument. An empty body is an empty message. If the faults are few and the message has a meaning
// without them, its protojson comes beside the error, with the fields that the message does not have, so that
// it can be found out what else is wrong. Before the message and its protojson grow, take is asked for the
// memory that they will need, besides that of the body; its error ends the reading.
func Decode(body []byte, md protoreflect.MessageDescriptor, take func(bytes int64) error) ([]byte, error) {
	d := &decoder{scanner: scanner{in: body, maxDepth: MaxDepth, checkIntegers: true, checkKeys: true}, take: take}
	d.grow = d.need
	if d.peek() == 0 && d.pos >= len(body) {
		return []byte("{}"), nil
	}
	if at := invalidUTF8(body); at >= 0 {
		return nil, located(body, &syntaxError{offset: at, reason: ReasonInvalidJSON, text: "the text is not valid UTF-8"})
	}
	if c := d.peek(); c != '{' && md.FullName() != payloadName {
		if err := d.skip(); err != nil {
			return nil, asError(body, err)
		}
		return nil, errs.New(errs.InvalidArgument, ReasonInvalidBody, "the body must be a JSON object, the fields of %s", md.Name())
	}
	err := d.message(md)
	if err == nil && d.peek() != 0 {
		err = d.unexpected("the end of the text")
	}
	if err != nil {
		return nil, asError(body, err)
	}
	if len(d.faults) > 0 {
		rejected := d.rejected(misfit + string(md.Name()))
		if d.more > 0 || d.lost {
			return nil, rejected
		}
		err = rejected
	}
	if err := take(d.made.Bytes - d.taken); err != nil {
		return nil, err
	}
	return d.apply(), err
}

// misfit begins the fault of a body that is JSON and does not fit its message.
const misfit = "the body does not fit "

// Join adds further faults to what Decode said of a body.
func Join(err *errs.Error, md protoreflect.MessageDescriptor, more []errs.Violation) *errs.Error {
	s := scanner{faults: append(slices.Clone(err.Violations), more...)}
	if len(s.faults) == len(err.Violations) {
		return err
	}
	if n := len(s.faults) - maxFaults; n > 0 {
		s.faults, s.more = s.faults[:maxFaults], n
	}
	return s.rejected(misfit + string(md.Name()))
}

// need adds to the needed memory, and reserves it once that is worth a call.
func (d *decoder) need(bytes int64) error {
	d.made.Bytes += bytes
	if n := d.made.Bytes - d.taken; n >= batch {
		d.taken = d.made.Bytes
		return d.take(n)
	}
	return nil
}

// count adds the n-th value of a field. A value beyond a limit is not read.
func (d *decoder) count(fd protoreflect.FieldDescriptor, n int) error {
	reason, text := d.made.Value(fd, n)
	if reason == "" {
		return d.need(0)
	}
	d.faults, d.more = nil, 0
	d.fault(d.pos, reason, text)
	return d.rejected("the body is too much")
}

// Populated returns the proto names of the top-level fields that a REST body names, in its order. The
// body must have passed Decode.
func Populated(body []byte, md protoreflect.MessageDescriptor) []string {
	s := scanner{in: body, maxDepth: MaxDepth}
	if s.peek() != '{' {
		return nil
	}
	var names []string
	_ = s.object(func(key string, _ int) error {
		if fd := field(md, key); fd != nil {
			names = append(names, string(fd.Name()))
		}
		return s.skip()
	})
	return names
}

func (d *decoder) apply() []byte {
	if len(d.edits) == 0 {
		return d.in
	}
	out := make([]byte, 0, len(d.in)+len(d.in)/2)
	last := 0
	for _, e := range d.edits {
		out = append(out, d.in[last:e.from]...)
		out = append(out, e.text...)
		last = e.to
	}
	return append(out, d.in[last:]...)
}

// rejected is the error of a document that is JSON but not acceptable. A sole kind of fault gives the
// error its reason; several kinds are an invalid body.
func (s *scanner) rejected(message string) *errs.Error {
	reason := s.faults[0].Reason
	for _, f := range s.faults {
		if f.Reason != reason {
			reason = ReasonInvalidBody
		}
	}
	first := s.faults[0]
	e := errs.New(errs.InvalidArgument, reason, "%s", message+": "+first.Field+": "+first.Message)
	e.Violations = s.faults
	if n := len(s.faults) + s.more - 1; n > 0 {
		e.Message += fmt.Sprintf(" (and %d more)", n)
	}
	if s.more > 0 {
		e = e.Set("violations_left_out", strconv.Itoa(s.more))
	}
	for _, f := range s.faults {
		if f.Reason == ReasonIntegerTooLarge {
			return e.Hint(integerHint)
		}
	}
	for _, f := range s.faults {
		if _, hint, ok := strings.Cut(f.Message, "; "); ok {
			return e.Hint(hint)
		}
	}
	return e
}

// message reads a value that is to be a message.
func (d *decoder) message(md protoreflect.MessageDescriptor) error {
	switch md.FullName() {
	case payloadName:
		return d.payload()
	case "google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.FieldMask":
		return d.wellKnown(md)
	}
	if md.ParentFile().Package() == "google.protobuf" && md.Fields().Len() > 0 {
		return d.skip()
	}
	if d.peek() != '{' {
		return d.wrong("an object, the fields of " + string(md.Name()))
	}
	var seen fieldSet
	var oneofs map[string]string
	return d.object(func(key string, at int) error {
		fd := field(md, key)
		if fd == nil {
			if d.full() { // the names next to it would be looked for in vain
				d.more++
			} else {
				d.fault(at, ReasonUnknownField, unknownField(md, key))
			}
			return d.skipUnknown()
		}
		if !seen.add(fd.Index()) {
			d.fault(at, ReasonDuplicateKey, "the field "+quote(key)+" is given twice")
			d.edit(at, d.pos, nobody)
			return d.skipUnknown()
		}
		if of := fd.ContainingOneof(); of != nil && !of.IsSynthetic() && d.peek() != 'n' {
			if other, ok := oneofs[string(of.Name())]; ok {
				d.fault(at, ReasonOneofConflict, "only one of "+quote(other)+" and "+quote(key)+" may be given")
				d.edit(at, d.pos, nobody)
				return d.skipUnknown()
			}
			if oneofs == nil {
				oneofs = map[string]string{}
			}
			oneofs[string(of.Name())] = key
		}
		return d.field(fd)
	})
}

// nobody is a key that no message has, with its colon: its value is not read.
const nobody = `"-":`

// edit replaces what stands at a fault.
func (d *decoder) edit(from, to int, text string) {
	if d.more == 0 {
		d.edits = append(d.edits, edit{from, to, text})
	}
}

// fieldSet is a set of fields of one message, by their index.
type fieldSet struct {
	few  uint64
	more map[int]struct{}
}

// add reports whether the field was not in the set.
func (s *fieldSet) add(i int) bool {
	if i < 64 {
		before := s.few
		s.few |= 1 << i
		return s.few != before
	}
	if _, ok := s.more[i]; ok {
		return false
	}
	if s.more == nil {
		s.more = map[int]struct{}{}
	}
	s.more[i] = struct{}{}
	return true
}

// skipUnknown reads a value that nobody will see; its own faults would only distract.
func (d *decoder) skipUnknown() error {
	integers, keys := d.checkIntegers, d.checkKeys
	d.checkIntegers, d.checkKeys = false, false
	err := d.skip()
	d.checkIntegers, d.checkKeys = integers, keys
	return err
}

// inside reports whether the faults of a field's value are within it, not about it as a whole.
func (d *decoder) inside(start int, fd protoreflect.FieldDescriptor) bool {
	switch {
	case fd.IsList():
		return d.in[start] == '['
	case fd.IsMap(), fd.Message() != nil:
		return d.in[start] == '{'
	}
	return false
}

func (d *decoder) field(fd protoreflect.FieldDescriptor) (err error) {
	isPayload := fd.Message() != nil && !fd.IsMap() && fd.Message().FullName() == payloadName
	if d.peek() == 'n' && (!isPayload || fd.IsList()) {
		return d.literal("null") // protojson: as if absent
	}
	start, known := d.pos, len(d.faults)+d.more
	defer func() {
		if err == nil && (!isPayload || fd.IsList()) && len(d.faults)+d.more > known && !d.inside(start, fd) {
			d.edit(start, d.pos, "null") // as if absent
		}
	}()
	switch {
	case fd.IsMap():
		if d.peek() != '{' {
			return d.wrong("an object, whose keys are free")
		}
		seen := d.keySet()
		defer d.forget(&seen)
		return d.object(func(key string, at int) error {
			switch first, err := d.remember(&seen, key); {
			case err != nil:
				return err
			case !first:
				d.fault(at, ReasonDuplicateKey, "the key "+quote(key)+" is given twice")
				d.lost = true
				return d.skipUnknown()
			}
			if err := d.count(fd, seen.n); err != nil {
				return err
			}
			return d.element(fd.MapValue())
		})
	case fd.IsList():
		if d.peek() != '[' {
			return d.wrong("an array")
		}
		return d.array(func(i int) error {
			if err := d.count(fd, i+1); err != nil {
				return err
			}
			return d.element(fd)
		})
	default:
		if err := d.count(fd, 1); err != nil {
			return err
		}
		return d.value(fd)
	}
}

// element reads one value of a list or map. Without one that is at fault as a whole there is no message.
func (d *decoder) element(fd protoreflect.FieldDescriptor) error {
	d.space()
	start, known := d.pos, len(d.faults)+d.more
	isMessage := fd.Message() != nil
	err := d.value(fd)
	if err == nil && len(d.faults)+d.more > known && !(isMessage && (d.in[start] == '{' || fd.Message().FullName() == payloadName)) {
		d.lost = true
	}
	return err
}

// value reads one value of a field, list or map.
func (d *decoder) value(fd protoreflect.FieldDescriptor) error {
	if fd.Message() != nil {
		return d.message(fd.Message())
	}
	return d.scalar(fd)
}

func (d *decoder) payload() error {
	d.space()
	start := d.pos
	if err := d.skip(); err != nil {
		return err
	}
	raw := d.in[start:d.pos]
	if err := d.need(payloadMemory + 3*int64(len(raw))); err != nil {
		return err
	}
	d.edits = append(d.edits, edit{start, d.pos, `{"json":"` + base64.StdEncoding.EncodeToString(raw) + `"}`})
	return nil
}

// payloadMemory is the memory of a payload besides its bytes: an edit in a list, with spare capacity, and its
// text.
const payloadMemory = 160

// wrong reads a value and records that it should have been something else.
func (d *decoder) wrong(wanted string) error {
	at := d.pos
	d.fault(at, ReasonWrongType, "this must be "+wanted+", not "+d.kindHere())
	return d.skipUnknown()
}

func (d *decoder) kindHere() string {
	switch c := d.peek(); {
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == '"':
		return "a string"
	case c == 't' || c == 'f':
		return "a boolean"
	case c == 'n':
		return "null"
	default:
		return "a number"
	}
}

func field(md protoreflect.MessageDescriptor, key string) protoreflect.FieldDescriptor {
	if fd := md.Fields().ByJSONName(key); fd != nil {
		return fd
	}
	return md.Fields().ByName(protoreflect.Name(key))
}

func invalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
	return -1
}

func asError(body []byte, err error) error {
	if se, ok := errors.AsType[*syntaxError](err); ok {
		return located(body, se)
	}
	return err
}

func located(body []byte, se *syntaxError) *errs.Error {
	line, column := lineColumn(body, se.offset)
	e := errs.New(errs.InvalidArgument, se.reason, "%s",
		fmt.Sprintf("the body is not acceptable JSON at line %d, column %d: %s", line, column, se.text))
	place := fmt.Sprintf("%d:%d", line, column)
	e = e.Violate(place, se.reason, se.text).Set("line", strconv.Itoa(line)).Set("column", strconv.Itoa(column))
	if se.path != "" {
		e = e.Set("path", se.path)
	}
	return e
}

// Encode renders a message as compact REST JSON, the same bytes for the same message. Fields without
// presence are always there, so that clients see empty lists and zeroes; messages and optional fields
// only when set. Numbers keep all the digits that their author wrote. A payload that is not JSON is an
// *errs.Error that names the place.
func Encode(m proto.Message) ([]byte, error) {
	raw, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("marshal %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	e := &encoder{scanner: scanner{in: raw, maxDepth: maxDepthOut}, out: make([]byte, 0, len(raw))}
	if _, err := e.message(m.ProtoReflect().Descriptor()); err != nil {
		if _, ok := errors.AsType[*errs.Error](err); ok {
			return nil, err
		}
		return nil, fmt.Errorf("render %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return e.out, nil
}
