// Package ids makes and checks the prefixed ULIDs that name everything the suite stores: a short
// lower-case prefix, an underscore and a lower-case ULID, as in run_01jf8z…. It must not know what
// the prefixes mean.
package ids

import (
	"crypto/rand"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// New returns a fresh id with this prefix. It is safe for concurrent use; ids made by one process
// within one millisecond sort in the order they were made.
func New(prefix string) string {
	return prefix + "_" + strings.ToLower(ulid.Make().String())
}

// Generator makes ids whose times the caller gives, which tests and synthetic clocks need. The zero
// value is not usable; it is safe for concurrent use.
type Generator struct {
	mu      sync.Mutex
	entropy *ulid.MonotonicEntropy
}

// NewGenerator returns a generator that draws from r, or from crypto/rand if r is nil.
func NewGenerator(r io.Reader) *Generator {
	if r == nil {
		r = rand.Reader
	}
	return &Generator{entropy: ulid.Monotonic(r, 0)}
}

// At returns an id stamped with t. Calls with the same millisecond give ids in ascending order.
func (g *Generator) At(prefix string, t time.Time) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	id, err := ulid.New(ulid.Timestamp(t), g.entropy)
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
