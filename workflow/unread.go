package workflow

import (
	"slices"

	"github.com/epigraph-run/epigraph/workgraph"
)

// This file keeps what could not be read from hiding the faults of what could: in the place of a step with
// a fault stands one of which nothing is known.

// unread is what of a definition could not be read.
type unread struct {
	// any says that there is something, steps that some steps have no id, and state and agents that
	// some keys and agents are not there or not whole.
	any, steps, state, agents bool
}

// harmless are the codes of faults that take nothing away from what is read.
var harmless = []string{"UNKNOWN_KEY", "FIELD_NOT_USED", "NOT_SUPPORTED", "REFERENCE_NOT_FILLED"}

// lost is how many faults took something away from what is read.
func (t *teller) lost() int {
	n := 0
	for i := range t.faults {
		if !slices.Contains(harmless, t.faults[i].Code) {
			n++
		}
	}
	return n
}

// unreadBody is that of a step that was not read as a whole. within are the steps in it.
type unreadBody struct{ within [][]*Step }

// unknown makes a step one of which nothing is known but its id and the steps in it.
func (s *Step) unknown() {
	s.body = &unreadBody{s.within()}
	s.set, s.cache, s.needs, s.needsAt, s.OnError = nil, nil, nil, nil, workgraph.OnError{}
}

// unreadStep stands for a step whose type is not known.
func (t *teller) unreadStep(v *value) *Step {
	s := &Step{at: v, body: &unreadBody{}}
	if id := v.get("id"); id != nil && id.kind == text && idPattern.MatchString(id.text) {
		s.ID = id.text
	} else {
		t.unread.steps = true
		s.ID = "?" + v.path() // which no id is like
	}
	return s
}

// filledKeys are keys in whose texts references are filled in, whatever the type of the step.
var filledKeys = []string{"prompt", "template", "message", "url", "with", "payload", "choices"}

// node checks the references of the step. What they are compared with is not known.
func (b *unreadBody) node(c *compiler, s *Step, _ *workgraph.Node) {
	for _, key := range filledKeys {
		v := s.at.get(key)
		if v == nil {
			continue
		}
		refs := c.refs(v)
		for i := range refs {
			c.known(s, &refs[i], v, false)
		}
	}
}

// hide notes that nothing is known of a step and of those in it.
func (c *compiler) hide(s *Step) {
	c.hidden[s.ID] = true
	for _, in := range s.within() {
		each(in, func(inner *Step) bool { c.hidden[inner.ID] = true; return true })
	}
}

// mayBe reports whether a name may be that of something that could not be read.
func (c *compiler) mayBe(name string) bool {
	switch {
	case name == stateID:
		return c.d.unread.state
	case name == inputsID || !c.d.unread.any:
		return false
	}
	return c.hidden[name] || c.d.unread.steps && c.steps[name] == nil
}
