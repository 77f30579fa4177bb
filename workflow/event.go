package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	// MaxEvent bounds an event, in bytes.
	MaxEvent = 320 << 10
	// MaxFilled bounds the inputs that are made of an event, in bytes.
	MaxFilled = 1 << 20
)

// Fill is the inputs of a run that an event starts. What a reference finds nothing for is left out where it
// is an input, and null or nothing within one. Without inputs of its own the trigger hands on what the event
// has under the names of the workflow's inputs: its `body` where that is an object, as a webhook's is, else
// the event itself.
func (x *Trigger) Fill(event json.RawMessage) (map[string]json.RawMessage, error) {
	if len(event) > MaxEvent {
		return nil, fmt.Errorf("the event has %d bytes, the limit is %d", len(event), MaxEvent)
	}
	d := json.NewDecoder(bytes.NewReader(event))
	d.UseNumber()
	var root any
	if err := d.Decode(&root); err != nil {
		return nil, fmt.Errorf("the event is not JSON: %w", err)
	}
	if x.Inputs == nil {
		return x.handOn(root)
	}
	var inputs map[string]json.RawMessage
	if err := json.Unmarshal(x.Inputs, &inputs); err != nil {
		return nil, fmt.Errorf("read inputs of the trigger: %w", err)
	}
	f := filler{event: root}
	out := map[string]json.RawMessage{}
	for name, raw := range inputs {
		var v any
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			return nil, fmt.Errorf("read input %q of the trigger: %w", name, err)
		}
		filled, there := f.value(v)
		if !there {
			continue
		}
		b, err := json.Marshal(filled)
		if err != nil {
			return nil, fmt.Errorf("write input %q: %w", name, err)
		}
		if out[name] = b; f.tooLarge || f.size > MaxFilled {
			return nil, errTooFull
		}
	}
	return out, nil
}

var errTooFull = errors.New("the inputs that are made of the event are too large")

// handOn takes the workflow's inputs out of the event.
func (x *Trigger) handOn(root any) (map[string]json.RawMessage, error) {
	from, _ := root.(map[string]any)
	if x.Type == WebhookTrigger {
		from, _ = from["body"].(map[string]any)
	}
	out := map[string]json.RawMessage{}
	for name, v := range from {
		if x.Accepts != nil && !slices.Contains(x.Accepts, name) {
			continue
		}
		b, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("write input %q: %w", name, err)
		}
		out[name] = b
	}
	return out, nil
}

// filler fills an event in, and counts what it fills in: a reference may stand often.
type filler struct {
	event    any
	size     int
	tooLarge bool
}

// value is a value with its references filled in. It is not there if it is a reference that finds nothing.
func (f *filler) value(v any) (out any, there bool) {
	if f.tooLarge {
		return nil, false
	}
	switch v := v.(type) {
	case string:
		return f.text(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i], _ = f.value(v[i])
		}
		return out, true
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			out[k], _ = f.value(v[k])
		}
		return out, true
	}
	return v, true
}

func (f *filler) text(s string) (any, bool) {
	if m := marks.FindStringSubmatch(s); m != nil && strings.TrimSpace(s) == m[0] {
		v, there := f.find(m[1])
		if there {
			f.count(v)
		}
		return v, there
	}
	return marks.ReplaceAllStringFunc(s, func(mark string) string {
		v, there := f.find(mark[2 : len(mark)-2])
		if !there || v == nil || f.tooLarge {
			return ""
		}
		if s, ok := v.(string); ok {
			f.size += len(s)
			f.tooLarge = f.tooLarge || f.size > MaxFilled
			return s
		}
		b := f.count(v)
		return string(b)
	}), true
}

// count adds the size of what is filled in.
func (f *filler) count(v any) []byte {
	b, _ := json.Marshal(v) // it was read from JSON
	f.size += len(b)
	f.tooLarge = f.tooLarge || f.size > MaxFilled
	return b
}

// find is what a reference stands for.
func (f *filler) find(s string) (any, bool) {
	r, ok := readRef(s)
	if !ok || r.step != eventID {
		return nil, false
	}
	v := f.event
	for _, p := range r.path {
		switch in := v.(type) {
		case map[string]any:
			if v, ok = in[p.field]; !ok || p.item != fieldOnly {
				return nil, false
			}
		case []any:
			if p.item < 0 || p.item >= len(in) {
				return nil, false
			}
			v = in[p.item]
		default:
			return nil, false
		}
	}
	return v, true
}
