// Package typing says what is known of a value before there is one: which kinds it may have, and what
// its fields and items are. What is not known is compatible with everything. The package knows JSON
// and JSON Schema only.
package typing

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Kinds is a set of kinds of JSON values. The empty set stands for any of them.
type Kinds uint8

// The kinds. A number that is not whole is a Fraction.
const (
	Null Kinds = 1 << iota
	Boolean
	Integer
	Fraction
	String
	Array
	Object

	Any    Kinds = 0
	Number       = Integer | Fraction
)

// Type is what is known of a value. The zero value means that nothing is.
type Type struct {
	Kinds Kinds
	// Items is that of the items of an array, nil if it is not known.
	Items *Type
	// Fields are those of an object, nil if they are not known.
	Fields *Fields
}

// Fields are those of an object.
type Fields struct {
	Of map[string]Type
	// Open says that there may be others.
	Open bool
}

// List is a list of such items.
func List(items Type) Type { return Type{Kinds: Array, Items: &items} }

// Record is an object that has these fields and no others.
func Record(of map[string]Type) Type { return Type{Kinds: Object, Fields: &Fields{Of: of}} }

// Of is a value of some kinds.
func Of(kinds Kinds) Type { return Type{Kinds: kinds} }

// May reports whether the value may be of one of some kinds.
func (t Type) May(kinds Kinds) bool { return t.Kinds == Any || kinds == Any || t.Kinds&kinds != 0 }

// Fits reports whether a value of another type may be of this one, as far as both are known. A field
// that one of them does not have says nothing.
func (t Type) Fits(given Type) bool { return t.fits(given, 0) }

func (t Type) fits(given Type, deep int) bool {
	switch {
	case t.Kinds == Any || given.Kinds == Any || deep > maxDeep:
		return true
	case t.Kinds&given.Kinds == 0:
		return false
	case given.Kinds == Array && t.Items != nil && given.Items != nil:
		return t.Items.fits(*given.Items, deep+1)
	case given.Kinds == Object && t.Fields != nil && given.Fields != nil:
		for name, is := range given.Fields.Of {
			if own, ok := t.Fields.Of[name]; ok && !own.fits(is, deep+1) {
				return false
			}
		}
	}
	return true
}

// maxDeep bounds how deep types are put together.
const maxDeep = 8

// Or is a value that is one or the other.
func (t Type) Or(other Type) Type { return t.or(other, 0) }

func (t Type) or(other Type, deep int) Type {
	if t.Kinds == Any || other.Kinds == Any || deep > maxDeep {
		return Type{}
	}
	out := Type{Kinds: t.Kinds | other.Kinds}
	switch {
	case t.Kinds&Array == 0:
		out.Items = other.Items
	case other.Kinds&Array == 0 || t.Items == other.Items:
		out.Items = t.Items
	case t.Items != nil && other.Items != nil:
		items := t.Items.or(*other.Items, deep+1)
		out.Items = &items
	}
	switch {
	case t.Kinds&Object == 0:
		out.Fields = other.Fields
	case other.Kinds&Object == 0 || t.Fields == other.Fields:
		out.Fields = t.Fields
	}
	return out
}

// String names the kinds: "a text or a list".
func (t Type) String() string {
	if t.Kinds == Any {
		return "anything"
	}
	kinds := t.Kinds
	var names []string
	for _, k := range []struct {
		of   Kinds
		name string
	}{{String, "a text"}, {Number, "a number"}, {Integer, "a whole number"}, {Fraction, "a number"}, {Boolean, "true or false"}, {Array, "a list"}, {Object, "keys and values"}, {Null, "nothing"}} {
		if kinds&k.of == k.of {
			kinds &^= k.of
			names = append(names, k.name)
		}
	}
	if len(names) == 1 {
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// OfJSON is the type of a value that is there.
func OfJSON(raw json.RawMessage) Type {
	switch raw = json.RawMessage(strings.TrimSpace(string(raw))); {
	case len(raw) == 0:
		return Type{}
	case raw[0] == '"':
		return Of(String)
	case raw[0] == '[':
		return Of(Array)
	case raw[0] == '{':
		return Of(Object)
	case raw[0] == 't' || raw[0] == 'f':
		return Of(Boolean)
	case raw[0] == 'n':
		return Of(Null)
	case strings.ContainsAny(string(raw), ".eE"):
		return Of(Fraction)
	}
	return Of(Integer)
}

// Named is a type of JSON Schema by its name. A name that there is not means anything.
func Named(name string) Type {
	switch name {
	case "null":
		return Of(Null)
	case "boolean":
		return Of(Boolean)
	case "integer":
		return Of(Integer)
	case "number":
		return Of(Number)
	case "string":
		return Of(String)
	case "array":
		return Of(Array)
	case "object":
		return Of(Object)
	}
	return Type{}
}

// opaque are keywords of a schema that this package does not look into.
var opaque = []string{"$ref", "$dynamicRef", "patternProperties", "anyOf", "oneOf", "allOf", "if", "dependentSchemas"}

// maxSchema bounds how deep schemas are read.
const maxSchema = 16

// OfSchema is the type of values that satisfy a schema. A schema that lists properties and says
// nothing of others is taken to mean that there are no others.
func OfSchema(schema json.RawMessage) Type { return ofSchema(schema, 0) }

func ofSchema(schema json.RawMessage, deep int) Type {
	var parts map[string]json.RawMessage
	if deep > maxSchema || json.Unmarshal(schema, &parts) != nil {
		return Type{}
	}
	for _, key := range opaque {
		if parts[key] != nil {
			return Type{}
		}
	}
	t := Type{Kinds: kindsOf(parts)}
	if t.Kinds == Any {
		return t
	}
	if t.Kinds&Array != 0 && parts["items"] != nil && parts["prefixItems"] == nil {
		items := ofSchema(parts["items"], deep+1)
		t.Items = &items
	}
	if t.Kinds&Object != 0 {
		t.Fields = fieldsOf(parts, deep)
	}
	return t
}

// kindsOf are the kinds that a schema allows.
func kindsOf(parts map[string]json.RawMessage) Kinds {
	var name string
	if json.Unmarshal(parts["type"], &name) == nil {
		return Named(name).Kinds
	}
	var names []string
	var kinds Kinds
	_ = json.Unmarshal(parts["type"], &names) // none means that it is not given
	for _, name := range names {
		one := Named(name).Kinds
		if one == Any {
			return Any
		}
		kinds |= one
	}
	if parts["type"] != nil {
		return kinds
	}
	var values []json.RawMessage
	if parts["const"] != nil {
		values = []json.RawMessage{parts["const"]}
	} else {
		_ = json.Unmarshal(parts["enum"], &values) // none means that it is not given
	}
	for _, v := range values {
		kinds |= OfJSON(v).Kinds
	}
	return kinds
}

// fieldsOf are the fields that a schema names, nil if it names none.
func fieldsOf(parts map[string]json.RawMessage, deep int) *Fields {
	var properties map[string]json.RawMessage
	if json.Unmarshal(parts["properties"], &properties) != nil || len(properties) == 0 {
		return nil
	}
	more := parts["additionalProperties"]
	f := &Fields{Of: make(map[string]Type, len(properties)), Open: more != nil && string(more) != "false"}
	for name, schema := range properties {
		f.Of[name] = ofSchema(schema, deep+1)
	}
	var required []string
	_ = json.Unmarshal(parts["required"], &required) // one that is no list is the schema's fault
	for _, name := range required {
		if _, there := f.Of[name]; !there {
			f.Of[name] = Type{Kinds: Any}
		}
	}
	return f
}

// Names are the names of the fields, sorted.
func (f *Fields) Names() []string { return slices.Sorted(maps.Keys(f.Of)) }

// Fitting is a field that is of one of some kinds for sure, the first by name. Empty if there is none.
func (f *Fields) Fitting(kinds Kinds) string {
	if f == nil {
		return ""
	}
	for _, name := range f.Names() {
		if t := f.Of[name]; t.Kinds != Any && t.Kinds&^kinds == 0 {
			return name
		}
	}
	return ""
}
