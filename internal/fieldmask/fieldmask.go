// Package fieldmask owns what the update_mask of an update means, for every service alike. It knows no
// resource. It is written here because libraries of masks (aip-go, fieldmask-utils) copy from message to
// message; the services need the list of fields, bounded by those that may change, with a violation for each
// other path.
package fieldmask

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// ReasonInvalid is the reason of a mask that names what cannot be changed.
const ReasonInvalid = "UPDATE_MASK_INVALID"

const payload protoreflect.FullName = "epigraph.graph.v1.Payload"

// Fields returns which of the mutable fields an update takes from resource. No mask means those that are
// populated, "*" means all. A mask may name the etag, which is a condition and no change. name is the
// resource in messages. An error is an *errs.Error of kind InvalidArgument with one violation for each path
// that cannot be changed.
func Fields(name string, resource proto.Message, mask *fieldmaskpb.FieldMask, mutable []string) ([]string, error) {
	m := resource.ProtoReflect()
	if len(mask.GetPaths()) == 0 {
		return slices.DeleteFunc(slices.Clone(mutable), func(f string) bool {
			return !m.Has(m.Descriptor().Fields().ByName(protoreflect.Name(f)))
		}), nil
	}
	var out []string
	var bad *errs.Error
	refuse := func(path, message string) {
		if bad == nil {
			bad = errs.New(errs.InvalidArgument, ReasonInvalid, "update_mask names what cannot be changed").
				Hint("these fields can be changed: " + strings.Join(mutable, ", "))
		}
		bad = bad.Violate("update_mask", ReasonInvalid, path+": "+message)
	}
	for _, path := range mask.GetPaths() {
		// A payload is one value: what is inside cannot be changed alone.
		field := strings.TrimSuffix(path, ".json")
		top, _, deep := strings.Cut(path, ".")
		fd := m.Descriptor().Fields().ByName(protoreflect.Name(top))
		switch {
		case path == "*" && len(mask.GetPaths()) == 1:
			return mutable, nil
		case path == "*":
			refuse(path, `"*" must stand alone`)
		case path == "etag":
		case slices.Contains(mutable, path) || isPayload(m, field) && slices.Contains(mutable, field):
			if !slices.Contains(out, field) {
				out = append(out, field)
			}
		case fd == nil:
			refuse(path, name+" has no such field")
		case deep && slices.Contains(mutable, top):
			refuse(path, "name the whole field "+top)
		default:
			refuse(path, "the field cannot be changed")
		}
	}
	if bad != nil {
		return nil, bad
	}
	return out, nil
}

// Apply makes the named fields of into those of from, a message of the same type. Fields that from does not
// have are cleared.
func Apply(into, from proto.Message, fields []string) {
	to, m := into.ProtoReflect(), from.ProtoReflect()
	for _, name := range fields {
		fd := m.Descriptor().Fields().ByName(protoreflect.Name(name))
		if m.Has(fd) {
			to.Set(fd, m.Get(fd))
		} else {
			to.Clear(fd)
		}
	}
}

func isPayload(m protoreflect.Message, field string) bool {
	fd := m.Descriptor().Fields().ByName(protoreflect.Name(field))
	return fd != nil && fd.Message() != nil && fd.Message().FullName() == payload
}
