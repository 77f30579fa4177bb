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
		for _, args := range [][]string{{"epics", "show", e}, {"tasks", "ls", e}} {
			out, _ := command(t, 0, args...)
			require.Contains(t, out, "WHY")
			require.Contains(t, out, "INPUT_INVALID: ", "%v", args)
		}
	})
}
