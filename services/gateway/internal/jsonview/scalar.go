package jsonview

import (
	"encoding/base64"
	"errors"
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/epigraph-run/epigraph/internal/graphpb"
)

// scalar reads a value that is to be a number, string, boolean, enum or bytes.
func (d *decoder) scalar(fd protoreflect.FieldDescriptor) error {
	at := d.pos
	c := d.peek()
	start := d.pos
	switch fd.Kind() {
	case protoreflect.BoolKind:
		if c != 't' && c != 'f' {
			return d.wrong("true or false")
		}
		return d.skip()
	case protoreflect.StringKind, protoreflect.BytesKind:
		if c != '"' {
			return d.wrong("a string")
		}
	case protoreflect.EnumKind:
		if c != '"' && !numeric(c) {
			return d.wrong("one of the names of " + string(fd.Enum().Name()))
		}
	default:
		if c != '"' && !numeric(c) {
			return d.wrong("a number")
		}
	}
	text, isString, err := d.token()
	if err != nil {
		return err
	}
	switch {
	case fd.Kind() == protoreflect.EnumKind && !isString:
		if problem := checkInteger(text, &wrapperspb.Int32Value{}, 32); problem != "" {
			d.fault(at, ReasonWrongType, problem)
		}
		return nil
	case fd.Kind() == protoreflect.EnumKind:
		if v := graphpb.EnumValue(fd.Enum(), text); v != nil && string(v.Name()) != text {
			name := `"` + string(v.Name()) + `"`
			d.edits = append(d.edits, edit{start, d.pos, name})
			return d.need(editMemory + int64(len(name)))
		}
	case fd.Kind() == protoreflect.StringKind && strings.Contains(text, "\ufffd") && protojson.Unmarshal(d.in[start:d.pos], &wrapperspb.StringValue{}) != nil:
		d.fault(at, ReasonWrongType, "this string has half a character: \\ud800 to \\udfff stand in pairs only")
		return nil
	}
	if reason, problem := checkScalar(fd, text); problem != "" {
		d.fault(at, reason, problem)
	}
	return nil
}

// editMemory is what an edit needs besides its text.
const editMemory = 64

func numeric(c byte) bool { return c == '-' || c >= '0' && c <= '9' }

func (d *decoder) token() (text string, isString bool, err error) {
	if d.peek() == '"' {
		text, err = d.str()
		return text, true, err
	}
	n, err := d.number()
	return string(n), false, err
}

// CheckText says what keeps a text, for example of a query parameter, from being a value of a field.
// Both results are empty when nothing does.
func CheckText(fd protoreflect.FieldDescriptor, text string) (reason, problem string) {
	if md := fd.Message(); md != nil {
		if problem = checkWellKnown(md, text); problem != "" {
			return ReasonWrongType, problem
		}
		return "", ""
	}
	switch fd.Kind() {
	case protoreflect.BoolKind:
		if _, err := strconv.ParseBool(text); err != nil {
			return ReasonWrongType, "this must be true or false, not " + quote(text)
		}
	case protoreflect.EnumKind:
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			if fd.Enum().Values().ByNumber(protoreflect.EnumNumber(n)) == nil {
				return ReasonUnknownValue, string(fd.Enum().Name()) + " has no value with the number " + text
			}
			return "", ""
		}
		return checkScalar(fd, text)
	case protoreflect.Int32Kind, protoreflect.Int64Kind, protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		if strings.ContainsAny(text, ".eE") {
			return ReasonWrongType, "this must be a whole number, not " + quote(text)
		}
		return checkScalar(fd, text)
	default:
		return checkScalar(fd, text)
	}
	return "", ""
}

func checkScalar(fd protoreflect.FieldDescriptor, text string) (reason, problem string) {
	switch fd.Kind() {
	case protoreflect.EnumKind:
		if graphpb.EnumValue(fd.Enum(), text) != nil {
			return "", ""
		}
		return ReasonUnknownValue, unknownValue(fd.Enum(), text)
	case protoreflect.BytesKind:
		if _, err := base64.StdEncoding.DecodeString(text); err == nil {
			return "", ""
		}
		plain := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
		if _, err := base64.RawStdEncoding.DecodeString(plain); err != nil {
			return ReasonWrongType, "this must be bytes in base64"
		}
		return "", ""
	case protoreflect.StringKind, protoreflect.BoolKind:
		return "", ""
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		problem = checkInteger(text, &wrapperspb.Int32Value{}, 32)
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		problem = checkInteger(text, &wrapperspb.Int64Value{}, 64)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		problem = checkInteger(text, &wrapperspb.UInt32Value{}, 32)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		problem = checkInteger(text, &wrapperspb.UInt64Value{}, 64)
	case protoreflect.FloatKind:
		problem = checkFloat(text, &wrapperspb.FloatValue{})
	case protoreflect.DoubleKind:
		problem = checkFloat(text, &wrapperspb.DoubleValue{})
	}
	if problem != "" {
		return ReasonWrongType, problem
	}
	return "", ""
}

// reads reports whether protojson reads a number, as itself or in a string, into a message that wraps one. No
// other check is exact.
func reads(text string, into proto.Message) bool {
	return text != "" && strings.TrimSpace(text) == text && numeric(text[0]) && protojson.Unmarshal([]byte(text), into) == nil
}

// checkInteger says why a text is no integer of a size, or nothing.
func checkInteger(text string, into proto.Message, bits int) string {
	if reads(text, into) {
		return ""
	}
	value, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange), !reads(text, &wrapperspb.DoubleValue{}) && !errors.Is(err, strconv.ErrRange):
		return clip(text, 128) + " is no number"
	case err == nil && value != math.Trunc(value):
		return clip(text, 128) + " is no whole number"
	case value < 0:
		return clip(text, 128) + " is too small for " + sizeOf(into, bits)
	default:
		return clip(text, 128) + " is too large for " + sizeOf(into, bits)
	}
}

func sizeOf(into proto.Message, bits int) string {
	size := strconv.Itoa(bits) + " bits"
	if strings.HasPrefix(string(into.ProtoReflect().Descriptor().Name()), "U") {
		size += " without a sign"
	}
	return size
}

func checkFloat(text string, into proto.Message) string {
	switch text {
	case "NaN", "Infinity", "-Infinity":
		return ""
	}
	if reads(text, into) {
		return ""
	}
	return clip(text, 128) + " is no number, or too large"
}

func (d *decoder) wellKnown(md protoreflect.MessageDescriptor) error {
	at := d.pos
	if d.peek() != '"' {
		return d.wrong("a string, for example " + example(md))
	}
	text, err := d.str()
	if err != nil {
		return err
	}
	if problem := checkWellKnown(md, text); problem != "" {
		d.fault(at, ReasonWrongType, problem)
	}
	return nil
}

func example(md protoreflect.MessageDescriptor) string {
	switch md.Name() {
	case "Timestamp":
		return `"2026-01-31T12:00:00Z"`
	case "Duration":
		return `"1.5s"`
	default:
		return `"title,description"`
	}
}

// checkWellKnown says why protojson would not read a text as a timestamp, a duration or a mask, or nothing.
func checkWellKnown(md protoreflect.MessageDescriptor, text string) string {
	var into proto.Message
	switch md.FullName() {
	case "google.protobuf.Timestamp":
		into = &timestamppb.Timestamp{}
	case "google.protobuf.Duration":
		into = &durationpb.Duration{}
	case "google.protobuf.FieldMask":
		into = &fieldmaskpb.FieldMask{}
	default:
		return ""
	}
	literal, err := protojson.Marshal(wrapperspb.String(text))
	if err == nil && protojson.Unmarshal(literal, into) == nil {
		return ""
	}
	return quote(text) + " is no " + strings.ToLower(string(md.Name())) + "; write it as " + example(md)
}
