// Package meaning decides what the trees of package form say when they are read as a plan: which parts are problems, what
// their ids are, which attributes and words are dependencies and which way they run. It goes by evidence, not by families:
// names in many languages (package lexicon) and values (a field whose values are ids of others is a reference).
package meaning

import "github.com/epigraph-run/epigraph/plan/internal/form"

// Source says what in the text a link was read from. The values are those of plan.EdgeSource.
type Source string

const (
	Stated      Source = "STATED"
	Variable    Source = "VARIABLE"
	Numbering   Source = "NUMBERING"
	Prose       Source = "PROSE"
	ListedOrder Source = "LISTED_ORDER"
)

// Item is one problem, or a group of problems.
type Item struct {
	// ID is the id as the text shows it. Shown is false when the text shows none and ID was made up from its place.
	ID    string
	Shown bool
	// Title is the request in one line or more.
	Title string
	// Also are other names by which the text may refer to it: a title, a variable, a file that it makes.
	Also []string
	// Parent is the place of its group in Reading.Items, or -1.
	Parent int
	Attrs  []Attr
	Off    int
	End    int
}

// Attr is something that the text says of an item and that is no dependency. Value is JSON.
type Attr struct {
	Key   string
	Role  string // "tool", "args", "owner", "duration", "status", "note", or "" when nobody knows
	Value string
	Off   int
}

// Link says that From comes before To; both are ids as shown, and may be ids that no item has.
type Link struct {
	From, To string
	Source   Source
	Off      int
}

// Note is a fault or a doubt; Severity and Code are those of package plan.
type Note struct {
	Severity, Code, Element, Message, Hint string
	Off                                    int
}

// Reading is what a part of the text says when it is read as a plan.
type Reading struct {
	// Form names the kind of text: "outline", "records", "table", "diagram", "code", "prose".
	Form  string
	Items []Item
	Links []Link
	Notes []Note
	// Stated is set when the text states dependencies, even if it is to say that there are none.
	Stated bool
	// Start and End delimit what was read. Open is set when nothing marks the end of the plan and it runs to the end of the text.
	Start, End int
	Open       bool
	// Weight says how sure it is that this is a plan, from 0 (it is not) to 100; Evidence says why.
	Weight   int
	Evidence []string
}

var _ = form.Entry
