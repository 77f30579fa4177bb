package conf_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
)

type journal struct {
	URL     conf.Secret   `help:"where the journal lives"`
	MaxRows int           `help:"rows per batch"`
	Wait    time.Duration `help:"longest wait"`
}

type key struct {
	Name   string
	Secret conf.Secret
}

type config struct {
	GRPCAddr string `conf:"grpc_addr" help:"address | port"`
	Executor struct {
		Journal journal
		MaxSize conf.Bytes
		Verbose bool
		Hosts   []string
		Ratio   float64
		Port    uint16
	}
	Keys   []key
	Labels map[string]string
	Hidden string `conf:"-"`
}

func defaults() *config {
	c := &config{GRPCAddr: ":7402"}
	c.Executor.Journal.MaxRows = 1000
	c.Executor.Journal.Wait = time.Second
	c.Executor.MaxSize = 4 << 20
	return c
}

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "epigraph.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestLoad(t *testing.T) {
	t.Parallel()
	t.Run("Precedence/FlagsOverEnvOverFileOverDefaults", func(t *testing.T) {
		t.Parallel()
		c := defaults()
		require.NoError(t, conf.Load(c, conf.Sources{
			File: write(t, `
# a comment
grpc_addr: "file:1"
executor:
  journal: {url: "postgres://file", max_rows: 10, wait: 2s}
  max_size: 256KiB
  verbose: true
  hosts: [a, b]
  ratio: 0.5
keys:
  - name: one
    secret: s1
labels: {team: x}
`),
			EnvPrefix: "EPIGRAPH_",
			Env: []string{
				"EPIGRAPH_EXECUTOR_JOURNAL_MAX_ROWS=20", "EPIGRAPH_EXECUTOR_JOURNAL_WAIT=3s", "OTHER=1",
				"EPIGRAPH_EXECUTOR_HOSTS=c, d,e", "EPIGRAPH_KEYS=[{name: two, secret: s2}]",
				"EPIGRAPH_EXECUTOR_PORT=9", "EPIGRAPH_CONFIG=x.yaml",
			},
			IgnoreEnv: []string{"EPIGRAPH_CONFIG"},
			Flags:     map[string]string{"executor.journal.wait": "4s"},
		}))
		require.Equal(t, "file:1", c.GRPCAddr)
		require.Equal(t, "postgres://file", c.Executor.Journal.URL.Reveal())
		require.Equal(t, 20, c.Executor.Journal.MaxRows)
		require.Equal(t, 4*time.Second, c.Executor.Journal.Wait)
		require.Equal(t, conf.Bytes(256<<10), c.Executor.MaxSize)
		require.True(t, c.Executor.Verbose)
		require.Equal(t, []string{"c", "d", "e"}, c.Executor.Hosts)
		require.InDelta(t, 0.5, c.Executor.Ratio, 0)
		require.EqualValues(t, 9, c.Executor.Port)
		require.Len(t, c.Keys, 1)
		require.Equal(t, "s2", c.Keys[0].Secret.Reveal())
		require.Equal(t, map[string]string{"team": "x"}, c.Labels)
	})
	t.Run("Faults/AllAtOnceWithPlaceAndNearestKey", func(t *testing.T) {
		t.Parallel()
		file := write(t, "executor:\n  jurnal:\n    url: x\n  max_size: lots\nkeys:\n  - nme: y\nhosts: 3\n")
		err := conf.Load(defaults(), conf.Sources{
			File: file, EnvPrefix: "EPIGRAPH_", Env: []string{"EPIGRAPH_EXECUTOR_JOURNAL_MAXROWS=1", "EPIGRAPH_EXECUTOR_VERBOSE=maybe"},
			Flags: map[string]string{"grpc.addr": "x"},
		})
		require.True(t, errs.Is(err, errs.InvalidArgument))
		require.Equal(t, conf.ReasonInvalid, errs.ReasonOf(err))
		got := map[string]string{}
		for _, v := range errs.From(err).Violations {
			got[v.Field] = v.Reason + " " + v.Message
		}
		require.Equal(t, map[string]string{
			"executor.jurnal":                   "CONFIG_KEY_UNKNOWN " + file + ":2: unknown key, did you mean journal?",
			"executor.max_size":                 "CONFIG_VALUE_INVALID " + file + `:4: "lots" is not a size, write for example 256KiB or 4MiB`,
			"keys[0].nme":                       "CONFIG_KEY_UNKNOWN " + file + ":6: unknown key, did you mean name?",
			"hosts":                             "CONFIG_KEY_UNKNOWN " + file + ":7: unknown key",
			"EPIGRAPH_EXECUTOR_JOURNAL_MAXROWS": "CONFIG_KEY_UNKNOWN unknown environment variable, did you mean EPIGRAPH_EXECUTOR_JOURNAL_MAX_ROWS?",
			"EPIGRAPH_EXECUTOR_VERBOSE":         `CONFIG_VALUE_INVALID "maybe" is not true or false`,
			"grpc.addr":                         "CONFIG_KEY_UNKNOWN unknown setting, did you mean grpc_addr?",
		}, got)
	})
	t.Run("File/MissingOrBrokenIsAnError", func(t *testing.T) {
		t.Parallel()
		for _, f := range []string{filepath.Join(t.TempDir(), "none.yaml"), write(t, "a: [\n"), write(t, "- 1\n"), write(t, "grpc_addr: 1\ngrpc_addr: 2\n")} {
			require.Equal(t, conf.ReasonInvalid, errs.ReasonOf(conf.Load(defaults(), conf.Sources{File: f})), f)
		}
		for _, text := range []string{"", "# nothing\n", "---\n"} {
			require.NoError(t, conf.Load(defaults(), conf.Sources{File: write(t, text)}), "%q", text)
		}
	})
	t.Run("Env/KubernetesServiceLinksAreNotSettings", func(t *testing.T) {
		t.Parallel()
		c := defaults()
		require.NoError(t, conf.Load(c, conf.Sources{EnvPrefix: "EPIGRAPH_", Env: []string{
			"EPIGRAPH_EXECUTOR_SERVICE_HOST=10.0.0.1", "EPIGRAPH_EXECUTOR_SERVICE_PORT=7402", "EPIGRAPH_EXECUTOR_SERVICE_PORT_GRPC=7402",
			"EPIGRAPH_EXECUTOR_PORT=tcp://10.0.0.1:7402", "EPIGRAPH_EXECUTOR_PORT_7402_TCP=tcp://10.0.0.1:7402",
			"EPIGRAPH_EXECUTOR_PORT_7402_TCP_PROTO=tcp", "EPIGRAPH_EXECUTOR_PORT_7402_TCP_ADDR=10.0.0.1",
		}}))
		require.Zero(t, c.Executor.Port)
	})
	t.Run("Validate/RunsLast", func(t *testing.T) {
		t.Parallel()
		err := conf.Load(&validated{}, conf.Sources{Flags: map[string]string{"n": "7"}})
		require.ErrorContains(t, err, "n is 7")
	})
}

type validated struct{ N int }

func (v *validated) Validate() error { return fmt.Errorf("n is %d", v.N) }

func TestSecret(t *testing.T) {
	t.Parallel()
	const plain = "hunter2"
	type holder struct{ inner key }
	s := conf.NewSecret(plain)
	k := key{Name: "n", Secret: s}
	js, err := json.Marshal(k)
	require.NoError(t, err)
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "s", s, "k", k, conf.Attr("cfg", struct{ Keys []key }{[]key{k}}))
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "s", s, "k", k)
	c := defaults()
	c.Executor.Journal.URL = s
	for _, text := range []string{
		string(js), log.String(), fmt.Sprint(s, k, &k, holder{k}), fmt.Sprintf("%v %+v %#v %s %q %x", k, holder{k}, holder{k}, s, s, s),
		fmt.Sprint(conf.Effective(c)), conf.Table(c, "EPIGRAPH_"),
	} {
		require.NotContains(t, text, plain)
		require.NotContains(t, text, fmt.Sprintf("%x", plain))
	}
	require.Equal(t, plain, s.Reveal())
	require.True(t, s.Equal(plain))
	require.False(t, s.Equal("other"))
	require.False(t, conf.Secret{}.Equal(""), "an unset secret opens nothing")
	require.Empty(t, conf.Secret{}.String())
}

func TestEffective(t *testing.T) {
	t.Parallel()
	var keys []string
	for _, s := range conf.Effective(defaults()) {
		keys = append(keys, s.Key+"="+s.Value)
	}
	require.Equal(t, "grpc_addr=:7402 executor.journal.url= executor.journal.max_rows=1000 executor.journal.wait=1s executor.max_size=4MiB "+
		"executor.verbose=false executor.hosts= executor.ratio=0 executor.port=0 keys= labels=", strings.Join(keys, " "))
	table := conf.Table(defaults(), "EPIGRAPH_")
	require.Contains(t, table, "| `executor.journal.max_rows` | `EPIGRAPH_EXECUTOR_JOURNAL_MAX_ROWS` | `1000` | rows per batch |\n")
	require.Contains(t, table, `address \| port`)
}

func TestBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]conf.Bytes{"0": 0, "12": 12, "1.5KiB": 1536, "4 MiB": 4 << 20, "2GB": 2e9, "7B": 7} {
		var b conf.Bytes
		require.NoError(t, b.UnmarshalText([]byte(text)), text)
		require.Equal(t, want, b)
		var again conf.Bytes
		require.NoError(t, again.UnmarshalText([]byte(b.String())))
		require.Equal(t, b, again)
	}
	for _, text := range []string{"", "-1", "x", "1XB", "NaN", "9e99GiB"} {
		var b conf.Bytes
		require.Error(t, b.UnmarshalText([]byte(text)), text)
	}
}

func FuzzLoadFile(f *testing.F) {
	f.Add("grpc_addr: x\nexecutor: {journal: {url: a}}\n")
	f.Add("keys:\n- {name: a}\nlabels: {a: b}\n")
	f.Fuzz(func(t *testing.T, text string) {
		_ = conf.Load(defaults(), conf.Sources{File: write(t, text)})
	})
}

type server struct {
	URL   string
	Token conf.Secret
	Wait  time.Duration
	Deep  struct{ Size int }
}

func (s *server) SetDefaults() { s.Wait = time.Second }

func TestNamedItems(t *testing.T) {
	t.Parallel()
	type config struct {
		Servers map[string]server `help:"servers by name"`
		Other   string
	}
	load := func(t *testing.T, file string, flags map[string]string, env ...string) (config, error) {
		t.Helper()
		c := config{Servers: map[string]server{"main": {URL: "a", Wait: 2 * time.Second}}}
		src := conf.Sources{EnvPrefix: "X_", Env: env, Flags: flags}
		if file != "" {
			src.File = filepath.Join(t.TempDir(), "c.yaml")
			require.NoError(t, os.WriteFile(src.File, []byte(file), 0o600))
		}
		err := conf.Load(&c, src)
		return c, err
	}
	t.Run("File/AddsAndKeepsWhatIsNotSaid", func(t *testing.T) {
		t.Parallel()
		c, err := load(t, "servers:\n  main: {url: b}\n  new: {deep: {size: 3}}\n", nil)
		require.NoError(t, err)
		require.Equal(t, server{URL: "b", Wait: 2 * time.Second}, c.Servers["main"])
		want := server{Wait: time.Second}
		want.Deep.Size = 3
		require.Equal(t, want, c.Servers["new"])
	})
	t.Run("Env/OfOneSetting", func(t *testing.T) {
		t.Parallel()
		c, err := load(t, "servers: {in-file: {}}\n", nil, "X_SERVERS_MAIN_TOKEN=t", "X_SERVERS_NEW_ONE_DEEP_SIZE=4", "X_SERVERS_NEW_ONE_URL=u", "X_SERVERS_IN_FILE_URL=f")
		require.NoError(t, err)
		require.Equal(t, "t", c.Servers["main"].Token.Reveal())
		require.Equal(t, "a", c.Servers["main"].URL)
		require.Equal(t, "u", c.Servers["new_one"].URL)
		require.Equal(t, 4, c.Servers["new_one"].Deep.Size)
		require.Equal(t, time.Second, c.Servers["new_one"].Wait)
		require.Equal(t, "f", c.Servers["in-file"].URL)
		require.Len(t, c.Servers, 3)
	})
	t.Run("Env/OfTheWholeAndThenOfOne", func(t *testing.T) {
		t.Parallel()
		c, err := load(t, "", nil, "X_SERVERS={a: {url: x}, b: {}}", "X_SERVERS_B_URL=y")
		require.NoError(t, err)
		require.Equal(t, "x", c.Servers["a"].URL)
		require.Equal(t, "y", c.Servers["b"].URL)
	})
	t.Run("Flags/AreTheStrongest", func(t *testing.T) {
		t.Parallel()
		c, err := load(t, "servers: {main: {url: f}}\n", map[string]string{"servers.main.url": "g", "servers.other.wait": "3s"}, "X_SERVERS_MAIN_URL=e")
		require.NoError(t, err)
		require.Equal(t, "g", c.Servers["main"].URL)
		require.Equal(t, 3*time.Second, c.Servers["other"].Wait)
	})
	t.Run("Unknown/IsTold", func(t *testing.T) {
		t.Parallel()
		for _, bad := range []string{"servers.main.ul", "servers.main", "servers.x.deep"} {
			_, err := load(t, "", map[string]string{bad: "1"})
			require.ErrorContains(t, err, "not valid", bad)
		}
		_, err := load(t, "", nil, "X_SERVERS_MAIN_UL=1")
		require.Error(t, err)
		require.Equal(t, conf.ReasonUnknownKey, errs.From(err).Violations[0].Reason)
	})
	t.Run("Effective/ListsTheSettingsOfEach", func(t *testing.T) {
		t.Parallel()
		c := config{Servers: map[string]server{"b": {}, "a": {URL: "u", Token: conf.NewSecret("s3cret")}}}
		var keys []string
		for _, s := range conf.Effective(c) {
			keys = append(keys, s.Key+"="+s.Value)
		}
		require.Equal(t, []string{
			"servers.a.url=u", "servers.a.token=[redacted]", "servers.a.wait=0s", "servers.a.deep.size=0",
			"servers.b.url=", "servers.b.token=", "servers.b.wait=0s", "servers.b.deep.size=0", "other=",
		}, keys)
		require.Equal(t, "servers", conf.Effective(config{})[0].Key)
	})
}
