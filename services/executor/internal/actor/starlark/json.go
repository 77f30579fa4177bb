package starlark

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	star "go.starlark.net/starlark"
)

// value is JSON as a script sees it. Objects keep the order of their keys, and integers their digits.
func (m *meter) value(raw json.RawMessage) (star.Value, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := m.read(d, maxDepth)
	if err != nil {
		return nil, err
	}
	if d.More() {
		return nil, fmt.Errorf("there is more after the value at byte %d", d.InputOffset())
	}
	return v, nil
}

func (m *meter) read(d *json.Decoder, depth int) (star.Value, error) {
	if depth == 0 {
		return nil, fmt.Errorf("JSON nested deeper than %d", maxDepth)
	}
	tok, err := d.Token()
	if err != nil {
		return nil, err
	}
	if err := m.work(nodesPerStep/4, 0); err != nil {
		return nil, err
	}
	switch tok := tok.(type) {
	case bool:
		return star.Bool(tok), nil
	case json.Number:
		return m.number(string(tok))
	case string:
		return star.String(tok), m.made(int64(len(tok)))
	case json.Delim:
		if tok == '[' {
			return m.readList(d, depth)
		}
		return m.readObject(d, depth)
	}
	return star.None, nil
}

func (m *meter) readList(d *json.Decoder, depth int) (star.Value, error) {
	var list []star.Value
	for d.More() {
		if err := m.made(sizeElement); err != nil {
			return nil, err
		}
		v, err := m.read(d, depth-1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := d.Token()
	return star.NewList(list), err
}

func (m *meter) readObject(d *json.Decoder, depth int) (star.Value, error) {
	if err := m.made(sizeTable); err != nil {
		return nil, err
	}
	dict := star.NewDict(0)
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := key.(string) // a key is one
		if err := m.made(sizeEntry + int64(len(name))); err != nil {
			return nil, err
		}
		v, err := m.read(d, depth-1)
		if err != nil {
			return nil, err
		}
		if err := dict.SetKey(star.String(name), v); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return dict, err
}

// number is an integer if it is written as one, else a float.
func (m *meter) number(text string) (star.Value, error) {
	if strings.ContainsAny(text, ".eE") {
		f, err := json.Number(text).Float64()
		if err != nil {
			return nil, fmt.Errorf("the number %.40s is too large", text)
		}
		return star.Float(f), nil
	}
	if len(text) > maxIntBits/3 {
		return nil, fmt.Errorf("a number has %d digits, at most %d can be read", len(text), maxIntBits/3)
	}
	if n, err := json.Number(text).Int64(); err == nil {
		return star.MakeInt64(n), nil
	}
	n, ok := new(big.Int).SetString(text, 10)
	if !ok {
		return nil, fmt.Errorf("%.40q is no number", text)
	}
	return star.MakeBigInt(n), m.made(int64(len(text)))
}

// encode is a value as JSON of at most so many bytes. Tuples, sets and ranges are lists.
func (m *meter) encode(v star.Value, most int64) (json.RawMessage, error) {
	w := &writer{m: m, most: min(most, m.most-m.used)}
	w.texts = json.NewEncoder(&w.Buffer)
	w.texts.SetEscapeHTML(false)
	if err := w.write(v, maxDepth); err != nil {
		return nil, err
	}
	return w.Bytes(), m.made(int64(w.Len()))
}

// writer writes values as JSON.
type writer struct {
	bytes.Buffer
	m     *meter
	texts *json.Encoder
	most  int64
}

func (w *writer) tooLarge() error {
	return &stop{ReasonMemory, fmt.Sprintf("a value has more than %d bytes as JSON", w.most)}
}

func (w *writer) write(v star.Value, depth int) error {
	switch {
	case depth == 0:
		return fmt.Errorf("a value is nested deeper than %d, or contains itself", maxDepth)
	case int64(w.Len()) > w.most:
		return w.tooLarge()
	}
	if err := w.m.work(nodesPerStep/2, 0); err != nil {
		return err
	}
	switch v := v.(type) {
	case star.NoneType:
		w.WriteString("null")
	case star.Bool:
		w.WriteString(strconv.FormatBool(bool(v)))
	case star.Int:
		w.WriteString(v.String())
	case star.Float:
		return w.float(float64(v))
	case star.String:
		return w.text(string(v))
	case *star.Dict:
		return w.dict(v, depth)
	case star.Iterable:
		return w.list(v, depth)
	default:
		return fmt.Errorf("a %s cannot be written as JSON", v.Type())
	}
	return nil
}

func (w *writer) float(f float64) error {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return fmt.Errorf("the float %v cannot be written as JSON", f)
	}
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	w.Write(text)
	if !bytes.ContainsAny(text, ".eE") { // it stays a float for the next reader
		w.WriteString(".0")
	}
	return nil
}

func (w *writer) text(s string) error {
	if int64(len(s)) > w.most {
		return w.tooLarge()
	}
	err := w.texts.Encode(s)
	w.Truncate(w.Len() - 1) // the line break
	return err
}

func (w *writer) dict(d *star.Dict, depth int) error {
	w.WriteByte('{')
	first := true
	for k, v := range d.Entries() {
		name, ok := k.(star.String)
		if !ok {
			return fmt.Errorf("a key of an object is a text, not a %s: use str(key)", k.Type())
		}
		if !first {
			w.WriteByte(',')
		}
		first = false
		if err := w.text(string(name)); err != nil {
			return err
		}
		w.WriteByte(':')
		if err := w.write(v, depth-1); err != nil {
			return err
		}
	}
	w.WriteByte('}')
	return nil
}

func (w *writer) list(list star.Iterable, depth int) error {
	w.WriteByte('[')
	first := true
	for v := range star.Elements(list) {
		if !first {
			w.WriteByte(',')
		}
		first = false
		if err := w.write(v, depth-1); err != nil {
			return err
		}
	}
	w.WriteByte(']')
	return nil
}

func (m *meter) jsonEncode(_ *star.Thread, b *star.Builtin, args star.Tuple, kwargs []star.Tuple) (star.Value, error) {
	var v star.Value
	if err := star.UnpackPositionalArgs(b.Name(), args, kwargs, 1, &v); err != nil {
		return nil, err
	}
	raw, err := m.encode(v, m.most)
	return star.String(raw), err
}

func (m *meter) jsonDecode(_ *star.Thread, b *star.Builtin, args star.Tuple, kwargs []star.Tuple) (star.Value, error) {
	var text string
	if err := star.UnpackPositionalArgs(b.Name(), args, kwargs, 1, &text); err != nil {
		return nil, err
	}
	if err := m.work(0, int64(len(text))); err != nil {
		return nil, err
	}
	return m.value(json.RawMessage(text))
}
