package thread

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Limits of a thread that is passed as a value, with all its parts.
const (
	MaxValueThreads = 256
	MaxValueItems   = 10_000
	MaxValueBytes   = 8 << 20
	// MaxValueDepth is how many threads may stand above a part.
	MaxValueDepth = 32
)

// ReasonValueTooLarge is the reason of a thread that is too large to be passed as a value.
const ReasonValueTooLarge = "THREAD_VALUE_TOO_LARGE"

// Relative is a member of a family: a thread, or a part of it, however deep.
type Relative struct {
	Thread
	// By is the open run that holds it, or empty.
	By string
}

// Import is a request for threads with items: a whole and its parts.
type Import struct {
	Namespace string
	// Threads are the appends that make the threads, the whole first and each part after that of which
	// it is one. Their Create is set, and their Time is when they are made.
	Threads []Append
	Request Request
	// Room is what the namespace may have, with these threads.
	Room Room
	// Refused, if not nil, is the error of a request that is no repetition.
	Refused error
}

// Usage is what the threads take.
func (m *Import) Usage() Usage {
	u := Usage{Threads: int64(len(m.Threads))}
	for i := range m.Threads {
		for j := range m.Threads[i].Items {
			u.Bytes += m.Threads[i].Items[j].Weight
		}
	}
	return u
}

// New is the thread that an append makes, held by a run or by nobody.
func (a *Append) New(namespace, holder string) Thread {
	c := a.Create
	return Thread{ID: a.Thread, Namespace: namespace, Key: c.Key, Agent: c.Agent, Title: c.Title, UserID: c.UserID, ChatID: c.ChatID, Lifetime: lifetime(c), ParentID: c.Parent, ParentSeq: c.ParentSeq,
		PartOf: c.PartOf, Holder: holder, CreateTime: dbkit.Micros(a.Time), UseTime: dbkit.Micros(a.Time)}
}

// PartName is the name by which a thread is found as a part of another one: NamedPart of both is its key.
// Empty says that it is not.
func (t *Thread) PartName() string {
	name, ok := strings.CutPrefix(t.Key, partPrefix(t.PartOf))
	if !ok || t.PartOf == "" {
		return ""
	}
	return name
}

// PartLifetime is that of the parts of a thread with a lifetime: they are kept as long as that one is there.
func PartLifetime(whole Lifetime) Lifetime {
	if cmp.Or(whole, workgraph.ThreadConversation) == workgraph.ThreadConversation {
		return workgraph.ThreadConversation
	}
	return workgraph.ThreadEphemeral
}

// NamedPart is the key of the part of a thread that has a name, as PartName gives it.
func NamedPart(of, name string) string { return partPrefix(of) + name }

// IsPart reports whether a key is that of what belongs to a thread or a run.
func IsPart(key string) bool { return strings.HasPrefix(key, partOf) }

// ValueTooLarge is the error of a thread that has more than a value may have.
func ValueTooLarge(format string, args ...any) error {
	return errs.New(errs.FailedPrecondition, ReasonValueTooLarge, "%s", fmt.Sprintf(format, args...)).
		Hint("go on with the thread by its id, or read its messages in pages; a thread as a value has at most " +
			fmt.Sprintf("%d threads, %d items and %d MiB", MaxValueThreads, MaxValueItems, MaxValueBytes>>20))
}
