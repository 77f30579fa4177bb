package workgraph

import (
	"context"
	"errors"
	"fmt"
)

// This file decides which names a sender may use. A node may wait for the message of a node that asks for an
// approval, so only a node's own calls send in its name.

// ErrSender refuses a message in the name of a node, or of the run's input, that no call of that node sent.
var ErrSender = errors.New("workgraph: the sender's name is that of a node, in which only its own calls send")

// CodeMessagesHeld refuses an amendment by which a node takes the name of an outside sender while an inbox
// holds messages of that sender: they would count as the node's.
const CodeMessagesHeld = "MESSAGES_HELD"

// ReservedSender reports whether only the run itself sends in that name: it is InputSender, the id of a node,
// or the id of a node that an expansion may insert. declared reports whether an id is that of a node of the
// graph.
func ReservedSender(name string, declared func(id string) bool) bool {
	if name == InputSender {
		return true
	}
	for !declared(name) {
		origin, _, _, ok := expansionID(name)
		if !ok {
			return false
		}
		name = origin
	}
	return true
}

// reserves reports whether outside senders must not use the name.
func (p *Program) reserves(name string) bool {
	return ReservedSender(name, func(id string) bool { _, ok := p.index[id]; return ok })
}

// Speaks reports whether a call may send messages in its node's name now. It may while it is under way and
// was not asked to stop, and while its work goes on outside.
func (s *State) Speaks(ref Ref, attempt int) bool {
	if s.root == nil {
		return false
	}
	u, ok := s.find(ref)
	if !ok || int(u.try().no) != attempt {
		return false
	}
	switch t := u.try(); t.status {
	case VisitRunning:
		return t.pos >= 0
	case VisitWaiting:
		return t.wait != nil && t.wait.kind == WaitCompletion
	}
	return false
}

// checkSender checks the sender's name of a message. The message is applied some time after it was accepted,
// so its call may be over by now. A call that was taken back has sent nothing.
func (s *State) checkSender(c *Delivered) error {
	if c.Call == (Ref{}) {
		if s.p.reserves(c.From) {
			return fmt.Errorf("%w: nobody sends as %q from outside", ErrSender, c.From)
		}
		return nil
	}
	if c.Call.Node != c.From {
		return fmt.Errorf("%w: a call of %q does not send as %q", ErrSender, c.Call.Node, c.From)
	}
	if u, ok := s.find(c.Call); !ok || c.Attempt <= int(u.ns.before) || c.Attempt > int(u.try().no) {
		return fmt.Errorf("%w: %s has no attempt %d", ErrSender, c.Call, c.Attempt)
	}
	return nil
}

// senders refuses new nodes that take the name of an outside sender whose messages are held.
func (a *amendment) senders() {
	seen := map[string]bool{}
	for _, n := range a.s.p.inboxes {
		b := a.s.inboxes[n]
		if b == nil || a.nodes[n] < 0 {
			continue
		}
		for i := range b.messages {
			from := b.messages[i].From
			if seen[from] || a.s.p.reserves(from) || !a.q.reserves(from) {
				continue
			}
			seen[from] = true
			a.refuse(Fault{Code: CodeMessagesHeld, Node: from, Field: "id",
				Message: fmt.Sprintf("the inbox of %q holds messages of a sender outside called %q, which would count as the node's", a.s.p.nodes[n].ID, from),
				Hint:    "give the node another id, or wait until the messages are taken"})
		}
	}
}

// beforeAnswers warns of inboxes behind an approval that take messages from outside or the run's
// input: such a message starts the node whatever the answer is. An inbox that takes the input and leads to
// the interrupt is not warned of, because it begins before the interrupt on purpose.
func (p *Program) beforeAnswers(ctx context.Context, list *faultList) {
	var asks []int32
	for i := range p.nodes {
		if p.nodes[i].approves {
			asks = append(asks, int32(i))
		}
	}
	if len(asks) == 0 || len(p.inboxes) == 0 {
		return
	}
	out, in := p.leads()
	behind, ahead := out.from(ctx, asks...), in.from(ctx, asks...)
	if ctx.Err() != nil {
		return // the marks must not be used
	}
	for _, n := range p.inboxes {
		from, open := p.nodes[n].inbox.From, "anybody"
		if !behind[n] {
			continue
		}
		if len(from) > 0 {
			open = ""
			for _, name := range from {
				if _, inside := p.index[name]; !inside && (name != InputSender || !ahead[n]) {
					open = fmt.Sprintf("%q", name)
					break
				}
			}
		}
		if open != "" {
			list.add(Fault{Code: CodeBeforeAnswer, Node: p.nodes[n].ID, Field: "on.inbox.from",
				Message: fmt.Sprintf("the node comes after an approval, but takes messages from %s: such a message starts it before the answer", open),
				Hint:    "let from name nodes only"})
		}
	}
}
