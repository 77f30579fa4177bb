package llm

import (
	"context"
	"crypto/rand"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
)

const (
	// maxCalls bounds the tool calls of one answer.
	maxCalls = 1_000
	// maxWord bounds what a server says of itself: the model, the id of an answer, why it ended. Usage is
	// booked by the model.
	maxWord = 200
)

// careful is a provider's model that sends names of tools which its server takes, and gives answers on which
// callers can rely: each tool call has a name, and an id of its own. Some servers send ids that are empty or
// equal, and no server takes such a message back.
type careful struct{ next Model }

// Generate implements Model.
func (c careful) Generate(ctx context.Context, req Request) (out Response, err error) {
	a := newAnswer(&req)
	out, err = c.next.Generate(ctx, req)
	err = a.mend(&out, err)
	return out, err
}

// Stream implements Model.
func (c careful) Stream(ctx context.Context, req Request, delta func(Delta) error) (out Response, err error) {
	a := newAnswer(&req)
	out, err = c.next.Stream(ctx, req, func(d Delta) error {
		if d.Call != nil {
			call, err := a.piece(*d.Call)
			if err != nil {
				return err
			}
			d.Call = &call
		}
		return delta(d)
	})
	err = a.mend(&out, err)
	return out, err
}

// answer is one answer of a model while it comes.
type answer struct {
	names names
	// ids are those of the calls so far, as the pieces told them.
	ids  []string
	used map[string]bool
}

// newAnswer is the answer of a request, whose names become those that are sent.
//
//go:noinline
func newAnswer(req *Request) *answer {
	a := &answer{names: newNames(req), used: map[string]bool{}}
	a.names.apply(req)
	return a
}

// piece is a piece of a call as it is told: the first one has the id that the message will have.
func (a *answer) piece(c CallDelta) (CallDelta, error) {
	if err := nextCall(c.Index, len(a.ids)); err != nil {
		return c, err
	}
	if c.Index < len(a.ids) {
		c.ID = ""
	} else {
		c.ID = a.own(c.ID)
		a.ids = append(a.ids, c.ID)
	}
	if name, ok := a.names.back[c.Name]; ok {
		c.Name = name
	}
	return c, nil
}

// nextCall checks the index of a piece when n calls have begun.
func nextCall(index, n int) error {
	switch {
	case index < 0 || index > n:
		return Malformed("the stream has a piece of a tool call that did not begin")
	case index >= maxCalls:
		return tooManyCalls("more than " + strconv.Itoa(maxCalls))
	}
	return nil
}

func tooManyCalls(n string) error {
	return Malformed("the answer has " + n + " tool calls, " + strconv.Itoa(maxCalls) + " at most")
}

// own is an id that no other call of the message has: the given one if it can be.
func (a *answer) own(id string) string {
	if id == "" || a.used[id] {
		id = "call_" + strings.ToLower(rand.Text()[:20])
	}
	a.used[id] = true
	return id
}

// mend makes of a whole answer what callers get. With an error about its calls its usage stays.
//
//go:noinline
func (a *answer) mend(out *Response, err error) error {
	if err != nil {
		*out = Response{}
		return err
	}
	out.Usage = out.Usage.believed()
	for _, word := range []*string{&out.ID, &out.Model, &out.FinishReason} {
		*word = errs.Clip(strings.ToValidUTF8(*word, ""), maxWord)
	}
	m := &out.Message
	if n := len(m.ToolCalls); n > maxCalls {
		return tooManyCalls(strconv.Itoa(n))
	}
	m.ToolCalls = slices.Clone(m.ToolCalls)
	other := false
	for i := range m.ToolCalls {
		c := &m.ToolCalls[i]
		if c.Name == "" {
			return Malformed("tool call " + strconv.Itoa(i+1) + " of the answer has no name")
		}
		if name, ok := a.names.back[c.Name]; ok {
			c.Name = name
		}
		if i == len(a.ids) { // no piece told it
			a.ids = append(a.ids, a.own(c.ID))
		}
		id := a.ids[i]
		other = other || id != c.ID
		c.ID = id
	}
	if other {
		m.Opaque = nil // it names the calls by the ids that they had
	}
	m.Role = Assistant
	if len(m.ToolCalls) > 0 && out.FinishReason == FinishStop {
		out.FinishReason = FinishToolCalls
	}
	return nil
}
