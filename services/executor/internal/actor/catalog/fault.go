package catalog

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// reasonAway is the reason of a call that the registry did not answer. It is made again.
	reasonAway = "CATALOG_UNREACHABLE"
	// reasonRefused and reasonFailed are those of a registry that does not say one.
	reasonRefused, reasonFailed = "CATALOG_REFUSED", "CATALOG_FAILED"
	// reasonTooMany is how the reasons of the registry begin where there are as many workflows, epics or
	// tasks as there may be.
	reasonTooMany = "TOO_MANY_"
)

// fault is a fault of a text as a model reads it.
type fault struct {
	Code    string `json:"code"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	// At is the line, and below it a caret at the column.
	At []string `json:"at,omitempty"`
}

// Refuse is the answer to a call that cannot be served as it is. The run goes on: a model can call again.
func Refuse(format string, args ...any) (workgraph.Outcome, error) {
	return actor.Value(map[string]any{"success": false, "error": fmt.Sprintf(format, args...)})
}

// Answer is what comes of an error of the registry: an answer if the caller can do something about it, else
// the end of the attempt. That end is always unknown, so that the next attempt has the same key: an earlier
// one may have done the work. Faults are told with their lines of text, which may be empty.
func Answer(ctx context.Context, err error, text string) (workgraph.Outcome, error) {
	if ctx.Err() != nil {
		return workgraph.Outcome{}, actor.Interrupted(workgraph.Unknown)
	}
	e := errs.From(err)
	told := slices.Contains([]errs.Kind{errs.InvalidArgument, errs.NotFound, errs.AlreadyExists, errs.FailedPrecondition}, e.Kind)
	if !told && !strings.HasPrefix(e.Reason, reasonTooMany) {
		return workgraph.Outcome{}, unserved(e)
	}
	out := map[string]any{"success": false, "error": e.Message, "reason": e.Reason}
	if hint := e.HintText(); hint != "" {
		out["hint"] = hint
	}
	if n := len(e.Violations); n > 0 {
		out["faults"] = faultsOf(e.Violations, text)
		if n > maxFaults {
			out["error"] = fmt.Sprintf("%s; the first %d are told", e.Message, maxFaults)
		}
	}
	return actor.Value(out)
}

// unserved is the end of an attempt that the caller cannot mend. Who may not ask is refused for good.
func unserved(e *errs.Error) *workgraph.Error {
	switch e.Kind {
	case errs.Unauthenticated, errs.PermissionDenied:
		return workgraph.Errorf(workgraph.Permanent, cmp.Or(e.Reason, reasonRefused), "the registry refuses: %s", e.Message)
	case errs.Unavailable, errs.DeadlineExceeded, errs.Canceled:
		return workgraph.Errorf(workgraph.Unknown, reasonAway, "the registry does not answer: %s", e.Message)
	}
	return workgraph.Errorf(workgraph.Unknown, cmp.Or(e.Reason, reasonFailed), "the registry fails: %s", e.Message)
}

// place is how the field of a violation begins.
var place = regexp.MustCompile(`^(\d{1,9}):(\d{1,9})(?: |$)`)

func faultsOf(vs []errs.Violation, text string) []fault {
	out := make([]fault, 0, min(len(vs), maxFaults))
	for _, v := range vs[:cap(out)] {
		f := fault{Code: v.Reason, Path: errs.Clip(v.Field, 200), Message: errs.Clip(v.Message, 600)}
		if m := place.FindStringSubmatch(v.Field); m != nil {
			f.Line, _ = strconv.Atoi(m[1])
			f.Column, _ = strconv.Atoi(m[2])
			f.Path = errs.Clip(strings.TrimSpace(v.Field[len(m[0]):]), 200)
			f.At = workflow.Excerpt(text, workflow.Place{Line: f.Line, Column: f.Column}, maxExcerpt)
		}
		out = append(out, f)
	}
	return out
}
