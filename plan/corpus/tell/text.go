// Package tell makes texts that hold a plan, together with what each of them says: a random graph comes first
// and is then told in words, in a style and a language. It owns the phrases (phrases/*.txt) and the styles;
// it knows nothing of the reader that is measured with its texts.
package tell

import "hash/crc32"

// Text is a text with its truth: what a careful human reads in it.
type Text struct {
	// ID is style/name; it is unique in its source.
	ID, Style, Lang string
	Body            string
	// NoPlan says that the text is no plan; then Nodes and Edges are empty.
	NoPlan bool
	// Nodes are the ids that the text shows, in its order. With Hidden the text shows none: each node is then
	// a piece of its own step's words.
	Nodes  []string
	Hidden bool
	// Edges are pairs of nodes, the earlier one first. With EdgesOpen they are not judged.
	Edges     []Edge
	EdgesOpen bool
	// Alt are other ids that a human would accept, each list as long as Nodes.
	Alt [][]string
	// PartsOK says that a node may be read with parts of its own.
	PartsOK bool
	// Report holds faults, one of which must be told: CYCLE, SELF_LOOP, UNKNOWN_REF, DUPLICATE_ID, TRUNCATED,
	// AMBIGUOUS.
	Report []string
	// Form is the kind of text by its looks, such as list, table, value or code; "none" for what is no plan.
	Form string
	Note string
}

// Edge says that the first node comes before the second.
type Edge [2]string

// HeldOut reports whether the text belongs to the half that is not looked at while the reader is being
// changed.
func (t *Text) HeldOut() bool { return crc32.ChecksumIEEE([]byte(t.ID))>>7&1 == 1 }
