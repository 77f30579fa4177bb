package workflow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Place is a place in the text of a definition. Both count from 1, columns in characters; both are 0
// for something that no place of the text says.
type Place struct{ Line, Column int }

// Fault is one fault of a definition.
type Fault struct {
	Code string
	Place
	// Path says where in the structure, such as "steps[2].prompt".
	Path    string
	Message string
	// Hint says how to mend it; may be empty.
	Hint string
}

// String is the fault on one line.
func (f Fault) String() string {
	text := fmt.Sprintf("error[%s]: %s", f.Code, f.Message)
	if f.Path != "" {
		text = f.Path + ": " + text
	}
	if f.Line > 0 {
		text = fmt.Sprintf("%d:%d: %s", f.Line, f.Column, text)
	}
	if f.Hint != "" {
		text += "; " + f.Hint
	}
	return text
}

// Faults are all faults of a definition, in the order of their places.
type Faults []Fault

// Error is all of them, one on each line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].String()
	}
	return strings.Join(lines, "\n")
}

// maxFaults bounds how many faults are told of one definition.
const maxFaults = 100

// sorted is the faults in order of their places, those of the whole first. Faults of one place keep
// their order.
func (f Faults) sorted() Faults {
	slices.SortStableFunc(f, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return f
}

// teller collects faults of a text.
type teller struct {
	lines  []string // of the text
	faults Faults
	unread unread
	asked  map[string][]string // the keys that were asked for, by what has them, unless it is nil
}

// full reports whether enough is told, so that nothing more needs to be looked for.
func (t *teller) full() bool { return len(t.faults) >= maxFaults }

// add tells a fault, unless enough are told already.
func (t *teller) add(f Fault) {
	if !t.full() {
		t.faults = append(t.faults, f)
	}
}

// at tells a fault of a value.
func (t *teller) at(v *value, code, hint, format string, args ...any) {
	if t.full() {
		return
	}
	t.add(Fault{Code: code, Place: v.at, Path: v.path(), Message: fmt.Sprintf(format, args...), Hint: hint})
}

// clip shortens text of a definition for messages.
func clip(s string) string {
	const most = 80
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most-1]) + "…"
}
