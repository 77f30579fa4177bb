package standing

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Conversation is a thread that a call goes on with, and that is made if it is not there. A team gives one to
// each of its members.
type Conversation struct {
	ThreadID string `json:"thread_id"`
	Lifetime string `json:"lifetime,omitempty"`
	// After is the last item that the caller knows. What came after it is of a call that failed, or of
	// another run: the call goes on without it, on a fork. Nil takes the thread as it is.
	After *int64 `json:"after,omitempty"`
	// PartOf is the thread of which the thread is a part if it is made; empty for none.
	PartOf string `json:"part_of,omitempty"`
	// Key is that of the thread if it is made; empty for none. Only a conversation has one.
	Key string `json:"key,omitempty"`
}

// ConversationSchema is the JSON Schema of the keys of a Conversation.
const ConversationSchema = `"properties": {"thread_id": {"type": "string"}, "lifetime": {"enum": ["CONVERSATION", "EPHEMERAL", "RUN"]},
        "part_of": {"type": "string", "description": "The thread of which the new one is a part: it is kept as long as that one, and deleted with it."},
        "key": {"type": "string", "maxLength": 256, "description": "The key of the new thread, by which a later run finds it again."},
        "after": {"type": "integer", "minimum": 0, "description": "The last item that the caller knows: what is called works on a fork of the thread that ends there if further items have come, or if another run works there."}}`

// lifetimes are those that a call may state, in the order of their numbers.
var lifetimes = []string{"CONVERSATION", "EPHEMERAL", "RUN"}

// Lifetime is the one with a name; an empty name is none. The error says what is at fault in the words of
// the place where it stands.
func Lifetime(place, name string) (workgraph.ThreadLifetime, error) {
	if at := slices.Index(lifetimes, name); at >= 0 {
		return workgraph.ThreadLifetime(at + 1), nil
	}
	return 0, actor.BadArguments("%s: there is no %.40q, use one of %s", place, name, strings.Join(lifetimes, ", "))
}

// Create is how the thread is made if it is not there. The error is one of bad arguments.
func (v *Conversation) Create() (*workgraph.ThreadCreate, error) {
	if !ids.Valid(thread.IDPrefix, v.ThreadID) {
		return nil, actor.BadArguments("conversation.thread_id: %.80q is no id of a thread", v.ThreadID)
	}
	out := &workgraph.ThreadCreate{Lifetime: workgraph.ThreadEphemeral, PartOf: v.PartOf, Key: v.Key}
	var err error
	if v.Lifetime != "" {
		out.Lifetime, err = Lifetime("conversation.lifetime", v.Lifetime)
	}
	if err == nil {
		err = cmp.Or(thread.CheckKey(v.Key), thread.CheckCreate(out))
	}
	return out, err
}

// GoOn is Begin on a thread that may be there already; create makes it if it is not. With after it is the
// last item that the caller knows: if further items have come, or if another run holds the thread, the loop
// begins on a fork that ends there. It does so, too, if the thread is a part of another one than create says.
func GoOn(ctx context.Context, threads thread.Reader, c *workgraph.Call, id string, create workgraph.ThreadCreate, after *int64) (workgraph.ThreadAppend, Place, error) {
	t, err := threads.Thread(ctx, actor.NamespaceOf(ctx), id)
	switch {
	case errs.ReasonOf(err) == thread.ReasonNotFound:
		return Begin(ctx, threads, c, id, &create, nil)
	case err != nil:
		return workgraph.ThreadAppend{}, Place{}, Error(err)
	}
	// A copy of the thread of a team has the parts of the first one in it: it must not write there.
	others := create.PartOf != "" && t.PartOf != create.PartOf
	switch {
	case after == nil && !others:
		return Begin(ctx, threads, c, id, nil, nil)
	case after == nil:
		after = &t.Last
	}
	if t.Last <= *after && !others {
		a, at, err := Begin(ctx, threads, c, id, nil, nil)
		if e, ok := errors.AsType[*workgraph.Error](err); !ok || e.Reason != thread.ReasonBusy {
			return a, at, err
		}
	}
	if create.Key != "" { // the thread has it
		create.Key, create.Lifetime = "", workgraph.ThreadEphemeral
	}
	create.ParentSeq = min(*after, t.Last)
	if create.ParentSeq > 0 {
		create.Parent = id
	}
	if create.Agent == "" {
		create.Agent = t.Agent
	}
	return Begin(ctx, threads, c, ids.New(thread.IDPrefix), &create, nil)
}

// Share is Begin on a thread that other runs may hold: the loop begins on a fork of it then, which nobody
// finds again.
func Share(ctx context.Context, threads thread.Reader, c *workgraph.Call, id, agent string) (workgraph.ThreadAppend, Place, error) {
	t, err := threads.Thread(ctx, actor.NamespaceOf(ctx), id)
	if err != nil {
		return workgraph.ThreadAppend{}, Place{}, Error(err)
	}
	return GoOn(ctx, threads, c, id, workgraph.ThreadCreate{Lifetime: workgraph.ThreadEphemeral, Agent: agent}, &t.Last)
}
