package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/examples"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/cassette"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/planpb"
	"github.com/epigraph-run/epigraph/plan"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

type demoCmd struct {
	Model   string `help:"Model to ask when OPENAI_BASE_URL and OPENAI_API_KEY are set." default:"gpt-4o-mini"`
	Record  string `help:"Write all model calls to a cassette." placeholder:"FILE" xor:"cassette"`
	Replay  string `help:"Answer from a cassette, at the pace of its calls; no model is asked." placeholder:"FILE" xor:"cassette"`
	Nearest bool   `help:"With --replay, let the most similar request answer where none is equal; what drifted goes to FILE.drift.jsonl."`
	Stay    string `help:"Whether the suite goes on serving the console after the run, until Ctrl-C: yes, no, or auto, which is yes in a terminal." enum:"auto,yes,no" default:"auto"`
	Data    string `help:"Folder for the databases, which stays; \"epigraph dev\" shows the run again. Default is a temporary one, which is removed." aliases:"data-dir" placeholder:"DIR" type:"path"`
}

// demoLabel is on the run of the demo, so that "epigraph dev" on the same databases finds it.
func demoLabel() map[string]string { return map[string]string{"example": "launch"} }

// Help says what the demo needs.
func (demoCmd) Help() string {
	return `Needs no setup: the suite runs in this process on databases in a temporary folder, and a scripted model answers over HTTP. It ends with the address of the run in the console, which it serves until Ctrl-C in a terminal; elsewhere it ends at once. With OPENAI_BASE_URL and OPENAI_API_KEY set, it asks that model instead. With --json it prints only the events of the run, the run, its task and its epic, one per line, and the address if it stays.`
}

// stays reports whether the suite goes on serving after the run. Where nobody can press Ctrl-C it would
// hang.
func (c *demoCmd) stays(e *env) bool {
	return c.Stay == "yes" || c.Stay == "auto" && e.io.Interactive && e.io.Typed && !e.json
}

// Run shows the main job from a model's text to the costs.
func (c *demoCmd) Run(e *env) (err error) {
	ctx, cancel := context.WithTimeout(e.ctx, 10*time.Minute)
	defer cancel()
	style := e.io.style()
	story := e.io.Out
	if e.json {
		story = io.Discard
	}
	say := func(format string, args ...any) { fmt.Fprint(story, style.Fit(fmt.Sprintf(format, args...))) }
	step := func(n int, title string) { say("\n%s\n", style.Bold(fmt.Sprintf("%d. %s", n, title))) }

	text, err := examples.Files.ReadFile("launch/plan.txt")
	if err != nil {
		return err
	}
	d, err := c.serve(ctx, e.ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()

	step(1, "What the model wrote")
	say("%s", quote(style, string(text), 14))
	step(2, "What it states")
	say("%s", view.Plan(style, planpb.Response(plan.Parse(string(text)))))

	step(3, "The run, asking "+d.model)
	remote := *e
	remote.ctx, remote.passing = ctx, true
	remote.client.Addr, remote.client.PlannerAddr, remote.client.ExecutorAddr, remote.client.RegistryAddr = d.GRPCAddr(), "", "", ""
	remote.client.APIKey, remote.client.Namespace, remote.client.TLS = d.APIKey(), "", false
	s, err := remote.connect()
	if err != nil {
		return err
	}
	defer s.close()
	s.executor = overREST{ExecutorServiceClient: s.executor, api: "http://" + d.HTTPAddr() + "/v1", key: d.APIKey()}
	cmd := runCmd{runStart: runStart{Epic: "Launch the new release", Labels: demoLabel()}, Name: "launch", OnConflict: "fail"}
	req, err := cmd.request()
	if err != nil {
		return err
	}
	r, g, err := cmd.start(&remote, s, string(text), req)
	if err != nil {
		return err
	}
	say("task %s\n%s  %s\n", r.GetTaskId(), style.Bold(r.GetId()), view.Plural(len(g.GetNodes()), "node"))
	if err := remote.watch(s, r.GetId(), g, 0, false); err != nil {
		return err
	}

	step(4, "Accounting")
	if err := showAccounts(ctx, &remote, s, r.GetTaskId()); err != nil {
		return err
	}

	step(5, "The trace")
	final, err := s.executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: r.GetId()})
	if err != nil {
		return err
	}
	stays := c.stays(e)
	if !stays {
		if err := d.stop(); err != nil { // the last spans end with the servers
			return err
		}
	}
	columns := 120
	if e.io.Width > 0 {
		columns = min(e.io.Width-1, columns)
	}
	say("%s", view.Waterfall(style, d.Ring().Trace(final.GetTraceId()), columns))
	if c.Replay != "" {
		if err := c.drifted(e); err != nil {
			return err
		}
	}
	if stays {
		return c.stay(e, d, r.GetId(), say)
	}
	if c.Data != "" {
		say("\n%s `epigraph dev --data %s` shows this run at an address for a browser; `epigraph run FILE` runs your own plans.\n", style.Bold("Next:"), c.Data)
		return nil
	}
	say("\n%s `epigraph demo --stay yes` goes on serving this run at an address for a browser; `epigraph dev` serves all of this; `epigraph run FILE` runs your own plans.\n", style.Bold("Next:"))
	return nil
}

// stay tells the address of the run in the console, and serves it until the command is stopped.
func (c *demoCmd) stay(e *env, d *demoSuite, run string, say func(format string, args ...any)) error {
	address := "http://" + d.HTTPAddr() + "/runs/" + run
	if e.json {
		if err := printValue(e.io.Out, map[string]string{"console": address}); err != nil {
			return err
		}
	}
	gone := "and removes its databases"
	if c.Data != "" {
		gone = "and keeps its databases in " + c.Data
	}
	say("\n%s  %s\n", e.io.style().Bold("Open in a browser:"), address)
	say("Ctrl-C ends the demo %s. Then `epigraph dev` serves all of this; `epigraph run FILE` runs your own plans.\n", gone)
	select {
	case <-e.ctx.Done():
	case <-d.ended: // by itself: stop says why
	}
	return d.stop()
}

// demoSuite is the running suite of the demo.
type demoSuite struct {
	*stack.Dev
	// model is the name of the model that the suite asks.
	model string
	// stop stops the suite and removes its databases. Calls after the first do nothing.
	stop func() error
	// ended is closed when the suite no longer serves.
	ended <-chan struct{}
}

// serve runs the suite in this process, and returns once it is ready or ctx ends. It serves until life
// ends.
func (c *demoCmd) serve(ctx, life context.Context) (_ *demoSuite, err error) {
	var undo []func() error // in the order of the steps
	stop := func() (err error) {
		for _, f := range slices.Backward(undo) {
			err = errors.Join(err, f())
		}
		undo = nil
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, stop())
		}
	}()
	cfg := stack.DevConfig()
	if err := stack.Load(&cfg, conf.Sources{IgnoreEnv: ignoredEnv()}); err != nil {
		return nil, err
	}
	asked := c.Model
	c.cassette(&cfg)
	if c.Replay != "" {
		asked = c.Replay
	} else if os.Getenv("OPENAI_BASE_URL") == "" || os.Getenv("OPENAI_API_KEY") == "" {
		script, err := demoScript()
		if err != nil {
			return nil, err
		}
		stopModel, err := scripted(script, &cfg)
		if err != nil {
			return nil, err
		}
		undo = append(undo, stopModel)
		asked = "scripted-1"
	}
	cfg.Models.Change(cfg.Models.Default, func(p *llm.Profile) { p.Model = asked })

	dir := c.Data
	if dir == "" {
		if dir, err = os.MkdirTemp("", "epigraph-demo-"); err != nil {
			return nil, err
		}
		undo = append(undo, func() error { return os.RemoveAll(dir) })
	}
	d, err := stack.OpenDev(life, stack.DevOptions{DataDir: dir, HTTPAddr: "127.0.0.1:0", GRPCAddr: "127.0.0.1:0", Config: cfg})
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	var served error // read once ended is closed
	sctx, stopServing := context.WithCancel(life)
	go func() {
		defer close(ended)
		served = d.Run(sctx)
	}()
	undo = append(undo, func() error { stopServing(); <-ended; return served })
	if err := d.Ready(ctx); err != nil {
		return nil, err
	}
	return &demoSuite{Dev: d, model: asked, stop: stop, ended: ended}, nil
}

// cassette has the model calls recorded or played back.
func (c *demoCmd) cassette(cfg *stack.Config) {
	tape := &cfg.Models.Cassette
	switch {
	case c.Record != "":
		tape.Mode, tape.Path = cassette.Record, c.Record
	case c.Replay != "":
		tape.Mode, tape.Path, tape.Pace = cassette.Replay, c.Replay, true
	}
	if c.Nearest {
		tape.Match = cassette.Nearest
	}
}

// drifted tells how many calls were answered by others than those that were recorded.
func (c *demoCmd) drifted(e *env) error {
	report := cassette.ReportName(c.Replay)
	raw, err := os.ReadFile(report) //nolint:gosec // the user's choice
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	e.note("%s drifted from the cassette: %s tells how", view.Plural(bytes.Count(raw, []byte("\n")), "model call"), report)
	return nil
}

// overREST starts runs through the gateway, as most clients do, so that the trace shows the whole way.
type overREST struct {
	executorv1.ExecutorServiceClient
	api, key string
}

// StartRun posts the request and reads the run that it started.
func (o overREST) StartRun(ctx context.Context, in *executorv1.StartRunRequest, opts ...grpc.CallOption) (*executorv1.Run, error) {
	var body bytes.Buffer
	if err := printJSON(&body, in); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.api+"/runs", &body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+o.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("start the run: %w", err)
	}
	defer func() { _ = res.Body.Close() }() // read to its end below
	var answer struct{ ID, Reason, Message string }
	if err := json.NewDecoder(io.LimitReader(res.Body, maxFile)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("start the run: HTTP %s: %w", res.Status, err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("start the run: %s: %s", answer.Reason, answer.Message)
	}
	return o.GetRun(ctx, &executorv1.GetRunRequest{RunId: answer.ID}, opts...)
}

// demoScript is what the demo's model answers.
func demoScript() (fakellm.Script, error) {
	raw, err := examples.Files.ReadFile("launch/model.yaml")
	if err != nil {
		return fakellm.Script{}, err
	}
	return fakellm.Parse(raw)
}

// showAccounts shows the task and its epic once the run's end has reached them.
func showAccounts(ctx context.Context, e *env, s *services, taskID string) error {
	deadline := time.Now().Add(bookingTime)
	for {
		t, err := s.registry.GetTask(ctx, &registryv1.GetTaskRequest{TaskId: taskID})
		if err != nil {
			return err
		}
		if t.GetState() == registryv1.TaskState_TASK_STATE_RUNNING || t.GetState() == registryv1.TaskState_TASK_STATE_PENDING {
			if time.Now().After(deadline) {
				return fmt.Errorf("the end of the run has not reached task %s", taskID)
			}
			select {
			case <-time.After(50 * time.Millisecond):
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		x, err := s.registry.GetEpic(ctx, &registryv1.GetEpicRequest{EpicId: t.GetEpicId()})
		if err != nil {
			return err
		}
		return errors.Join(e.print(t, func() string { return taskText(e, t) + "\n" }), e.print(x, func() string { return epicText(e, x) }))
	}
}

// quote shows the beginning of a text.
func quote(s view.Style, text string, most int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	more := ""
	if len(lines) > most {
		more = fmt.Sprintf("  | … %d more lines\n", len(lines)-most)
		lines = lines[:most]
	}
	return "  | " + strings.Join(lines, "\n  | ") + "\n" + more
}
