package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

// findGraph tells a WorkGraph from a plan: only its nodes name actors. What the REST API answers with a graph in it (a compiled plan,
// the graph of a run) counts as that graph; graph is nil for a plan.
func findGraph(text string) (graph json.RawMessage, err error) {
	var doc map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &doc) != nil {
		return nil, nil
	}
	if namesActors(doc["nodes"]) {
		return json.RawMessage(text), nil
	}
	var inner map[string]json.RawMessage
	if json.Unmarshal(doc["graph"], &inner) != nil || !namesActors(inner["nodes"]) {
		return nil, nil
	}
	for k := range doc {
		if !slices.Contains([]string{"graph", "graphHash", "graph_hash", "plan"}, k) {
			return nil, errs.New(errs.InvalidArgument, graphpb.ReasonGraphInvalid, "%q beside the graph is not read", k).
				Hint("give inputs, tasks and ids as flags, or send the file to the REST API")
		}
	}
	return doc["graph"], nil
}

func namesActors(nodes json.RawMessage) bool {
	var list []struct {
		Actor *string `json:"actor"`
	}
	if json.Unmarshal(nodes, &list) != nil {
		return false
	}
	for _, n := range list {
		if n.Actor != nil {
			return true
		}
	}
	return false
}

// readGraph reads a graph as the REST API writes it, or in the JSON form of a workgraph.Graph. What fits neither is told in terms of
// the first, which is the documented one.
func readGraph(raw json.RawMessage) (*graphv1.Graph, error) {
	g := &graphv1.Graph{}
	r := graphReader{}
	protoJSON := r.message("graph", raw, g.ProtoReflect().Descriptor())
	var err error
	if len(r.faults) == 0 {
		if err = protojson.Unmarshal(protoJSON, g); err == nil {
			return g, nil
		}
	}
	if w, werr := workgraph.Decode(raw); werr == nil {
		if g, werr := graphpb.ToProto(w); werr == nil {
			return g, nil
		}
	}
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, graphpb.ReasonGraphInvalid, "the graph cannot be read: %s", protoPlace.ReplaceAllString(err.Error(), ""))
	}
	x := errs.New(errs.InvalidArgument, graphpb.ReasonGraphInvalid, "the graph cannot be read").
		Hint("epigraph.graph.v1.Graph in /openapi.json names every field")
	x.Violations = r.faults
	return nil, x
}

// protoPlace is where protojson stopped, in a text that nobody but us has seen.
var protoPlace = regexp.MustCompile(`^proto:[\s\x{a0}]*(\(line \d+:\d+\):[\s\x{a0}]*)?`)

// graphReader rewrites REST JSON, in which a payload is the value that it holds, as protobuf JSON.
type graphReader struct{ faults []errs.Violation }

func (r *graphReader) fault(place, reason, format string, args ...any) json.RawMessage {
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
			return key, r.fault(place+"."+key, "UNKNOWN_FIELD", "%s has no field %q; it has %s", md.Name(), key, strings.Join(has, ", "))
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
		return r.object(place, raw, "an object, whose keys are free", func(key string, value json.RawMessage) (string, json.RawMessage) {
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
		out, _ := json.Marshal(list) // what was read can be written
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
	if fd.Enum() != nil && json.Unmarshal(raw, &word) == nil && fd.Enum().Values().ByName(protoreflect.Name(word)) == nil {
		var has []string
		for i := range fd.Enum().Values().Len() {
			has = append(has, string(fd.Enum().Values().Get(i).Name()))
		}
		return r.fault(place, "UNKNOWN_ENUM_VALUE", "%q is no %s; use one of %s", word, fd.Enum().Name(), strings.Join(has[1:], ", "))
	}
	return raw
}

// object rewrites the members of an object in their order; one that stands there twice is left for protojson to refuse.
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
		name, value = member(name, value)
		quoted, _ := json.Marshal(name) // a string always marshals
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, quoted...), ':'), value...)
	}
	return append(out, '}')
}
