package actor_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

var nothing = workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
	return workgraph.Outcome{}, nil
})

func TestRegistry(t *testing.T) {
	t.Parallel()
	good := actor.Spec{Name: "b", Version: "2", Effect: workgraph.Pure, Schema: `{"type":"object"}`, Actor: nothing}
	other := good
	other.Name = "a"
	t.Run("Find/ByName", func(t *testing.T) {
		t.Parallel()
		r, err := actor.NewRegistry(good, other)
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, r.Names())
		info, ok := r.ActorInfo("b")
		require.True(t, ok)
		require.Equal(t, "2", info.Version)
		_, ok = r.Actor("c")
		require.False(t, ok)
	})
	t.Run("Make/RefusesTwoOfOneName", func(t *testing.T) {
		t.Parallel()
		_, err := actor.NewRegistry(good, good)
		require.ErrorContains(t, err, `"b"`)
	})
	t.Run("Make/RefusesABadSchema", func(t *testing.T) {
		t.Parallel()
		bad := good
		bad.Schema = `{"type": 5}`
		_, err := actor.NewRegistry(bad)
		require.ErrorContains(t, err, "schema")
	})
}

func TestDecode(t *testing.T) {
	t.Parallel()
	t.Run("Others/AreNotRead", func(t *testing.T) {
		t.Parallel()
		var a struct {
			Text string `json:"text,omitempty"`
		}
		named := map[string]json.RawMessage{"text": json.RawMessage(`"hi"`), "large": json.RawMessage(`[1, `), "Text": json.RawMessage(`"other"`)}
		require.NoError(t, actor.Decode(named, &a))
		require.Equal(t, "hi", a.Text)
	})
	t.Run("WrongType/IsNamed", func(t *testing.T) {
		t.Parallel()
		var a struct {
			Text string `json:"text"`
		}
		err := actor.Decode(map[string]json.RawMessage{"text": json.RawMessage(`1`)}, &a)
		require.ErrorContains(t, err, "text")
	})
}

func TestReporterOf(t *testing.T) {
	t.Parallel()
	none := actor.ReporterOf(t.Context())
	none.Text("nobody listens")
	none.Raw("nobody listens")
	require.False(t, none.Watched())
	var got recorder
	ctx := actor.WithReporter(t.Context(), &got)
	actor.ReporterOf(ctx).Text("a")
	actor.ReporterOf(ctx).Progress(json.RawMessage("1"))
	actor.ReporterOf(ctx).Raw("b")
	require.True(t, actor.ReporterOf(ctx).Watched())
	require.Equal(t, recorder{"a", "1", "b"}, got)
}

type recorder []string

func (r *recorder) Text(s string)              { *r = append(*r, s) }
func (r *recorder) Raw(s string)               { *r = append(*r, s) }
func (r *recorder) Watched() bool              { return true }
func (r *recorder) Progress(s json.RawMessage) { *r = append(*r, string(s)) }
