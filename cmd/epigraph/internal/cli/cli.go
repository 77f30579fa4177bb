// Package cli owns the commands of the epigraph binary: it sends requests to the services and shows their
// answers. It must not know how services are assembled (package stack) nor how things are drawn (package
// view).
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/mattn/go-isatty"
	"golang.org/x/term"
	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/buildinfo"
	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/host"
)

// The exit codes; they are part of the interface.
const (
	exitOK          = 0
	exitFailed      = 1   // the run failed, the plan has faults, or the command went wrong
	exitUsage       = 2   // the command line is wrong
	exitCanceled    = 3   // the run was canceled
	exitPaused      = 4   // the run stands still with its work kept
	exitNoPlan      = 5   // the text holds no plan
	exitNoServer    = 6   // nothing answers at the address
	exitInterrupted = 130 // stopped by a signal, so that the outcome is not known
)

// IO is where a command reads and writes.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
	// Interactive says that Out is a terminal on which a picture can move, Color that Out may be colored, and
	// ColorErr that Err may. Typed says that In is a terminal.
	Interactive, Color, ColorErr, Typed bool
	// Width and WidthErr are how many columns text on Out and Err may have; 0 is no limit, for what reads it
	// may be a program.
	Width, WidthErr int
	// Size is how many columns and lines the terminal has now; it is asked only if Interactive.
	Size func() (columns, lines int)
}

func (o IO) style() view.Style    { return view.Style{Color: o.Color, Width: o.Width} }
func (o IO) errStyle() view.Style { return view.Style{Color: o.ColorErr, Width: o.WidthErr} }

// terminalWidth is how wide text on a file may be: as COLUMNS says, else as wide as the terminal is.
func terminalWidth(f *os.File) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
		return w
	}
	return 0
}

// StdIO is the process's own input and output.
func StdIO() IO {
	moves := os.Getenv("TERM") != "dumb"
	colors := moves && os.Getenv("NO_COLOR") == ""
	out, errs := isatty.IsTerminal(os.Stdout.Fd()), isatty.IsTerminal(os.Stderr.Fd())
	return IO{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Width: terminalWidth(os.Stdout), WidthErr: terminalWidth(os.Stderr),
		Interactive: out && moves, Color: out && colors, ColorErr: errs && colors, Typed: isatty.IsTerminal(os.Stdin.Fd()),
		Size: func() (int, int) {
			if w, h, err := term.GetSize(int(os.Stdout.Fd())); err == nil && w > 0 && h > 0 {
				return w, h
			}
			return 100, 50
		},
	}
}

// commands is the command line.
type commands struct {
	JSON bool `help:"Print answers and errors as JSON." name:"json"`
	// Asked is --version; the command of that name answers it.
	Asked  bool   `help:"Print the version." name:"version"`
	Client client `embed:"" group:"connection"`

	Plan planCmds `cmd:"" help:"Read a plan, or have a model write one." group:"work"`
	Run  runCmd   `cmd:"" help:"Run a plan or a graph and watch it." group:"work"`
	Runs struct {
		Ls         runsLsCmd         `cmd:"" aliases:"list" help:"List runs, newest first."`
		Get        runsGetCmd        `cmd:"" aliases:"show" help:"Show a run with its visits, waits and open interrupts."`
		Visits     runsVisitsCmd     `cmd:"" help:"List the visits of a run with their outcomes, in order."`
		Tree       runsTreeCmd       `cmd:"" help:"Show the visits of a run and of the runs below it, with their costs."`
		Watch      runsWatchCmd      `cmd:"" help:"Watch a run to its end."`
		Explain    runsExplainCmd    `cmd:"" help:"Explain why a run does not move, or why it failed."`
		Compare    runsCompareCmd    `cmd:"" help:"Show how two runs differ; a fork and its origin by default."`
		Graph      runsGraphCmd      `cmd:"" help:"Show the graph of a run."`
		Interrupts runsInterruptsCmd `cmd:"" help:"List the interrupts of a run and of its descendants."`
		Pause      runsPauseCmd      `cmd:"" help:"Pause a run: hold back new attempts."`
		Stop       runsStopCmd       `cmd:"" help:"Stop a run: end its loops and agents with what they have."`
		Resume     runsResumeCmd     `cmd:"" help:"Resume a paused run."`
		Reconcile  runsReconcileCmd  `cmd:"" help:"Record the outcome of an attempt whose outcome is unknown."`
		Signal     runsSignalCmd     `cmd:"" help:"Send a signal to a run."`
		Send       runsSendCmd       `cmd:"" help:"Send a message to inboxes of a run."`
		Cancel     runsCancelCmd     `cmd:"" help:"Cancel a run."`
		Retry      runsRetryCmd      `cmd:"" help:"Start a new run that repeats the failed visits."`
		Fork       runsForkCmd       `cmd:"" help:"Start a new run that shares the history of another up to a visit."`
		Amend      runsAmendCmd      `cmd:"" help:"Change the graph of a live run."`
		Revise     runsReviseCmd     `cmd:"" help:"Have a model change what is left of a live run."`
		Delete     runsDeleteCmd     `cmd:"" aliases:"rm" help:"Delete a run that has ended."`
		BulkCancel runsBulkCancelCmd `cmd:"" help:"Cancel all runs that a filter finds."`
		BulkPause  runsBulkPauseCmd  `cmd:"" help:"Pause all runs that a filter finds."`
		BulkResume runsBulkResumeCmd `cmd:"" help:"Resume all paused runs that a filter finds."`
		BulkRetry  runsBulkRetryCmd  `cmd:"" help:"Retry all failed runs that a filter finds."`
		BulkDelete runsBulkDeleteCmd `cmd:"" help:"Delete all ended runs that a filter finds."`
	} `cmd:"" help:"Show, steer and stop runs." group:"work"`
	Workflows struct {
		Validate workflowsValidateCmd `cmd:"" help:"Check the definition of a workflow."`
		Graph    workflowsGraphCmd    `cmd:"" help:"Show the graph that a definition becomes."`
		Run      workflowsRunCmd      `cmd:"" help:"Run a workflow of the catalog, or a definition in a file, and watch it."`
		Test     workflowsTestCmd     `cmd:"" help:"Run the tests of workflows, without a server."`

		Create    workflowsCreateCmd    `cmd:"" help:"Keep a definition in the catalog, as a new workflow or a new version."`
		List      workflowsLsCmd        `cmd:"" aliases:"ls" help:"List the workflows of the catalog, newest first."`
		Show      workflowsShowCmd      `cmd:"" aliases:"get" help:"Show a workflow, or the text of a version."`
		Versions  workflowsVersionsCmd  `cmd:"" help:"List the versions of a workflow."`
		Alias     workflowsAliasCmd     `cmd:"" help:"Let a name stand for versions of a workflow, by shares."`
		Fork      workflowsForkCmd      `cmd:"" help:"Make a workflow of another one and of patches."`
		Diff      workflowsDiffCmd      `cmd:"" help:"Tell what differs between two versions."`
		Discover  workflowsDiscoverCmd  `cmd:"" help:"Find workflows by what they can do."`
		Forecast  workflowsForecastCmd  `cmd:"" help:"Tell what a run may cost and how long it may take, before it starts."`
		Deprecate workflowsDeprecateCmd `cmd:"" help:"Take a workflow out of discovery; it still runs."`
		Expose    workflowsExposeCmd    `cmd:"" help:"Offer a workflow to clients of chat completions and of MCP."`
		Delete    workflowsDeleteCmd    `cmd:"" aliases:"rm" help:"Delete a workflow; runs that have begun go on."`
		ImportDir workflowsImportDirCmd `cmd:"" name:"import-dir" help:"Keep the workflows of a folder in the catalog."`

		Import workflowsImportCmd `cmd:"" help:"Make a definition of one of another system."`
		Schema workflowsSchemaCmd `cmd:"" help:"Print the JSON Schema of definitions, for editors."`
	} `cmd:"" help:"Check and run workflows, and keep them in the catalog." group:"work"`
	Interrupts struct {
		List   interruptsListCmd   `cmd:"" aliases:"ls" help:"List interrupts, newest first."`
		Show   interruptsShowCmd   `cmd:"" aliases:"get" help:"Show an interrupt."`
		Answer interruptsAnswerCmd `cmd:"" help:"Answer an interrupt, once."`
	} `cmd:"" help:"Answer the interrupts of runs." group:"work"`
	Schedules struct {
		List     schedulesListCmd     `cmd:"" aliases:"ls" help:"List schedules."`
		Show     schedulesShowCmd     `cmd:"" aliases:"get" help:"Show a schedule with its next and last starts."`
		Create   schedulesCreateCmd   `cmd:"" help:"Start runs by the clock."`
		Update   schedulesUpdateCmd   `cmd:"" help:"Change a schedule."`
		Pause    schedulesPauseCmd    `cmd:"" help:"Pause a schedule."`
		Resume   schedulesResumeCmd   `cmd:"" help:"Resume a paused schedule."`
		Trigger  schedulesTriggerCmd  `cmd:"" help:"Start a run now."`
		Backfill schedulesBackfillCmd `cmd:"" help:"Start the runs of past times."`
		Delete   schedulesDeleteCmd   `cmd:"" aliases:"rm" help:"Delete a schedule."`
	} `cmd:"" help:"Create, show and change schedules." group:"work"`
	Triggers struct {
		On         triggersOnCmd         `cmd:"" help:"Turn the triggers of a workflow on."`
		Off        triggersOffCmd        `cmd:"" help:"Turn the triggers of a workflow off."`
		List       triggersListCmd       `cmd:"" aliases:"ls" help:"List triggers."`
		Show       triggersShowCmd       `cmd:"" aliases:"get" help:"Show a trigger, or a delivery with its event."`
		Deliveries triggersDeliveriesCmd `cmd:"" help:"List what triggers were told, newest first."`
		Repeat     triggersRepeatCmd     `cmd:"" help:"Tell a trigger an event again."`
		Rotate     triggersRotateCmd     `cmd:"" help:"Give a webhook a new secret."`
	} `cmd:"" help:"Turn on what starts workflows, and show what it was told." group:"work"`
	Threads struct {
		Ls     threadsLsCmd     `cmd:"" aliases:"list" help:"List threads, newest first."`
		Show   threadsShowCmd   `cmd:"" aliases:"get" help:"Show a thread with its newest messages."`
		Fork   threadsForkCmd   `cmd:"" help:"Go on from an item of a thread in a new one."`
		Export threadsExportCmd `cmd:"" help:"Write a thread with all its parts as one value."`
		Import threadsImportCmd `cmd:"" help:"Make a thread from a value that was exported."`
		Turns  threadsTurnsCmd  `cmd:"" help:"List the messages to the agent of a thread, and what became of them."`
		Rm     threadsRmCmd     `cmd:"" aliases:"delete" help:"Delete a thread."`
	} `cmd:"" help:"Show, fork, copy out and delete the threads of agents." group:"work"`
	Chat   chatCmd `cmd:"" help:"Talk with an agent." group:"work"`
	MCP    mcpCmd  `cmd:"" name:"mcp" help:"Serve a client of the Model Context Protocol on standard input and output." group:"work"`
	Limits struct {
		List   limitsListCmd   `cmd:"" aliases:"ls" help:"List limits with their present use."`
		Put    limitsPutCmd    `cmd:"" help:"Set a limit."`
		Delete limitsDeleteCmd `cmd:"" aliases:"rm" help:"Delete a limit."`
	} `cmd:"" help:"Limit concurrent attempts, rates and open runs." group:"work"`
	Keys struct {
		Create keysCreateCmd `cmd:"" help:"Make an API key, and print its secret."`
		List   keysListCmd   `cmd:"" aliases:"ls" help:"List API keys, newest first."`
		Show   keysShowCmd   `cmd:"" aliases:"get" help:"Show an API key without its secret."`
		Revoke keysRevokeCmd `cmd:"" help:"End an API key for good."`
		Whoami keysWhoamiCmd `cmd:"" help:"Tell who the caller is and what it may do."`
	} `cmd:"" help:"Make and revoke API keys." group:"work"`
	Audit   auditCmd `cmd:"" help:"List who changed what, from where and when." group:"work"`
	Workers struct {
		List workersListCmd `cmd:"" aliases:"ls" help:"List the workers that are connected."`
	} `cmd:"" help:"Show remote workers." group:"work"`
	Attempts struct {
		Complete attemptsCompleteCmd `cmd:"" help:"Report the outcome of work outside, by the token of its attempt."`
	} `cmd:"" help:"Complete attempts that wait for work outside." group:"work"`
	Actors actorsCmd `cmd:"" help:"List the actors that nodes can call." group:"work"`

	Memory struct {
		Ls     memoryLsCmd     `cmd:"" aliases:"list" help:"List what is remembered."`
		Search memorySearchCmd `cmd:"" help:"Find what is remembered by words, the best first."`
		Show   memoryShowCmd   `cmd:"" aliases:"get" help:"Show an entry."`
		Write  memoryWriteCmd  `cmd:"" help:"Remember something."`
		Rm     memoryRmCmd     `cmd:"" aliases:"delete" help:"Delete entries."`
		Export memoryExportCmd `cmd:"" help:"Write all that the namespace remembers as lines of JSON."`
		Forget memoryForgetCmd `cmd:"" help:"Forget all of a scope, of a user, or of the namespace."`
		Reads  memoryReadsCmd  `cmd:"" help:"List who has searched, newest first."`
	} `cmd:"" help:"Search, write, export and forget what is remembered." group:"work"`

	Epics struct {
		Ls         epicsLsCmd         `cmd:"" aliases:"list" help:"List epics, newest first."`
		Search     epicsSearchCmd     `cmd:"" help:"Find epics by words of theirs and of their tasks, the best first."`
		Import     epicsImportCmd     `cmd:"" help:"Make an epic and its tasks of a JSON document."`
		Get        epicsGetCmd        `cmd:"" aliases:"show" help:"Show an epic with its tasks and costs."`
		Create     epicsCreateCmd     `cmd:"" help:"Create an epic."`
		Update     epicsUpdateCmd     `cmd:"" help:"Change an epic."`
		Run        epicsRunCmd        `cmd:"" help:"Have an epic run by itself: its tasks start as dependencies allow."`
		Pause      epicsPauseCmd      `cmd:"" help:"Pause an epic and the runs of its tasks."`
		Resume     epicsResumeCmd     `cmd:"" help:"Resume an epic and the runs that were paused with it."`
		Transition epicsTransitionCmd `cmd:"" help:"Move an epic to another state."`
		Rm         epicsRmCmd         `cmd:"" aliases:"delete" help:"Delete an epic and its tasks."`
	} `cmd:"" help:"Create, show and change epics." group:"accounting"`
	Tasks struct {
		Ls         tasksLsCmd         `cmd:"" aliases:"list" help:"List tasks, oldest first."`
		Get        tasksGetCmd        `cmd:"" aliases:"show" help:"Show a task."`
		Create     tasksCreateCmd     `cmd:"" help:"Add a task to an epic."`
		Update     tasksUpdateCmd     `cmd:"" help:"Change a task."`
		Transition tasksTransitionCmd `cmd:"" help:"Move a task to another state."`
		Rm         tasksRmCmd         `cmd:"" aliases:"delete" help:"Delete a task."`
	} `cmd:"" help:"Create, show and change tasks." group:"accounting"`
	Usage  usageCmds `cmd:"" help:"Show usage and cost, and report it." group:"accounting"`
	Events eventsCmd `cmd:"" help:"Show what changes of epics, tasks, usage, prices and workflows." group:"accounting"`
	Prices struct {
		Ls     pricesLsCmd     `cmd:"" aliases:"list" help:"List the price book."`
		Set    pricesSetCmd    `cmd:"" help:"Add a dated price."`
		Import pricesImportCmd `cmd:"" help:"Add the prices of a file, all or none."`
	} `cmd:"" help:"Show the price book and add prices." group:"accounting"`
	Budgets struct {
		Show budgetsShowCmd `cmd:"" aliases:"get" help:"Show the caps of the namespace, an epic or a task, and what is spent."`
		Set  budgetsSetCmd  `cmd:"" help:"Change caps."`
	} `cmd:"" help:"Show and change what may be spent." group:"accounting"`

	Dev     devCmd     `cmd:"" help:"Run the whole suite in this process, on SQLite files." group:"server"`
	Serve   serveCmd   `cmd:"" help:"Run one service." group:"server"`
	Migrate migrateCmd `cmd:"" help:"Bring every database schema up to date." group:"server"`
	Doctor  doctorCmd  `cmd:"" help:"Check the databases for damage, and show how to repair it." group:"server"`
	Demo    demoCmd    `cmd:"" help:"Run an example plan against a scripted model and show every step." group:"server"`

	Completion completionCmd `cmd:"" help:"Print a completion script for a shell." group:"other"`
	Complete   completeCmd   `cmd:"" name:"__complete" hidden:""`
	Version    versionCmd    `cmd:"" help:"Print the version, commit, date and Go version." group:"other"`
	Help       helpCmd       `cmd:"" help:"Show the purpose and the flags of a command." group:"other"`
}

// env is what every command is run with.
type env struct {
	ctx    context.Context //nolint:containedctx // kong passes a command one value, with the lifetime of the command
	io     IO
	json   bool
	client client
	build  buildinfo.Info
	model  *kong.Application
	// give ends the command with a fault of its connections.
	give context.CancelCauseFunc
	// lost is why no server can be reached, once that is known.
	lost *errs.Error
	// passing says that the server ends with the command, and its runs with it.
	passing bool
}

// exit ends a command with a code and no further message.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// Main runs the command line args (without the program's name) and returns the exit code.
func Main(ctx context.Context, build buildinfo.Info, args []string, stdio IO) int {
	var cmds commands
	code := -1
	parser, err := kong.New(&cmds,
		kong.Name("epigraph"),
		kong.Description("Epigraph takes the plan that a language model wrote, turns it into a checked graph of work, runs it durably and in parallel, and accounts for its costs."),
		kong.ExplicitGroups([]kong.Group{
			{Key: "work", Title: "Plans and runs:"}, {Key: "accounting", Title: "Accounting:"}, {Key: "server", Title: "Servers:"},
			{Key: "other", Title: "Other:"}, {Key: "connection", Title: "Connection:"},
		}),
		kong.Vars{"default_addr": DefaultAddr},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: false, WrapUpperBound: 110}),
		kong.Help(helpPrinter(stdio.style())),
		kong.Writers(stdio.Out, stdio.Err), kong.Exit(func(c int) { code = c; panic(exit(c)) }),
	)
	if err != nil {
		fmt.Fprintln(stdio.Err, "epigraph:", err)
		return exitFailed
	}
	ignoreEmpty(parser.Model)
	args = topic(args)
	if err := checkText(parser.Model.Node, args); err != nil {
		return (&env{io: stdio, json: slices.Contains(args, "--json")}).fail(err)
	}
	parsed, err := parse(parser, args, &code)
	if code >= 0 {
		return code
	}
	if err != nil {
		e := &env{io: stdio, json: slices.Contains(args, "--json")}
		e.fail(usageError(err))
		return exitUsage
	}
	if err := errors.Join(checkFlags(parsed.Flags()), checkServerFlags(parsed)); err != nil {
		return (&env{io: stdio, json: cmds.JSON}).fail(err)
	}
	ctx, stop := host.Signals(ctx)
	defer stop()
	e := &env{ctx: ctx, io: stdio, json: cmds.JSON, client: cmds.Client, build: build, model: parser.Model}
	err = parsed.Run(e)
	if err == nil {
		return exitOK
	}
	if x, ok := errors.AsType[exit](err); ok && (e.ctx.Err() == nil || ctx.Err() != nil) {
		return int(x)
	}
	if ctx.Err() != nil { // every failure after the stop
		if e.json {
			e.printError(errs.New(errs.Canceled, "INTERRUPTED", "interrupted"))
		} else {
			fmt.Fprintln(stdio.Err, "epigraph: interrupted")
		}
		return exitInterrupted
	}
	if x, ok := errors.AsType[*errs.Error](context.Cause(e.ctx)); ok {
		e.lost = x
		return e.fail(x)
	}
	return e.fail(err)
}

// ignoreEmpty takes variables that are set and empty for unset.
func ignoreEmpty(app *kong.Application) {
	_ = kong.Visit(app, func(n kong.Visitable, next kong.Next) error {
		if f, ok := n.(*kong.Flag); ok {
			f.Tag.Envs = slices.DeleteFunc(slices.Clone(f.Tag.Envs), func(name string) bool { return os.Getenv(name) == "" })
		}
		return next(nil)
	})
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

// maxFaults is how many faults of one request people are shown.
const maxFaults = 20

// fail shows an error with everything that helps: the reason, every place at fault, and what to do. Messages
// may hold what a model wrote.
func (e *env) fail(err error) int {
	code := exitFailed
	x, ok := errors.AsType[*errs.Error](err)
	if _, wrong := errors.AsType[misuse](err); wrong || ok && misused(x) {
		code = exitUsage
	}
	if !ok {
		// Only errors of this process have no type here, so their text may be shown.
		x = &errs.Error{Reason: "FAILED", Message: err.Error()}
	}
	if x.Message == "" {
		x = errs.New(x.Kind, x.Reason, "%s", x.Kind)
	}
	switch {
	case x.Kind == errs.Unavailable && x.Reason == grpckit.ReasonServiceAway:
		code = exitNoServer
		if behind := x.Meta[grpckit.MetaService]; behind != "" { // a gateway said it
			x = e.behindGateway(x, behind)
		} else {
			x = e.unreachable()
		}
	case x.Reason == "RPC_UNIMPLEMENTED" || strings.Contains(x.Message, otherHTTP):
		if found := e.misaddressed(x); found != nil {
			if x, code = found, exitUsage; found.Kind == errs.Unavailable {
				code = exitNoServer
			}
		}
	}
	if x.HintText() == "" {
		x = x.Hint(nameHint(x.Violations))
	}
	if x.Reason == "NO_PLAN" {
		code = exitNoPlan
	}
	if x.Reason == "CREDENTIALS_MISSING" {
		x = x.Hint("give the key with --api-key or EPIGRAPH_API_KEY")
	}
	if e.json {
		e.printError(x)
		return code
	}
	style := e.io.errStyle()
	said := x.Message
	e.note("epigraph: %s %s", view.Message(x.Message), style.Dim("["+view.OneLine(x.Reason, 0)+"]"))
	for i, v := range x.Violations {
		if len(x.Violations) == 1 && strings.Contains(x.Message, v.Field) && strings.Contains(x.Message, v.Message) {
			break // the sentence has said it
		}
		if i == maxFaults {
			e.note("  … and %s; --json names them all", view.Plural(len(x.Violations)-i, "more fault"))
			break
		}
		place := v.Field
		if v.Reason != "" {
			place += " [" + v.Reason + "]"
		}
		said += " " + v.Message
		fmt.Fprintln(e.io.Err, style.Said("  "+style.Bold(view.OneLine(place, 0)+":"), v.Message, "      "))
	}
	if h := x.HintText(); h != "" && !strings.Contains(said, h) {
		e.note("help: %s", view.OneLine(inCommands(h), 0))
	}
	return code
}

// printError prints an error as JSON.
func (e *env) printError(x *errs.Error) {
	out := map[string]any{"reason": x.Reason, "message": x.Message}
	if h := x.HintText(); h != "" {
		out["hint"] = h
	}
	if len(x.Violations) > 0 {
		vs := make([]map[string]string, len(x.Violations))
		for i, v := range x.Violations {
			vs[i] = map[string]string{"field": v.Field, "reason": v.Reason, "description": v.Message}
		}
		out["violations"] = vs
	}
	_ = printValue(e.io.Err, map[string]any{"error": out}) // there is no output left for the error
}

// unreachable says why no server can be talked to: of the first address at which something is wrong.
func (e *env) unreachable() *errs.Error {
	if e.lost != nil {
		return e.lost
	}
	ctx := e.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	var all []string
	for _, addr := range e.client.addresses() {
		if x, _ := e.client.unreachable(ctx, addr); !strings.HasPrefix(x.Message, "nothing answers") {
			return x
		}
		all = append(all, addr)
	}
	return errs.New(errs.Unavailable, "SERVICE_UNAVAILABLE", "nothing answers at %s", strings.Join(all, ", ")).
		Hint("start a server with `epigraph dev`, or name one with --addr or EPIGRAPH_ADDR")
}

// print shows text, or m as JSON when JSON was asked for.
func (e *env) print(m proto.Message, text func() string) error {
	if e.json {
		return printJSON(e.io.Out, m)
	}
	return e.say(text())
}

// say prints text for people.
func (e *env) say(text string) error {
	_, err := io.WriteString(e.io.Out, e.io.style().Fit(text))
	return err
}

// note prints a line for people beside the requested output.
func (e *env) note(format string, args ...any) {
	fmt.Fprintln(e.io.Err, e.io.errStyle().Fit(fmt.Sprintf(format, args...)))
}

// topic turns the ways to ask for help and for the version into one each.
func topic(args []string) []string {
	switch {
	case len(args) == 0:
		return []string{"--help"}
	case args[0] == "help" && !slices.ContainsFunc(args, func(a string) bool { return a == "-h" || a == "--help" }):
		return append(slices.Clone(args[1:]), "--help")
	}
	for i, a := range args {
		switch {
		case a == "--version":
			return append(append(slices.Clone(args[:i]), args[i+1:]...), "version")
		case !strings.HasPrefix(a, "-"):
			return args
		}
	}
	return args
}

// helpCmd is the entry of `epigraph help` in lists; topic answers it.
type helpCmd struct {
	Topic []string `arg:"" optional:"" help:"The command, for example: runs resume."`
}

// Run is never called: see topic.
func (helpCmd) Run(*env) error { return nil }

// versionCmd prints which build this is.
type versionCmd struct{}

// Run prints.
func (versionCmd) Run(e *env) error {
	if e.json {
		return printValue(e.io.Out, e.build)
	}
	_, err := fmt.Fprintln(e.io.Out, e.build)
	return err
}
