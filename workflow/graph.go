package workflow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/workflow/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

// This file reads `graph`: who of a team speaks after whom.

// handoff lets an agent hand over to others.
type handoff struct {
	from string
	to   []string
	at   *value
}

// readGraph reads the key `graph`: a list of names that follow each other, or keys and values.
func (b *teamBody) readGraph(t *teller, v *value) {
	b.put("transitions", v)
	if v.kind == list {
		b.chain(t, v, v.items)
		return
	}
	o := t.object(v, "`graph`")
	for i, name := range o.texts("start") {
		b.t.Start = append(b.t.Start, strings.TrimSpace(name.text))
		b.put(fmt.Sprintf("start[%d]", i), name)
	}
	b.put("start", v)
	for _, item := range o.list("transitions") {
		if t.full() {
			return
		}
		b.transition(t, item)
	}
	for _, item := range o.list("loops") {
		b.loop(t, item)
	}
	if ch := o.value("choose"); ch != nil || v.get("choose") != nil {
		b.choose(t, v.get("choose"))
	}
	b.handoffs(t, o)
	o.done()
	if len(b.t.Transitions) == 0 && b.t.Choose == nil && len(b.hands) == 0 && !b.anyHandoff && !o.bad {
		t.at(v, "EMPTY", "name `transitions`, `choose` or `handoffs`", "`graph` does not say who speaks after whom")
	}
}

// put notes where a part of the team stands in the text.
func (b *teamBody) put(where string, v *value) {
	if b.places == nil {
		b.places = map[string]*value{}
	}
	b.places[where] = v
}

// chain adds transitions between names that follow each other.
func (b *teamBody) chain(t *teller, v *value, names []*value) {
	if len(names) == 0 {
		t.at(v, "EMPTY", "name agents", "nobody is named")
	}
	for i, name := range names {
		if !t.is(name, text) {
			return
		}
		b.mention(name.text)
		if i > 0 {
			b.add(name, team.Transition{From: strings.TrimSpace(names[i-1].text), To: strings.TrimSpace(name.text)})
		}
	}
}

// add adds a transition that stands at a place.
func (b *teamBody) add(v *value, e team.Transition) {
	if len(b.t.Transitions) > team.MaxTransitions {
		return // package team tells that there are too many
	}
	b.put(fmt.Sprintf("transitions[%d]", len(b.t.Transitions)), v)
	b.mention(e.From)
	if e.To != team.Previous {
		b.mention(e.To)
	}
	b.t.Transitions = append(b.t.Transitions, e)
}

// mention notes that somebody belongs to the team.
func (b *teamBody) mention(name string) {
	if name = strings.TrimSpace(name); !slices.Contains(b.mentioned, name) && len(b.mentioned) <= team.MaxMembers {
		b.mentioned = append(b.mentioned, name)
	}
}

// transition reads `a -> b -> c`, or from, to, when, join and group.
func (b *teamBody) transition(t *teller, v *value) {
	if v.kind == text {
		names := strings.Split(v.text, "->")
		if len(names) < 2 {
			t.at(v, "BAD_TRANSITION", "write `a -> b`, or {from: a, to: b, when: …}", "%q leads nowhere", clip(v.text))
			return
		}
		for i := 1; i < len(names); i++ {
			b.add(v, team.Transition{From: strings.TrimSpace(names[i-1]), To: strings.TrimSpace(names[i])})
		}
		return
	}
	o := t.object(v, "a transition")
	from, to := o.texts("from"), o.texts("to")
	if len(from) == 0 {
		o.missing("from", "")
	}
	if len(to) == 0 {
		o.missing("to", "")
	}
	when := t.when(o.value("when"))
	group := o.line("group", maxName)
	join := o.word("join", "", "any", "all")
	o.done()
	if len(from)*len(to)+len(b.t.Transitions) > team.MaxTransitions {
		t.at(v, "TOO_LARGE", "", "this is more than %d transitions", team.MaxTransitions)
		return
	}
	for _, f := range from {
		for _, x := range to {
			b.add(v, team.Transition{From: strings.TrimSpace(f.text), To: strings.TrimSpace(x.text), When: when, Group: group, Any: join == "any"})
		}
	}
}

// loop reads two agents that speak in turn while a condition holds, or one that goes on.
func (b *teamBody) loop(t *teller, v *value) {
	o := t.object(v, "a loop of a graph")
	between := o.texts("between")
	while := t.when(o.value("while"))
	if len(between) < 1 || len(between) > 2 {
		o.missing("between", "name one agent, or two")
	}
	o.done()
	switch len(between) {
	case 1:
		name := strings.TrimSpace(between[0].text)
		b.add(v, team.Transition{From: name, To: name, When: while})
	case 2:
		first, second := strings.TrimSpace(between[0].text), strings.TrimSpace(between[1].text)
		b.add(v, team.Transition{From: first, To: second})
		b.add(v, team.Transition{From: second, To: first, When: while})
	}
}

// when reads a condition on what was said: an expression, `else`, or keys and values. Nil if there is none.
func (t *teller) when(v *value) *team.When {
	switch {
	case v == nil:
		return nil
	case v.kind == text && strings.TrimSpace(v.text) == "else":
		return &team.When{Else: true}
	case v.kind == text:
		return &team.When{Expr: v.text}
	}
	o := t.object(v, "a condition on a message")
	if o.bad {
		return nil
	}
	w := &team.When{Text: o.text("text"), Handoff: o.line("handoff", maxName), Expr: o.text("expr"), Not: t.when(o.value("not"))}
	w.Any, w.All = t.whens(o, "any"), t.whens(o, "all")
	o.done()
	return w
}

func (t *teller) whens(o *object, key string) []team.When {
	var out []team.When
	for _, item := range o.few(key, o.list(key)) {
		if w := t.when(item); w != nil {
			out = append(out, *w)
		}
	}
	return out
}

// choose reads how a model chooses who speaks.
func (b *teamBody) choose(t *teller, v *value) {
	b.t.Choose = &team.Choose{Actor: "llm"}
	b.put("choose", v)
	if v.kind == null {
		return
	}
	o := t.object(v, "`choose`")
	ch := b.t.Choose
	ch.Prompt = o.plain("prompt")
	for _, mark := range []string{"{participants}", "{history}"} {
		if ch.Prompt != "" && !strings.Contains(ch.Prompt, mark) {
			t.at(v.get("prompt"), "MISSING_PLACEHOLDER", "it may have {roles}, too", "the prompt has no %s, so that the model cannot choose", mark)
		}
	}
	b.chooser = o.model()
	ch.Attempts = o.whole("attempts", 1, 100, 0)
	ch.Candidates = o.text("candidates")
	if r := o.value("repeat"); r != nil && t.is(r, boolean) {
		ch.Repeat = r.text == "true"
	}
	o.done()
}

// handoffs reads who may hand over to whom, and who goes on otherwise.
func (b *teamBody) handoffs(t *teller, o *object) {
	v := o.value("handoffs")
	otherwise := o.value("otherwise")
	if v == nil {
		if otherwise != nil {
			t.at(otherwise, "FIELD_NOT_USED", "name `handoffs`, too", "`otherwise` is for when nobody is handed over to")
		}
		return
	}
	switch {
	case v.kind == text && v.text == team.AnyOne:
		b.anyHandoff = true
	case t.is(v, mapping):
		for i := range v.entries {
			e := &v.entries[i]
			h := handoff{from: e.key, at: e.value}
			in := &object{t: t, v: v, what: "`handoffs`"}
			for _, name := range o.few("handoffs", in.texts(e.key)) {
				h.to = append(h.to, strings.TrimSpace(name.text))
			}
			if len(b.hands) == team.MaxMembers {
				t.at(e.value, "TOO_LARGE", "make teams of teams", "a team may have %d members", team.MaxMembers)
				return
			}
			if len(h.to) == 0 {
				t.at(e.value, "EMPTY", "name agents, or leave it out", "%q hands over to nobody", clip(e.key))
			}
			b.hands = append(b.hands, h)
		}
	}
	b.otherwise = "again"
	if otherwise != nil && t.is(otherwise, text) {
		b.otherwise = strings.TrimSpace(otherwise.text)
	}
	b.otherwiseAt = otherwise
}

// handOver adds the transitions of handoffs, once the agents of the definition are known.
func (b *teamBody) handOver(c *compiler) {
	if len(c.d.Agents) > team.MaxMembers && (b.anyHandoff || len(b.hands) > 0) {
		c.at(b.places["transitions"], "TOO_LARGE", "make teams of teams", "a team may have %d members, there are %d agents", team.MaxMembers, len(c.d.Agents))
		b.hands = nil
		return
	}
	if b.anyHandoff {
		v := b.places["transitions"]
		var among []string
		for _, name := range b.named {
			among = append(among, strings.TrimSpace(name.text))
		}
		for i := 0; i < len(c.d.Agents) && len(b.named) == 0; i++ {
			among = append(among, c.d.Agents[i].Name)
		}
		for _, from := range among {
			if from == b.otherwise {
				continue
			}
			h := handoff{from: from, at: v}
			for _, to := range among {
				if to != from && to != b.otherwise {
					h.to = append(h.to, to)
				}
			}
			b.hands = append(b.hands, h)
		}
	}
	if len(b.hands) == 0 {
		return
	}
	var speakers []string // in the order in which they are named
	for _, h := range b.hands {
		for _, name := range append([]string{h.from}, h.to...) {
			if !slices.Contains(speakers, name) && (c.agent(name) != nil || !b.t.Stop.HandsTo(name)) {
				speakers = append(speakers, name)
			}
		}
		for _, to := range h.to {
			if !b.t.Stop.HandsTo(to) || c.agent(to) != nil {
				b.add(h.at, team.Transition{From: h.from, To: to, When: &team.When{Handoff: to}, Any: true})
			}
		}
	}
	at := b.otherwiseAt
	if at == nil {
		at = b.places["transitions"]
	}
	for _, name := range speakers {
		to := b.otherwise
		switch {
		case to == "again":
			to = name
		case to == "end" || to == name:
			continue
		}
		if slices.ContainsFunc(b.t.Transitions, func(e team.Transition) bool { return e.From == name }) {
			b.add(at, team.Transition{From: name, To: to, When: &team.When{Else: true}, Any: true})
		} else {
			b.add(at, team.Transition{From: name, To: to, Any: true})
		}
	}
	if b.otherwise != "again" && b.otherwise != "end" && !slices.ContainsFunc(b.t.Transitions, func(e team.Transition) bool { return e.From == b.otherwise }) {
		b.add(at, team.Transition{From: b.otherwise, To: team.Previous})
	}
	if len(b.t.Start) == 0 {
		b.t.Start = []string{b.hands[0].from}
	}
}

// readRouter reads the key `router`: who hears whom.
func (b *teamBody) readRouter(t *teller, v *value) {
	b.put("routes", v)
	if !t.is(v, list) {
		return
	}
	if len(v.items) == 0 {
		t.at(v, "EMPTY", "leave it out, and everybody hears everybody else", "`router` has no routes")
	}
	for _, item := range v.items {
		if t.full() {
			return
		}
		o := t.object(item, "a route")
		from, to := o.texts("from"), o.texts("to")
		if len(from) == 0 {
			o.missing("from", "name agents, `input` or `any`")
		}
		if len(to) == 0 {
			o.missing("to", "")
		}
		route := team.Route{BatchSize: o.whole("batch_size", 1, team.MaxBatchSize, 0)}
		if d, ok := o.duration("ttl"); ok {
			route.TTL = workgraph.Duration(d)
		}
		o.done()
		for _, f := range from {
			route.From = append(route.From, strings.TrimSpace(f.text))
			if f.text != team.AnyOne && f.text != team.Input {
				b.mention(f.text)
			}
		}
		for _, x := range to {
			route.To = strings.TrimSpace(x.text)
			b.mention(route.To)
			b.put(fmt.Sprintf("routes[%d]", len(b.t.Routes)), item)
			b.t.Routes = append(b.t.Routes, route)
		}
	}
}

// readStop reads the key `stop`. Several conditions in one mapping are alternatives.
func (t *teller) readStop(v *value) *team.Stop {
	o := t.object(v, "`stop`")
	if o.bad {
		return nil
	}
	var parts []team.Stop
	add := func(key string, set func(*team.Stop) bool) {
		if o.value(key) == nil {
			return
		}
		var s team.Stop
		before := len(t.faults)
		if set(&s) {
			parts = append(parts, s)
		} else if len(t.faults) == before {
			t.at(o.v.get(key), "EMPTY", "leave it out", "`%s` says nothing", key)
		}
	}
	const most = 1 << 40
	count := func(key string, to func(*team.Stop) *int) {
		add(key, func(s *team.Stop) bool {
			*to(s) = o.whole(key, 1, most, 0)
			return *to(s) > 0
		})
	}
	count("max_messages", func(s *team.Stop) *int { return &s.MaxMessages })
	count("max_turns", func(s *team.Stop) *int { return &s.MaxTurns })
	add("timeout", func(s *team.Stop) bool {
		d, ok := o.duration("timeout")
		if s.Timeout = workgraph.Duration(d); ok && d == 0 {
			t.at(v.get("timeout"), "OUT_OF_RANGE", "", "`timeout` is above 0")
		}
		return ok && d > 0
	})
	add("tokens", func(s *team.Stop) bool { s.Tokens = int64(o.whole("tokens", 1, most, 0)); return s.Tokens > 0 })
	add("input_tokens", func(s *team.Stop) bool {
		s.InputTokens = int64(o.whole("input_tokens", 1, most, 0))
		return s.InputTokens > 0
	})
	add("output_tokens", func(s *team.Stop) bool {
		s.OutputTokens = int64(o.whole("output_tokens", 1, most, 0))
		return s.OutputTokens > 0
	})
	add("usd", func(s *team.Stop) bool {
		usd, ok := o.amount("usd")
		if ok && (usd < 1e-9 || usd > 1e9) {
			t.at(v.get("usd"), "OUT_OF_RANGE", "", "`usd` is from 0.000000001 to 1000000000")
			return false
		}
		s.NanoUSD = *Budget{USD: &usd}.NanoUSD()
		return ok
	})
	limits := len(parts)
	froms := o.texts("from")
	add("text", func(s *team.Stop) bool {
		s.Text = o.text("text")
		for _, from := range froms {
			s.Of = append(s.Of, strings.TrimSpace(from.text))
		}
		return s.Text != ""
	})
	if from := v.get("from"); from != nil && v.get("text") == nil {
		t.at(from, "FIELD_NOT_USED", "name `text`, too", "`from` says who must say the text")
	}
	add("handoff", func(s *team.Stop) bool { s.Handoff = o.line("handoff", maxName); return s.Handoff != "" })
	add("call", func(s *team.Stop) bool { s.Call = o.line("call", maxName); return s.Call != "" })
	add("expr", func(s *team.Stop) bool { s.Expr = o.text("expr"); return s.Expr != "" })
	add("answered", func(s *team.Stop) bool {
		for _, name := range o.texts("answered") {
			s.Answered = append(s.Answered, strings.TrimSpace(name.text))
		}
		return len(s.Answered) > 0
	})
	add("any", func(s *team.Stop) bool { s.Any = t.stops(o, "any"); return len(s.Any) > 0 })
	add("all", func(s *team.Stop) bool { s.All = t.stops(o, "all"); return len(s.All) > 0 })
	if o.word("then", "end", "end", "pause") == "pause" {
		if limits < len(parts) || limits == 0 {
			t.at(v.get("then"), "FIELD_NOT_USED", "give it to max_messages, max_turns, timeout, tokens, input_tokens, output_tokens or usd alone", "only a limit can pause a team")
		}
		for i := range limits {
			parts[i].Pause = true
		}
	}
	o.done()
	switch len(parts) {
	case 0:
		if !t.full() && len(v.entries) == 0 {
			t.at(v, "EMPTY", "name a condition, such as max_messages or text", "`stop` has no condition")
		}
		return nil
	case 1:
		return &parts[0]
	}
	return &team.Stop{Any: parts}
}

func (t *teller) stops(o *object, key string) []team.Stop {
	var out []team.Stop
	for _, item := range o.few(key, o.list(key)) {
		if part := t.readStop(item); part != nil {
			out = append(out, *part)
		}
	}
	return out
}
