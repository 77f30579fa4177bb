package lenient_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan/lenient"
	"github.com/epigraph-run/epigraph/plan/plantest"
)

func TestJSON(t *testing.T) {
	t.Parallel()
	for _, s := range plantest.Slips() {
		t.Run("Slips/"+s.Name, func(t *testing.T) {
			t.Parallel()
			raw, err := lenient.JSON(" " + s.Text + "\n")
			if s.JSON == "" {
				require.Error(t, err, "%s", raw)
				require.Regexp(t, `^line \d+(, at ".*")?: .+: .+$`, err.Error(), "where it is, what is wrong, and what to do")
				return
			}
			require.NoError(t, err)
			require.JSONEq(t, s.JSON, string(raw))
			if json.Valid([]byte(s.Text)) {
				require.Equal(t, s.Text, string(raw), "what is right stays as it is")
			}
		})
	}
	for in, want := range map[string]string{`True`: `true`, `None`: `null`, `'x'`: `"x"`, `7`: `7`, `seven`: "", `it is so`: "", ``: "", `[1, 2,]`: `[1,2]`,
		`{"a": 1} and more`: "", `["a", ` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `,]`: ""} {
		raw, err := lenient.JSON(in)
		require.Equal(t, want == "", err != nil, "%s: %v", in, err)
		require.Equal(t, want, string(raw))
	}
	t.Run("TooMany/AreRefused", func(t *testing.T) {
		t.Parallel()
		_, err := lenient.JSON("[" + strings.Repeat("1,", 300_000) + "]")
		require.ErrorContains(t, err, "more than 200000 values")
	})
}

func TestAt(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"a": 1} and so on, "quoted"`: `{"a": 1}`, `{'a': 1} and so on`: `{"a":1}`, `[1,]. More`: `[1]`,
		`{"a": 1}, {"b": 2}`: "", `{'a': 1}], "b": 2}`: "", `{see below} now`: "",
	} {
		raw, n, err := lenient.At(in)
		require.Equal(t, want == "", err != nil, "%s: %v", in, err)
		require.Equal(t, want, string(raw))
		if err == nil {
			require.Less(t, n, len(in))
			require.Contains(t, "}]", in[n-1:n])
		}
	}
}

func TestTag(t *testing.T) {
	t.Parallel()
	name, attrs, n := lenient.Tag(`x <Action Type="a &lt; b" n=1/>y`, 2)
	require.Equal(t, "Action", name)
	require.Equal(t, []lenient.Attr{{"Type", "a < b"}, {"n", "1"}}, attrs)
	require.Equal(t, len(`<Action Type="a &lt; b" n=1/>`), n)
	name, _, _ = lenient.Tag(`</Type >`, 0)
	require.Equal(t, "/Type", name)
	_, _, n = lenient.Tag(`< 3`, 0)
	require.Zero(t, n)
}

// TestHostile reads the texts that break careless readers of plans.
func TestHostile(t *testing.T) {
	t.Parallel()
	for name, shape := range plantest.HostileShapes() {
		for _, before := range []string{`{"a":`, `['`} {
			text := before + shape(16<<10)
			begin := time.Now()
			raw, err := lenient.JSON(text)
			require.Less(t, time.Since(begin), 5*time.Second, name)
			require.True(t, err != nil || json.Valid(raw), name)
		}
	}
}

func FuzzJSON(f *testing.F) {
	for _, s := range plantest.Slips() {
		f.Add(s.Text)
	}
	for _, u := range plantest.HostileUnits() {
		f.Add(`{"a":` + u)
	}
	f.Fuzz(func(t *testing.T, s string) {
		raw, err := lenient.JSON(s)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.True(t, json.Valid(raw), "%q became %q", s, raw)
		again, err := lenient.JSON(string(raw))
		require.NoError(t, err)
		require.Equal(t, string(raw), string(again))
		if json.Valid([]byte(strings.TrimSpace(s))) {
			require.Equal(t, strings.TrimSpace(s), string(raw))
		}
	})
}
