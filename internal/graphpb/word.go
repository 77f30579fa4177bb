package graphpb

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// EnumValue finds the value of an enum that JSON names in full (EDGE_KIND_BACK) or without the prefix that
// the enum's values share (BACK), which is how workgraph writes it; nil if there is none.
func EnumValue(ed protoreflect.EnumDescriptor, word string) protoreflect.EnumValueDescriptor {
	if v := ed.Values().ByName(protoreflect.Name(word)); v != nil {
		return v
	}
	prefix, ok := strings.CutSuffix(string(ed.Values().Get(0).Name()), "UNSPECIFIED")
	if !ok || word == "UNSPECIFIED" {
		return nil
	}
	return ed.Values().ByName(protoreflect.Name(prefix + word))
}
