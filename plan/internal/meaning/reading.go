// Package meaning reads a text as a plan: it decides which parts of the text are problems, what their ids
// are, which attributes and words are dependencies, and which way these run. It relies on evidence rather
// than on known kinds of plans: names in many languages (package lexicon) and values (a field that holds
// ids of other records is a reference). Its input is the trees that package form makes of a text.
//
// The files, in the direction of the data flow:
//
//   - words: lists, mood, tones, names, mentions, references, relations…, remarks, ditto. They tell whether a
//     clause demands something, which item a word means, and how words relate items.
//   - readers, one for each form: outline with groups, runs, statements, linker and details; records…; code…;
//     diagram…; prose…. Texts that are no plan are recognized in notcode, notgraph and notplan.
//   - amending: correct…, uncovered, outside. They apply the sentences around a plan, and find text that was
//     not read.
//   - choosing: read, choice, section, other. They choose between readings and compare them.
//
// Reading, Item and Link, in this file, are made by the readers and used by all others. The groups are one
// package because the readers of records and code need the words like the outline, and because corrections
// read steps again.
package meaning

import "github.com/epigraph-run/epigraph/plan/internal/form"

// Source is the part of a text that states a link. The values are those of plan.EdgeSource.
type Source string

// The sources of links.
const (
	Stated      Source = "STATED"
	Variable    Source = "VARIABLE"
	Numbering   Source = "NUMBERING"
	Prose       Source = "PROSE"
	ListedOrder Source = "LISTED_ORDER"
)

// Item is a problem or a group of problems.
type Item struct {
	// ID is the id as the text shows it. If Shown is false, the text shows none and ID was made from the
	// item's position.
	ID    string
	Shown bool
	// Title is the request, in one or more lines.
	Title string
	// Details are the lines below the title that belong only to the item and are no fields, verbatim.
	Details string
	// Also are other names for the item in the text: a title, a variable, a file that it makes.
	Also []string
	// Parent is the index of its group in Reading.Items, or -1.
	Parent int
	Attrs  []Attr
	Refs   []Ref
	// Off and End delimit the text that belongs only to the item.
	Off, End int
}

// Attr is an attribute of an item that is no dependency. Value is JSON or plain text. Key is empty for
// positional arguments.
type Attr struct {
	Key   string
	Role  Role
	Value string
	// Refers is set if the value uses the result of another item.
	Refers bool
	Off    int
}

// Role is the role of an attribute, or "" if it is unknown.
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

// Ref is a use of another item's result in an attribute. Text is the reference as written, To the other
// item's id, Path the part of the result, and Arg the key of the attribute.
type Ref struct {
	Text, To, Path, Arg string
	Off                 int
}

// Link says that From comes before To. Both are ids as shown; a link may name ids that no item has.
type Link struct {
	From, To string
	Source   Source
	Off      int
	// Says holds more information about the link, as JSON: the label of an arrow, or the reason for a link.
	Says string
}

// Note is a fault or a doubt. Code is one of package plan's codes. A note with Fault is an ERROR, otherwise a
// WARNING.
type Note struct {
	Fault                        bool
	Code, Element, Message, Hint string
	Off                          int
}

// Span is a part of the text: the bytes [Off, End).
type Span struct{ Off, End int }

// Reading is a part of the text, read as a plan.
type Reading struct {
	// Form is the form of the text: "outline", "records", "table", "diagram", "code" or "prose".
	Form  string
	Items []Item
	Links []Link
	Notes []Note
	// Stated is set if the text states dependencies, or states that there are none. If it is not set and
	// there are no links, each item follows the one listed before it.
	Stated bool
	// Start and End delimit the text that was read. Open is set if nothing marks the end of the plan, so that
	// it extends to the end of the text.
	Start, End int
	Open       bool
	// Around are lines that belong to no item but may state the order. They become plan.Result.Surroundings.
	Around []Span
	// root is the value that contains the records. outer are the values whose texts contained records.
	root  *form.Value
	outer []*form.Value
	// outside are spans that belong to no item, besides parts of root and outer: the values around records,
	// and the uncovered parts of joined readings.
	outside []Span
	// Apart is set if the records stand one by one in the text.
	Apart bool
	// demands is set if most items demand something.
	demands bool
	// remarked is the result of pointsAtWords for drawings of arrows.
	remarked bool
	// ids caches the ids of the items for knows.
	ids map[string]bool
	// left are other lists in the text, which were not read.
	left []Span
	// Weight is the confidence that this is a plan. 90 and more: a formal structure with ids and matching
	// references (records with dependencies, a diagram). 70 to 89: ids and stated relations (a numbered list
	// with "after 2", a table with predecessors). 50 to 69: announced steps or imperatives without relations.
	// 30 to 49: doubtful, but better than nothing. Below 30: no plan. Evidence holds the reasons.
	Weight   int
	Evidence []string
	// Not is set if the text was understood and is no plan. It says what the text is instead.
	Not string
}
