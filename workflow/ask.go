package workflow

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/workflow/team"
)

// This file has the tool by which an agent of a team asks another one, by its name or by what it can do.

// defaultAsk is the name of such a tool that says no other one.
const defaultAsk = "ask_agent"

// maxCapabilities bounds what an agent can do.
const maxCapabilities = 32

// capabilities are the words for what an agent can do.
func (t *teller) capabilities(o *object) []string {
	var out []string
	for _, v := range o.few("capabilities", o.texts("capabilities")) {
		switch word := strings.TrimSpace(v.text); {
		case !idPattern.MatchString(word):
			t.at(v, "BAD_ID", idHint, "%q is no word for what an agent can do", clip(word))
		case len(out) == maxCapabilities:
			t.at(v, "TOO_LARGE", "leave some out", "an agent has %d capabilities at most", maxCapabilities)
			return out
		case !slices.Contains(out, word):
			out = append(out, word)
		}
	}
	return out
}

// readAsk reads whom a tool asks.
func (t *teller) readAsk(o *object, s *signal) {
	v := o.value("ask")
	if v == nil {
		return
	}
	s.asks = append([]*value{}, o.texts("ask")...) // not nil, even if it names nobody
	if s.Name == "" {
		s.Name = defaultAsk
	}
	for _, key := range []string{"handoff", "parameters"} {
		if given := o.v.get(key); given != nil {
			t.at(given, "FIELD_NOT_USED", "leave it out: the tool takes `agent` and `task`", "`%s` does not go with `ask`", key)
			o.value(key)
		}
	}
}

// asked are the agents whom a tool of an agent asks: those that it names, or all others.
func (c *compiler) asked(a *AgentDefinition, s *signal) (out []*AgentDefinition) {
	for _, v := range s.asks {
		name := strings.TrimSpace(v.text)
		if name == team.AnyOne {
			for i := range c.d.Agents {
				if other := &c.d.Agents[i]; other.Name != a.Name && !slices.Contains(out, other) {
					out = append(out, other)
				}
			}
			continue
		}
		other := c.agent(name)
		switch {
		case other == nil:
			c.at(v, "UNKNOWN_AGENT", c.didYouMean(name, agentNames(c.d)), "there is no agent %q", clip(name))
		case other.Name == a.Name:
			c.at(v, "SELF", "name others", "the agent %q asks itself", clip(name))
		case !slices.Contains(out, other):
			out = append(out, other)
		}
	}
	if len(s.asks) == 0 {
		c.at(s.at, "MISSING_KEY", "name agents, or write `ask: any`", "the tool %q asks nobody", clip(s.Name))
	}
	return out
}

// asks lets those speak whom an agent of the team asks.
func (b *teamBody) asks(c *compiler) {
	all := len(b.mentioned) == 0
	there := map[[2]string]bool{} // an agent may hand over, too
	for i := range b.t.Transitions {
		if x := &b.t.Transitions[i]; reflect.DeepEqual(*x, handsOver(x.From, x.To)) {
			there[[2]string{x.From, x.To}] = true
		}
	}
	for i := range c.d.Agents {
		a := &c.d.Agents[i]
		for k := range a.signals {
			s := &a.signals[k]
			if s.asks == nil || !all && !slices.Contains(b.mentioned, a.Name) {
				continue
			}
			if b.t.Choose != nil || len(b.t.Routes) > 0 && len(b.t.Transitions) == 0 {
				c.at(s.at, "FIELD_NOT_USED", "write `graph` with transitions, or leave `ask` out", "who speaks here is not said by who is asked")
				continue
			}
			for _, to := range c.asked(a, s) {
				if way := [2]string{a.Name, to.Name}; !there[way] {
					there[way] = true
					b.add(s.at, handsOver(a.Name, to.Name))
				}
			}
		}
	}
}

// handsOver is the transition by which an agent lets another one speak.
func handsOver(from, to string) team.Transition {
	return team.Transition{From: from, To: to, When: &team.When{Handoff: to}, Any: true}
}

// asking is the tool as the model knows it, which names all whom it may ask.
func (c *compiler) asking(a *AgentDefinition, s *signal) *signal {
	out := *s
	before := len(c.faults)
	to := c.asked(a, s)
	c.faults = c.faults[:before] // asks has told them
	ask := &team.Ask{Argument: "agent", To: map[string]string{}}
	var words, lines []string
	take := func(word string, agent *AgentDefinition) {
		if _, taken := ask.To[word]; !taken {
			ask.To[word], words = agent.Name, append(words, word)
		}
	}
	for _, one := range to {
		take(one.Name, one) // a name goes before what others can do
	}
	for _, one := range to {
		line := "- " + one.Name
		if len(one.Capabilities) > 0 {
			line += " (" + strings.Join(one.Capabilities, ", ") + ")"
		}
		if one.Description != "" {
			line += ": " + one.Description
		}
		lines = append(lines, line)
		for _, word := range one.Capabilities {
			take(word, one)
		}
	}
	about := s.Description
	if about == "" {
		about = "Has another agent do a task. Name it, or what it must be able to do."
	}
	out.Description = about + "\n" + strings.Join(lines, "\n")
	enum, _ := json.Marshal(words) // texts always marshal
	out.Parameters = []byte(fmt.Sprintf(`{"type":"object","additionalProperties":false,"required":["agent","task"],"properties":{"agent":{"enum":%s},"task":{"type":"string","minLength":1}}}`, enum))
	out.signal.Ask = ask
	if out.signal.Say == "" {
		out.signal.Say = "{{ task }}"
	}
	if out.Reply == "" {
		out.Reply = "Asked {agent}: {task}"
	}
	return &out
}
