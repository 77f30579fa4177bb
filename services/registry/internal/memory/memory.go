// Package memory owns what is remembered beyond a run: entries with their scopes, kinds and bounds,
// the words by which they are found, and how they are ranked. It must not know any database or
// protocol.
package memory

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/idkind"
	"github.com/epigraph-run/epigraph/internal/ids"
)

// Prefix begins the ids of entries, and ReadPrefix those of reads.
const (
	Prefix     = "mem"
	ReadPrefix = "mrd"
)

// Reasons of refusals.
const (
	// ReasonInvalid refuses an entry that cannot be kept as it is.
	ReasonInvalid = "MEMORY_INVALID"
	// ReasonNotFound is the reason when the namespace has no such entry.
	ReasonNotFound = "MEMORY_NOT_FOUND"
	// ReasonFull refuses an entry for which its namespace has no room.
	ReasonFull = "MEMORY_FULL"
	// ReasonKeyReserved refuses a key that the system gives.
	ReasonKeyReserved = "MEMORY_KEY_RESERVED"
	// ReasonScopeInvalid refuses a scope.
	ReasonScopeInvalid = "MEMORY_SCOPE_INVALID"
)

// Bounds of one entry, in bytes and numbers.
const (
	// MaxKey bounds a key.
	MaxKey = 256
	// MaxSubject bounds the name of a user, an epic or a workflow.
	MaxSubject = 1024
	// MaxText bounds a text.
	MaxText = 8 << 10
	// MaxValue bounds a JSON value.
	MaxValue = 16 << 10
	// MaxTags is how many tags there may be.
	MaxTags = 20
	// MaxTag bounds one tag.
	MaxTag = 128
	// MaxScopes is how many scopes one search may read.
	MaxScopes = 8
)

// Kind says what an entry is. Its numbers are those of the API and of the stores.
type Kind int16

// The kinds.
const (
	// Fact is something that is so.
	Fact Kind = iota + 1
	// Procedure is how something was done, and how well that went.
	Procedure
	// Preference is how somebody wants things to be.
	Preference
)

// String is the word for a kind.
func (k Kind) String() string {
	switch k {
	case Fact:
		return "fact"
	case Procedure:
		return "procedure"
	case Preference:
		return "preference"
	}
	return ""
}

// Origin says who wrote an entry. Its numbers are those of the API and of the stores.
type Origin int16

// The origins.
const (
	// ByClient is somebody who called the API.
	ByClient Origin = iota + 1
	// ByRun is a run; the source is its id.
	ByRun
	// ByEpic is the end of an epic; the source is its id.
	ByEpic
	// ByAgent is what an agent has learned; the source is its run.
	ByAgent
)

// Entry is something that is remembered. Of a scope there is one of each key.
type Entry struct {
	Namespace, ID string
	Scope         Scope
	Key           string
	Kind          Kind
	// Text is what people and models read.
	Text string
	// Value is one JSON value as its author wrote it, or nil.
	Value []byte
	Tags  []string
	// Vector stands for the meaning. It is given by who writes, and is not read back.
	Vector *Embedding
	// VectorFault is why there is no vector; empty unless a model made none.
	VectorFault string
	// Origin and Source are who wrote it last. UserID is the user of the run or the epic, if there is
	// one: whoever forgets the user forgets the entry, whatever its scope.
	Origin         Origin
	Source, UserID string
	// Confidence is from 0 to 1, in thousandths.
	Confidence float64
	// ExpireTime is when it is forgotten; zero means never.
	ExpireTime, CreateTime, UpdateTime time.Time
	Principal                          string
	// Revision counts changes from 1.
	Revision int64
}

// reserved are the beginnings of keys that the system gives, and who writes them.
func reserved() map[string]Origin {
	return map[string]Origin{procedureKeys: ByEpic, "learned:": ByAgent}
}

// OwnVector reports whether a client gave the entry its vector: such a vector is kept, whatever model
// makes those of other entries.
func (e *Entry) OwnVector() bool { return e.Vector != nil && e.Origin == ByClient }

// CheckKey refuses a key that only another origin writes.
func CheckKey(key string, by Origin) error {
	for prefix, origin := range reserved() {
		if strings.HasPrefix(key, prefix) && by != origin {
			return errs.New(errs.InvalidArgument, ReasonKeyReserved, "the key %.80q begins with %q, which is reserved for what the system writes", key, prefix).
				Violate("key", ReasonKeyReserved, "is reserved").Hint("choose a key that does not begin with procedure: or learned:")
		}
	}
	return nil
}

// New returns what is to be kept of in: with an id, in the bounds, at its first revision. An entry
// without a key gets one of its text and value.
func New(namespace string, in Entry, now time.Time) (Entry, error) {
	e := in
	e.Namespace, e.ID, e.CreateTime, e.UpdateTime, e.Revision = namespace, ids.New(Prefix), now, now, 1
	e.Text, e.VectorFault = strings.ReplaceAll(e.Text, "\x00", ""), ""
	if e.Kind == 0 {
		e.Kind = Fact
	}
	if e.Origin == 0 {
		e.Origin = ByClient
	}
	e.Tags = nil
	for _, tag := range in.Tags {
		if !slices.Contains(e.Tags, tag) {
			e.Tags = append(e.Tags, tag)
		}
	}
	if len(e.Value) == 0 || string(e.Value) == "null" {
		e.Value = nil
	}
	e.Confidence = math.Round(e.Confidence*1000) / 1000
	if e.Key == "" && (e.Text != "" || e.Value != nil) {
		e.Key = TextKey(e.Text + string(e.Value))
	}
	return e, e.check(now)
}

// TextKey is the key of an entry that nobody named.
func TextKey(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "text:" + hex.EncodeToString(sum[:8])
}

// check refuses what cannot be kept.
func (e *Entry) check(now time.Time) error {
	if err := e.Scope.Check(); err != nil {
		return err
	}
	switch {
	case e.Text == "" && e.Value == nil:
		return invalid("text", "an entry needs a text or a value")
	case !named(e.Key, MaxKey):
		return invalid("key", "a key has at most 256 bytes and no control characters")
	case len(e.Text) > MaxText:
		return invalid("text", "a text has at most 8 KiB")
	case len(e.Value) > MaxValue || e.Value != nil && !json.Valid(e.Value):
		return invalid("value", "a value is JSON of at most 16 KiB")
	case len(e.Tags) > MaxTags || slices.ContainsFunc(e.Tags, func(t string) bool { return t == "" || !named(t, MaxTag) }):
		return invalid("tags", "there are at most 20 tags, of 128 bytes each and without control characters")
	case !(e.Confidence >= 0 && e.Confidence <= 1):
		return invalid("confidence", "a confidence is from 0 to 1")
	case len(e.UserID) > MaxSubject || len(e.Source) > MaxSubject || strings.ContainsRune(e.UserID+e.Source, 0):
		return invalid("user_id", "a user or a source has at most 1 KiB")
	case !e.ExpireTime.IsZero() && !e.ExpireTime.After(now):
		return invalid("expire_time", "the time at which an entry expires must be in the future")
	}
	return nil
}

// named reports whether a text can be a name: within a number of bytes and without control characters.
func named(s string, most int) bool {
	return len(s) <= most && strings.IndexFunc(s, unicode.IsControl) < 0
}

func invalid(field, message string) error {
	return errs.New(errs.InvalidArgument, ReasonInvalid, "%s", message).Violate(field, ReasonInvalid, message)
}

// Full is the error of an entry for which there is no room.
func Full(t Total, b Bounds) error {
	return errs.New(errs.FailedPrecondition, ReasonFull, "the namespace remembers %d entries of %d bytes with this one, and the bounds are %d and %d: too few of its scope can give way",
		t.Entries, t.Bytes, b.Entries, b.Bytes).Hint("forget a scope or a user, delete entries, or raise registry.memory_entries or registry.memory_bytes")
}

// NotFound is the error of an entry that is not there.
func NotFound(id string) error {
	return errs.New(errs.NotFound, ReasonNotFound, "there is no memory %.80q", id).Hint(idkind.Hint(id, Prefix, "ListMemory lists what is remembered"))
}

// Over returns e as the next revision of an entry that it takes the place of.
func (e Entry) Over(before Entry, now time.Time) Entry {
	e.ID, e.CreateTime, e.UpdateTime, e.Revision = before.ID, before.CreateTime, now, before.Revision+1
	return e
}

// Expired reports whether the time of an entry is over.
func (e *Entry) Expired(now time.Time) bool {
	return !e.ExpireTime.IsZero() && !e.ExpireTime.After(now)
}

// Size implements page.Row.
func (e Entry) Size() int {
	n := 512 + len(e.Scope.Subject) + len(e.Key) + len(e.Text) + len(e.Value) + len(e.UserID) + len(e.Source)
	for _, t := range e.Tags {
		n += 16 + len(t)
	}
	return n
}

// texts are the texts in a JSON value, without the names of its fields.
func texts(value []byte) (out []string) {
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	// names says of each open object or list whether the next text is the name of a field.
	type level struct{ object, name bool }
	var open []level
	for {
		t, err := d.Token()
		if err != nil {
			return out
		}
		switch v := t.(type) {
		case json.Delim:
			switch v {
			case '{', '[':
				open = append(open, level{object: v == '{', name: v == '{'})
				continue
			default:
				open = open[:len(open)-1]
			}
		case string:
			if last := len(open) - 1; last >= 0 && open[last].object && open[last].name {
				open[last].name = false
				continue
			}
			out = append(out, v)
		}
		if last := len(open) - 1; last >= 0 && open[last].object {
			open[last].name = true
		}
	}
}
