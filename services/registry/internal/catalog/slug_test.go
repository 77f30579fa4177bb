package catalog_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
)

func TestBase(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"Hello World!":                 "hello-world",
		"  A--b__c ":                   "a-b-c",
		"Überblick für Zoë":            "uberblick-fur-zoe",
		"Straße № 7":                   "strasse-no-7",
		"Łódź: smørrebrød":             "lodz-smorrebrod",
		"İstanbul":                     "istanbul",
		"报告":                           "workflow",
		"Отчёт v2":                     "v2",
		"\xff\xfe":                     "workflow",
		strings.Repeat("é", 200):       strings.Repeat("e", 80),
		strings.Repeat("e\u0301", 200): strings.Repeat("e", 80),
		"":                             "workflow",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, want, catalog.Base(name))
		})
	}
}

func FuzzBase(f *testing.F) {
	f.Add("Überblick")
	f.Add("\xff\u0301ﷺ")
	f.Fuzz(func(t *testing.T, name string) {
		require.Regexp(t, `^[a-z0-9]([a-z0-9-]{0,78}[a-z0-9])?$`, catalog.Base(name))
	})
}
