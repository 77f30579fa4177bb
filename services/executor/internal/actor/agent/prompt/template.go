// Package prompt builds the text that a reasoner reads in the prompt form of an agent: templates with
// placeholders, and the texts of results, attachments, states and conversations that fill them. It is pure,
// and it must not know where these come from.
package prompt

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/internal/near"
)

// The placeholders of a template.
const (
	UserInput      = "user_input"
	Conversation   = "conversation"
	ActionResult   = "action_result"
	ActionMemory   = "action_memory"
	Attachments    = "attachments"
	CurrentState   = "current_state"
	PreviousStates = "previous_states"
	UserProfile    = "user_profile"
	Context        = "context"
	Tools          = "tools"
)

// Placeholders are all names that a template may hold between braces.
func Placeholders() []string {
	return []string{UserInput, Conversation, ActionResult, ActionMemory, Attachments, CurrentState, PreviousStates, UserProfile, Context, Tools}
}

// MaxTemplate bounds a template, in bytes.
const MaxTemplate = 256 << 10

// Default is the template of an agent that has none of its own.
const Default = `[[
Actions:
{tools}
]]

[[
User profile:
{user_profile}
]]

[[
Context:
{context}
]]

[[
Attachments:
{attachments}
]]

[[
Earlier states of the task, the newest first:
{previous_states}
]]

[[
Current state of the task:
{current_state}
]]

[[
Conversation:
{conversation}
]]

[[
Notes of the last actions:
{action_memory}
]]

[[
Results of the last actions:
{action_result}
]]
`

// Template is a text with placeholders. It is immutable.
type Template struct {
	blocks []block
	holds  map[string]bool
}

// block is a line, or the lines between [[ and ]]. It is left out if one of its placeholders has no value.
type block struct {
	parts []part
	blank bool
}

// part is a literal text, or the name of a placeholder.
type part struct {
	text        string
	placeholder bool
}

var placeholder = regexp.MustCompile(`\{\{([A-Za-z_][A-Za-z0-9_]*)\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// Parse reads a template. A placeholder is a name of Placeholders between braces; {{name}} stands for the
// text {name}, and other braces stand for themselves. A line that holds nothing but [[ begins a block, which
// ends with a line that holds nothing but ]]. The error lists every unknown placeholder with its line.
func Parse(text string) (*Template, error) {
	if len(text) > MaxTemplate {
		return nil, fmt.Errorf("the template has %d bytes, the limit is %d", len(text), MaxTemplate)
	}
	t := &Template{holds: map[string]bool{}}
	var faults []error
	var open *block
	opened := 0
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		switch strings.TrimSpace(line) {
		case "[[":
			if open != nil {
				faults = append(faults, fmt.Errorf("line %d: a block is open since line %d: end it with ]] first", i+1, opened))
			}
			open, opened = &block{}, i+1
			continue
		case "]]":
			if open == nil {
				faults = append(faults, fmt.Errorf("line %d: no block is open here", i+1))
				continue
			}
			t.blocks = append(t.blocks, *open)
			open = nil
			continue
		}
		parts, err := t.parts(line, i+1)
		faults = append(faults, err...)
		if open != nil {
			open.parts = append(open.parts, parts...)
			continue
		}
		t.blocks = append(t.blocks, block{parts: parts, blank: strings.TrimSpace(line) == ""})
	}
	if open != nil {
		faults = append(faults, fmt.Errorf("line %d: the block has no end: add a line with ]]", opened))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults[:min(len(faults), 10)]...)
	}
	return t, nil
}

// parts reads one line.
func (t *Template) parts(line string, number int) (out []part, faults []error) {
	from := 0
	for _, m := range placeholder.FindAllStringSubmatchIndex(line, -1) {
		if m[0] > from {
			out = append(out, part{text: line[from:m[0]]})
		}
		from = m[1]
		if m[2] >= 0 { // {{name}}
			out = append(out, part{text: line[m[0]+1 : m[1]-1]})
			continue
		}
		name := line[m[4]:m[5]]
		if !slices.Contains(Placeholders(), name) {
			faults = append(faults, unknown(name, number))
			continue
		}
		t.holds[name] = true
		out = append(out, part{text: name, placeholder: true})
	}
	if from < len(line) {
		out = append(out, part{text: line[from:]})
	}
	return out, faults
}

func unknown(name string, line int) error {
	for _, known := range Placeholders() {
		if _, ok := near.Within(name, known, len(known)/4); ok {
			return fmt.Errorf("line %d: there is no placeholder {%.80s}, did you mean {%s}?", line, name, known)
		}
	}
	return fmt.Errorf("line %d: there is no placeholder {%.80s}: use one of %s, or write {{%.80s}} for the text itself", line, name,
		strings.Join(Placeholders(), ", "), name)
}

// Holds reports whether the template has the placeholder.
func (t *Template) Holds(name string) bool { return t.holds[name] }

// Render fills the placeholders in. A placeholder whose value is empty has none: the line that holds it, or
// the whole block, is left out, and so is one of the blank lines around it. Values are inserted as they are:
// braces in them are no placeholders. An ActionMemory at the beginning of a line is indented by two blanks.
func (t *Template) Render(values map[string]string) string {
	var b strings.Builder
	// gap says that the output is at its beginning or ends with a blank line, and something was left out
	// since.
	atGap, omitted := true, false
	for i := range t.blocks {
		bl := &t.blocks[i]
		if bl.lacks(values) {
			omitted = true
			continue
		}
		if bl.blank && atGap && omitted {
			continue
		}
		for _, p := range bl.parts {
			if !p.placeholder {
				b.WriteString(p.text)
				continue
			}
			if begun := b.String(); p.text == ActionMemory && (begun == "" || strings.HasSuffix(begun, "\n")) {
				b.WriteString("  ") // its other lines are indented, too
			}
			b.WriteString(values[p.text])
		}
		atGap = bl.blank
		omitted = omitted && bl.blank
	}
	return strings.TrimLeft(strings.TrimRightFunc(b.String(), unicode.IsSpace), "\r\n")
}

func (bl *block) lacks(values map[string]string) bool {
	return slices.ContainsFunc(bl.parts, func(p part) bool { return p.placeholder && values[p.text] == "" })
}
