package testkit

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// LogBuffer collects log lines. It is an io.Writer, and safe for concurrent use.
type LogBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *LogBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String is all that was logged.
func (b *LogBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// LogLine is what a line says of itself; Left counts the lines that were left out before the end of an
// outage.
type LogLine struct {
	Level, Msg string
	Left       int `json:"lines_left_out"`
}

// Lines are those of some levels, of all if none is named. All must be JSON.
func (b *LogBuffer) Lines(t *testing.T, levels ...string) []LogLine {
	t.Helper()
	return linesOf(t, b, func(l LogLine) bool { return len(levels) == 0 || slices.Contains(levels, l.Level) })
}

// Line is the first line with this message.
func (b *LogBuffer) Line(t *testing.T, msg string) (LogLine, bool) {
	t.Helper()
	lines := linesOf(t, b, func(l LogLine) bool { return l.Msg == msg })
	if len(lines) == 0 {
		return LogLine{}, false
	}
	return lines[0], true
}

// Deletion is a line about a deletion: the resource and the caller.
type Deletion struct {
	Level, Msg, Kind, ID, Namespace, Principal string
}

// Deletions are the lines with this message.
func (b *LogBuffer) Deletions(t *testing.T, msg string) []Deletion {
	t.Helper()
	return linesOf(t, b, func(d Deletion) bool { return d.Msg == msg })
}

func linesOf[T any](t *testing.T, b *LogBuffer, wanted func(T) bool) (out []T) {
	t.Helper()
	for line := range strings.Lines(b.String()) {
		var l T
		require.NoError(t, json.Unmarshal([]byte(line), &l), line)
		if wanted(l) {
			out = append(out, l)
		}
	}
	return out
}
