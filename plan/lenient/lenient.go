// Package lenient reads single values and tags out of what models write, by the rules by which package plan
// reads plans. It owns the line between a slip, which is mended, and a fault, which is told. It must not know
// what the values are for.
package lenient

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// Bounds of one value. MaxDepth is how deep lists and objects may lie in each other.
const (
	MaxDepth  = 200
	maxValues = 200_000
)

// JSON returns the one value of a text as JSON. JSON is returned as it is, however deep. Slips are mended:
// other quotes, constants and tuples of Python, comments, keys without quotes, quotes within a text that are
// not escaped, commas that are missing or too many, closing brackets behind the value, and a missing closing
// bracket before one that closes what is around it. Numbers keep their digits. The error says what is wrong,
// where, and how to mend it: a text that breaks off, text without quotes, and brackets whose place is a
// guess.
func JSON(s string) (json.RawMessage, error) {
	s = strings.TrimSpace(s)
	if json.Valid([]byte(s)) {
		return json.RawMessage(s), nil
	}
	raw, n, err := At(s)
	if err != nil {
		return nil, err
	}
	if rest := strings.TrimLeft(s[n:], " \t\r\n}]);"); rest != "" {
		return nil, fault(s, len(s)-len(rest), "", "text follows after the end of the value", "leave it out, or check the brackets before it")
	}
	return raw, nil
}

// At is JSON for the value with which a text begins, an object or a list. n is its length in the text, which
// may go on with anything but with a part of a list or an object.
func At(s string) (raw json.RawMessage, n int, err error) {
	dec := json.NewDecoder(strings.NewReader(s))
	if err := dec.Decode(&raw); err == nil {
		n = int(dec.InputOffset())
	} else if raw, n, err = mended(s); err != nil {
		return nil, 0, err
	}
	if goesOn(s[n:]) {
		return nil, 0, fault(s, n, "", "the value ends here, and more of it follows", "check the brackets before this place")
	}
	return raw, n, nil
}

// goesOn reports whether a text continues a value that was closed too early.
func goesOn(rest string) bool {
	inner := strings.TrimLeft(rest, " \t\r\n}])")
	after, comma := strings.CutPrefix(inner, ",")
	after = strings.TrimLeft(after, " \t\r\n")
	return comma && after != "" && strings.IndexByte(`{["'`, after[0]) >= 0
}

// mended reads a value that is not JSON.
func mended(s string) (json.RawMessage, int, error) {
	t, n := form.Lone(s, MaxDepth, maxValues)
	switch {
	case t.Root == nil && t.CutOff:
		return nil, 0, fault(s, len(s), "", "the text breaks off within the value", "write it to its end")
	case t.Root == nil:
		return nil, 0, fault(s, n, "", "this is no value, or it is nested too deep", "check quotes, commas and brackets here")
	case t.CutOff && n >= len(s):
		return nil, 0, fault(s, t.Root.Off, "", "the value that begins here breaks off", "write it to its end, with all closing brackets")
	case t.CutOff:
		return nil, 0, fault(s, n, "", fmt.Sprintf("there are more than %d values", maxValues), "write less")
	}
	for _, f := range t.Faults {
		if f.Serious && f.Code != form.CodeUnclosed {
			return nil, 0, fault(s, f.Off, f.Element, f.Message, f.Hint)
		}
	}
	open := map[int]bool{}
	if err := certain(s, t.Root, open); err != nil {
		return nil, 0, err
	}
	for _, f := range t.Faults {
		if f.Serious && !open[f.Off] {
			return nil, 0, fault(s, f.Off, f.Element, f.Message, f.Hint)
		}
	}
	return json.RawMessage(form.JSON(t.Root)), n, nil
}

func isBracket(s string) bool { return s == "{" || s == "[" || s == "(" }

// certain reports what in a value is a guess: a text without quotes, a call, a number that is none, or a
// bracket that was not closed where an outer one is. It puts the places of the other open brackets into open.
func certain(s string, v *form.Value, open map[int]bool) error {
	switch v.Kind {
	case form.KindCall:
		return fault(s, v.Off, v.Str, "this is a call and no value", "write an object")
	case form.KindBare:
		return fault(s, v.Off, form.Clip(v.Str), "this text has no quotes", "write it in double quotes")
	case form.KindNumber:
		if v.Str = number(v.Str); v.Str == "" {
			return fault(s, v.Off, "", "this is no number", "write its digits")
		}
	}
	if v.Open {
		if v.End >= len(s) || strings.IndexByte("}])", s[v.End]) < 0 {
			return fault(s, v.Off, "", "what is opened here is not closed", "write the closing bracket")
		}
		open[v.Off] = true
	}
	for _, x := range v.Items {
		if err := certain(s, x, open); err != nil {
			return err
		}
	}
	for _, f := range v.Fields {
		if err := certain(s, f.Val, open); err != nil {
			return err
		}
	}
	return nil
}

// number is a number of Python or JavaScript as one of JSON, or empty.
func number(s string) string {
	sign := ""
	switch s = strings.TrimPrefix(s, "+"); {
	case strings.HasPrefix(s, "-"):
		sign, s = "-", s[1:]
	}
	if strings.HasPrefix(s, ".") {
		s = "0" + s
	}
	if whole, ok := strings.CutSuffix(s, "."); ok {
		s = whole + ".0"
	}
	if s == "" || s[0] < '0' || s[0] > '9' || !json.Valid([]byte(sign+s)) {
		return ""
	}
	return sign + s
}

// fault is an error at a place in a text.
func fault(s string, off int, element, message, hint string) error {
	off = min(max(off, 0), len(s))
	line := 1 + strings.Count(s[:off], "\n")
	where := "line " + strconv.Itoa(line)
	if near := form.Clip(strings.TrimSpace(s[off:min(len(s), off+60)])); near != "" {
		where += fmt.Sprintf(", at %q", near)
	}
	if element != "" && !isBracket(element) {
		message = fmt.Sprintf("%q: %s", element, message)
	}
	return fmt.Errorf("%s: %s: %s", where, message, hint)
}

// Attr is an attribute of a tag.
type Attr struct{ Name, Value string }

// Tag reads the tag at s[at:], which begins with "<". It returns the name, the attributes, and the length,
// which is 0 if there is no tag. The name of an end tag begins with a slash.
func Tag(s string, at int) (name string, attrs []Attr, n int) {
	name, fields, n := form.Tag(s, at)
	for _, f := range fields {
		attrs = append(attrs, Attr{f.Key, f.Val.Str})
	}
	return name, attrs, n
}

// Unfence is the text within a fence of three backquotes around all of it, or else the text.
func Unfence(s string) string {
	s = strings.TrimSpace(s)
	inner, ok := strings.CutPrefix(s, "```")
	if !ok {
		return s
	}
	first, rest, ok := strings.Cut(inner, "\n")
	if !ok || strings.ContainsAny(first, "{[<") {
		rest = strings.TrimPrefix(strings.TrimPrefix(inner, "json"), "xml")
	}
	if end := strings.LastIndex(rest, "```"); end >= 0 { // the value itself may hold fences
		rest = rest[:end]
	}
	if rest = strings.TrimSpace(rest); rest == "" {
		return s
	}
	return rest
}
