package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// decision is what a reasoner wants: exactly one of groups, graph and result is set.
type decision struct {
	groups [][]wanted
	graph  json.RawMessage
	result json.RawMessage
}

// wanted is one action that is asked for.
type wanted struct {
	action    string
	arguments map[string]json.RawMessage
}

// Bounds of the text that is read.
const (
	maxDecision = 1 << 20
	maxGroups   = 1000
	maxStarts   = 16 // places in a text at which JSON is looked for
)

// read decodes the output of a reasoner in the forms that models use: an object, its text, bare, fenced or
// after other words, actions in groups or one after another. A text that is no decision is the result. The
// error is for the reasoner.
func read(raw json.RawMessage) (*decision, error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) > maxDecision:
		return nil, fmt.Errorf("the decision has %d bytes, the limit is %d", len(raw), maxDecision)
	case len(raw) == 0:
		return nil, errors.New("there is no decision: " + want)
	case raw[0] == '"':
		return readText(text(raw))
	}
	return readValue(raw)
}

const want = `give one of "actions", "result" and "graph"`

func readText(s string) (*decision, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, errors.New("the decision is empty: " + want)
	}
	found, err := within(s)
	if err != nil {
		return nil, fmt.Errorf("the decision is not valid JSON: %w", err)
	}
	for _, c := range found {
		if looksLikeOne(c) {
			return readValue(c)
		}
	}
	if inner := unfence(s); len(found) > 0 && (inner[0] == '{' || inner[0] == '[') {
		return readValue(found[0])
	}
	raw, err := encode(s)
	if err != nil {
		return nil, err
	}
	return &decision{result: raw}, nil
}

// within returns the JSON values in a text, the likeliest first. A value that is cut off is skipped with its
// parts: a piece of a decision is none.
func within(s string) ([]json.RawMessage, error) {
	if inner := unfence(s); json.Valid([]byte(inner)) {
		return []json.RawMessage{json.RawMessage(inner)}, nil
	}
	var out []json.RawMessage
	for from, n := 0, 0; n < maxStarts; n++ {
		at := strings.IndexAny(s[from:], "{[")
		if at < 0 {
			break
		}
		from += at
		dec := json.NewDecoder(strings.NewReader(s[from:]))
		var v json.RawMessage
		err := dec.Decode(&v)
		switch {
		case err == nil:
			out = append(out, v)
			from += int(dec.InputOffset())
		case meant(s[from:]):
			return nil, err
		default:
			from++
		}
	}
	return out, nil
}

// meant distinguishes the beginning of JSON from a bracket in prose.
func meant(s string) bool {
	next := strings.TrimSpace(s[1:])
	switch {
	case next == "":
		return false
	case s[0] == '{':
		return next[0] == '"' || next[0] == '\''
	}
	return next[0] == '{' || next[0] == '['
}

// unfence is the text within a fence of three backquotes around all of it, or else the text.
func unfence(s string) string {
	s = strings.TrimSpace(s)
	inner, ok := strings.CutPrefix(s, "```")
	if !ok {
		return s
	}
	first, rest, ok := strings.Cut(inner, "\n")
	if !ok || strings.ContainsAny(first, "{[") {
		rest = strings.TrimPrefix(inner, "json")
	}
	if end := strings.LastIndex(rest, "```"); end >= 0 { // the result itself may hold fences
		rest = rest[:end]
	}
	if rest = strings.TrimSpace(rest); rest == "" {
		return s
	}
	return rest
}

// looksLikeOne distinguishes a decision from JSON that is part of an answer.
func looksLikeOne(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return false
	}
	switch raw[0] {
	case '{':
		var m map[string]json.RawMessage
		if json.Unmarshal(raw, &m) != nil {
			return false
		}
		for _, k := range []string{"actions", "result", "graph"} {
			if _, ok := m[k]; ok {
				return true
			}
		}
		return false
	case '[':
		first := firstOf(raw)
		if len(first) > 0 && first[0] == '[' {
			// a group; deeper nesting is refused, as reading it would parse all of it again for each level
			first = firstOf(first)
		}
		var m map[string]json.RawMessage
		if json.Unmarshal(first, &m) != nil {
			return false
		}
		_, ok := pick(m, actionKeys)
		return ok
	}
	return false
}

// firstOf is the first member of a list; nil if there is none.
func firstOf(list json.RawMessage) json.RawMessage {
	var items []json.RawMessage
	if json.Unmarshal(list, &items) != nil || len(items) == 0 {
		return nil
	}
	return bytes.TrimSpace(items[0])
}

func readValue(raw json.RawMessage) (*decision, error) {
	raw = bytes.TrimSpace(raw)
	switch raw[0] {
	case '[':
		groups, err := readGroups(raw)
		if err != nil {
			return nil, err
		}
		if len(groups) == 0 {
			return nil, errors.New("the list of actions is empty: name an action, or give the result")
		}
		return &decision{groups: groups}, nil
	case '{':
		return readObject(raw)
	}
	return nil, errors.New("the decision is neither an object nor a text: " + want)
}

func readObject(raw json.RawMessage) (*decision, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("the decision cannot be read: %w", err)
	}
	var d decision
	var err error
	if v := m["actions"]; !absent(v) {
		if d.groups, err = readGroups(v); err != nil {
			return nil, err
		}
	}
	if v := m["graph"]; !absent(v) && string(v) != "{}" {
		d.graph = v
	}
	result, given := m["result"]
	if len(m) > 1 && string(bytes.TrimSpace(result)) == "null" {
		given = false // a model that fills in every field writes null for none
	}
	acts := len(d.groups) > 0
	switch {
	case acts && d.graph != nil:
		return nil, errors.New("the decision has both actions and a graph: " + want)
	case acts || d.graph != nil:
		if !absent(result) {
			return nil, errors.New("the decision has something to do and a result: do it first and give the result in a later round, or give the result alone")
		}
	case given:
		d.result = result
	default:
		return nil, errors.New("the decision says nothing: " + want)
	}
	return &d, nil
}

// absent reports whether raw is one of the forms in which models write nothing.
func absent(raw json.RawMessage) bool {
	s := string(bytes.TrimSpace(raw))
	return s == "" || s == "null" || s == `""`
}

func readGroups(raw json.RawMessage) ([][]wanted, error) {
	if raw = bytes.TrimSpace(raw); raw[0] == '"' {
		raw = json.RawMessage(unfence(text(raw)))
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, errors.New("actions must be a list of groups, each a list of actions")
	}
	if len(items) > maxGroups {
		return nil, fmt.Errorf("there are %d groups, far too many", len(items))
	}
	var out [][]wanted
	for i, item := range items {
		item = bytes.TrimSpace(item)
		if item[0] != '[' {
			w, err := readAction(item)
			if err != nil {
				return nil, fmt.Errorf("actions[%d]: %w", i, err)
			}
			out = append(out, []wanted{w})
			continue
		}
		var members []json.RawMessage
		if err := json.Unmarshal(item, &members); err != nil {
			return nil, fmt.Errorf("actions[%d]: %w", i, err)
		}
		var group []wanted
		for k, member := range members {
			w, err := readAction(member)
			if err != nil {
				return nil, fmt.Errorf("actions[%d][%d]: %w", i, k, err)
			}
			group = append(group, w)
		}
		if len(group) > 0 {
			out = append(out, group)
		}
	}
	return out, nil
}

// How models call the parts of an action, and what they add to it.
var (
	actionKeys   = []string{"action", "name", "tool"}
	argumentKeys = []string{"arguments", "args", "parameters", "input"}
	remarkKeys   = []string{"id", "type", "thought", "reason", "reasoning", "description"}
)

// pick takes the first of these keys out of m.
func pick(m map[string]json.RawMessage, keys []string) (json.RawMessage, bool) {
	for _, k := range keys {
		if v, ok := m[k]; ok {
			delete(m, k)
			return v, true
		}
	}
	return nil, false
}

func readAction(raw json.RawMessage) (wanted, error) {
	w := wanted{arguments: map[string]json.RawMessage{}}
	var m map[string]json.RawMessage
	switch raw = bytes.TrimSpace(raw); raw[0] {
	case '"':
		w.action = strings.TrimSpace(text(raw))
		return w, nil
	case '{':
		if err := json.Unmarshal(raw, &m); err != nil {
			return w, err
		}
	default:
		return w, errors.New(`an action is an object like {"action": "name", "arguments": {}}`)
	}
	name, ok := pick(m, actionKeys)
	if !ok || json.Unmarshal(name, &w.action) != nil {
		return w, errors.New(`it does not name its "action"`)
	}
	w.action = strings.TrimSpace(w.action)
	if v, ok := pick(m, argumentKeys); ok && !absent(v) {
		if v = bytes.TrimSpace(v); v[0] == '"' {
			v = json.RawMessage(unfence(text(v)))
		}
		if err := json.Unmarshal(v, &w.arguments); err != nil {
			return w, fmt.Errorf(`the "arguments" of %.80q must be a JSON object: %w`, w.action, err)
		}
	}
	for _, k := range remarkKeys {
		delete(m, k)
	}
	if len(m) > 0 {
		return w, fmt.Errorf(`%.80q is no part of an action: put it into "arguments"`, sorted(m)[0])
	}
	return w, nil
}
