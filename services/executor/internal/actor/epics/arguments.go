package epics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// maxBudget is the largest budget in dollars.
const maxBudget = 1e9

// arguments are those of all actors; each takes those of its schema.
type arguments struct {
	EpicID       string          `json:"epic_id"`
	TaskID       string          `json:"task_id"`
	Title        *string         `json:"title"`
	Description  *string         `json:"description"`
	Query        string          `json:"query"`
	Status       string          `json:"status"`
	Tags         json.RawMessage `json:"tags"`
	DependsOn    json.RawMessage `json:"depends_on"`
	Requirements json.RawMessage `json:"requirements"`
	Priority     *int            `json:"priority"`
	Tokens       *int64          `json:"budget_tokens"`
	USD          *float64        `json:"budget_usd"`
	Result       *string         `json:"result_summary"`
	Error        *string         `json:"error_message"`
	Notes        string          `json:"notes"`
	Reason       string          `json:"reason"`
	Workflow     *string         `json:"workflow_slug"`
	Source       *string         `json:"workflow_source"`
	Input        json.RawMessage `json:"input"`
	Policy       *string         `json:"dependency_policy"`
	Estimated    *int64          `json:"estimated_tokens"`
	Retries      *int32          `json:"max_retries"`
	Limit        *int            `json:"limit"`
	Page         string          `json:"page_token"`
}

// faults are what is wrong with the arguments, all of it.
type faults []string

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

func (f *faults) String() string { return strings.Join(*f, "; ") }

// text is a text within its bound, empty if it is absent.
func (f *faults) text(name string, s *string, most int) string {
	if s == nil {
		return ""
	}
	if len(*s) > most {
		f.add("%s has %d bytes, the limit is %d", name, len(*s), most)
		return ""
	}
	return *s
}

// id is the id of an epic or a task.
func (f *faults) id(name, id, prefix string) string {
	id = strings.TrimSpace(id)
	switch {
	case id == "":
		f.add("%s is missing", name)
	case len(id) > maxID || !strings.HasPrefix(id, prefix):
		f.add("%s %q is no id: it begins with %s", name, clip(id), prefix)
	}
	return id
}

// list is a list of texts, or a text with commas between its parts; empty parts and repetitions do not count.
func (f *faults) list(name string, raw json.RawMessage, most, each int) []string {
	var parts []string
	var text string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil
	case len(raw) > 8*most*each:
		f.add("%s is too long", name)
		return nil
	case json.Unmarshal(raw, &text) == nil:
		parts = strings.Split(text, ",")
	case json.Unmarshal(raw, &parts) != nil:
		f.add("%s must be a list of texts, or a text with commas between them", name)
		return nil
	}
	var out []string
	for _, s := range parts {
		if s = strings.TrimSpace(s); s == "" || slices.Contains(out, s) {
			continue
		}
		if len(s) > each {
			f.add("%s: %q is longer than %d bytes", name, clip(s), each)
			return nil
		}
		if out = append(out, s); len(out) > most {
			f.add("Too many %s specified. Maximum is %d.", name, most)
			return nil
		}
	}
	return out
}

// word is one of some words; "canceled" is "cancelled".
func (f *faults) word(name, s string, words []string) string {
	if s = strings.ToLower(strings.TrimSpace(s)); s == "canceled" {
		s = CanceledWord
	}
	if s != "" && !slices.Contains(words, s) {
		f.add("Invalid %s %q. Must be one of: %s", name, clip(s), strings.Join(slices.Sorted(slices.Values(words)), ", "))
	}
	return s
}

// estimate is an estimate of tokens, 0 if it is absent.
func (f *faults) estimate(n *int64) int64 {
	switch {
	case n == nil:
		return 0
	case *n < 0:
		f.add("estimated_tokens must not be negative")
	case *n > maxEstimate:
		f.add("estimated_tokens must be at most %d", int64(maxEstimate))
	}
	return *n
}

// retries is how often a task may be tried again, as the registry says it: 0 is its default, and -1 never.
func (f *faults) retries(n *int32) int32 {
	switch {
	case n == nil:
		return 0
	case *n < 0 || *n > maxRetries:
		f.add("max_retries must be from 0 to %d", maxRetries)
	case *n == 0:
		return -1
	}
	return *n
}

// source is where the workflow of a task comes from: existing if one is named and nothing is said.
func (f *faults) source(a *arguments) string {
	switch {
	case a.Source != nil:
		return f.word("workflow_source", *a.Source, Sources())
	case a.Workflow != nil && *a.Workflow != "":
		return sourceExisting
	}
	return ""
}

func (f *faults) priority(p *int) int {
	if p == nil {
		return 0
	}
	if *p < 1 || *p > 4 {
		f.add("Priority must be between 1 and 4")
	}
	return *p
}

// budget is a budget of tokens and one of nano-dollars.
func (f *faults) budget(a *arguments) (tokens, nano *int64) {
	if a.Tokens != nil && *a.Tokens < 0 {
		f.add("budget_tokens must not be negative")
	}
	if a.USD == nil {
		return a.Tokens, nil
	}
	if *a.USD < 0 || *a.USD > maxBudget {
		f.add("budget_usd must be from 0 to %d", int64(maxBudget))
		return a.Tokens, nil
	}
	n := int64(math.Round(*a.USD * 1e9))
	return a.Tokens, &n
}

// object is a JSON object, given as such or as a text.
func (f *faults) object(name string, raw json.RawMessage, most int) json.RawMessage {
	var text string
	switch {
	case len(raw) > 6*most:
		f.add("%s: more than %d bytes", name, most)
		return nil
	case len(raw) == 0 || string(raw) == "null":
		return nil
	case json.Unmarshal(raw, &text) == nil:
		if raw = json.RawMessage(strings.TrimSpace(text)); len(raw) == 0 {
			return nil
		}
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		f.add("%s must be an object, or its JSON as a text", name)
		return nil
	}
	var out bytes.Buffer
	if json.Compact(&out, raw) != nil || out.Len() > most {
		f.add("%s: more than %d bytes", name, most)
		return nil
	}
	return out.Bytes()
}

// limit is how many are told: a number beyond the bounds is the nearest within them.
func limit(n *int, absent int) int {
	if n == nil {
		return absent
	}
	return min(max(*n, 1), maxFound)
}

// clip shortens what was given for a message about it.
func clip(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}
