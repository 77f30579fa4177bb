package starlark

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	starmath "go.starlark.net/lib/math"
	star "go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"github.com/epigraph-run/epigraph/internal/near"
)

// check counts a call before it is made. It may replace arguments, which are the call's own.
type check func(m *meter, recv star.Value, args star.Tuple, kwargs []star.Tuple) error

// constant is the check of a call whose cost does not depend on its arguments.
func constant(*meter, star.Value, star.Tuple, []star.Tuple) error { return nil }

// functions are the checks of the language's functions. One that is not listed does not exist for scripts.
var functions = map[string]check{
	"abs": constant, "bool": constant, "chr": constant, "dir": constant, "hasattr": constant, "len": constant, "ord": constant, "range": constant, "type": constant,
	"float": linear, "hash": linear, "int": digits,
	"str": prints, "repr": prints, "fail": prints, "print": prints,
	"any": gathers, "all": gathers, "bytes": gathers, "enumerate": gathers, "list": gathers, "reversed": gathers, "tuple": gathers, "zip": gathers,
	"max": orders, "min": orders, "sorted": orders,
	"set": fills, "dict": fills,
}

// methods are the checks of methods, by type. One that is not listed does not exist for scripts.
var methods = map[string]map[string]check{
	"string": {
		"capitalize": copies, "lower": copies, "title": copies, "upper": copies,
		"codepoint_ords": constant, "codepoints": constant, "elem_ords": constant, "elems": constant,
		"count": linear, "endswith": linear, "find": linear, "index": linear, "isalnum": linear, "isalpha": linear, "isdigit": linear, "islower": linear, "isspace": linear,
		"istitle": linear, "isupper": linear, "lstrip": linear, "partition": linear, "removeprefix": linear, "removesuffix": linear, "rfind": linear, "rindex": linear,
		"rpartition": linear, "rstrip": linear, "startswith": linear, "strip": linear,
		"format": formatted, "join": joined, "replace": replaced, "rsplit": split, "split": split, "splitlines": split,
	},
	"bytes": {"elems": constant},
	"list": {
		"append": grows, "insert": grows, "extend": gathers, "clear": constant, "pop": shifts, "index": searched, "remove": searched,
	},
	"dict": {
		"clear": linear, "get": keyed, "pop": keyed, "setdefault": fills, "popitem": constant, "update": fills,
		"items": lists, "keys": lists, "values": lists,
	},
	"set": {
		"add": fills, "clear": linear, "discard": keyed, "remove": keyed, "pop": constant, "update": fills,
		"difference": merged, "intersection": merged, "issubset": merged, "issuperset": merged, "symmetric_difference": merged, "union": merged,
	},
}

// environment is everything that a script can name besides its inputs.
func (m *meter) environment() star.StringDict {
	env := star.StringDict{}
	m.guards(env)
	for name, check := range functions {
		env[name] = m.checked(name, star.Universe[name].(*star.Builtin), nil, check)
	}
	env["getattr"] = star.NewBuiltin("getattr", m.getattr)
	env["json"] = &starlarkstruct.Module{Name: "json", Members: star.StringDict{
		"encode": star.NewBuiltin("json.encode", m.jsonEncode), "decode": star.NewBuiltin("json.decode", m.jsonDecode),
	}}
	env["math"] = starmath.Module
	return env
}

// named are the arguments that calls may name. The checks look at the others by their place.
var named = map[string][]string{"sorted": {"key", "reverse"}, "max": {"key"}, "min": {"key"}, "int": {"base"}, "print": {"sep"}, "fail": {"sep"}}

func takes(function, argument string) bool {
	switch function {
	case "dict", "update", "format":
		return true
	}
	return slices.Contains(named[function], argument)
}

// checked is a function or a method that is checked before every call.
func (m *meter) checked(name string, f *star.Builtin, recv star.Value, c check) *star.Builtin {
	return star.NewBuiltin(name, func(t *star.Thread, _ *star.Builtin, args star.Tuple, kwargs []star.Tuple) (star.Value, error) {
		for _, kv := range kwargs {
			if k, _ := kv[0].(star.String); !takes(name, string(k)) {
				return nil, fmt.Errorf("%s takes no argument named %s", name, k)
			}
		}
		own := append(star.Tuple(nil), args...)
		if err := c(m, recv, own, kwargs); err != nil {
			return nil, err
		}
		v, err := f.CallInternal(t, own, kwargs)
		if err != nil {
			return nil, err
		}
		if s, ok := v.(star.String); ok && name != "strip" && name != "lstrip" && name != "rstrip" {
			err = m.made(int64(len(s)))
		}
		return v, err
	})
}

func (m *meter) getattr(_ *star.Thread, _ *star.Builtin, args star.Tuple, kwargs []star.Tuple) (star.Value, error) {
	var x, absent star.Value
	var name string
	if err := star.UnpackPositionalArgs("getattr", args, kwargs, 2, &x, &name, &absent); err != nil {
		return nil, err
	}
	v, err := m.attr(x, name)
	if err != nil && absent != nil {
		return absent, nil
	}
	return v, err
}

// attr is x.name; methods come with their check.
func (m *meter) attr(x star.Value, name string) (star.Value, error) {
	has, ok := x.(star.HasAttrs)
	if !ok {
		return nil, fmt.Errorf("a %s has no attribute %q", x.Type(), name)
	}
	v, err := has.Attr(name)
	if err != nil {
		return nil, err
	}
	if f, ok := v.(*star.Builtin); ok && f.Receiver() != nil {
		if c, ok := methods[x.Type()][name]; ok {
			return m.checked(name, f, x, c), nil
		}
		v = nil
	}
	if v == nil {
		message := fmt.Sprintf("a %s has no attribute %q", x.Type(), name)
		if best := closest(name, has.AttrNames()); best != "" {
			message += fmt.Sprintf("; did you mean %q?", best)
		}
		return nil, fmt.Errorf("%s", message)
	}
	return v, nil
}

func closest(name string, known []string) string {
	if len(name) > 40 {
		return ""
	}
	best, dist := "", len(name)/3+2
	for _, k := range known {
		if d := near.Distance(name, k); d < dist {
			best, dist = k, d
		}
	}
	return best
}

// linear goes once through the receiver and texts.
func linear(m *meter, recv star.Value, args star.Tuple, _ []star.Tuple) error {
	var n int64
	if recv != nil {
		n = length(recv)
	}
	for _, a := range args {
		n += length(a)
	}
	return m.work(0, n)
}

// copies makes a text of at most three times the length.
func copies(m *meter, recv star.Value, args star.Tuple, kwargs []star.Tuple) error {
	if err := linear(m, recv, args, kwargs); err != nil {
		return err
	}
	return m.fits(times(3, length(recv)))
}

// digits reads a number from a text.
func digits(_ *meter, _ star.Value, args star.Tuple, _ []star.Tuple) error {
	if len(args) > 0 && length(args[0]) > maxIntBits/3 {
		return fmt.Errorf("a number has at most %d digits", maxIntBits/3)
	}
	return nil
}

// prints makes the text of values.
func prints(m *meter, _ star.Value, args star.Tuple, kwargs []star.Tuple) error {
	var total int64
	for _, a := range args {
		if _, ok := a.(star.String); ok {
			total += 4 * length(a)
			continue
		}
		e, err := m.walk(a)
		if err != nil {
			return err
		}
		total += e.printed()
	}
	for _, kv := range kwargs { // a separator
		total += times(int64(len(args)), length(kv[1]))
	}
	return m.fits(total)
}

// gathers goes through iterables and makes a list of what is in them.
func gathers(m *meter, _ star.Value, args star.Tuple, _ []star.Tuple) error {
	for i, a := range args {
		v, n, err := m.gathered(a)
		if err != nil {
			return err
		}
		if _, text := a.(star.String); text { // of bytes("…")
			n = length(a)
		}
		args[i] = v
		if err := m.work(n, 0); err != nil {
			return err
		}
		// A pair of enumerate or zip is a tuple of its own.
		if err := m.made(times(n, 4*sizeSlot)); err != nil {
			return err
		}
	}
	return nil
}

// orders compares what is in iterables with each other.
func orders(m *meter, recv star.Value, args star.Tuple, kwargs []star.Tuple) error {
	if err := gathers(m, recv, args, kwargs); err != nil {
		return err
	}
	e, err := m.walk(args...)
	if err != nil {
		return err
	}
	rounds := int64(bits.Len64(uint64(e.nodes)))
	return m.work(times(rounds, e.nodes), times(rounds, e.bytes))
}

// fills puts keys into a table.
func fills(m *meter, recv star.Value, args star.Tuple, kwargs []star.Tuple) error {
	n := int64(len(args) + len(kwargs))
	for i, a := range args {
		v, k, err := m.gathered(a)
		if err != nil {
			return err
		}
		args[i] = v
		n += k
	}
	if _, err := m.walk(args...); err != nil {
		return err
	}
	if recv == nil {
		n += sizeTable / sizeEntry
	}
	return m.made(times(n, sizeEntry))
}

// keyed looks a key up.
func keyed(m *meter, _ star.Value, args star.Tuple, _ []star.Tuple) error {
	if len(args) == 0 {
		return nil
	}
	return m.key(args[0])
}

// lists makes a list of what is in a dict.
func lists(m *meter, recv star.Value, _ star.Tuple, _ []star.Tuple) error {
	n := length(recv)
	if err := m.work(n, 0); err != nil {
		return err
	}
	return m.made(times(n, 4*sizeSlot))
}

// merged goes through two sets.
func merged(m *meter, recv star.Value, args star.Tuple, kwargs []star.Tuple) error {
	for i, a := range args {
		v, _, err := m.gathered(a)
		if err != nil {
			return err
		}
		args[i] = v
	}
	if _, err := m.walk(append(star.Tuple{recv}, args...)...); err != nil {
		return err
	}
	n := length(recv)
	for _, a := range args {
		n += length(a)
	}
	return m.made(sizeTable + times(n, sizeEntry))
}

// grows adds one element to a list.
func grows(m *meter, recv star.Value, args star.Tuple, _ []star.Tuple) error {
	if len(args) == 2 { // an insertion moves what is behind it
		if err := shifts(m, recv, nil, nil); err != nil {
			return err
		}
	}
	return m.made(sizeElement)
}

// shifts moves the elements of a list.
func shifts(m *meter, recv star.Value, _ star.Tuple, _ []star.Tuple) error {
	return m.work(0, times(length(recv), sizeSlot))
}

// searched looks for an element of a list.
func searched(m *meter, recv star.Value, args star.Tuple, _ []star.Tuple) error {
	_, err := m.walk(append(star.Tuple{recv}, args...)...)
	return err
}

// split makes a list of parts of a text.
func split(m *meter, recv star.Value, args star.Tuple, _ []star.Tuple) error {
	text := string(recv.(star.String))
	if err := m.work(0, times(3, int64(len(text)))); err != nil {
		return err
	}
	var parts int
	if sep, ok := first(args).(star.String); ok && sep != "" {
		parts = strings.Count(text, string(sep)) + 1
	} else {
		inside := false
		for i := range len(text) { // of other spaces than these there are fewer bytes than three a part
			space := text[i] <= ' ' || text[i] >= 0x80
			if !space && !inside || text[i] >= 0x80 || text[i] == '\n' || text[i] == '\r' {
				parts++
			}
			inside = !space
		}
	}
	return m.made(times(int64(parts)+1, 2*sizeSlot))
}

func first(args star.Tuple) star.Value {
	if len(args) == 0 {
		return star.None
	}
	return args[0]
}

// joined is sep.join(texts).
func joined(m *meter, recv star.Value, args star.Tuple, _ []star.Tuple) error {
	if len(args) != 1 {
		return nil // it is refused
	}
	v, n, err := m.gathered(args[0])
	if err != nil {
		return err
	}
	args[0] = v
	e, err := m.walk(v)
	if err != nil {
		return err
	}
	return m.fits(times(n, length(recv)) + e.bytes)
}

// replaced is text.replace(old, new).
func replaced(m *meter, recv star.Value, args star.Tuple, _ []star.Tuple) error {
	if len(args) < 2 {
		return nil // it is refused
	}
	text, _ := recv.(star.String)
	old, ok := args[0].(star.String)
	if !ok {
		return nil
	}
	if err := m.work(0, 2*int64(len(text))); err != nil {
		return err
	}
	return m.fits(int64(len(text)) + times(int64(strings.Count(string(text), string(old))), length(args[1])))
}

// formatted is text.format(values).
func formatted(m *meter, recv star.Value, args star.Tuple, kwargs []star.Tuple) error {
	longest := int64(0)
	each := func(v star.Value) error {
		e, err := m.walk(v)
		longest = max(longest, e.printed())
		return err
	}
	for _, a := range args {
		if err := each(a); err != nil {
			return err
		}
	}
	for _, kv := range kwargs {
		if err := each(kv[1]); err != nil {
			return err
		}
	}
	text := string(recv.(star.String))
	return m.fits(int64(len(text)) + times(int64(strings.Count(text, "{")), longest))
}
