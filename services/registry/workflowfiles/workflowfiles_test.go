package workflowfiles_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"

	"github.com/epigraph-run/epigraph/services/registry/workflowfiles"
)

func TestFolder(t *testing.T) {
	t.Parallel()
	place := t.TempDir()
	dir := filepath.Join(place, "workflows")
	put := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	put("report.yaml", "newest")
	put("report@10.yml", "ten")
	put("report@9.json", "nine")
	put("acme/report@1.json", "acme's")
	put("report.test.yaml", "a test")
	put("README.md", "text")
	put(".hidden@1.yaml", "hidden")
	put("..2026/mounted@1.yaml", "hidden")
	put("report@prod.yaml", "alias")
	put("report@0.yaml", "zero")
	put("-x.yaml", "slug")
	put("No Space/x.yaml", "namespace")
	put("acme/deeper/x.yaml", "too deep")
	put("big.yaml", string(make([]byte, workflowfiles.MaxBytes+1)))
	require.NoError(t, os.WriteFile(filepath.Join(place, "secret.yaml"), []byte("secret"), 0o600))
	require.NoError(t, os.Symlink("..2026/mounted@1.yaml", filepath.Join(dir, "mounted@1.yaml")))

	d, err := workflowfiles.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	files, faults, err := d.Files()
	require.NoError(t, err)

	t.Run("Files/OlderVersionsFirst", func(t *testing.T) {
		var paths []string
		for _, f := range files {
			paths = append(paths, f.Path)
		}
		require.Equal(t, []string{"big.yaml", "mounted@1.yaml", "report@9.json", "report@10.yml", "report.yaml", "acme/report@1.json"}, paths)
		last := files[len(files)-1]
		require.Equal(t, []any{"acme", "report", int64(1)}, []any{last.Namespace, last.Slug, last.Version})
	})
	t.Run("Faults/NameTheFile", func(t *testing.T) {
		var texts []string
		for _, err := range faults {
			texts = append(texts, err.Error())
		}
		require.Len(t, texts, 4)
		require.Contains(t, texts[0], `-x.yaml: "-x" cannot be the slug`)
		require.Contains(t, texts[1], "No Space/: the folder has not the name of a namespace")
		require.Contains(t, texts[2], "report@0.yaml: its version is no number")
		require.Contains(t, texts[3], "report@prod.yaml: its version is no number")
	})
	t.Run("Read/OfALink", func(t *testing.T) {
		text, err := d.Read(files[1])
		require.NoError(t, err, "mounted config maps are links")
		require.Equal(t, "hidden", text)
	})
	t.Run("Read/NotTooMuch", func(t *testing.T) {
		_, err := d.Read(files[0])
		require.ErrorContains(t, err, "big.yaml: the file has more than 1048576 bytes")
	})
	t.Run("Read/NothingOutside", func(t *testing.T) {
		_, err := d.Read(workflowfiles.File{Path: "../secret.yaml"})
		require.Error(t, err)
		out := filepath.Join(dir, "out.yaml")
		require.NoError(t, os.Symlink(filepath.Join(place, "secret.yaml"), out))
		files, faults, err := d.Files()
		require.NoError(t, err)
		require.Len(t, files, 6)
		require.ErrorContains(t, errors.Join(faults...), "out.yaml: cannot be looked at")
		require.NoError(t, os.Remove(out))
	})
	t.Run("Open/NeedsAFolder", func(t *testing.T) {
		_, err := workflowfiles.Open(filepath.Join(dir, "nowhere"))
		require.Error(t, err)
	})
}

func TestFormOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]registryv1.WorkflowForm{
		`{"nodes": []}`: registryv1.WorkflowForm_WORKFLOW_FORM_GRAPH, `{"steps": []}`: registryv1.WorkflowForm_WORKFLOW_FORM_DEFINITION,
		"name: a\nsteps: []": registryv1.WorkflowForm_WORKFLOW_FORM_DEFINITION, "": registryv1.WorkflowForm_WORKFLOW_FORM_DEFINITION, "[1]": registryv1.WorkflowForm_WORKFLOW_FORM_DEFINITION,
	} {
		require.Equal(t, want, workflowfiles.FormOf(text), text)
	}
}
