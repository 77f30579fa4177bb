// Package meaning decides what a text says when it is read as a plan: which of its parts are problems, what
// their ids are, which attributes and words are dependencies and which way they run. It goes by evidence, not
// by families: names in many languages (package lexicon) and values (a field whose values are ids of others
// is a reference). It reads the trees that package form makes of a text.
//
// Which file does what; data flows from the first group to the last one:
//
//   - words: lists, mood, tones, names, mentions, references, relations…, remarks, ditto. Whether a clause
//     demands something, which item words mean, and how they relate items.
//   - readers, one for each form: outline with groups, runs, statements, web and details; records…; code…;
//     diagram…; prose…. What a text is instead of a plan stands in notcode, notgraph and notplan.
//   - amending: correct…, uncovered, outside. What sentences around a plan change, and what was not read.
//   - choosing: read, choice, section, other. Which reading counts, and what another one says.
//
// Reading, Item and Link (this file) are what the readers make and the others use. The groups are one package
// since the readers of records and of code read the words of their texts as the outline does, and corrections
// read steps again.
package meaning

import "github.com/epigraph-run/epigraph/plan/internal/form"

// Source says what in the text a link was read from. The values are those of plan.EdgeSource.
type Source string

// The sources of links.
const (
	Stated      Source = "STATED"
	Variable    Source = "VARIABLE"
	Numbering   Source = "NUMBERING"
	Prose       Source = "PROSE"
	ListedOrder Source = "LISTED_ORDER"
)

// Item is one problem, or a group of problems.
type Item struct {
	// ID is the id as the text shows it. Shown is false when the text shows none and ID was made up from its
	// place.
	ID    string
	Shown bool
	// Title is the request in one line or more.
	Title string
	// Details are the lines below the title that belong to the item alone and are no fields, as written.
	Details string
	// Also are other names by which the text may refer to it: a title, a variable, a file that it makes.
	Also []string
	// Parent is the place of its group in Reading.Items, or -1.
	Parent int
	Attrs  []Attr
	Refs   []Ref
	// Off and End delimit all text that belongs to the item alone.
	Off, End int
}

// Attr is something that the text says of an item and that is no dependency. Value is JSON, or a plain text.
// Key is empty for positional arguments.
type Attr struct {
	Key   string
	Role  Role
	Value string
	// Refers tells that another item's result is used in it.
	Refers bool
	Off    int
}

// Role says what an attribute is, when that is known.
type Role string

// The roles of attributes.
const (
	Tool     Role = "tool"
	Args     Role = "args"
	Owner    Role = "owner"
	Duration Role = "duration"
	Status   Role = "status"
	Detail   Role = "note"
)

// Ref is a use of another item's result inside an item's attributes: Text as written, To the id, Path the
// part of the result, Arg the attribute it stands in.
type Ref struct {
	Text, To, Path, Arg string
	Off                 int
}

// Link says that From comes before To; both are ids as shown, and may be ids that no item has.
type Link struct {
	From, To string
	Source   Source
	Off      int
	// Says is what the text says of the link besides, as JSON: the label of an arrow, the reason of a link.
	Says string
}

// Note is a fault or a doubt. Code is one of package plan's, Fault makes it an ERROR; else it is a WARNING.
type Note struct {
	Fault                        bool
	Code, Element, Message, Hint string
	Off                          int
}

// Span is a part of the text.
type Span struct{ Off, End int }

// Reading is what a part of the text says when it is read as a plan.
type Reading struct {
	// Form names the kind of text: "outline", "records", "table", "diagram", "code", "prose".
	Form  string
	Items []Item
	Links []Link
	Notes []Note
	// Stated is set when the text states dependencies, even if only to say that there are none. When it is
	// not set, and there are no links, the items follow one another as they are listed.
	Stated bool
	// Start and End delimit what was read. Open is set when nothing marks the end of the plan and it runs to
	// the end of the text.
	Start, End int
	Open       bool
	// Around are lines that are part of no item, wherever they stand; what they say of the order counts. They
	// become plan.Result.Surroundings.
	Around []Span
	// root is the value that the records stand in, outer those with the texts that records were read out of.
	root  *form.Value
	outer []*form.Value
	// beside are the places of items that stand in something else, which is part of none.
	beside []Span
	// Apart tells that the records stand one by one in the text.
	Apart bool
	// demands tells that most of the items say what to do.
	demands bool
	// remarked tells that most arrows of a drawing stand before words that relate a step.
	remarked bool
	// ids are those of a list, while it is compared with other readings.
	ids map[string]bool
	// left are other lists of the text, which were not read.
	left []Span
	// Weight says how sure it is that this is a plan. 90 and more: formal structure with ids and references
	// that fit (records with dependencies, a diagram). 70 to 89: ids and stated relations (a numbered list
	// with "after 2", a table with predecessors). 50 to 69: announced steps or imperatives without relations.
	// 30 to 49: doubtful, better than nothing. Below 30 it is no plan. Evidence says why.
	Weight   int
	Evidence []string
	// Not is set when the text is understood, and is no plan: it says what the text is instead.
	Not string
}
