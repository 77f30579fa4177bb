package team

import (
	"fmt"
	"slices"
	"strings"
)

// This file looks at how members follow each other: starts, joins, cycles, and who is never reached.

// driven reports whether messages call the members, since neither transitions nor a choice do.
func (t *Team) driven() bool { return len(t.Transitions) == 0 && t.Choose == nil }

// begin finds those who speak first.
func (c *checker) begin() {
	t := c.r.team
	if t.Choose != nil {
		if len(t.Start) > 0 {
			c.fault("NO_EFFECT", "start", "leave it out", "the model chooses who speaks first")
		}
		return
	}
	for i, name := range t.Start {
		if c.known(name, fmt.Sprintf("start[%d]", i)) && slices.Contains(t.Start[:i], name) {
			c.fault("DUPLICATE_ID", fmt.Sprintf("start[%d]", i), "name it once", "%q begins twice", name)
		}
	}
	if c.r.starts = t.Start; len(t.Start) > 0 {
		return
	}
	led := map[string]bool{}
	for i := range t.Transitions {
		if e := &t.Transitions[i]; e.From != e.To {
			led[e.To] = true
		}
	}
	if t.driven() {
		hears, told := map[string]bool{}, false // the input
		for i := range t.Routes {
			for _, from := range t.Routes[i].From {
				led[t.Routes[i].To] = led[t.Routes[i].To] || from != Input && from != AnyOne
				hears[t.Routes[i].To] = hears[t.Routes[i].To] || from == Input || from == AnyOne
				told = told || from == Input
			}
		}
		for i := range t.Members { // a route from the input says who begins
			if name := t.Members[i].Name; told {
				led[name] = !hears[name]
			}
		}
	}
	for i := range t.Members {
		if name := t.Members[i].Name; !led[name] {
			c.r.starts = append(c.r.starts, name)
		}
	}
	if len(c.r.starts) == 0 {
		c.r.starts = []string{t.Members[0].Name}
	}
}

// flow finds the cycles and the joins, and who is never reached.
func (c *checker) flow() {
	t := c.r.team
	if c.failed {
		return
	}
	switch {
	case t.Choose != nil:
		c.heard()
	case t.driven():
		c.heard()
		c.cascades()
		if len(t.Routes) == 0 && len(t.Members) > 1 && t.Stop == nil {
			c.fault("ENDLESS", "members", "say by `stop` when it is over, or by `router` who hears whom", "everybody answers everybody: the team has no end")
		}
	default:
		c.cycles()
		c.joins()
		c.reached(func(from string) (to []string) {
			for _, i := range c.r.out[from] {
				to = append(to, t.Transitions[i].To)
			}
			return to
		}, "nothing leads to %q", "let a transition lead to it, or begin with it by `start`", "UNREACHABLE")
		c.heard()
	}
}

// heard refuses members that hear nothing at all, where routes say who is heard.
func (c *checker) heard() {
	t := c.r.team
	if len(t.Routes) == 0 {
		return
	}
	c.reached(func(from string) (to []string) {
		for i := range t.Members {
			if name := t.Members[i].Name; c.r.hears(name, from) {
				to = append(to, name)
			}
		}
		return to
	}, "no route leads to %q: it hears nothing", "add a route to it, from `any` if it is to hear everybody", "GAP")
}

// reached refuses members that are not reached from the starts, and from the input.
func (c *checker) reached(next func(string) []string, message, hint, code string) {
	seen := map[string]bool{}
	todo := slices.Clone(c.r.starts)
	if code == "GAP" {
		todo = append(todo, Input)
	}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		if todo = todo[:len(todo)-1]; seen[at] {
			continue
		}
		seen[at] = true
		todo = append(todo, next(at)...)
	}
	for i := range c.r.team.Members {
		m := &c.r.team.Members[i]
		deaf := m.Hears != nil && len(m.Hears) == 0 && !c.r.team.driven() // as it says
		if name := m.Name; !seen[name] && (code != "GAP" || !deaf) {
			c.fault(code, "members."+name, hint, message, name)
		}
	}
}

// cycles notes the transitions that close a cycle, in a walk in the declared order.
func (c *checker) cycles() {
	t := c.r.team
	const under, done = 1, 2
	mark := map[string]int{}
	var walk func(name string)
	walk = func(name string) {
		mark[name] = under
		for _, i := range c.r.out[name] {
			switch to := t.Transitions[i].To; {
			case to == Previous:
			case mark[to] == under:
				c.r.closes[i] = true
			case mark[to] == 0:
				walk(to)
			}
		}
		mark[name] = done
	}
	for _, name := range c.r.starts {
		if mark[name] == 0 {
			walk(name)
		}
	}
	if t.Stop == nil {
		c.endless()
	}
}

// endless refuses a cycle of transitions without conditions: nothing ends it.
func (c *checker) endless() {
	t := c.r.team
	const under, done = 1, 2
	mark := map[string]int{}
	var path []string
	var walk func(name string) bool
	// next are those who always speak after a member. The one before it may be anybody who leads to it.
	next := func(name string) (out []string, at int) {
		for _, i := range c.r.out[name] {
			if e := &t.Transitions[i]; e.When == nil && e.To != Previous {
				out, at = append(out, e.To), i
			} else if e.When == nil {
				for k := range t.Transitions {
					if from := &t.Transitions[k]; from.To == name && from.When == nil {
						out, at = append(out, from.From), i
					}
				}
			}
		}
		return out, at
	}
	walk = func(name string) bool {
		mark[name] = under
		path = append(path, name)
		following, at := next(name)
		for _, to := range following {
			if mark[to] == under {
				from := slices.Index(path, to)
				c.fault("ENDLESS", fmt.Sprintf("transitions[%d]", at), "give one of its transitions a condition, or say by `stop` when it is over",
					"the cycle %s has no end", strings.Join(append(slices.Clone(path[from:]), to), " -> "))
				return true
			}
			if mark[to] == 0 && walk(to) {
				return true
			}
		}
		path = path[:len(path)-1]
		mark[name] = done
		return false
	}
	for i := range t.Members {
		if name := t.Members[i].Name; mark[name] == 0 && walk(name) {
			return
		}
	}
}

// joins notes which transitions into a member wait for each other. Those that close a cycle never wait.
func (c *checker) joins() {
	t := c.r.team
	modes := map[string]int{} // the transition that gave the mode of a group
	for i := range t.Transitions {
		e := &t.Transitions[i]
		if e.To == Previous {
			continue
		}
		key := c.r.groupOf(i)
		g, seen := c.r.groups[key]
		anyOf := e.Any || c.r.closes[i] || e.Group == "" && c.r.Member(e.To).Any
		if seen && g.any != anyOf {
			mode := map[bool]string{true: "any", false: "all"}
			c.fault("CONFLICTING_JOIN", fmt.Sprintf("transitions[%d]", i), "give all transitions of the group the same",
				"conflicting conditions of the joins into %q, group %q: %q (from %q) and %q (from %q)", e.To, e.Group, mode[g.any], t.Transitions[modes[key]].From, mode[anyOf], e.From)
			continue
		}
		if !seen {
			modes[key] = i
		}
		g.any, g.parts = anyOf, append(g.parts, i)
		c.r.groups[key] = g
	}
}

// groupOf is the key of the group of a transition.
func (r *Rules) groupOf(i int) string {
	e := &r.team.Transitions[i]
	if r.closes[i] && e.Group == "" {
		return e.To + "/back" // names of members have no /
	}
	return e.To + "/=" + e.Group
}

// cascades warns of members whose messages come back to them.
func (c *checker) cascades() {
	t := c.r.team
	if len(t.Routes) == 0 {
		return
	}
	for i := range t.Members {
		from := t.Members[i].Name
		seen := map[string]bool{}
		todo := []string{from}
		for len(todo) > 0 && !seen[from] {
			at := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			for k := range t.Members {
				if to := t.Members[k].Name; !seen[to] && c.r.hears(to, at) {
					seen[to] = true
					todo = append(todo, to)
				}
			}
		}
		if !seen[from] {
			continue
		}
		hint := "say by `stop` when it is over, unless somebody falls silent"
		if t.Stop != nil {
			hint = ""
		}
		c.warn("CASCADE", "members."+from, hint, "what %q says leads to further messages to %q", from, from)
	}
}

// hears reports whether a member takes the messages of somebody.
func (r *Rules) hears(name, from string) bool {
	if name == from {
		return false
	}
	if m := r.Member(name); m.Hears != nil && !slices.ContainsFunc(m.Hears, func(h Hearing) bool { return h.From == from }) {
		return false
	}
	start := slices.Contains(r.starts, name)
	switch {
	case len(r.team.Routes) == 0:
		return true
	case from == Input && start:
		return true
	}
	return slices.ContainsFunc(r.routed[name], func(route *Route) bool {
		return slices.Contains(route.From, from) || slices.Contains(route.From, AnyOne)
	})
}
