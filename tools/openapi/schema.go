package main

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

const schemaRef = "#/components/schemas/"

// described are the messages that clients meet although no annotated method names them.
var described = []protoreflect.FullName{"epigraph.executor.v1.RunEvent", "epigraph.errors.v1.Error"}

// describe adds the schemas of described messages, and of those that they use, from a serialized descriptor
// set. Existing schemas stay.
func describe(schemas object, set []byte) error {
	var fds descriptorpb.FileDescriptorSet
	if err := (proto.UnmarshalOptions{DiscardUnknown: true, Resolver: &protoregistry.Types{}}).Unmarshal(set, &fds); err != nil {
		return fmt.Errorf("read the descriptors: %w", err)
	}
	files, err := protodesc.NewFiles(&fds)
	if err != nil {
		return fmt.Errorf("read the descriptors: %w", err)
	}
	for _, name := range described {
		d, err := files.FindDescriptorByName(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		md, ok := d.(protoreflect.MessageDescriptor)
		if !ok {
			return errors.New(string(name) + " is not a message")
		}
		addSchema(schemas, md)
	}
	return nil
}

// comment is what the proto says above a declaration.
func comment(d protoreflect.Descriptor) string {
	text := d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}

func addSchema(schemas object, md protoreflect.MessageDescriptor) {
	name := string(md.FullName())
	if _, ok := schemas[name]; ok {
		return
	}
	properties := object{}
	s := object{"type": "object", "properties": properties}
	if c := comment(md); c != "" {
		s["description"] = c
	}
	schemas[name] = s
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		p := fieldSchema(schemas, fd)
		if c := comment(fd); c != "" {
			p["description"] = c
		}
		properties[fd.JSONName()] = p
	}
}

func fieldSchema(schemas object, fd protoreflect.FieldDescriptor) object {
	switch {
	case fd.IsMap():
		return object{"type": "object", "additionalProperties": valueSchema(schemas, fd.MapValue())}
	case fd.IsList():
		return object{"type": "array", "items": valueSchema(schemas, fd)}
	default:
		return valueSchema(schemas, fd)
	}
}

func valueSchema(schemas object, fd protoreflect.FieldDescriptor) object {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.StringKind:
		return object{"type": "string"}
	case protoreflect.BytesKind:
		return object{"type": "string", "format": "byte"}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind, protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return object{"type": "integer", "format": "int32"}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return object{"type": "string", "format": "int64"}
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		return object{"type": "number"}
	case protoreflect.EnumKind:
		return enumSchema(schemas, fd.Enum())
	case protoreflect.MessageKind, protoreflect.GroupKind:
	}
	switch fd.Message().FullName() {
	case "google.protobuf.Timestamp":
		return object{"type": "string", "format": "date-time"}
	case "google.protobuf.Duration", "google.protobuf.FieldMask":
		return object{"type": "string"}
	}
	addSchema(schemas, fd.Message())
	return object{"$ref": schemaRef + string(fd.Message().FullName())}
}

func enumSchema(schemas object, ed protoreflect.EnumDescriptor) object {
	name := string(ed.FullName())
	if _, ok := schemas[name]; !ok {
		values := make([]any, ed.Values().Len())
		for i := range values {
			values[i] = string(ed.Values().Get(i).Name())
		}
		s := object{"type": "string", "enum": values}
		if c := comment(ed); c != "" {
			s["description"] = c
		}
		schemas[name] = s
	}
	return object{"$ref": schemaRef + name}
}
