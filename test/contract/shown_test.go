package contract

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFailuresAreShown finds the tests that docs/failure-contract.md names: the function, in the package that
// stands before it or else in test/chaos, and the names of its parts in the same folder.
func TestFailuresAreShown(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "failure-contract.md"))
	require.NoError(t, err)
	named := regexp.MustCompile("`(?:(\\w+)\\.)?((?:Test|Fuzz)\\w+)((?:/[^`/]+)*)`").FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(named), 50)
	// The points of a kill have small letters. TestPoints itself finds them.
	upper := regexp.MustCompile(`^[A-Z]`)
	sources := map[string][]string{} // by the name of the folder
	root := filepath.Join("..", "..")
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "bin"):
			return fs.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			folder := filepath.Base(filepath.Dir(path))
			sources[folder] = append(sources[folder], string(text))
		}
		return nil
	}))
	for _, m := range named {
		folder, function, parts := m[1], m[2], m[3]
		if folder == "" {
			folder = "chaos"
		}
		if !slices.ContainsFunc(sources[folder], func(text string) bool { return strings.Contains(text, "\nfunc "+function+"(") }) {
			t.Errorf("docs/failure-contract.md: there is no %s in a folder %s", function, folder)
			continue
		}
		for _, part := range strings.Split(parts, "/") {
			if upper.MatchString(part) && !strings.Contains(strings.Join(sources[folder], "\n"), part) {
				t.Errorf("docs/failure-contract.md: nothing is named %q in the folder of %s", part, function)
			}
		}
	}
}
