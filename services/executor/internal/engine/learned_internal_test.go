package engine

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestLearnedIsOfTheWorkflow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lineage record.Lineage
		want    string
	}{
		"Own":     {record.Lineage{Workflow: "digest@3", Within: "above@1"}, "digest"},
		"Member":  {record.Lineage{Within: "digest@3"}, "digest"},
		"Without": {record.Lineage{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &run{t: &session{e: &Engine{claims: struct{ Claims }{}}}}
			r.id, r.lineage = "run_1", c.lineage
			w := &journal.Append{Threads: []thread.Append{{Learnings: []workgraph.Learning{{Content: "tea at four"}}}}}
			require.NoError(t, r.tellLearned(w))
			require.Len(t, w.Outbox, 1)
			var got outbox.Learned
			require.NoError(t, json.Unmarshal(w.Outbox[0].Body, &got))
			require.Equal(t, c.want, got.Workflow)
			require.Equal(t, "tea at four", got.Learnings[0].Content)
		})
	}
}

func TestLearnedInOrder(t *testing.T) {
	t.Parallel()
	r := &run{t: &session{e: &Engine{claims: struct{ Claims }{}}}}
	w := &journal.Append{Threads: []thread.Append{
		{Learnings: []workgraph.Learning{{Agent: "a", Name: "drink", Content: "tea"}, {Agent: "a", Name: "food", Content: "rice"}, {Agent: "b", Name: "drink", Content: "beer"}}},
		{Learnings: []workgraph.Learning{{Agent: "a", Name: "drink", Content: "coffee"}}},
	}}
	require.NoError(t, r.tellLearned(w))
	var got outbox.Learned
	require.NoError(t, json.Unmarshal(w.Outbox[0].Body, &got))
	var said []string
	for _, l := range got.Learnings {
		said = append(said, l.Agent+" "+l.Name+" "+l.Content)
	}
	require.Equal(t, []string{"a food rice", "b drink beer", "a drink coffee"}, said, "the last of each, in order")
}
