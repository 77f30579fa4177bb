package workgraph

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

var (
	rawNull = json.RawMessage("null")
	rawList = json.RawMessage("[]")
	rawZero = json.RawMessage("0")
)

// decodeJSON decodes raw into nil, bool, string, int64, uint64, float64, []any and map[string]any.
func decodeJSON(raw json.RawMessage) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data after the value")
	}
	return exactNumbers(v)
}

func exactNumbers(v any) (any, error) {
	var err error
	switch x := v.(type) {
	case json.Number:
		return exactNumber(string(x))
	case []any:
		for i := range x {
			if x[i], err = exactNumbers(x[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k, e := range x {
			if x[k], err = exactNumbers(e); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// exactNumber reads an integer exactly if it fits into 64 bits, and as a double otherwise.
func exactNumber(s string) (any, error) {
	if !strings.ContainsAny(s, ".eE") {
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return i, nil
		}
		if u, err := strconv.ParseUint(s, 10, 64); err == nil {
			return u, nil
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return nil, fmt.Errorf("number %s is out of range", s)
	}
	return f, nil
}

func appendInt(b []byte, i int64) []byte { return strconv.AppendInt(b, i, 10) }

func appendUint(b []byte, u uint64) []byte { return strconv.AppendUint(b, u, 10) }

// appendFloat writes a double so that it is not read back as an integer.
func appendFloat(b []byte, f float64) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, errors.New("a double that is not finite has no JSON form")
	}
	n := len(b)
	b = strconv.AppendFloat(b, f, 'g', -1, 64)
	if !bytes.ContainsAny(b[n:], ".eE") {
		b = append(b, ".0"...)
	}
	return b, nil
}

func appendString(b []byte, s string) ([]byte, error) {
	q, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return append(b, q...), nil
}

// joinList writes raw values as one JSON list.
func joinList(vals []json.RawMessage) json.RawMessage {
	if len(vals) == 0 {
		return rawList
	}
	n := 1 + len(vals)
	for _, v := range vals {
		n += len(v)
	}
	b := append(make([]byte, 0, n), '[')
	for i, v := range vals {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, v...)
	}
	return append(b, ']')
}

// joinMap writes raw values as one JSON object, sorted by name.
func joinMap(m map[string]json.RawMessage) json.RawMessage {
	n := 2
	for k, v := range m {
		n += len(k) + len(v) + 8
	}
	b := append(make([]byte, 0, n), '{')
	for i, k := range sortedKeys(m) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, textJSON(k)...), ':'), m[k]...)
	}
	return append(b, '}')
}

// textJSON is a text as JSON.
func textJSON(s string) json.RawMessage {
	b, err := appendString(nil, s)
	if err != nil {
		return json.RawMessage(`""`) // cannot happen: texts can always be written
	}
	return b
}

// splitList reads the elements of a JSON list. ok is false if raw is no list.
func splitList(raw json.RawMessage) (items []json.RawMessage, ok bool) {
	t := bytes.TrimLeft(raw, " \t\r\n")
	if len(t) == 0 || t[0] != '[' {
		return nil, false
	}
	items = []json.RawMessage{}
	err := json.Unmarshal(raw, &items)
	return items, err == nil
}

// splitObject reads the members of a JSON object, as parts of raw itself. raw must be a valid object.
func splitObject(raw json.RawMessage) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for i := bytes.IndexByte(raw, '{') + 1; ; i++ {
		if i = afterSpace(raw, i); raw[i] == '}' {
			return out
		}
		end := afterValue(raw, i)
		var name string
		if json.Unmarshal(raw[i:end], &name) != nil {
			return out // cannot happen: names are texts
		}
		from := afterSpace(raw, afterSpace(raw, end)+1) // behind the colon
		end = afterValue(raw, from)
		out[name] = raw[from:end:end]
		if i = afterSpace(raw, end); raw[i] == '}' {
			return out
		}
	}
}

// afterSpace is the place of the next byte at or behind i that is no space.
func afterSpace(raw []byte, i int) int {
	for raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\n' || raw[i] == '\r' {
		i++
	}
	return i
}

// afterValue is the place behind the JSON value that begins at i.
func afterValue(raw []byte, i int) int {
	depth := 0
	for ; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth < 0 {
				return i // the end of what holds a number or a word
			}
		case ',', ' ', '\t', '\n', '\r', ':':
			if depth == 0 {
				return i
			}
			continue
		default:
			continue
		}
		if depth == 0 {
			return i + 1
		}
	}
	return i
}

// single is a visit's result as one value: null for none, the value for one, a list for a tuple.
func single(values []json.RawMessage) json.RawMessage {
	switch len(values) {
	case 0:
		return rawNull
	case 1:
		return values[0]
	default:
		return joinList(values)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
