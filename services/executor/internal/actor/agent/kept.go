package agent

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// argThread is the argument that says how the thread of a call is kept.
const argThread = "thread"

// lifetimes are those that a call may state, in the order of their numbers.
var lifetimes = []string{"CONVERSATION", "EPHEMERAL", "RUN"}

// uncached is why outcomes of an agent that goes on with a thread are not kept for equal calls: what it says
// depends on what was said there, and is to be said there.
func uncached(n *workgraph.Node) string {
	for _, name := range []string{argThread, "thread_id", "conversation", "shared_thread", "as_message"} {
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
	switch {
	case k == nil:
		return nil
	case k.Lifetime != "" && !slices.Contains(lifetimes, k.Lifetime):
		return actor.BadArguments("thread.lifetime: there is no %.40q, use one of %s", k.Lifetime, strings.Join(lifetimes, ", "))
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
	return workgraph.ThreadLifetime(slices.Index(lifetimes, k.Lifetime) + 1)
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

// conversation is a thread that is made if it is not there.
type conversation struct {
	ThreadID string `json:"thread_id"`
	Lifetime string `json:"lifetime,omitempty"`
	// After is the last item that the caller knows. What came after it is of a call that failed, or of
	// another run: the agent goes on without it, on a fork. Nil takes the thread as it is.
	After *int64 `json:"after,omitempty"`
}

// goOn lets a call work on a conversation.
func (in *instance) goOn(conv *conversation, agent string) error {
	if conv == nil {
		return nil
	}
	k := &keeping{Lifetime: conv.Lifetime}
	if err := k.check(); err != nil {
		return err
	}
	if in.Thread != "" || !ids.Valid(thread.IDPrefix, conv.ThreadID) {
		return actor.BadArguments("conversation: it names a thread by its id, in place of thread_id")
	}
	in.Thread, in.Create = conv.ThreadID, &createThread{Agent: agent, Lifetime: k.lifetime(), Maybe: true, After: conv.After}
	return nil
}

// find takes the thread that is there already, by its key or as the conversation to go on with.
func (l *loop) find(ctx context.Context, in *instance) error {
	if in.Create != nil && in.Create.Maybe {
		t, err := l.threads.Thread(ctx, actor.NamespaceOf(ctx), in.Thread)
		switch after := in.Create.After; {
		case err == nil && after != nil && t.Last > *after:
			in.Create = &createThread{ParentSeq: *after, Agent: in.Create.Agent, Lifetime: in.Create.Lifetime}
			if *after > 0 {
				in.Create.Parent = in.Thread
			}
			in.Thread = ids.New(thread.IDPrefix)
		case err == nil:
			in.Create = nil
		case errs.ReasonOf(err) != thread.ReasonNotFound:
			return standing.Error(err)
		}
		return nil
	}
	if in.Create == nil || in.Create.Key == "" {
		return nil
	}
	id, err := standing.Find(ctx, l.threads, in.Create.Key)
	if id != "" {
		in.Thread, in.Create = id, nil
	}
	return err
}
