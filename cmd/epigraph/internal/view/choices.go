package view

import (
	"encoding/json"
	"regexp"
	"strings"
)

// Choice is one answer to choose from, with its label if it has one.
type Choice struct {
	Value json.RawMessage
	Label string
}

// Choices are the answers that an interrupt lets a person choose from; none for an answer in free form.
type Choices struct {
	List []Choice
	// Multiple says that the answer is a list of them.
	Multiple bool
}

// ChoicesOf reads the choices from the schema of an interrupt's answer.
func ChoicesOf(schema []byte) Choices {
	type options struct {
		Enum      []json.RawMessage `json:"enum"`
		EnumNames []string          `json:"enumNames"`
	}
	var s struct {
		options
		Type  any     `json:"type"`
		Items options `json:"items"`
	}
	if len(schema) == 0 || json.Unmarshal(schema, &s) != nil {
		return Choices{}
	}
	c, of := Choices{}, s.options
	if s.Type == "array" {
		c.Multiple, of = true, s.Items
	}
	for i, v := range of.Enum {
		x := Choice{Value: v}
		if len(of.EnumNames) == len(of.Enum) {
			x.Label = of.EnumNames[i]
		}
		c.List = append(c.List, x)
	}
	c.Multiple = c.Multiple && len(c.List) > 0
	return c
}

// Named is the answer for the choice that has this label, or whose value reads like this.
func (c Choices) Named(text string) (json.RawMessage, bool) {
	text = strings.TrimSpace(text)
	for _, x := range c.List {
		if jsonText(x.Value) == text || x.Label != "" && strings.EqualFold(x.Label, text) {
			if c.Multiple {
				return json.RawMessage("[" + string(x.Value) + "]"), true
			}
			return x.Value, true
		}
	}
	return nil, false
}

// word is what a shell takes without quotes.
var word = regexp.MustCompile(`^[A-Za-z0-9_./:@%+-]+$`)

// maxWords is how many choices a command shows.
const maxWords = 6

// Words are the choices as a person types one, for a command; otherwise if there are none, or too many.
func (c Choices) Words(otherwise string) string {
	if len(c.List) == 0 || len(c.List) > maxWords {
		return otherwise
	}
	var out []string
	for _, x := range c.List {
		text := jsonText(x.Value)
		if !word.MatchString(text) || len(text) > 40 {
			return otherwise
		}
		out = append(out, text)
	}
	return strings.Join(out, "|")
}
