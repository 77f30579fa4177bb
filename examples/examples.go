// Package examples holds plans and graphs that the documentation and the demo run as they are.
package examples

import "embed"

// Files are the examples: launch/plan.txt is a plan as a model wrote it, launch/model.yaml what the scripted
// model answers, and rounds/graph.json a graph with a map and a loop that needs no model.
//
//go:embed launch rounds
var Files embed.FS
