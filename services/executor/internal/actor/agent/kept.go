package agent

import (
	"context"
	"encoding/json"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// argThread is the argument that says how the thread of a call is kept.
const argThread = "thread"

// uncached is why outcomes of an agent that goes on with a thread are not kept for equal calls: what it says
// depends on what was said there, and is to be said there.
func uncached(n *workgraph.Node) string {
	for _, name := range append(actor.ThreadArguments(), "as_message") {
		_, own := n.Named[name]
		if _, bound := n.Bind[name]; own || bound {
			return "with `" + name + "` the agent goes on with a thread"
		}
	}
	return ""
}

// keeping says how long a thread is kept, and by which key it is found again. Nil is the default.
type keeping struct {
	Lifetime string `json:"lifetime,omitempty"`
	Key      string `json:"key,omitempty"`
}

// keepingOf is what the node itself states, or else what the definition does.
func keepingOf(stated map[string]json.RawMessage, defined *keeping) (*keeping, error) {
	var k struct {
		Thread *keeping `json:"thread"`
	}
	if err := own(stated, &k, []string{argThread}); err != nil {
		return nil, err
	}
	if k.Thread == nil {
		return defined, nil
	}
	return k.Thread, k.Thread.check()
}

func (k *keeping) check() error {
	if k == nil {
		return nil
	}
	if k.Lifetime != "" {
		if _, err := standing.Lifetime("thread.lifetime", k.Lifetime); err != nil {
			return err
		}
	}
	if err := thread.CheckCreate(&workgraph.ThreadCreate{Lifetime: k.lifetime(), Key: k.Key}); err != nil {
		return actor.BadArguments("thread: %s", errs.From(err).Message)
	}
	return nil
}

// lifetime is the one that is stated. What has a key is a conversation.
func (k *keeping) lifetime() workgraph.ThreadLifetime {
	switch {
	case k == nil || k.Lifetime == "" && k.Key == "":
		return workgraph.ThreadEphemeral
	case k.Lifetime == "":
		return workgraph.ThreadConversation
	}
	life, _ := standing.Lifetime("", k.Lifetime) // check has looked at it
	return life
}

// create describes the thread of a call that is given none. A conversation without a key is that of the run's
// user, chat and agent. In a run below another one it is ephemeral: the conversation is that of the root.
func (k *keeping) create(c *workgraph.Call) *createThread {
	out := &createThread{Agent: c.Actor, Lifetime: k.lifetime()}
	if k != nil {
		out.Key = k.Key
	}
	if out.Lifetime == workgraph.ThreadConversation && out.Key == "" {
		if c.RunID == c.RootRunID {
			out.Key = thread.KeyOf(c.UserID, c.ChatID, nameOf(c))
		} else {
			out.Lifetime = workgraph.ThreadEphemeral
		}
	}
	return out
}

// nameOf is the name of the agent that is called: agent/NAME. One that a node of a root run defines has the
// name of the graph, and any other is called agent.
func nameOf(c *workgraph.Call) string {
	switch {
	case c.Actor != actorAgent:
		return c.Actor
	case c.RunID == c.RootRunID && c.GraphName != "":
		return c.GraphName
	}
	return actorAgent
}

// goOn lets a call work on a conversation.
func (in *instance) goOn(conv *standing.Conversation, agent string) error {
	if conv == nil {
		return nil
	}
	if in.Thread != "" {
		return actor.BadArguments("conversation: it names a thread by its id, in place of thread_id")
	}
	made, err := conv.Create()
	if err != nil {
		return err
	}
	in.Thread, in.Create = conv.ThreadID, &createThread{Agent: agent, Lifetime: made.Lifetime, PartOf: made.PartOf, Maybe: true, After: conv.After}
	return nil
}

// take is where the loop begins: on a thread that is there already, by its id or its key or as the
// conversation to go on with, or on one that is made.
func (l *loop) take(ctx context.Context, c *workgraph.Call, in *instance) (workgraph.ThreadAppend, standing.Place, error) {
	switch t := in.Create; {
	case t != nil && t.Maybe:
		return standing.GoOn(ctx, l.threads, c, in.Thread, *t.create(), t.After)
	case t != nil && t.Key != "":
		id, err := standing.Find(ctx, l.threads, t.Key)
		if err != nil {
			return workgraph.ThreadAppend{}, standing.Place{}, err
		}
		if id != "" {
			in.Thread, in.Create = id, nil
		}
	}
	return standing.Begin(ctx, l.threads, c, in.Thread, in.Create.create(), in.Runs)
}
