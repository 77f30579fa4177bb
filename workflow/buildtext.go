package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file writes the text of a workflow that is written in Go. Structs are written by the tags `key`
// of their fields; fields that are empty are left out.

// sourcer has a form in the language that its fields alone do not say.
type sourcer interface{ source() any }

// pairs are keys and values in their order.
type pairs []pair

type pair struct {
	key   string
	value any
}

// keep is a value that is written even if it is empty.
type keep struct{ value any }

// pairsOf are the fields of a struct, or of what a pointer leads to.
func pairsOf(x any) pairs {
	v := reflect.Indirect(reflect.ValueOf(x))
	var out pairs
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch key := f.Tag.Get("key"); {
		case f.Anonymous:
			out = append(out, pairsOf(v.Field(i).Interface())...)
		case key != "":
			value := v.Field(i).Interface()
			if v.Field(i).Kind() == reflect.Interface && v.Field(i).Elem().Comparable() {
				value = keep{value} // `value: false` means something, and no list that is nil
			}
			out = append(out, pair{key, value})
		}
	}
	return out
}

// there reports whether a value is written: empty ones are not.
func there(x any) bool {
	v := reflect.ValueOf(x)
	if !v.IsValid() {
		return false
	}
	if list, ok := x.(pairs); ok {
		return len(list) > 0
	}
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		return !v.IsNil() // `needs: []` means something
	}
	_, kept := x.(keep)
	return kept || !v.IsZero()
}

// specWriter writes a workflow as JSON, keys in their order.
type specWriter struct {
	b   bytes.Buffer
	err error
}

// errTooDeep is the fault of a value that holds itself, or so much that it may.
var errTooDeep = errors.New("values are nested too deep")

// value writes a value.
func (w *specWriter) value(x any, deep int) {
	v := reflect.ValueOf(x)
	switch {
	case w.err != nil:
		return
	case deep > 4*maxDepth: // wrappers count, too: the reader counts what is written
		w.err = errTooDeep
		return
	case !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil():
		w.b.WriteString("null")
		return
	}
	switch one := x.(type) {
	case keep:
		w.value(one.value, deep+1)
	case pairs:
		w.pairs(one, deep)
	case sourcer:
		w.value(one.source(), deep+1)
	case time.Duration:
		writeText(&w.b, shortest(one))
	case json.RawMessage, []byte, json.Marshaler:
		w.marshal(x)
	default:
		w.plain(v, deep)
	}
}

// shortest is a time without parts that are 0, as people write it.
func shortest(d time.Duration) string {
	s := d.String()
	for _, part := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, part) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// plain writes a value that has no form of its own.
func (w *specWriter) plain(v reflect.Value, deep int) {
	switch v.Kind() {
	case reflect.Pointer:
		w.value(v.Elem().Interface(), deep+1)
	case reflect.Slice, reflect.Array:
		w.b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				w.b.WriteByte(',')
			}
			w.value(v.Index(i).Interface(), deep+1)
		}
		w.b.WriteByte(']')
	case reflect.Struct:
		p := reflect.New(v.Type())
		p.Elem().Set(v)
		if s, ok := p.Interface().(sourcer); ok {
			w.value(s.source(), deep+1)
		} else if list := pairsOf(p.Interface()); list != nil {
			w.pairs(list, deep)
		} else {
			w.marshal(v.Interface())
		}
	default:
		w.marshal(v.Interface())
	}
}

func (w *specWriter) marshal(x any) {
	raw, err := json.Marshal(x)
	w.err = errors.Join(w.err, err)
	w.b.Write(raw)
}

// pairs writes keys and values.
func (w *specWriter) pairs(list pairs, deep int) {
	w.b.WriteByte('{')
	n := 0
	for _, f := range list {
		if !there(f.value) {
			continue
		}
		if n++; n > 1 {
			w.b.WriteByte(',')
		}
		writeText(&w.b, f.key)
		w.b.WriteByte(':')
		w.value(f.value, deep+1)
	}
	w.b.WriteByte('}')
}

// written are the values and the text of a workflow.
func written(s *Spec) (v *value, text []byte, faults Faults) {
	w := &specWriter{}
	if w.value(s, 0); w.err != nil {
		return nil, nil, Faults{{Code: "BAD_ARGUMENT", Message: w.err.Error()}}
	}
	t := &teller{}
	if v = readSource(t, w.b.Bytes()); v == nil {
		return nil, nil, withoutLines(nil, t.faults)
	}
	return v, write(v), nil
}

// inLine is what some faults say of other places of the text.
var inLine = regexp.MustCompile(`, in line \d+`)

// withoutLines are faults of a text that nobody wrote: they name steps, agents and transitions, and no
// lines.
func withoutLines(v *value, faults Faults) Faults {
	out := slices.Clone(faults)
	for i := range out {
		f := &out[i]
		f.Place, f.Message, f.Path = Place{}, inLine.ReplaceAllString(f.Message, ""), called(v, f.Path)
	}
	return out
}

// called is a path with the names of items in place of their numbers, such as steps[split].prompt.
func called(v *value, path string) string {
	var b strings.Builder
	for path != "" && v != nil {
		if rest, is := strings.CutPrefix(path, "["); is {
			number, after, _ := strings.Cut(rest, "]")
			n, err := strconv.Atoi(number)
			if err != nil || n < 0 || n >= len(v.items) {
				break
			}
			v, path = v.items[n], after
			b.WriteString("[" + v.callName(number) + "]")
			continue
		}
		dot := len(path) - len(strings.TrimPrefix(path, "."))
		var found *entry
		for i := range v.entries {
			e := &v.entries[i]
			key := clip(e.key)
			ends := strings.HasPrefix(path[dot:], key) && (len(path) == dot+len(key) || strings.IndexByte(".[", path[dot+len(key)]) >= 0)
			if ends && (found == nil || len(e.key) > len(found.key)) {
				found = e
			}
		}
		if found == nil {
			break
		}
		end := dot + len(clip(found.key))
		b.WriteString(path[:end])
		v, path = found.value, path[end:]
	}
	return b.String() + path
}

// callName is what an item of a list is called, by the call that added it; else it has its number.
func (v *value) callName(number string) string {
	textOf := func(key string) string {
		if x := v.get(key); x != nil && x.kind == text {
			return clip(x.text)
		}
		return ""
	}
	switch {
	case textOf("id") != "":
		return textOf("id")
	case textOf("from") != "" && textOf("to") != "":
		return fmt.Sprintf("%s -> %s", textOf("from"), textOf("to"))
	case textOf("name") != "":
		return textOf("name")
	}
	return number
}
