// Package plan reads the plan that a language model wrote. It returns the problem graph that the text states:
// problems, their dependencies, the place of each of them, and every fault. The package owns the dialects,
// the diagnostics and the canonical form. It is pure: it has no I/O, no clock and no proto, and knows nothing
// of how a graph is run.
package plan

import (
	"context"
	"encoding/json"
	"fmt"
)

// EdgeSource says what an edge was read from.
type EdgeSource string

const (
	// Stated edges are written as edges: arrows, dependency lists, links.
	Stated EdgeSource = "STATED"
	// Variable edges come from a problem that uses a value of another one.
	Variable EdgeSource = "VARIABLE"
	// Numbering edges come from the numbers of the steps.
	Numbering EdgeSource = "NUMBERING"
	// RunningText edges come from sentences: of a plan in prose, or around a list, a table or a drawing.
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
	// Info is a remark; it reports no fault of the plan.
	Info Severity = "INFO"
)

// Graph is the content of a plan. Problems and edges are in the order of the text. Duplicates are kept, and
// edges may name problems that do not exist: reading does not hide such faults, and Validate reports them.
type Graph struct {
	Problems []Problem
	Edges    []Edge
}

// Problem is one unit of work. ParentID is set in hierarchies. A parent only groups other problems; it is not
// run.
type Problem struct {
	ID       string
	Request  string
	ParentID string
	// Details is the text below the request of the problem, as it is written: lines joined by "\n", without
	// their common indentation. For code it is the body. Only outlines and code fill it. It is part of Hash,
	// and package compile appends it to the request.
	Details string
	// Tool names the tool or function of this problem, or is empty.
	Tool string
	// Args are the arguments of this problem, in the order of the text.
	Args []Arg
	// Refs are the uses of other problems' results in the text.
	Refs []Reference
	// Line and Column are 1-based; columns count runes.
	Line, Column int
}

// ArgKind is the type of an argument's value.
type ArgKind string

const (
	// Literal is a complete value; Value holds it as JSON.
	Literal ArgKind = "LITERAL"
	// Referring is a value that uses the result of another problem, alone or within a text. Value holds the
	// text as JSON.
	Referring ArgKind = "REFERRING"
)

// Arg is one argument of a problem. Name is empty for positional arguments. What the text says of an edge,
// such as the label of an arrow or the reason of a link, is an argument of the later problem, named "a -> b".
type Arg struct {
	Name  string
	Kind  ArgKind
	Value string
}

// JSON returns the value as JSON. It is Value itself, or Value as a JSON string if Value holds plain text,
// which is possible in graphs that Parse did not read.
func (a Arg) JSON() json.RawMessage {
	if json.Valid([]byte(a.Value)) {
		return json.RawMessage(a.Value)
	}
	b, _ := json.Marshal(a.Value) // a string always marshals
	return b
}

// Reference is one use of another problem's result. Text is the reference as written, To the id of the
// problem, and Path the part of its result.
type Reference struct {
	Text, To, Path string
	// Arg is the name of the argument that holds the reference, or empty.
	Arg          string
	Line, Column int
}

// Edge says that From comes before To.
type Edge struct {
	From, To     string
	Source       EdgeSource
	Line, Column int
}

// Diagnostic is one fault or doubt. Code is stable. Element names the problem, edge or token concerned.
type Diagnostic struct {
	Code     Code
	Severity Severity
	// Line and Column are 1-based; columns count runes. Both are 0 if the diagnostic concerns the whole plan.
	Line, Column int
	Element      string
	Message      string
	Hint         string
}

// String renders the diagnostic on one line.
func (d Diagnostic) String() string {
	return fmt.Sprintf("%d:%d: %s %s %q: %s", d.Line, d.Column, d.Severity, d.Code, d.Element, d.Message)
}

// Repair is a change that makes a text readable or a graph valid. An applied repair was needed to read the
// text. An offered repair is a suggestion; the graph does not contain it.
type Repair struct {
	Code    Code
	Message string
	Line    int
	Column  int
	Applied bool
	// Renames is set for REUSED_TOOL: the new ids of the problems, by their position in Graph.Problems.
	Renames []string
}

// NoPlan is the result for a text that holds no plan.
type NoPlan struct {
	Reason  NoPlanReason
	Message string
}

// NoPlanReason says what the text is instead of a plan.
type NoPlanReason string

const (
	// EmptyText means that there is only white space.
	EmptyText NoPlanReason = "EMPTY_TEXT"
	// Refusal means that the model declined or said that it cannot plan.
	Refusal NoPlanReason = "REFUSAL"
	// NotAGraph means structured text of another kind: a ledger, a review, a verdict.
	NotAGraph NoPlanReason = "NOT_A_GRAPH"
	// Prose means running text in which no dialect was found.
	Prose NoPlanReason = "PROSE"
	// TooLarge means that a limit stopped reading before anything was found.
	TooLarge NoPlanReason = "TOO_LARGE"
)

// Result is the complete result of reading a text.
type Result struct {
	// Dialect is the name of the dialect that the text was read in; empty if NoPlan is set.
	Dialect string
	// NoPlan is set if the text holds no plan; the graph is then empty.
	NoPlan      *NoPlan
	Graph       Graph
	Diagnostics []Diagnostic
	Repairs     []Repair
	// Surroundings are the lines of the caller's text that are part of no problem, in order: prose, legends
	// and notes before, between and behind the problems. A line of a value that holds both, such as {"goal":
	// "tea", "tasks": […]}, is included. Surroundings affect only the order of the plan. Blank lines, code
	// fences and thoughts are left out. Nil if NoPlan is set.
	Surroundings []LineRange
}

// LineRange is a range of 1-based lines. Both ends are included.
type LineRange struct{ First, Last int }

// HasErrors reports whether there is a diagnostic of severity Error. NoPlan is a result, not an error.
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
	// MaxBytes bounds the text; text beyond it is not read. Default 1 MiB.
	MaxBytes int
	// MaxProblems and MaxEdges bound the graph, in every dialect. Defaults 10,000 and 100,000.
	MaxProblems, MaxEdges int
	// MaxDepth bounds the nesting of brackets, elements and hierarchies. Default 200.
	MaxDepth int
}

type options struct {
	limits   Limits
	dialect  string
	complete bool
	ctx      context.Context //nolint:containedctx // it lives as long as the one call that it is for
}

// ended reports whether the caller no longer waits for the result.
func (o *options) ended() bool { return o.ctx != nil && o.ctx.Err() != nil }

// Option changes how Parse reads.
type Option func(*options)

// WithLimits replaces the default limits; zero fields keep their defaults.
func WithLimits(l Limits) Option { return func(o *options) { o.limits = l } }

// WithDialect reads the text as the named dialect only. An unknown name gives NoPlan with a diagnostic.
func WithDialect(name string) Option { return func(o *options) { o.dialect = name } }

// WithContext stops the reading soon after ctx ends. The result of Parse is of no use then.
func WithContext(ctx context.Context) Option { return func(o *options) { o.ctx = ctx } }

// WithComplete says that the text is complete, because the model reported that it stopped by itself. Dialects
// without an end mark then do not warn that the text may have been cut off.
func WithComplete() Option { return func(o *options) { o.complete = true } }
