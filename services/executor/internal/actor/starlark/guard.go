package starlark

import (
	"fmt"
	"strings"

	star "go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// builtin is a function of scripts that gets positional arguments only.
type builtin func(args star.Tuple) (star.Value, error)

func guardFunc(name string, f builtin) *star.Builtin {
	return star.NewBuiltin(name, func(_ *star.Thread, _ *star.Builtin, args star.Tuple, _ []star.Tuple) (star.Value, error) {
		return f(args)
	})
}

// guards are what rewritten scripts call in the place of operations.
func (m *meter) guards(into star.StringDict) {
	add := func(name string, f builtin) { into[name] = guardFunc(name, f) }
	for op := syntax.PLUS; op <= syntax.NEQ; op++ {
		if op <= syntax.GTGT || op >= syntax.LT {
			add(operator(op), func(a star.Tuple) (star.Value, error) { return m.binary(op, a[0], a[1]) })
		}
	}
	for _, op := range []syntax.Token{syntax.IN, syntax.NOT_IN} {
		add(operator(op), func(a star.Tuple) (star.Value, error) { return m.binary(op, a[0], a[1]) })
	}
	for _, op := range []syntax.Token{syntax.PLUS, syntax.MINUS, syntax.TILDE} {
		add(guardUnary+op.String(), func(a star.Tuple) (star.Value, error) { return m.unary(op, a[0]) })
	}
	for op := syntax.PLUS; op <= syntax.GTGT; op++ {
		add(augmented(op), func(a star.Tuple) (star.Value, error) { return m.augment(op, a[0], a[1]) })
	}
	into[guardNone] = star.None
	add(guardIndex, func(a star.Tuple) (star.Value, error) { return a[0], m.key(a[0]) })
	add(guardEntry, func(a star.Tuple) (star.Value, error) {
		if err := m.key(a[0]); err != nil {
			return nil, err
		}
		return a[0], m.made(sizeEntry)
	})
	add(guardLoop, func(a star.Tuple) (star.Value, error) { return a[0], nil })
	add(guardElement, func(a star.Tuple) (star.Value, error) { return a[0], m.made(sizeElement) })
	add(guardDict, func(a star.Tuple) (star.Value, error) { return a[0], m.made(sizeTable) })
	add(guardSlice, func(a star.Tuple) (star.Value, error) { return m.slice(a[0], a[1], a[2], a[3]) })
	add(guardAttr, func(a star.Tuple) (star.Value, error) { return m.attr(a[0], string(a[1].(star.String))) })
	add(guardSpread, func(a star.Tuple) (star.Value, error) {
		v, n, err := m.gathered(a[0])
		if err != nil {
			return nil, err
		}
		return v, m.made(times(n, sizeSlot))
	})
	add(guardAugment, func(a star.Tuple) (star.Value, error) {
		return star.None, m.augmentAt(string(a[0].(star.String)), a[1], a[2], a[3])
	})
}

// key counts the lookup of a key or an index.
func (m *meter) key(k star.Value) error {
	switch k := k.(type) {
	case star.Int, star.Bool, star.NoneType, star.Float:
		return nil
	case star.String:
		return m.work(0, int64(len(k)))
	}
	_, err := m.walk(k)
	return err
}

func (m *meter) unary(op syntax.Token, x star.Value) (star.Value, error) {
	if n, ok := x.(star.Int); ok {
		if err := m.made(bitLen(n) / 8); err != nil {
			return nil, err
		}
	}
	return star.Unary(op, x)
}

// binary is x op y.
func (m *meter) binary(op syntax.Token, x, y star.Value) (star.Value, error) {
	switch op {
	case syntax.EQL, syntax.NEQ, syntax.LT, syntax.GT, syntax.LE, syntax.GE:
		if err := m.compares(x, y); err != nil {
			return nil, err
		}
		ok, err := star.CompareDepth(op, x, y, maxDepth)
		return star.Bool(ok), err
	case syntax.IN, syntax.NOT_IN:
		if err := m.searches(x, y); err != nil {
			return nil, err
		}
		return star.Binary(op, x, y)
	}
	if x, ok := x.(star.Int); ok {
		if y, ok := y.(star.Int); ok {
			return m.integers(op, x, y)
		}
	}
	var err error
	switch op {
	case syntax.PLUS:
		err = m.joins(x, y)
	case syntax.STAR:
		err = m.repeats(x, y)
	case syntax.PERCENT:
		if text, ok := x.(star.String); ok {
			return m.formats(text, y)
		}
	case syntax.PIPE, syntax.AMP, syntax.CIRCUMFLEX, syntax.MINUS:
		err = m.combines(x, y)
	}
	if err != nil {
		return nil, err
	}
	return star.Binary(op, x, y)
}

func (m *meter) compares(x, y star.Value) error {
	if simple(x) || simple(y) {
		return nil // decided at once
	}
	_, err := m.walk(x, y)
	return err
}

// simple reports whether a value is compared in constant time.
func simple(v star.Value) bool {
	switch v := v.(type) {
	case star.NoneType, star.Bool, star.Float:
		return true
	case star.Int:
		return bitLen(v) <= 64
	}
	return false
}

// searches counts looking for x in y.
func (m *meter) searches(x, y star.Value) error {
	switch y := y.(type) {
	case star.String:
		return m.work(0, int64(len(y)))
	case star.Bytes:
		return m.work(0, int64(len(y)))
	case star.Tuple, *star.List:
		_, err := m.walk(x, y)
		return err
	}
	return m.key(x)
}

// integers is x op y of integers.
func (m *meter) integers(op syntax.Token, x, y star.Int) (star.Value, error) {
	bx, by := bitLen(x), bitLen(y)
	result := max(bx, by) + 1
	switch op {
	case syntax.STAR:
		result = bx + by
		if err := m.work(0, bx/64*(by/64)); err != nil {
			return nil, err
		}
	case syntax.SLASH, syntax.SLASHSLASH, syntax.PERCENT:
		if err := m.work(0, bx/64*(by/64)); err != nil {
			return nil, err
		}
	case syntax.LTLT:
		if n, ok := y.Int64(); ok && n >= 0 {
			result = bx + min(n, maxIntBits)
		}
	}
	if bx > 64 || by > 64 || op == syntax.LTLT {
		if result > maxIntBits {
			return nil, fmt.Errorf("an integer would have more than %d bits", maxIntBits)
		}
		if err := m.made(result / 8); err != nil {
			return nil, err
		}
	}
	return star.Binary(op, x, y)
}

// joins counts x + y.
func (m *meter) joins(x, y star.Value) error {
	switch x.(type) {
	case star.String, star.Bytes:
		return m.made(length(x) + length(y))
	case *star.List, star.Tuple:
		return m.made(times(length(x)+length(y), sizeSlot))
	}
	return nil
}

// length is that of a text or a sequence, 0 of anything else.
func length(v star.Value) int64 { return int64(max(0, star.Len(v))) }

// repeats counts x * n, of texts and sequences.
func (m *meter) repeats(x, y star.Value) error {
	if _, ok := x.(star.Int); ok {
		x, y = y, x
	}
	count, ok := y.(star.Int)
	if !ok {
		return nil
	}
	n, ok := count.Int64()
	if !ok {
		n = 1 << 62 // or below zero, which star.Binary refuses alike
	}
	switch x.(type) {
	case star.String, star.Bytes:
		return m.made(times(max(0, n), length(x)))
	case *star.List, star.Tuple:
		return m.made(times(max(0, n), times(length(x), sizeSlot)))
	}
	return nil
}

// formats is text % y.
func (m *meter) formats(text star.String, y star.Value) (star.Value, error) {
	var most int64
	if d, ok := y.(*star.Dict); ok {
		each, err := m.longest(d)
		if err != nil {
			return nil, err
		}
		most = times(int64(strings.Count(string(text), "%")), each)
	} else {
		e, err := m.walk(y)
		if err != nil {
			return nil, err
		}
		most = e.printed()
	}
	if err := m.fits(int64(len(text)) + most); err != nil {
		return nil, err
	}
	return m.text(star.Binary(syntax.PERCENT, text, y))
}

// longest is a bound of the longest text of a value of a dict.
func (m *meter) longest(d *star.Dict) (int64, error) {
	var longest int64
	for _, v := range d.Entries() {
		e, err := m.walk(v)
		if err != nil {
			return 0, err
		}
		longest = max(longest, e.printed())
	}
	return longest, nil
}

// text counts a text that was just made.
func (m *meter) text(v star.Value, err error) (star.Value, error) {
	if err != nil {
		return nil, err
	}
	if s, ok := v.(star.String); ok {
		err = m.made(int64(len(s)))
	}
	return v, err
}

// combines counts x | y and the like of sets and dicts.
func (m *meter) combines(x, y star.Value) error {
	switch x.(type) {
	case *star.Set, *star.Dict:
		if _, err := m.walk(x, y); err != nil {
			return err
		}
		return m.made(sizeTable + times(length(x)+length(y), sizeEntry))
	}
	return nil
}

// augment is the value of x after x op= y: lists and dicts are changed in place.
func (m *meter) augment(op syntax.Token, x, y star.Value) (star.Value, error) {
	switch x := x.(type) {
	case *star.List:
		if _, ok := y.(star.Iterable); ok && op == syntax.PLUS {
			return x, m.extend(x, y)
		}
	case *star.Dict:
		if y, ok := y.(*star.Dict); ok && op == syntax.PIPE {
			if err := m.combines(x, y); err != nil {
				return nil, err
			}
			for _, e := range y.Items() {
				if err := x.SetKey(e[0], e[1]); err != nil {
					return nil, err
				}
			}
			return x, nil
		}
	}
	return m.binary(op, x, y)
}

func (m *meter) extend(x *star.List, y star.Value) error {
	more, n, err := m.gathered(y)
	if err != nil {
		return err
	}
	if err := m.made(times(n, sizeElement)); err != nil {
		return err
	}
	all := make([]star.Value, 0, n) // of x itself, perhaps
	for e := range star.Elements(more.(star.Iterable)) {
		all = append(all, e)
	}
	for _, e := range all {
		if err := x.Append(e); err != nil {
			return err
		}
	}
	return nil
}

// augmentAt is x[i] op= y.
func (m *meter) augmentAt(op string, x, i, y star.Value) error {
	if err := m.key(i); err != nil {
		return err
	}
	old, put, err := element(x, i)
	if err != nil {
		return err
	}
	for tok := syntax.PLUS; tok <= syntax.GTGT; tok++ {
		if augmented(tok) == op {
			v, err := m.augment(tok, old, y)
			if err != nil {
				return err
			}
			return put(v)
		}
	}
	return fmt.Errorf("there is no operator %s", op) // the rewriter wrote it
}

// element is x[i] and what assigns to it.
func element(x, i star.Value) (old star.Value, put func(star.Value) error, err error) {
	switch x := x.(type) {
	case *star.Dict:
		v, found, err := x.Get(i)
		if err == nil && !found {
			err = fmt.Errorf("key %v not in dict", i)
		}
		return v, func(v star.Value) error { return x.SetKey(i, v) }, err
	case *star.List:
		n, err := star.AsInt32(i)
		if err != nil {
			return nil, nil, fmt.Errorf("list index: %w", err)
		}
		if n < 0 {
			n += x.Len()
		}
		if n < 0 || n >= x.Len() {
			return nil, nil, fmt.Errorf("list index %v out of range: the list has %d elements", i, x.Len())
		}
		return x.Index(n), func(v star.Value) error { return x.SetIndex(n, v) }, nil
	}
	return nil, nil, fmt.Errorf("%s value does not support item assignment", x.Type())
}

// slice is x[lo:hi:step].
func (m *meter) slice(x, lo, hi, by star.Value) (star.Value, error) {
	s, ok := x.(star.Sliceable)
	if !ok {
		return nil, fmt.Errorf("a %s has no slices", x.Type())
	}
	n, step := s.Len(), 1
	if by != star.None {
		var err error
		if step, err = star.AsInt32(by); err != nil {
			return nil, fmt.Errorf("slice step: %w", err)
		}
		if step == 0 {
			return nil, fmt.Errorf("slice step: must not be 0")
		}
	}
	first, least, last := 0, 0, n
	if step < 0 {
		first, least, last = n-1, -1, n-1
	}
	start, err := position(lo, n, first, least, last)
	if err != nil {
		return nil, fmt.Errorf("slice start: %w", err)
	}
	end := n
	if step < 0 {
		end = -1
	}
	if end, err = position(hi, n, end, least, last); err != nil {
		return nil, fmt.Errorf("slice end: %w", err)
	}
	if step > 0 && end < start || step < 0 && start < end {
		end = start
	}
	count := int64(max(end-start, start-end)) // of the elements, at most
	switch x.(type) {
	case star.String, star.Bytes:
		if step != 1 {
			err = m.made(count)
		}
	case *star.List, star.Tuple:
		err = m.made(times(count, sizeSlot))
	}
	if err != nil {
		return nil, err
	}
	return s.Slice(start, end, step), nil
}

// position is a bound of a slice of n elements, within least and last; absent if none is given.
func position(v star.Value, n, absent, least, last int) (int, error) {
	if v == star.None {
		return absent, nil
	}
	i, err := star.AsInt32(v)
	if err != nil {
		return 0, err
	}
	if i < 0 {
		i += n
	}
	return max(least, min(i, last)), nil
}
