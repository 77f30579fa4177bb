package memory

import (
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// Level is what a scope belongs to. Its numbers are those of the API.
type Level int16

// The levels.
const (
	// OfNamespace is for everybody in the namespace.
	OfNamespace Level = iota + 1
	// OfUser is for one user.
	OfUser
	// OfEpic is for the runs of one epic.
	OfEpic
	// OfWorkflow is for the runs of one workflow, by slug.
	OfWorkflow
)

// levels are the words for levels, by number.
func levels() []string { return []string{"", "namespace", "user", "epic", "workflow"} }

// String is the word for a level.
func (l Level) String() string {
	if l > 0 && int(l) < len(levels()) {
		return levels()[l]
	}
	return ""
}

// Scope is who may read an entry. Subject is the user, epic or workflow; empty for the namespace.
type Scope struct {
	Level   Level
	Subject string
}

// Check refuses a scope that is none.
func (s Scope) Check() error {
	refuse := func(message string) error {
		return errs.New(errs.InvalidArgument, ReasonScopeInvalid, "%s", message).Violate("scope", ReasonScopeInvalid, message).
			Hint("a scope is namespace, or user, epic or workflow with a subject")
	}
	switch {
	case s.Level.String() == "":
		return refuse("the level of the scope is missing")
	case s.Level == OfNamespace && s.Subject != "":
		return refuse("the scope of the namespace has no subject")
	case s.Level != OfNamespace && s.Subject == "":
		return refuse("the scope of a " + s.Level.String() + " needs a subject: its name")
	case !named(s.Subject, MaxSubject):
		return refuse("the subject of a scope has at most 1 KiB and no control characters")
	}
	return nil
}

// Place is the scope as a text, by which it is stored: the word of the level, and behind a slash the
// subject.
func (s Scope) Place() string {
	if s.Level == OfNamespace {
		return s.Level.String()
	}
	return s.Level.String() + "/" + s.Subject
}

// ScopeAt is the scope of a place.
func ScopeAt(place string) Scope {
	word, subject, _ := strings.Cut(place, "/")
	for i, w := range levels() {
		if i > 0 && w == word {
			return Scope{Level: Level(i), Subject: subject}
		}
	}
	return Scope{}
}

// Most is how many entries a scope holds.
func (s Scope) Most(b Bounds) int {
	if s.Level == OfNamespace {
		return b.Namespace
	}
	return b.Subject
}

// Bounds say how much is kept. Of entries that are written at the same time a few more may get in.
type Bounds struct {
	// Namespace is how many entries the scope of a namespace holds, Subject each other scope. Those
	// with the lowest confidence give way, of these the ones that were written longest ago.
	Namespace, Subject int
	// Entries and Bytes bound all scopes of a namespace together; 0 is no bound. Entries of the scope
	// that is written give way, by the same rule. A write for which too few do is refused.
	Entries, Bytes int64
	// Compared is how many bytes of vectors one search reads.
	Compared int
}

// Total is what a namespace remembers in all of its scopes.
type Total struct{ Entries, Bytes int64 }

// Over is what must be removed to come back to the bounds, never negative.
func (t Total) Over(b Bounds) (over Total) {
	if b.Entries > 0 {
		over.Entries = max(t.Entries-b.Entries, 0)
	}
	if b.Bytes > 0 {
		over.Bytes = max(t.Bytes-b.Bytes, 0)
	}
	return over
}

// DefaultBounds are those of a registry.
func DefaultBounds() Bounds {
	return Bounds{Namespace: 10_000, Subject: 1000, Entries: 1_000_000, Bytes: 1 << 30, Compared: 64 << 20}
}
