package chat

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// question is the part of a schema that says what can be chosen.
type question struct {
	Type      json.RawMessage   `json:"type"`
	Enum      []json.RawMessage `json:"enum"`
	EnumNames []string          `json:"enumNames"`
	Items     *question         `json:"items"`
}

const (
	// maxChoices bounds the choices that a message lists, maxLabel one of them in bytes.
	maxChoices, maxLabel = 50, 200
	// maxAnswer bounds a text that is looked up among choices, in bytes.
	maxAnswer = 4 << 10
)

func readQuestion(schema json.RawMessage) (q question, several bool) {
	if json.Unmarshal(schema, &q) != nil {
		return question{}, false
	}
	if len(q.Enum) == 0 && q.Items != nil && len(q.Items.Enum) > 0 {
		return *q.Items, true
	}
	return q, false
}

// Answer is a text that a person wrote as the answer to a question with a schema: a choice by its
// number from 1, by its text or its label in any case, several of them with commas between them, a
// number, yes or no. What fits nothing is the text itself, which the question refuses if it takes no
// texts.
func Answer(schema json.RawMessage, text string) json.RawMessage {
	q, several := readQuestion(schema)
	whole := encode(text)
	said := strings.TrimSpace(text)
	switch {
	case len(said) > maxAnswer:
		return whole
	case several:
		chosen := []json.RawMessage{}
		for one := range strings.SplitSeq(said, ",") {
			v, ok := q.choice(strings.TrimSpace(one))
			if !ok {
				return whole
			}
			if !slices.ContainsFunc(chosen, func(o json.RawMessage) bool { return string(o) == string(v) }) {
				chosen = append(chosen, v)
			}
		}
		b, _ := json.Marshal(chosen) // they were read from JSON
		return b
	case len(q.Enum) > 0:
		if v, ok := q.choice(said); ok {
			return v
		}
		return whole
	}
	return q.plain(said, whole)
}

// plain is an answer to a question without choices.
func (q question) plain(said string, whole json.RawMessage) json.RawMessage {
	var kind string
	_ = json.Unmarshal(q.Type, &kind) // several types, or none, are read as texts
	switch kind {
	case "boolean":
		switch strings.ToLower(said) {
		case "yes", "y", "true":
			return json.RawMessage("true")
		case "no", "n", "false":
			return json.RawMessage("false")
		}
	case "integer", "number", "object", "array":
		if json.Valid([]byte(said)) {
			return json.RawMessage(said)
		}
	}
	return whole
}

// choice finds one by what was said of it.
func (q question) choice(said string) (json.RawMessage, bool) {
	for i, v := range q.Enum {
		if strings.EqualFold(said, label(v)) || i < len(q.EnumNames) && strings.EqualFold(said, q.EnumNames[i]) {
			return v, true
		}
	}
	if n, err := strconv.Atoi(said); err == nil && n >= 1 && n <= len(q.Enum) {
		return q.Enum[n-1], true
	}
	return nil, false
}

// Question is a question as a person reads it: what is asked, and the choices with their numbers.
func Question(prompt, schema json.RawMessage) string {
	var b strings.Builder
	b.WriteString(Text(prompt))
	if b.Len() == 0 {
		b.WriteString("An answer is needed.")
	}
	q, several := readQuestion(schema)
	for i, v := range q.Enum {
		if i == maxChoices {
			b.WriteString("\n…")
			break
		}
		name := label(v)
		if i < len(q.EnumNames) && q.EnumNames[i] != "" {
			name = q.EnumNames[i]
		}
		fmt.Fprintf(&b, "\n%d. %s", i+1, cut(name, maxLabel))
	}
	if several && len(q.Enum) > 0 {
		b.WriteString("\n(several, with commas between them)")
	}
	return b.String()
}

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// label is a value as a person reads it.
func label(v json.RawMessage) string {
	var s string
	if json.Unmarshal(v, &s) == nil {
		return s
	}
	return string(v)
}

func encode(text string) json.RawMessage {
	b, _ := json.Marshal(text) // a text always has a form
	return b
}
