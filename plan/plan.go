// Package plan reads the plan that a language model wrote and returns the problem graph that the text states:
// problems, the dependencies between them, where each of them stands, and everything that is wrong with it.
// It owns the dialects, the diagnostics and the canonical form. It is pure: it knows no I/O, no clock, no
// proto, and nothing of how a graph is run.
package plan

import (
	"context"
	"encoding/json"
	"fmt"
)

// EdgeSource says what in the text an edge was read from.
type EdgeSource string

const (
	// Stated edges are written down as edges: arrows, dependency lists, links.
	Stated EdgeSource = "STATED"
	// Variable edges come from one problem using a value that another one produces.
	Variable EdgeSource = "VARIABLE"
	// Numbering edges come from the numbers that a text gives its steps.
	Numbering EdgeSource = "NUMBERING"
	// RunningText edges were read from sentences: of a plan in prose, or around a list, a table or a drawing.
	RunningText EdgeSource = "PROSE"
	// ListedOrder edges are assumed: the text lists problems and states nothing about their order.
	ListedOrder EdgeSource = "LISTED_ORDER"
)

// Severity says whether a diagnostic stops compilation.
type Severity string

const (
	// Error stops compilation.
	Error Severity = "ERROR"
	// Warning is recorded and does not stop compilation.
	Warning Severity = "WARNING"
	// Info is worth knowing and says nothing against the plan.
	Info Severity = "INFO"
)

// Graph is what a plan says. Problems and edges are in the order of the text, duplicates are kept, and edges
// may name problems that are not there: Validate reports such faults, reading does not hide them.
type Graph struct {
	Problems []Problem
	Edges    []Edge
}

// Problem is one unit of work. ParentID is set in hierarchies; a problem that is a parent groups others and
// is not run itself.
type Problem struct {
	ID       string
	Request  string
	ParentID string
	// Details is what the text says of the problem below its request, as it is written: lines joined by "\n",
	// without the indentation that they share; of code, its body. Only outlines and code fill it. It counts
	// in Hash, and package compile puts it behind the request.
	Details string
	// Tool names the tool or function that the text gives this problem, or is empty.
	Tool string
	// Args are the arguments that the text gives this problem, in its order.
	Args []Arg
	// Refs are the uses of other problems' results found in the text.
	Refs []Reference
	// Line and Column are 1-based; columns count runes.
	Line, Column int
}

// ArgKind is the type of an argument's value.
type ArgKind string

const (
	// Literal is a value given in full; Value holds it as JSON.
	Literal ArgKind = "LITERAL"
	// Referring is a value that contains or is a use of another problem's result; Value holds the text as
	// JSON.
	Referring ArgKind = "REFERRING"
)

// Arg is one argument of a problem. Name is empty for positional ones. What the text says of an edge, such as
// the label of an arrow or the reason of a link, is an argument of the later problem, named "a -> b".
type Arg struct {
	Name  string
	Kind  ArgKind
	Value string
}

// JSON is the value as JSON: Value itself, or as a string where a graph that was not read by Parse holds
// plain text in it.
func (a Arg) JSON() json.RawMessage {
	if json.Valid([]byte(a.Value)) {
		return json.RawMessage(a.Value)
	}
	b, _ := json.Marshal(a.Value) // a string always marshals
	return b
}

// Reference is one use of another problem's result: Text as written, To the problem's id, Path the part of
// its result.
type Reference struct {
	Text, To, Path string
	// Arg is the name of the argument it stands in, or empty.
	Arg          string
	Line, Column int
}

// Edge says that From comes before To.
type Edge struct {
	From, To     string
	Source       EdgeSource
	Line, Column int
}

// Diagnostic is one fault or doubt. Code is stable; Element names the problem, edge or token concerned.
type Diagnostic struct {
	Code     Code
	Severity Severity
	// Line and Column are 1-based, columns count runes; 0 when the diagnostic concerns the whole plan.
	Line, Column int
	Element      string
	Message      string
	Hint         string
}

// String renders the diagnostic on one line.
func (d Diagnostic) String() string {
	return fmt.Sprintf("%d:%d: %s %s %q: %s", d.Line, d.Column, d.Severity, d.Code, d.Element, d.Message)
}

// Repair is a change that makes a text readable or a graph valid. An applied one was needed to read the text
// at all; an offered one is a suggestion, and the graph is what it was without it.
type Repair struct {
	Code    Code
	Message string
	Line    int
	Column  int
	Applied bool
	// Renames is set by REUSED_TOOL: new ids of the problems, by their position in Graph.Problems.
	Renames []string
}

// NoPlan is the answer to a text that holds no plan.
type NoPlan struct {
	Reason  NoPlanReason
	Message string
}

// NoPlanReason says what the text is instead of a plan.
type NoPlanReason string

const (
	// EmptyText means there is nothing but white space.
	EmptyText NoPlanReason = "EMPTY_TEXT"
	// Refusal means that the model declined or said that it cannot plan.
	Refusal NoPlanReason = "REFUSAL"
	// NotAGraph means structured text that is something else: a ledger, a review, a verdict.
	NotAGraph NoPlanReason = "NOT_A_GRAPH"
	// Prose means running text in which no dialect was found.
	Prose NoPlanReason = "PROSE"
	// TooLarge means that a limit stopped reading before anything was found.
	TooLarge NoPlanReason = "TOO_LARGE"
)

// Result is everything that reading a text gives.
type Result struct {
	// Dialect is the name of the dialect the text was read as; empty when NoPlan is set.
	Dialect string
	// NoPlan is set when the text holds no plan; then the graph is empty.
	NoPlan      *NoPlan
	Graph       Graph
	Diagnostics []Diagnostic
	Repairs     []Repair
	// Surroundings are the lines of the caller's text that are part of no problem, in order: prose, legends,
	// notes before, between and behind the problems; of a value also a line that holds both, as
	// {"goal": "tea", "tasks": […]} does. They count only for what they say of the order. Blank lines,
	// code fences and thoughts are not named. Nil when NoPlan is set.
	Surroundings []LineRange
}

// LineRange names lines of the text, from 1. Both ends belong to it.
type LineRange struct{ First, Last int }

// HasErrors reports whether a diagnostic of severity Error is there. "No plan" is an answer, not an error.
func (r Result) HasErrors() bool {
	for _, d := range r.Diagnostics {
		if d.Severity == Error {
			return true
		}
	}
	return false
}

// Limits bound what Parse reads. A zero field means its default.
type Limits struct {
	// MaxBytes bounds the text; the rest is not read. Default 1 MiB.
	MaxBytes int
	// MaxProblems and MaxEdges bound the graph, whatever it is read from. Defaults 10,000 and 100,000.
	MaxProblems, MaxEdges int
	// MaxDepth bounds nesting of brackets, elements and hierarchies. Default 200.
	MaxDepth int
}

type options struct {
	limits   Limits
	dialect  string
	complete bool
	ctx      context.Context //nolint:containedctx // it lives as long as the one call that it is for
}

// ended reports whether nobody waits for the result any more.
func (o *options) ended() bool { return o.ctx != nil && o.ctx.Err() != nil }

// Option changes how Parse reads.
type Option func(*options)

// WithLimits replaces the default limits; zero fields keep their defaults.
func WithLimits(l Limits) Option { return func(o *options) { o.limits = l } }

// WithDialect reads the text as the named dialect only. An unknown name gives NoPlan with a diagnostic.
func WithDialect(name string) Option { return func(o *options) { o.dialect = name } }

// WithContext stops the reading soon after ctx ends; what Parse returns then is of no use.
func WithContext(ctx context.Context) Option { return func(o *options) { o.ctx = ctx } }

// WithComplete says that the text is known to be complete, because the model reported that it stopped by
// itself. Then dialects without an end mark do not warn that the text may have been cut off.
func WithComplete() Option { return func(o *options) { o.complete = true } }
