package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/buildinfo"
	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/sdk/worker"
	"github.com/epigraph-run/epigraph/workgraph"
)

// build is what the commands of these tests call themselves.
var build = buildinfo.Info{Version: "test"}

func TestMain(m *testing.M) {
	testscript.Main(tests{m}, map[string]func(){"epigraph": main})
}

// tests leave nothing behind.
type tests struct{ *testing.M }

func (m tests) Run() int {
	defer func() {
		if raced {
			dir, _ := plain()
			_ = os.RemoveAll(dir)
		}
	}()
	return m.M.Run()
}

// plain is a folder with the command built without the race detector, which makes the start of a process
// several times slower. Servers run in the process of the test, where the detector sees them.
var plain = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "epigraph-plain-")
	if err != nil {
		return "", err
	}
	// As `make build` does it, so that most of it has been built before.
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-w", "-o", filepath.Join(dir, "epigraph"), ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("build the command: %w\n%s", err, text)
	}
	return dir, nil
})

// Commands without a server.
func TestOffline(t *testing.T) {
	testscript.Run(t, params("testdata/script", func(env *testscript.Env) error {
		env.Setenv("EPIGRAPH_ADDR", "127.0.0.1:1") // nothing answers there
		return nil
	}))
}

// Commands with a server: all scripts share one, each in a namespace of its own.
func TestServer(t *testing.T) {
	d := serve(t, fakellm.Script{
		Models: []string{"fake-1"},
		Rules: []fakellm.Rule{
			{Match: "someone ought to mow", Reply: fakellm.Reply{Text: `{"steps": [{"n": 1, "id": "", "request": "mow the lawn", "quote": "mow the lawn", "needs": []}, ` +
				`{"n": 2, "id": "", "request": "invite the neighbors", "quote": "invite the neighbors", "needs": [{"n": 1, "quote": "Once the lawn looks good"}]}]}`}},
			{Match: "weather", After: "rain in the south", Reply: fakellm.Reply{Text: "Take an umbrella south."}},
			{Match: "weather", Reply: fakellm.Reply{Text: "I look.", ToolCalls: []fakellm.ToolCall{{Name: "north", Arguments: `{}`}, {Name: "south.coast", Arguments: `{"of": "the south"}`}}}},
			{Match: "hello ada", Reply: fakellm.Reply{Text: `<StructuredResponse><TaskStatus>Completed</TaskStatus><InstantResponse>hello ada</InstantResponse></StructuredResponse>`}},
			{Match: "go on", Reply: fakellm.Reply{Text: `<ImmediateNextActions><Action><Type>greet</Type><Args><who>ada</who></Args></Action></ImmediateNextActions>`}},
			{Match: "REFUSED: ", Reply: fakellm.Reply{Text: `{"actions": [[{"action": "ask", "arguments": "{}"}]], "result": null}`}},
			{Match: "greeting agent", Reply: fakellm.Reply{Text: `{"actions": [[{"action": "http", "arguments": "{}"}, {"action": "greet", "arguments": "{\"text\": \"x\"}"}]], "result": null}`}},
			{Match: "autumn party", Reply: fakellm.Reply{Text: `[{"id": "rake", "request": "rake the leaves", "needs": ["HOLD"]}, {"id": "B", "request": "invite the neighbors", "needs": ["rake"]}]`}},
			{Match: "garden party", Reply: fakellm.Reply{Text: `[{"id": "mow", "request": "mow the lawn", "needs": []}, {"id": "invite", "request": "invite the neighbors", "needs": ["tent"]}]`}},
			{Match: `UNKNOWN_REFERENCE "tent"`, Reply: fakellm.Reply{Text: `[{"id": "mow", "request": "mow the lawn", "needs": []}, {"id": "invite", "request": "invite the neighbors", "needs": ["mow"]}]`}},
			{Match: "give up", Reply: fakellm.Reply{Fault: fakellm.Unauthorized}},
			{Match: "attack", Reply: fakellm.Reply{Text: "\x1b[31mred\x1b]0;title\a\u009b2J\u202etxt\nsecond line\r\n\tthird"}},
		},
	})
	examples, err := filepath.Abs("../../examples")
	require.NoError(t, err)
	testscript.Run(t, params("testdata/server", func(env *testscript.Env) error {
		env.Setenv("EPIGRAPH_ADDR", d.GRPCAddr())
		env.Setenv("EXAMPLES", examples)
		env.Setenv("EPIGRAPH_NAMESPACE", strings.ReplaceAll(strings.TrimPrefix(filepath.Base(env.WorkDir), "script-"), "_", "-"))
		return nil
	}))
}

func TestWatch(t *testing.T) {
	d := serve(t, fakellm.Script{})
	start := func(t *testing.T, plan string, args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		code := cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr(), "run", "--detach"}, args...),
			cli.IO{In: strings.NewReader(plan), Out: &out, Err: &errs})
		require.Equal(t, 0, code, "%s", errs.String())
		return strings.TrimSpace(out.String())
	}

	t.Run("Watch/InterruptedSaysThatTheRunGoesOn", func(t *testing.T) {
		id := start(t, "A -> B", "--actor", "sleep", "--with", "duration=1m")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var errs bytes.Buffer
		out := &seen{want: "A  waiting", then: cancel}
		require.Equal(t, 130, cli.Main(ctx, build, []string{"--addr", d.GRPCAddr(), "runs", "watch", id}, cli.IO{Out: out, Err: &errs}))
		require.Contains(t, errs.String(), "The run goes on.")
		require.Contains(t, errs.String(), "epigraph runs cancel "+id)
		require.Equal(t, 0, cli.Main(t.Context(), build, []string{"--addr", d.GRPCAddr(), "runs", "cancel", id}, cli.IO{Out: &errs, Err: &errs}))
	})

	t.Run("Watch/InterruptedIsJSONForPrograms", func(t *testing.T) {
		id := start(t, "A -> B", "--actor", "sleep", "--with", "duration=1m")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var errs bytes.Buffer
		out := &seen{want: "VISIT_STATE_WAITING", then: cancel}
		require.Equal(t, 130, cli.Main(ctx, build, []string{"--addr", d.GRPCAddr(), "runs", "watch", id, "--json"}, cli.IO{Out: out, Err: &errs}))
		var got struct {
			Error struct{ Reason, Message string }
		}
		require.NoError(t, json.Unmarshal(errs.Bytes(), &got), "%s", errs.String())
		require.Equal(t, "INTERRUPTED", got.Error.Reason)
		require.Equal(t, "interrupted; "+id+" goes on", got.Error.Message)
		require.Equal(t, 0, cli.Main(t.Context(), build, []string{"--addr", d.GRPCAddr(), "runs", "cancel", id}, cli.IO{Out: &errs, Err: &errs}))
	})

	t.Run("Watch/PictureMovesInPlaceAndFollowsTheSize", func(t *testing.T) {
		id := start(t, "ALPHA -> BETA", "--actor", "sleep", "--with", "duration=700ms")
		var out, errs bytes.Buffer
		asked := 0
		size := func() (int, int) {
			if asked++; asked > 3 {
				return 12, 4 // so narrow that every line of the picture before is broken in two
			}
			return 80, 24
		}
		code := cli.Main(t.Context(), build, []string{"--addr", d.GRPCAddr(), "runs", "watch", id}, cli.IO{Out: &out, Err: &errs, Interactive: true, Size: size})
		require.Equal(t, 0, code, "%s", errs.String())
		text := out.String()
		require.Contains(t, text, "\x1b[3A\r\x1b[2K", "the second picture is drawn over the first, of three lines")
		require.NotContains(t, text, "\x1b[4A", "never further up than the terminal is high")
		require.NotContains(t, text, "\x1b[2J")
		require.NotRegexp(t, `\x1b\[[0-9;]*m`, text, "no colors were asked for")
		require.Contains(t, text, "2 completed")
		require.Contains(t, text, id+" completed in ")
	})

	t.Run("Watch/LogGrowsLineByLine", func(t *testing.T) {
		id := start(t, "A -> B", "--actor", "template", "--with", "text=x")
		var out, errs bytes.Buffer
		require.Equal(t, 0, cli.Main(t.Context(), build, []string{"--addr", d.GRPCAddr(), "runs", "watch", id}, cli.IO{Out: &out, Err: &errs, Color: true}))
		require.Contains(t, out.String(), "\x1b[32m✓\x1b[0m")
		require.NotRegexp(t, `\x1b\[[^m]*[A-KM-Za-ln-z]`, out.String(), "colors only, no moves")
	})
}

// The gateway passes gRPC calls on, so that the REST address works for the command line. TestUnreachable
// checks the errors of other web servers.
func TestAddressOfREST(t *testing.T) {
	d := serve(t, fakellm.Script{})
	var out, errs bytes.Buffer
	require.Equal(t, 0, cli.Main(t.Context(), build, []string{"--addr", d.HTTPAddr(), "runs", "ls"}, cli.IO{Out: &out, Err: &errs}), "%s", errs.String())
	require.Equal(t, "no runs\n", out.String())
}

func TestInput(t *testing.T) {
	t.Run("Input/WaitingForItCanBeInterrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r, w, err := os.Pipe()
		require.NoError(t, err)
		defer r.Close()
		defer w.Close()
		errs := &seen{want: "Ctrl-D", then: cancel}
		require.Equal(t, 130, cli.Main(ctx, build, []string{"plan"}, cli.IO{In: r, Out: errs, Err: errs, Typed: true}))
		require.Contains(t, errs.String(), "interrupted")
	})

	t.Run("Input/ReaderThatGoesAwayEndsThePipeQuietly", func(t *testing.T) {
		lines := strings.Repeat(`"A -> B, C"`+"\n", 5_000)
		cmd := exec.CommandContext(t.Context(), "epigraph", "plan", "--jsonl", "-")
		cmd.Stdin = strings.NewReader(lines)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		require.NoError(t, cmd.Start())
		_, err = out.Read(make([]byte, 1))
		require.NoError(t, err)
		require.NoError(t, out.Close())
		require.Error(t, cmd.Wait())
		require.Empty(t, errs.String())
	})
}

// Text that is not UTF-8 cannot be written into a script.
func TestNotUTF8(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		env  string
		want string
	}{
		"Flag":          {[]string{"runs", "ls", "--task", "a\xff"}, "", "--task is not UTF-8 text"},
		"FlagAfterSign": {[]string{"runs", "ls", "--label=a=\xff"}, "", "--label is not UTF-8 text"},
		"ShortFlag":     {[]string{"runs", "pause", "run_x", "-r", "\xff"}, "", "--reason is not UTF-8 text"},
		"AfterSwitch":   {[]string{"run", "--detach", "\xff.txt"}, "", "word 5 of the command line is not UTF-8 text"},
		"Positional":    {[]string{"epics", "create", "\xff"}, "", "word 5 of the command line is not UTF-8 text"},
		"UnknownFlag":   {[]string{"runs", "ls", "--\xff"}, "", "word 5 of the command line is not UTF-8 text"},
		"Variable":      {[]string{"runs", "ls"}, "a\xff", "EPIGRAPH_NAMESPACE is not UTF-8 text"},
	} {
		t.Run("NotUTF8/"+name, func(t *testing.T) {
			if c.env != "" {
				t.Setenv("EPIGRAPH_NAMESPACE", c.env)
			}
			var out, errs bytes.Buffer
			code := cli.Main(t.Context(), build, append([]string{"--addr", "127.0.0.1:1"}, c.args...), cli.IO{In: strings.NewReader(""), Out: &out, Err: &errs})
			require.Equal(t, 2, code, "%s", errs.String())
			require.Contains(t, errs.String(), c.want)
			require.Contains(t, errs.String(), "VALUE_NOT_UTF8")
		})
	}
}

// The reasoner of an agent may be a worker, which receives the prompt, the actions and the results of the
// round before.
func TestAgentWithWorker(t *testing.T) {
	d := serve(t, fakellm.Script{})
	c, err := epigraph.Dial(d.GRPCAddr())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	type situation struct {
		Request string                     `json:"request"`
		Actions map[string]json.RawMessage `json:"actions"`
		Round   int                        `json:"round"`
		Results []struct {
			OK int `json:"ok"`
		} `json:"action_results"`
	}
	asked := make(chan situation, 10)
	w := worker.New(c, worker.Options{})
	worker.Register(w, "strategist", func(_ context.Context, s situation) (any, error) {
		asked <- s
		switch s.Round {
		case 1:
			return []any{map[string]any{"action": "forbidden"}}, nil
		case 2:
			return []any{map[string]any{"action": "double", "arguments": map[string]any{"n": 21}}}, nil
		}
		return map[string]any{"result": s.Results[0].OK}, nil
	}, worker.Effect(worker.Idempotent))
	worker.Register(w, "double", func(_ context.Context, in struct {
		N int `json:"n"`
	}) (int, error) {
		return 2 * in.N, nil
	}, worker.Effect(worker.Pure))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		cancel()
		require.NoError(t, <-ended)
	}()
	g := workgraph.NewBuilder("g").Node("agent", "agent", workgraph.Named("goal", json.RawMessage(`"42"`)), workgraph.Named("reasoner", json.RawMessage(`"strategist"`)),
		workgraph.Named("actions", json.RawMessage(`{"double": {}}`))).Graph()
	require.NoError(t, w.Ready(testkit.Context(t, time.Minute)))
	run, err := c.StartRun(t.Context(), g)
	require.NoError(t, err)
	got, err := epigraph.Result[int](t.Context(), run)
	require.NoError(t, err)
	require.Equal(t, 42, got)
	require.Len(t, asked, 3)
	require.Contains(t, (<-asked).Request, "User: 42")
	require.Contains(t, (<-asked).Request, `there is no action "forbidden"`)
	require.Contains(t, string((<-asked).Actions["double"]), `"n"`, "a worker's schema is shown")
}

// A folder that dev worked in can be examined, also while it does.
func TestDoctorOfDev(t *testing.T) {
	d := serve(t, fakellm.Script{})
	var out, errs bytes.Buffer
	code := cli.Main(t.Context(), build, []string{"--addr", d.GRPCAddr(), "run", "--actor", "template", "--with", "text=x"},
		cli.IO{In: strings.NewReader("A -> B"), Out: &out, Err: &errs})
	require.Equal(t, 0, code, "%s", errs.String())
	out.Reset()
	code = cli.Main(t.Context(), build, []string{"doctor", "--data", d.DataDir()}, cli.IO{Out: &out, Err: &errs})
	require.Equal(t, 0, code, "%s%s", out.String(), errs.String())
	require.Contains(t, out.String(), "registry on sqlite")
	require.Contains(t, out.String(), "executor on sqlite")
}

// A folder that no process serves, as a backup is, may hold runs that wait for dev to be started: that is no
// fault.
func TestDoctorOfDevAtRest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() // removed after the cleanups below
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		var out, errs bytes.Buffer
		code := cli.Main(context.WithoutCancel(t.Context()), build, []string{"doctor", "--strict", "--data", dir}, cli.IO{Out: &out, Err: &errs})
		require.Equal(t, 0, code, "%s%s", out.String(), errs.String())
		require.Contains(t, out.String(), "NOTE executors-none: nothing works in this folder, and runs wait for it (1)")
		require.Contains(t, out.String(), "`epigraph dev --data "+dir+"`")
		require.NotContains(t, out.String(), "run-released")
	})
	d := serve(t, fakellm.Script{}, dir)
	var out, errs bytes.Buffer
	in := strings.NewReader(`{"nodes": [{"id": "A", "actor": "fail", "named": {"mode": "hang"}}]}`)
	code := cli.Main(t.Context(), build, []string{"--addr", d.GRPCAddr(), "run", "-d"}, cli.IO{In: in, Out: &out, Err: &errs})
	require.Equal(t, 0, code, "%s", errs.String())
}

func params(dir string, setup func(*testscript.Env) error) testscript.Params {
	return testscript.Params{
		Dir: dir, Setup: func(env *testscript.Env) error {
			if raced {
				bin, err := plain()
				if err != nil {
					return err
				}
				env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
			}
			return setup(env)
		},
		RequireExplicitExec: true, RequireUniqueNames: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "let": let, "json": jsonIs, "lines": lines, "fits": fits},
	}
}

// exits runs a command that must end with a code: exits CODE PROGRAM ARGS...
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if x, ok := errors.AsType[*exec.ExitError](err); ok {
		got = x.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d\nstdout:\n%sstderr:\n%s", got, want, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

// let keeps a part of the last output: let NAME REGEXP, of which the first group counts if there is one.
func let(ts *testscript.TestScript, _ bool, args []string) {
	m := regexp.MustCompile(args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if m == nil {
		ts.Fatalf("no %s in:\n%s", args[1], ts.ReadFile("stdout"))
	}
	ts.Setenv(args[0], m[len(m)-1])
}

// jsonIs compares a value in the last line of the output: json [FILE] PATH VALUE, with a path like
// runs.0.state or runs.length.
func jsonIs(ts *testscript.TestScript, neg bool, args []string) {
	file := "stdout"
	if len(args) == 3 {
		file, args = args[0], args[1:]
	}
	all := strings.Split(strings.TrimSpace(ts.ReadFile(file)), "\n")
	dec := json.NewDecoder(strings.NewReader(all[len(all)-1]))
	dec.UseNumber()
	var at any
	ts.Check(dec.Decode(&at))
	for step := range strings.SplitSeq(args[0], ".") {
		switch v := at.(type) {
		case map[string]any:
			at = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if step == "length" {
				at = len(v)
				continue
			}
			ts.Check(err)
			if i >= len(v) {
				ts.Fatalf("%s has %d elements only", args[0], len(v))
			}
			at = v[i]
		default:
			at = nil
		}
	}
	if got := fmt.Sprint(at); (got == args[1]) == neg {
		ts.Fatalf("%s is %q, want %q (not: %v)\n%s", args[0], got, args[1], neg, ts.ReadFile(file))
	}
}

// lines counts the lines of the last output.
func lines(ts *testscript.TestScript, _ bool, args []string) {
	if got := strings.Count(ts.ReadFile("stdout"), "\n"); strconv.Itoa(got) != args[0] {
		ts.Fatalf("%d lines, want %s", got, args[0])
	}
}

// fits fails if a line of an output is wider than that many columns and has more than one word: fits stdout
// COLUMNS. A text in backquotes is a word, since it is there to be copied.
func fits(ts *testscript.TestScript, _ bool, args []string) {
	most, err := strconv.Atoi(args[1])
	ts.Check(err)
	quoted := regexp.MustCompile("`[^`]*`")
	for l := range strings.Lines(ts.ReadFile(args[0])) {
		l = strings.TrimSuffix(l, "\n")
		if view.Columns(l) > most && len(strings.Fields(quoted.ReplaceAllString(l, "x"))) > 1 {
			ts.Fatalf("%d columns: %q in\n%s", view.Columns(l), l, ts.ReadFile(args[0]))
		}
	}
}

// serve runs the suite in this process, with a model that follows a script, until the test and its subtests
// end.
func serve(t *testing.T, script fakellm.Script, dir ...string) *stack.Dev {
	t.Helper()
	return serveWith(t, script, func(*stack.Config) {}, dir...)
}

// serveAgents is serve with other agents with names, in YAML.
func serveAgents(t *testing.T, agents string, script fakellm.Script) *stack.Dev {
	t.Helper()
	return serveFrom(t, agents, script, func(*stack.Config) {})
}

// serveWith is serve with settings of its own.
func serveWith(t *testing.T, script fakellm.Script, change func(*stack.Config), dir ...string) *stack.Dev {
	t.Helper()
	return serveFrom(t, agents, script, change, dir...)
}

func serveFrom(t *testing.T, agents string, script fakellm.Script, change func(*stack.Config), dir ...string) *stack.Dev {
	t.Helper()
	model := fakellm.New(script)
	base, err := model.Listen("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = model.Close() })
	cfg := stack.DevConfig()
	cfg.Telemetry.LogLevel = "error"
	cfg.Models.Change(cfg.Models.Default, func(p *llm.Profile) {
		p.Model, p.BaseURL, p.APIKey = "fake-1", base, conf.NewSecret("test")
	})
	cfg.Planner.Restate.Profile = cfg.Models.Default
	named := filepath.Join(t.TempDir(), "agents.yaml")
	require.NoError(t, os.WriteFile(named, []byte(agents), 0o600))
	require.NoError(t, stack.Load(&cfg, conf.Sources{File: named, Env: []string{}}))
	change(&cfg)
	d, err := stack.OpenDev(t.Context(), stack.DevOptions{DataDir: append(dir, t.TempDir())[0], HTTPAddr: "127.0.0.1:0", GRPCAddr: "127.0.0.1:0", Config: cfg})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-served)
	})
	wait, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	require.NoError(t, d.Ready(wait))
	return d
}

// agents are the agents with names of a server.
const agents = `
executor:
  actors:
    agents:
      forecaster:
        description: Tells the weather.
        definition: |
          {"form": "tools", "actions": {
            "north": {"actor": "template", "named": {"text": "sun in the north"}},
            "south.coast": {"actor": "template", "named": {"text": "rain in {{ named.of }}"}, "schema": {"type": "object", "properties": {"of": {"type": "string"}}}}}}
`

// seen collects output and calls a function once it holds a text.
type seen struct {
	want string
	then func()

	mu   sync.Mutex
	text bytes.Buffer
}

func (s *seen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	if strings.Contains(s.text.String(), s.want) {
		s.then()
	}
	return len(p), nil
}

func (s *seen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
