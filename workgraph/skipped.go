package workgraph

import "strings"

// Why a visit was skipped.
const (
	// ReasonConditionFalse: its condition is false.
	ReasonConditionFalse = "CONDITION_FALSE"
	// ReasonKeyMissing: its condition uses a key, an index or a variable that is not there, and so is false.
	ReasonKeyMissing = "KEY_MISSING"
	// ReasonNoLiveInput: every edge that leads to it is dead.
	ReasonNoLiveInput = "NO_LIVE_INPUT"
)

// Skipped returns why the i-th of an event's steps, an OpSkip, skips its visit: one of the reasons above, and
// what is missing, for people. Of a visit without a live input the message names those of its conditions at edges
// that the same event found to use a missing key.
func Skipped(steps []Step, i int) (reason, message string) {
	st := &steps[i]
	if missing, ok := strings.CutPrefix(st.Note, missingNote); ok {
		return ReasonKeyMissing, missing
	}
	if st.Note != ReasonNoLiveInput {
		return st.Note, ""
	}
	var edges []string
	for j := range steps[:i] {
		e := &steps[j]
		if missing, ok := strings.CutPrefix(e.Note, missingNote); ok && e.Op == OpEdge && e.To == st.Node {
			edges = append(edges, "the edge from "+e.Node+": "+missing)
		}
	}
	return st.Note, strings.Join(edges, "; ")
}
