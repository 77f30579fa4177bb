package workgraph

import "encoding/json"

const (
	// ReasonThreadConflict is the reason of an attempt whose items cannot be added to a thread: the thread is
	// not there, or it ends elsewhere than the attempt believed. It is permanent and nothing was added.
	ReasonThreadConflict = "THREAD_CONFLICT"
	// ReasonNoThreads is the reason of an attempt that has items for a thread where no threads are kept.
	ReasonNoThreads = "NO_THREADS"
)

// ThreadAppend adds items to a thread.
type ThreadAppend struct {
	// Thread is the id of the thread.
	Thread string
	// After is the sequence with which the thread must end. The items get the sequences after it. For a new
	// thread it is the sequence of its fork, or 0.
	After int64
	// Create makes the thread first; nil means that the thread is there.
	Create *ThreadCreate
	// Agent is the actor that takes the turns of the thread from now on; empty leaves it as it is. It needs
	// items.
	Agent string
	Items []ThreadItem
	// Says says that the last item is a message for whoever is in the chat of the run. If something else
	// was added to the thread meanwhile, the attempt is made again.
	Says bool
	// Learnings are told to the memory, and outlive the thread. They need items, with which they become
	// durable, once.
	Learnings []Learning
}

// Learning is something that an agent has learned, and keeps beyond its thread.
type Learning struct {
	// Agent is the agent that has learned it. User is whom it is about, or empty.
	Agent, User string
	// Name is what the agent calls it, or empty. A later learning of this name takes its place.
	Name, Content string
}

// Standing is where a run stands among those that work on the thread of their root: its agents find their
// threads again by it in the next run on that thread.
type Standing struct {
	// Path are the nodes that lead to the run from the root, each after a slash. It is the same in all
	// runs of the root's graph.
	Path string `json:"path,omitempty"`
	// Apart says that the run may stand beside others of the same path, such as for another item of a map, or
	// does an agent's own work. Its agents share nothing with a later run.
	Apart bool `json:"apart,omitempty"`
	// Through says that the run only hands its thread to its children, which stand where it does.
	Through bool `json:"through,omitempty"`
}

// ThreadEnd is an item of a thread.
type ThreadEnd struct {
	Thread string `json:"thread"`
	Seq    int64  `json:"seq"`
}

// Below is where a child stands that a visit spawns.
func (s Standing) Below(at Ref, c *Child) Standing {
	if s.Through {
		return Standing{Path: s.Path, Apart: s.Apart}
	}
	return Standing{Path: s.Path + "/" + at.Node, Apart: s.Apart || c.Apart || at.Item != 0 || c.Agent != nil}
}

// InTurn reports whether the run is the workflow that takes a turn of a chat: its root only hands it the
// thread.
func (s *Start) InTurn() bool {
	return s.RootRunID != "" && s.RunID != s.RootRunID && s.Standing.Path == "" && !s.Standing.Apart
}

// ThreadCreate describes a new thread, which the run of the attempt holds.
type ThreadCreate struct {
	// Parent is the thread of which this one is a fork, and ParentSeq the last item that they share. Both are
	// empty for a thread that begins with nothing.
	Parent    string
	ParentSeq int64
	Lifetime  ThreadLifetime
	// Agent is the actor that takes the turns of the thread, Key a name that is unique in the namespace. Both
	// may be empty.
	Agent, Key string
	// PartOf is the thread of which this one is a part: it is kept as long as that one, and deleted with it.
	// Empty for a thread of its own.
	PartOf string
	// Title is what people call it.
	Title string
	// OfRoot has the root of the run hold the thread from the beginning. Root is that root; the caller that
	// commits the append sets it.
	OfRoot bool
	Root   string
	// UserID and ChatID are those of the runs that the turns of the thread start. The caller that commits the
	// append sets them to those of the run.
	UserID, ChatID string
}

// ThreadItem is one item of a thread. Brief is what lists show of it and may be empty; Body is all of it.
type ThreadItem struct {
	Kind        ThreadKind
	Brief, Body json.RawMessage
}

// ThreadKind says what an item is. The numbers are stored and never change.
type ThreadKind int32

// The kinds of items.
const (
	ThreadMessage  ThreadKind = 1
	ThreadState    ThreadKind = 2
	ThreadLearning ThreadKind = 3
	// ThreadSummary stands for the items before it, up to a sequence that its body names.
	ThreadSummary ThreadKind = 4
)

// ThreadLifetime says how long a thread is kept. The numbers are stored and never change.
type ThreadLifetime int32

// The lifetimes. The zero value is ThreadConversation.
const (
	// ThreadConversation is kept until somebody deletes it.
	ThreadConversation ThreadLifetime = 1
	// ThreadEphemeral is kept for an hour after its last use, and while an open run holds it.
	ThreadEphemeral ThreadLifetime = 2
	// ThreadOfRun is kept until the run that holds it has ended.
	ThreadOfRun ThreadLifetime = 3
)

// adding is what the attempt of a unit adds to threads if its outcome stands.
type adding struct {
	u  unit
	of []ThreadAppend
}

// addToThreads makes what the unit's attempt adds to threads an effect of the decision.
func (s *State) addToThreads(u unit) {
	if len(s.adds.of) == 0 || s.adds.u != u {
		return
	}
	s.fx.Threads = append(s.fx.Threads, ThreadsOf{s.ref(u.ns, u.item), s.adds.of})
	s.adds = adding{}
}
