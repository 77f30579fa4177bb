package tasktree

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/workflow"
)

const (
	// MaxBytes is how long a document may be.
	MaxBytes = 1 << 20
	// maxDepth and maxValues bound what is in it.
	maxDepth, maxValues = 16, 100_000
	// keptDepth is down to where values are kept: an end of an edge, tasks[0].depends_on[0] and tags. What is
	// below them is copied from the document, or left out.
	keptDepth = 4
)

var errTooMany = fmt.Errorf("it has more than %d values, or is deeper than %d", maxValues, maxDepth)

// kind is what a value of JSON is.
type kind uint8

const (
	null kind = iota
	object
	list
	text
	number
	truth
)

func (k kind) String() string {
	return [...]string{"null", "an object", "a list", "a text", "a number", "true or false"}[k]
}

// value is a value with its place in the document. A document has many of them, so they are small.
type value struct {
	kind kind
	// at and end are where it begins and ends, in bytes.
	at, end int32
	path    *path
	// text is that of a text or of a number.
	text string
	// children are the items of a list, or the members of an object, as far as they are kept.
	children []value
}

// name is that of a member of an object.
func (v *value) name() string { return v.path.name }

// items are those of a list, members those of an object.
func (v *value) items() []value {
	if v.kind == list {
		return v.children
	}
	return nil
}

func (v *value) members() []value {
	if v.kind == object {
		return v.children
	}
	return nil
}

// path is the last part of where a value stands. Its text is made when a fault is told.
type path struct {
	up    *path
	name  string
	index int32 // of an item; -1 for a member
}

// under is the path of a member that an object lacks.
func (p *path) under(name string) *path { return &path{up: p, name: name, index: -1} }

func (p *path) String() string {
	switch {
	case p == nil:
		return ""
	case p.index >= 0:
		return fmt.Sprintf("%s[%d]", p.up, p.index)
	}
	return strings.TrimPrefix(p.up.String()+"."+cut(p.name), ".")
}

// parser reads JSON and keeps the places of its values.
type parser struct {
	src    []byte
	dec    *json.Decoder
	values int
	// sizes are how many children the lists and objects have that were not begun yet.
	sizes  []int32
	faults *faults
}

// sizes counts the children of each list and object, in the order in which these begin, before anything is
// made of them. Of a text that is no JSON the counts mean nothing, but they are never more than its bytes.
func sizes(src []byte) (out []int32, ok bool) {
	var open [maxDepth + 2]int // places in out of what is open
	depth, values := 0, 1
	for i := 0; i < len(src); i++ {
		c := src[i]
		closes := c == ']' || c == '}'
		if depth > 0 && !closes && !strings.ContainsRune(" \t\r\n", rune(c)) && (out[open[depth-1]] == 0 || c == ',') {
			out[open[depth-1]]++
			values++
		}
		switch {
		case c == '"':
			for i++; i < len(src) && src[i] != '"'; i++ {
				if src[i] == '\\' {
					i++
				}
			}
		case closes && depth > 0:
			depth--
		case c == '[' || c == '{':
			if depth == len(open) {
				return nil, false
			}
			open[depth] = len(out)
			depth++
			out = append(out, 0)
		}
		if values > maxValues {
			return nil, false
		}
	}
	return out, true
}

// parse reads one value, which is the whole document. What cannot be read is a fault.
func parse(src []byte, f *faults) (v value, ok bool) {
	p := parser{src: src, dec: json.NewDecoder(bytes.NewReader(src)), faults: f}
	p.dec.UseNumber()
	var err error
	if p.sizes, ok = sizes(src); ok {
		v, err = p.value(nil, 0)
	} else {
		err = errTooMany
	}
	if err == nil && len(bytes.TrimSpace(src[p.dec.InputOffset():])) > 0 {
		err = fmt.Errorf("there is more behind the document")
	}
	if err != nil {
		f.add("JSON_INVALID", int(p.dec.InputOffset()), v.path, "give one JSON object", "the document cannot be read: %v", err)
	}
	return v, err == nil
}

// begin is where the next token begins.
func (p *parser) begin() int {
	at := int(p.dec.InputOffset())
	return at + len(p.src[at:]) - len(bytes.TrimLeft(p.src[at:], " \t\r\n,:"))
}

func (p *parser) value(at *path, depth int) (v value, err error) {
	v = value{path: at, at: int32(p.begin())}
	if p.values++; p.values > maxValues || depth > maxDepth {
		return v, errTooMany
	}
	token, err := p.dec.Token()
	if err != nil {
		return v, err
	}
	switch t := token.(type) {
	case json.Delim:
		err = p.inside(&v, t, depth)
	case string:
		v.kind, v.text = text, t
	case json.Number:
		v.kind, v.text = number, t.String()
	case bool:
		v.kind = truth
	default:
		v.kind = null
	}
	v.end = int32(p.dec.InputOffset())
	return v, err
}

func (p *parser) inside(v *value, open json.Delim, depth int) error {
	size := p.sizes[0] // the decoder begins no list that the count has missed
	p.sizes = p.sizes[1:]
	if depth < keptDepth {
		v.children = make([]value, 0, size)
	}
	v.kind = list
	var seen map[string]bool
	if open == '{' {
		v.kind, seen = object, map[string]bool{}
	}
	for n := int32(0); p.dec.More(); n++ {
		at, begin := &path{up: v.path, index: n}, 0
		if v.kind == object {
			begin = p.begin()
			key, err := p.dec.Token()
			if err != nil {
				return err
			}
			at.index = -1
			at.name, _ = key.(string)
		}
		child, err := p.value(at, depth+1)
		if err != nil {
			return err
		}
		if v.kind == object {
			if seen[at.name] {
				p.faults.add("KEY_DUPLICATE", begin, at, "keep one of them", "the key stands twice")
			}
			seen[at.name] = true
		}
		if depth < keptDepth {
			v.children = append(v.children, child)
		}
	}
	_, err := p.dec.Token()
	return err
}

// maxFaults is how many faults are told of one document.
const maxFaults = 100

// faults gathers what is told of a document.
type faults struct {
	src  []byte
	told workflow.Faults
}

func (f *faults) add(code string, at int, where *path, hint, format string, args ...any) {
	if len(f.told) >= maxFaults {
		return
	}
	f.told = append(f.told, workflow.Fault{Code: code, Place: f.place(at), Path: where.String(), Hint: hint, Message: fmt.Sprintf(format, args...)})
}

func (f *faults) place(at int) workflow.Place {
	before := f.src[:min(max(at, 0), len(f.src))]
	line := bytes.LastIndexByte(before, '\n') + 1
	return workflow.Place{Line: bytes.Count(before, []byte{'\n'}) + 1, Column: utf8.RuneCount(before[line:]) + 1}
}
