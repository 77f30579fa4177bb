package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
)

// TestMemory keeps entries by the SDK, and reads them by the SDK, REST and the command line.
func TestMemory(t *testing.T) {
	d := serve(t, fakellm.Script{})
	c, err := epigraph.Dial(d.GRPCAddr())
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	ann := &registryv1.MemoryScope{Level: registryv1.MemoryLevel_MEMORY_LEVEL_USER, Subject: "ann"}
	var ids []string
	for _, text := range []string{"likes tea", "lives in Oslo", "plays chess"} {
		m, err := c.Remember(t.Context(), &registryv1.Memory{Scope: ann, Key: text[:5], Text: text, Value: &graphv1.Payload{Json: []byte(`{"n": 1}`)}})
		require.NoError(t, err)
		ids = append(ids, m.GetId())
	}

	t.Run("SDK/ReadsEntries", func(t *testing.T) {
		found, err := c.SearchMemory(t.Context(), &registryv1.SearchMemoryRequest{Query: "tea", Scopes: []*registryv1.MemoryScope{ann}})
		require.NoError(t, err)
		require.Len(t, found, 1)
		m, err := c.Memory(t.Context(), ids[1])
		require.NoError(t, err)
		require.Equal(t, "lives in Oslo", m.GetText())
		require.Len(t, listed(t, c.ListMemory(t.Context(), &registryv1.ListMemoryRequest{Scope: ann})), 3)
		require.Empty(t, listed(t, c.ListMemory(t.Context(), &registryv1.ListMemoryRequest{Agent: "agent/x"})))
	})
	t.Run("SDK/ExportsInOrder", func(t *testing.T) {
		var got []string
		for _, m := range listed(t, c.ExportMemory(t.Context())) {
			got = append(got, m.GetId())
		}
		require.Equal(t, ids, got)
		for m, err := range c.ExportMemory(t.Context()) { // a caller may stop early
			require.NoError(t, err)
			require.Equal(t, ids[0], m.GetId())
			break
		}
	})
	t.Run("REST/ExportsLines", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.HTTPAddr()+"/v1/memory:export", http.NoBody)
		require.NoError(t, err)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		require.Equal(t, "application/x-ndjson", res.Header.Get("Content-Type"))
		var got []string
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			var m struct {
				ID    string          `json:"id"`
				Value json.RawMessage `json:"value"`
			}
			require.NoError(t, json.Unmarshal(lines.Bytes(), &m), lines.Text())
			require.JSONEq(t, `{"n": 1}`, string(m.Value))
			got = append(got, m.ID)
		}
		require.Equal(t, ids, got)
	})
	t.Run("CLI/ExportsLines", func(t *testing.T) {
		var o, e bytes.Buffer
		require.Zero(t, cli.Main(t.Context(), build, []string{"--addr", d.GRPCAddr(), "memory", "export"}, cli.IO{Out: &o, Err: &e}), e.String())
		require.Len(t, slices.Collect(bytes.Lines(o.Bytes())), 3)
	})
	t.Run("SDK/DeletesAndForgets", func(t *testing.T) {
		require.NoError(t, c.DeleteMemory(t.Context(), ids[0]))
		_, err := c.Memory(t.Context(), ids[0])
		require.Equal(t, "MEMORY_NOT_FOUND", epigraph.ReasonOf(err))
		n, err := c.ForgetUser(t.Context(), "ann")
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
		require.Empty(t, listed(t, c.ListMemory(t.Context(), nil)))
	})
}
