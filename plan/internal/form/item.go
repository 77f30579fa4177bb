// Package form brings a text into trees, whatever it is written in: an outline of headings, list entries,
// tables and lines; values of JSON, Python, YAML, XML and tables; statements of code; nodes and links of
// diagrams. It decides nothing about what the parts mean. Every part knows its place: an offset in bytes in
// the text that was given.
package form

// ItemKind says what an item of an outline is.
type ItemKind uint8

const (
	// Heading is a heading of Markdown, org-mode and the like, or a line that stands for one: bold, or
	// underlined.
	Heading ItemKind = iota
	// Entry is an entry of a list, or a line that begins with a number, a letter or a label as entries do.
	Entry
	// Plain is a line without a mark.
	Plain
	// Row is a line of a table of Markdown.
	Row
)

// Item is one part of an outline with everything that stands below it.
type Item struct {
	Kind ItemKind
	// Level is the level of a heading, from 1; a bold line that stands alone has 7.
	Level int
	// Bullet is the sign of a list entry ('-', '*', '+', '•', …) or 0. Box is what a check box holds (' ',
	// 'x', '-', or 'T' for a TODO keyword), or 0 when there is none. Indent is the column at which the item
	// begins.
	Bullet rune
	Box    byte
	Indent int
	// State is the keyword of org-mode before the title, as written. Tags are those behind it: "home,
	// garden".
	State, Tags string
	// Mark is the number, letter or label in front of the text.
	Mark Mark
	// Text is the line behind bullet, box and mark. Signs of emphasis (**, __, `, ~~) are blanked, so that
	// TextOff+i is the place of Text[i] in the source. Struck tells that all of it is struck through.
	Text    string
	TextOff int
	Struck  bool
	// Strong is the length of the part at the beginning of Text that is emphasized, 0 for none.
	Strong int
	// Gap tells that a blank line stands before the item.
	Gap bool
	// Kids are what belongs to it: sub-entries, lines that go on, and, of headings, all that follows up to
	// the next one.
	Kids []*Item
	// Off and End delimit the item with its kids.
	Off, End int
	line     string // the whole line, emphasis blanked
	bold     int    // where the emphasized text at the beginning of the line ends
	// led is a mark that an arrow follows, which may be one end of a link.
	led   Mark
	opens bool // a line that announces the marked entry behind it
}

// MarkStyle says how a mark is written.
type MarkStyle uint8

const (
	// NoMark is no mark at all.
	NoMark MarkStyle = iota
	// Number is 1, 1.2, ١, １, 1️⃣, ① or (3).
	Number
	// Letter is a) or B. or iv).
	Letter
	// Lettered is a number with a letter: 1a, 2-b.
	Lettered
	// Spelled is a number in words: One, third, первый, 第三.
	Spelled
	// Code is a label such as T1, AP-3, WP2.1, ABC-12, #E1; it is shown as it is.
	Code
	// Word is a label in the way of an identifier, before a colon or in brackets: fetch_data: …, [build] ….
	Word
)

// Mark is what tells an entry from its siblings: "2" in "2. dig", "Step 2: dig" and "② dig", "T2" in "[T2]
// dig".
type Mark struct {
	Style MarkStyle
	// Label is the id as shown, without the word and the signs around it: "2", "1a", "T2", "One", "1.2".
	Label string
	// Noun is the word before it, as "Step" or "任务", or empty.
	Noun string
	// Path holds the numbers of 1.2.3, the one number of most others (2 for b, III is 3), nothing of Code and
	// Word.
	Path []int
	// Weak tells that only a space follows, so that it may be part of the text: "12 eggs", "T1 dig".
	Weak     bool
	Off, End int
}
