package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Bounds of a text.
const (
	// MaxBytes is the longest text of a definition that is read.
	MaxBytes = 1 << 20
	// maxDepth is how deep values may be nested, and maxValues how many there may be.
	maxDepth, maxValues = 64, 100_000
)

// kind is what a value is.
type kind uint8

const (
	null kind = iota
	boolean
	number
	text
	list
	mapping
)

func (k kind) String() string {
	return [...]string{"nothing", "true or false", "a number", "a text", "a list", "keys and values"}[k]
}

// value is a value of a text with its place. It is immutable once the text is read.
type value struct {
	kind kind
	// text is the text of a text, the JSON form of a number, and "true" or "false".
	text    string
	items   []*value
	entries []entry
	at      Place
	// under is the value that holds this one, nil for the whole; key or index says where in it.
	under *value
	key   string
	index int
}

// entry is a key with its value.
type entry struct {
	key   string
	at    Place
	value *value
}

// path says where in the structure the value is, such as "steps[2].prompt".
func (v *value) path() string {
	var parts []string
	for ; v.under != nil; v = v.under {
		switch {
		case v.under.kind == list:
			parts = append(parts, "["+strconv.Itoa(v.index)+"]")
		case v.under.under == nil:
			parts = append(parts, clip(v.key))
		default:
			parts = append(parts, "."+clip(v.key))
		}
	}
	slices.Reverse(parts)
	return strings.Join(parts, "")
}

// get is the value of a key, or nil.
func (v *value) get(key string) *value {
	if v == nil {
		return nil
	}
	for i := range v.entries {
		if v.entries[i].key == key {
			return v.entries[i].value
		}
	}
	return nil
}

// fewEntries is how many keys are looked through one by one.
const fewEntries = 16

// finder is get for many keys of one mapping: its cost does not grow with their number.
func (v *value) finder() func(key string) *value {
	if len(v.entries) <= fewEntries {
		return v.get
	}
	at := make(map[string]*value, len(v.entries))
	for i := range v.entries {
		at[v.entries[i].key] = v.entries[i].value
	}
	return func(key string) *value { return at[key] }
}

// json is the value as JSON, keys in their order.
func (v *value) json() json.RawMessage {
	var b bytes.Buffer
	v.writeJSON(&b)
	return b.Bytes()
}

func (v *value) writeJSON(b *bytes.Buffer) {
	switch v.kind {
	case null:
		b.WriteString("null")
	case boolean, number:
		b.WriteString(v.text)
	case text:
		writeText(b, v.text)
	case list:
		b.WriteByte('[')
		for i, item := range v.items {
			if i > 0 {
				b.WriteByte(',')
			}
			item.writeJSON(b)
		}
		b.WriteByte(']')
	case mapping:
		b.WriteByte('{')
		for i := range v.entries {
			if i > 0 {
				b.WriteByte(',')
			}
			writeText(b, v.entries[i].key)
			b.WriteByte(':')
			v.entries[i].value.writeJSON(b)
		}
		b.WriteByte('}')
	}
}

// writeText writes a text as JSON, markup as it is.
func writeText(b *bytes.Buffer, s string) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s)       // a text has a JSON form
	b.Truncate(b.Len() - 1) // the line end
}

// readSource reads the values of a YAML or JSON text. It is nil if the text has a fault, which t is
// told.
func readSource(t *teller, src []byte) *value {
	fault := func(code, hint, format string, args ...any) *value {
		t.add(Fault{Code: code, Message: fmt.Sprintf(format, args...), Hint: hint})
		return nil
	}
	switch {
	case len(src) > MaxBytes:
		return fault("TOO_LARGE", "take long texts out of it", "the definition has %d bytes, the limit is %d", len(src), MaxBytes)
	case !utf8.Valid(src):
		return fault("NOT_TEXT", "save it as UTF-8", "the definition is not valid UTF-8")
	}
	src = bytes.TrimPrefix(src, []byte("\ufeff"))
	t.lines = strings.Split(string(src), "\n")
	r := sourceReader{t: t, left: maxValues}
	var v *value
	if trimmed := bytes.TrimLeft(src, " \t\r\n"); bytes.HasPrefix(trimmed, []byte("{")) && json.Valid(src) {
		v = r.fromJSON(src)
	} else {
		v = r.fromYAML(src)
	}
	switch {
	case v == nil || len(t.faults) > 0:
		return nil
	case v.nul():
		return fault("NOT_TEXT", "take it out", "a text in the definition has the character U+0000")
	case v.kind != mapping:
		t.at(v, "NOT_A_WORKFLOW", "begin with `name:` and `steps:`", "a workflow is keys and values, not %s", v.kind)
		return nil
	}
	return v
}

// nul reports whether a text or a key has the character U+0000, which databases do not take.
func (v *value) nul() bool {
	if strings.IndexByte(v.text, 0) >= 0 || slices.ContainsFunc(v.items, (*value).nul) {
		return true
	}
	return slices.ContainsFunc(v.entries, func(e entry) bool { return strings.IndexByte(e.key, 0) >= 0 || e.value.nul() })
}

// sourceReader makes values, within bounds.
type sourceReader struct {
	t    *teller
	left int
}

// room reports whether one more value may be read at a depth.
func (r *sourceReader) room(v *value, depth int) bool {
	r.left--
	switch {
	case depth > maxDepth:
		r.t.at(v, "TOO_DEEP", "", "values are nested deeper than %d", maxDepth)
	case r.left < 0:
		r.t.at(v, "TOO_LARGE", "", "the definition has more than %d values", maxValues)
	default:
		return true
	}
	return false
}

// keys are those of one mapping that were read, with their places.
type keys map[string]Place

// add tells of a key that is there already.
func (k keys) add(t *teller, v *value, key string, at Place) bool {
	was, twice := k[key]
	if twice {
		in := &value{under: v, key: key, at: at}
		t.at(in, "DUPLICATE_KEY", "remove one of them", "the key %q is there already, in line %d", clip(key), was.Line)
		return false
	}
	k[key] = at
	return true
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

func (r *sourceReader) fromYAML(src []byte) *value {
	dec := yaml.NewDecoder(bytes.NewReader(src))
	var doc, more yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		r.t.add(Fault{Code: "EMPTY", Message: "the definition is empty", Hint: "begin with `name:` and `steps:`"})
		return nil
	}
	if err != nil {
		r.syntax(src, err)
		return nil
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		if err != nil {
			r.syntax(src, err)
			return nil
		}
		r.t.add(Fault{Code: "SEVERAL_DOCUMENTS", Place: Place{more.Line, max(more.Column, 1)}, Message: "there is a second document", Hint: "give each workflow a file of its own"})
		return nil
	}
	return r.yamlValue(&value{}, doc.Content[0], 0)
}

// syntax tells what the YAML reader says. It knows the line only.
func (r *sourceReader) syntax(src []byte, err error) {
	f := Fault{Code: "SYNTAX", Message: err.Error(), Hint: "look at the indentation, and put texts with `: `, `?` or `{` into quotes"}
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		f.Message = "not valid YAML: " + m[2]
		if n, err := strconv.Atoi(m[1]); err == nil {
			f.Place = Place{n, 1}
			if lines := bytes.Split(src, []byte("\n")); n >= 1 && n <= len(lines) {
				line := lines[n-1]
				f.Column = 1 + len(line) - len(bytes.TrimLeft(line, " "))
			}
		}
	}
	r.t.add(f)
}

// yamlValue fills in a value, which knows where it stands. It is nil after a fault that ends the
// reading.
func (r *sourceReader) yamlValue(v *value, n *yaml.Node, depth int) *value {
	v.at = Place{n.Line, n.Column}
	if !r.room(v, depth) {
		return nil
	}
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		r.t.at(v, "ALIAS", "write the value out where it is needed", "anchors and aliases are not supported")
		return nil
	}
	if n.Style&yaml.TaggedStyle != 0 { // what such a tag claims is not checked
		r.t.at(v, "BAD_TAG", "leave it out", "the tag %s is not supported", clip(n.Tag))
		return nil
	}
	switch n.Kind {
	case yaml.SequenceNode:
		v.kind = list
		for i, c := range n.Content {
			item := r.yamlValue(&value{under: v, index: i}, c, depth+1)
			if item == nil {
				return nil
			}
			v.items = append(v.items, item)
		}
	case yaml.MappingNode:
		v.kind = mapping
		known := keys{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			at := Place{k.Line, k.Column}
			if k.Kind != yaml.ScalarNode || k.Anchor != "" || k.Style&yaml.TaggedStyle != 0 || k.ShortTag() == "!!merge" {
				r.t.at(&value{under: v, key: k.Value, at: at}, "BAD_KEY", "", "a key must be a plain text")
				return nil
			}
			item := r.yamlValue(&value{under: v, key: k.Value}, n.Content[i+1], depth+1)
			if item == nil {
				return nil
			}
			if known.add(r.t, v, k.Value, at) {
				v.entries = append(v.entries, entry{k.Value, at, item})
			}
		}
	case yaml.ScalarNode:
		return r.yamlScalar(v, n)
	}
	return v
}

func (r *sourceReader) yamlScalar(v *value, n *yaml.Node) *value {
	v.text = n.Value
	switch tag := n.ShortTag(); tag {
	case "!!null":
		v.kind, v.text = null, ""
	case "!!bool":
		v.kind, v.text = boolean, strings.ToLower(n.Value)
	case "!!int", "!!float":
		v.kind = number
		if !json.Valid([]byte(n.Value)) {
			var f float64
			if err := n.Decode(&f); err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
				r.t.at(v, "BAD_NUMBER", "write it in decimal digits, or in quotes if it is a text", "%s is no number here", clip(n.Value))
				return nil
			}
			v.text = strconv.FormatFloat(f, 'g', -1, 64)
		}
	case "!!str", "!!timestamp": // a date is a text
		v.kind = text
	default:
		r.t.at(v, "BAD_TAG", "leave it out", "the tag %s is not supported", clip(tag))
		return nil
	}
	return v
}

// fromJSON reads a text that is valid JSON.
func (r *sourceReader) fromJSON(src []byte) *value {
	j := &jsonReader{sourceReader: r, src: src, dec: json.NewDecoder(bytes.NewReader(src)), line: 1, column: 1}
	j.dec.UseNumber()
	return j.value(&value{}, 0)
}

// jsonReader reads JSON with places.
type jsonReader struct {
	*sourceReader
	src []byte
	dec *json.Decoder
	// seen is how far the place was followed.
	seen, line, column int
}

// next is the place at which the next token begins.
func (j *jsonReader) next() Place {
	end := int(j.dec.InputOffset())
	for end < len(j.src) && strings.IndexByte(" \t\r\n,:", j.src[end]) >= 0 {
		end++
	}
	for _, c := range string(j.src[j.seen:end]) {
		if j.column++; c == '\n' {
			j.line, j.column = j.line+1, 1
		}
	}
	j.seen = end
	return Place{j.line, j.column}
}

func (j *jsonReader) value(v *value, depth int) *value {
	v.at = j.next()
	if !j.room(v, depth) {
		return nil
	}
	token, err := j.dec.Token()
	if err != nil {
		return nil // cannot happen: the text is valid
	}
	switch t := token.(type) {
	case nil:
		v.kind = null
	case bool:
		v.kind, v.text = boolean, strconv.FormatBool(t)
	case json.Number:
		v.kind, v.text = number, t.String()
	case string:
		v.kind, v.text = text, t
	case json.Delim:
		if !j.inside(v, t, depth) {
			return nil
		}
	}
	return v
}

// inside reads what a bracket encloses, and the closing one.
func (j *jsonReader) inside(v *value, open json.Delim, depth int) bool {
	v.kind = list
	if open == '{' {
		v.kind = mapping
	}
	known := keys{}
	for i := 0; j.dec.More(); i++ {
		under, at := &value{under: v, index: i}, Place{}
		if v.kind == mapping {
			at = j.next()
			token, err := j.dec.Token()
			if err != nil {
				return false // cannot happen: the text is valid
			}
			under.key, _ = token.(string)
		}
		item := j.value(under, depth+1)
		switch {
		case item == nil:
			return false
		case v.kind == list:
			v.items = append(v.items, item)
		case known.add(j.t, v, item.key, at):
			v.entries = append(v.entries, entry{item.key, at, item})
		}
	}
	_, err := j.dec.Token()
	return err == nil
}
