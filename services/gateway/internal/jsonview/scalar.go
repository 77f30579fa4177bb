package jsonview

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// scalar reads a value that is to be a number, string, boolean, enum or bytes.
func (d *decoder) scalar(fd protoreflect.FieldDescriptor) error {
	at := d.pos
	c := d.peek()
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
	if fd.Kind() == protoreflect.EnumKind && !isString {
		return nil
	}
	if reason, problem := checkScalar(fd, text); problem != "" {
		d.fault(at, reason, problem)
	}
	return nil
}

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
	var err error
	bits := 64
	switch fd.Kind() {
	case protoreflect.EnumKind:
		if fd.Enum().Values().ByName(protoreflect.Name(text)) != nil {
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
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		bits = 32
		fallthrough
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		if strings.ContainsAny(text, ".eE") {
			return "", "" // protojson takes 1e3 and 1.0, and refuses 1.5
		}
		_, err = strconv.ParseInt(text, 10, bits)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		bits = 32
		fallthrough
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		if strings.ContainsAny(text, ".eE") {
			return "", ""
		}
		_, err = strconv.ParseUint(text, 10, bits)
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		switch text {
		case "NaN", "Infinity", "-Infinity":
			return "", ""
		}
		_, err = strconv.ParseFloat(text, 64)
	}
	if err != nil {
		return ReasonWrongType, quote(text) + " is no " + fd.Kind().String()
	}
	return "", ""
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

func checkWellKnown(md protoreflect.MessageDescriptor, text string) string {
	ok := true
	switch md.FullName() {
	case "google.protobuf.Timestamp":
		_, err := time.Parse(time.RFC3339Nano, text)
		ok = err == nil
	case "google.protobuf.Duration":
		seconds, found := strings.CutSuffix(text, "s")
		_, err := strconv.ParseFloat(seconds, 64)
		ok = found && err == nil
	}
	if ok {
		return ""
	}
	return quote(text) + " is no " + strings.ToLower(string(md.Name())) + "; write it as " + example(md)
}
