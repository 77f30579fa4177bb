package workgraph

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// maxSchemaPlaces bounds how many wrong places of a schema are named, and maxSchemaLeaves how many findings
// of the compiler are read.
const (
	maxSchemaPlaces = 5
	maxSchemaLeaves = 1000
)

// schemaTypes are the names of types in a schema.
var schemaTypes = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// schemaFault says in plain words why a schema cannot be used, at which place, and what to write.
func schemaFault(doc any, err error) string {
	if ref, ok := errors.AsType[*jsonschema.JSONPointerNotFoundError](err); ok {
		return danglingRef(doc, ref.URL)
	}
	if ref, ok := errors.AsType[*jsonschema.AnchorNotFoundError](err); ok {
		return danglingRef(doc, ref.Reference)
	}
	if remote, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		return fmt.Sprintf(`%s%q lies elsewhere, and remote schemas are not read; put it below $defs and write "#/$defs/NAME"`, atPlace(placeOfRef(doc, remote.URL)), clipText(remote.URL, 200))
	}
	if meta, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		err = meta.Err
	}
	if v, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return "this is no JSON Schema: " + misshapen(doc, v)
	}
	return clipText(strings.ReplaceAll(err.Error(), "\n", " "), maxFaultText)
}

func danglingRef(doc any, target string) string {
	_, fragment, _ := strings.Cut(target, "#")
	ref := "#" + fragment
	return fmt.Sprintf(`%s%q leads to nothing in the schema; what it names has to be there, as below $defs`, atPlace(placeOfRef(doc, ref)), clipText(ref, 200))
}

// schemaPlace is a wrong place of a schema, with the findings of the compiler there.
type schemaPlace struct {
	path []string
	// types are the types that the value may have. names says that the value may be the name of a type.
	types []string
	names bool
	// least is the smallest number allowed there. other is any other finding.
	least, other string
}

// misshapen lists the places of a schema that break the rules for schemas.
func misshapen(doc any, err *jsonschema.ValidationError) string {
	found := map[string]*schemaPlace{}
	todo := []*jsonschema.ValidationError{err}
	for n := 0; len(todo) > 0 && n < maxSchemaLeaves; n++ {
		e := todo[len(todo)-1]
		todo = append(todo[:len(todo)-1], e.Causes...)
		if len(e.Causes) > 0 {
			continue
		}
		key := jsonPointer(e.InstanceLocation)
		p := found[key]
		if p == nil {
			p = &schemaPlace{path: e.InstanceLocation}
			found[key] = p
		}
		p.add(e)
	}
	keys := sortedKeys(found)
	var out []string
	more := 0
	for _, key := range keys {
		// For a value that may be one thing or a list of things, the fault inside the list counts.
		if slices.ContainsFunc(keys, func(k string) bool { return strings.HasPrefix(k, key+"/") }) {
			continue
		}
		if len(out) == maxSchemaPlaces {
			more++
			continue
		}
		out = append(out, atPlace(key)+found[key].words(doc))
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return clipText(strings.Join(out, "; "), maxFaultText)
}

func (p *schemaPlace) add(e *jsonschema.ValidationError) {
	switch k := e.ErrorKind.(type) {
	case *kind.Enum:
		p.names = true // it is the only enumeration in the rules for schemas
	case *kind.Type:
		for _, t := range k.Want {
			if !slices.Contains(p.types, t) {
				p.types = append(p.types, t)
			}
		}
	case *kind.Minimum:
		p.least = k.Want.RatString()
	case *kind.Format:
		p.other = clipText(k.Err.Error(), 300)
	default:
		one := jsonschema.ValidationError{SchemaURL: e.SchemaURL, ErrorKind: e.ErrorKind}
		p.other = cmp.Or(p.other, clipText(strings.TrimPrefix(one.Error(), "at '': "), 200))
	}
}

// words says what must stand at the place.
func (p *schemaPlace) words(doc any) string {
	value := schemaAt(doc, p.path)
	text, isText := value.(string)
	switch {
	case p.names && isText:
		out := fmt.Sprintf("%q is no type; ", clipText(text, 80))
		if near := nearName(strings.ToLower(text), schemaTypes); near != "" {
			return out + fmt.Sprintf("did you mean %q?", near)
		}
		return out + "there are " + strings.Join(schemaTypes, ", ")
	case p.names:
		return "this must name a type, not be " + jsonKind(value) + "; there are " + strings.Join(schemaTypes, ", ")
	case len(p.types) > 0:
		slices.Sort(p.types)
		want := make([]string, len(p.types))
		for i, t := range p.types {
			want[i] = typeWords[t]
		}
		out := "this must be " + strings.Join(want, " or ") + ", not " + jsonKind(value)
		switch last := p.path[max(len(p.path)-1, 0):]; {
		case isText && slices.Contains(p.types, "object") && nearName(strings.ToLower(text), schemaTypes) != "":
			out += fmt.Sprintf(`; write {"type": %q}`, nearName(strings.ToLower(text), schemaTypes))
		case len(last) == 1 && last[0] == "required":
			out += "; it lists names, and stands beside properties"
		}
		return out
	case p.least != "":
		return "this must be at least " + p.least
	}
	return p.other
}

var typeWords = map[string]string{
	"array": "a list", "boolean": "true or false", "integer": "a whole number", "null": "null", "number": "a number", "object": "an object", "string": "a text",
}

// jsonKind names the kind of a value in plain words.
func jsonKind(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case string:
		return "a text"
	case json.Number:
		return clipText(v.String(), 40)
	case []any:
		return "a list"
	}
	return "an object"
}

// schemaAt is the value at a place, or nil if there is none.
func schemaAt(doc any, path []string) any {
	for _, p := range path {
		switch v := doc.(type) {
		case map[string]any:
			doc = v[p]
		case []any:
			i, err := strconv.Atoi(p)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			doc = v[i]
		default:
			return nil
		}
	}
	return doc
}

// atPlace is the start of a sentence about a place. It is empty for the whole schema.
func atPlace(pointer string) string {
	if pointer == "" {
		return ""
	}
	return "at " + clipText(pointer, 200) + ": "
}

// placeOfRef is the JSON pointer of a reference in a schema. It is empty if it is not found, for example if
// the reference is relative.
func placeOfRef(doc any, ref string) string {
	return placeOf(doc, func(key string, v any) bool {
		text, ok := v.(string)
		return ok && (key == "$ref" || key == "$schema") && (text == ref || strings.TrimSuffix(text, "#") == ref || strings.HasPrefix(text, ref+"#"))
	})
}

// placeOfPattern is the JSON pointer of a pattern in a schema.
func placeOfPattern(doc any, pattern string) string {
	return placeOf(doc, func(key string, v any) bool {
		if all, ok := v.(map[string]any); ok && key == "patternProperties" {
			_, ok = all[pattern]
			return ok
		}
		return key == "pattern" && v == any(pattern)
	})
}

// placeOf is the first place, in the order of names, for which is returns true.
func placeOf(doc any, is func(key string, v any) bool) string {
	var look func(v any, path []string) ([]string, bool)
	look = func(v any, path []string) ([]string, bool) {
		switch v := v.(type) {
		case map[string]any:
			for _, k := range sortedKeys(v) {
				at := append(path[:len(path):len(path)], k)
				if is(k, v[k]) {
					return at, true
				}
				if found, ok := look(v[k], at); ok {
					return found, true
				}
			}
		case []any:
			for i, el := range v {
				if found, ok := look(el, append(path[:len(path):len(path)], strconv.Itoa(i))); ok {
					return found, true
				}
			}
		}
		return nil, false
	}
	path, _ := look(doc, nil)
	return jsonPointer(path)
}
