package workflow

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/near"
)

// object reads the keys of a mapping. A key that nobody asked for is told by done.
type object struct {
	t *teller
	v *value
	// what the mapping is, for messages, such as "a step".
	what  string
	known []string
	bad   bool
}

// object begins to read a mapping. Any other value is told, and read as an empty mapping.
func (t *teller) object(v *value, what string) *object {
	o := &object{t: t, v: v, what: what}
	if v.kind != mapping {
		o.bad = true
		t.at(v, "NOT_A_MAPPING", "", "%s is keys and values, not %s", what, v.kind)
	}
	return o
}

// value is the value of a key, or nil if it is not there or null.
func (o *object) value(key string) *value {
	if !slices.Contains(o.known, key) {
		o.known = append(o.known, key)
	}
	v := o.v.get(key)
	if v == nil || v.kind == null {
		return nil
	}
	return v
}

// done tells of every key that nobody asked for.
func (o *object) done() {
	o.t.note(o.what, o.known)
	if o.bad {
		return
	}
	for i := range o.v.entries {
		e := &o.v.entries[i]
		if o.t.full() || slices.Contains(o.known, e.key) {
			continue
		}
		hint := "use " + words(o.known, "or")
		if best := nearest(e.key, o.known); best != "" {
			hint = "did you mean `" + best + "`?"
		}
		o.t.add(Fault{Code: "UNKNOWN_KEY", Place: e.at, Path: e.value.path(), Message: o.what + " has no key `" + clip(e.key) + "`", Hint: hint})
	}
}

// missing tells of a key that must be there.
func (o *object) missing(key, hint string) {
	if o.bad {
		return
	}
	o.t.at(o.v, "MISSING_KEY", hint, "%s needs `%s`", o.what, key)
}

// is reports whether a value has a kind, and tells it if not.
func (t *teller) is(v *value, want kind) bool {
	if v.kind == want {
		return true
	}
	hint := ""
	if want == text && (v.kind == number || v.kind == boolean) {
		hint = "put it into quotes"
	}
	t.at(v, "WRONG_TYPE", hint, "this must be %s, not %s", want, v.kind)
	return false
}

// text is the text of a key, or "".
func (o *object) text(key string) string {
	v := o.value(key)
	if v == nil || !o.t.is(v, text) {
		return ""
	}
	return v.text
}

// line is a text without surrounding blanks that may be as long as most, in bytes.
func (o *object) line(key string, most int) string {
	s := strings.TrimSpace(o.text(key))
	if len(s) > most {
		o.t.at(o.v.get(key), "TOO_LONG", "", "`%s` may have %d bytes, this has %d", key, most, len(s))
		return ""
	}
	return s
}

// label is the text of a key, which may look like a number, as that of a version does.
func (o *object) label(key string) string {
	if v := o.value(key); v != nil && v.kind == number {
		return v.text
	}
	return o.line(key, maxName)
}

// whole is the whole number of a key, or the default.
func (o *object) whole(key string, least, most, without int) int {
	v := o.value(key)
	if v == nil || !o.t.is(v, number) {
		return without
	}
	n, err := strconv.Atoi(v.text)
	if err != nil || n < least || n > most {
		o.t.at(v, "OUT_OF_RANGE", "", "`%s` must be a whole number from %d to %d, not %s", key, least, most, clip(v.text))
		return without
	}
	return n
}

// amount is the number of a key from 0 on. ok is false if it is not there.
func (o *object) amount(key string) (n float64, ok bool) {
	v := o.value(key)
	if v == nil || !o.t.is(v, number) {
		return 0, false
	}
	n, err := strconv.ParseFloat(v.text, 64)
	if err != nil || n < 0 {
		o.t.at(v, "OUT_OF_RANGE", "", "`%s` must be a number from 0 on, not %s", key, clip(v.text))
		return 0, false
	}
	return n, true
}

// word is one of some words, or the default.
func (o *object) word(key, without string, words ...string) string {
	v := o.value(key)
	if v == nil || !o.t.is(v, text) {
		return without
	}
	if !slices.Contains(words, v.text) {
		o.t.word(v, "`"+key+"`", words)
		return without
	}
	return v.text
}

// word tells that a text is none of some words.
func (t *teller) word(v *value, what string, among []string) {
	hint := "use " + words(among, "or")
	if best := nearest(v.text, among); best != "" {
		hint = "did you mean `" + best + "`?"
	}
	t.at(v, "UNKNOWN_WORD", hint, "%s cannot be `%s`", what, clip(v.text))
}

// duration is the time of a key, such as 500ms, 30s, 1h or 2d. ok is false if it is not there.
func (o *object) duration(key string) (d time.Duration, ok bool) {
	v := o.value(key)
	if v == nil || v.kind != number && !o.t.is(v, text) {
		return 0, false
	}
	if d, ok = readDuration(v.text); !ok {
		o.t.at(v, "BAD_DURATION", "write for example 500ms, 30s, 1h or 2d", "%q is no time", clip(v.text))
	}
	return d, ok
}

const day = 24 * time.Hour

// readDuration reads a time from 0 on, with days as well.
func readDuration(s string) (time.Duration, bool) {
	if n, ok := strings.CutSuffix(s, "d"); ok {
		if days, err := strconv.Atoi(n); err == nil && days >= 0 && days <= 36_500 {
			return time.Duration(days) * day, true
		}
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0
}

// list is the items of a key.
func (o *object) list(key string) []*value {
	v := o.value(key)
	if v == nil || !o.t.is(v, list) {
		return nil
	}
	return v.items
}

// texts are the texts of a list. A single text counts as a list of one.
func (o *object) texts(key string) []*value {
	v := o.value(key)
	switch {
	case v == nil:
		return nil
	case v.kind == text:
		return []*value{v}
	case !o.t.is(v, list):
		return nil
	}
	out := make([]*value, 0, len(v.items))
	for _, item := range v.items {
		if o.t.is(item, text) {
			out = append(out, item)
		}
	}
	return out
}

// entries are the keys and values of a key.
func (o *object) entries(key string) []entry {
	v := o.value(key)
	if v == nil || !o.t.is(v, mapping) {
		return nil
	}
	return v.entries
}

// maxFew bounds lists of which few have many items.
const maxFew = 100

// few are the items of a list, cut where there are too many of them.
func (o *object) few(key string, items []*value) []*value {
	if len(items) > maxFew {
		o.t.at(items[maxFew], "TOO_LARGE", "", "`%s` may have %d items", key, maxFew)
		return items[:maxFew]
	}
	return items
}

// plain is a text in which no references are filled in.
func (o *object) plain(key string) string {
	s := o.text(key)
	if s != "" {
		o.t.unfilled(o.v.get(key))
	}
	return s
}

// unfilled tells of references in a value in which none are filled in.
func (t *teller) unfilled(v *value) {
	for _, item := range v.items {
		t.unfilled(item)
	}
	for i := range v.entries {
		t.unfilled(v.entries[i].value)
	}
	if v.kind != text || t.full() {
		return
	}
	if mark := marks.FindString(v.text); mark != "" {
		t.add(Fault{Code: "REFERENCE_NOT_FILLED", Place: t.placeOf(v, mark), Path: v.path(), Message: "references are not filled in here: " + clip(mark),
			Hint: "put it into a prompt, a template or an argument; rules compare fields with plain values"})
	}
}

// schema is the JSON Schema of a key. Keys and values that are no schema are the properties of an
// object, all of which must be there: `{topic: {type: string}}`.
func (o *object) schema(key string) json.RawMessage {
	v := o.value(key)
	if v == nil || !o.t.is(v, mapping) {
		return nil
	}
	kind := v.get("type")
	isSchema := kind != nil && (kind.kind == text || kind.kind == list)
	for i := range v.entries {
		isSchema = isSchema || slices.Contains(schemaKeys, v.entries[i].key)
	}
	if isSchema {
		return v.json()
	}
	required := make([]string, len(v.entries))
	for i := range v.entries {
		required[i] = literal(v.entries[i].key)
	}
	return json.RawMessage(`{"type":"object","required":[` + strings.Join(required, ",") + `],"properties":` + string(v.json()) + `}`)
}

// closed is a schema's properties, and those of them that must be there. ok is false unless these are
// all that the schema says of which properties there are.
func closed(schema json.RawMessage) (properties map[string]bool, ok bool) {
	var parts map[string]json.RawMessage
	if json.Unmarshal(schema, &parts) != nil {
		return nil, false
	}
	for _, key := range []string{"$ref", "patternProperties", "anyOf", "oneOf", "allOf", "if", "dependentSchemas"} {
		if _, there := parts[key]; there {
			return nil, false
		}
	}
	if more := parts["additionalProperties"]; more != nil && string(more) != "false" {
		return nil, false
	}
	var names map[string]json.RawMessage
	var required []string
	if json.Unmarshal(parts["properties"], &names) != nil || len(names) == 0 {
		return nil, false
	}
	_ = json.Unmarshal(parts["required"], &required) // one that is no list is the schema's fault
	properties = make(map[string]bool, len(names))
	for name := range names {
		properties[name] = false
	}
	for _, name := range required {
		if _, there := properties[name]; there {
			properties[name] = true
		}
	}
	return properties, true
}

// schemaKeys are keys by which a mapping is known to be a schema, besides `type`.
var schemaKeys = []string{"$schema", "$ref", "$defs", "properties", "patternProperties", "anyOf", "oneOf", "allOf"}

// maxNearest is with how many words a misspelled one is compared.
const maxNearest = 1000

// nearest is the word that is most like a misspelled one, or "".
func nearest(word string, among []string) string {
	if len(word) < 3 {
		return "" // it is like any other short word
	}
	best, most := "", len(word)/3
	for _, w := range among[:min(len(among), maxNearest)] {
		if d, ok := near.Within(strings.ToLower(word), w, most); ok {
			best, most = w, d-1
		}
	}
	return best
}

// words joins words for a sentence: "`a`, `b` or `c`".
func words(list []string, last string) string {
	quoted := make([]string, len(list))
	for i, w := range list {
		quoted[i] = "`" + w + "`"
	}
	if len(quoted) < 2 {
		return strings.Join(quoted, "")
	}
	n := len(quoted) - 1
	return strings.Join(quoted[:n], ", ") + " " + last + " " + quoted[n]
}
