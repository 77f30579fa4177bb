package response

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/plan/lenient"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
)

// within returns the JSON values in a text, the likeliest first. A value that is cut off is skipped with its
// parts: a piece of a decision is none.
func within(s string) ([]json.RawMessage, error) {
	if raw, err := lenient.JSON(lenient.Unfence(s)); err == nil {
		return []json.RawMessage{raw}, nil
	}
	var out []json.RawMessage
	for from, n := 0, 0; n < maxStarts; n++ {
		at := strings.IndexAny(s[from:], "{[")
		if at < 0 {
			break
		}
		from += at
		v, size, err := lenient.At(s[from:])
		switch {
		case err == nil:
			out = append(out, v)
			from += size
		case meant(s[from:]) && (from == 0 || lenient.Unfence(s) == strings.TrimSpace(s[from:]) || decides.MatchString(s[from:])):
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

// decides finds a field of a decision, as broken JSON in a text has it if it was meant to be one.
var decides = regexp.MustCompile(`["'](?:actions|next_actions|result|graph|task_status|instant_response|action|tool)["']\s*:`)

// begun finds the beginning of a decision in JSON.
var begun = regexp.MustCompile(`^[\[{\s]*["']?(?:actions|next_actions|result|graph|task_status|instant_response|action|name|tool)["']?\s*:`)

// withinJSON reports whether a place in a text is within JSON: a value that goes on there, or a decision that
// begins before it and cannot be read. JSON that ends before the place is not looked at.
func withinJSON(s string, at int) bool {
	start := 0 // of the text without its fence
	if inner := lenient.Unfence(s); len(inner) < len(s) {
		start = strings.Index(s, inner)
	}
	for from, n := start, 0; from < at && n < maxStarts; n++ {
		i := strings.IndexAny(s[from:at], "{[")
		if i < 0 {
			return false
		}
		from += i
		_, size, err := lenient.At(s[from:])
		switch {
		case err == nil && from+size > at:
			return true
		case err == nil:
			from += size
		case begun.MatchString(s[from:]) || from == start && s[from] == '{' && meant(s[from:]):
			return true
		default:
			from++
		}
	}
	return false
}

// decisionKeys are the fields by which an object is a decision.
var decisionKeys = []string{"actions", "next_actions", "result", "graph", "task_status"}

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
		return slices.ContainsFunc(decisionKeys, func(k string) bool {
			_, ok := m[k]
			return ok
		})
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

// Bare returns the JSON that a response consists of, fenced or not, unless it says something as a decision
// does. It is an object, or a list that cannot be one of actions.
func Bare(raw json.RawMessage) (json.RawMessage, bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || len(raw) > MaxBytes {
		return nil, false
	}
	if m, ok := message(raw); ok {
		if len(m.ToolCalls) > 0 {
			return nil, false
		}
		raw = m.Content
	}
	if len(raw) > 0 && raw[0] == '"' {
		var err error
		if raw, err = Inner(actor.AsText(raw)); err != nil {
			return nil, false
		}
	}
	switch {
	case len(raw) == 0 || looksLikeOne(raw):
		return nil, false
	case raw[0] == '[': // a list of texts or of lists may be actions
		first := firstOf(raw)
		return raw, len(first) > 0 && first[0] != '"' && first[0] != '['
	case raw[0] != '{':
		return nil, false
	}
	said, err := readRemarks(raw)
	return raw, err != nil || said.Status == "" && said.InstantResponse == ""
}

func readValue(raw json.RawMessage) (*Response, error) {
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
		return &Response{Groups: groups}, nil
	case '{':
		return readObject(raw)
	}
	return nil, errors.New("the decision is neither an object nor a text: " + want)
}

// remarks are the fields of a decision beside what is to be done.
type remarks struct {
	InstantResponse json.RawMessage `json:"instant_response"`
	NewTask         json.RawMessage `json:"new_task"`
	Status          json.RawMessage `json:"task_status"`
	Description     json.RawMessage `json:"task_status_description"`
	Extended        json.RawMessage `json:"task_status_description_extended"`
	Learnings       json.RawMessage `json:"instant_learnings"`
}

func readObject(raw json.RawMessage) (*Response, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("the decision cannot be read: %w", err)
	}
	r, err := readRemarks(raw)
	if err != nil {
		return nil, err
	}
	for _, k := range []string{"actions", "next_actions"} {
		if v := m[k]; !absent(v) && r.Groups == nil {
			if r.Groups, err = readGroups(v); err != nil {
				return nil, err
			}
			r.empty = len(r.Groups) == 0 && len(firstOf(v)) > 0
		}
	}
	if v := m["graph"]; !absent(v) && string(v) != "{}" {
		r.Graph = v
	}
	result, given := m["result"]
	if len(m) > 1 && string(bytes.TrimSpace(result)) == "null" {
		given = false // a model that fills in every field writes null for none
	}
	acts := len(r.Groups) > 0
	switch {
	case acts && r.Graph != nil:
		return nil, errors.New("the decision has both actions and a graph: give one of them")
	case acts || r.Graph != nil:
		if !absent(result) {
			return nil, errors.New("the decision has something to do and a result: do it first and give the result in a later round, or give the result alone")
		}
	case given:
		r.Result = result
		if r.InstantResponse == "" {
			r.InstantResponse = actor.AsText(result)
		}
	case r.Status == "" && r.InstantResponse == "":
		return nil, errors.New(`the decision says nothing: give "actions" or a "result"`)
	}
	return r, nil
}

func readRemarks(raw json.RawMessage) (*Response, error) {
	var said remarks
	if err := json.Unmarshal(raw, &said); err != nil {
		return nil, fmt.Errorf("the decision cannot be read: %w", err)
	}
	r := &Response{InstantResponse: actor.AsText(said.InstantResponse), NewTask: yes(actor.AsText(said.NewTask)),
		Description: actor.AsText(said.Description), DescriptionExtended: actor.AsText(said.Extended)}
	if err := r.take(&element{tag: tagStatus, text: actor.AsText(said.Status)}); err != nil {
		return nil, err
	}
	if !absent(said.Learnings) {
		if err := json.Unmarshal(said.Learnings, &r.Learnings); err != nil {
			return nil, errors.New(`instant_learnings must be a list of {"id", "content"}`)
		}
		r.Learnings = r.Learnings[:min(len(r.Learnings), maxLearnings)]
		for i, l := range r.Learnings {
			r.Learnings[i] = l.bounded()
		}
	}
	return r, nil
}

// absent reports whether raw is one of the forms in which models write nothing.
func absent(raw json.RawMessage) bool {
	s := string(bytes.TrimSpace(raw))
	return s == "" || s == "null" || s == `""`
}

// maxGroups bounds the groups that are read.
const maxGroups = 1000

func readGroups(raw json.RawMessage) ([][]Action, error) {
	if raw = bytes.TrimSpace(raw); raw[0] == '"' {
		inner, err := lenient.JSON(lenient.Unfence(actor.AsText(raw)))
		if err != nil {
			return nil, fmt.Errorf("actions must be a list of groups, each a list of actions: %w", err)
		}
		raw = inner
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, errors.New("actions must be a list of groups, each a list of actions")
	}
	if len(items) > maxGroups {
		return nil, fmt.Errorf("there are %d groups, far too many", len(items))
	}
	var out [][]Action
	for i, item := range items {
		item = bytes.TrimSpace(item)
		if item[0] != '[' {
			w, err := readAction(item)
			if err != nil {
				return nil, fmt.Errorf("actions[%d]: %w", i, err)
			}
			out = append(out, []Action{w})
			continue
		}
		var members []json.RawMessage
		if err := json.Unmarshal(item, &members); err != nil {
			return nil, fmt.Errorf("actions[%d]: %w", i, err)
		}
		var group []Action
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

func readAction(raw json.RawMessage) (Action, error) {
	a := Action{Arguments: map[string]json.RawMessage{}}
	var m map[string]json.RawMessage
	switch raw = bytes.TrimSpace(raw); raw[0] {
	case '"':
		a.Type = strings.TrimSpace(actor.AsText(raw))
		return a, nil
	case '{':
		if err := json.Unmarshal(raw, &m); err != nil {
			return a, err
		}
	default:
		return a, errors.New(`an action is an object like {"action": "name", "arguments": {}}`)
	}
	name, ok := pick(m, actionKeys)
	if !ok || json.Unmarshal(name, &a.Type) != nil {
		return a, errors.New(`it does not name its "action"`)
	}
	a.Type = strings.TrimSpace(a.Type)
	if v, ok := pick(m, argumentKeys); ok {
		args, err := arguments(v)
		if err != nil {
			return a, fmt.Errorf(`the "arguments" of %.80q must be a JSON object: %w`, a.Type, err)
		}
		a.Arguments = args
	}
	for _, k := range remarkKeys {
		if k == "reasoning" {
			a.Reasoning = actor.AsText(m[k])
		}
		delete(m, k)
	}
	if len(m) > 0 {
		return a, fmt.Errorf(`%.80q is no part of an action: put it into "arguments"`, slices.Sorted(maps.Keys(m))[0])
	}
	return a, nil
}
