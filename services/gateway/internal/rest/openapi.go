package rest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	epigraphproto "github.com/epigraph-run/epigraph/proto"
	errorsv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/errors/v1"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

type object = map[string]any

const schemaRef = "#/components/schemas/"

// document serves the generated OpenAPI document together with what the protos cannot say: that
// payloads are plain JSON, how events are streamed, and how this server lets callers in.
func (s *Server) document() (http.Handler, error) {
	doc := object{}
	if err := json.Unmarshal(epigraphproto.OpenAPI(), &doc); err != nil {
		return nil, err
	}
	if s.Version != "" {
		child(doc, "info")["version"] = s.Version
	}
	components := child(doc, "components")
	child(components, "securitySchemes")["apiKeyHeader"] = object{
		"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "The same key, for clients that cannot set Authorization.",
	}
	security, _ := doc["security"].([]any)
	security = append(security, object{"apiKeyHeader": []any{}})
	if s.Anonymous {
		security = append(security, object{})
	}
	doc["security"] = security

	schemas := child(components, "schemas")
	addSchema(schemas, (&errorsv1.Error{}).ProtoReflect().Descriptor())
	addSchema(schemas, (&executorv1.RunEvent{}).ProtoReflect().Descriptor())
	schemas[payloadSchema] = object{"title": "Payload", "description": "Any JSON value. An integer beyond ±(2^53-1) is refused by name."}

	paths := child(doc, "paths")
	paths["/v1/runs/{run_id}/events"] = eventsPath()
	for path, text := range map[string]string{
		"/healthz": "Says that the process lives.",
		"/readyz":  "Says whether all services can be reached, and if not, which is missing.",
	} {
		paths[path] = object{"get": object{
			"operationId": strings.Trim(path, "/"), "summary": text, "security": []any{object{}},
			"responses": object{"200": object{"description": "Yes."}, "503": errorResponse("No.")},
		}}
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	etag := `"` + hex.EncodeToString(sum[:12]) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("ETag", etag)
		h.Set("Cache-Control", "no-cache")
		for tag := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
			if tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/"); tag == etag || tag == "*" {
				w.WriteHeader(http.StatusNotModified)
				return
			}
		}
		h.Set("Content-Type", jsonType)
		h.Set("Content-Length", fmt.Sprint(len(raw)))
		_, _ = w.Write(raw)
	}), nil
}

const payloadSchema = "epigraph.graph.v1.Payload"

func child(o object, key string) object {
	c, ok := o[key].(object)
	if !ok {
		c = object{}
		o[key] = c
	}
	return c
}

func errorResponse(text string) object {
	return object{"description": text, "content": object{jsonType: object{"schema": object{"$ref": schemaRef + "epigraph.errors.v1.Error"}}}}
}

func eventsPath() object {
	param := func(name, in, text string, required bool, schema object) object {
		return object{"name": name, "in": in, "description": text, "required": required, "schema": schema}
	}
	return object{"get": object{
		"tags":        []any{"ExecutorService"},
		"operationId": "ExecutorService_WatchRun",
		"summary":     "WatchRun streams a run's events as server-sent events, from a cursor to its end.",
		"description": "Each event has the name of its kind (event: attempt_ended), a RunEvent as data, and, when it is durable and the run's own, its sequence as id. " +
			"The stream ends with event: end. A fault after the beginning is event: error with an Error as data; metadata.fatal says whether the stream goes on. " +
			"A client that comes back with the id of the end event gets 204, after which an EventSource does not connect again.",
		"parameters": []any{
			param("run_id", "path", "The run.", true, object{"type": "string"}),
			param("after_seq", "query", "Events after this sequence; 0 begins at the beginning.", false, object{"type": "integer", "format": "int64", "minimum": 0}),
			param("include_descendants", "query", "Whether to include the events of the run's descendants.", false, object{"type": "boolean"}),
			param("durable_only", "query", "Whether to leave out ephemeral events.", false, object{"type": "boolean"}),
			param("Last-Event-ID", "header", "The id of the last event received; wins over after_seq.", false, object{"type": "string"}),
		},
		"responses": object{
			"200":     object{"description": "The events.", "content": object{"text/event-stream": object{"schema": object{"$ref": schemaRef + "epigraph.executor.v1.RunEvent"}}}},
			"204":     object{"description": "The client has all events of a run that has ended."},
			"default": errorResponse("An error."),
		},
	}}
}

// addSchema describes a message, and those that it uses, unless they are described already.
func addSchema(schemas object, md protoreflect.MessageDescriptor) {
	name := string(md.FullName())
	if _, ok := schemas[name]; ok {
		return
	}
	properties := object{}
	schemas[name] = object{"type": "object", "properties": properties}
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		properties[fd.JSONName()] = fieldSchema(schemas, fd)
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
		name := string(fd.Enum().FullName())
		if _, ok := schemas[name]; !ok {
			var values []any
			for i := range fd.Enum().Values().Len() {
				values = append(values, string(fd.Enum().Values().Get(i).Name()))
			}
			schemas[name] = object{"type": "string", "enum": values}
		}
		return object{"$ref": schemaRef + name}
	default:
		switch fd.Message().FullName() {
		case "google.protobuf.Timestamp":
			return object{"type": "string", "format": "date-time"}
		case "google.protobuf.Duration", "google.protobuf.FieldMask":
			return object{"type": "string"}
		}
		addSchema(schemas, fd.Message())
		return object{"$ref": schemaRef + string(fd.Message().FullName())}
	}
}
