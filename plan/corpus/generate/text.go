// Package generate writes texts that hold a plan, each with its truth. It draws a random graph and then
// writes it in words, in a style and a language. It owns the phrases (phrases/*.txt) and the styles. It knows
// nothing of the reader that is measured with its texts.
package generate

import "hash/crc32"

// Text is a text with its truth: the plan that a careful person reads in it.
type Text struct {
	// ID is style/name. It is unique within its source.
	ID, Style, Lang string
	Body            string
	// NoPlan is set if the text is no plan; Nodes and Edges are then empty.
	NoPlan bool
	// Nodes are the ids that the text shows, in its order. Hidden is set if the text shows no ids; each node
	// is then a part of the words of its step.
	Nodes  []string
	Hidden bool
	// Edges are pairs of nodes, the earlier one first. They are not judged if EdgesOpen is set.
	Edges     []Edge
	EdgesOpen bool
	// Alt are other ids that a person would accept; each list is as long as Nodes.
	Alt [][]string
	// PartsOK is set if a node may be read as having parts of its own.
	PartsOK bool
	// Report lists faults, one of which the reader must report: CYCLE, SELF_LOOP, UNKNOWN_REF, DUPLICATE_ID,
	// TRUNCATED, AMBIGUOUS.
	Report []string
	// Form is the kind of text by its appearance, such as list, table, value or code; "none" for a text that
	// is no plan.
	Form string
	Note string
}

// Edge says that the first node comes before the second.
type Edge [2]string

// HeldOut reports whether the text belongs to the half that is not shown while the reader is being changed.
func (t *Text) HeldOut() bool { return crc32.ChecksumIEEE([]byte(t.ID))>>7&1 == 1 }
