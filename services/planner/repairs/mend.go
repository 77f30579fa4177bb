package main

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/corpus/mend"
)

// told is a fault as the model is told it.
var told = regexp.MustCompile(`(?m)^- (?:line \d+, column \d+: )?([A-Z_]+)(?: ("(?:[^"\\]|\\.)*"))?: (.*)$`)

// mended is the next answer of the scripted model: its last answer, in the notation that it was asked for,
// without the faults that it was told. A model that does not mend the whole mends every other fault.
func mended(text, faults string, whole bool) string {
	var heard []mend.Fault
	faults, _, _ = strings.Cut(faults, "\nDoubts:\n")
	for i, m := range told.FindAllStringSubmatch(faults, -1) {
		if !whole && i%2 == 1 {
			continue
		}
		element, err := strconv.Unquote(m[2])
		if err != nil {
			continue // the fault names nothing
		}
		heard = append(heard, mend.Fault{Code: plan.Code(m[1]), Element: element, Message: m[3]})
	}
	return mend.Plan(text, heard)
}
