package workflow_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
)

func TestExcerpt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		src          string
		line, column int
		want         []string
	}{
		"Line/IsShown":         {"a\nbcd\ne", 2, 2, []string{"bcd", " ^"}},
		"Line/Last":            {"a\nbcd", 2, 3, []string{"bcd", "  ^"}},
		"Tab/KeepsItsWidth":    {"\tbcd", 1, 2, []string{"\tbcd", "\t^"}},
		"Column/InCharacters":  {"äöüd\r\n", 1, 4, []string{"äöüd", "   ^"}},
		"Column/BehindTheEnd":  {"ab", 1, 9, []string{"ab", "  ^"}},
		"Line/LongIsCutAround": {strings.Repeat("x", 50) + "Y" + strings.Repeat("z", 50), 1, 51, []string{"xxxxxYzzzz", "     ^"}},
		"Place/None":           {"ab", 0, 0, nil},
		"Place/BehindTheText":  {"ab", 3, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, workflow.Excerpt(c.src, workflow.Place{Line: c.line, Column: c.column}, 10))
		})
	}
}

func FuzzExcerpt(f *testing.F) {
	f.Add("a\n\tb", 2, 2, 3)
	f.Add("\xff\xfe", 1, 2, 1)
	f.Fuzz(func(t *testing.T, src string, line, column, most int) {
		got := workflow.Excerpt(src, workflow.Place{Line: line, Column: column}, min(most, 1000))
		if got == nil {
			return
		}
		require.Len(t, got, 2)
		require.LessOrEqual(t, utf8.RuneCountInString(got[0]), min(most, 1000))
		require.LessOrEqual(t, utf8.RuneCountInString(got[1]), utf8.RuneCountInString(got[0])+1, "the caret is below the line")
	})
}

func FuzzIsFork(f *testing.F) {
	f.Add([]byte("based_on: x\npatches: []"))
	f.Add([]byte(`{"based_on": "x"}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		if _, faults := workflow.ReadFork(src); len(faults) == 0 && !workflow.IsFork(src) && src[0] != '{' && src[0] != ' ' {
			_, faults = workflow.Read(src)
			require.NotEmpty(t, faults, "what is no fork by its looks is no workflow either")
		}
	})
}
