package worker

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// schemaOf is the JSON Schema of the named arguments that fill an In. It allows what encoding/json reads into
// one: of a type that reads itself, anything.
func schemaOf[In any]() (json.RawMessage, error) {
	t := reflect.TypeFor[In]()
	if reads[json.Unmarshaler](t) {
		return json.RawMessage(`{"type":"object"}`), nil
	}
	own := map[reflect.Type]*jsonschema.Schema{}
	ownSchemas(t, map[reflect.Type]bool{}, own)
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: own})
	if err != nil {
		return nil, fmt.Errorf("no JSON Schema for %s: %w; give one with Schema", t, err)
	}
	s.AdditionalProperties = nil // propagated inputs come as further named arguments
	return json.Marshal(s)
}

// ownSchemas adds to own the types within t whose JSON does not follow from their kind.
func ownSchemas(t reflect.Type, seen map[reflect.Type]bool, own map[reflect.Type]*jsonschema.Schema) {
	if seen[t] || t == reflect.TypeFor[time.Time]() {
		return
	}
	seen[t] = true
	switch {
	case t.Kind() == reflect.Pointer:
		ownSchemas(t.Elem(), seen, own)
		return
	case reads[json.Unmarshaler](t):
		own[t] = &jsonschema.Schema{Types: []string{"null", "boolean", "number", "string", "array", "object"}}
		return
	case reads[encoding.TextUnmarshaler](t):
		own[t] = &jsonschema.Schema{Type: "string"}
		return
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8: // in base64
		own[t] = &jsonschema.Schema{Types: []string{"null", "string"}}
		return
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		ownSchemas(t.Elem(), seen, own)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() || f.Anonymous {
				ownSchemas(f.Type, seen, own)
			}
		}
	}
}

// reads reports whether a T fills a value of type t.
func reads[T any](t reflect.Type) bool {
	return t.Kind() != reflect.Interface && reflect.PointerTo(t).Implements(reflect.TypeFor[T]())
}
