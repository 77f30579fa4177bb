// Package fact owns what agents keep as facts: how a fact is named, how many are kept, and the contract of
// the store. A fact is written in the commit that adds the learning to the agent's thread, and outlives the
// thread. It must not know threads, the databases, nor what an agent does with a fact. Another memory takes
// the place of the store by taking Facts from that commit and answering Store.
package fact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/idkind"
	"github.com/epigraph-run/epigraph/internal/page"
)

// IDPrefix begins the ids of facts.
const IDPrefix = "fct"

// ReasonNotFound is the reason when there is no such fact in the namespace.
const ReasonNotFound = "FACT_NOT_FOUND"

// Limits of what is kept.
const (
	// MaxContent bounds the text of a fact, and MaxName names of facts, agents and users, all in bytes.
	MaxContent = 8 << 10
	MaxName    = 256
	// MaxFacts and MaxBytes bound the facts of one agent about one user, by number and by their texts
	// together. The oldest give way.
	MaxFacts = 1000
	MaxBytes = 1 << 20
)

// Fact is something that an agent keeps.
type Fact struct {
	ID, Namespace string
	Owner
	// Name is what the agent calls it. A later fact of the owner with this name takes its place.
	Name, Content string
	// Thread and Run are where it was learned, and Time is when. The thread may be gone.
	Thread, Run string
	Time        time.Time
}

// Owner is an agent and the user about whom it keeps facts. User is empty where it is not known.
type Owner struct{ Agent, User string }

// Size implements page.Row.
func (f Fact) Size() int { return 256 + len(f.Agent) + len(f.User) + len(f.Name) + len(f.Content) }

// New returns a fact with the id that its owner and name give it. A fact without a name is named by its
// content. What is too long is cut, and what no text can hold is left out.
func New(namespace string, o Owner, name, content string) Fact {
	f := Fact{Namespace: namespace, Owner: Owner{Agent: text(o.Agent, MaxName), User: text(o.User, MaxName)}, Name: text(name, MaxName), Content: text(content, MaxContent)}
	if f.Name == "" {
		f.Name = digest(f.Content)[:16]
	}
	f.ID = IDPrefix + "_" + digest(f.Agent, f.User, f.Name)[:32]
	return f
}

func text(s string, limit int) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "")
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "�")
	}
	if len(s) > limit {
		s = errs.Clip(s, limit-len("…"))
	}
	return s
}

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

// Filter narrows a list of facts; all set fields must hold.
type Filter struct {
	Agent string
	// User is one user, who may be the empty one; nil means any.
	User *string
}

// Store lists and removes facts. Commits of the journal write them. Implementations are safe for concurrent
// use.
type Store interface {
	// ListFacts returns up to limit facts after a cursor, those that were learned last first, by (Time, ID).
	ListFacts(ctx context.Context, namespace string, f Filter, after page.Cursor, limit int) ([]Fact, error)
	// DeleteFact removes a fact, until it is learned again. ReasonNotFound.
	DeleteFact(ctx context.Context, namespace, id string) error
}

// NotFound is the error of a fact that is not there.
func NotFound(id string) error {
	return errs.New(errs.NotFound, ReasonNotFound, "fact %q not found", id).Hint(idkind.Hint(id, IDPrefix, "ListFacts tells those that there are"))
}
