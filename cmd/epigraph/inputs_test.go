package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

// TestInputsOfWorkflows starts workflows with inputs that they do not declare.
func TestInputsOfWorkflows(t *testing.T) {
	d := serve(t, fakellm.Script{})
	command := func(t *testing.T, want int, args ...string) (out, notes string) {
		t.Helper()
		var o, e bytes.Buffer
		code := cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr()}, args...), cli.IO{In: strings.NewReader(""), Out: &o, Err: &e})
		require.Equal(t, want, code, "%v: %s%s", args, o.String(), e.String())
		return strings.TrimSpace(o.String()), e.String()
	}
	file := filepath.Join(t.TempDir(), "letter.yaml")
	require.NoError(t, os.WriteFile(file, []byte("name: letter\ninputs:\n  properties: {to: {type: string}, copies: {type: integer}, note: {type: string}}\n  required: [to, copies]\nsteps:\n  - {id: say, type: reply_chat, message: \"To {{ inputs.to }}\"}\n"), 0o600))
	command(t, 0, "workflows", "create", file)

	for name, ref := range map[string]string{"Catalog": "letter", "File": file} {
		t.Run(name+"/AllThatIsWrongIsToldBeforeARunStarts", func(t *testing.T) {
			before, _ := command(t, 0, "runs", "ls", "--json")
			_, notes := command(t, 2, "workflows", "run", ref, "--input", "to=4")
			require.Contains(t, notes, "INPUT_INVALID")
			require.Contains(t, notes, "missing property 'copies'")
			require.Contains(t, notes, "named.to [INPUT_INVALID]: got number, want string")
			require.Contains(t, notes, "it declares copies (integer), note (string, optional), to (string)")
			after, _ := command(t, 0, "runs", "ls", "--json")
			require.Equal(t, before, after)
		})
		t.Run(name+"/WhatIsDeclaredAndMoreIsTaken", func(t *testing.T) {
			out, _ := command(t, 0, "workflows", "run", ref, "--input", "to=you", "--input", "copies=2", "--input", "besides=1")
			require.Contains(t, out, "To you")
		})
	}
	t.Run("Task/FailsAtOnceAndSaysWhichInputAndWhatMendsIt", func(t *testing.T) {
		e, _ := command(t, 0, "epics", "create", "goal")
		task, _ := command(t, 0, "tasks", "create", e, "write", "--workflow", "letter", "--input", `{"to": "you"}`)
		command(t, 0, "epics", "run", e)
		shown := ""
		testkit.Eventually(t, func() bool {
			shown, _ = command(t, 0, "tasks", "show", task)
			return strings.Contains(shown, "failed")
		})
		require.Contains(t, shown, "missing property 'copies'")
		require.Contains(t, shown, "`epigraph tasks update "+task+" --input JSON`")
		require.Contains(t, shown, "`epigraph tasks transition "+task+" pending`")
		for _, args := range [][]string{{"epics", "show", e}, {"tasks", "ls", e}} {
			out, _ := command(t, 0, args...)
			require.Contains(t, out, "WHY")
			require.Contains(t, out, "the inputs do not fit the workflow; missing property 'copies'", "%v", args)
		}
	})
}

// TestMissingActors keeps, shows and runs an imported workflow whose actors nobody offers.
func TestMissingActors(t *testing.T) {
	d := serve(t, fakellm.Script{})
	command := func(t *testing.T, want int, args ...string) (out, notes string) {
		t.Helper()
		var o, e bytes.Buffer
		code := cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr()}, args...), cli.IO{In: strings.NewReader(""), Out: &o, Err: &e})
		require.Equal(t, want, code, "%v: %s%s", args, o.String(), e.String())
		return o.String(), e.String()
	}
	dir := t.TempDir()
	foreign, own := filepath.Join(dir, "alert.json"), filepath.Join(dir, "alert.yaml")
	require.NoError(t, os.WriteFile(foreign, []byte(`{"name": "Alert", "nodes": [
		{"id": "1", "name": "Hook", "type": "n8n-nodes-base.manualTrigger", "parameters": {}, "typeVersion": 1, "position": [0, 0]},
		{"id": "2", "name": "Tell", "type": "n8n-nodes-base.slack", "parameters": {"text": "hello"}, "typeVersion": 1, "position": [1, 0]}],
		"connections": {"Hook": {"main": [[{"node": "Tell", "type": "main", "index": 0}]]}}}`), 0o600))
	out, notes := command(t, 0, "workflows", "import", foreign)
	require.Contains(t, notes, "must offer n8n/slack before the workflow can run")
	require.NoError(t, os.WriteFile(own, []byte(out), 0o600))

	for _, args := range [][]string{{"create", own}, {"show", "alert"}} {
		_, notes = command(t, 0, append([]string{"workflows"}, args...)...)
		require.Contains(t, notes, "warning: alert cannot run now: nobody offers n8n/slack", "%v", args)
	}
	for _, args := range [][]string{{"validate", "alert"}, {"validate", own}, {"run", "alert"}, {"run", own}} {
		_, notes = command(t, 1, append([]string{"workflows"}, args...)...)
		require.Contains(t, notes, `no actor is called "n8n/slack"`, "%v", args)
	}
	out, _ = command(t, 0, "runs", "ls")
	require.Contains(t, out, "no runs")
}

// TestWrongKinds gives commands files of another kind than they want.
func TestWrongKinds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		text string
		want string
	}{
		"TestsToValidate":  {[]string{"workflows", "validate"}, "workflow: a.yaml\ncases: []\n", "`epigraph workflows test FILE`"},
		"WorkflowToTest":   {[]string{"workflows", "test"}, "name: a\nsteps: []\n", "`epigraph workflows validate FILE`"},
		"TreeToCreate":     {[]string{"workflows", "create"}, `{"title": "a", "tasks": []}`, "`epigraph epics import FILE`"},
		"GraphToValidate":  {[]string{"workflows", "validate"}, `{"nodes": [{"id": "a", "actor": "llm"}]}`, "`epigraph run FILE`"},
		"WorkflowToImport": {[]string{"epics", "import"}, "name: a\nsteps: []\n", "`epigraph workflows run FILE`"},
		"WorkflowToRun":    {[]string{"run"}, "name: a\nsteps:\n  - {id: b, type: wait, delay: 1}\n", "`epigraph workflows run FILE`"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "file")
			require.NoError(t, os.WriteFile(file, []byte(c.text), 0o600))
			var o, e bytes.Buffer
			require.Equal(t, 2, cli.Main(t.Context(), build, append(c.args, file), cli.IO{In: strings.NewReader(""), Out: &o, Err: &e}), e.String())
			require.Contains(t, e.String(), "WRONG_KIND")
			require.Contains(t, e.String(), c.want)
		})
	}
}

// TestFlowTestsOfInputs expects in a case that its inputs are refused.
func TestFlowTestsOfInputs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a.test.yaml")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("name: a\ninputs: {to: {type: string}}\nsteps:\n  - {id: say, type: transform, template: \"{{ inputs.to }}\"}\n"), 0o600))
	for name, c := range map[string]struct {
		expect string
		code   int
	}{"IsMet": {"error: got number", 0}, "IsNotMet": {"state: completed", 1}} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(file, []byte("workflow: a.yaml\ncases:\n  - {name: wrong, inputs: {to: 5}, expect: {"+c.expect+"}}\n"), 0o600))
			var o, e bytes.Buffer
			require.Equal(t, c.code, cli.Main(t.Context(), build, []string{"workflows", "test", file}, cli.IO{In: strings.NewReader(""), Out: &o, Err: &e}), o.String()+e.String())
		})
	}
}
