// Package form parses a text in any notation into trees: outlines of headings, list entries, tables and
// lines; values of JSON, Python, YAML, XML and tables; statements of code; nodes and links of diagrams. It
// does not interpret the parts. Every part knows its place, a byte offset in the given text.
package form

// ItemKind is the kind of an item of an outline.
type ItemKind uint8

const (
	// Heading is a heading of Markdown, org-mode or the like, or a bold or underlined line that serves as
	// one.
	Heading ItemKind = iota
	// Entry is an entry of a list, or a line that begins with a number, a letter or a label like an entry.
	Entry
	// Plain is a line without a mark.
	Plain
	// Row is a line of a Markdown table.
	Row
)

// Item is one part of an outline with everything below it.
type Item struct {
	Kind ItemKind
	// Level is the 1-based level of a heading. A bold line by itself has level 7.
	Level int
	// Bullet is the sign of a list entry ('-', '*', '+', '•', …) or 0. Box is the content of a check box ('
	// ', 'x', '-', or 'T' for a TODO keyword), or 0 if there is none. Indent is the column at which the item
	// begins.
	Bullet rune
	Box    byte
	Indent int
	// State is the org-mode keyword before the title, as written. Tags are the tags behind it: "home,
	// garden".
	State, Tags string
	// Mark is the number, letter or label in front of the text.
	Mark Mark
	// Text is the line behind bullet, box and mark. Signs of emphasis (**, __, `, ~~) are blanked, so
	// TextOff+i is the place of Text[i] in the source. Struck is set if all of the text is struck through.
	Text    string
	TextOff int
	Struck  bool
	// Strong is the length of the emphasized part at the start of Text, 0 if there is none.
	Strong int
	// Gap is set if there is a blank line before the item.
	Gap bool
	// Kids are the parts of the item: nested entries and continuation lines. The kids of a heading are
	// everything up to the next heading.
	Kids []*Item
	// Off and End delimit the item, including its kids.
	Off, End int
	line     string // the whole line, with emphasis blanked
	bold     int    // end of the emphasized text at the start of the line
	// led is a mark followed by an arrow; the mark may be one end of a link.
	led   Mark
	opens bool // the line announces the marked entry behind it
}

// MarkStyle is the notation of a mark.
type MarkStyle uint8

const (
	// NoMark means that there is no mark.
	NoMark MarkStyle = iota
	// Number is 1, 1.2, ١, １, 1️⃣, ① or (3).
	Number
	// Letter is a) or B. or iv).
	Letter
	// Lettered is a number with a letter: 1a, 2-b.
	Lettered
	// Spelled is a number in words: One, third, первый, 第三.
	Spelled
	// Code is a label such as T1, AP-3, WP2.1, ABC-12, #E1, shown as written.
	Code
	// Word is a label written like an identifier, before a colon or in brackets: fetch_data: …, [build] ….
	Word
)

// Mark distinguishes an entry from its siblings: "2" in "2. dig", "Step 2: dig" and "② dig", "T2" in "[T2]
// dig".
type Mark struct {
	Style MarkStyle
	// Label is the id as shown, without the noun and the signs around it: "2", "1a", "T2", "One", "1.2".
	Label string
	// Noun is the noun before the label, such as "Step" or "任务", or empty.
	Noun string
	// Path holds the numbers of 1.2.3. Most other styles have a single number (2 for b, 3 for III); Code and
	// Word have none.
	Path []int
	// Weak is set if only a space follows the mark. The mark may then be part of the text: "12 eggs", "T1
	// dig".
	Weak     bool
	Off, End int
}
