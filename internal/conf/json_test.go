package conf_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
)

// TestJSON reads settings that are JSON texts, which a file may state as keys and values.
func TestJSON(t *testing.T) {
	t.Parallel()
	type agent struct {
		Definition string      `format:"json"`
		Secret     conf.Secret `format:"json"`
		Plain      string
	}
	type config struct{ Agents map[string]agent }
	load := func(t *testing.T, text string, env ...string) (agent, error) {
		t.Helper()
		var c config
		src := conf.Sources{EnvPrefix: "X_", Env: env, File: filepath.Join(t.TempDir(), "c.yaml")}
		require.NoError(t, os.WriteFile(src.File, []byte(text), 0o600))
		err := conf.Load(&c, src)
		return c.Agents["a"], err
	}
	for name, c := range map[string]struct{ yaml, want string }{
		"a text":          {`'{"form": "tools"}'`, `{"form": "tools"}`},
		"keys and values": {"{form: tools, max_rounds: 20, top: 0.5, strict: true, none: null}", `{"form":"tools","max_rounds":20,"top":0.5,"strict":true,"none":null}`},
		"nested, in order": {"\n        z: [1, two, {three: 3}]\n        a:\n          b: |\n            one\n            <two>\n        empty: {}\n        list: []",
			`{"z":[1,"two",{"three":3}],"a":{"b":"one\n<two>\n"},"empty":{},"list":[]}`},
		"texts stay texts":   {`{a: "1", b: 'true', c: "null"}`, `{"a":"1","b":"true","c":"null"}`},
		"long numbers":       {`{a: 12345678901234567890, b: 0.001}`, `{"a":12345678901234567890,"b":0.001}`},
		"a list at the root": {`[1, 2]`, `[1,2]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := load(t, "agents:\n  a:\n    definition: "+c.yaml+"\n    secret: "+c.yaml+"\n")
			require.NoError(t, err)
			require.Equal(t, c.want, got.Definition)
			require.Equal(t, c.want, got.Secret.Reveal())
		})
	}
	t.Run("the environment", func(t *testing.T) {
		t.Parallel()
		got, err := load(t, "{}", `X_AGENTS={"a": {"definition": {"form": "tools"}}}`)
		require.NoError(t, err)
		require.JSONEq(t, `{"form": "tools"}`, got.Definition)
	})
	for name, yaml := range map[string]string{
		"an anchor":             "{a: &x 1}",
		"not a number":          "{a: .nan}",
		"a number in octal":     "{a: [{b: 0o17}]}",
		"a setting that is not": "x\n    plain: {a: 1}",
	} {
		t.Run("refused/"+name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, "agents:\n  a:\n    definition: "+yaml+"\n")
			var e *errs.Error
			require.ErrorAs(t, err, &e)
			require.Len(t, e.Violations, 1)
			require.Contains(t, e.Violations[0].Message, "c.yaml:", "the line is told")
		})
	}
}
