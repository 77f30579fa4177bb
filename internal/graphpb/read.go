package graphpb

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/near"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Read reads a graph in the form of the REST API, or in the JSON form of a workgraph.Graph. Faults of a graph
// that fits neither refer to the first, which is the documented one. With faults it also returns the graph
// without the faulty parts, if the rest can be read, so that the other faults can be reported at the same
// time.
func Read(raw json.RawMessage) (*graphv1.Graph, error) {
	g := &graphv1.Graph{}
	faults, err := ReadMessage("graph", raw, g)
	if err == nil && len(faults) == 0 {
		return g, nil
	}
	if w, werr := workgraph.Decode(raw); werr == nil {
		if other, werr := ToProto(w); werr == nil {
			return other, nil
		}
	}
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, ReasonGraphInvalid, "the graph cannot be read: %v", err)
	}
	x := errs.New(errs.InvalidArgument, ReasonGraphInvalid, "the graph cannot be read").
		Hint("epigraph.graph.v1.Graph in /openapi.json names every field")
	x.Violations = faults
	if len(g.GetNodes()) == 0 {
		return nil, x
	}
	return g, x
}

// ReadModel is Read for who wants the model that runs.
func ReadModel(raw json.RawMessage) (*workgraph.Graph, error) {
	if g, err := workgraph.Decode(raw); err == nil {
		return g, nil
	}
	m, err := Read(raw)
	if err != nil {
		return nil, err
	}
	return FromProto(m)
}

// ReadMessage reads a message that contains graphs or parts of them in the form of the REST API, in which a
// payload is the value that it holds. faults are the places, below the given one, that do not fit, and m is
// then the message without them; err is an error without a place.
func ReadMessage(place string, raw json.RawMessage, m proto.Message) (faults []errs.Violation, err error) {
	r := graphReader{}
	protoJSON := r.message(place, raw, m.ProtoReflect().Descriptor())
	err = protojson.Unmarshal(protoJSON, m)
	if r.more > 0 {
		r.faults = append(r.faults, errs.Violation{Field: place, Reason: workgraph.CodeMoreFaults, Message: fmt.Sprintf("and %d more faults", r.more)})
	}
	if len(r.faults) > 0 {
		if err != nil {
			proto.Reset(m)
		}
		return r.faults, nil
	}
	if err != nil {
		return nil, errors.New(protoPlace.ReplaceAllString(err.Error(), ""))
	}
	return nil, nil
}

// protoPlace is where protojson stopped, in a text that nobody but us has seen.
var protoPlace = regexp.MustCompile(`^proto:[\s\x{a0}]*(\(line \d+:\d+\):[\s\x{a0}]*)?`)

// graphReader rewrites REST JSON, in which a payload is the value that it holds, as protobuf JSON.
type graphReader struct {
	faults []errs.Violation
	more   int // faults beyond workgraph.MaxFaults
}

func (r *graphReader) fault(place, reason, format string, args ...any) json.RawMessage {
	if len(r.faults) == workgraph.MaxFaults {
		r.more++
		return json.RawMessage("null")
	}
	r.faults = append(r.faults, errs.Violation{Field: place, Reason: reason, Message: fmt.Sprintf(format, args...)})
	return json.RawMessage("null")
}

func (r *graphReader) message(place string, raw json.RawMessage, md protoreflect.MessageDescriptor) json.RawMessage {
	switch md.FullName() {
	case (*graphv1.Payload)(nil).ProtoReflect().Descriptor().FullName():
		return json.RawMessage(`{"json":"` + base64.StdEncoding.EncodeToString(raw) + `"}`)
	case "google.protobuf.Duration":
		if string(raw) != "null" && !durationText.Match(raw) {
			return r.fault(place, "WRONG_TYPE", `%.40s is no duration; write it as "1.5s"`, raw)
		}
		return raw
	}
	seen, oneofs := map[string]bool{}, map[protoreflect.Name]string{}
	return r.object(place, raw, "an object", func(key string, value json.RawMessage) (string, json.RawMessage) {
		fd := md.Fields().ByJSONName(key)
		if fd == nil {
			fd = md.Fields().ByTextName(key)
		}
		if fd == nil {
			var has []string
			for i := range md.Fields().Len() {
				has = append(has, md.Fields().Get(i).JSONName())
			}
			said := fmt.Sprintf("%s has no field %q; it has %s", md.Name(), key, strings.Join(has, ", "))
			if like := nearest(key, has); like != "" {
				said = fmt.Sprintf("%s has no field %q; did you mean %q?", md.Name(), key, like)
			}
			r.fault(place+"."+key, "UNKNOWN_FIELD", "%s", said)
			return "", nil
		}
		if seen[fd.JSONName()] {
			r.fault(place+"."+key, "DUPLICATE_KEY", "the field %q is given twice", key)
			return "", nil
		}
		seen[fd.JSONName()] = true
		if of := fd.ContainingOneof(); of != nil && !of.IsSynthetic() && string(value) != "null" {
			if other, given := oneofs[of.Name()]; given {
				r.fault(place+"."+key, "ONEOF_CONFLICT", "only one of %q and %q may be given", other, key)
				return "", nil
			}
			oneofs[of.Name()] = key
		}
		return fd.JSONName(), r.field(place+"."+key, value, fd)
	})
}

var durationText = regexp.MustCompile(`^"-?\d+(\.\d+)?s"$`)

func (r *graphReader) field(place string, raw json.RawMessage, fd protoreflect.FieldDescriptor) json.RawMessage {
	switch {
	case string(raw) == "null" && (fd.IsMap() || fd.IsList()):
		return raw
	case fd.IsMap():
		seen := map[string]bool{}
		return r.object(place, raw, "an object, whose keys are free", func(key string, value json.RawMessage) (string, json.RawMessage) {
			if seen[key] {
				r.fault(place+"."+key, "DUPLICATE_KEY", "the key %q is given twice", key)
				return "", nil
			}
			seen[key] = true
			return key, r.value(place+"."+key, value, fd.MapValue())
		})
	case fd.IsList():
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			return r.fault(place, "WRONG_TYPE", "this must be an array")
		}
		for i := range list {
			list[i] = r.value(fmt.Sprintf("%s[%d]", place, i), list[i], fd)
		}
		out, _ := json.Marshal(list) // decoded JSON can be encoded
		return out
	default:
		return r.value(place, raw, fd)
	}
}

func (r *graphReader) value(place string, raw json.RawMessage, fd protoreflect.FieldDescriptor) json.RawMessage {
	if fd.Message() != nil {
		return r.message(place, raw, fd.Message())
	}
	var word string
	if fd.Enum() != nil && string(raw) != "null" && json.Unmarshal(raw, &word) == nil {
		if v := EnumValue(fd.Enum(), word); v != nil {
			return json.RawMessage(`"` + string(v.Name()) + `"`)
		}
		var has []string
		for i := range fd.Enum().Values().Len() {
			has = append(has, string(fd.Enum().Values().Get(i).Name()))
		}
		return r.fault(place, "UNKNOWN_ENUM_VALUE", "%q is no %s; use one of %s", word, fd.Enum().Name(), strings.Join(has[1:], ", "))
	}
	if wanted := scalarFault(raw, fd); wanted != "" {
		return r.fault(place, "WRONG_TYPE", "this must be %s, not %.40s", wanted, raw)
	}
	return raw
}

// nearest is the name that is most like key, or empty if none is much like it.
func nearest(key string, names []string) string {
	best, least := "", min(2, len(key)/2)
	for _, n := range names {
		d, ok := near.Within(strings.ToLower(key), strings.ToLower(n), least)
		if ok && (best == "" || d < least || d == least && n[0] == key[0] && best[0] != key[0]) {
			best, least = n, d
		}
	}
	return best
}

// scalarFault describes the value that a field takes, if raw has another type. It is empty if raw fits, or if
// protojson reports the fault.
func scalarFault(raw json.RawMessage, fd protoreflect.FieldDescriptor) string {
	var v any
	if json.Unmarshal(raw, &v) != nil || v == nil {
		return ""
	}
	_, text := v.(string)
	_, number := v.(float64)
	_, truth := v.(bool)
	switch fd.Kind() {
	case protoreflect.StringKind:
		if !text {
			return "a text in double quotes"
		}
	case protoreflect.BoolKind:
		if !truth {
			return "true or false"
		}
	case protoreflect.EnumKind:
		if !text && !number {
			return "a word in double quotes"
		}
	case protoreflect.BytesKind:
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		if !reads(raw, &wrapperspb.DoubleValue{}) {
			return "a number"
		}
	case protoreflect.Int32Kind:
		if !reads(raw, &wrapperspb.Int32Value{}) {
			return "a whole number of 32 bits"
		}
	default:
		if !text && !number {
			return "a number"
		}
	}
	return ""
}

// reads reports whether protojson accepts a value for a wrapper; no other check is exact.
func reads(raw json.RawMessage, into proto.Message) bool {
	return protojson.Unmarshal(raw, into) == nil
}

// object rewrites the members of an object in their order, without those for which member gives nil.
func (r *graphReader) object(place string, raw json.RawMessage, wanted string, member func(string, json.RawMessage) (string, json.RawMessage)) json.RawMessage {
	if string(raw) == "null" {
		return raw
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return r.fault(place, "WRONG_TYPE", "this must be %s", wanted)
	}
	out := []byte{'{'}
	for dec.More() {
		key, err := dec.Token()
		var value json.RawMessage
		name, ok := key.(string)
		if err = errors.Join(err, dec.Decode(&value)); err != nil || !ok {
			return r.fault(place, "INVALID_JSON", "this is no JSON object")
		}
		if name, value = member(name, value); value == nil {
			continue // at fault
		}
		quoted, _ := json.Marshal(name) // a string always marshals
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, quoted...), ':'), value...)
	}
	return append(out, '}')
}
