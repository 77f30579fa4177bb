package conf

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/goccy/go-yaml/ast"
)

var (
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
	durationType = reflect.TypeFor[time.Duration]()
)

// leaf is one setting: a value that flags and the environment can name.
type leaf struct {
	key   string
	help  string
	value reflect.Value
	// stored, if not nil, must be called after value was changed: value is a copy of what a map holds.
	stored func()
	// parts says that the settings in this value are leaves of their own.
	parts bool
}

// Defaulter is an item of a map or list with defaults of its own, which are set before it is read.
type Defaulter interface{ SetDefaults() }

var defaulterType = reflect.TypeFor[Defaulter]()

// newItem is a settable value of an item's type with its defaults.
func newItem(t reflect.Type) reflect.Value {
	v := reflect.New(t)
	if v.Type().Implements(defaulterType) {
		v.Interface().(Defaulter).SetDefaults()
	}
	return v.Elem()
}

// named reports whether a type is a map of structs by name, whose items are settings with keys of their own.
func named(t reflect.Type) bool {
	return t.Kind() == reflect.Map && t.Key().Kind() == reflect.String && t.Elem().Kind() == reflect.Struct && !isScalar(t.Elem())
}

type field struct {
	name  string
	help  string
	value reflect.Value
	// json says that the value is a JSON text, which a file may state as keys and values, too.
	json bool
}

// fields lists the settings of a struct in declared order, embedded ones inlined.
func fields(v reflect.Value) []field {
	var out []field
	for i := range v.NumField() {
		sf := v.Type().Field(i)
		tag := sf.Tag.Get("conf")
		if tag == "-" || (!sf.IsExported() && !sf.Anonymous) {
			continue
		}
		if sf.Anonymous && tag == "" && sf.Type.Kind() == reflect.Struct {
			out = append(out, fields(v.Field(i))...)
			continue
		}
		if tag == "" {
			tag = snake(sf.Name)
		}
		out = append(out, field{name: tag, help: sf.Tag.Get("help"), value: v.Field(i), json: sf.Tag.Get("format") == "json"})
	}
	return out
}

func leaves(v reflect.Value, prefix string) []leaf {
	var out []leaf
	for _, f := range fields(v) {
		key := join(prefix, f.name)
		switch {
		case f.value.Kind() == reflect.Struct && !isScalar(f.value.Type()):
			out = append(out, leaves(f.value, key)...)
		case named(f.value.Type()):
			out = append(out, leaf{key: key, help: f.help, value: f.value, parts: f.value.Len() > 0})
			out = append(out, itemLeaves(f.value, key)...)
		default:
			out = append(out, leaf{key: key, help: f.help, value: f.value})
		}
	}
	return out
}

// itemLeaves lists the settings of the items of a map, by name.
func itemLeaves(m reflect.Value, key string) []leaf {
	var out []leaf
	names := m.MapKeys()
	slices.SortFunc(names, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for _, name := range names {
		item := newItem(m.Type().Elem())
		item.Set(m.MapIndex(name))
		for _, l := range leaves(item, join(key, name.String())) {
			inner := l.stored
			l.stored = func() {
				if inner != nil {
					inner()
				}
				m.SetMapIndex(name, item)
			}
			out = append(out, l)
		}
	}
	return out
}

// decoder copies a YAML tree into a value; faults carry the node, hence the line.
type decoder struct {
	fault func(n ast.Node, key, reason, format string, args ...any)
}

func (d decoder) value(v reflect.Value, n ast.Node, key string) {
	switch t := n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		d.fault(n, key, ReasonBadValue, "anchors, aliases and tags are not supported")
		return
	case *ast.NullNode:
		v.SetZero()
		return
	case *ast.LiteralNode:
		n = t.Value
	}
	if isScalar(v.Type()) {
		s, ok := n.(ast.ScalarNode)
		if !ok {
			d.fault(n, key, ReasonBadValue, "expected a single value, got a %s", strings.ToLower(n.Type().String()))
			return
		}
		text := s.GetToken().Value
		if str, ok := n.(*ast.StringNode); ok {
			text = str.Value
		}
		if err := setScalar(v, text); err != nil {
			d.fault(n, key, ReasonBadValue, "%v", err)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.object(v, n, key)
	case reflect.Map:
		d.dict(v, n, key)
	case reflect.Slice:
		seq, ok := n.(*ast.SequenceNode)
		if !ok {
			d.fault(n, key, ReasonBadValue, "expected a list")
			return
		}
		out := reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values))
		for i, item := range seq.Values {
			out.Index(i).Set(newItem(v.Type().Elem()))
			d.value(out.Index(i), item, key+"["+strconv.Itoa(i)+"]")
		}
		v.Set(out)
	default:
		d.fault(n, key, ReasonBadValue, "settings of type %s are not supported", v.Type())
	}
}

func (d decoder) object(v reflect.Value, n ast.Node, key string) {
	entries, ok := mapping(n)
	if !ok {
		d.fault(n, key, ReasonBadValue, "expected keys and values")
		return
	}
	known := map[string]field{}
	var names []string
	for _, f := range fields(v) {
		known[f.name] = f
		names = append(names, f.name)
	}
	for _, e := range entries {
		name := e.Key.GetToken().Value
		f, ok := known[name]
		if !ok {
			d.fault(e.Key, join(key, name), ReasonUnknownKey, "unknown key%s", suggest(name, names))
			continue
		}
		if f.json && structured(e.Value) {
			d.jsonText(f.value, e.Value, join(key, name))
			continue
		}
		d.value(f.value, e.Value, join(key, name))
	}
}

// structured reports whether a node has parts.
func structured(n ast.Node) bool {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode:
		return true
	}
	return false
}

// jsonText sets a value to the JSON text of a YAML tree.
func (d decoder) jsonText(v reflect.Value, n ast.Node, key string) {
	var b strings.Builder
	if !d.writeJSON(&b, n, key) {
		return
	}
	if err := setScalar(v, b.String()); err != nil {
		d.fault(n, key, ReasonBadValue, "%v", err)
	}
}

// writeJSON writes a YAML tree as JSON, keys in their order. It reports whether all of it is JSON; if
// not, the fault is told.
func (d decoder) writeJSON(b *strings.Builder, n ast.Node, key string) bool {
	if entries, ok := mapping(n); ok {
		b.WriteByte('{')
		for i, e := range entries {
			if i > 0 {
				b.WriteByte(',')
			}
			name := e.Key.GetToken().Value
			b.WriteString(quoted(name) + ":")
			if !d.writeJSON(b, e.Value, join(key, name)) {
				return false
			}
		}
		b.WriteByte('}')
		return true
	}
	switch t := n.(type) {
	case *ast.SequenceNode:
		b.WriteByte('[')
		for i, item := range t.Values {
			if i > 0 {
				b.WriteByte(',')
			}
			if !d.writeJSON(b, item, key+"["+strconv.Itoa(i)+"]") {
				return false
			}
		}
		b.WriteByte(']')
	case *ast.NullNode:
		b.WriteString("null")
	case *ast.BoolNode:
		b.WriteString(strconv.FormatBool(t.Value))
	case *ast.IntegerNode, *ast.FloatNode:
		text := n.GetToken().Value
		if !json.Valid([]byte(text)) {
			d.fault(n, key, ReasonBadValue, "%s is no number in JSON; write it in decimal digits, or in quotes if it is a text", text)
			return false
		}
		b.WriteString(text)
	case *ast.StringNode:
		b.WriteString(quoted(t.Value))
	case *ast.LiteralNode:
		b.WriteString(quoted(t.Value.Value))
	default:
		d.fault(n, key, ReasonBadValue, "only values that JSON has are supported: no anchors, aliases, tags, .inf or .nan")
		return false
	}
	return true
}

// quoted is a text as JSON. Markup stays as it is.
func quoted(text string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // a text has a JSON form
	return strings.TrimSuffix(b.String(), "\n")
}

func (d decoder) dict(v reflect.Value, n ast.Node, key string) {
	entries, ok := mapping(n)
	if !ok || v.Type().Key().Kind() != reflect.String {
		d.fault(n, key, ReasonBadValue, "expected keys and values")
		return
	}
	out := reflect.MakeMap(v.Type())
	if named(v.Type()) { // items that are there keep what is not said of them
		for it := v.MapRange(); it.Next(); {
			out.SetMapIndex(it.Key(), it.Value())
		}
	}
	for _, e := range entries {
		name := e.Key.GetToken().Value
		item := newItem(v.Type().Elem())
		if was := out.MapIndex(reflect.ValueOf(name).Convert(v.Type().Key())); was.IsValid() && named(v.Type()) {
			item.Set(was)
		}
		d.value(item, e.Value, join(key, name))
		out.SetMapIndex(reflect.ValueOf(name).Convert(v.Type().Key()), item)
	}
	v.Set(out)
}

func mapping(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch t := n.(type) {
	case *ast.MappingNode:
		return t.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{t}, true
	}
	return nil, false
}

func isScalar(t reflect.Type) bool {
	if reflect.PointerTo(t).Implements(textType) {
		return true
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	}
	return false
}

// setScalar never puts the value of a Secret into an error, since it cannot fail for one.
func setScalar(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	if v.Type() == durationType {
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration, write for example 500ms, 30s or 1h", text)
		}
		v.SetInt(int64(d))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is not true or false", text)
		}
		v.SetBool(b)
	case reflect.Float32, reflect.Float64:
		f, err := strconv.ParseFloat(text, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
		v.SetFloat(f)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		i, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is not a whole number of this size", text)
		}
		v.SetInt(i)
	default:
		u, err := strconv.ParseUint(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is not a whole number >= 0 of this size", text)
		}
		v.SetUint(u)
	}
	return nil
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

// snake turns GRPCAddr into grpc_addr and MaxRecvBytes into max_recv_bytes.
func snake(s string) string {
	r := []rune(s)
	var b strings.Builder
	for i, c := range r {
		if unicode.IsUpper(c) && i > 0 &&
			(!unicode.IsUpper(r[i-1]) || (i+1 < len(r) && unicode.IsLower(r[i+1]))) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}
