package extent

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	_ "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	_ "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// unbounded are the messages of requests that have fields without rules of their own, each with its other
// bound.
func unbounded() map[string]string {
	const (
		graphs   = "workgraph bounds the texts and expressions of graphs and tells all faults at once; elements are counted before they are decoded (MaxElements)"
		payloads = "the message that carries it is bounded, and the journal keeps 4 MiB of one value"
		services = "only services send it, with the service token"
	)
	return map[string]string{
		"epigraph.graph.v1.Check":                  graphs,
		"epigraph.graph.v1.Edge":                   graphs,
		"epigraph.graph.v1.Graph":                  graphs,
		"epigraph.graph.v1.Inbox":                  graphs,
		"epigraph.graph.v1.Cache":                  graphs,
		"epigraph.graph.v1.Map":                    graphs,
		"epigraph.graph.v1.Node":                   graphs,
		"epigraph.graph.v1.PassDown":               graphs,
		"epigraph.graph.v1.Payload":                payloads,
		"epigraph.executor.v1.Attempt":             services,
		"epigraph.executor.v1.Upstream":            services,
		"epigraph.executor.v1.InboxMessage":        services,
		"epigraph.executor.v1.InvokeRequest":       services,
		"epigraph.executor.v1.ExplainLocalRequest": services,
		"google.protobuf.FieldMask":                "elements are counted before they are decoded, and each is looked up once among the fields of one message",
	}
}

// TestRequestsAreBounded walks through every field of every request and requires a bound for each that can be
// long.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	reasons := unbounded()
	used := map[string]bool{}
	seen := map[protoreflect.FullName]bool{}
	var faults []string
	var walk func(m protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] || strings.HasPrefix(string(m.FullName()), "google.protobuf.") && m.FullName() != "google.protobuf.FieldMask" {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			if fault := missing(f); fault != "" {
				if message := string(m.FullName()); reasons[message] == "" {
					faults = append(faults, fmt.Sprintf("%s: %s", f.FullName(), fault))
				} else {
					used[message] = true
				}
			}
			if f.Message() != nil {
				if f.IsMap() {
					f = f.MapValue()
				}
				if f.Message() != nil {
					walk(f.Message())
				}
			}
		}
	}
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if strings.HasPrefix(string(f.Package()), "epigraph.") {
			for i := range f.Services().Len() {
				for j := range f.Services().Get(i).Methods().Len() {
					walk(f.Services().Get(i).Methods().Get(j).Input())
				}
			}
		}
		return true
	})
	slices.Sort(faults)
	require.Empty(t, faults, strings.Join(faults, "\n"))
	for name := range reasons {
		require.True(t, used[name], "%s has rules, or is gone", name)
	}
}

// missing says which rule a field would need.
func missing(f protoreflect.FieldDescriptor) string {
	rules, _ := proto.GetExtension(f.Options(), validate.E_Field).(*validate.FieldRules)
	switch {
	case f.IsMap():
		r := rules.GetMap()
		switch {
		case !r.HasMaxPairs():
			return "a map without max_pairs"
		case text(f.MapKey(), r.GetKeys()) != "":
			return "keys: " + text(f.MapKey(), r.GetKeys())
		}
		if why := text(f.MapValue(), r.GetValues()); why != "" {
			return "values: " + why
		}
	case f.IsList():
		r := rules.GetRepeated()
		if !r.HasMaxItems() {
			return "a list without max_items"
		}
		if why := text(f, r.GetItems()); why != "" {
			return "items: " + why
		}
	default:
		return text(f, rules)
	}
	return ""
}

// text says which rule one value would need.
func text(f protoreflect.FieldDescriptor, rules *validate.FieldRules) string {
	switch f.Kind() {
	case protoreflect.StringKind:
		r := rules.GetString()
		if !r.HasMaxLen() && !r.HasLen() && !r.HasMaxBytes() && !r.HasPattern() && len(r.GetIn()) == 0 && r.GetConst() == "" {
			return "a text without max_len"
		}
	case protoreflect.BytesKind:
		if r := rules.GetBytes(); !r.HasMaxLen() && !r.HasLen() {
			return "bytes without max_len"
		}
	}
	return ""
}
