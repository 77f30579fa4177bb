package workgraph

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// celJSON writes a CEL value as JSON.
func celJSON(v ref.Val) (json.RawMessage, error) {
	w := celWriter{left: maxExprValues}
	if err := w.value(v, 0); err != nil {
		return nil, err
	}
	return w.b, nil
}

// maxExprResult bounds the bytes of JSON that one expression gives, and maxExprValues the values in it.
const (
	maxExprResult = 16 << 20
	maxExprValues = 2 << 20
)

// celWriter writes JSON within the limits.
type celWriter struct {
	b    []byte
	left int // values that may still be written
}

func (w *celWriter) value(v ref.Val, depth int) (err error) {
	if depth > 1000 {
		return errors.New("value is nested too deeply")
	}
	if w.left--; w.left < 0 {
		return fmt.Errorf("the result has more than %d values", maxExprValues)
	}
	switch x := v.(type) {
	case types.Null:
		w.b = append(w.b, "null"...)
	case types.Bool:
		w.b = strconv.AppendBool(w.b, bool(x))
	case types.Int:
		w.b = appendInt(w.b, int64(x))
	case types.Uint:
		w.b = appendUint(w.b, uint64(x))
	case types.Double:
		w.b, err = appendFloat(w.b, float64(x))
	case types.String:
		err = w.text(string(x))
	case types.Bytes:
		if err = w.room(len(x)); err == nil {
			err = w.text(base64.StdEncoding.EncodeToString(x))
		}
	case traits.Lister:
		return w.list(x, depth)
	case traits.Mapper:
		return w.object(x, depth)
	case *types.Err:
		return x
	case types.Timestamp, types.Duration:
		s, ok := v.ConvertToType(types.StringType).(types.String)
		if !ok {
			return fmt.Errorf("a %s has no JSON form", v.Type().TypeName())
		}
		err = w.text(string(s))
	default:
		return fmt.Errorf("a %s has no JSON form", v.Type().TypeName())
	}
	return err
}

// room is an error if n more bytes are too many.
func (w *celWriter) room(n int) error {
	if len(w.b)+n > maxExprResult {
		return fmt.Errorf("the result is longer than %d bytes", maxExprResult)
	}
	return nil
}

func (w *celWriter) text(s string) (err error) {
	if err = w.room(len(s)); err != nil {
		return err
	}
	w.b, err = appendString(w.b, s)
	return err
}

func (w *celWriter) list(l traits.Lister, depth int) error {
	n := int(l.Size().(types.Int))
	if n > w.left {
		return fmt.Errorf("the result has more than %d values", maxExprValues)
	}
	w.b = append(w.b, '[')
	for i := range n {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		if err := w.value(l.Get(types.Int(i)), depth+1); err != nil {
			return err
		}
	}
	w.b = append(w.b, ']')
	return nil
}

func (w *celWriter) object(m traits.Mapper, depth int) error {
	fields := map[string]ref.Val{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		k := it.Next()
		ks, ok := k.ConvertToType(types.StringType).(types.String)
		if !ok {
			return fmt.Errorf("a map key of type %s has no JSON form", k.Type().TypeName())
		}
		fields[string(ks)] = m.Get(k)
	}
	w.b = append(w.b, '{')
	for i, k := range sortedKeys(fields) {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		if err := w.text(k); err != nil {
			return err
		}
		w.b = append(w.b, ':')
		if err := w.value(fields[k], depth+1); err != nil {
			return err
		}
	}
	w.b = append(w.b, '}')
	return nil
}
