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
	// maxDepth and maxValues bound what is in it, and with it the paths that are kept of all values.
	maxDepth, maxValues = 16, 100_000
)

// kind is what a value of JSON is.
type kind string

const (
	object kind = "an object"
	list   kind = "a list"
	text   kind = "a text"
	number kind = "a number"
	truth  kind = "true or false"
	null   kind = "null"
)

// value is a value with its place in the document.
type value struct {
	kind kind
	// at and end are where it begins and ends, in bytes.
	at, end int
	path    string
	// text is that of a text or of a number.
	text    string
	items   []value
	members []member
}

type member struct {
	name string
	value
}

// parser reads JSON and keeps the places of its values.
type parser struct {
	src    []byte
	dec    *json.Decoder
	values int
	faults *faults
}

// parse reads one value, which is the whole document. What cannot be read is a fault.
func parse(src []byte, f *faults) (v value, ok bool) {
	p := parser{src: src, dec: json.NewDecoder(bytes.NewReader(src)), faults: f}
	p.dec.UseNumber()
	v, err := p.value("", 0)
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

func (p *parser) value(path string, depth int) (v value, err error) {
	v = value{path: path, at: p.begin()}
	if p.values++; p.values > maxValues || depth > maxDepth {
		return v, fmt.Errorf("it has more than %d values, or is deeper than %d", maxValues, maxDepth)
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
	v.end = int(p.dec.InputOffset())
	return v, err
}

func (p *parser) inside(v *value, open json.Delim, depth int) error {
	seen := map[string]bool{}
	for v.kind = list; p.dec.More(); {
		if open == '[' {
			item, err := p.value(fmt.Sprintf("%s[%d]", v.path, len(v.items)), depth+1)
			if err != nil {
				return err
			}
			v.items = append(v.items, item)
			continue
		}
		at := p.begin()
		key, err := p.dec.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		child, err := p.value(strings.TrimPrefix(v.path+"."+cut(name), "."), depth+1)
		if err != nil {
			return err
		}
		if seen[name] {
			p.faults.add("KEY_DUPLICATE", at, child.path, "keep one of them", "the key stands twice")
		}
		seen[name] = true
		v.members = append(v.members, member{name, child})
	}
	if open == '{' {
		v.kind = object
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

func (f *faults) add(code string, at int, path, hint, format string, args ...any) {
	if len(f.told) >= maxFaults {
		return
	}
	f.told = append(f.told, workflow.Fault{Code: code, Place: f.place(at), Path: path, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

func (f *faults) place(at int) workflow.Place {
	before := f.src[:min(max(at, 0), len(f.src))]
	line := bytes.LastIndexByte(before, '\n') + 1
	return workflow.Place{Line: bytes.Count(before, []byte{'\n'}) + 1, Column: utf8.RuneCount(before[line:]) + 1}
}
