package workflow

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// StepPath is where a step of a test stands: the steps around it, outermost first, and the step.
type StepPath []PathPart

// PathPart is a step, or a member of a team. Item chooses one of its items or attempts, from 0; it is -1
// for all of them.
type PathPart struct {
	ID   string
	Item int
}

// String is the path as it is written.
func (p StepPath) String() string {
	parts := make([]string, len(p))
	for i, part := range p {
		if parts[i] = part.ID; part.Item >= 0 {
			parts[i] += "[" + strconv.Itoa(part.Item) + "]"
		}
	}
	return strings.Join(parts, "/")
}

// maxPathParts bounds how deep a path of a test goes.
const maxPathParts = 16

var pathPart = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,63})(?:\[(0|[1-9][0-9]{0,5})\])?$`)

// ReadStepPath reads a path such as results[0]/did.
func ReadStepPath(text string) (StepPath, error) {
	parts := strings.SplitN(text, "/", maxPathParts+1)
	if len(parts) > maxPathParts {
		return nil, fmt.Errorf("a path has %d steps at most", maxPathParts)
	}
	out := make(StepPath, len(parts))
	for i, part := range parts {
		m := pathPart.FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("%q is no step", clip(part))
		}
		out[i] = PathPart{ID: m[1], Item: -1}
		if m[2] != "" {
			out[i].Item, _ = strconv.Atoi(m[2]) // six digits at most
		}
	}
	if last := out[len(out)-1]; last.Item >= 0 {
		return nil, fmt.Errorf("an item is chosen of a step that has the step within it, such as `%s[%d]/STEP`", last.ID, last.Item)
	}
	return out, nil
}

// placedStep is a step that a test names. alone says that one of the workflow itself is meant.
type placedStep struct {
	path  StepPath
	at    Place
	alone bool
	// spoke are members of the step.
	spoke []placedName
}

// placedName is a name where it stands.
type placedName struct {
	name string
	at   Place
}

// testedStep notes a step that a test names, and returns its path. Of one that is no path it tells.
func (t *teller) testedStep(e *Expectation, id string, at *value, place Place, alone bool) StepPath {
	path, err := ReadStepPath(id)
	if err != nil {
		t.add(Fault{Code: "BAD_ID", Place: place, Path: at.path(), Message: fmt.Sprintf("%q is no place of a step: %v", clip(id), err), Hint: "write the id of a step, or `STEP/STEP` for one within a step; `STEP[0]/STEP` is that of the first item"})
		return nil
	}
	e.named = append(e.named, placedStep{path: path, at: place, alone: alone})
	return path
}

// scope is what can stand at one place of a path: the steps of one run, or the members of a team.
type scope struct {
	d     *Definition
	steps []*Step
	// whole says that the steps are those of the definition, and not a body.
	whole   bool
	members bool
	// open says that it is not known what there is.
	open bool
}

// checker finds the steps that tests name.
type checker struct {
	stored map[string]*Definition
	out    Faults
}

// here are the steps that run in one run: bodies that have runs of their own are left out.
func here(steps []*Step) (out []*Step) {
	for _, s := range steps {
		if s.Parallel == nil {
			out = append(out, s)
		}
		if s.mapped() != nil {
			continue
		}
		for _, in := range s.within() {
			out = append(out, here(in)...)
		}
	}
	return out
}

// names are those that a scope knows.
func (s *scope) names() (out []string) {
	if s.members {
		return agentNames(s.d)
	}
	for _, step := range here(s.steps) {
		out = append(out, step.ID)
	}
	return out
}

// find finds a part of a path. inner is what stands within it, nil if nothing does; items says that it
// is done for several items.
func (c *checker) find(s *scope, id string) (inner *scope, items, ok bool) {
	if s.members {
		i := slices.IndexFunc(s.d.Agents, func(a AgentDefinition) bool { return a.Name == id })
		if i < 0 {
			return nil, false, false
		}
		return c.ofMember(s.d, &s.d.Agents[i]), false, true
	}
	for _, step := range here(s.steps) {
		if step.ID == id {
			return c.within(s.d, step), step.mapped() != nil, true
		}
	}
	_, ok = s.d.Place(id)
	return nil, false, ok && s.whole && (id == inputsID || id == outputsID)
}

// within is what stands within a step in runs of its own.
func (c *checker) within(d *Definition, s *Step) *scope {
	if m := s.mapped(); m != nil {
		return &scope{d: d, steps: m.steps}
	}
	switch b := s.body.(type) {
	case *teamBody:
		return &scope{d: d, members: true}
	case *workflowBody:
		return c.named(d, b.name)
	}
	return nil
}

func (c *checker) ofMember(d *Definition, a *AgentDefinition) *scope {
	switch m := a.member; {
	case m == nil:
		return nil
	case m.inner != nil:
		return &scope{d: m.inner, steps: m.inner.Steps, whole: true}
	case m.workflow != "":
		return c.named(d, m.workflow)
	}
	return nil
}

// named is a workflow that is called by its name. What a graph has is not known.
func (c *checker) named(d *Definition, name string) *scope {
	if name != "self" {
		d = c.stored[name]
	}
	if d == nil {
		return &scope{open: true}
	}
	return &scope{d: d, steps: d.Steps, whole: true}
}

func (c *checker) tell(at Place, code, hint, message string) {
	if len(c.out) < maxFaults {
		c.out = append(c.out, Fault{Code: code, Place: at, Message: message, Hint: hint})
	}
}

// check tells of a path that leads nowhere.
func (c *checker) check(d *Definition, p *placedStep) {
	s := &scope{d: d, steps: d.Steps, whole: true}
	if p.alone && len(p.path) > 1 {
		c.tell(p.at, "NOT_SUPPORTED", "a list has the steps of the workflow itself; `ran` and `not_ran` may name `"+clip(p.path.String())+"`", "`"+clip(p.path.String())+"` stands within a step")
		return
	}
	for i, part := range p.path {
		inner, items, ok := c.find(s, part.ID)
		before := p.path[:i]
		switch {
		case !ok:
			c.unknown(s, before, part.ID, p.at)
			return
		case part.Item >= 0 && !items && (inner == nil || !inner.open):
			c.tell(p.at, "FIELD_NOT_USED", "leave `["+strconv.Itoa(part.Item)+"]` out", "`"+part.ID+"` has no items")
			return
		case i == len(p.path)-1:
			c.spoke(p, inner)
			return
		case inner == nil:
			c.tell(p.at, "UNKNOWN_STEP", "name `"+clip(p.path[:i+1].String())+"` alone", "nothing stands within `"+clip(p.path[:i+1].String())+"` that a test sees")
			return
		case inner.open:
			return
		}
		s = inner
	}
}

// spoke tells of speakers that are no members.
func (c *checker) spoke(p *placedStep, inner *scope) {
	if p.spoke == nil {
		return
	}
	if inner == nil || !inner.members {
		c.tell(p.at, "FIELD_NOT_USED", "it is for a step of the type `team`, or for `team`, the step that a workflow with `graph` or `router` is", "`"+clip(p.path.String())+"` is no team, so that nobody has `spoke`")
		return
	}
	for _, n := range p.spoke {
		if _, _, ok := c.find(inner, n.name); !ok {
			c.unknown(inner, p.path, n.name, n.at)
		}
	}
}

// unknown tells of a name that a scope does not have.
func (c *checker) unknown(s *scope, before StepPath, id string, at Place) {
	names := s.names()
	prefix, where := "", "the workflow"
	if len(before) > 0 {
		prefix = before.String() + "/"
		where = "`" + clip(before.String()) + "`"
	}
	code, what := "UNKNOWN_STEP", "step"
	if s.members {
		code, what = "UNKNOWN_AGENT", "member"
	}
	hint := "there is nothing in it"
	if len(names) > 0 {
		hint = "there is " + clip(words(names, "and"))
	}
	if best := nearest(id, names); best != "" {
		hint = "did you mean `" + clip(prefix+best) + "`?"
	}
	if deep := c.deeper(s, id); deep != nil {
		hint = "it stands within another step: write `" + clip(prefix+deep.String()) + "`"
	}
	c.tell(at, code, hint, where+" has no "+what+" `"+clip(id)+"`")
}

// deeper is the path to a step within the bodies of a scope, nil if there is none.
func (c *checker) deeper(s *scope, id string) StepPath {
	for _, step := range here(s.steps) {
		m := step.mapped()
		if m == nil {
			continue
		}
		inner := &scope{d: s.d, steps: m.steps}
		self := StepPath{{ID: step.ID, Item: -1}}
		if slices.Contains(inner.names(), id) {
			return append(self, PathPart{ID: id, Item: -1})
		}
		if rest := c.deeper(inner, id); rest != nil {
			return append(self, rest...)
		}
	}
	return nil
}

// Check tells of what the tests say of steps that the workflow does not have. Stored are the workflows
// that steps name, by NAME@VERSION; what stands in one that is not among them is not looked at.
func (f *TestFile) Check(d *Definition, stored map[string]*Definition) Faults {
	c := &checker{stored: stored}
	for i := range f.Cases {
		named := f.Cases[i].Expect.named
		for k := range named {
			c.check(d, &named[k])
		}
	}
	return c.out.sorted()
}
