package workgraph

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// exact holds the keywords that compare whole values: enum, const and uniqueItems. The library compares every
// value with every other one and parses numbers each time. Here each value is written in a form that is the
// same exactly for equal values, and looked up.
type exact struct {
	enum   map[string]struct{}
	among  []any
	one    string
	only   *any
	unique bool
}

func exactValues(s *jsonschema.Schema) *exact {
	x := &exact{only: s.Const, unique: s.UniqueItems}
	if s.Enum != nil {
		x.among, x.enum = s.Enum.Values, make(map[string]struct{}, len(s.Enum.Values))
		for _, v := range s.Enum.Values {
			x.enum[string(appendExact(nil, v))] = struct{}{}
		}
	}
	if x.only != nil {
		x.one = string(appendExact(nil, *x.only))
	}
	return x
}

// Validate implements jsonschema.SchemaExt.
func (x *exact) Validate(ctx *jsonschema.ValidatorContext, v any) {
	if x.enum != nil || x.only != nil {
		form := appendExact(nil, v)
		if x.only != nil && string(form) != x.one {
			ctx.AddError(&kind.Const{Got: v, Want: *x.only})
		}
		if x.enum != nil {
			if _, ok := x.enum[string(form)]; !ok {
				ctx.AddError(&kind.Enum{Got: v, Want: x.among})
			}
		}
	}
	list, ok := v.([]any)
	if !ok || !x.unique {
		return
	}
	first := make(map[string]int, len(list))
	var form []byte
	for i, el := range list {
		form = appendExact(form[:0], el)
		if j, ok := first[string(form)]; ok {
			ctx.AddError(&kind.UniqueItems{Duplicates: [2]int{j, i}})
			return
		}
		first[string(form)] = i
	}
}

// appendExact writes v. Two values have the same form exactly if JSON Schema considers them equal.
func appendExact(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, 'n')
	case bool:
		if v {
			return append(b, 't')
		}
		return append(b, 'f')
	case string:
		b = append(strconv.AppendInt(append(b, '"'), int64(len(v)), 10), ':')
		return append(b, v...)
	case json.Number:
		return append(appendNumber(b, string(v)), ';')
	case []any:
		b = append(b, '[')
		for _, el := range v {
			b = appendExact(b, el)
		}
		return append(b, ']')
	case map[string]any:
		b = append(b, '{')
		for _, k := range slices.Sorted(maps.Keys(v)) {
			b = appendExact(appendExact(b, k), v[k])
		}
		return append(b, '}')
	}
	return append(b, '?') // cannot happen: nothing else comes from JSON
}

// appendNumber writes a JSON number as its digits, without zeros at either end, and the exponent of the last
// digit.
func appendNumber(b []byte, n string) []byte {
	n, negative := strings.CutPrefix(n, "-")
	n = strings.ToLower(n)
	mantissa, exponent, _ := strings.Cut(n, "e")
	exp, _ := strconv.Atoi(exponent) // wildNumber has accepted the number
	whole, fraction, _ := strings.Cut(mantissa, ".")
	exp -= len(fraction)
	digits := strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return append(b, '0')
	}
	exp += len(digits) - len(short)
	if negative {
		b = append(b, '-')
	}
	b = append(append(b, short...), 'e')
	return strconv.AppendInt(b, int64(exp), 10)
}
