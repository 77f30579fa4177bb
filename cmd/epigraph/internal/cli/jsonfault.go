package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	planv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/plan/v1"
)

// misread is a graph, or a change of one, that cannot be read, with the place.
type misread struct {
	fault *errs.Error
	at    *planv1.Diagnostic
}

// Error is the fault, with the place in words.
func (m *misread) Error() string { return m.fault.Error() }

// Unwrap lets the reason be asked for.
func (m *misread) Unwrap() error { return m.fault }

var (
	// jsonGraph and jsonActor are keys of a graph in JSON, or in what is almost JSON.
	jsonGraph = regexp.MustCompile(`[{,\s]["']?nodes["']?\s*:\s*[\[{]|^["']nodes["']\s*:`)
	jsonActor = regexp.MustCompile(`[{,\s]["']?actor["']?\s*:`)
	comment   = regexp.MustCompile(`^(//[^\n]*|#[^\n]*|(?s:/\*.*?\*/))\s*`)
	yamlGraph = regexp.MustCompile(`(?m)^(graph:[ \t]*\r?\n[ \t]+)?nodes:[ \t]*(\[|\r?$)`)
	yamlActor = regexp.MustCompile(`(?m)^[ \t-]*(\{.*)?actor:[ \t]*\S`)
)

// brokenGraph describes the fault of a text that was meant to be a graph: JSON that is cut off, or another
// notation. It is nil for any other text, which may hold a plan.
func brokenGraph(text string) error {
	trimmed := strings.TrimLeft(text, " \t\r\n\ufeff")
	for comment.MatchString(trimmed) {
		trimmed = comment.ReplaceAllString(trimmed, "")
	}
	opens := strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, `"nodes"`) || strings.HasPrefix(trimmed, "'nodes'")
	switch {
	case opens && jsonGraph.MatchString(text) && jsonActor.MatchString(text):
		var doc any
		err := json.Unmarshal([]byte(text), &doc)
		if err == nil {
			return nil
		}
		offset, what, hint := jsonFault(text, err)
		return faultAt(text, offset, "the graph is not JSON: "+what, hint)
	case yamlGraph.MatchString(text) && yamlActor.MatchString(text):
		return faultAt(text, yamlGraph.FindStringIndex(text)[0], "this is a graph in YAML, and graphs are read as JSON",
			"convert it, for example with `yq -o=json graph.yaml > graph.json`")
	}
	return nil
}

func faultAt(text string, offset int, message, hint string) error {
	return misreadAt(graphpb.ReasonGraphInvalid, text, offset, message, hint)
}

func misreadAt(reason, text string, offset int, message, hint string) error {
	line, column := lineColumn(text, offset)
	e := errs.New(errs.InvalidArgument, reason, "line %d, column %d: %s", line, column, message)
	if hint != "" {
		e = e.Hint(hint)
	}
	return &misread{e, &planv1.Diagnostic{Code: reason, Severity: planv1.Severity_SEVERITY_ERROR, Line: int32(line), Column: int32(column),
		Message: message, Hint: hint}}
}

// lineColumn is the line and the column, in characters from 1, of a byte of text.
func lineColumn(text string, offset int) (line, column int) {
	before := text[:min(max(offset, 0), len(text))]
	line = strings.Count(before, "\n") + 1
	return line, utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
}

// jsonFault says in words why text is not JSON, and where: at the character that is to be changed.
func jsonFault(text string, err error) (offset int, what, hint string) {
	s, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return 0, err.Error(), ""
	}
	at := max(int(s.Offset)-1, 0)
	if strings.Contains(s.Error(), "unexpected end") || at >= len(text) {
		return len(strings.TrimRight(text, " \t\r\n")), "it ends in the middle" + expected(text), ""
	}
	r, _ := utf8.DecodeRuneInString(text[at:])
	found := fmt.Sprintf("%q", string(r))
	before := strings.TrimRight(text[:at], " \t\r\n")
	last := byte(0)
	if before != "" {
		last = before[len(before)-1]
	}
	msg := s.Error()
	switch {
	case last == ',' && (r == '}' || r == ']'):
		return len(before) - 1, "nothing follows this comma", "take it away: JSON has no comma before " + string(r)
	case r == '/' || r == '#':
		return at, "JSON has no comments", "take it away"
	case r == '\'':
		return at, "JSON puts texts in double quotes", "write \" in place of '"
	case strings.Contains(msg, "in string literal") && (r == '\n' || r == '\r'):
		return at, "a text must end on the line on which it begins", "write \\n for a line break in it"
	case strings.Contains(msg, "after object key:value pair") && r == ']':
		return at, "a closing } is missing before this ]", ""
	case strings.Contains(msg, "after array element") && r == '}':
		return at, "a closing ] is missing before this }", ""
	case strings.Contains(msg, "after object key:value pair"), strings.Contains(msg, "after array element"):
		return at, "a comma is missing before " + found, ""
	case strings.Contains(msg, "looking for beginning of object key"):
		return at, "a key in double quotes is expected here, not " + found, ""
	case strings.Contains(msg, "after top-level value") && r == ':':
		return 0, "an opening { is missing before the first key", ""
	case strings.Contains(msg, "after object key"):
		return at, "a colon is expected here, not " + found, ""
	case strings.Contains(msg, "after top-level value"):
		return at, "something follows the end of the graph", "a brace too many, perhaps"
	case strings.Contains(msg, "looking for beginning of value"):
		return at, "a value is expected here, not " + found, ""
	case strings.Contains(msg, "in literal"):
		return at, "this is no value", "write true, false, null, a number or a text in double quotes"
	}
	return at, found + " cannot stand here", ""
}

// expected says what a text that breaks off lacks at its end: it follows the brackets outside of strings.
func expected(text string) string {
	var open []byte
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			open = append(open, '}')
		case c == '[':
			open = append(open, ']')
		case (c == '}' || c == ']') && len(open) > 0:
			open = open[:len(open)-1]
		}
	}
	slices.Reverse(open)
	missing := string(open)
	if quoted {
		missing = `"` + missing
	}
	if missing == "" {
		return ""
	}
	return ": " + missing + " is missing at the end"
}
