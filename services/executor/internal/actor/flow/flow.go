// Package flow describes the actors of the steps of workflows to the executor. What they do is in
// workflow/flow.
package flow

import (
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workflow/flow"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Specs describe all of them.
func Specs() []actor.Spec {
	return []actor.Spec{
		spec(flow.ItemsActor, "Gives a list that is no longer than it may be.", flow.Items, `{
  "type": "object",
  "additionalProperties": false,
  "required": ["over", "max"],
  "properties": {
    "over": {"description": "The list, or its JSON as a text."},
    "max": {"type": "integer", "minimum": 1, "description": "How many items it may have."},
    "as": {"type": "string", "description": "Makes of each item the input of a run, in which it has this name."},
    "with": {"type": "object", "description": "What every such input has besides."}
  }
}`),
		spec(flow.EachActor, "Gives the next item of a list in each round of a loop.", flow.Each, `{
  "type": "object",
  "additionalProperties": false,
  "required": ["list", "loop"],
  "properties": {
    "list": {"type": "string", "description": "The node that gave the list."},
    "loop": {"type": "string", "description": "The node itself."},
    "again": {"description": "What the edge that goes round hands it."}
  }
}`),
		spec(flow.CollectActor, "Gives the list of what a node gave in the rounds of a loop.", flow.Collect, `{
  "type": "object",
  "additionalProperties": false,
  "required": ["from"],
  "properties": {"from": {"type": "string", "description": "The node."}}
}`),
		spec(flow.LimitActor, "Pauses or fails a loop that has gone round as often as it may.", flow.Limit, `{
  "type": "object",
  "additionalProperties": false,
  "required": ["max"],
  "properties": {
    "max": {"type": "integer", "minimum": 1, "description": "How often it may go round."},
    "fail": {"type": "boolean", "description": "Whether it fails. Else the run is paused, and a resume grants as many rounds again."},
    "last": {"type": "string", "description": "The node whose result in the last round a failure tells."}
  }
}`),
		spec(flow.SetActor, "Updates keys of the state of the run.", flow.Set, `{
  "type": "object",
  "additionalProperties": false,
  "required": ["state"],
  "properties": {
    "state": {"type": "object", "description": "The updates by key; the reducer of the key combines each with the value that is there."},
    "types": {"type": "object", "additionalProperties": {"type": "string"}, "description": "The type of each key, as in JSON Schema."}
  }
}`),
		spec(flow.BallotActor, "Puts attempts before a judge, by their numbers.", flow.Ballot, `{
  "type": "object",
  "additionalProperties": false,
  "required": ["attempts"],
  "properties": {"attempts": {"type": "string", "description": "The node that made them."}}
}`),
		spec(flow.BestActor, "Gives the best one of some attempts.", flow.Best, `{
  "type": "object",
  "additionalProperties": false,
  "required": ["attempts"],
  "properties": {
    "attempts": {"type": "string", "description": "The node that made them."},
    "judge": {"type": "string", "description": "The node that says which one is the best."},
    "scored": {"type": "boolean", "description": "Whether each gave its score, and nobody chooses."}
  }
}`),
		spec(flow.UserActor, "Tells for whom the run is done.", flow.User, `{"type": "object", "additionalProperties": false, "properties": {}}`),
	}
}

func spec(name, description string, do workgraph.ActorFunc, schema string) actor.Spec {
	return actor.Spec{Name: name, Version: "1", Effect: workgraph.Pure, SeesPlace: true, Schema: schema, Description: description, Actor: do,
		Uncached: func(*workgraph.Node) string { return "it tells of its run, or changes it" }}
}
