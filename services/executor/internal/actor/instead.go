package actor

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/epigraph-run/epigraph/workgraph"
)

// instead is the answer to a question of an agent that asks for something else.
type instead struct {
	Instead *string `json:"instead"`
}

// Instead is the answer that asks for something else in place of one.
func Instead(text string) json.RawMessage {
	raw, _ := Encode(instead{&text}) // texts always marshal
	return raw
}

// InsteadOf is what the answer asks for, if it is one of Instead.
func InsteadOf(answer json.RawMessage) (text string, ok bool) {
	var a instead
	dec := json.NewDecoder(bytes.NewReader(answer))
	dec.DisallowUnknownFields()
	if dec.Decode(&a) != nil || a.Instead == nil {
		return "", false
	}
	return *a.Instead, true
}

// elsewhere begins the message of the error of AnotherRequest.
const elsewhere = "the user asked for something else: "

// AnotherRequest is the error of a step whose question the user did not answer: what they ask for goes to
// whoever is above, see RequestOf.
func AnotherRequest(text string) *workgraph.Error {
	return workgraph.Errorf(workgraph.Permanent, workgraph.ReasonAnotherRequest, "%s%s", elsewhere, text)
}

// RequestOf is what the user asks for, if the error says so.
func RequestOf(e *workgraph.Error) (text string, ok bool) {
	if e == nil || e.Reason != workgraph.ReasonAnotherRequest {
		return "", false
	}
	return strings.TrimPrefix(e.Message, elsewhere), true
}

// TeamGraph is the name of the graphs of the runs of teams.
const TeamGraph = "team"

// TeamChooses is the node of the run of a team that chooses who speaks, and teamSpeaks begins those of its
// members.
const (
	TeamChooses = "choose"
	teamSpeaks  = "speak."
)

// TeamMember is the node of a member in the run of a team.
func TeamMember(name string) string { return teamSpeaks + name }

// SpeaksInTeam reports whether a node of the run of a team is that of a member, or chooses who speaks.
func SpeaksInTeam(node string) bool {
	return node == TeamChooses || strings.HasPrefix(node, teamSpeaks)
}

// LeftPrefix begins the reason of the cancellation of a run that is left for something else. No other
// cancellation has such a reason.
const LeftPrefix = workgraph.ReasonAnotherRequest + ": "

// LeftReason is the reason with which a run is canceled, since the user asks for something else.
func LeftReason(text string) string { return LeftPrefix + text }

// LeftFor is what the user asks for, if the reason of a cancellation is one of LeftReason.
func LeftFor(reason string) (text string, ok bool) { return strings.CutPrefix(reason, LeftPrefix) }
