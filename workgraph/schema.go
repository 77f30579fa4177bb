package workgraph

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Bounds of a JSON Schema. It may come from a model or a stranger, and the time and memory to read one grow
// much faster than its text.
const (
	maxSchemaBytes = 256 << 10
	maxSchemaDepth = 64
	// maxSubschemas bounds the objects, arrays and booleans in one schema. The compiler's time grows with
	// their square.
	maxSubschemas = 5_000
	// maxSchemaNames bounds the sum of the lengths of the paths to them. The compiler writes each path out
	// several times.
	maxSchemaNames = 2 << 20
	// maxSchemaIDs bounds resources, and maxSchemaRefs references into parts that the compiler does not know
	// to hold schemas, each multiplied by the number of subschemas: for each of them the compiler walks over
	// all subschemas.
	maxSchemaIDs  = 1_000_000
	maxSchemaRefs = 100_000
	// maxPatternBytes bounds one pattern in bytes. maxPatterns bounds the matcher instructions of all
	// patterns of one schema.
	maxPatternBytes = 8 << 10
	maxPatterns     = 50_000
	// maxExponent keeps a number of few digits from becoming one of a million.
	maxExponent = 400
)

// schemaURL is the name of the schema that is compiled. Nothing is ever loaded from it.
const schemaURL = "schema:///schema.json"

type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("reference to %s: remote schemas are not read", url)
}

// Schema is a compiled JSON Schema. It is immutable and safe for concurrent use.
type Schema struct {
	s *jsonschema.Schema
	// probe is the negation of s. It tells whether s accepts a value without collecting the faults of the
	// value.
	probe *jsonschema.Schema
	// lists is the cost of looking through the lists of property names in each schema.
	lists map[*jsonschema.Schema]int
	// steps are the instructions of its patterns.
	steps int
}

// CompileSchema compiles a JSON Schema (2020-12) within bounds. It reads nothing from elsewhere: a $ref to
// another document is an error.
func CompileSchema(ctx context.Context, raw json.RawMessage) (*Schema, error) {
	s, _, err := compileSchema(ctx, raw, maxPatterns)
	return s, err
}

// compileSchema is CompileSchema with a bound on the instructions of its patterns. cost is the number of
// subschemas that were looked at; it is set also if the schema is refused.
func compileSchema(ctx context.Context, raw json.RawMessage, patterns int) (_ *Schema, cost int, err error) {
	switch {
	case ctx.Err() != nil:
		return nil, 0, context.Cause(ctx)
	case len(raw) > maxSchemaBytes:
		return nil, 0, fmt.Errorf("the schema has %d bytes, the limit is %d", len(raw), maxSchemaBytes)
	case deeper(raw, maxSchemaDepth):
		return nil, 0, fmt.Errorf("the schema is nested more than %d deep", maxSchemaDepth)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, 0, errors.New("the schema is not JSON")
	}
	cost, err = surveySchema(doc)
	if err != nil {
		return nil, cost, err
	}
	c, left := jsonschema.NewCompiler(), patterns
	whose := "schema"
	if patterns < maxPatterns {
		whose = "graph" // its other schemas have used some
	}
	var unread error // of the first pattern that cannot be read
	c.UseLoader(noLoader{})
	c.UseRegexpEngine(func(text string) (jsonschema.Regexp, error) {
		p, err := compilePattern(text, whose, &left)
		if _, unreadable := errors.AsType[*syntax.Error](err); unreadable && unread == nil {
			unread = fmt.Errorf("%sa pattern of the schema cannot be used: %s", atPlace(placeOfPattern(doc, text)), PatternFault(text, err))
		}
		return p, err
	})
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, cost, errors.New(schemaFault(doc, err))
	}
	s, err := c.Compile(schemaURL)
	if unread != nil {
		return nil, cost, unread
	}
	if err != nil {
		return nil, cost, errors.New(schemaFault(doc, err))
	}
	out := &Schema{s: s, probe: &jsonschema.Schema{Not: s}, lists: map[*jsonschema.Schema]int{}, steps: patterns - left}
	if err := out.prepare(s); err != nil {
		return nil, cost, err
	}
	return out, cost, nil
}

// schemaSurvey is what a schema's text contains, as far as the compiler's time and memory depend on it.
type schemaSurvey struct {
	doc              any
	subschemas       int
	names, ids, refs int
	old              bool
	seenRefs         map[string]bool
}

// surveySchema refuses a schema that would take the compiler long. It returns how many objects, arrays and
// booleans it has seen.
func surveySchema(doc any) (int, error) {
	if n := wildNumber(doc); n != "" {
		return 0, fmt.Errorf("the number %.40s in the schema is out of range", n)
	}
	w := &schemaSurvey{doc: doc, seenRefs: map[string]bool{}}
	w.drafts(doc)
	w.walk(doc, 0)
	switch {
	case w.subschemas > maxSubschemas:
		return w.subschemas, fmt.Errorf("the schema holds more than %d objects, arrays and booleans", maxSubschemas)
	case w.names > maxSchemaNames:
		return w.subschemas, errors.New("the names in the schema are too long together")
	case w.ids*w.subschemas > maxSchemaIDs:
		return w.subschemas, fmt.Errorf("the schema has %d $id and $dynamicAnchor, which are too many for its size", w.ids)
	case w.refs*w.subschemas > maxSchemaRefs:
		return w.subschemas, fmt.Errorf("the schema has %d $ref into parts that hold no schemas, which are too many for its size: put them below $defs", w.refs)
	}
	return w.subschemas, nil
}

// drafts finds out whether some part of the schema follows an older draft, which knows fewer keywords and
// names resources with id.
func (w *schemaSurvey) drafts(v any) {
	switch v := v.(type) {
	case map[string]any:
		if s, ok := v["$schema"].(string); ok && !strings.Contains(s, "2020-12") && !strings.Contains(s, "2019-09") {
			w.old = true
		}
		for _, el := range v {
			w.drafts(el)
		}
	case []any:
		for _, el := range v {
			w.drafts(el)
		}
	}
}

func (w *schemaSurvey) walk(v any, path int) {
	switch v := v.(type) {
	case bool:
		w.subschemas++
		w.names += path
	case map[string]any:
		w.subschemas++
		w.names += path
		for k, el := range v {
			if w.subschemas > maxSubschemas || w.names > maxSchemaNames {
				return
			}
			if text, ok := el.(string); ok {
				w.keyword(k, text)
			}
			w.walk(el, path+1+len(k))
		}
	case []any:
		w.subschemas++
		w.names += path
		for i, el := range v {
			if w.subschemas > maxSubschemas || w.names > maxSchemaNames {
				return
			}
			w.walk(el, path+1+len(strconv.Itoa(i)))
		}
	}
}

func (w *schemaSurvey) keyword(k, text string) {
	switch k {
	case "$id", "$dynamicAnchor":
		w.ids++
	case "id":
		if w.old {
			w.ids++
		}
	case "$ref":
		if !w.seenRefs[text] && !w.compilerFinds(text) {
			w.refs++
		}
		w.seenRefs[text] = true
	}
}

// compilerFinds reports whether the compiler finds the schema that a reference points to during its own walk
// over the document.
func (w *schemaSurvey) compilerFinds(ref string) bool {
	if ref == "#" || strings.HasPrefix(ref, "#") && !strings.HasPrefix(ref, "#/") {
		return true
	}
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok || strings.ContainsAny(path, "%") {
		return false
	}
	for path != "" {
		var next string
		next, path, _ = strings.Cut(path, "/")
		switch next {
		case "not", "additionalProperties", "additionalItems", "propertyNames", "contains", "if", "then", "else":
			continue
		case "unevaluatedProperties", "unevaluatedItems":
			if w.old {
				return false
			}
			continue
		case "items":
			if first, rest, _ := strings.Cut(path, "/"); first != "" && first[0] >= '0' && first[0] <= '9' {
				path = rest
			}
			continue
		case "definitions", "properties", "patternProperties", "dependencies", "allOf", "anyOf", "oneOf":
		case "$defs", "dependentSchemas", "prefixItems":
			if w.old {
				return false
			}
		default:
			return false
		}
		_, path, ok = strings.Cut(path, "/") // the name or number below the keyword
		if !ok {
			return true
		}
	}
	return true
}

// schemaPattern is a regular expression with its size.
type schemaPattern struct {
	*regexp.Regexp
	size int
}

// compilePattern subtracts the pattern's size from left, which is shared by all patterns of the schema or
// graph.
func compilePattern(text, whose string, left *int) (*schemaPattern, error) {
	if len(text) > maxPatternBytes {
		return nil, fmt.Errorf("a pattern has %d bytes, the limit is %d", len(text), maxPatternBytes)
	}
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	size := instructions(re, *left)
	if *left -= size; *left <= 0 {
		return nil, fmt.Errorf("the patterns of the %s are too large together, the last is %.80q", whose, text)
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return &schemaPattern{compiled, size}, nil
}

// instructions estimates the size of a pattern with its repetitions written out. It stops counting above
// most.
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

// prepare walks over all schemas that a check may reach. It replaces the checks of the library whose time is
// not linear in the sizes of the value and the schema.
func (s *Schema) prepare(top *jsonschema.Schema) error {
	todo := []*jsonschema.Schema{top}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if at == nil {
			continue
		}
		if _, ok := s.lists[at]; ok {
			continue
		}
		if at.DynamicRef != nil || at.RecursiveRef != nil {
			// Their target depends on the value, so the cost cannot be counted.
			return errors.New("$dynamicRef and $recursiveRef are not taken: use $ref")
		}
		s.lists[at] = nameLists(at)
		if at.Enum != nil || at.Const != nil || at.UniqueItems {
			at.Extensions = append(at.Extensions, exactValues(at))
			at.Enum, at.Const, at.UniqueItems = nil, nil, false
		}
		if at.Format != nil && at.Format.Name == "regex" {
			at.Format = &jsonschema.Format{Name: "regex", Validate: regexFormat}
		}
		todo = appendSubschemas(todo, at)
	}
	return nil
}

func appendSubschemas(list []*jsonschema.Schema, s *jsonschema.Schema) []*jsonschema.Schema {
	list = append(list, s.Ref, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema)
	for _, more := range [...][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems} {
		list = append(list, more...)
	}
	for _, v := range [...]any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		switch v := v.(type) {
		case *jsonschema.Schema:
			list = append(list, v)
		case []*jsonschema.Schema:
			list = append(list, v...)
		}
	}
	list = slices.AppendSeq(list, maps.Values(s.Properties))
	list = slices.AppendSeq(list, maps.Values(s.PatternProperties))
	list = slices.AppendSeq(list, maps.Values(s.DependentSchemas))
	for _, d := range s.Dependencies {
		if sub, ok := d.(*jsonschema.Schema); ok {
			list = append(list, sub)
		}
	}
	return list
}

// nameLists is the cost of looking up every name that a schema lists.
func nameLists(s *jsonschema.Schema) int {
	n := 0
	names := func(list []string) {
		for _, k := range list {
			n += stepsText + len(k)/bytesPerStep
		}
	}
	names(s.Required)
	for k, list := range s.DependentRequired {
		names([]string{k})
		names(list)
	}
	for k, d := range s.Dependencies {
		names([]string{k})
		if list, ok := d.([]string); ok {
			names(list)
		}
	}
	for k := range s.DependentSchemas {
		names([]string{k})
	}
	return n
}

// regexFormat accepts texts that are valid patterns.
func regexFormat(v any) error {
	text, ok := v.(string)
	switch {
	case !ok:
		return nil
	case len(text) > maxPatternBytes:
		return fmt.Errorf("it has %d bytes, the limit is %d", len(text), maxPatternBytes)
	}
	_, err := syntax.Parse(text, syntax.Perl)
	return err
}

// Check is nil if the value satisfies the schema. Otherwise the error is a SchemaFaults, or another error if
// the check exceeded its bounds or ctx ended first.
func (s *Schema) Check(ctx context.Context, raw json.RawMessage) error {
	return s.check(ctx, raw, maxSchemaSteps)
}

func (s *Schema) check(ctx context.Context, raw json.RawMessage, steps int) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	if n := wildNumber(v); n != "" {
		return fmt.Errorf("the number %.40s is out of range", n)
	}
	w := schemaCost{s: s, ctx: ctx, left: steps}
	if !w.visit(s.s, v, schemaPos{}) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return errors.New("the schema needs too many steps for this value")
	}
	if s.probe.Validate(v) != nil {
		return nil
	}
	if w.memory > maxSchemaMemory {
		return SchemaFaults{{Message: "it is not what the schema asks for, and too large to say where"}}
	}
	err = s.s.Validate(v)
	if ve, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return schemaFaults(ve)
	}
	return err
}

// SchemaFault is one place of a value that does not satisfy a schema.
type SchemaFault struct {
	// Place is the JSON pointer of the place. It is empty for the whole value.
	Place   string
	Message string
}

// SchemaFaults are the places of a value that do not satisfy a schema, up to a number that a reader can use.
type SchemaFaults []SchemaFault

// Error lists the places in one line.
func (f SchemaFaults) Error() string {
	list := make([]string, len(f))
	for i, p := range f {
		list[i] = p.Message
		if p.Place != "" {
			list[i] = "at '" + p.Place + "': " + p.Message
		}
	}
	return strings.Join(list, "; ")
}

// maxPlaces bounds how many places are named, and maxFaultText the text of one fault in bytes.
const (
	maxPlaces    = 50
	maxFaultText = 1000
)

// schemaFaults are the first places of an error of the library, which may name a million.
func schemaFaults(err *jsonschema.ValidationError) SchemaFaults {
	var out SchemaFaults
	more := 0
	todo := []*jsonschema.ValidationError{err}
	for len(todo) > 0 {
		e := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, cause := range slices.Backward(e.Causes) {
			todo = append(todo, cause)
		}
		switch e.ErrorKind.(type) {
		case *kind.Schema, *kind.Group:
			continue
		case *kind.Reference:
			if len(e.Causes) > 0 {
				continue
			}
		}
		if len(out) == maxPlaces {
			more++
			continue
		}
		one := jsonschema.ValidationError{SchemaURL: e.SchemaURL, ErrorKind: e.ErrorKind}
		text := strings.TrimPrefix(one.Error(), "at '': ")
		out = append(out, SchemaFault{Place: clipText(jsonPointer(e.InstanceLocation), maxFaultText), Message: clipText(text, maxFaultText)})
	}
	if more > 0 {
		out = append(out, SchemaFault{Message: fmt.Sprintf("and %d more", more)})
	}
	return out
}

func jsonPointer(path []string) string {
	var b strings.Builder
	for _, p := range path {
		b.WriteByte('/')
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(p, "~", "~0"), "/", "~1"))
	}
	return b.String()
}

// clipText shortens a text to about most bytes, between two characters.
func clipText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

// wildNumber is a number in v whose value would take much memory. It is empty if there is none.
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
