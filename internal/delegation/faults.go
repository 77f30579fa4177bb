package delegation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// maxShown bounds what was given within a message about it, in bytes.
const maxShown = 60

// Faults are what is wrong with arguments, all of it, so that a model can mend it at once.
type Faults []string

// Add adds a fault.
func (f *Faults) Add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

func (f Faults) String() string { return strings.Join(f, "; ") }

// Bound refuses a text that is too long.
func (f *Faults) Bound(name, s string, most int) bool {
	if len(s) > most {
		f.Add("%s has %d bytes, the limit is %d", name, len(s), most)
	}
	return len(s) <= most
}

// Text is a text within its bound, empty if it is absent.
func (f *Faults) Text(name string, s *string, most int) string {
	if s == nil || !f.Bound(name, *s, most) {
		return ""
	}
	return *s
}

// ID is the id of an epic or a task.
func (f *Faults) ID(name, id, prefix string) string {
	id = strings.TrimSpace(id)
	switch {
	case id == "":
		f.Add("%s is missing", name)
	case len(id) > MaxID || !strings.HasPrefix(id, prefix):
		f.Add("%s %q is no id: it begins with %s", name, errs.Clip(id, maxShown), prefix)
	}
	return id
}

// List is a list of texts, or a text with commas between its parts. Empty parts and repetitions do not count.
func (f *Faults) List(name string, raw json.RawMessage, most, each int) (out []string) {
	var parts []string
	var text string
	switch {
	case !Given(raw):
		return nil
	case len(raw) > 8*most*each:
		f.Add("%s is too long", name)
		return nil
	case json.Unmarshal(raw, &text) == nil:
		parts = strings.Split(text, ",")
	case json.Unmarshal(raw, &parts) != nil:
		f.Add("%s must be a list of texts, or a text with commas between them", name)
		return nil
	}
	for _, s := range parts {
		if s = strings.TrimSpace(s); s == "" || slices.Contains(out, s) {
			continue
		}
		if len(s) > each {
			f.Add("%s: %q is longer than %d bytes", name, errs.Clip(s, maxShown), each)
			return nil
		}
		if out = append(out, s); len(out) > most {
			f.Add("Too many %s specified. Maximum is %d.", name, most)
			return nil
		}
	}
	return out
}

// Word is one of some words, empty if it is absent. Where "cancelled" is one, "canceled" stands for it.
func (f *Faults) Word(name, s string, words []string) string {
	if s = strings.ToLower(strings.TrimSpace(s)); s == "canceled" && slices.Contains(words, Canceled) {
		s = Canceled
	}
	if s != "" && !slices.Contains(words, s) {
		f.Add("Invalid %s %q. Must be one of: %s", name, errs.Clip(s, maxShown), strings.Join(slices.Sorted(slices.Values(words)), ", "))
	}
	return s
}

// Object is a JSON object, given as such or as a text.
func (f *Faults) Object(name string, raw json.RawMessage, most int) json.RawMessage {
	var text string
	switch {
	case len(raw) > 6*most:
		f.Add("%s: more than %d bytes", name, most)
		return nil
	case !Given(raw):
		return nil
	case json.Unmarshal(raw, &text) == nil:
		if raw = json.RawMessage(strings.TrimSpace(text)); len(raw) == 0 {
			return nil
		}
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		f.Add("%s must be an object, or its JSON as a text", name)
		return nil
	}
	var out bytes.Buffer
	if json.Compact(&out, raw) != nil || out.Len() > most {
		f.Add("%s: more than %d bytes", name, most)
		return nil
	}
	return out.Bytes()
}

// Part is a number from 0 to 1.
func (f *Faults) Part(name string, n float64) float64 {
	if !(n >= 0 && n <= 1) {
		f.Add("%s must be from 0 to 1", name)
	}
	return n
}

// Limit is how many are told: a number beyond the bounds is the nearest within them.
func Limit(n *int, absent int) int {
	if n == nil {
		return absent
	}
	return min(max(*n, 1), MaxFound)
}
