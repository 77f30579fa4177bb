package main

import (
	"encoding/json"
	"strconv"
	"strings"
)

// answer is what the tasks of all plans answer: an object with every field for which a plan asks.
type answer struct {
	fields map[string]*answer
	items  []*answer
}

// maxItems bounds the lists of answers.
const maxItems = 100

// add makes room for a field such as "items[0].name". It reports false if the answer has something else
// there.
func (a *answer) add(field string) bool {
	at := a
	for _, part := range strings.FieldsFunc(field, func(r rune) bool { return strings.ContainsRune(`.[]"' `, r) }) {
		if n, err := strconv.Atoi(part); err == nil {
			if at.fields != nil || n < 0 || n >= maxItems {
				return false
			}
			for len(at.items) <= n {
				at.items = append(at.items, &answer{})
			}
			at = at.items[n]
			continue
		}
		if at.items != nil {
			return false
		}
		if at.fields == nil {
			at.fields = map[string]*answer{}
		}
		if at.fields[part] == nil {
			at.fields[part] = &answer{}
		}
		at = at.fields[part]
	}
	return true
}

// MarshalJSON writes the answer; a field of which no part is asked for is a text.
func (a *answer) MarshalJSON() ([]byte, error) {
	switch {
	case a.fields != nil:
		return json.Marshal(a.fields)
	case a.items != nil:
		return json.Marshal(a.items)
	}
	return []byte(`"done"`), nil
}

// text is the answer as JSON of as many tokens of four bytes, if its fields need no more.
func (a *answer) text(tokens int) string {
	a.add("words")
	raw, err := json.Marshal(a)
	if err != nil {
		return "" // answers always marshal
	}
	return strings.Replace(string(raw), `"words":"done"`, `"words":"`+strings.Repeat("word", max(1, tokens-len(raw)/4))+`"`, 1)
}
