package mcp

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestMessages(t *testing.T) {
	t.Parallel()
	read := func(text string, most int) (string, error) {
		out, err := io.ReadAll(messages(iotest.OneByteReader(strings.NewReader(text)), most))
		return string(out), err
	}
	got, err := read("hello\n\n {\"id\":1}\r\n[1]\nbye", 100)
	require.NoError(t, err)
	require.Equal(t, "{\"id\":1}\n[1]\n", got)
	_, err = read(`{"id":"`+strings.Repeat("a", 200)+`"}`, 100)
	require.ErrorContains(t, err, "more than 100 bytes")
	got, err = read(`{"result":{"structuredContent":{"a":9007199254740993}},"id":1}`, 100)
	require.NoError(t, err)
	require.JSONEq(t, `{"result":{"structuredContent":{"epigraph.run/json":"{\"a\":9007199254740993}"}},"id":1}`, got)
}

func TestEvents(t *testing.T) {
	t.Parallel()
	read := func(text string, most int) (string, error) {
		out, err := io.ReadAll(events(iotest.OneByteReader(strings.NewReader(text)), most))
		return string(out), err
	}
	plain := "event: message\r\nid: 1\r\ndata: {\"id\":1}\r\n\r\n: comment\n\ndata: half"
	got, err := read(plain, 100)
	require.NoError(t, err)
	require.Equal(t, plain, got)
	got, err = read("id: 7\ndata: {\"result\":{\ndata: \"structuredContent\":[1.0]}}\nevent: message\n\nnext", 100)
	require.NoError(t, err)
	require.Equal(t, "id: 7\nevent: message\ndata: {\"result\":{\"structuredContent\":{\"epigraph.run/json\":\"[1.0]\"}}}\n\nnext", got)
	_, err = read("data: a\ndata: "+strings.Repeat("b", 100)+"\n\n", 100)
	require.ErrorContains(t, err, "more than 100 bytes")
}

func FuzzExact(f *testing.F) {
	for _, s := range []string{`{"result":{"structuredContent":{"a":9007199254740993}}}`, `{"result":{"structuredContent":null}}`, `"structuredContent"`, `{"result":{"structuredContent":1e400}}`,
		"data: {\"result\":{\"structuredContent\":1}}\n\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		out := exact(message)
		if before, ok := structured(message); ok && utf8.Valid(message) && !bytes.Equal(out, message) {
			after, ok := structured(out)
			require.True(t, ok)
			var content any
			require.NoError(t, json.Unmarshal(after, &content))
			back, err := unwrap(content)
			require.NoError(t, err)
			require.Equal(t, string(before), string(back))
		}
		for _, read := range []func(io.Reader, int) io.Reader{messages, events, bounded} {
			b, err := io.ReadAll(read(bytes.NewReader(message), 1<<10))
			if err == nil {
				require.LessOrEqual(t, len(b), 8*len(message)+1<<10)
			}
		}
	})
}

// structured is the structured content of a message.
func structured(message []byte) (json.RawMessage, bool) {
	var outer, result map[string]json.RawMessage
	if json.Unmarshal(message, &outer) != nil || json.Unmarshal(outer["result"], &result) != nil {
		return nil, false
	}
	content, ok := result["structuredContent"]
	return content, ok
}
