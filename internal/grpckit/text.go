package grpckit

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// checkText refuses the NUL character, which PostgreSQL cannot keep in a text, on every store and in every service alike.
func checkText(m proto.Message) error {
	field, bad := nulIn(m.ProtoReflect(), "")
	if !bad {
		return nil
	}
	const text = "must not contain the NUL character"
	return errs.New(errs.InvalidArgument, "TEXT_INVALID", "%s: %s", field, text).Violate(field, "TEXT_INVALID", text)
}

func nulIn(m protoreflect.Message, prefix string) (field string, bad bool) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		field = prefix + string(fd.Name())
		check := func(place string, fd protoreflect.FieldDescriptor, v protoreflect.Value) {
			switch {
			case bad:
			case fd.Kind() == protoreflect.StringKind:
				field, bad = place, strings.ContainsRune(v.String(), 0)
			case fd.Message() != nil:
				field, bad = nulIn(v.Message(), place+".")
			}
		}
		switch {
		case fd.IsList():
			for i := range v.List().Len() {
				check(fmt.Sprintf("%s%s[%d]", prefix, fd.Name(), i), fd, v.List().Get(i))
				if bad {
					break
				}
			}
		case fd.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				place := prefix + string(fd.Name())
				check(place, fd.MapKey(), k.Value())
				check(place, fd.MapValue(), v)
				return !bad
			})
		default:
			check(prefix+string(fd.Name()), fd, v)
		}
		return !bad
	})
	return field, bad
}
