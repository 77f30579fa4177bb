// Package examples holds plans and graphs that the documentation and the demo run as they are.
package examples

import "embed"

// Files are the examples: launch/plan.txt is a plan as a model wrote it, launch/model.yaml what the scripted model answers.
//
//go:embed launch
var Files embed.FS
