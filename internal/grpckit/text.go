package grpckit

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// checkText refuses the NUL character, which PostgreSQL cannot store in a text, on every store and in every
// service alike.
func checkText(m proto.Message, except protoreflect.FieldDescriptor) error {
	field, bad := nulIn(m.ProtoReflect(), except)
	if !bad {
		return nil
	}
	const text = "must not contain the NUL character"
	return errs.New(errs.InvalidArgument, "TEXT_INVALID", "%s: %s", field, text).Violate(field, "TEXT_INVALID", text)
}

// nulIn finds the first text with a NUL. It builds the path on the way back only, since most requests have
// none.
func nulIn(m protoreflect.Message, except protoreflect.FieldDescriptor) (field string, bad bool) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd == except {
			return true
		}
		switch {
		case fd.IsList():
			if fd.Kind() != protoreflect.StringKind && fd.Message() == nil {
				return true
			}
			list := v.List()
			for i := range list.Len() {
				var below string
				if below, bad = nulInValue(fd, list.Get(i)); bad {
					field = fmt.Sprintf("%s[%d]%s", fd.Name(), i, below)
					break
				}
			}
		case fd.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				var below string
				if below, bad = nulInValue(fd.MapKey(), k.Value()); !bad {
					below, bad = nulInValue(fd.MapValue(), v)
				}
				field = string(fd.Name()) + below
				return !bad
			})
		default:
			var below string
			if below, bad = nulInValue(fd, v); bad {
				field = string(fd.Name()) + below
			}
		}
		return !bad
	})
	return field, bad
}

// nulInValue is nulIn for one value; below is the place within it, with its dot.
func nulInValue(fd protoreflect.FieldDescriptor, v protoreflect.Value) (below string, bad bool) {
	switch {
	case fd.Kind() == protoreflect.StringKind:
		return "", strings.IndexByte(v.String(), 0) >= 0
	case fd.Message() != nil:
		if below, bad = nulIn(v.Message(), nil); bad {
			below = "." + below
		}
	}
	return below, bad
}
