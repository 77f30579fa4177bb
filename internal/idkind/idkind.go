// Package idkind names the kind of a resource by the prefix of its id, for hints about ids of the wrong kind.
// It must not know what is stored under an id.
package idkind

import (
	"fmt"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// kinds are what ids name, by prefix, with the call that finds it.
var kinds = map[string]struct{ what, call string }{
	"run": {"a run", "GetRun"},
	"int": {"an interrupt", "GetInterrupt"},
	"ep":  {"an epic", "GetEpic"},
	"tk":  {"a task", "GetTask"},
	"thr": {"a thread", "GetThread"},
	"mem": {"a memory", "GetMemory"},
	"key": {"an API key", "GetKey"},
	"wf":  {"a workflow", "GetWorkflow"},
}

// Hint is the hint for an id that was not found. It names the kind of the id if its prefix is of another kind
// than the wanted one; else it is list.
func Hint(id, prefix, list string) string {
	of, _, _ := strings.Cut(id, "_")
	if k, ok := kinds[of]; ok && of != prefix {
		return fmt.Sprintf("%s is the id of %s: %s finds it", errs.Clip(id, 40), k.what, k.call)
	}
	return list
}
