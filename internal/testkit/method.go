package testkit

import (
	"errors"
	"reflect"
)

// Returns reports whether a method of v returns reason as its error. It is called with these arguments, each
// for the first parameter whose type it fits, and otherwise with zero values. One that panics, since nothing
// is behind v, does not return it.
func Returns(v any, method string, reason error, args ...any) (is bool) {
	m := reflect.ValueOf(v).MethodByName(method)
	in := make([]reflect.Value, m.Type().NumIn())
	for i := range in {
		in[i] = reflect.Zero(m.Type().In(i))
	}
	for _, arg := range args {
		for i := range in {
			if reflect.TypeOf(arg).AssignableTo(m.Type().In(i)) {
				in[i] = reflect.ValueOf(arg)
				break
			}
		}
	}
	defer func() {
		if recover() != nil {
			is = false
		}
	}()
	out := m.Call(in)
	err, _ := out[len(out)-1].Interface().(error)
	return errors.Is(err, reason)
}
