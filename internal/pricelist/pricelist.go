// Package pricelist reads files of dated prices in YAML, JSON and CSV, and names every fault of one
// with its line. It must not know any protocol, nor which prices a registry has.
package pricelist

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

const (
	// MaxBytes bounds a file.
	MaxBytes = 1 << 20
	// MaxPrices bounds the prices of a file.
	MaxPrices = 1000

	maxNumber = 32 // characters of a rate
)

// Price is one price of a file, in nano-USD per million tokens.
type Price struct {
	// Line is where it stands, from 1.
	Line            int
	Provider, Model string
	ValidFrom       time.Time
	Input, Output   int64
	// CachedInput and Reasoning are nil where the file does not name them.
	CachedInput, Reasoning *int64
}

// List is a file.
type List struct {
	// AsOf and Source say when and where its prices were read. CSV has neither.
	AsOf, Source string
	Prices       []Price
}

// Fault is a mistake in a file.
type Fault struct {
	Line    int
	Message string
}

// Error is the line and the message.
func (f Fault) Error() string { return fmt.Sprintf("line %d: %s", f.Line, f.Message) }

// fields are the columns of a price.
func fields() []string {
	return []string{"provider", "model", "valid_from", "input", "cached_input", "output", "reasoning"}
}

// Read reads a file: CSV if isCSV is set, else YAML, of which JSON is a part. The error joins a
// Fault for each mistake.
func Read(b []byte, isCSV bool) (List, error) {
	if len(b) > MaxBytes {
		return List{}, Fault{1, fmt.Sprintf("the file has %d bytes, %d at most", len(b), MaxBytes)}
	}
	r := reader{first: map[string]int{}}
	if isCSV {
		r.csv(b)
	} else {
		r.yaml(b)
	}
	if len(r.faults) == 0 && len(r.list.Prices) == 0 {
		r.fault(1, "the file has no prices")
	}
	if len(r.list.Prices) > MaxPrices {
		r.fault(r.list.Prices[MaxPrices].Line, fmt.Sprintf("there are %d prices, %d at most", len(r.list.Prices), MaxPrices))
	}
	if len(r.faults) > 0 {
		return List{}, errors.Join(r.faults...)
	}
	return r.list, nil
}

type reader struct {
	list   List
	faults []error
	// first are the lines of the prices by what must differ.
	first map[string]int
}

func (r *reader) fault(line int, message string) { r.faults = append(r.faults, Fault{line, message}) }

func (r *reader) csv(b []byte) {
	c := csv.NewReader(bytes.NewReader(b))
	c.Comment = '#'
	head, err := c.Read()
	if err != nil {
		r.fault(1, "the first line must name the columns: "+strings.Join(fields(), ", "))
		return
	}
	for i, name := range head {
		if !slices.Contains(fields(), name) || slices.Index(head, name) != i {
			r.fault(1, fmt.Sprintf("%q is no column, or is there twice; the columns are %s", name, strings.Join(fields(), ", ")))
		}
	}
	if len(r.faults) > 0 {
		return
	}
	for {
		row, err := c.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			line := 1
			if at, ok := errors.AsType[*csv.ParseError](err); ok {
				line = at.Line
			}
			r.fault(line, "the line is not CSV with as many values as columns")
			if !errors.Is(err, csv.ErrFieldCount) {
				return
			}
			continue
		}
		line, _ := c.FieldPos(0)
		values := map[string]value{}
		for i, v := range row {
			if v != "" {
				values[head[i]] = value{v, line}
			}
		}
		r.price(line, values)
	}
}

// value is a text of a file and its line.
type value struct {
	text string
	line int
}

func (r *reader) yaml(b []byte) {
	file, err := parser.ParseBytes(b, 0)
	if err != nil {
		r.fault(1, "the file is neither YAML nor JSON: "+strings.TrimSpace(err.Error()))
		return
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		r.fault(1, "the file must hold one document with the key prices")
		return
	}
	for _, kv := range pairs(file.Docs[0].Body) {
		switch name := kv.Key.GetToken().Value; name {
		case "as_of", "source":
			v, ok := scalar(kv.Value)
			if !ok {
				r.fault(v.line, name+" must be a text")
			}
			if name == "as_of" {
				r.list.AsOf = v.text
			} else {
				r.list.Source = v.text
			}
		case "prices":
			r.sequence(kv.Value)
		default:
			r.fault(kv.Key.GetToken().Position.Line, fmt.Sprintf("there is no key %q; the keys are as_of, source and prices", name))
		}
	}
}

func (r *reader) sequence(n ast.Node) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		r.fault(n.GetToken().Position.Line, "prices must be a list")
		return
	}
	for _, item := range list.Values {
		line, values, good := item.GetToken().Position.Line, map[string]value{}, true
		for i, kv := range pairs(item) {
			at := kv.Key.GetToken()
			if i == 0 {
				line = at.Position.Line
			}
			v, ok := scalar(kv.Value)
			switch {
			case !slices.Contains(fields(), at.Value):
				r.fault(at.Position.Line, fmt.Sprintf("a price has no %q; it has %s", at.Value, strings.Join(fields(), ", ")))
				good = false
			case !ok:
				r.fault(at.Position.Line, at.Value+" must be a text or a number")
				good = false
			case v.text != "":
				values[at.Value] = v
			}
		}
		if good {
			r.price(line, values)
		}
	}
}

func pairs(n ast.Node) []*ast.MappingValueNode {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}
	}
	return nil
}

// scalar is the text of a value; that of null is empty.
func scalar(n ast.Node) (v value, ok bool) {
	v.line = n.GetToken().Position.Line
	switch x := n.(type) {
	case *ast.StringNode:
		v.text = x.Value
	case *ast.IntegerNode, *ast.FloatNode:
		v.text = n.GetToken().Value
	case *ast.NullNode:
	default:
		return v, false
	}
	return v, true
}

// price adds a price, or its faults.
func (r *reader) price(line int, values map[string]value) {
	before := len(r.faults)
	p := Price{Line: line, Provider: values["provider"].text, Model: values["model"].text}
	if p.Model == "" {
		r.fault(line, "a price needs a model")
	}
	if i := strings.IndexByte(p.Model, '*'); i >= 0 && i != len(p.Model)-1 {
		r.fault(values["model"].line, fmt.Sprintf(`a "*" may only end a model's name, not stand inside %q`, p.Model))
	}
	from, ok := values["valid_from"]
	var err error
	if p.ValidFrom, err = time.Parse(time.DateOnly, from.text); err != nil {
		p.ValidFrom, err = time.Parse(time.RFC3339, from.text)
	}
	switch {
	case !ok:
		r.fault(line, "a price needs valid_from, the day from which it holds")
	case err != nil:
		r.fault(from.line, fmt.Sprintf("valid_from must be a day like 2026-01-31 or a time like 2026-01-31T12:00:00Z, not %q", from.text))
	}
	rate := func(name string, needed bool) *int64 {
		v, there := values[name]
		if !there {
			if needed {
				r.fault(line, "a price needs "+name+", in dollars per million tokens")
			}
			return nil
		}
		n, err := nano(v.text)
		if err != nil {
			r.fault(v.line, fmt.Sprintf("%s: %v", name, err))
		}
		return &n
	}
	input, output := rate("input", true), rate("output", true)
	p.CachedInput, p.Reasoning = rate("cached_input", false), rate("reasoning", false)
	if len(r.faults) > before {
		return
	}
	p.Input, p.Output, p.ValidFrom = *input, *output, p.ValidFrom.UTC().Truncate(time.Microsecond)
	name := strings.Join([]string{p.Provider, p.Model, p.ValidFrom.Format(time.RFC3339Nano)}, "\x00")
	if other, twice := r.first[name]; twice {
		r.fault(line, fmt.Sprintf("the model has a price from the same time on in line %d", other))
		return
	}
	r.first[name] = line
	r.list.Prices = append(r.list.Prices, p)
}

// nano is an amount of dollars, exact to a billionth.
func nano(s string) (int64, error) {
	if len(s) > maxNumber || strings.Trim(s, "0123456789.") != "" {
		return 0, fmt.Errorf("%q is no amount of dollars like 1.25", s)
	}
	v, ok := new(big.Rat).SetString(s)
	if !ok {
		return 0, fmt.Errorf("%q is no amount of dollars like 1.25", s)
	}
	v.Mul(v, big.NewRat(1_000_000_000, 1))
	if !v.IsInt() {
		return 0, fmt.Errorf("%s has parts of less than a billionth of a dollar", s)
	}
	if !v.Num().IsInt64() || v.Num().Int64() > math.MaxInt64/2_000_000 {
		return 0, fmt.Errorf("%s is too high", s)
	}
	return v.Num().Int64(), nil
}
