package workgraph

import (
	"fmt"
	"strings"
)

// Reasons of skipped visits.
const (
	// ReasonConditionFalse: the visit's condition is false.
	ReasonConditionFalse = "CONDITION_FALSE"
	// ReasonKeyMissing: the visit's condition uses a key, an index or a variable that does not exist, and so
	// is false.
	ReasonKeyMissing = "KEY_MISSING"
	// ReasonNoLiveInput: every edge that leads to the visit is dead.
	ReasonNoLiveInput = "NO_LIVE_INPUT"
)

// maxNamedEdges bounds how many edges the message of a skipped visit names.
const maxNamedEdges = 4

// Skips finds the reasons of skipped visits in one event. The zero value is ready for the event's steps.
type Skips struct {
	// edges are those whose conditions use a missing key, by target node.
	edges map[string]deadEdges
}

type deadEdges struct {
	named []string
	more  int
}

// Step takes the next step of the event. For an OpSkip it returns one of the reasons above and, for people, a
// message about the missing key. If no input is live, the message names the first four edges into the node
// whose conditions used a missing key in the same event.
func (k *Skips) Step(st *Step) (reason, message string) {
	missing, ok := strings.CutPrefix(st.Note, missingNote)
	switch {
	case st.Op == OpEdge && ok:
		if k.edges == nil {
			k.edges = map[string]deadEdges{}
		}
		e := k.edges[st.To]
		if len(e.named) < maxNamedEdges {
			e.named = append(e.named, "the edge from "+st.Node+": "+missing)
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
	s := strings.Join(e.named, "; ")
	if e.more > 0 {
		s += fmt.Sprintf("; and %d more", e.more)
	}
	return s
}
