package plan

// valueKind is the kind of a node in a value tree.
type valueKind uint8

const (
	kindNull valueKind = iota
	kindBool
	kindNumber
	kindString
	kindBare // a word without quotes
	kindList
	kindObject
	kindCall // Name(key=value, …), as Python prints objects
)

// value is a node of the tree that JSON, Python literals and YAML share.
type value struct {
	kind     valueKind
	str      string // text of scalars, name of calls
	items    []*value
	fields   []field // of objects and calls; positional arguments of calls are items
	off, end int
	in, out  int32 // where the text of a quoted string stands
	open     bool  // its closing bracket was never found
}

type field struct {
	key string
	off int
	val *value
}

// fault is something wrong at a place of a value tree. It becomes a diagnostic if the plan is read from around it.
type fault struct {
	sev     Severity
	code    Code
	off     int
	element string
	message string
	hint    string
}

// tree is one value found in the text.
type tree struct {
	root    *value
	faults  []fault
	quirks  int // how often syntax beyond JSON was tolerated
	python  bool
	yaml    bool
	cutOff  bool // the text ended inside
	anyKeys bool
	// sequence is set when the root is a list of values that merely follow each other.
	sequence bool
}

// joined reports whether the values of a sequence are separated by commas, as those of a list are.
func (t *tree) joined() bool {
	for _, f := range t.faults {
		if f.code == Unbalanced && f.element == "[" {
			return true
		}
	}
	return false
}

// parts returns the values of a sequence, each with the faults inside it.
func (t *tree) parts() []*tree {
	out := make([]*tree, 0, min(len(t.root.items), 8))
	for i, v := range t.root.items[:min(len(t.root.items), 8)] {
		p := &tree{root: v, quirks: t.quirks, python: t.python, yaml: t.yaml, anyKeys: t.anyKeys, cutOff: t.cutOff && i == len(t.root.items)-1}
		for _, f := range t.faults {
			if v.off <= f.off && f.off < v.end {
				p.faults = append(p.faults, f)
			}
		}
		out = append(out, p)
	}
	return out
}

// lastKey returns the key at which the text of t ends.
func (t *tree) lastKey() string {
	key := ""
	for v := t.root; v != nil; {
		switch {
		case len(v.fields) > 0:
			key = v.fields[len(v.fields)-1].key
			v = v.fields[len(v.fields)-1].val
		case len(v.items) > 0:
			v = v.items[len(v.items)-1]
		default:
			return key
		}
	}
	return key
}

func (v *value) isScalar() bool { return v != nil && v.kind <= kindBare }

// get returns the value of the first of the keys that is there; keys compare without case, spaces, dashes and underscores.
func (v *value) get(keys ...string) *value {
	if f := v.field(keys...); f != nil {
		return f.val
	}
	return nil
}

func (v *value) field(keys ...string) *field {
	if v == nil || len(v.fields) == 0 {
		return nil
	}
	for _, k := range keys {
		for i := range v.fields {
			if sameKey(v.fields[i].key, k) {
				return &v.fields[i]
			}
		}
	}
	return nil
}

// sameKey reports whether key is want, a key in lower case without separators, as "dependson" for "Depends-On".
func sameKey(key, want string) bool {
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

// text returns the text of a scalar, or "" for anything else.
func (v *value) text() string {
	if !v.isScalar() || v.kind == kindNull {
		return ""
	}
	return v.str
}
