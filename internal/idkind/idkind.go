// Package idkind tells by the prefix of an id what it names, for whoever looked for it among other things. It
// must not know what is stored under an id.
package idkind

import (
	"fmt"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// kinds are what ids name, by prefix, with the call that finds it.
var kinds = map[string]struct{ what, call string }{
	"run": {"a run", "GetRun"},
	"int": {"a question", "GetInterrupt"},
	"ep":  {"an epic", "GetEpic"},
	"tk":  {"a task", "GetTask"},
}

// Hint says what an id that was not found names, if it is of another kind than the one that was looked for,
// which is told by its prefix; else it is list.
func Hint(id, prefix, list string) string {
	of, _, _ := strings.Cut(id, "_")
	if k, ok := kinds[of]; ok && of != prefix {
		return fmt.Sprintf("%s is the id of %s: %s finds it", errs.Clip(id, 40), k.what, k.call)
	}
	return list
}
