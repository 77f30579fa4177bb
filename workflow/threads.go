package workflow

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/workflow/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

// This file has the threads that agents work on: one of its own for each, or one that several share by its
// name, for a run or from run to run.

// Thread is one that agents name.
type Thread struct {
	Name string
	// Memory keeps it from run to run, for each user and chat.
	Memory bool

	at *value
}

// maxThreads bounds the threads of a definition.
const maxThreads = 1_000

// threads reads `threads`: names, or {NAME: {memory: true}}.
func (t *teller) threads(o *object) []Thread {
	v := o.value("threads")
	if v == nil {
		return nil
	}
	var out []Thread
	add := func(th Thread) {
		switch {
		case !idPattern.MatchString(th.Name):
			t.at(th.at, "BAD_ID", idHint, "%q is no name of a thread", clip(th.Name))
		case slices.ContainsFunc(out, func(x Thread) bool { return x.Name == th.Name }):
			t.at(th.at, "DUPLICATE_ID", "name it once", "there is a thread %q already", clip(th.Name))
		case len(out) == maxThreads:
			t.at(th.at, "TOO_LARGE", "", "a workflow may have %d threads", maxThreads)
		default:
			out = append(out, th)
		}
	}
	if v.kind == list {
		for _, item := range o.texts("threads") {
			add(Thread{Name: strings.TrimSpace(item.text), at: item})
		}
		return out
	}
	for _, e := range o.entries("threads") {
		th := Thread{Name: e.key, at: e.value}
		if e.value.kind != null {
			in := t.object(e.value, "a thread")
			th.Memory = in.yes("memory")
			in.done()
		}
		add(th)
	}
	return out
}

// yes is a key that is true or false, false without it.
func (o *object) yes(key string) bool {
	v := o.value(key)
	return v != nil && o.t.is(v, boolean) && v.text == "true"
}

// thread reads the name of the thread that an agent works on.
func (t *teller) thread(o *object, a *AgentDefinition) {
	a.Thread = o.line("thread", maxName)
	switch {
	case a.Thread == "":
	case !idPattern.MatchString(a.Thread):
		t.at(o.v.get("thread"), "BAD_ID", idHint, "%q is no name of a thread", clip(a.Thread))
	case a.Memory:
		t.at(o.v.get("memory"), "FIELD_NOT_USED", "say it of the thread: threads: {"+a.Thread+": {memory: true}}", "whether a thread with a name is kept is said of the thread")
	}
}

// working is an agent of a step on a thread that other steps may work on, too.
type working struct {
	step, thread string
}

// remembering is the name of what an agent or a thread remembers, among all workflows.
func (c *compiler) remembering(name string) string {
	full := c.scope + "/" + name
	if len(full) <= maxName {
		return full
	}
	sum := sha256.Sum256([]byte(full))
	return hex.EncodeToString(sum[:])
}

// keeps is the thread of an agent, by the name under which it remembers if it does. The names are empty for a
// thread of its own that ends with the call.
func (c *compiler) keeps(a *AgentDefinition, name string) (shared, memory string) {
	switch {
	case a.Thread == "" && a.Memory:
		return "", c.remembering(name)
	case a.Thread == "":
		return "", ""
	}
	at := slices.IndexFunc(c.d.Threads, func(th Thread) bool { return th.Name == a.Thread })
	if at < 0 {
		if len(c.d.Threads) > 0 {
			names := make([]string, len(c.d.Threads))
			for i := range c.d.Threads {
				names[i] = c.d.Threads[i].Name
			}
			c.at(a.at, "UNKNOWN_THREAD", c.didYouMean(a.Thread, names), "there is no thread %q", clip(a.Thread))
		}
		return a.Thread, ""
	}
	if c.worked[a.Thread] = true; c.d.Threads[at].Memory {
		return a.Thread, c.remembering("threads/" + a.Thread)
	}
	return a.Thread, ""
}

// maxOnThread bounds the steps on one thread, each of which is compared with each.
const maxOnThread = 100

// onThread gives the agent of a step its thread. Two that may work at the same time cannot share one.
func (c *compiler) onThread(s *Step, n *workgraph.Node, a *AgentDefinition) {
	name := a.Name
	if name == "" {
		name = "steps/" + s.ID
	}
	shared, memory := c.keeps(a, name)
	if shared == "" && memory == "" {
		return
	}
	if c.alone(s.at, shared != "") {
		return
	}
	if memory != "" {
		shared = memory
		n.Named["thread"] = encode(map[string]json.RawMessage{"lifetime": jsonText("CONVERSATION"), "name": jsonText(memory)})
	} else {
		n.Named["thread"] = encode(map[string]json.RawMessage{"name": jsonText(shared)})
	}
	on := 0
	for _, w := range c.working {
		if w.thread != shared {
			continue
		}
		if on++; on == maxOnThread {
			c.at(s.at, "TOO_LARGE", "give some of them threads of their own", "%d steps may work on a thread", maxOnThread)
			return
		}
		if !c.orderly(w.step, s.ID) {
			c.at(s.at, "SHARED_SIDE_BY_SIDE", "let one follow the other, or give each a thread of its own", "the steps %q and %q may work on one thread at the same time", w.step, s.ID)
		}
	}
	c.working = append(c.working, working{s.ID, shared})
}

// orderly reports whether two steps never work at the same time: one comes before the other, or they stand
// behind different routes of a switch.
func (c *compiler) orderly(first, second string) bool {
	i, j := c.number[first], c.number[second]
	if c.before[j].has(i) || c.before[i].has(j) {
		return true
	}
	for _, cond := range c.when[i] {
		name, route, _ := strings.Cut(cond, " ")
		if slices.ContainsFunc(c.when[j], func(other string) bool {
			also, another, _ := strings.Cut(other, " ")
			return also == name && route != "" && another != "" && another != route
		}) {
			return true
		}
	}
	return false
}

// alone tells of a shared thread or a memory in the body of a map or a best_of, whose runs work side by
// side. It is true if there is a fault.
func (c *compiler) alone(v *value, shared bool) bool {
	if c.fanned == nil {
		return false
	}
	what := "memory"
	if shared {
		what = "thread"
	}
	c.at(v, "SHARED_BY_FAN_OUT", "leave `"+what+"` out: each has a thread of its own; what they are to know stands in the prompt", "the runs of %q work side by side, and cannot share a thread", c.fanned.ID)
	return true
}

// oneThread tells of a thread by its id in the body of a map or a best_of that is the same for all its runs.
func (c *compiler) oneThread(v *value, refs []ref) {
	if c.of == nil || v == nil || len(refs) > 0 && slices.ContainsFunc(refs, func(r ref) bool { return c.ofItem(&r) }) {
		return
	}
	c.at(v, "SHARED_BY_FAN_OUT", "take it from the item, or leave it out", "the runs of %q work side by side, and cannot share a thread", c.of.ID)
}

// ofItem reports whether a reference differs from run to run of the map around: it is about the item, or
// about a step of the body.
func (c *compiler) ofItem(r *ref) bool {
	if r.step != inputsID {
		return c.steps[r.step] != nil
	}
	return len(r.path) > 0 && (r.path[0].field == c.as || r.path[0].field == "index")
}

// remembers lets a member of a team find its thread again in later runs.
func (c *compiler) remembers(a *AgentDefinition, m *team.Member) {
	delete(m.Named, "thread")
	if m.Kind != team.Agent {
		if a.Memory {
			c.at(a.at, "FIELD_NOT_USED", "leave `memory` out", "only an agent remembers, and %q is none", a.Name)
		}
		return
	}
	m.Thread, m.Memory = c.keeps(a, a.Name)
	if m.Memory != "" {
		c.alone(a.at, m.Thread != "")
	}
}

// unusedThreads tells of threads that no agent works on.
func (c *compiler) unusedThreads() {
	if c.d.unread.any {
		return // what was not read may name them
	}
	for i := range c.d.Threads {
		if th := &c.d.Threads[i]; !c.worked[th.Name] {
			c.at(th.at, "UNUSED_THREAD", "name it by `thread` of agents that work, or leave it out", "no agent works on the thread %q", th.Name)
		}
	}
}
