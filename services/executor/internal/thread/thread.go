// Package thread owns threads: the messages, states and learnings of an agent, in the order in which they
// were appended. It has the rules of appends, the contract of the store, and a cache for readers. It must not
// know the databases, the journal, nor what items mean.
package thread

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/idkind"
	"github.com/epigraph-run/epigraph/workgraph"
)

// IDPrefix begins the ids of threads.
const IDPrefix = "thr"

// Reasons of errors, stable and public.
const (
	// ReasonNotFound is the reason when there is no such thread in the namespace.
	ReasonNotFound = "THREAD_NOT_FOUND"
	// ReasonExists is the reason when another thread has the key; Meta "thread_id" names it.
	ReasonExists = "THREAD_ALREADY_EXISTS"
	// ReasonBusy is the reason when an open run holds the thread; Meta "run_id" names it.
	ReasonBusy = "THREAD_BUSY"
	// ReasonInvalid is the reason of a thread or an item that breaks a rule.
	ReasonInvalid = "THREAD_INVALID"
	// ReasonConflict is the reason of items that cannot be added.
	ReasonConflict = workgraph.ReasonThreadConflict
	// ReasonTooDeep is the reason of a fork that has too many threads above it.
	ReasonTooDeep = "THREAD_TOO_DEEP"
)

// Limits of what is appended and kept.
const (
	// MaxAppends and MaxItems bound the appends of one outcome, and their items together.
	MaxAppends = 64
	MaxItems   = 1000
	// MaxLearnings bounds the learnings of one outcome.
	MaxLearnings = 1000
	// MaxBrief and MaxBody bound an item in bytes.
	MaxBrief = 64 << 10
	MaxBody  = 2 << 20
	// MaxDepth is how many threads may stand above a fork.
	MaxDepth = 100
	// MaxName bounds keys and names of agents, MaxTitle titles, and MaxUser users and chats, all in bytes.
	MaxName  = 256
	MaxTitle = 512
	MaxUser  = 1024
)

type (
	// Kind says what an item is.
	Kind = workgraph.ThreadKind
	// Lifetime says how long a thread is kept.
	Lifetime = workgraph.ThreadLifetime
)

// Thread is a thread without its items.
type Thread struct {
	ID, Namespace string
	// Key is unique in the namespace, or empty.
	Key          string
	Agent, Title string
	// UserID and ChatID are those of the runs that its turns start.
	UserID, ChatID string
	Lifetime       Lifetime
	// ParentID is the thread of which this is a fork, and ParentSeq the last item that they share.
	ParentID  string
	ParentSeq int64
	// PartOf is the thread of which this one is a part, or empty.
	PartOf string
	// Depth is how many threads stand above.
	Depth int
	// Holder is the run that held the thread last, the one at the root; it may have ended. Below are the runs
	// of agents below it that it was lent to, down to the one that worked there last.
	Holder     string
	Below      []string
	CreateTime time.Time
	// UseTime is when the thread was made, held or appended to last.
	UseTime time.Time
	// Last is the sequence of the last item; ParentSeq while a fork has none of its own.
	Last int64
}

// Size implements page.Row.
func (t Thread) Size() int {
	return 512 + len(t.Key) + len(t.Agent) + len(t.Title) + len(t.UserID) + len(t.ChatID)
}

// Item is one item of a thread. Its bytes are shared and must not be changed.
type Item struct {
	Seq  int64
	Kind Kind
	Time time.Time
	// RunID, NodeID and Visit say which visit appended it. They are empty for an item that a caller appended.
	RunID, NodeID string
	Visit         int32
	Brief, Body   []byte
	// Weight is what the item counts in the usage of its namespace, in whatever form its bytes are
	// stored. It is set of an item to be added alone.
	Weight int64
	// Role is that of the author of a message. It is set of an item to be added alone, too: in the
	// store it is a part of the body.
	Role string
}

// Size implements page.Row.
func (i Item) Size() int { return 160 + len(i.RunID) + len(i.NodeID) + len(i.Brief) + len(i.Body) }

// same reports whether both are the same item of one thread.
func (i *Item) same(o *Item) bool {
	return i.Seq == o.Seq && i.Kind == o.Kind && i.RunID == o.RunID && i.NodeID == o.NodeID && i.Visit == o.Visit &&
		bytes.Equal(i.Brief, o.Brief) && bytes.Equal(i.Body, o.Body)
}

// Append is what a commit adds to one thread. The sequences of Items follow After.
type Append struct {
	Thread string
	After  int64
	Create *workgraph.ThreadCreate
	// Agent takes the turns from now on; empty leaves it as it is.
	Agent string
	Items []Item
	// Learnings are those among the items that outlive the thread. The outbox carries them to the memory, in
	// the commit that writes the items.
	Learnings []workgraph.Learning
	Time      time.Time
}

// Last is the sequence of the last item after the append.
func (a *Append) Last() int64 { return a.After + int64(len(a.Items)) }

// Appends are what the outcome of a visit adds to threads.
func Appends(of []workgraph.ThreadAppend, runID, nodeID string, visit int, now time.Time) []Append {
	out := make([]Append, len(of))
	for i := range of {
		a := &of[i]
		out[i] = Append{Thread: a.Thread, After: a.After, Create: a.Create, Agent: a.Agent, Learnings: a.Learnings, Time: now, Items: make([]Item, len(a.Items))}
		for j, it := range a.Items {
			out[i].Items[j] = Item{Seq: a.After + int64(j) + 1, Kind: it.Kind, Time: now, RunID: runID, NodeID: nodeID, Visit: int32(min(visit, 1<<31-1)), Brief: it.Brief, Body: it.Body,
				Weight: int64(len(it.Brief)+len(it.Body)) + Overhead}
			if it.Kind == workgraph.ThreadMessage {
				out[i].Items[j].Role = RoleOf(it.Body)
			}
		}
	}
	return out
}

// Bytes is how many bytes the items of an outcome have together. Learnings repeat a part of that.
func Bytes(of []workgraph.ThreadAppend) int {
	n := 0
	for i := range of {
		for _, it := range of[i].Items {
			n += len(it.Brief) + len(it.Body)
		}
	}
	return n
}

// Check reports the first fault of what an outcome adds to threads, whatever the threads hold.
func Check(of []workgraph.ThreadAppend) error {
	if len(of) > MaxAppends {
		return invalid("an outcome adds to %d threads, the limit is %d", len(of), MaxAppends)
	}
	items, learnings := 0, 0
	for i := range of {
		a := &of[i]
		if items += len(a.Items); items > MaxItems {
			return invalid("an outcome adds more than %d items to threads", MaxItems)
		}
		if a.Thread == "" || a.After < 0 || len(a.Items) == 0 && a.Create == nil {
			return invalid("append %d needs a thread, a sequence that is not negative, and items", i)
		}
		if learnings += len(a.Learnings); learnings > MaxLearnings || len(a.Learnings) > 0 && len(a.Items) == 0 {
			return invalid("an outcome has %d learnings, the limit is %d; they need items", learnings, MaxLearnings)
		}
		if a.Agent != "" && len(a.Items) == 0 {
			return invalid("append %d gives thread %q another agent and adds nothing", i, a.Thread)
		}
		if err := cmp.Or(checkText("the thread id", a.Thread, MaxName), checkText("the agent", a.Agent, MaxName)); err != nil {
			return err
		}
		if a.Create != nil {
			if err := CheckCreate(a.Create); err != nil {
				return err
			}
			if a.After != a.Create.ParentSeq {
				return invalid("thread %q begins after item %d and not after %d", a.Thread, a.Create.ParentSeq, a.After)
			}
		}
		for j := range a.Items {
			if err := CheckItem(&a.Items[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckItem reports the fault of an item.
func CheckItem(it *workgraph.ThreadItem) error {
	switch {
	case it.Kind < workgraph.ThreadMessage || it.Kind > workgraph.ThreadSummary:
		return invalid("%d is no kind of items", it.Kind)
	case len(it.Brief) > MaxBrief:
		return invalid("the brief of an item has %d bytes, the limit is %d", len(it.Brief), MaxBrief)
	case len(it.Body) > MaxBody:
		return invalid("an item has %d bytes, the limit is %d; keep large values outside and pass a reference", len(it.Body), MaxBody)
	}
	if fault := workgraph.ValueFault(it.Body); fault != "" {
		return invalid("the body of an item %s", fault)
	}
	if len(it.Brief) > 0 && !json.Valid(it.Brief) {
		return invalid("the brief of an item is not JSON")
	}
	return nil
}

// CheckCreate reports the fault of a description of a new thread.
func CheckCreate(c *workgraph.ThreadCreate) error {
	switch {
	case c.Lifetime < 0 || c.Lifetime > workgraph.ThreadOfRun:
		return invalid("%d is no lifetime", c.Lifetime)
	case c.ParentSeq < 0 || c.Parent == "" && c.ParentSeq > 0:
		return invalid("a sequence of the parent needs a parent, and is not negative")
	case c.Key != "" && lifetime(c) != workgraph.ThreadConversation && !strings.HasPrefix(c.Key, partOf):
		return invalid("only a conversation has a key")
	}
	return cmp.Or(checkText("the parent", c.Parent, MaxName), checkText("part_of", c.PartOf, MaxName), checkText("the key", c.Key, MaxName), checkText("the agent", c.Agent, MaxName), checkText("the title", c.Title, MaxTitle),
		checkText("the user", c.UserID, MaxUser), checkText("the chat", c.ChatID, MaxUser))
}

func lifetime(c *workgraph.ThreadCreate) Lifetime {
	return cmp.Or(c.Lifetime, workgraph.ThreadConversation)
}

// partOf begins the keys of threads that belong to a thread or a run. CheckKey refuses it in keys of users.
const partOf = ":"

// CheckKey refuses a key that a user gives and that belongs to a part of a thread.
func CheckKey(key string) error {
	if strings.HasPrefix(key, partOf) {
		return errs.New(errs.InvalidArgument, ReasonInvalid, "a key must not begin with %q: such keys find the parts of threads", partOf).
			Violate("thread.key", ReasonInvalid, "must not begin with a colon")
	}
	return nil
}

// PartKey is the key by which a thread is found that belongs to another one, or to a run. It has the form
// :ID:NAME:…, escaped and cut as in KeyOf. What comes after the id does not depend on it.
func PartKey(of string, names ...string) string {
	before := partPrefix(of)
	return before + bounded(joined(names), MaxName-len(before))
}

// partPrefix begins the keys of what belongs to a thread or a run.
func partPrefix(of string) string { return partOf + bounded(joined([]string{of}), MaxName/2) + ":" }

// SharedKey is the PartKey of a thread that several agents share by the last of names.
func SharedKey(of string, names ...string) string {
	return PartKey(of, slices.Insert(slices.Clone(names), len(names)-1, "threads")...)
}

// KeyOf is the key of the conversation of a user and a chat with a workflow: USER:CHAT:WORKFLOW, or
// USER:WORKFLOW without a chat. It is empty without a user or a workflow. A colon or a percent sign within a
// part is escaped, so that the keys of two users differ. A key that would be too long ends with a digest.
func KeyOf(user, chat, workflow string) string {
	if user == "" || workflow == "" {
		return ""
	}
	parts := []string{user, workflow}
	if chat != "" {
		parts = []string{user, chat, workflow}
	}
	return bounded(joined(parts), MaxName)
}

// joined puts the parts of a key together.
func joined(parts []string) string {
	escape := strings.NewReplacer("%", "%25", ":", "%3A", "\x00", "%00")
	out := make([]string, len(parts))
	for i, p := range parts {
		out[i] = escape.Replace(p)
	}
	return strings.Join(out, ":")
}

// bounded has the end of a text that is too long replaced by a digest.
func bounded(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	end := ":" + hex.EncodeToString(sum[:])
	return strings.ToValidUTF8(text[:limit-len(end)], "") + end
}

func checkText(what, s string, limit int) error {
	switch {
	case len(s) > limit:
		return invalid("%s has %d bytes, the limit is %d", what, len(s), limit)
	case !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0:
		return invalid("%s is no text", what)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return errs.New(errs.InvalidArgument, ReasonInvalid, "%s", fmt.Sprintf(format, args...))
}

// NotFound is the error of a thread that is not there.
func NotFound(id string) error {
	return errs.New(errs.NotFound, ReasonNotFound, "thread %q not found", id).Hint(idkind.Hint(id, IDPrefix, "ListThreads tells those that there are"))
}

// Exists is the error of a key that another thread has.
func Exists(key, id string) error {
	return errs.New(errs.AlreadyExists, ReasonExists, "a thread has the key %q", key).Set("thread_id", id).Hint("use that thread, or choose another key")
}

// Busy is the error of a thread that an open run holds.
func Busy(id, runID string) error {
	return errs.New(errs.FailedPrecondition, ReasonBusy, "run %q holds thread %q", runID, id).Set("run_id", runID).
		Hint("wait for the end of the run or cancel it; AppendMessage queues a message meanwhile")
}

// TooDeep is the error of a fork with too many threads above it.
func TooDeep(id string) error {
	return errs.New(errs.FailedPrecondition, ReasonTooDeep, "thread %q has %d threads above it, which is as many as may be", id, MaxDepth).
		Hint("fork one that stands higher")
}

// SeqNotThere is the error of a fork after an item that is not there.
func SeqNotThere(id string, seq, last int64) error {
	return errs.New(errs.InvalidArgument, ReasonInvalid, "thread %q ends with item %d and has no item %d", id, last, seq).
		Violate("sequence", ReasonInvalid, "is after the last item")
}

// metaKey says in a conflict that it is about a key.
const metaKey = "key"

// KeyTaken reports whether a conflict is about the key of a new thread, so that another try finds the thread
// that has it.
func KeyTaken(err error) bool {
	e := errs.From(err)
	return e != nil && e.Reason == ReasonConflict && e.Meta[metaKey] != ""
}

func conflict(format string, args ...any) error {
	return errs.New(errs.Conflict, ReasonConflict, "%s", fmt.Sprintf(format, args...)).Hint("read the thread again, and append after its last item")
}
