package jsonview

import (
	"encoding/base64"
	"errors"
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// encoder copies protojson without white space and puts payloads in as what they hold.
type encoder struct {
	scanner
	out []byte
}

// message copies a message. absent is true for a payload without a value; nothing was written then.
func (e *encoder) message(md protoreflect.MessageDescriptor) (absent bool, err error) {
	if md.FullName() == payloadName {
		return e.payload()
	}
	if e.peek() != '{' || md.ParentFile().Package() == "google.protobuf" {
		return false, e.verbatim()
	}
	e.out = append(e.out, '{')
	first := true
	err = e.object(func(key string, _ int) error {
		mark := len(e.out)
		if !first {
			e.out = append(e.out, ',')
		}
		e.out = append(e.out, '"')
		e.out = append(e.out, key...) // a field's name needs no escapes
		e.out = append(e.out, '"', ':')
		fd := field(md, key)
		if fd == nil {
			return fmt.Errorf("%s has no field %q", md.FullName(), key)
		}
		absent, err := e.field(fd)
		if absent {
			e.out = e.out[:mark]
		} else {
			first = false
		}
		return err
	})
	e.out = append(e.out, '}')
	return false, err
}

func (e *encoder) field(fd protoreflect.FieldDescriptor) (absent bool, err error) {
	switch {
	case fd.IsMap():
		if fd.MapValue().Message() == nil || e.peek() != '{' {
			return false, e.verbatim()
		}
		e.out = append(e.out, '{')
		first := true
		err = e.object(func(_ string, at int) error {
			if !first {
				e.out = append(e.out, ',')
			}
			first = false
			value := e.pos
			e.pos = at
			key, err := e.rawString()
			if err != nil {
				return err
			}
			e.pos = value
			e.out = append(append(e.out, key...), ':')
			return e.element(fd.MapValue().Message())
		})
		e.out = append(e.out, '}')
		return false, err
	case fd.IsList():
		if fd.Message() == nil || e.peek() != '[' {
			return false, e.verbatim()
		}
		e.out = append(e.out, '[')
		err = e.array(func(i int) error {
			if i > 0 {
				e.out = append(e.out, ',')
			}
			return e.element(fd.Message())
		})
		e.out = append(e.out, ']')
		return false, err
	case fd.Message() != nil:
		return e.message(fd.Message())
	default:
		return false, e.verbatim()
	}
}

func (e *encoder) element(md protoreflect.MessageDescriptor) error {
	absent, err := e.message(md)
	if absent {
		e.out = append(e.out, "null"...)
	}
	return err
}

// verbatim copies one value.
func (e *encoder) verbatim() error {
	e.space()
	start := e.pos
	if err := e.skip(); err != nil {
		return err
	}
	e.out = compact(e.out, e.in[start:e.pos])
	return nil
}

func (e *encoder) payload() (absent bool, err error) {
	var raw []byte
	err = e.object(func(string, int) error {
		text, err := e.str()
		if err != nil {
			return err
		}
		raw, err = base64.StdEncoding.DecodeString(text)
		return err
	})
	if err != nil {
		return false, err
	}
	if len(raw) == 0 {
		return true, nil
	}
	// A payload is a document of its own inside the message. Its numbers are written as they were accepted,
	// at any length: refusing one of them would lose the whole answer.
	p := scanner{in: raw, maxDepth: maxDepthOut, path: e.path}
	if at := invalidUTF8(raw); at >= 0 {
		p.pos = at
		err = p.fail("the text is not valid UTF-8")
	} else if err = p.skip(); err == nil && p.peek() != 0 {
		err = p.unexpected("the end of the text")
	}
	if se, ok := errors.AsType[*syntaxError](err); ok {
		line, column := lineColumn(raw, se.offset)
		return false, errs.New(errs.Internal, ReasonPayloadInvalid, "%s",
			fmt.Sprintf("the payload at %s is not JSON: line %d, column %d: %s", e.where(), line, column, se.text))
	}
	e.out = compact(e.out, raw)
	return false, nil
}

// compact appends valid JSON without the white space between its tokens; tokens stay byte for byte.
func compact(out, in []byte) []byte {
	quoted := false
	for i := 0; i < len(in); i++ {
		c := in[i]
		if quoted {
			out = append(out, c)
			switch c {
			case '\\':
				i++
				out = append(out, in[i])
			case '"':
				quoted = false
			}
			continue
		}
		switch c {
		case ' ', '\t', '\n', '\r':
		case '"':
			quoted = true
			fallthrough
		default:
			out = append(out, c)
		}
	}
	return out
}
