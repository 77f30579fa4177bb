package foreign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Bounds of a text.
const (
	// MaxBytes is the longest text that is imported.
	MaxBytes = 4 << 20
	// maxDepth is how deep values may be nested, maxValues how many there may be, those that aliases
	// repeat included, and maxDocuments how many documents a text may have.
	maxDepth, maxValues, maxDocuments = 64, 200_000, 20
)

// kind is what a value is.
type kind uint8

const (
	null kind = iota
	scalar
	text
	list
	mapping
)

// value is a value of a foreign text. A nil one is read as null.
type value struct {
	kind kind
	// text is the text of a text, and the JSON form of a number or of true and false.
	text  string
	items []*value
	// keys are those of a mapping, in order.
	keys   []string
	values map[string]*value
}

func (v *value) get(path ...string) *value {
	for _, key := range path {
		if v == nil {
			return nil
		}
		v = v.values[key]
	}
	return v
}

// str is the text of a text or a scalar, "" for others.
func (v *value) str() string {
	if v == nil || v.kind != text && v.kind != scalar {
		return ""
	}
	return v.text
}

// list are the items of a list.
func (v *value) list() []*value {
	if v == nil || v.kind != list {
		return nil
	}
	return v.items
}

// texts are the texts of a list, or a single one.
func (v *value) texts() []string {
	if s := v.str(); s != "" {
		return []string{s}
	}
	var out []string
	for _, item := range v.list() {
		if s := item.str(); s != "" {
			out = append(out, s)
		}
	}
	return out
}

func (v *value) is(k kind) bool { return v != nil && v.kind == k }

// put sets a key. A later one of the same name takes the place of the first.
func (v *value) put(key string, to *value) {
	if _, ok := v.values[key]; !ok {
		v.keys = append(v.keys, key)
	}
	v.values[key] = to
}

func newMapping() *value { return &value{kind: mapping, values: map[string]*value{}} }

// MarshalJSON writes the value as JSON, keys in their order.
func (v *value) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	v.write(&b)
	return b.Bytes(), nil
}

func (v *value) write(b *bytes.Buffer) {
	quote := func(s string) {
		enc := json.NewEncoder(b)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(s) // a text has a JSON form
		b.Truncate(b.Len() - 1)
	}
	switch v.kind {
	case null:
		b.WriteString("null")
	case scalar:
		b.WriteString(v.text)
	case text:
		quote(v.text)
	case list:
		b.WriteByte('[')
		for i, item := range v.items {
			if i > 0 {
				b.WriteByte(',')
			}
			item.write(b)
		}
		b.WriteByte(']')
	case mapping:
		b.WriteByte('{')
		for i, key := range v.keys {
			if i > 0 {
				b.WriteByte(',')
			}
			quote(key)
			b.WriteByte(':')
			v.values[key].write(b)
		}
		b.WriteByte('}')
	}
}

var errTooLarge = errors.New("it has too many values, or they are nested too deep")

// reader makes values within bounds.
type reader struct{ left int }

func (r *reader) room(depth int) bool {
	r.left--
	return depth <= maxDepth && r.left >= 0
}

// documents are those of a JSON or YAML text.
func documents(src []byte) ([]*value, error) {
	if len(src) > MaxBytes {
		return nil, fmt.Errorf("it has %d bytes, the limit is %d", len(src), MaxBytes)
	}
	if !utf8.Valid(src) {
		return nil, errors.New("it is not valid UTF-8")
	}
	src = bytes.TrimPrefix(src, []byte("\ufeff"))
	r := &reader{left: maxValues}
	if trimmed := bytes.TrimSpace(src); len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') && json.Valid(trimmed) {
		dec := json.NewDecoder(bytes.NewReader(trimmed))
		dec.UseNumber()
		v, err := r.json(dec, 0)
		return []*value{v}, err
	}
	dec := yaml.NewDecoder(bytes.NewReader(src))
	var out []*value
	for len(out) < maxDocuments {
		var n yaml.Node
		if err := dec.Decode(&n); err != nil {
			if len(out) > 0 || strings.Contains(err.Error(), "EOF") {
				return out, nil // what follows the first document is not needed
			}
			return nil, err
		}
		v, err := r.yaml(n.Content[0], 0)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func (r *reader) json(dec *json.Decoder, depth int) (*value, error) {
	token, err := dec.Token()
	switch {
	case err != nil:
		return nil, err
	case !r.room(depth):
		return nil, errTooLarge
	}
	switch t := token.(type) {
	case bool:
		return &value{kind: scalar, text: fmt.Sprint(t)}, nil
	case json.Number:
		return &value{kind: scalar, text: t.String()}, nil
	case string:
		return &value{kind: text, text: t}, nil
	case json.Delim:
		v := newMapping()
		if t == '[' {
			v = &value{kind: list}
		}
		for dec.More() {
			key := ""
			if v.kind == mapping {
				k, err := dec.Token()
				if err != nil {
					return nil, err
				}
				key, _ = k.(string)
			}
			item, err := r.json(dec, depth+1)
			if err != nil {
				return nil, err
			}
			if v.kind == mapping {
				v.put(key, item)
			} else {
				v.items = append(v.items, item)
			}
		}
		_, err := dec.Token()
		return v, err
	}
	return &value{}, nil
}

// yaml takes what an alias names for a copy of it, within the bounds.
func (r *reader) yaml(n *yaml.Node, depth int) (*value, error) {
	if !r.room(depth) {
		return nil, errTooLarge
	}
	switch n.Kind {
	case yaml.AliasNode:
		return r.yaml(n.Alias, depth+1)
	case yaml.SequenceNode:
		v := &value{kind: list}
		for _, c := range n.Content {
			item, err := r.yaml(c, depth+1)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, item)
		}
		return v, nil
	case yaml.MappingNode:
		v := newMapping()
		for i := 0; i+1 < len(n.Content); i += 2 {
			item, err := r.yaml(n.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			if n.Content[i].ShortTag() == "!!merge" && item.kind == mapping {
				for _, key := range item.keys {
					v.put(key, item.values[key])
				}
				continue
			}
			v.put(n.Content[i].Value, item)
		}
		return v, nil
	}
	switch tag := n.ShortTag(); {
	case tag == "!!null":
		return &value{}, nil
	case tag == "!!bool":
		return &value{kind: scalar, text: strings.ToLower(n.Value)}, nil
	case (tag == "!!int" || tag == "!!float") && json.Valid([]byte(n.Value)):
		return &value{kind: scalar, text: n.Value}, nil
	}
	return &value{kind: text, text: n.Value}, nil
}
