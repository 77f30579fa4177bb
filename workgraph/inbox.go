package workgraph

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// InputSender is the sender of the run's input as a message to inboxes: to those that name it, and to those
// that take messages from all and have no incoming edge. The body of the message is the Input as JSON.
const InputSender = "input"

// Bounds of an inbox. Messages from outside are refused above the first two. Messages of nodes are always
// accepted.
const (
	MaxMessages     = 10_000
	MaxMessageBytes = 4 << 20
	MaxBatchSize    = 10_000
	maxSenders      = 1_000
)

// inboxState holds the messages of one inbox, oldest first.
type inboxState struct {
	messages []Message
	bytes    int
}

// box is the inbox of a node.
func (s *State) box(n int32) *inboxState {
	b := s.inboxes[n]
	if b == nil {
		if s.inboxes == nil {
			s.inboxes = map[int32]*inboxState{}
		}
		b = &inboxState{}
		s.inboxes[n] = b
	}
	return b
}

// expired counts the messages whose TTL is over. They are the oldest ones.
func (b *inboxState) expired(ttl time.Duration, now time.Time) int {
	k := 0
	if ttl > 0 {
		for k < len(b.messages) && !b.messages[k].At.Add(ttl).After(now) {
			k++
		}
	}
	return k
}

// accepts reports whether the node's inbox takes messages from the sender. A node never takes its own
// messages.
func (n *pnode) accepts(from string) bool {
	in := n.inbox
	switch {
	case in == nil || from == n.ID:
		return false
	case len(in.From) > 0:
		return slices.Contains(in.From, from)
	case from == InputSender:
		return !n.edgeIn
	}
	return true
}

// instanceOf is the loop instance that holds the visits of the node's inbox.
func (s *State) instanceOf(n int32) *instance {
	return &s.root.insts[s.p.regions[s.p.nodes[n].region].slot]
}

// deliverInput delivers the run's input at the start of the run.
func (s *State) deliverInput() {
	for _, n := range s.p.inboxes {
		if s.p.nodes[n].accepts(InputSender) {
			s.deliverTo(n, s.inputMessage())
		}
	}
}

func (s *State) inputMessage() Message {
	b, err := json.Marshal(s.input)
	if err != nil {
		b = rawNull // cannot happen: it was checked to be JSON
	}
	return Message{From: InputSender, Body: b, At: s.at}
}

// deliverTo records the delivery of the event's message, or of the input, and queues a check of the inbox.
func (s *State) deliverTo(n int32, m Message) {
	s.record(Step{Op: OpDeliver, Node: s.p.nodes[n].ID})
	s.applyDelivery(n, m)
	s.instQ = append(s.instQ, instTask{s.p.nodes[n].region, s.root})
}

func (s *State) delivered(c Delivered) error {
	switch {
	case s.drain != "":
		return fmt.Errorf("%w: the run is ending", ErrState)
	case c.From == "" || len(c.From) > MaxIDLen:
		return fmt.Errorf("%w: the sender's name has %d bytes, 1 to %d are allowed", ErrState, len(c.From), MaxIDLen)
	case !validJSON(c.Message):
		return fmt.Errorf("%w: the message is not JSON", ErrState)
	}
	if err := s.checkSender(&c); err != nil {
		return err
	}
	var to []int32
	for _, n := range s.p.inboxes {
		if (c.Node == "" || c.Node == s.p.nodes[n].ID) && s.p.nodes[n].accepts(c.From) && !s.instanceOf(n).closed {
			if b := s.box(n); len(b.messages) >= MaxMessages || b.bytes+len(c.Message) > MaxMessageBytes {
				return fmt.Errorf("%w: the inbox of %s holds %d messages of %d bytes, which is all it may", ErrState, s.p.nodes[n].ID, len(b.messages), b.bytes)
			}
			to = append(to, n)
		}
	}
	if len(to) == 0 {
		if c.Node == "" {
			return fmt.Errorf("%w: no inbox takes messages from %q", ErrState, c.From)
		}
		return fmt.Errorf("%w: node %q has no open inbox that takes messages from %q", ErrState, c.Node, c.From)
	}
	now := instant(c.Now)
	ev := s.openEvent(MessageReceived, now)
	ev.Node = c.Node
	ev.Message = &Message{From: c.From, Body: c.Message, At: now}
	m := *ev.Message
	for _, n := range to {
		s.deliverTo(n, m)
	}
	s.conclude(now)
	return nil
}

// checkInbox starts a visit of a node whose inbox holds a batch. Only one visit of the node runs at a time,
// so that messages are handled in order.
func (s *State) checkInbox(n int32) {
	b, in := s.inboxes[n], s.p.nodes[n].inbox
	if inst := s.instanceOf(n); b == nil || inst.closed || inst.active > 0 || inst.limited > 0 {
		return
	}
	old := b.expired(time.Duration(in.TTL), s.at)
	if len(b.messages)-old >= in.BatchSize {
		s.activate(n, old, in.BatchSize)
	} else if old > 0 {
		s.take(n, 0, old, 0)
	}
}

// activate starts a visit for the oldest messages, unless the node is at its limit.
func (s *State) activate(n int32, expired, count int) {
	region := s.p.nodes[n].region
	visit := len(s.tokens[n]) + 1
	if s.atLimit(n, visit) {
		l := limitedVisit{region: region, parent: s.root, node: n, edge: -1}
		s.recordLimit(OpLimit, l, visit)
		s.applyLimit(l)
		s.wantPause = ReasonMaxVisits
		return
	}
	s.enter(s.take(n, visit, expired, count))
}

func (s *State) take(n int32, visit, expired, count int) *nodeState {
	s.record(Step{Op: OpTake, Node: s.p.nodes[n].ID, Visit: visit, Detail: &Detail{Expired: expired, Taken: count}})
	return s.applyTake(n, expired, count)
}

// quiesce acts when nothing else in the run can move. It hands over batches that are not full, and then
// closes inboxes to which nothing can write any more. Inboxes that may write to others come first. It reports
// whether it did anything.
func (s *State) quiesce() bool {
	if len(s.p.inboxes) == 0 || s.drain != "" || s.paused || s.wantPause != "" || len(s.flights) > 0 || s.suspended > 0 || s.unknown > 0 ||
		len(s.limited) > 0 {
		return false
	}
	var open []int32
	for _, n := range s.p.inboxes {
		if s.instanceOf(n).closed {
			continue
		}
		if len(open) > 0 && s.p.nodes[n].level < s.p.nodes[open[0]].level {
			open = open[:0]
		}
		if len(open) == 0 || s.p.nodes[n].level == s.p.nodes[open[0]].level {
			open = append(open, n)
		}
	}
	woke := false
	for _, n := range open {
		b, in := s.inboxes[n], s.p.nodes[n].inbox
		if b == nil {
			continue
		}
		old := b.expired(time.Duration(in.TTL), s.at)
		if left := len(b.messages) - old; left > 0 {
			s.activate(n, old, min(left, in.BatchSize))
			woke = true
		}
	}
	for _, n := range open {
		if woke || s.drain != "" {
			break
		}
		s.closeInbox(n)
	}
	return len(open) > 0
}

// closeInbox ends the inbox. The edges out of its node are delivered now, from the latest visit that let each
// out.
func (s *State) closeInbox(n int32) {
	s.record(Step{Op: OpLoopEnd, Node: s.p.nodes[n].ID, Visit: len(s.tokens[n]), Detail: &Detail{Within: 1}})
	for _, e := range s.applyLoopEnd(s.p.nodes[n].region, s.instanceOf(n), s.root) {
		if s.drain == "" { // an earlier edge may have failed the run
			s.arrived(s.root, &e)
		}
	}
}

// The functions up to replayInbox change the state, in Advance and in Apply alike.

func (s *State) applyDelivery(n int32, m Message) {
	b := s.box(n)
	b.messages = append(b.messages, m)
	b.bytes += len(m.Body)
}

// applyTake drops expired messages and gives the next ones to a new visit.
func (s *State) applyTake(n int32, expired, count int) *nodeState {
	b := s.box(n)
	batch := b.messages[expired : expired+count : expired+count]
	for _, m := range b.messages[:expired+count] {
		b.bytes -= len(m.Body)
	}
	if b.messages = b.messages[expired+count:]; len(b.messages) == 0 {
		b.messages = nil
	}
	if count == 0 {
		return nil
	}
	ns := s.applyToken(s.p.nodes[n].region, n, -1, nil, nil)
	ns.f.messages = batch
	return ns
}

// replayInbox applies a step about an inbox.
func (s *State) replayInbox(ev *Event, st *Step, d *Detail) error {
	n, ok := s.p.index[st.Node]
	if !ok || s.p.nodes[n].inbox == nil {
		return fmt.Errorf("%w: %s has no inbox", ErrCorrupt, st.Node)
	}
	if st.Op == OpDeliver {
		if ev.Message != nil {
			s.applyDelivery(n, *ev.Message)
		} else {
			s.applyDelivery(n, s.inputMessage())
		}
		return nil
	}
	if d.Expired < 0 || d.Taken < 0 || d.Expired+d.Taken > len(s.box(n).messages) {
		return fmt.Errorf("%w: the inbox of %s does not hold %d messages", ErrCorrupt, st.Node, d.Expired+d.Taken)
	}
	s.applyTake(n, d.Expired, d.Taken)
	return nil
}

// batchArgument is the named argument "messages" of a visit of an inbox.
func batchArgument(messages []Message) map[string]json.RawMessage {
	if len(messages) == 0 {
		return nil
	}
	type entry struct {
		From string          `json:"from"`
		Body json.RawMessage `json:"body"`
	}
	list := make([]entry, len(messages))
	for i, m := range messages {
		list[i] = entry{m.From, m.Body}
	}
	b, err := json.Marshal(list)
	if err != nil {
		b = rawNull // cannot happen: the bodies were checked to be JSON
	}
	return map[string]json.RawMessage{"messages": b}
}

// The rest of this file validates inboxes.

// checkTrigger checks what activates a node.
func (c *checker) checkTrigger(n *Node) {
	if n.On == nil || n.On.Inbox == nil {
		return
	}
	in := n.On.Inbox
	if in.BatchSize < 0 || in.BatchSize > MaxBatchSize {
		c.node(CodeBadValue, n.ID, "on.inbox.batch_size", fmt.Sprintf("use 1 to %d", MaxBatchSize), "%d is out of range", in.BatchSize)
	}
	notNegative(c, n.ID, "on.inbox.ttl", time.Duration(in.TTL))
	if len(in.From) > maxSenders {
		c.node(CodeTooLarge, n.ID, "on.inbox.from", "leave it empty to take messages from all", "%d senders are more than %d", len(in.From), maxSenders)
		return
	}
	for i, from := range in.From {
		if from == "" || len(from) > MaxIDLen {
			c.node(CodeBadValue, n.ID, fmt.Sprintf("on.inbox.from[%d]", i), "name a node or a sender outside", "a sender's name has 1 to %d bytes", MaxIDLen)
		}
	}
	if n.Join.Mode != All || n.Join.Losers != FinishLosers {
		c.node(CodeBadValue, n.ID, "join", "drop it", "a node that is activated by messages joins nothing")
	}
}

// inboxEdge checks an edge that delivers messages.
func (c *checker) inboxEdge(e *Edge, to int32, in *Inbox) {
	switch {
	case e.Kind == BackEdge:
		c.edge(CodeBadValue, e, "kind", "make it a DATA edge: messages need no loop", "an edge into an inbox closes no loop")
	case len(in.From) > 0 && !c.takesFrom(to, in, e.From):
		c.edge(CodeBadValue, e, "from", "add the sender to on.inbox.from, or drop the edge", "the inbox of %q takes no messages from %q", e.To, e.From)
	}
}

// checkReach refuses inboxes that no message can reach: from nodes that may run, from the input, or from
// outside. A sender that is named and is no node counts as outside.
func (p *Program) checkReach(c *checker) {
	reached := make([]bool, len(p.nodes))
	todo := slices.Clone(p.starts)
	for _, n := range p.inboxes {
		in := p.nodes[n].inbox
		if len(in.From) == 0 || slices.ContainsFunc(in.From, func(from string) bool { _, node := p.index[from]; return !node }) {
			todo = append(todo, n)
		}
	}
	for _, n := range todo {
		reached[n] = true
	}
	for len(todo) > 0 {
		v := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, e := range p.nodes[v].out {
			if to := p.edges[e].to; !reached[to] && (!p.edges[e].message || c.accepts(&p.nodes[to], to, p.nodes[v].ID)) {
				reached[to] = true
				todo = append(todo, to)
			}
		}
	}
	for _, n := range p.inboxes {
		if !reached[n] {
			c.node(CodeUnreachable, p.nodes[n].ID, "on.inbox.from", fmt.Sprintf("draw an edge from a node that runs, or take messages from %q or from a sender outside", InputSender),
				"nobody can write to this inbox: of those it takes messages from, none leads to it and runs")
		}
	}
}

// accepts is pnode.accepts with an index of the named senders.
func (c *checker) accepts(n *pnode, v int32, from string) bool {
	if len(n.inbox.From) == 0 || from == n.ID {
		return n.accepts(from)
	}
	return c.takesFrom(v, n.inbox, from)
}

// takesFrom reports whether the inbox of a node names the sender.
func (c *checker) takesFrom(node int32, in *Inbox, from string) bool {
	if c.senders[node] == nil {
		if c.senders == nil {
			c.senders = map[int32]map[string]bool{}
		}
		c.senders[node] = make(map[string]bool, len(in.From))
		for _, s := range in.From {
			c.senders[node][s] = true
		}
	}
	return c.senders[node][from]
}

// findInboxes orders the inboxes. An inbox that may write to another one comes before it, unless the other
// may write back.
func (p *Program) findInboxes(c *checker, arcs []arc) {
	if len(p.inboxes) == 0 {
		return
	}
	n := len(p.nodes)
	out, left := make([][]int32, n), make([]int32, n)
	for i, a := range arcs {
		out[a.from] = append(out[a.from], int32(i))
	}
	scc := components(n, arcs, out)
	for i, a := range arcs {
		p.edges[i].peer = scc[a.from] == scc[a.to]
		if p.edges[i].peer && p.nodes[a.from].inbox != nil && !a.message {
			c.edge(CodeInboxCycle, &c.g.Edges[i], "", fmt.Sprintf("give %q an inbox too", p.nodes[a.to].ID),
				"%q runs when no message to %q can come any more, but leads back to it", p.nodes[a.to].ID, p.nodes[a.from].ID)
		}
		if !a.back && !(a.message && p.edges[i].peer) {
			left[a.to]++
		}
	}
	takesInput := slices.ContainsFunc(p.inboxes, func(i int32) bool { return p.nodes[i].accepts(InputSender) })
	if len(p.starts) == 0 && !takesInput {
		c.add(Fault{Code: CodeNoStart, Message: "nothing can start: every node waits for a message, and no inbox takes the run's input",
			Hint: fmt.Sprintf("add %q to on.inbox.from of the node that should begin", InputSender)})
	} else {
		p.checkReach(c)
	}
	// topo gets an order that respects messages too, for results. Levels are computed by component.
	order := make([]int32, 0, n)
	for v := range n {
		if left[v] == 0 {
			order = append(order, int32(v))
		}
	}
	for k := 0; k < len(order); k++ {
		for _, e := range out[order[k]] {
			if a := arcs[e]; !a.back && !(a.message && p.edges[e].peer) {
				if left[a.to]--; left[a.to] == 0 {
					order = append(order, a.to)
				}
			}
		}
	}
	if len(order) == n {
		p.topo = order
	}
	level := make(map[int32]int32, n)
	byComponent := make([][]int32, n)
	for v := range n {
		byComponent[scc[v]] = append(byComponent[scc[v]], int32(v))
	}
	for k := n - 1; k >= 0; k-- { // components are numbered from the ends to the starts
		for _, v := range byComponent[k] {
			p.nodes[v].level = level[int32(k)]
			for _, e := range out[v] {
				if to := scc[arcs[e].to]; to != int32(k) {
					level[to] = max(level[to], level[int32(k)]+1)
				}
			}
		}
	}
}
