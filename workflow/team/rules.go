package team

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/workflow/internal/text"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Rules are a team that was checked and made ready. They are safe for concurrent use and never change.
type Rules struct {
	team   *Team
	index  map[string]int
	starts []string
	// out are the transitions from each member, by place.
	out map[string][]int
	// groups are the transitions that are joined, by target and group.
	groups map[string]group
	// closes are the transitions that close a cycle.
	closes map[int]bool
	exprs  map[string]*workgraph.Expr
	// siblings are the members that share a thread, by name.
	siblings map[string][]string
	// routed are the routes to each member.
	routed map[string][]*Route
	// flags are the keys of the state that a new request sets back.
	flags []string
}

// group joins transitions into a member.
type group struct {
	any   bool
	parts []int
}

// Fault is something that is wrong with a team, or with Warning something that is likely to be.
type Fault struct {
	// Code is a stable word.
	Code string
	// Where is the place in the team, such as "transitions[2].when" or "members.writer".
	Where   string
	Message string
	Hint    string
	Warning bool
}

func (f Fault) Error() string { return f.Where + ": " + f.Message }

// Compile checks a team and makes it ready. Every fault is told; the rules are nil if one is no
// warning.
func Compile(ctx context.Context, t *Team) (*Rules, []Fault) {
	compile := func(src string) (*workgraph.Expr, error) { return workgraph.CompileExpr(ctx, src) }
	c := &checker{compile: compile, bad: map[string]error{}, r: &Rules{team: t, index: map[string]int{}, out: map[string][]int{}, groups: map[string]group{}, closes: map[int]bool{},
		exprs: map[string]*workgraph.Expr{}, siblings: map[string][]string{}, routed: map[string][]*Route{}}}
	c.members()
	c.transitions()
	c.routes()
	c.choose()
	if t.Stop != nil {
		c.stop(t.Stop, "stop", 0, false)
	}
	c.state()
	if !c.failed {
		c.begin()
		c.flow()
		c.r.flags = t.flags()
	}
	if c.failed {
		return nil, c.faults
	}
	return c.r, c.faults
}

type checker struct {
	compile func(src string) (*workgraph.Expr, error)
	r       *Rules
	faults  []Fault
	failed  bool
	conds   int
	// bad are the expressions that cannot be used.
	bad map[string]error
}

func (c *checker) fault(code, where, hint, format string, args ...any) {
	c.failed = true
	c.faults = append(c.faults, Fault{Code: code, Where: where, Message: fmt.Sprintf(format, args...), Hint: hint})
}

func (c *checker) warn(code, where, hint, format string, args ...any) {
	c.faults = append(c.faults, Fault{Code: code, Where: where, Message: fmt.Sprintf(format, args...), Hint: hint, Warning: true})
}

// namePattern is what names of members look like. They are names of tools, and keys in expressions.
var namePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (c *checker) members() {
	t := c.r.team
	if len(t.Members) == 0 {
		c.fault("EMPTY", "members", "name at least one", "a team has no members")
	}
	if len(t.Members) > MaxMembers {
		c.fault("TOO_LARGE", "members", "make teams of teams", "a team may have %d members, this has %d", MaxMembers, len(t.Members))
		return
	}
	for i := range t.Members {
		m := &t.Members[i]
		where := "members." + m.Name
		_, twice := c.r.index[m.Name]
		switch {
		case !namePattern.MatchString(m.Name) || len(m.Name) > maxName:
			c.fault("BAD_ID", where, "use letters, digits and _, 64 at most, not beginning with a digit", "%q is no name of a member", clip(m.Name))
		case m.Name == Input || m.Name == AnyOne || m.Name == Previous:
			c.fault("BAD_ID", where, "choose another", "%q has a meaning of its own", m.Name)
		case twice:
			c.fault("DUPLICATE_ID", where, "give one of them another name", "there is a member %q already", m.Name)
		case m.Actor == "":
			c.fault("MISSING_KEY", where, "name what is called", "the member has no actor")
		case m.Kind != "" && m.Kind != Agent && m.Kind != Human && m.Kind != Workflow && m.Kind != Actor:
			c.fault("UNKNOWN_WORD", where, "use AGENT, HUMAN, WORKFLOW or ACTOR", "there is no kind %q", clip(string(m.Kind)))
		case m.Thread != "" && m.Kind != Agent:
			c.fault("NO_EFFECT", where, "leave `thread` out", "only an agent works on a thread")
		case m.Memory != "" && m.Kind != Agent:
			c.fault("NO_EFFECT", where, "leave `memory` out", "only an agent remembers")
		}
		if same := c.r.siblings[m.ThreadName()]; len(same) > 0 && c.r.Member(same[0]).Memory != m.Memory {
			c.fault("MEMORY_DIFFERS", where, "state the same for all that share the thread", "%q shares a thread with %q, and one of them remembers what the other does not", m.Name, same[0])
		}
		c.r.index[m.Name] = i
		c.r.siblings[m.ThreadName()] = append(c.r.siblings[m.ThreadName()], m.Name)
	}
	for i := range t.Members {
		m := &t.Members[i]
		c.expr(m.Task, "members."+m.Name+".task")
		c.hearings(m, "members."+m.Name+".hears")
		for key := range m.Sets {
			c.key(key, "members."+m.Name+".set")
		}
		for name, s := range m.Signals {
			where := "members." + m.Name + ".signals." + name
			if s.Handoff != "" && c.r.Member(s.Handoff) == nil && !t.Stop.HandsTo(s.Handoff) {
				c.fault("UNKNOWN_AGENT", where, "name a member, or let `stop` end the team at a handoff to it", "there is no member %q", clip(s.Handoff))
			}
			for key := range s.Set {
				c.key(key, where)
			}
		}
	}
}

// hearings checks whom a member hears.
func (c *checker) hearings(m *Member, where string) {
	if m.Hears != nil && len(c.r.siblings[m.ThreadName()]) > 1 {
		c.fault("NO_EFFECT", where, "give it a thread of its own", "%q shares its thread, and so hears what the others hear", m.Name)
	}
	if len(m.Hears) > 2*MaxMembers {
		c.fault("TOO_LARGE", where, "name each once", "%q hears %d others, a team may have %d members", m.Name, len(m.Hears), MaxMembers)
		return
	}
	for i, h := range m.Hears {
		c.known(h.From, where, Input)
		switch {
		case h.From == m.Name:
			c.fault("ROUTE_TO_ITSELF", where, "leave it out", "%q never hears itself", m.Name)
		case h.First < 0 || h.Last < 0 || h.First > 0 && h.Last > 0:
			c.fault("OUT_OF_RANGE", where, "", "give `first` or `last`, from 1 on")
		case slices.ContainsFunc(m.Hears[:i], func(x Hearing) bool { return x.From == h.From }):
			c.fault("DUPLICATE_ID", where, "name it once", "%q hears %q twice", m.Name, clip(h.From))
		}
	}
}

// key refuses a key that the state has not.
func (c *checker) key(key, where string) {
	if _, ok := c.r.team.State[key]; !ok {
		c.fault("UNKNOWN_STATE", where, "declare it in `state`", "the state has no key %q", clip(key))
	}
}

// ThreadName names the thread of a member among those of the team: equal for members that share one.
func (m *Member) ThreadName() string {
	if m.Thread != "" {
		return "=" + m.Thread
	}
	return m.Name
}

// Team is the team that the rules are of. It must not be changed.
func (r *Rules) Team() *Team { return r.team }

// Weight is about how many bytes of memory the rules take.
func (r *Rules) Weight() int64 {
	const ofExpr, ofEdge = 32 << 10, 512
	n := int64(len(r.exprs)*ofExpr + (len(r.team.Transitions)+len(r.team.Routes))*ofEdge)
	for i := range r.team.Members {
		m := &r.team.Members[i]
		n += int64(len(m.Description)+len(m.Task)) + size(m.Named) + size(m.Sets) + 1<<10
		for name := range m.Signals {
			s := m.Signals[name]
			n += size(s.Set) + int64(len(s.Say)) + 1<<10
		}
	}
	return n
}

func size(values map[string]json.RawMessage) (n int64) {
	for k, v := range values {
		n += int64(len(k)+len(v)) + 64
	}
	return n
}

// Member is the member of a name, nil if there is none. It must not be changed.
func (r *Rules) Member(name string) *Member {
	if i, ok := r.index[name]; ok {
		return &r.team.Members[i]
	}
	return nil
}

func (c *checker) known(name, where string, more ...string) bool {
	if c.r.Member(name) != nil || slices.Contains(more, name) {
		return true
	}
	hint := ""
	if len(c.r.team.Members) <= 10 {
		names := make([]string, len(c.r.team.Members))
		for i := range names {
			names[i] = c.r.team.Members[i].Name
		}
		hint = "there is " + strings.Join(names, ", ")
	}
	c.fault("UNKNOWN_AGENT", where, hint, "there is no member %q", clip(name))
	return false
}

func (c *checker) transitions() {
	t := c.r.team
	if len(t.Transitions) > MaxTransitions {
		c.fault("TOO_LARGE", "transitions", "", "a team may have %d transitions, this has %d", MaxTransitions, len(t.Transitions))
		return
	}
	if len(t.Transitions) > 0 && t.Choose != nil {
		c.fault("SEVERAL_FORMS", "choose", "leave one of them out", "transitions and a choice both say who speaks next")
	}
	same := map[string]bool{}
	for i := range t.Transitions {
		e := &t.Transitions[i]
		where := fmt.Sprintf("transitions[%d]", i)
		known := c.known(e.From, where)
		if !c.known(e.To, where, Previous) || !known {
			continue
		}
		if e.When != nil {
			c.when(e.When, where+".when", 0, true)
		} else if e.From == e.To && !e.Any {
			c.warn("SELF_LOOP", where, "give it a condition, unless `stop` is to end it", "%q goes on by itself, whatever it says", e.From)
		}
		raw, _ := json.Marshal([]any{e.From, e.To, e.When}) // it has a JSON form
		if key := string(raw); same[key] {
			c.fault("DUPLICATE_TRANSITION", where, "remove one of them", "there is a transition from %q to %q already", e.From, e.To)
		} else {
			same[key] = true
		}
		c.r.out[e.From] = append(c.r.out[e.From], i)
	}
	for i := range t.Members {
		c.mixed(t.Members[i].Name)
		c.apart(t.Members[i].Name)
	}
	if len(t.Transitions) > 0 {
		for i := range min(len(t.Start), len(t.Members)) {
			c.sharing(t.Start[:i+1], "start")
		}
	}
}

// apart refuses a thread of two whom one member always calls at once.
func (c *checker) apart(name string) {
	var to []string
	for _, i := range c.r.out[name] {
		if e := &c.r.team.Transitions[i]; e.When == nil && !slices.Contains(to, e.To) {
			to = append(to, e.To)
			c.sharing(to, fmt.Sprintf("transitions[%d]", i))
		}
	}
}

// sharing refuses a thread that the last one shares with another: called at once, they would wait for each
// other.
func (c *checker) sharing(names []string, where string) {
	if len(names) == 0 {
		return
	}
	last := c.r.Member(names[len(names)-1])
	for _, name := range names[:len(names)-1] {
		if m := c.r.Member(name); m != nil && last != nil && m != last && m.ThreadName() == last.ThreadName() {
			c.fault("SHARED_BY_FAN_OUT", where, "let one follow the other, or give each a thread of its own", "%q and %q are called at once, and share a thread", m.Name, last.Name)
			return
		}
	}
}

// mixed refuses conditions beside transitions without one: the latter would fire whatever holds.
func (c *checker) mixed(name string) {
	conditional, always, otherwise := false, -1, 0
	for _, i := range c.r.out[name] {
		switch w := c.r.team.Transitions[i].When; {
		case w == nil:
			always = i
		default:
			conditional = true
			if w.Else {
				otherwise++
			}
		}
	}
	if conditional && always >= 0 {
		c.fault("MIXED_TRANSITIONS", fmt.Sprintf("transitions[%d]", always), "give it `when: else`, or a condition", "%q has transitions with conditions, and this one without", name)
	}
	if otherwise > 0 && otherwise == len(c.r.out[name]) {
		c.fault("MIXED_TRANSITIONS", "members."+name, "leave `when: else` out", "all transitions of %q are for when no other holds", name)
	}
}

// when checks a condition. top says that it stands alone, so that it may be an else.
func (c *checker) when(w *When, where string, deep int, top bool) {
	if !top || w.Any != nil || w.All != nil || w.Not != nil || w.Expr != "" { // the others cost nothing
		c.conds++
	}
	if c.conds > maxConditions || deep > maxDepth {
		if c.conds == maxConditions+1 || deep == maxDepth+1 {
			c.fault("TOO_LARGE", where, "", "a team may have %d conditions, %d within each other", maxConditions, maxDepth)
		}
		return
	}
	n := 0
	for _, is := range []bool{w.Any != nil, w.All != nil, w.Not != nil, w.Text != "", w.Handoff != "", w.Expr != "", w.Else} {
		if is {
			n++
		}
	}
	switch {
	case n != 1:
		c.fault("BAD_CONDITION", where, "give text, handoff, expr, any, all or not", "a condition is exactly one of them")
		return
	case w.Else && !top:
		c.fault("BAD_CONDITION", where, "let it stand alone", "`else` is no part of another condition")
	case (w.Any != nil && len(w.Any) == 0) || (w.All != nil && len(w.All) == 0):
		c.fault("EMPTY", where, "", "the condition has no parts")
	case w.Handoff != "" && w.Handoff != AnyOne:
		c.known(w.Handoff, where)
	}
	c.expr(w.Expr, where)
	for i := range w.Any {
		c.when(&w.Any[i], fmt.Sprintf("%s.any[%d]", where, i), deep+1, false)
	}
	for i := range w.All {
		c.when(&w.All[i], fmt.Sprintf("%s.all[%d]", where, i), deep+1, false)
	}
	if w.Not != nil {
		c.when(w.Not, where+".not", deep+1, false)
	}
}

// expr compiles an expression, each text once.
func (c *checker) expr(src, where string) {
	if src == "" || c.r.exprs[src] != nil {
		return
	}
	e, err := (*workgraph.Expr)(nil), c.bad[src]
	if err == nil {
		e, err = c.compile(src)
	}
	if err != nil {
		c.bad[src] = err
		c.fault("BAD_EXPRESSION", where, "", "the expression cannot be used: %v", err)
		return
	}
	c.r.exprs[src] = e
}

func (c *checker) routes() {
	t := c.r.team
	if len(t.Routes) > MaxRoutes {
		c.fault("TOO_LARGE", "routes", "", "a team may have %d routes, this has %d", MaxRoutes, len(t.Routes))
		return
	}
	for i := range t.Routes {
		route := &t.Routes[i]
		where := fmt.Sprintf("routes[%d]", i)
		ok := c.known(route.To, where)
		if len(route.From) == 0 {
			c.fault("EMPTY", where, "name members, input or any", "the route comes from nobody")
		}
		for _, from := range route.From {
			c.known(from, where, Input, AnyOne)
			if from == route.To {
				c.fault("ROUTE_TO_ITSELF", where, "leave it out", "%q never hears itself", from)
			}
		}
		switch {
		case !ok:
		case route.BatchSize < 0 || route.BatchSize > MaxBatchSize:
			c.fault("OUT_OF_RANGE", where, "", "a batch has 1 to %d messages", MaxBatchSize)
		case route.TTL < 0:
			c.fault("OUT_OF_RANGE", where, "", "a time to live cannot be negative")
		case route.BatchSize > 1 && (len(t.Transitions) > 0 || t.Choose != nil):
			c.warn("NO_EFFECT", where, "leave `batch_size` out", "%q is called by the graph, not by the number of its messages", route.To)
		}
		for _, other := range c.r.routed[route.To] {
			if other.BatchSize != route.BatchSize || other.TTL != route.TTL {
				c.fault("CONFLICTING_ROUTES", where, "give `batch_size` and `ttl` alike at all routes to it", "%q has another batch size or time to live by another route", route.To)
				break
			}
		}
		c.r.routed[route.To] = append(c.r.routed[route.To], route)
	}
	c.waiting()
}

// waiting refuses batches that are so large together that the state of the team could not hold the
// inboxes.
func (c *checker) waiting() {
	if !c.r.team.driven() {
		return
	}
	n := 0
	for i := range c.r.team.Members {
		n += c.r.batch(&c.r.team.Members[i])
	}
	if n > maxWaiting {
		c.fault("TOO_LARGE", "routes", "give a smaller `batch_size`", "the inboxes of the team wait for %d messages together, the limit is %d", n, maxWaiting)
	}
}

func (c *checker) choose() {
	ch := c.r.team.Choose
	if ch == nil {
		return
	}
	if ch.Actor == "" {
		c.fault("MISSING_KEY", "choose", "", "nobody is asked who speaks next")
	}
	if ch.Attempts < 0 || ch.Attempts > 100 {
		c.fault("OUT_OF_RANGE", "choose", "", "`attempts` is from 1 to 100")
	}
	c.expr(ch.Candidates, "choose.candidates")
}

func (c *checker) state() {
	for key, k := range c.r.team.State {
		if _, err := k.Combine(nil, nil); err != nil {
			c.fault("BAD_STATE", "state."+key, "", "the key %q: %v", clip(key), err)
		}
	}
	if n := c.r.team.MaxTurns; n < 0 {
		c.fault("OUT_OF_RANGE", "max_turns", "", "`max_turns` is from 1 on")
	}
}

// clip shortens a name for a message.
func clip(s string) string { return text.Clip(s, 80) }

// initial is the state of a new team.
func (r *Rules) initial() map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for key, k := range r.team.State {
		out[key], _ = k.Combine(nil, nil) // Compile has done it
	}
	return out
}
