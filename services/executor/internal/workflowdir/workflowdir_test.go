package workflowdir_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/workflowdir"
)

func TestDir(t *testing.T) {
	t.Parallel()
	place := t.TempDir()
	dir := filepath.Join(place, "workflows")
	put := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	const graph = `{"name": "NAME", "nodes": [{"id": "a", "actor": "template", "retry": {"maxAttempts": 2}}]}`
	put("report@1.json", `{"nodes": [{"id": "a", "actor": "template", "retry": {"maxAttempts": 2}}]}`)
	put("report@2.json", `{"name": "model form", "nodes": [{"id": "b", "actor": "template", "retry": {"max_attempts": 2}}]}`)
	put("acme/report@1.json", `{"name": "acme's", "nodes": [{"id": "c", "actor": "template"}]}`)
	put("bad@1.json", `{"nodes": [{"id": "a", "actr": "template"}], "edges": {}}`)
	put("big@1.json", `{"name": "`+string(make([]byte, workflowdir.MaxBytes))+`"}`)
	require.NoError(t, os.WriteFile(filepath.Join(place, "secret@1.json"), []byte(graph), 0o600))
	require.NoError(t, os.Symlink(filepath.Join(place, "secret@1.json"), filepath.Join(dir, "leads-out@1.json")))
	require.NoError(t, os.Symlink("report@2.json", filepath.Join(dir, "stays-in@1.json")))

	d, err := workflowdir.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })

	t.Run("Workflow/InBothForms", func(t *testing.T) {
		g, err := d.Workflow(t.Context(), "other", "workflow/report@1")
		require.NoError(t, err)
		require.Equal(t, "report@1", g.Name, "one without a name is called as it is asked for")
		require.Equal(t, 2, g.Nodes[0].Retry.MaxAttempts)
		g, err = d.Workflow(t.Context(), "other", "workflow/report@2")
		require.NoError(t, err)
		require.Equal(t, "model form", g.Name)
		require.Equal(t, 2, g.Nodes[0].Retry.MaxAttempts)
	})
	t.Run("Workflow/OfTheNamespaceFirst", func(t *testing.T) {
		g, err := d.Workflow(t.Context(), "acme", "workflow/report@1")
		require.NoError(t, err)
		require.Equal(t, "acme's", g.Name)
		g, err = d.Workflow(t.Context(), "acme", "workflow/report@2")
		require.NoError(t, err)
		require.Equal(t, "model form", g.Name)
	})
	t.Run("Workflow/NewFilesAreSeen", func(t *testing.T) {
		_, err := d.Workflow(t.Context(), "acme", "workflow/late@1")
		require.Equal(t, workflowdir.ReasonNotFound, errs.ReasonOf(err))
		put("late@1.json", graph)
		_, err = d.Workflow(t.Context(), "acme", "workflow/late@1")
		require.NoError(t, err)
	})
	t.Run("Missing/NamesWhatThereIs", func(t *testing.T) {
		_, err := d.Workflow(t.Context(), "acme", "workflow/report@7")
		require.True(t, errs.Is(err, errs.NotFound), "%v", err)
		require.ErrorContains(t, err, "there is report@1, report@1, report@2")
		_, err = d.Workflow(t.Context(), "other", "workflow/reprot@1")
		require.ErrorContains(t, err, "there is report@1, report@2")
		_, err = d.Workflow(t.Context(), "other", "workflow/nothing-like-it@1")
		require.EqualError(t, err, `there is no workflow "nothing-like-it@1"`)
	})
	t.Run("Names/NeverLeadOut", func(t *testing.T) {
		for _, ref := range []string{"workflow/../secret@1", "workflow/secret@../1", "workflow/.@1", "workflow/..@..", "workflow/acme/report@1", `workflow/a\b@1`, "workflow/@1", "workflow/a@", "workflow/a\x00@1", ""} {
			_, err := d.Workflow(t.Context(), "default", ref)
			require.Equal(t, workflowdir.ReasonNotFound, errs.ReasonOf(err), ref)
		}
		_, err := d.Workflow(t.Context(), "default", "workflow/leads-out@1")
		require.Error(t, err)
		require.Equal(t, workflowdir.ReasonUnreadable, errs.ReasonOf(err))
		_, err = d.Workflow(t.Context(), "default", "workflow/stays-in@1")
		require.NoError(t, err, "mounted config maps are links")
	})
	t.Run("Invalid/SaysEverything", func(t *testing.T) {
		_, err := d.Workflow(t.Context(), "default", "workflow/bad@1")
		require.Equal(t, workflowdir.ReasonInvalid, errs.ReasonOf(err))
		require.ErrorContains(t, err, `has no field "actr"`)
		require.ErrorContains(t, err, "graph.edges")
		_, err = d.Workflow(t.Context(), "default", "workflow/big@1")
		require.Equal(t, workflowdir.ReasonInvalid, errs.ReasonOf(err))
	})
	t.Run("Open/NeedsAFolder", func(t *testing.T) {
		_, err := workflowdir.Open(filepath.Join(dir, "nowhere"))
		require.Error(t, err)
	})
}
