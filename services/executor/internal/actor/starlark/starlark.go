// Package starlark is the actor that runs a small script over its inputs: the transformations between other
// nodes that an expression is too short for. It owns what a script may use. The language is that of
// go.starlark.net, which bounds steps alone. So scripts are rewritten before they run, and every operation
// whose cost depends on its operands is counted before it is carried out. A script reaches no file, no
// network and no clock.
package starlark

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	star "go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

const schema = `{
  "type": "object",
  "required": ["script"],
  "properties": {
    "script": {
      "type": "string",
      "minLength": 1,
      "maxLength": 65536,
      "description": "A Starlark script. It sees args, the list of the positional arguments, and named, the dict of the other named ones. The result is what the script binds to result, or what its function main returns. A parameter of main gets the named argument of its name, else the next positional argument. The modules json and math are there; nothing can be loaded, read or reached."
    },
    "max_steps": {"type": "integer", "minimum": 1, "description": "Steps of the script at most; executor.actors.starlark.max_steps, the default, is the most."}
  }
}`

const (
	// maxScript bounds a script in bytes.
	maxScript = 64 << 10
	// maxResult bounds the result as JSON in bytes; executor.max_payload bounds it further.
	maxResult = 16 << 20
	// maxPrinted and maxPrints bound what a script says on its way: bytes of a line, and lines.
	maxPrinted = 1 << 10
	maxPrints  = 100
	// maxWords bounds the message of an error.
	maxWords = 1000
)

// Reasons of scripts that fail. All are permanent, since the same script does the same again.
const (
	ReasonFailed = "SCRIPT_FAILED"
	ReasonSteps  = "STEPS_EXCEEDED"
	ReasonMemory = "MEMORY_EXCEEDED"
)

// Config bounds scripts. The zero value of a field means its default.
type Config struct {
	MaxSteps  int           `help:"steps of a script at most; large operations count for several"`
	MaxMemory conf.Bytes    `help:"size of all values that a script makes, together, at most"`
	Timeout   time.Duration `help:"longest time for a script"`
}

// DefaultConfig allows a million steps, which take about a tenth of a second.
func DefaultConfig() Config {
	return Config{MaxSteps: 1_000_000, MaxMemory: 64 << 20, Timeout: 10 * time.Second}
}

// maxSteps bounds Config.MaxSteps: what is not counted, like a list of one element, is small but not nothing.
const maxSteps = 100_000_000

// Validate reports every bound that cannot be used.
func (c Config) Validate() error {
	var faults []error
	if c.MaxSteps < 0 || c.MaxSteps > maxSteps {
		faults = append(faults, fmt.Errorf("starlark.max_steps must be from 0 to %d, got %d", maxSteps, c.MaxSteps))
	}
	if c.MaxMemory < 0 {
		faults = append(faults, errors.New("starlark.max_memory must not be negative"))
	}
	if c.Timeout < 0 {
		faults = append(faults, errors.New("starlark.timeout must not be negative"))
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	d := DefaultConfig()
	if c.MaxSteps == 0 {
		c.MaxSteps = d.MaxSteps
	}
	if c.MaxMemory == 0 {
		c.MaxMemory = d.MaxMemory
	}
	if c.Timeout == 0 {
		c.Timeout = d.Timeout
	}
	return c
}

// Spec describes the actor.
func Spec(cfg Config) actor.Spec {
	cfg = cfg.withDefaults()
	return actor.Spec{
		Name: "starlark", Version: "1", Effect: workgraph.Pure, Computes: true, Schema: schema,
		Examine: func(_ context.Context, n *workgraph.Node) []workgraph.Argument { return examine(cfg, n) },
		Actor: workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			return call(ctx, cfg, c)
		}),
		Description: "Runs a Starlark script over its arguments; it reaches nothing else, and its steps and memory are bounded.",
	}
}

// dialect is Starlark with what models that know Python expect.
var dialect = &syntax.FileOptions{Set: true, While: true, TopLevelControl: true, GlobalReassign: true, Recursion: true}

// examine returns the faults of a node's own arguments.
func examine(cfg Config, n *workgraph.Node) []workgraph.Argument {
	var out []workgraph.Argument
	if script, ok := actor.OwnText(n, "script"); ok {
		if _, err := compile(script, (&meter{}).environment()); err != nil {
			out = append(out, actor.Faulty("script", err)...)
		}
	}
	var steps int
	if raw := n.Named["max_steps"]; len(raw) > 0 && json.Unmarshal(raw, &steps) == nil {
		if err := withinSteps(cfg, steps); err != nil {
			out = append(out, actor.Faulty("max_steps", err)...)
		}
	}
	return out
}

func withinSteps(cfg Config, steps int) error {
	if steps < 1 || steps > cfg.MaxSteps {
		return actor.BadArguments("max_steps must be from 1 to %d, got %d", cfg.MaxSteps, steps)
	}
	return nil
}

// compile reads a script. The error is of the arguments and says where.
func compile(script string, env star.StringDict) (*star.Program, error) {
	if len(script) > maxScript {
		return nil, actor.BadArguments("script has %d bytes, at most %d can be read", len(script), maxScript)
	}
	f, err := dialect.Parse("script", script, 0)
	if err != nil {
		return nil, actor.BadArguments("script: %s", where(err))
	}
	if err := rewrite(f); err != nil {
		return nil, actor.BadArguments("script: %v", err)
	}
	p, err := star.FileProgram(f, func(name string) bool { return env.Has(name) || name == "args" || name == "named" })
	if err != nil {
		return nil, actor.BadArguments("script: %s", where(err))
	}
	return p, nil
}

// call runs the script of a call.
func call(ctx context.Context, cfg Config, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		Script   string `json:"script"`
		MaxSteps *int   `json:"max_steps"`
	}
	if err := actor.Decode(c.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	if a.Script == "" {
		return workgraph.Outcome{}, actor.BadArguments("script is missing")
	}
	steps := cfg.MaxSteps
	if a.MaxSteps != nil {
		steps = *a.MaxSteps
		if err := withinSteps(cfg, steps); err != nil {
			return workgraph.Outcome{}, err
		}
	}
	late := workgraph.Errorf(workgraph.Permanent, workgraph.ReasonTimeout, "the script takes longer than %s", cfg.Timeout)
	limited, cancel := context.WithTimeoutCause(ctx, cfg.Timeout, late)
	defer cancel()
	r := &run{report: actor.ReporterOf(ctx)}
	r.thread = &star.Thread{Name: "script", Print: r.print}
	r.meter = &meter{ended: func() error { return context.Cause(limited) }, thread: r.thread, maxSteps: uint64(steps), most: int64(cfg.MaxMemory), room: func(n int64) error { return actor.Room(ctx, n) }}
	r.meter.arm()
	// The interpreter looks at this between two operations, and operations are bounded.
	defer context.AfterFunc(limited, func() { r.thread.Cancel("the call was ended") })()
	raw, err := r.script(a.Script, c)
	switch {
	case err == nil:
		return workgraph.Outcome{Values: []json.RawMessage{raw}}, nil
	case ctx.Err() != nil:
		return workgraph.Outcome{}, context.Cause(ctx)
	case limited.Err() != nil:
		return workgraph.Outcome{}, late
	}
	return workgraph.Outcome{}, r.typed(err)
}

// run is one run of a script.
type run struct {
	thread *star.Thread
	meter  *meter
	report actor.Reporter
	prints int
}

// print tells those who watch the run. What is printed is no part of the result.
func (r *run) print(_ *star.Thread, text string) {
	if r.prints++; r.prints > maxPrints {
		return
	}
	raw, err := json.Marshal(map[string]string{"print": errs.Clip(text, maxPrinted)})
	if err == nil {
		r.report.Progress(raw)
	}
}

// script is the result of the script as JSON.
func (r *run) script(text string, c *workgraph.Call) (json.RawMessage, error) {
	env := r.meter.environment()
	p, err := compile(text, env)
	if err != nil {
		return nil, err
	}
	args, named, err := r.inputs(c)
	if err != nil {
		return nil, err
	}
	env["args"], env["named"] = args, named
	globals, err := p.Init(r.thread, env)
	if err != nil {
		return nil, err
	}
	v, err := r.result(globals, args, named)
	if err != nil {
		return nil, err
	}
	return r.meter.encode(v, maxResult)
}

// inputs are the arguments of the call without those of the actor itself.
func (r *run) inputs(c *workgraph.Call) (args *star.List, named *star.Dict, err error) {
	list := make([]star.Value, len(c.Args))
	for i, raw := range c.Args {
		if list[i], err = r.meter.value(raw); err != nil {
			return nil, nil, fmt.Errorf("args[%d]: %w", i, err)
		}
	}
	named = star.NewDict(len(c.Named))
	var names []string
	for name := range c.Named {
		if name != "script" && name != "max_steps" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		v, err := r.meter.value(c.Named[name])
		if err != nil {
			return nil, nil, fmt.Errorf("named.%s: %w", name, err)
		}
		if err := named.SetKey(star.String(name), v); err != nil {
			return nil, nil, err
		}
	}
	return star.NewList(list), named, nil
}

var errNoResult = errors.New("the script gives no result: bind one to result, or define the function main")

// result is what the script bound to result, or what its main returns.
func (r *run) result(globals star.StringDict, args *star.List, named *star.Dict) (star.Value, error) {
	bound := globals["result"]
	main, ok := globals["main"].(*star.Function)
	switch {
	case ok && bound != nil:
		return nil, errors.New("the script has both result and main: leave one out")
	case bound != nil:
		return bound, nil
	case !ok:
		return nil, errNoResult
	}
	positional, kwargs := bind(main, args, named)
	return star.Call(r.thread, main, positional, kwargs)
}

// bind says what main is called with. A parameter gets the named argument of its name, else the next
// positional one. What no parameter takes only passes through this node.
func bind(main *star.Function, args *star.List, named *star.Dict) (positional star.Tuple, kwargs []star.Tuple) {
	plain := main.NumParams()
	if main.HasKwargs() {
		plain--
	}
	if main.HasVarargs() {
		plain--
	}
	next := 0
	taken := map[string]bool{}
	for i := range plain {
		name, _ := main.Param(i)
		v, given, _ := named.Get(star.String(name)) // a text can be looked up
		mayBePlaced := i < plain-main.NumKwonlyParams()
		switch {
		case given:
		case mayBePlaced && next < args.Len():
			v = args.Index(next)
			next++
		default:
			continue
		}
		taken[name] = true
		// With *args the parameters before it have to be placed, as long as none was left out.
		if main.HasVarargs() && mayBePlaced && len(positional) == i {
			positional = append(positional, v)
		} else {
			kwargs = append(kwargs, star.Tuple{star.String(name), v})
		}
	}
	if main.HasVarargs() && len(positional) == plain-main.NumKwonlyParams() {
		for ; next < args.Len(); next++ {
			positional = append(positional, args.Index(next))
		}
	}
	if main.HasKwargs() {
		for _, kv := range named.Items() {
			if name, _ := kv[0].(star.String); !taken[string(name)] {
				kwargs = append(kwargs, kv)
			}
		}
	}
	return positional, kwargs
}

// place is how go.starlark.net writes where an error is.
var place = regexp.MustCompile(`^script:(\d+):(\d+): `)

// where says where the error of a text is.
func where(err error) string {
	return place.ReplaceAllString(errs.Clip(err.Error(), maxWords), "line $1, column $2: ")
}

// typed is the error of a script as the engine takes it: what went wrong, and the line.
func (r *run) typed(err error) error {
	if e, ok := errors.AsType[*workgraph.Error](err); ok {
		return e
	}
	reason, message := ReasonFailed, err.Error()
	if s := r.meter.over.Load(); s != nil {
		reason, message = s.reason, s.message
	} else if s, ok := errors.AsType[*stop](err); ok {
		reason, message = s.reason, s.message
	} else if e, ok := errors.AsType[*star.EvalError](err); ok {
		message = e.Msg
	}
	if e, ok := errors.AsType[*star.EvalError](err); ok {
		for i := range e.CallStack { // the innermost place in the script
			if f := e.CallStack.At(i); f.Pos.Filename() == "script" && f.Pos.Line > 0 {
				message = fmt.Sprintf("line %d, column %d: %s", f.Pos.Line, f.Pos.Col, message)
				break
			}
		}
	}
	return workgraph.Errorf(workgraph.Permanent, reason, "%s", errs.Clip(message, maxWords))
}
