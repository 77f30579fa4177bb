package agent

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
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
	// Name is that of a thread which calls share: those of one user and chat if it is a conversation,
	// and else those of one run.
	Name string `json:"name,omitempty"`
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
	switch {
	case k.Name != "" && k.Key != "":
		return actor.BadArguments("thread: name and key are both given: a key finds one thread, a name one for each user or run")
	case k.Name != "" && k.Lifetime == lifetimeRun:
		return actor.BadArguments("thread: a thread with a name is a conversation, or is kept as long as it is used")
	case len(k.Name) > thread.MaxName:
		return actor.BadArguments("thread.name: it has %d bytes, the limit is %d", len(k.Name), thread.MaxName)
	}
	if err := cmp.Or(thread.CheckKey(k.Key), thread.CheckCreate(&workgraph.ThreadCreate{Lifetime: k.lifetime(), Key: k.Key})); err != nil {
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

// thread is that of a call which is given none, and how it is made.
func (k *keeping) thread(c *workgraph.Call) (id string, _ *createThread) {
	if k == nil || k.Name == "" {
		return ids.New(thread.IDPrefix), k.create(c)
	}
	if key := thread.KeyOf(c.UserID, c.ChatID, k.Name); key != "" && k.lifetime() == workgraph.ThreadConversation {
		return ids.New(thread.IDPrefix), &createThread{Agent: actorAgent, Lifetime: workgraph.ThreadConversation, Key: key, Forks: true}
	}
	// Without a user there is nobody for whom a conversation would be found again.
	out := &createThread{Agent: actorAgent, Lifetime: workgraph.ThreadEphemeral, OfRoot: true}
	key, part := standing.SharedKey(c, k.Name)
	if out.Key = key; part {
		out.PartOf = c.Thread
		return ids.New(thread.IDPrefix), out
	}
	return ids.New(thread.IDPrefix), out
}

// apart is the thread of a call that does not work on the thread of the run itself: a part of it, which the
// same call finds again in the next run there, or else the one that the call would have without it.
func (k *keeping) apart(c *workgraph.Call) (id string, _ *createThread) {
	key, ok := standing.PartKey(c)
	if !ok {
		return k.thread(c)
	}
	return ids.New(thread.IDPrefix), &createThread{Agent: c.Actor, Key: key, PartOf: c.Thread, OfRoot: true, Forks: true}
}

// lifetimeRun is the lifetime of a thread that ends with its run.
const lifetimeRun = "RUN"

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
	in.Thread, in.Create = conv.ThreadID, &createThread{Agent: agent, Lifetime: made.Lifetime, PartOf: made.PartOf, Key: made.Key, Maybe: true, After: conv.After}
	return nil
}

// take is where the loop begins: on a thread that is there already, by its id or its key or as the
// conversation to go on with, or on one that is made.
func (l *loop) take(ctx context.Context, c *workgraph.Call, in *instance) (workgraph.ThreadAppend, standing.Place, error) {
	if err := l.within(ctx, c, in); err != nil {
		return workgraph.ThreadAppend{}, standing.Place{}, err
	}
	switch t := in.Create; {
	case t != nil && t.Maybe:
		if id, err := l.taken(ctx, in); id != "" || err != nil {
			return l.share(ctx, c, id, err)
		}
		return standing.GoOn(ctx, l.threads, c, in.Thread, *t.create(), t.After)
	case t != nil && t.Key != "":
		id, err := standing.Find(ctx, l.threads, t.Key)
		if err != nil {
			return workgraph.ThreadAppend{}, standing.Place{}, err
		}
		switch {
		case id != "" && t.Forks:
			return l.share(ctx, c, id, nil)
		case id != "":
			in.Thread, in.Create = id, nil
		}
	}
	return standing.Begin(ctx, l.threads, c, in.Thread, in.Create.create(), in.Runs)
}

// within takes the thread of the run, of which the one of the call is to be a part.
func (l *loop) within(ctx context.Context, c *workgraph.Call, in *instance) error {
	if in.Create == nil || in.Create.PartOf == "" || !in.Create.OfRoot {
		return nil
	}
	whole, err := standing.HoldWhole(ctx, l.threads, c, in.Create.PartOf)
	in.Create.Lifetime = thread.PartLifetime(whole.Lifetime)
	return err
}

// share lets the loop begin on a thread that other runs may hold, unless there is an error.
func (l *loop) share(ctx context.Context, c *workgraph.Call, id string, err error) (workgraph.ThreadAppend, standing.Place, error) {
	if err != nil {
		return workgraph.ThreadAppend{}, standing.Place{}, err
	}
	return standing.Share(ctx, l.threads, c, id, actorAgent)
}

// taken is the thread that another run made with the key meanwhile, where the one that is to have it is not
// there. Empty if there is none.
func (l *loop) taken(ctx context.Context, in *instance) (string, error) {
	if in.Create.Key == "" {
		return "", nil
	}
	id, err := standing.Find(ctx, l.threads, in.Create.Key)
	if err != nil || id == "" || id == in.Thread {
		return "", err
	}
	switch _, err := l.threads.Thread(ctx, actor.NamespaceOf(ctx), in.Thread); {
	case errs.ReasonOf(err) == thread.ReasonNotFound:
		return id, nil
	case err != nil:
		return "", standing.Error(err)
	}
	return "", nil
}
