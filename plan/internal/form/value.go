package form

// CodeUnclosed is the code of a fault where an end is missing: a bracket, a quote, or the end of a tag.
const CodeUnclosed = "UNCLOSED"

// Codes of other faults, as package plan names them.
const (
	codeUnbalanced   = "UNBALANCED"
	codeMalformed    = "MALFORMED"
	codeLimitReached = "LIMIT_REACHED"
)

// Kind is the kind of a node in a value tree.
type Kind uint8

// The kinds of values.
const (
	KindNull Kind = iota
	KindBool
	KindNumber
	KindString
	KindBare // an unquoted word
	KindList
	KindObject
	KindCall // Name(key=value, …), as Python prints objects
)

// Value is a node of the tree that JSON, Python literals, YAML, XML and tables share.
type Value struct {
	Kind     Kind
	Str      string // text of scalars, name of calls
	Items    []*Value
	Fields   []Field // of objects and calls; positional arguments of calls are items
	Off, End int
	In, Out  int32 // place of the content of a quoted string
	Open     bool  // its closing bracket is missing
}

// Field is a named part of an object.
type Field struct {
	Key string
	Off int
	Val *Value
}

// Fault is a fault at a place in or around a value tree. It becomes a diagnostic if the plan is read from
// this part. Serious faults are errors.
type Fault struct {
	Serious bool
	Code    string
	Off     int
	Element string
	Message string
	Hint    string
}

// Tree is one value found in the text.
type Tree struct {
	Root    *Value
	Faults  []Fault
	Quirks  int // number of tolerated deviations from JSON
	Python  bool
	YAML    bool
	CutOff  bool // the text ends inside the value
	AnyKeys bool
	// Texts is set if the notation does not distinguish texts from numbers: tables, XML, blocks of fields.
	Texts bool
	// Outer is the value with the string that this value was read from, or nil.
	Outer *Value
	// Apart is set on a list of values that stand separately in the text.
	Apart bool
	// Headless is set on a table whose first row holds no heads.
	Headless bool
	// Sequence is set if the root is a list of values that merely follow each other.
	Sequence bool
}

// Joined reports whether the values of a sequence are separated by commas, like those of a list.
func (t *Tree) Joined() bool {
	for _, f := range t.Faults {
		if f.Code == codeUnbalanced && f.Element == "[" {
			return true
		}
	}
	return false
}

// Parts returns the values of a sequence, at most 8, each with the faults inside it.
func (t *Tree) Parts() []*Tree {
	out := make([]*Tree, 0, min(len(t.Root.Items), 8))
	for i, v := range t.Root.Items[:min(len(t.Root.Items), 8)] {
		p := &Tree{Root: v, Quirks: t.Quirks, Python: t.Python, YAML: t.YAML, AnyKeys: t.AnyKeys, CutOff: t.CutOff && i == len(t.Root.Items)-1}
		for _, f := range t.Faults {
			if v.Off <= f.Off && f.Off < v.End {
				p.Faults = append(p.Faults, f)
			}
		}
		out = append(out, p)
	}
	return out
}

// LastKey returns the key of the value in which the text of t ends.
func (t *Tree) LastKey() string {
	key := ""
	for v := t.Root; v != nil; {
		switch {
		case len(v.Fields) > 0:
			key = v.Fields[len(v.Fields)-1].Key
			v = v.Fields[len(v.Fields)-1].Val
		case len(v.Items) > 0:
			v = v.Items[len(v.Items)-1]
		default:
			return key
		}
	}
	return key
}

// IsScalar reports whether v is a text, a number, a constant or null.
func (v *Value) IsScalar() bool { return v != nil && v.Kind <= KindBare }

// Get returns the value of the first of the keys that exists, or nil. Keys are compared without case, spaces,
// dashes and underscores.
func (v *Value) Get(keys ...string) *Value {
	if f := v.Field(keys...); f != nil {
		return f.Val
	}
	return nil
}

// Field returns the field of the first of the keys that exists, or nil. Keys are compared as by Get.
func (v *Value) Field(keys ...string) *Field {
	if v == nil || len(v.Fields) == 0 {
		return nil
	}
	for _, k := range keys {
		for i := range v.Fields {
			if SameKey(v.Fields[i].Key, k) {
				return &v.Fields[i]
			}
		}
	}
	return nil
}

// SameKey reports whether key equals want, a key in lower case without separators: "dependson" equals
// "Depends-On".
func SameKey(key, want string) bool {
	j := 0
	for i := range len(key) {
		c := key[i]
		switch {
		case c == '_' || c == '-' || c == ' ' || c == '.':
			continue
		case 'A' <= c && c <= 'Z':
			c |= 0x20
		}
		if j >= len(want) || want[j] != c {
			return false
		}
		j++
	}
	return j == len(want)
}

// Text returns the text of a scalar, or "" for anything else.
func (v *Value) Text() string {
	if !v.IsScalar() || v.Kind == KindNull {
		return ""
	}
	return v.Str
}
