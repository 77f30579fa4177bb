package form

// Codes of faults, as package plan names them.
const (
	codeUnclosed     = "UNCLOSED"
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
	KindBare // a word without quotes
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
	In, Out  int32 // where the text of a quoted string stands
	Open     bool  // its closing bracket was never found
}

// Field is a named part of an object.
type Field struct {
	Key string
	Off int
	Val *Value
}

// Fault is something wrong at a place of a value tree. It becomes a diagnostic if the plan is read from
// around it. Serious faults are errors.
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
	Quirks  int // how often syntax beyond JSON was tolerated
	Python  bool
	YAML    bool
	CutOff  bool // the text ended inside
	AnyKeys bool
	// Texts is set where no sign tells texts from numbers: tables, XML, blocks of fields.
	Texts bool
	// Outer is the value around the text that this value was read out of, or nil.
	Outer *Value
	// Apart is set on a list of values that stand one by one in the text.
	Apart bool
	// Headless is set on a table whose first row holds no heads.
	Headless bool
	// Sequence is set when the root is a list of values that merely follow each other.
	Sequence bool
}

// Joined reports whether the values of a sequence are separated by commas, as those of a list are.
func (t *Tree) Joined() bool {
	for _, f := range t.Faults {
		if f.Code == codeUnbalanced && f.Element == "[" {
			return true
		}
	}
	return false
}

// Parts returns the values of a sequence, each with the faults inside it.
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

// LastKey returns the key at which the text of t ends.
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

// Get returns the value of the first of the keys that is there; keys compare without case, spaces, dashes and
// underscores.
func (v *Value) Get(keys ...string) *Value {
	if f := v.Field(keys...); f != nil {
		return f.Val
	}
	return nil
}

// Field returns the first of the keys that is there, or nil; keys compare as those of Get.
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

// SameKey reports whether key is want, a key in lower case without separators, as "dependson" for
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
