package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// transcript is what a session of a client prints.
func transcript(t *testing.T, session *exec.Cmd) string {
	t.Helper()
	var errors strings.Builder
	session.Stderr = &errors
	got, err := session.Output()
	require.NoError(t, err, "%s\n%s", got, errors.String())
	return string(got)
}

// transcribed compares a transcript with its golden file.
func transcribed(t *testing.T, name, got string) {
	t.Helper()
	golden := filepath.Join("testdata", name+".txt")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}
