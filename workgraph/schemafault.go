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

// maxSchemaPlaces is how many places of a schema are named that are wrong, maxSchemaLeaves how many of the
// compiler's findings are looked at.
const (
	maxSchemaPlaces = 5
	maxSchemaLeaves = 1000
)

// schemaTypes are the names of types, as a schema writes them.
var schemaTypes = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// schemaFault says in words why a schema cannot be used, at which place, and what to write.
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

// schemaPlace is a place of a schema that is not as it must be, with what the compiler found there.
type schemaPlace struct {
	path []string
	// types are those that the value may be of, names whether it may be the name of one.
	types []string
	names bool
	// least is the smallest number that may stand there, other what else was found.
	least, other string
}

// misshapen names the places of a schema that are not as the rules for schemas have them.
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
		// A value that may be one thing or a list of them is at fault where the list is.
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
		p.names = true // the one enumeration in the rules for schemas
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

// jsonKind is what a value is, as a person says it.
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

// schemaAt is the value at a place; nil if there is none.
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

// atPlace begins a sentence about a place; the schema as a whole is not named.
func atPlace(pointer string) string {
	if pointer == "" {
		return ""
	}
	return "at " + clipText(pointer, 200) + ": "
}

// placeOfRef is where a schema refers to something, as a JSON pointer; empty if that is not found, as of one
// that is relative.
func placeOfRef(doc any, ref string) string {
	return placeOf(doc, func(key string, v any) bool {
		text, ok := v.(string)
		return ok && (key == "$ref" || key == "$schema") && (text == ref || strings.TrimSuffix(text, "#") == ref || strings.HasPrefix(text, ref+"#"))
	})
}

// placeOfPattern is where a schema has a pattern.
func placeOfPattern(doc any, pattern string) string {
	return placeOf(doc, func(key string, v any) bool {
		if all, ok := v.(map[string]any); ok && key == "patternProperties" {
			_, ok = all[pattern]
			return ok
		}
		return key == "pattern" && v == any(pattern)
	})
}

// placeOf is the first place, by the order of names, at which a key and its value are what is looked for.
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
