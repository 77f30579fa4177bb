package cli

import (
	"encoding/json"
	"regexp"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/workflow"
)

// fileKind is what a text is, as far as its keys tell.
type fileKind string

const (
	kindWorkflow fileKind = "a workflow"
	kindTests    fileKind = "a file of tests"
	kindGraph    fileKind = "a graph"
	kindTree     fileKind = "a task tree"
	kindPrices   fileKind = "a file of prices"
)

// fitting are the commands that take a file of a kind.
var fitting = map[fileKind]string{
	kindWorkflow: "`epigraph workflows validate FILE` checks it, `epigraph workflows run FILE` runs it",
	kindTests:    "`epigraph workflows test FILE` runs it",
	kindGraph:    "`epigraph run FILE` runs it",
	kindTree:     "`epigraph epics import FILE` makes an epic of it",
	kindPrices:   "`epigraph prices import FILE` adds them",
}

// topKey is a key at the top of a text in YAML.
var topKey = regexp.MustCompile(`(?m)^([a-z_]{1,40}):`)

// kindOf tells the kind of a text by the keys at its top; empty if they do not tell.
func kindOf(text string) fileKind {
	keys := map[string]bool{}
	var doc map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &doc) == nil {
		for k := range doc {
			keys[k] = true
		}
	} else {
		for _, m := range topKey.FindAllStringSubmatch(text, 1000) {
			keys[m[1]] = true
		}
	}
	switch {
	case keys["workflow"] && keys["cases"]:
		return kindTests
	case keys["name"] && (keys["steps"] || keys["agents"]):
		return kindWorkflow
	case meansGraph(doc):
		return kindGraph
	case doc != nil && keys["title"] && keys["tasks"]:
		return kindTree
	case keys["prices"] && (keys["as_of"] || keys["source"]):
		return kindPrices
	}
	return ""
}

// wrongKind refuses a text of another kind than a command wants, and names the command that takes it. It is
// nil for one whose kind is wanted or not known.
func wrongKind(name, text string, want fileKind) error {
	is := kindOf(text)
	if is == "" || is == want {
		return nil
	}
	return usage(errs.New(errs.InvalidArgument, "WRONG_KIND", "%s is %s, not %s", name, is, want).Hint(fitting[is]))
}

// runnable reports whether a text is a workflow without a fault: a plan in YAML has steps, too.
func runnable(text string) bool {
	if kindOf(text) != kindWorkflow {
		return false
	}
	_, faults := workflow.Read([]byte(text))
	return len(faults) == 0
}
