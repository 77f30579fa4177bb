package extent

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// made decodes b and returns how many bytes that allocated. It must not run beside other tests.
func made(t *testing.T, b []byte, m proto.Message) int64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := proto.Unmarshal(b, m)
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

func tagged(n protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
}

// TestMeasure compares the computed size with what decoding allocates, for the messages that allocate the
// most for few bytes.
func TestMeasure(t *testing.T) {
	keys := make([]byte, 0, 600_000)
	for i := range 40_000 {
		keys = append(keys, tagged(6, append(tagged(1, fmt.Append(nil, i)), tagged(2, nil)...))...)
	}
	for name, c := range map[string]struct {
		m        proto.Message
		b        []byte
		elements int64
	}{
		"Nodes":            {&graphv1.Graph{}, bytes.Repeat(tagged(2, nil), 50_000), 50_000},
		"Edges":            {&graphv1.Graph{}, bytes.Repeat(tagged(3, nil), 50_000), 50_000},
		"NodesWithAll":     {&graphv1.Graph{}, bytes.Repeat(tagged(2, bytes.Join([][]byte{tagged(8, nil), tagged(9, nil), tagged(11, nil), tagged(12, nil), tagged(13, nil), tagged(17, nil)}, nil)), 20_000), 140_000},
		"Args":             {&graphv1.Node{}, bytes.Repeat(tagged(5, nil), 50_000), 50_000},
		"Named":            {&graphv1.Node{}, keys, 80_000},
		"OneKeyAgain":      {&graphv1.Node{}, bytes.Repeat(tagged(6, nil), 50_000), 50_000},
		"OneofInTurns":     {&graphv1.PassDown{}, bytes.Repeat([]byte{0x08, 0x01, 0x10, 0x01}, 25_000), 0},
		"Strings":          {&executorv1.GraphPatch{}, bytes.Repeat(tagged(1, nil), 50_000), 50_000},
		"Packed":           {&descriptorpb.SourceCodeInfo_Location{}, tagged(1, bytes.Repeat([]byte{1}, 50_000)), 50_000},
		"NotPacked":        {&descriptorpb.SourceCodeInfo_Location{}, bytes.Repeat([]byte{0x08, 0x01}, 50_000), 50_000},
		"Unknown":          {&graphv1.Graph{}, bytes.Repeat([]byte{0xf8, 0x3f, 0x00}, 50_000), 50_000},
		"UnknownOfAnother": {&graphv1.Graph{}, bytes.Repeat([]byte{0x10, 0x00}, 50_000), 50_000},
		"OneLongText":      {&graphv1.Graph{}, tagged(1, bytes.Repeat([]byte("a"), 1<<20)), 0},
		"Usage":            {&registryv1.RecordUsageRequest{}, bytes.Repeat(tagged(1, nil), 1000), 1000},
	} {
		t.Run(name, func(t *testing.T) {
			var x Extent
			require.NoError(t, x.Measure(c.b, c.m.ProtoReflect().Descriptor()))
			require.Equal(t, c.elements, x.Elements)
			got := made(t, c.b, c.m)
			require.LessOrEqual(t, got, x.Bytes*2+64<<10, "decoding allocates more than twice what was counted")
			require.LessOrEqual(t, x.Bytes, 32*got+64<<10, "far too much is counted")
		})
	}
}

func TestMeasureLimits(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T, m proto.Message, b []byte) *errs.Error {
		t.Helper()
		var x Extent
		err := x.Measure(b, m.ProtoReflect().Descriptor())
		require.True(t, errs.Is(err, errs.InvalidArgument), "got %v", err)
		return errs.From(err)
	}
	t.Run("Rules/OfAFieldNameIt", func(t *testing.T) {
		t.Parallel()
		e := refused(t, &executorv1.StartRunRequest{}, bytes.Repeat(tagged(2, nil), 1001))
		require.Equal(t, "args", e.Violations[0].Field)
		require.Equal(t, "REPEATED_MAX_ITEMS", e.Violations[0].Reason)
		require.Contains(t, e.Message, "1000")
		e = refused(t, &executorv1.SignalWithStartRequest{}, tagged(1, bytes.Repeat(tagged(10, nil), 65)))
		require.Equal(t, "start.metadata", e.Violations[0].Field)
		require.Equal(t, "MAP_MAX_PAIRS", e.Violations[0].Reason)
	})
	t.Run("Rules/AreAllCounted", func(t *testing.T) {
		t.Parallel()
		protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
			n, s := 0, shapeOf(mt.Descriptor())
			for i := range mt.Descriptor().Fields().Len() {
				fd := mt.Descriptor().Fields().Get(i)
				if most, _ := mostOf(fd); most > 0 {
					n++
					require.NotZero(t, s.field(fd.Number()).bounded, "%s has more lists with rules than are counted", fd.FullName())
				}
			}
			return n <= boundedFields
		})
	})
	t.Run("Depth/IsBounded", func(t *testing.T) {
		t.Parallel()
		var b []byte
		for range 200 { // a Value in a ListValue in a Value
			b = tagged(6, tagged(1, b))
		}
		d, err := protoregistry.GlobalFiles.FindDescriptorByName("google.protobuf.Value")
		require.NoError(t, err)
		var x Extent
		err = x.Measure(b, d.(protoreflect.MessageDescriptor))
		require.Equal(t, "MESSAGE_TOO_DEEP", errs.From(err).Violations[0].Reason)
	})
	t.Run("Broken/IsLeftToTheDecoder", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
			var x Extent
			_ = x.Measure(b, (&executorv1.StartRunRequest{}).ProtoReflect().Descriptor())
		})
	})
	t.Run("Whole/WhatIsDecodedWasCounted", func(t *testing.T) {
		t.Parallel()
		d := (&executorv1.StartRunRequest{}).ProtoReflect().Descriptor()
		rapid.Check(t, func(t *rapid.T) {
			m := &executorv1.StartRunRequest{Graph: &graphv1.Graph{Name: rapid.String().Draw(t, "name")}}
			want := int64(1)
			for range rapid.IntRange(0, 20).Draw(t, "nodes") {
				n := &graphv1.Node{Id: "n", Args: make([]*graphv1.Payload, rapid.IntRange(0, 3).Draw(t, "args"))}
				for i := range n.Args {
					n.Args[i] = &graphv1.Payload{Json: []byte("1")}
				}
				m.Graph.Nodes = append(m.Graph.Nodes, n)
				want += 1 + int64(len(n.Args))
			}
			b, err := proto.Marshal(m)
			if err != nil {
				t.Skip(err)
			}
			var x Extent
			require.NoError(t, x.Measure(b, d))
			require.Equal(t, want, x.Elements)
		})
	})
}
