package grpckit

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

func TestCheckText(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		task *registryv1.Task
		want string
	}{
		{&registryv1.Task{Title: "ok", Tags: []string{"a"}, Labels: map[string]string{"a": "b"}, Notes: []*registryv1.Note{{Text: "n"}}}, ""},
		{&registryv1.Task{Title: "\x00"}, "task.title"},
		{&registryv1.Task{Tags: []string{"a", "b\x00"}}, "task.tags[1]"},
		{&registryv1.Task{Labels: map[string]string{"\x00": "b"}}, "task.labels"},
		{&registryv1.Task{Labels: map[string]string{"b": "\x00"}}, "task.labels"},
		{&registryv1.Task{Notes: []*registryv1.Note{{}, {Author: "\x00"}}}, "task.notes[1].author"},
	} {
		err := checkText(&registryv1.CreateTaskRequest{Task: tc.task, RequestId: "r"}, nil)
		if tc.want == "" {
			require.NoError(t, err)
			continue
		}
		bad, ok := errors.AsType[*errs.Error](err)
		require.True(t, ok, "got %v", err)
		require.Equal(t, tc.want, bad.Violations[0].Field)
	}
}

func TestViolations(t *testing.T) {
	t.Parallel()
	e := errs.New(errs.InvalidArgument, "GRAPH_INVALID", "much")
	for range 5000 {
		e.Violations = append(e.Violations, errs.Violation{Field: "f", Message: "m"})
	}
	back := errs.From(FromStatus(ToStatus(t.Context(), e).Err()))
	require.Len(t, back.Violations, maxViolations)
	require.Equal(t, "5000", back.Meta[MetaViolations])
}
