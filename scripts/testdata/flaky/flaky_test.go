// Package flaky_test is run by the test of scripts/test: which of its tests fail, and how often, is in the
// environment.
package flaky_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// falls fails as often as FALLS, such as "One=1 Two=9", says of the test. How often it has is kept in files,
// since each try is a process of its own.
func falls(t *testing.T) {
	t.Helper()
	for word := range strings.FieldsSeq(os.Getenv("FALLS")) {
		name, times, _ := strings.Cut(word, "=")
		if "Test"+name != t.Name() {
			continue
		}
		file := filepath.Join(os.Getenv("FALLS_DIR"), name)
		before, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if n, _ := strconv.Atoi(times); len(before) < n {
			if err := os.WriteFile(file, slices.Concat(before, []byte("x")), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Fatal("falls")
		}
	}
}

func TestOne(t *testing.T)   { falls(t) }
func TestTwo(t *testing.T)   { falls(t) }
func TestThree(t *testing.T) { falls(t) }
func TestFour(t *testing.T)  { falls(t) }
