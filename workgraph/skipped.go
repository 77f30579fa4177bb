package workgraph

import (
	"fmt"
	"strings"
)

// Why a visit was skipped.
const (
	// ReasonConditionFalse: its condition is false.
	ReasonConditionFalse = "CONDITION_FALSE"
	// ReasonKeyMissing: its condition uses a key, an index or a variable that is not there, and so is false.
	ReasonKeyMissing = "KEY_MISSING"
	// ReasonNoLiveInput: every edge that leads to it is dead.
	ReasonNoLiveInput = "NO_LIVE_INPUT"
)

// maxToldEdges is how many edges the message of a skipped visit names.
const maxToldEdges = 4

// Skips tells why the visits of one event were skipped. The zero value is ready for the event's steps.
type Skips struct {
	// edges are those whose conditions use a missing key, by the node that they lead to.
	edges map[string]deadEdges
}

type deadEdges struct {
	told []string
	more int
}

// Step takes the next step of the event. Of an OpSkip it returns why the visit is skipped, one of the reasons
// above, and what is missing, for people; of a visit without a live input the message names the edges whose
// conditions the same event found to use a missing key, the first four.
func (k *Skips) Step(st *Step) (reason, message string) {
	missing, ok := strings.CutPrefix(st.Note, missingNote)
	switch {
	case st.Op == OpEdge && ok:
		if k.edges == nil {
			k.edges = map[string]deadEdges{}
		}
		e := k.edges[st.To]
		if len(e.told) < maxToldEdges {
			e.told = append(e.told, "the edge from "+st.Node+": "+missing)
		} else {
			e.more++
		}
		k.edges[st.To] = e
	case st.Op != OpSkip:
	case ok:
		return ReasonKeyMissing, missing
	default:
		if reason = st.Note; reason == ReasonNoLiveInput {
			message = k.edges[st.Node].String()
		}
	}
	return reason, message
}

func (e deadEdges) String() string {
	s := strings.Join(e.told, "; ")
	if e.more > 0 {
		s += fmt.Sprintf("; and %d more", e.more)
	}
	return s
}
