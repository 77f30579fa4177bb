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

// LogBook keeps what is logged as JSON. It is an io.Writer, and safe for concurrent use.
type LogBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *LogBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// LogLine is what a line says of itself; Left counts the lines that were left out before the end of an outage.
type LogLine struct {
	Level, Msg string
	Left       int `json:"lines_left_out"`
}

// Lines are those of some levels, of all if none is named.
func (b *LogBook) Lines(t *testing.T, levels ...string) (out []LogLine) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.text.String()) {
		var l LogLine
		require.NoError(t, json.Unmarshal([]byte(line), &l), line)
		if len(levels) == 0 || slices.Contains(levels, l.Level) {
			out = append(out, l)
		}
	}
	return out
}

// Line is the first line with this message.
func (b *LogBook) Line(t *testing.T, msg string) (LogLine, bool) {
	t.Helper()
	lines := b.Lines(t)
	i := slices.IndexFunc(lines, func(l LogLine) bool { return l.Msg == msg })
	if i < 0 {
		return LogLine{}, false
	}
	return lines[i], true
}

// Deletion is a line that tells who removed what.
type Deletion struct {
	Level, Msg, Kind, ID, Namespace, Principal string
}

// Deletions are the lines with this message.
func (b *LogBook) Deletions(t *testing.T, msg string) (out []Deletion) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.text.String()) {
		var l LogLine
		require.NoError(t, json.Unmarshal([]byte(line), &l), line)
		if l.Msg != msg {
			continue
		}
		var d Deletion
		require.NoError(t, json.Unmarshal([]byte(line), &d), line)
		out = append(out, d)
	}
	return out
}
