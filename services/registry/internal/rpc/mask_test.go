package rpc

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/fieldmask"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
)

func TestMask(t *testing.T) {
	t.Parallel()
	zero := int64(0)
	full := &registryv1.Task{Id: "tk_1", Title: "x", EpicId: "ep_1", State: 3, Etag: `"1"`, MaxRetries: -1}
	for name, tc := range map[string]struct {
		paths []string
		want  []string
		bad   []string
	}{
		"absent means populated and mutable": {nil, []string{"title", "max_retries"}, nil},
		"star means all":                     {[]string{"*"}, epic.TaskFields(), nil},
		"named ones":                         {[]string{"notes", "title", "notes"}, []string{"notes", "title"}, nil},
		"etag is no change":                  {[]string{"etag", "title"}, []string{"title"}, nil},
		"payload is one value":               {[]string{"requirements.json"}, []string{"requirements"}, nil},
		"faults are named, all of them": {[]string{"title", "nope", "state", "epic_id", "labels.a", "title.x", "*", "state.json", "", "id"}, nil, []string{
			"nope: task has no such field", "state: the field cannot be changed", "epic_id: the field cannot be changed",
			"labels.a: name the whole field labels", "title.x: name the whole field title", `*: "*" must stand alone`,
			"state.json: the field cannot be changed", ": task has no such field", "id: the field cannot be changed",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := fieldmask.Fields("task", full, &fieldmaskpb.FieldMask{Paths: tc.paths}, epic.TaskFields())
			if tc.bad == nil {
				require.NoError(t, err)
				require.ElementsMatch(t, tc.want, got)
				return
			}
			bad, ok := errors.AsType[*errs.Error](err)
			require.True(t, ok, "got %v", err)
			require.Equal(t, errs.InvalidArgument, bad.Kind)
			var messages []string
			for _, v := range bad.Violations {
				messages = append(messages, v.Message)
			}
			require.Equal(t, tc.bad, messages)
		})
	}
	t.Run("a budget of zero is populated", func(t *testing.T) {
		t.Parallel()
		got, err := fieldmask.Fields("epic", &registryv1.Epic{BudgetTokens: &zero}, nil, epic.Fields())
		require.NoError(t, err)
		require.Equal(t, []string{"budget_tokens"}, got)
	})
	t.Run("every mutable field is one of the message", func(t *testing.T) {
		t.Parallel()
		for _, f := range epic.Fields() {
			require.NotNil(t, (&registryv1.Epic{}).ProtoReflect().Descriptor().Fields().ByTextName(f), f)
		}
		for _, f := range epic.TaskFields() {
			require.NotNil(t, (&registryv1.Task{}).ProtoReflect().Descriptor().Fields().ByTextName(f), f)
		}
	})
}

func FuzzMask(f *testing.F) {
	for _, s := range []string{"*", "title", "labels.a", "requirements.json", "etag", "", "a.b.c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		got, err := fieldmask.Fields("task", &registryv1.Task{}, &fieldmaskpb.FieldMask{Paths: []string{path}}, epic.TaskFields())
		if err != nil {
			require.True(t, errs.Is(err, errs.InvalidArgument))
			return
		}
		for _, field := range got {
			require.True(t, slices.Contains(epic.TaskFields(), field))
		}
	})
}
