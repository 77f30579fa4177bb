package flowtest

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workgraph"
)

// call is a call that a stand-in got.
type call struct {
	run, node string
	named     map[string]json.RawMessage
}

func (w *world) calls() []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.called
}

// actors are those that are called in place of others: the stand-ins of the case, waits that take no time,
// and one that refuses what would reach the world.
func (w *world) actors() workgraph.Actors {
	out := workgraph.Actors{"sleep": workgraph.ActorFunc(noWait)}
	if len(w.c.Allow) == 0 { // http alone can be allowed
		out["http"] = workgraph.ActorFunc(w.notAllowed)
	}
	for name, results := range w.c.Actors {
		out[name] = workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			return w.standIn(name, results, c)
		})
	}
	return out
}

// noWait is a wait that is over at once.
func noWait(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	value := c.Named["value"]
	if value == nil {
		value = json.RawMessage("null")
	}
	return workgraph.Outcome{Values: []json.RawMessage{value}}, nil
}

func (w *world) notAllowed(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	const told = "the step %q calls the actor `%s`, which has no stand-in: give it one in `actors`, or `allow: [%s]`"
	w.refuse(told, c.Node, c.Actor, c.Actor)
	return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "NO_STAND_IN", told, c.Node, c.Actor, c.Actor)
}

// standIn gives what the n-th call of an actor is to give.
func (w *world) standIn(name string, results []workflow.StandIn, c *workgraph.Call) (workgraph.Outcome, error) {
	n := w.next("actor " + name)
	w.mu.Lock()
	w.called = append(w.called, call{c.RunID, c.Node, c.Named})
	w.mu.Unlock()
	r := results[min(n, len(results)-1)]
	if f := r.Fail; f != nil {
		return workgraph.Outcome{}, workgraph.Errorf(f.Type, f.Reason, "%s", f.Message)
	}
	return workgraph.Outcome{Values: []json.RawMessage{r.Result}}, nil
}

// answer says what the model of the case says: of the replies with the first text that the request has in
// it, the next one, and the last one again and again.
func (w *world) answer(req fakellm.Request) (fakellm.Reply, bool) {
	texts := make([]string, len(req.Messages))
	for i, m := range req.Messages {
		texts[i] = m.Content
	}
	all := strings.Join(texts, "\n")
	var fit []int
	for i, r := range w.c.Model {
		if strings.Contains(all, r.Match) && (len(fit) == 0 || w.c.Model[fit[0]].Match == r.Match) {
			fit = append(fit, i)
		}
	}
	if len(fit) == 0 {
		last := ""
		if len(texts) > 0 {
			last = clip(texts[len(texts)-1])
		}
		w.refuse("a model is asked something that no reply of `model` matches: %q", last)
		return fakellm.Reply{Fault: fakellm.BadRequest}, true
	}
	at := fit[min(w.next("model "+w.c.Model[fit[0]].Match), len(fit)-1)]
	w.next(replyAt(at))
	r := w.c.Model[at]
	out := fakellm.Reply{Text: r.Text}
	for _, c := range r.Calls {
		out.ToolCalls = append(out.ToolCalls, fakellm.ToolCall{Name: c.Name, Arguments: string(c.Arguments)})
	}
	return out, true
}

// replyAt names a reply of the case where it is counted.
func replyAt(i int) string { return "reply " + strconv.Itoa(i) }

// unsaid are the replies for which no model has asked.
func (w *world) unsaid() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, r := range w.c.Model {
		if !r.Optional && w.counts[replyAt(i)] == 0 {
			out = append(out, fmt.Sprintf("model[%d]: no model has asked for the reply to %q: take it out, or see why it was not needed", i, clip(r.Match)))
		}
	}
	return out
}

// clip shortens a text for messages.
func clip(s string) string {
	const most = 300
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most-1]) + "…"
}

func connect(addr, key string) (*grpc.ClientConn, error) {
	return grpckit.Dial(addr, grpckit.DialOptions{Token: conf.NewSecret(key)})
}
