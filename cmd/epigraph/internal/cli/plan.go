package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/planpb"
	"github.com/epigraph-run/epigraph/plan"
	planv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/plan/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
)

// maxFile bounds the bytes of a file or of standard input.
const maxFile = 16 << 20

// planCmds are what can be done with plans. Reading one is the default.
type planCmds struct {
	Read     planCmd         `cmd:"" default:"withargs" help:"Read a plan and show its problems and its faults."`
	Create   planCreateCmd   `cmd:"" help:"Have a model write a plan, and mend it until it can run."`
	Forecast planForecastCmd `cmd:"" help:"Tell what a run of a plan may cost, before it is started."`
}

// Help is that of the default.
func (planCmds) Help() string { return planCmd{}.Help() }

// planCmd reads a plan here, without a server unless a model is to restate it.
type planCmd struct {
	File     string `arg:"" help:"The text with the plan; - reads standard input." default:"-"`
	Dialect  string `help:"Read only this dialect." placeholder:"NAME"`
	Complete bool   `help:"The text is complete, because the model stopped by itself: do not warn of a cut."`
	Restate  bool   `help:"Let the server's model restate a plan that is ambiguous or is not found; the restatement is used only if all of it is verified in the text. Needs a server."`
	JSONL    bool   `help:"Read one JSON string per line and print one answer per line, as JSON." name:"jsonl" xor:"form"`
	Mermaid  bool   `help:"Print the plan as a Mermaid flowchart." xor:"form"`
	Dot      bool   `help:"Print the plan for Graphviz." xor:"form"`
}

// Help says what the exit code means.
func (planCmd) Help() string {
	return `Works without a server, except with --restate. The exit code is 0 if the plan can run, 1 if it has errors, 5 if the text contains no plan. With --json and --jsonl it is 0 for every plan, and the output is a ParsePlanResponse.

The dependencies of a problem follow ←, or ⇠ if only the order of the text implies them. Of each code the first five warnings are shown; --json has all.

    epigraph plan answer.txt
    epigraph plan answer.txt --dot | dot -Tsvg > plan.svg
    jq -r '.text | @json' answers.jsonl | epigraph plan --jsonl -`
}

// Run reads and shows.
func (c *planCmd) Run(e *env) error {
	if c.Dialect != "" {
		if !slices.Contains(plan.Dialects(), c.Dialect) {
			return usage(errs.New(errs.InvalidArgument, "UNKNOWN_DIALECT", "there is no dialect %q", c.Dialect).Hint("use one of " + sortedList(plan.Dialects())))
		}
	}
	parse, done, err := c.reader(e)
	if err != nil {
		return c.unread(e, err)
	}
	defer done()
	if c.JSONL {
		return c.lines(e, parse)
	}
	text, err := e.read(c.File)
	if err != nil {
		return err
	}
	r, err := parse(text)
	if err != nil {
		return c.unread(e, err)
	}
	switch {
	case e.json:
		return printProtoJSON(e.io.Out, r)
	case c.Mermaid:
		fmt.Fprint(e.io.Out, diagram(r).Mermaid())
	case c.Dot:
		fmt.Fprint(e.io.Out, diagram(r).Dot())
	default:
		fmt.Fprint(e.io.Out, view.Plan(e.io.style(), r))
	}
	fmt.Fprint(e.io.Err, view.Diagnostics(e.io.errStyle(), sourceName(c.File), text, r.GetDiagnostics()))
	e.restated(r)
	if r.GetNoPlan() && !e.json {
		e.isGraph(c.File, text, r.GetNoPlanReason())
	}
	if code := verdict(r); code != exitOK {
		return exit(code)
	}
	return nil
}

// reader gives what reads a text: package plan, or the server where a model may restate the plan.
func (c *planCmd) reader(e *env) (parse func(text string) (*plannerv1.ParsePlanResponse, error), done func(), err error) {
	if !c.Restate {
		var opts []plan.Option
		if c.Dialect != "" {
			opts = append(opts, plan.WithDialect(c.Dialect))
		}
		if c.Complete {
			opts = append(opts, plan.WithComplete())
		}
		return func(text string) (*plannerv1.ParsePlanResponse, error) {
			return planpb.Response(plan.Parse(text, opts...)), nil
		}, func() {}, nil
	}
	s, err := e.connect()
	if err != nil {
		return nil, nil, err
	}
	return func(text string) (*plannerv1.ParsePlanResponse, error) {
		if !utf8.ValidString(text) {
			return nil, inputNotUTF8(sourceName(c.File))
		}
		ctx, cancel := context.WithTimeout(e.ctx, e.client.Timeout)
		defer cancel()
		return s.planner.ParsePlan(ctx, &plannerv1.ParsePlanRequest{
			Text: text, Dialect: c.Dialect, Complete: c.Complete, Restate: plannerv1.RestatePolicy_RESTATE_POLICY_WHEN_UNSURE,
		})
	}, s.close, nil
}

// unread says beside an error of the server how the plan is read without one.
func (c *planCmd) unread(e *env, err error) error {
	if c.Restate && (errs.Is(err, errs.Unavailable) || errs.Is(err, errs.DeadlineExceeded)) {
		e.help("without --restate the plan is read here, without a server")
	}
	return err
}

// restated shows which model was asked, and its usage.
func (e *env) restated(r *plannerv1.ParsePlanResponse) {
	restatement := r.GetRestatement()
	if restatement == nil || e.json {
		return
	}
	verb := "did not restate"
	if restatement.GetAccepted() {
		verb = "restated"
	}
	e.note("%s %s the plan: calls %d, tokens %d→%d", restatement.GetModel(), verb, restatement.GetCalls(), restatement.GetInputTokens(), restatement.GetOutputTokens())
}

// isGraph is the error if the text of a plan is, or was meant to be, a graph. Else it is the error of a text
// without a plan, with a hint.
func (e *env) isGraph(file, text, reason string) {
	raw, err := findGraph(text)
	if m, ok := errors.AsType[*misread](err); ok {
		fmt.Fprint(e.io.Err, view.Diagnostics(e.io.errStyle(), sourceName(file), text, []*planv1.Diagnostic{m.at}))
	} else if raw != nil {
		e.help("this is a graph, which needs no reading: `epigraph run %s` runs it", sourceName(file))
	} else if reason != string(plan.EmptyText) && reason != string(plan.TooLarge) {
		e.help("ask the model for a plan: problems with ids, and lines like A -> B")
	}
}

// lines answers a stream of texts, one per line; a line that is no JSON string ends it.
func (c *planCmd) lines(e *env, parse func(text string) (*plannerv1.ParsePlanResponse, error)) error {
	in, done, err := e.open(c.File)
	if err != nil {
		return err
	}
	defer done()
	out := bufio.NewWriter(e.io.Out)
	dec := json.NewDecoder(in)
	for n := 1; ; n++ {
		var text string
		if err := dec.Decode(&text); errors.Is(err, io.EOF) {
			return out.Flush()
		} else if err != nil {
			return errors.Join(out.Flush(), errs.New(errs.InvalidArgument, "INPUT_INVALID", "record %d is not a JSON string: %v", n, err).Hint("write each text as one JSON string per line"))
		}
		r, err := parse(text)
		if err != nil {
			return errors.Join(out.Flush(), err)
		}
		if err := printProtoJSON(out, r); err != nil {
			return err
		}
		if err := e.ctx.Err(); err != nil {
			return err
		}
	}
}

func verdict(r *plannerv1.ParsePlanResponse) int {
	if r.GetNoPlan() {
		return exitNoPlan
	}
	for _, d := range r.GetDiagnostics() {
		if d.GetSeverity() == planv1.Severity_SEVERITY_ERROR {
			return exitFailed
		}
	}
	return exitOK
}

func diagram(r *plannerv1.ParsePlanResponse) view.Diagram {
	var d view.Diagram
	for _, p := range r.GetGraph().GetProblems() {
		label := p.GetId()
		if p.GetRequest() != "" && p.GetRequest() != p.GetId() {
			label += ": " + p.GetRequest()
		}
		d.Nodes = append(d.Nodes, view.DiagramNode{ID: p.GetId(), Label: label, Group: p.GetParentId()})
	}
	for _, x := range r.GetGraph().GetEdges() {
		d.Edges = append(d.Edges, view.DiagramEdge{From: x.GetFrom(), To: x.GetTo(), Dashed: view.Assumed(x)})
	}
	return d
}

// read is the text of a file, or of standard input for "-".
func (e *env) read(name string) (string, error) {
	in, done, err := e.open(name)
	if err != nil {
		return "", err
	}
	defer done()
	b, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return "", usage(errs.New(errs.InvalidArgument, "FILE_UNREADABLE", "%s: %v", sourceName(name), err))
	}
	if len(b) > maxFile {
		return "", errs.New(errs.InvalidArgument, "INPUT_TOO_LARGE", "%s is larger than %d MiB", sourceName(name), maxFile>>20)
	}
	return string(b), nil
}

// readText is what read gives, refused where it is not UTF-8: no request could carry it.
func (e *env) readText(name string) (string, error) {
	text, err := e.read(name)
	if err != nil || utf8.ValidString(text) {
		return text, err
	}
	return "", inputNotUTF8(sourceName(name))
}

func inputNotUTF8(name string) error {
	return errs.New(errs.InvalidArgument, "INPUT_NOT_UTF8", "%s is not UTF-8 text", name).
		Hint("convert it to UTF-8 first, for example by `iconv -t UTF-8`")
}

// open opens a file, or standard input for "-". Reading it ends when the command is stopped.
func (e *env) open(name string) (in io.Reader, done func(), err error) {
	if name == "-" {
		if e.io.Typed {
			fmt.Fprintln(e.io.Err, "Reading from the terminal; Ctrl-D on an empty line ends it.")
		}
		return interruptible{e.ctx, e.io.In}, func() {}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, usage(errs.New(errs.InvalidArgument, "FILE_UNREADABLE", "%v", err))
	}
	return f, func() { _ = f.Close() }, nil // opened for reading
}

// interruptible stops waiting for input when its context ends. Later input is lost, so the command must end,
// too.
type interruptible struct {
	ctx context.Context //nolint:containedctx // a Reader has no other way to get it
	in  io.Reader
}

func (r interruptible) Read(p []byte) (int, error) {
	type answer struct {
		b   []byte
		err error
	}
	got := make(chan answer, 1)
	go func() {
		b := make([]byte, len(p))
		n, err := r.in.Read(b)
		got <- answer{b[:n], err}
	}()
	select {
	case a := <-got:
		return copy(p, a.b), a.err
	case <-r.ctx.Done():
		return 0, r.ctx.Err()
	}
}

func sourceName(file string) string {
	if file == "-" {
		return "stdin"
	}
	return file
}
