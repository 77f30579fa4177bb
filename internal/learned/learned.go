// Package learned names what agents have learned in the memory, and says in which order they have. The
// executor keeps entries under these keys, and the registry finds those of one agent by them. It must
// not know either.
package learned

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// Prefix begins the keys of all learnings.
const Prefix = "learned:"

// maxPart bounds the agent and the name in a key, in bytes. A key has 256 bytes at most.
const maxPart = 120

// Of begins the keys of the learnings of an agent, and of no other one.
func Of(agent string) string { return Prefix + part(agent) + ":" }

// Key is the key of a learning. It has no control characters, and 256 bytes at most.
func Key(agent, name string) string { return Of(agent) + part(name) }

// part is a text without colons and control characters. One that is too long ends with its digest.
func part(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "�") {
		if r == '%' || r == ':' || unicode.IsControl(r) {
			b.WriteString("%" + strings.ToUpper(strconv.FormatInt(0x100+int64(r), 16)[1:]))
			continue
		}
		b.WriteRune(r)
	}
	if b.Len() <= maxPart {
		return b.String()
	}
	sum := sha256.Sum256([]byte(s))
	digest := "~" + hex.EncodeToString(sum[:8])
	return errs.Clip(b.String(), maxPart-len("…")-len(digest)) + digest
}

// Value is the value of the entry of a learning.
type Value struct {
	Agent string `json:"agent"`
	Name  string `json:"name"`
	// Time is that of the step in which the agent has learned it. Entries of earlier versions have
	// none.
	Time time.Time `json:"time,omitzero"`
}

// Before reports whether the learning with one value comes before that with the other: its step was
// earlier. Without the times of both nobody knows.
func Before(one, other []byte) bool {
	var a, b Value
	if json.Unmarshal(one, &a) != nil || json.Unmarshal(other, &b) != nil {
		return false
	}
	return !a.Time.IsZero() && a.Time.Before(b.Time)
}
