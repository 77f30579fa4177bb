package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// TestNothingVanishes shows that no word of a text is lost, nor any value or label of data, code and
// drawings. Each is part of a problem or an edge, has a diagnostic on its line, or stands on a line that is
// part of no problem. What sentences say of an edge is part of the edge.
func TestNothingVanishes(t *testing.T) {
	t.Parallel()
	texts, err := readTexts("texts")
	require.NoError(t, err)
	// Known gaps: a column of months without a head; the name of a lane; shapes of nodes; heads of an HTML
	// table that are written as cells; names of states that only hold branches and are replaced by these.
	open := []string{
		"gantt/carnaval", "ascii/swimlane-d3", "diagrams/mermaid-v11-shapes-d5", "tables/html-inline-styles-d6",
		"stepfunctions/parallel-branches-q", "stepfunctions/parallel-8", "stepfunctions/parallel-blood", "stepfunctions/parallel-branches-m",
		"stepfunctions/map-v1", "stepfunctions/parallel-states-v2",
		// Words before arrows on their line; classes of nodes; the parameter of a recipe; calls around links.
		"arrows/one-liner-q", "arrows/markdown-arrows-zh-d5", "diagrams/mermaid-40-d4", "makefile/just-args-8",
		"transcript/claude-code-todo-v1", "transcript/add-edge-calls-v2",
	}
	// Words of notations: org-edna, tags of CloudFormation, entities, sections of XML, the type of a call,
	// heads of a list of nodes and edges, ports of n8n.
	marks := []string{"ids", "getatt", "ndash", "nbsp", "cdata", "function", "nodes", "edges", "main"}
	lost, read := 0, 0
	for _, x := range texts {
		res := plan.Parse(x.Body)
		if res.NoPlan != nil {
			continue
		}
		read++
		if res.Dialect == "table" && len(res.Graph.Problems) > 0 { // the names of the columns
			line := res.Graph.Problems[0].Line
			res.Surroundings = append(res.Surroundings, plan.LineRange{First: line - 2, Last: line - 1})
		}
		body := x.Body
		if x.Style == "transcript" { // the speaker is no part of the plan
			body = speakers.ReplaceAllString(body, "")
		}
		body = valuesOf(body, res.Dialect)
		words := slices.DeleteFunc(vanished(body, res), func(w string) bool { return slices.Contains(marks, w) })
		if slices.Contains(open, x.ID) {
			require.NotEmpty(t, words, "%s is mended: take it out of the list", x.ID)
			continue
		}
		if len(words) > 0 {
			lost++
			t.Logf("%s (%s): %q", x.ID, res.Dialect, words)
		}
	}
	require.Greater(t, read, 2000)
	require.Zero(t, lost)
}

// valuesOf blanks the keys, tags and keywords of a text, so that its values are left. In code the quoted
// texts are left.
func valuesOf(body, dialect string) string {
	switch dialect {
	case "outline", "table", "prose":
		return body
	case "code", "numbered_calls", "assignments", "xml_functions":
		body = notQuoted.ReplaceAllStringFunc(body, blank)
	case "diagram":
		body = drawn.ReplaceAllStringFunc(body, blank)
	}
	return keys.ReplaceAllStringFunc(body, func(s string) string {
		if strings.Contains(s, "think") {
			return s
		}
		return blank(s)
	})
}

var (
	keys      = regexp.MustCompile(`(?m)[\p{L}\p{M}\w.$/-]+["']? *[:=]|["“][^"“”\n]*["”] *:|^[\p{L} *]{3,24}:|<th[ >].*|</?[\p{L}\p{M}\w:.-]+`)
	notQuoted = regexp.MustCompile(`(?m)(^|["'])[^"'\n]*(["']|$)`)
	drawn     = regexp.MustCompile(`\b(label|shape|rectangle|component|lasts|starts|happens|fork_state|join_state|down|right)\b`)
)

func blank(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '"' || r == '\'' {
			return r
		}
		return ' '
	}, s)
}

// speakers matches names, with or without a time, before their words in a conversation.
var speakers = regexp.MustCompile(`(?m)^[\d:, \[\].-]*\p{L}+: `)

// vanished returns the words of a text that are not in the result.
func vanished(text string, res plan.Result) []string {
	var b strings.Builder
	hold := func(ss ...string) {
		for _, s := range ss {
			b.WriteString(strings.ToLower(s) + "\n")
		}
	}
	lines := map[int]bool{}
	for _, p := range res.Graph.Problems {
		hold(p.ID, p.Request, p.Details, p.Tool)
		for _, a := range p.Args {
			var v any
			_ = json.Unmarshal(a.JSON(), &v)
			s, _ := v.(string)
			hold(a.Name, s, a.Value)
		}
	}
	for _, e := range res.Graph.Edges {
		hold(e.From, e.To)
		if res.Dialect == "outline" || res.Dialect == "prose" || res.Dialect == "table" {
			lines[e.Line] = true
		}
	}
	for _, d := range res.Diagnostics {
		if d.Code != plan.AssumedOrder && d.Code != plan.OpenEnd {
			lines[d.Line] = true
		}
	}
	for _, s := range res.Surroundings {
		for i := s.First; i <= s.Last; i++ {
			lines[i] = true
		}
	}
	held := b.String()
	var out []string
	thinks := false
	all := strings.Split(text, "\n")
	for i, line := range all {
		if i+1 < len(all) && strings.HasPrefix(strings.TrimLeft(all[i+1], "| "), "--") {
			continue // the header of a table
		}
		thinks = (thinks || strings.Contains(line, "<think")) && !strings.Contains(line, "</think")
		if lines[i+1] || thinks || strings.Contains(line, "</think") || strings.HasPrefix(strings.TrimSpace(line), "```") {
			continue
		}
		for _, w := range words(withoutKnown(line)) {
			if !strings.Contains(held, w) {
				out = append(out, w)
			}
		}
	}
	return out
}

// withoutKnown blanks the words of order and the names of fields that the reader knows: their meaning is in
// the edges.
func withoutKnown(line string) string {
	b := []byte(line)
	for _, t := range lexicon.Scan(line) {
		for i := t.Off; i < t.End; i++ {
			b[i] = ' '
		}
	}
	lead := len(line) - len(strings.TrimLeft(line, " :"))
	if at := lead + bytes.IndexAny(b[lead:], ":=："); at > lead {
		key := strings.Trim(line[lead:at], " -*_|")
		if _, ok := lexicon.Field(key); ok || strings.HasSuffix(line, ":") && strings.Count(line, ":") == 1 {
			b = b[at:]
		}
	}
	return string(b)
}

// words returns the words of at least three letters, in lower case.
func words(s string) []string {
	all := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.Is(unicode.Mn, r) && !unicode.Is(unicode.Mc, r)
	})
	out := all[:0]
	for _, w := range all {
		if w = strings.Trim(w, "_"); len([]rune(w)) > 2 {
			out = append(out, w)
		}
	}
	return out
}
