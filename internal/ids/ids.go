// Package ids makes and checks the prefixed ULIDs that name everything the suite stores: a short
// lower-case prefix, an underscore and a lower-case ULID, as in run_01jf8z…. It must not know what
// the prefixes mean.
package ids

import (
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// process is the one piece of package state: ids of a process ascend only if all of them come from one
// generator. ulid.Make does not do it, since it reads the clock outside of its lock, and a goroutine
// that was late with an older millisecond makes the next ids of the newer one start at random again.
var process = NewGenerator(nil)

// New returns a fresh id with this prefix. It is safe for concurrent use, and every id of a process
// sorts after all that were returned before it, even if the clock steps back. It panics if the system
// has no randomness, as crypto/rand itself does.
func New(prefix string) string { return process.New(prefix) }

// Generator makes ids in ascending order. The zero value is not usable; it is safe for concurrent use.
type Generator struct {
	mu      sync.Mutex
	last    uint64
	entropy *ulid.MonotonicEntropy
}

// NewGenerator returns a generator that draws from r, or from crypto/rand if r is nil.
func NewGenerator(r io.Reader) *Generator {
	if r == nil {
		r = rand.Reader
	}
	return &Generator{entropy: ulid.Monotonic(r, 0)}
}

// New returns an id stamped with the present. It panics if the source of randomness fails.
func (g *Generator) New(prefix string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	// The clock is read under the lock, so that times never go back between callers.
	id, err := g.next(prefix, ulid.Now())
	if err != nil {
		panic(err)
	}
	return id
}

// At returns an id stamped with t, or with the newest time it was given if t is before that, so that
// ids ascend whatever the order of the times.
func (g *Generator) At(prefix string, t time.Time) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.next(prefix, ulid.Timestamp(t))
}

func (g *Generator) next(prefix string, ms uint64) (string, error) {
	g.last = max(g.last, ms)
	id, err := ulid.New(g.last, g.entropy)
	if errors.Is(err, ulid.ErrMonotonicOverflow) {
		// This millisecond is used up; borrow from the next one.
		g.last++
		id, err = ulid.New(g.last, g.entropy)
	}
	if err != nil {
		return "", err
	}
	return prefix + "_" + strings.ToLower(id.String()), nil
}

// Valid reports whether s is an id as New writes it: this prefix and a well-formed lower-case ULID.
func Valid(prefix, s string) bool {
	_, ok := parse(prefix, s)
	return ok
}

// Time returns the millisecond in which an id was made; ok is false if s is not a valid id.
func Time(prefix, s string) (t time.Time, ok bool) {
	id, ok := parse(prefix, s)
	if !ok {
		return time.Time{}, false
	}
	return ulid.Time(id.Time()).UTC(), true
}

func parse(prefix, s string) (ulid.ULID, bool) {
	rest, ok := strings.CutPrefix(s, prefix+"_")
	if !ok || rest != strings.ToLower(rest) {
		return ulid.ULID{}, false
	}
	id, err := ulid.ParseStrict(strings.ToUpper(rest))
	return id, err == nil
}
