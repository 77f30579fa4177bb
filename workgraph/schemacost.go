package workgraph

import (
	"context"
	"encoding/json"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds of a check of a value against a schema. A step is about ten nanoseconds.
const (
	maxSchemaSteps = 50_000_000
	// maxSchemaMemory bounds a list of all faults, in bytes.
	maxSchemaMemory = 64 << 20

	stepsVisit       = 50 // one subschema at one place
	stepsElement     = 10 // one element of a value that is compared as a whole
	stepsNumber      = 60 // the value of a number of few digits
	stepsText        = 3  // looking up one name
	stepsInstruction = 4  // of a pattern at one byte
	bytesPerStep     = 16 // of a text that is read
	bytesFault       = 300
)

// schemaCost computes the worst-case cost of checking a value against a schema before the check, because a
// validator cannot be stopped. Every keyword of every branch counts as often as it is reached.
type schemaCost struct {
	s   *Schema
	ctx context.Context //nolint:containedctx // it lives as long as the one call that it is for
	// left is the number of steps left. memory is the size of faults at every place.
	left, memory int
	visits       int
}

// schemaPos is a position in a value and in a schema.
type schemaPos struct {
	// depth is that in the value, level the nesting of all visits, and chain how many visits are at the same
	// place.
	depth, level, chain int
	// tracks says that an enclosing schema asks which elements no other schema has checked.
	tracks bool
}

func (p schemaPos) below() schemaPos { return schemaPos{depth: p.depth + 1, level: p.level + 1} }

// visit counts a check of v against s, and reports whether steps are left.
func (w *schemaCost) visit(s *jsonschema.Schema, v any, at schemaPos) bool {
	if s == nil {
		return true
	}
	if w.visits++; w.visits%1024 == 0 && w.ctx.Err() != nil {
		return false
	}
	w.left -= stepsVisit + at.depth/8 + at.chain
	w.memory += bytesFault + 16*at.depth
	if w.left < 0 || at.level > 10*MaxValueDepth {
		return false
	}
	if s.Bool != nil {
		return true
	}
	if len(s.Extensions) > 0 && !w.whole(v) {
		return false
	}
	same := at
	same.level++
	same.chain++
	same.tracks = at.tracks || s.UnevaluatedProperties != nil || s.UnevaluatedItems != nil
	for _, sub := range [...]*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else} {
		if !w.visit(sub, v, same) {
			return false
		}
	}
	for _, list := range [...][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		for _, sub := range list {
			if !w.visit(sub, v, same) {
				return false
			}
		}
	}
	switch v := v.(type) {
	case map[string]any:
		return w.object(s, v, at, same)
	case []any:
		return w.array(s, v, at, same)
	case string:
		w.text(s, v)
	case json.Number:
		w.left -= stepsNumber + 2*len(v)
	}
	return w.left >= 0
}

func (w *schemaCost) text(s *jsonschema.Schema, v string) {
	w.left -= len(v) / bytesPerStep
	if s.Format != nil {
		w.left -= 2 * len(v)
	}
	w.match(s.Pattern, v)
}

// match counts a pattern against a text. At worst every instruction is tried at every byte.
func (w *schemaCost) match(re jsonschema.Regexp, text string) {
	if p, ok := re.(*schemaPattern); ok {
		w.left -= stepsInstruction * p.size * (len(text) + 1)
	}
}

func (w *schemaCost) object(s *jsonschema.Schema, v map[string]any, at, same schemaPos) bool {
	w.left -= w.s.lists[s]
	if same.tracks {
		w.left -= 2 * stepsElement * len(v)
	}
	for _, sub := range s.DependentSchemas {
		if !w.visit(sub, v, same) {
			return false
		}
	}
	for _, d := range s.Dependencies {
		if sub, ok := d.(*jsonschema.Schema); ok && !w.visit(sub, v, same) {
			return false
		}
	}
	below := at.below()
	more, _ := s.AdditionalProperties.(*jsonschema.Schema)
	for k, el := range v {
		w.left -= stepsText + len(k)/bytesPerStep
		if !w.visit(s.PropertyNames, k, below) || !w.visit(s.Properties[k], el, below) || !w.visit(more, el, below) ||
			!w.visit(s.UnevaluatedProperties, el, below) {
			return false
		}
		for re, sub := range s.PatternProperties {
			if w.match(re, k); !w.visit(sub, el, below) {
				return false
			}
		}
	}
	return w.left >= 0
}

func (w *schemaCost) array(s *jsonschema.Schema, v []any, at, same schemaPos) bool {
	w.left -= len(v)
	if same.tracks {
		w.left -= 2 * stepsElement * len(v)
	}
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
	below := at.below()
	for i, el := range v {
		if i < len(prefix) && !w.visit(prefix[i], el, below) {
			return false
		}
		for _, sub := range all {
			if !w.visit(sub, el, below) {
				return false
			}
		}
	}
	return w.left >= 0
}

// whole counts the elements and bytes of a value that is compared as a whole.
func (w *schemaCost) whole(v any) bool {
	w.left -= stepsElement
	switch v := v.(type) {
	case string:
		w.left -= len(v) / bytesPerStep
	case json.Number:
		w.left -= len(v)
	case []any:
		for _, el := range v {
			if w.left < 0 || !w.whole(el) {
				return false
			}
		}
	case map[string]any:
		for k, el := range v {
			w.left -= stepsElement + len(k)/bytesPerStep
			if w.left < 0 || !w.whole(el) {
				return false
			}
		}
	}
	return w.left >= 0
}
