package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
)

// TestRecordedExample records the cassette of the example anew. UPDATE_CASSETTE=1 keeps it, for a change of
// what agents are told.
func TestRecordedExample(t *testing.T) {
	const from, name, tape = "../../examples/workflow/", "recorded", "recorded.cassette.jsonl"
	model := fakellm.New(fakellm.Script{Answer: func(r fakellm.Request) (fakellm.Reply, bool) {
		if strings.Contains(r.Messages[len(r.Messages)-1].Content, "five words") {
			return fakellm.Reply{Text: "Air scatters blue light most."}, true
		}
		return fakellm.Reply{Text: "The air scatters blue light the most."}, true
	}})
	base, err := model.Listen("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = model.Close() })
	t.Setenv("OPENAI_BASE_URL", base)
	t.Setenv("OPENAI_API_KEY", "sk-secret")
	dir := t.TempDir()
	for _, file := range []string{name + ".yaml", name + ".test.yaml"} {
		raw, err := os.ReadFile(from + file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), raw, 0o600))
	}
	flowTests(t, 0, filepath.Join(dir, name+".test.yaml"), "--record")
	got, err := os.ReadFile(filepath.Join(dir, tape))
	require.NoError(t, err)
	if os.Getenv("UPDATE_CASSETTE") != "" {
		require.NoError(t, os.WriteFile(from+tape, got, 0o644))
	}
	want, err := os.ReadFile(from + tape)
	require.NoError(t, err)
	took := regexp.MustCompile(`"took_ms":\d+`)
	require.Equal(t, took.ReplaceAllString(string(want), ""), took.ReplaceAllString(string(got), ""), "agents are told something else than was recorded: UPDATE_CASSETTE=1 go test ./cmd/epigraph -run RecordedExample")
}
