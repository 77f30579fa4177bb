package graphpb_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/graphpb"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

// refused are the fields that a graph may not set, since nothing would come of them.
var refused = []string{"epigraph.graph.v1.Node.thread"}

// Every field of a graph changes what runs, or is refused by its name. A new field that nothing reads fails
// here.
func TestEveryFieldIsUsedOrRefused(t *testing.T) {
	var walk func(path []protoreflect.FieldDescriptor, md protoreflect.MessageDescriptor)
	walk = func(path []protoreflect.FieldDescriptor, md protoreflect.MessageDescriptor) {
		for i := range md.Fields().Len() {
			fd := md.Fields().Get(i)
			at := append(slices.Clone(path), fd)
			inner := fd.Message()
			if fd.IsMap() {
				inner = fd.MapValue().Message()
			}
			if inner != nil && inner.FullName() != "epigraph.graph.v1.Payload" && inner.FullName() != "google.protobuf.Duration" {
				walk(at, inner)
				continue
			}
			t.Run(string(fd.FullName()), func(t *testing.T) {
				with := &graphv1.Graph{}
				set(with.ProtoReflect(), at, true)
				without := &graphv1.Graph{}
				set(without.ProtoReflect(), at, false)
				got, err := graphpb.FromProto(with)
				require.NoError(t, err)
				base, err := graphpb.FromProto(without)
				if _, fault := errors.AsType[workgraph.Faults](err); !fault {
					require.NoError(t, err)
				}
				require.NotEmpty(t, cmp.Diff(base, got), "nothing reads the field")
				back, err := graphpb.ToProto(got)
				require.NoError(t, err)
				require.True(t, proto.Equal(with, back), "the field gets lost: %v, %v", with, back)
				faults, err := workgraph.Validate(t.Context(), got, nil)
				require.NoError(t, err)
				unused := slices.ContainsFunc(faults, func(f workgraph.Fault) bool { return f.Code == workgraph.CodeUnused && f.Field == string(fd.Name()) })
				require.Equal(t, slices.Contains(refused, string(fd.FullName())), unused)
			})
		}
	}
	walk(nil, (&graphv1.Graph{}).ProtoReflect().Descriptor())
}

// set makes the messages of a path and, if asked to, sets the field at its end to a value that is not the
// default.
func set(m protoreflect.Message, path []protoreflect.FieldDescriptor, last bool) {
	fd := path[0]
	if len(path) > 1 {
		switch {
		case fd.IsMap():
			v := m.Mutable(fd).Map().NewValue()
			set(v.Message(), path[1:], last)
			m.Mutable(fd).Map().Set(protoreflect.ValueOfString("k").MapKey(), v)
		case fd.IsList():
			set(m.Mutable(fd).List().AppendMutable().Message(), path[1:], last)
		default:
			set(m.Mutable(fd).Message(), path[1:], last)
		}
		return
	}
	if !last {
		return
	}
	payload := protoreflect.ValueOfMessage((&graphv1.Payload{Json: []byte(`{"a":1}`)}).ProtoReflect())
	switch {
	case fd.IsMap():
		m.Mutable(fd).Map().Set(protoreflect.ValueOfString("k").MapKey(), payload)
	case fd.IsList() && fd.Message() != nil:
		m.Mutable(fd).List().Append(payload)
	case fd.IsList():
		m.Mutable(fd).List().Append(protoreflect.ValueOfString("x"))
	case fd.Message() != nil && fd.Message().FullName() == "google.protobuf.Duration":
		m.Set(fd, protoreflect.ValueOfMessage(durationpb.New(7e9).ProtoReflect()))
	case fd.Message() != nil:
		m.Set(fd, payload)
	default:
		m.Set(fd, map[protoreflect.Kind]protoreflect.Value{
			protoreflect.StringKind: protoreflect.ValueOfString("x"), protoreflect.Int32Kind: protoreflect.ValueOfInt32(3),
			protoreflect.DoubleKind: protoreflect.ValueOfFloat64(1), protoreflect.EnumKind: protoreflect.ValueOfEnum(2), protoreflect.BoolKind: protoreflect.ValueOfBool(true),
		}[fd.Kind()])
	}
}
