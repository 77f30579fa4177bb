package rpc

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/epigraph-run/epigraph/internal/errs"
)

const reasonMask = "UPDATE_MASK_INVALID"

// masked returns which of the mutable fields an update takes from resource. No mask means those that
// are populated, "*" means all. The etag may be named, since a REST client's mask is made of the keys
// of its body, and is no change. resource names the message in messages.
func masked(name string, resource proto.Message, mask *fieldmaskpb.FieldMask, mutable []string) ([]string, error) {
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
			bad = errs.New(errs.InvalidArgument, reasonMask, "update_mask names what cannot be changed").
				Hint("these fields can be changed: " + strings.Join(mutable, ", "))
		}
		bad = bad.Violate("update_mask", reasonMask, path+": "+message)
	}
	for _, path := range mask.GetPaths() {
		// A payload is one value: its parts cannot be changed alone.
		field := strings.TrimSuffix(path, ".json")
		top, _, deep := strings.Cut(path, ".")
		fd := m.Descriptor().Fields().ByName(protoreflect.Name(top))
		switch {
		case path == "*" && len(mask.GetPaths()) == 1:
			return mutable, nil
		case path == "*":
			refuse(path, `"*" must stand alone`)
		case path == "etag":
		case slices.Contains(mutable, path) || field == "requirements" && slices.Contains(mutable, field):
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
