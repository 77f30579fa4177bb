package delegationpb_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/delegation"
	"github.com/epigraph-run/epigraph/internal/delegation/delegationpb"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// TestWords has a word for each number of the API but 0, which a tool does not know.
func TestWords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		words   []string
		numbers map[int32]string
	}{
		"EPIC_STATE_":        {delegation.EpicStates(), registryv1.EpicState_name},
		"TASK_STATE_":        {delegation.TaskStates(), registryv1.TaskState_name},
		"WORKFLOW_SOURCE_":   {delegation.Sources(), registryv1.WorkflowSource_name},
		"DEPENDENCY_POLICY_": {delegation.Policies(), registryv1.DependencyPolicy_name},
		"MEMORY_LEVEL_":      {delegation.Scopes(), registryv1.MemoryLevel_name},
		"MEMORY_KIND_":       {delegation.Kinds(), registryv1.MemoryKind_name},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Len(t, c.words, len(c.numbers)-1)
			for i, word := range c.words {
				if word == delegation.Canceled {
					word = "canceled"
				}
				require.Equal(t, name+strings.ToUpper(word), c.numbers[int32(i+1)])
			}
		})
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	tokens, nano := int64(5), int64(7)
	e := delegation.Epic{ID: "ep_1", Title: "t", Description: "d", Result: "r", User: "u", Tags: []string{"a"}, Priority: 2, BudgetTokens: &tokens, BudgetNanoUSD: &nano}
	require.Equal(t, e, delegationpb.EpicFrom(delegationpb.EpicTo(&e)))
	task := delegation.Task{
		ID: "tk_1", EpicID: "ep_1", Title: "t", Description: "d", Result: "r", Error: "e", Workflow: "w", Source: "created", Tags: []string{"a"}, DependsOn: []string{"tk_0"},
		Priority: 3, EstimatedTokens: 9, MaxRetries: -1,
	}
	require.Equal(t, task, delegationpb.TaskFrom(delegationpb.TaskTo(&task)))
}

func TestTaskChange(t *testing.T) {
	t.Parallel()
	task := delegation.Task{ID: "tk_1", Note: "n"}
	require.Len(t, delegationpb.TaskChange(&task, []string{"notes"}, "r").GetTask().GetNotes(), 1)
	require.Empty(t, delegationpb.TaskChange(&task, []string{"title"}, "r").GetTask().GetNotes(), "a note that goes with the move is not added twice")
}
