package workflow

import (
	"slices"
	"strconv"
	"strings"
)

// This file has the patches that add and remove steps.

// settle writes out the ids of all steps, since those that count places would change with the places.
func (p *patcher) settle() {
	if p.explicit {
		return
	}
	p.explicit = true
	for id, s := range p.steps {
		if v := s.at.get("id"); v == nil || v.kind == null || strings.TrimSpace(v.text) == "" {
			s.at.put("id", &value{kind: text, text: id}, stepKeys)
		}
	}
}

func (p *patcher) addStep(o *object) {
	p.settle()
	v, after := o.must("step"), o.value("after")
	if v == nil || !p.is(v, mapping) {
		return
	}
	behind := p.root.get("steps")
	at := len(behind.items)
	if after != nil {
		if !p.is(after, text) {
			return
		}
		s := p.steps[strings.TrimSpace(after.text)]
		if s == nil {
			p.unknown(after, after.text)
			return
		}
		behind, at = sequenceOf(s.at)
	}
	p.nameStep(v)
	count := len(p.steps)
	step := p.step(v, "", at+1, &count)
	if step == nil {
		return
	}
	added := []*Step{step}
	each(added, func(s *Step) bool {
		if p.steps[s.ID] != nil {
			p.at(v, "DUPLICATE_ID", "give it another `id`", "there is a step %q already", clip(s.ID))
		}
		return true
	})
	each(added, func(s *Step) bool {
		if p.steps[s.ID] == nil {
			p.steps[s.ID] = s
		}
		delete(p.removed, s.ID)
		return true
	})
	if after != nil && v.get("needs") == nil && !p.alone(strings.TrimSpace(after.text)) {
		// Other ways are open here, which the step does not follow.
		needs := &value{kind: list, at: after.at}
		needs.insert(0, &value{kind: text, text: strings.TrimSpace(after.text), at: after.at})
		v.put("needs", needs, stepKeys)
	}
	behind.insert(at, v)
}

// nameStep gives a step that is added an id, unless it has one.
func (p *patcher) nameStep(v *value) {
	kind := v.get("type")
	if v.get("id") != nil || kind == nil || kind.kind != text {
		return
	}
	id := kind.text + "_added"
	for n := 2; p.steps[id] != nil; n++ {
		id = kind.text + "_added_" + strconv.Itoa(n)
	}
	v.put("id", &value{kind: text, text: id, at: v.at}, stepKeys)
}

// sequenceOf is the list that a step stands in, and the place behind it. A single step that is a branch
// of its own becomes a list.
func sequenceOf(step *value) (in *value, behind int) {
	in = step.under
	if !isBranch(step) {
		return in, step.index + 1
	}
	branch := &value{kind: list, at: step.at}
	in.items[step.index] = branch
	in.renumber()
	branch.insert(0, step)
	return branch, 1
}

// isBranch reports whether a step is a branch of `parallel` by itself.
func isBranch(step *value) bool {
	return step.under.key == "parallel" && step.under.under != nil && step.under.under.kind == mapping
}

func (p *patcher) removeStep(o *object) {
	p.settle()
	v, id := p.target(o)
	if v == nil {
		return
	}
	s := p.steps[id]
	if s == nil {
		p.at(o.v, "UNKNOWN_STEP", "remove the steps that name it", "%q is an agent of the workflow, not a step", clip(id))
		return
	}
	p.passOn(s)
	in := v.under
	in.cut(v.index)
	p.sweep(o.v)
	// A branch that the step leaves empty goes with it, and so does a `parallel` without branches.
	for len(in.items) == 0 && in.under != nil {
		switch {
		case in.under.kind == list:
			index := in.index
			in = in.under
			in.cut(index)
		case in.key == "parallel" && in.under.under != nil:
			index := in.under.index
			in = in.under.under
			in.cut(index)
		default:
			return
		}
	}
}

// sweep forgets the steps that are not in the definition any more. by has removed them.
func (p *patcher) sweep(by *value) {
	for id, s := range p.steps {
		top := s.at
		for top.under != nil {
			top = top.under
		}
		if top != p.root {
			delete(p.steps, id)
			p.removed[id] = by
		}
	}
}

// renew knows the steps within a step that by has changed.
func (p *patcher) renew(v, by *value) {
	p.sweep(by)
	count := 0
	s := (&teller{}).step(v, "", 1, &count)
	if s == nil {
		return
	}
	each([]*Step{s}, func(s *Step) bool {
		if s.at.get("id") != nil {
			p.steps[s.ID] = s
			delete(p.removed, s.ID)
		}
		return true
	})
}

// passOn lets what needs a step that is removed need what the step has followed.
func (p *patcher) passOn(removed *Step) {
	before, known := p.before(removed)
	if !known {
		return // those that need it are told, by check
	}
	for _, s := range p.steps {
		needs := s.at.get("needs")
		if needs == nil {
			continue
		}
		if needs.kind == text {
			needs = &value{kind: list, items: []*value{needs}, at: needs.at}
			needs.renumber()
		}
		at := slices.IndexFunc(needs.items, func(v *value) bool { return v.text == removed.ID })
		if at < 0 {
			continue
		}
		needs.cut(at)
		for _, id := range slices.Backward(before) {
			if !slices.ContainsFunc(needs.items, func(v *value) bool { return v.text == id }) {
				needs.insert(at, &value{kind: text, text: id, at: needs.at})
			}
		}
		s.at.put("needs", needs, stepKeys)
	}
}

// before are the steps that a step follows: those that it needs, or the one right before it. known is
// false if they cannot be told from the list alone.
func (p *patcher) before(s *Step) (ids []string, known bool) {
	v := s.at
	if needs := v.get("needs"); needs != nil {
		if needs.kind == text {
			return []string{needs.text}, true
		}
		for _, item := range needs.items {
			ids = append(ids, item.text)
		}
		return ids, true
	}
	switch {
	case isBranch(v) || p.routed(s.ID):
		return nil, false
	case v.index == 0:
		return nil, v.under == p.root.get("steps")
	}
	prior := v.under.items[v.index-1].get("id")
	if prior == nil || p.steps[prior.text] == nil || len(p.steps[prior.text].within()) > 0 || !p.alone(prior.text) {
		return nil, false
	}
	return []string{prior.text}, true
}

// alone reports whether what stands behind a step follows that one alone: nothing else is open before
// it.
func (p *patcher) alone(id string) bool {
	return p.steps[id].at.get("needs") == nil && !p.routed(id)
}

// routed reports whether a step may be named by a route: whether its id stands anywhere by itself,
// other than as an id and in `needs`.
func (p *patcher) routed(id string) bool {
	var named func(v *value) bool
	named = func(v *value) bool {
		if v.kind == text {
			return v.text == id && v.key != "id" && v.key != "needs"
		}
		if v.kind == list && v.key == "needs" {
			return false
		}
		for _, item := range v.items {
			if named(item) {
				return true
			}
		}
		for i := range v.entries {
			if named(v.entries[i].value) {
				return true
			}
		}
		return false
	}
	return named(p.root.get("steps"))
}

// check tells what is wrong with the definition after all patches.
func (p *patcher) check() {
	d := p.definition(p.root)
	if len(p.faults) == 0 {
		_, p.faults = Compile(d)
	}
	for i := range p.faults {
		f := &p.faults[i]
		if f.Line > 0 {
			continue
		}
		for id, by := range p.removed {
			if strings.Contains(f.Message, strconv.Quote(id)) {
				f.Place, f.Message = by.at, f.Message+": this patch removes it"
				break
			}
		}
	}
}
