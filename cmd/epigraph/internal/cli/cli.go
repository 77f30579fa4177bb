// Package cli owns the commands of the epigraph binary: what is asked for on the command line is sent to the services, and what they
// answer is shown. It must not know how services are assembled (package stack) nor how things are drawn (package view).
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/mattn/go-isatty"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/host"
)

// The exit codes; they are part of the interface.
const (
	exitOK        = 0
	exitFailed    = 1 // the run failed, the plan has faults, or the command went wrong
	exitUsage     = 2 // the command line is wrong
	exitCancelled = 3 // the run was cancelled
	exitPaused    = 4 // the run stands still with its work kept
	exitNoPlan    = 5 // the text holds no plan
	exitNoServer  = 6 // nothing answers at the address
)

// IO is where a command reads and writes.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
	// Interactive tells that Out is a terminal; Color that it may be painted.
	Interactive, Color bool
}

func (o IO) style() view.Style { return view.Style{Color: o.Color} }

// StdIO is the process's own input and output.
func StdIO() IO {
	tty := isatty.IsTerminal(os.Stdout.Fd())
	return IO{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Interactive: tty,
		Color: tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}
}

// commands is the command line.
type commands struct {
	JSON   bool   `help:"Print answers as JSON." name:"json"`
	Client client `embed:"" group:"Connection"`

	Dev     devCmd     `cmd:"" help:"Run the whole suite in this process, on SQLite files." group:"server"`
	Serve   serveCmd   `cmd:"" help:"Run one service." group:"server"`
	Migrate migrateCmd `cmd:"" help:"Bring every database schema up to date." group:"server"`
	Demo    demoCmd    `cmd:"" help:"Run an example plan against a scripted model and show everything that happened." group:"server"`

	Plan planCmd `cmd:"" help:"Read a plan and say what it states and what is wrong with it." group:"work"`
	Run  runCmd  `cmd:"" help:"Run a plan or a graph and watch it." group:"work"`
	Runs struct {
		Ls     runsLsCmd     `cmd:"" help:"List runs, newest first."`
		Get    runsGetCmd    `cmd:"" help:"Show a run with its visits."`
		Watch  runsWatchCmd  `cmd:"" help:"Watch a run to its end."`
		Cancel runsCancelCmd `cmd:"" help:"Cancel a run."`
		Graph  runsGraphCmd  `cmd:"" help:"Show the graph of a run."`
	} `cmd:"" help:"Look at runs and stop them." group:"work"`
	Actors actorsCmd `cmd:"" help:"List what nodes can call." group:"work"`

	Epics struct {
		Ls         epicsLsCmd         `cmd:"" help:"List epics, newest first."`
		Get        epicsGetCmd        `cmd:"" help:"Show an epic with its tasks and costs."`
		Create     epicsCreateCmd     `cmd:"" help:"Create an epic."`
		Update     epicsUpdateCmd     `cmd:"" help:"Change an epic."`
		Transition epicsTransitionCmd `cmd:"" help:"Move an epic to another state."`
		Rm         epicsRmCmd         `cmd:"" help:"Delete an epic and its tasks."`
	} `cmd:"" help:"Keep epics." group:"books"`
	Tasks struct {
		Ls         tasksLsCmd         `cmd:"" help:"List tasks, oldest first."`
		Get        tasksGetCmd        `cmd:"" help:"Show a task."`
		Create     tasksCreateCmd     `cmd:"" help:"Add a task to an epic."`
		Transition tasksTransitionCmd `cmd:"" help:"Move a task to another state."`
		Rm         tasksRmCmd         `cmd:"" help:"Delete a task."`
	} `cmd:"" help:"Keep tasks." group:"books"`
	Usage  usageCmd `cmd:"" help:"Show what was used, and what it cost." group:"books"`
	Prices struct {
		Ls  pricesLsCmd  `cmd:"" help:"List the price book."`
		Set pricesSetCmd `cmd:"" help:"Add a dated price."`
	} `cmd:"" help:"Keep the price book." group:"books"`

	Completion completionCmd `cmd:"" help:"Print a completion script for a shell."`
	Complete   completeCmd   `cmd:"" name:"__complete" hidden:""`
	Version    versionCmd    `cmd:"" help:"Print the version."`
}

// env is what every command is run with.
type env struct {
	ctx     context.Context
	io      IO
	json    bool
	client  client
	version string
	model   *kong.Application
}

// exit ends a command with a code and no further message.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// Main runs the command line args (without the program's name) and returns the exit code.
func Main(ctx context.Context, version string, args []string, stdio IO) int {
	var cmds commands
	code := -1
	parser, err := kong.New(&cmds,
		kong.Name("epigraph"),
		kong.Description("Epigraph takes the plan that a language model wrote, turns it into a checked graph of work, runs it durably and in parallel, and keeps the books."),
		kong.ExplicitGroups([]kong.Group{
			{Key: "work", Title: "Plans and runs:"}, {Key: "books", Title: "The books:"}, {Key: "server", Title: "Servers:"},
		}),
		kong.Vars{"default_addr": DefaultAddr},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: false, WrapUpperBound: 110}),
		kong.Writers(stdio.Out, stdio.Err), kong.Exit(func(c int) { code = c; panic(exit(c)) }),
	)
	if err != nil {
		fmt.Fprintln(stdio.Err, "epigraph:", err)
		return exitFailed
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parse(parser, args, &code)
	if code >= 0 {
		return code
	}
	if err != nil {
		fmt.Fprintf(stdio.Err, "epigraph: %v\n", err)
		fmt.Fprintf(stdio.Err, "try: epigraph %s--help\n", helpPath(err))
		return exitUsage
	}
	ctx, stop := host.Signals(ctx)
	defer stop()
	e := &env{ctx: ctx, io: stdio, json: cmds.JSON, client: cmds.Client, version: version, model: parser.Model}
	err = parsed.Run(e)
	var x exit
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &x):
		return int(x)
	}
	return e.fail(err)
}

// parse keeps the panic with which help ends the process inside.
func parse(p *kong.Kong, args []string, code *int) (ctx *kong.Context, err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(exit); !ok {
				panic(r)
			}
		}
	}()
	ctx, err = p.Parse(args)
	if *code >= 0 {
		return nil, nil
	}
	return ctx, err
}

// helpPath is the command whose help a wrong command line should point at.
func helpPath(err error) string {
	var pe *kong.ParseError
	if errors.As(err, &pe) && pe.Context != nil && pe.Context.Command() != "" {
		words := []string{}
		for _, w := range strings.Fields(pe.Context.Command()) {
			if !strings.HasPrefix(w, "<") {
				words = append(words, w)
			}
		}
		return strings.Join(words, " ") + " "
	}
	return ""
}

// fail shows an error with everything that helps: the reason, every place at fault, and what to do.
func (e *env) fail(err error) int {
	code := exitFailed
	ee, ok := errors.AsType[*errs.Error](err)
	if ok && ee.Kind == errs.Unavailable {
		code = exitNoServer
	}
	if e.json {
		out := map[string]any{"message": err.Error()}
		if ok {
			out = map[string]any{"reason": ee.Reason, "message": ee.Message}
			if h := ee.HintText(); h != "" {
				out["hint"] = h
			}
			if len(ee.Violations) > 0 {
				vs := make([]map[string]string, len(ee.Violations))
				for i, v := range ee.Violations {
					vs[i] = map[string]string{"field": v.Field, "reason": v.Reason, "description": v.Message}
				}
				out["violations"] = vs
			}
		}
		b, _ := json.Marshal(map[string]any{"error": out}) // strings only
		fmt.Fprintln(e.io.Err, string(b))
		return code
	}
	if !ok {
		fmt.Fprintln(e.io.Err, "epigraph:", view.OneLine(err.Error(), 0))
		return code
	}
	msg := ee.Message
	if msg == "" {
		msg = ee.Kind.String()
	}
	fmt.Fprintf(e.io.Err, "epigraph: %s [%s]\n", msg, ee.Reason)
	for _, v := range ee.Violations {
		place := v.Field
		if v.Reason != "" {
			place += " [" + v.Reason + "]"
		}
		fmt.Fprintf(e.io.Err, "  %s: %s\n", place, v.Message)
	}
	if h := ee.HintText(); h != "" {
		fmt.Fprintf(e.io.Err, "help: %s\n", h)
	} else if code == exitNoServer {
		fmt.Fprintf(e.io.Err, "help: start a server with `epigraph dev`, or name one with --addr\n")
	}
	return code
}

// print shows text, or m as JSON when JSON was asked for.
func (e *env) print(m proto.Message, text func() string) error {
	if e.json {
		return printJSON(e.io.Out, m)
	}
	_, err := io.WriteString(e.io.Out, text())
	return err
}

// printJSON writes m on one line. Lists are there even when they are empty.
func printJSON(w io.Writer, m proto.Message) error {
	b, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	if b, err = compact(b); err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// versionCmd prints the version.
type versionCmd struct{}

// Run prints.
func (versionCmd) Run(e *env) error {
	_, err := fmt.Fprintln(e.io.Out, "epigraph", e.version)
	return err
}
