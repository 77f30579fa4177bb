package workgraph

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds of a JSON Schema, which may come from a model or a stranger: time and memory to read one grow much faster than its text.
const (
	maxSchemaBytes = 256 << 10
	maxSchemaDepth = 64
	// maxPatterns is what the patterns of one schema together may come to, in instructions of the matcher.
	maxPatterns = 50_000
	// maxSchemaSteps is how many subschemas are held against parts of one value.
	maxSchemaSteps = 1_000_000
	// maxExponent keeps a number of few digits from becoming one of a million.
	maxExponent = 400
)

// schemaURL names a schema that is read; nothing is ever loaded from it.
const schemaURL = "schema:///schema.json"

type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("reference to %s: remote schemas are not read", url)
}

// CompileSchema makes a JSON Schema (2020-12) usable, within bounds. It reads nothing from elsewhere: a $ref to another document is an error.
func CompileSchema(raw json.RawMessage) (*jsonschema.Schema, error) {
	switch {
	case len(raw) > maxSchemaBytes:
		return nil, fmt.Errorf("the schema has %d bytes, the limit is %d", len(raw), maxSchemaBytes)
	case deeper(raw, maxSchemaDepth):
		return nil, fmt.Errorf("the schema is nested more than %d deep", maxSchemaDepth)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, errors.New("the schema is not JSON")
	}
	c, left := jsonschema.NewCompiler(), maxPatterns
	var unread error // of the first pattern that cannot be read
	c.UseLoader(noLoader{})
	c.UseRegexpEngine(func(pattern string) (jsonschema.Regexp, error) {
		re, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			if unread == nil {
				unread = fmt.Errorf("a pattern of the schema cannot be used: %s", PatternFault(pattern, err))
			}
			return nil, err
		}
		if left -= instructions(re, left); left <= 0 {
			return nil, fmt.Errorf("the patterns of the schema are too large together, the last is %.80q", pattern)
		}
		return regexp.Compile(pattern)
	})
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, err
	}
	s, err := c.Compile(schemaURL)
	if unread != nil {
		return nil, unread
	}
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "\n", " "))
	}
	return s, nil
}

// instructions estimates what a pattern comes to when its repetitions are written out, and stops counting at most.
func instructions(re *syntax.Regexp, most int) int {
	n := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		if n > most {
			return n
		}
		n += instructions(sub, most)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return n
}

// CheckSchema tells why a value is not what a schema asks for; nil if it is. An error that is no *jsonschema.ValidationError says that
// this cannot be found out within bounds.
func CheckSchema(s *jsonschema.Schema, raw json.RawMessage) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	if n := wildNumber(v); n != "" {
		return fmt.Errorf("the number %.40s is out of range", n)
	}
	w := schemaWalk{left: maxSchemaSteps}
	if !w.walk(s, v, 0) {
		return errors.New("the schema needs too many steps for this value")
	}
	return s.Validate(v)
}

// wildNumber is a number in v whose value would take much room; empty if there is none.
func wildNumber(v any) string {
	switch v := v.(type) {
	case json.Number:
		_, exponent, _ := strings.Cut(strings.ToLower(string(v)), "e")
		if e, err := strconv.Atoi(exponent); exponent != "" && (err != nil || e > maxExponent || e < -maxExponent) || len(v) > 2*maxExponent {
			return string(v)
		}
	case []any:
		for _, el := range v {
			if n := wildNumber(el); n != "" {
				return n
			}
		}
	case map[string]any:
		for _, el := range v {
			if n := wildNumber(el); n != "" {
				return n
			}
		}
	}
	return ""
}

// schemaWalk counts what holding a schema against a value takes at worst, before it is done: branches that lead to the same place more
// than once multiply, and a validator cannot be stopped.
type schemaWalk struct{ left int }

// walk reports whether there are steps left.
func (w *schemaWalk) walk(s *jsonschema.Schema, v any, depth int) bool {
	if s == nil {
		return true
	}
	if w.left--; w.left < 0 || depth > 10*MaxValueDepth {
		return false
	}
	depth++
	here := []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else}
	if s.DynamicRef != nil {
		here = append(here, s.DynamicRef.Ref)
	}
	for _, list := range [...][]*jsonschema.Schema{here, s.AllOf, s.AnyOf, s.OneOf} {
		for _, sub := range list {
			if !w.walk(sub, v, depth) {
				return false
			}
		}
	}
	switch v := v.(type) {
	case map[string]any:
		return w.object(s, v, depth)
	case []any:
		return w.array(s, v, depth)
	}
	return true
}

func (w *schemaWalk) object(s *jsonschema.Schema, v map[string]any, depth int) bool {
	for _, sub := range s.DependentSchemas {
		if !w.walk(sub, v, depth) {
			return false
		}
	}
	for _, d := range s.Dependencies {
		if sub, ok := d.(*jsonschema.Schema); ok && !w.walk(sub, v, depth) {
			return false
		}
	}
	more, _ := s.AdditionalProperties.(*jsonschema.Schema)
	for k, el := range v {
		if !w.walk(s.PropertyNames, k, depth) || !w.walk(s.Properties[k], el, depth) || !w.walk(more, el, depth) ||
			!w.walk(s.UnevaluatedProperties, el, depth) {
			return false
		}
		for _, sub := range s.PatternProperties {
			if !w.walk(sub, el, depth) {
				return false
			}
		}
	}
	return true
}

func (w *schemaWalk) array(s *jsonschema.Schema, v []any, depth int) bool {
	prefix := s.PrefixItems
	all := []*jsonschema.Schema{s.Contains, s.Items2020, s.UnevaluatedItems}
	switch items := s.Items.(type) {
	case *jsonschema.Schema:
		all = append(all, items)
	case []*jsonschema.Schema:
		prefix = items
	}
	if more, ok := s.AdditionalItems.(*jsonschema.Schema); ok {
		all = append(all, more)
	}
	for i, el := range v {
		if i < len(prefix) && !w.walk(prefix[i], el, depth) {
			return false
		}
		for _, sub := range all {
			if !w.walk(sub, el, depth) {
				return false
			}
		}
	}
	return true
}

// checkSchema is CheckSchema with a fault of one line.
func checkSchema(s *jsonschema.Schema, raw json.RawMessage) error {
	err := CheckSchema(s, raw)
	if err == nil {
		return nil
	}
	// The first line names the schema, which is ours; the others name the places.
	lines := strings.Split(err.Error(), "\n")
	places := make([]string, 0, len(lines))
	for _, l := range lines[min(1, len(lines)-1):] {
		l = strings.TrimLeft(l, " -")
		places = append(places, strings.TrimPrefix(l, "at '': "))
	}
	if n := len(places); n > maxPlaces {
		places = append(places[:maxPlaces], fmt.Sprintf("and %d more", n-maxPlaces))
	}
	return errors.New(strings.Join(places, "; "))
}

// maxPlaces is how many places one fault names.
const maxPlaces = 50
