package record

import (
	"encoding/json"

	"github.com/epigraph-run/epigraph/workgraph"
)

// OutcomeSize is the size of an outcome's values and state updates, in bytes.
func OutcomeSize(o workgraph.Outcome) int {
	n := 0
	for _, v := range o.Values {
		n += len(v)
	}
	for k, v := range o.State {
		n += len(k) + len(v)
	}
	return n
}

// WaitSize is the size of what an outcome asks for, in bytes, without its values.
func WaitSize(o *workgraph.Outcome) int {
	if o.Wait == nil && o.Expand == nil {
		return 0
	}
	raw, err := json.Marshal(struct {
		W *workgraph.Wait
		E *workgraph.Graph
	}{o.Wait, o.Expand})
	if err != nil {
		return 0 // the machine refuses invalid JSON
	}
	return len(raw)
}

// InputSize is the size of the input of a run, in bytes.
func InputSize(in workgraph.Input, more ...json.RawMessage) int64 {
	n := 0
	for _, v := range in.Args {
		n += len(v)
	}
	for k, v := range in.Named {
		n += len(k) + len(v)
	}
	for _, v := range more {
		n += len(v)
	}
	return int64(n)
}

// Oversize is the size of the first value over the limit, or 0.
func Oversize(limit int, args []json.RawMessage, named map[string]json.RawMessage) int {
	for _, v := range args {
		if len(v) > limit {
			return len(v)
		}
	}
	for _, v := range named {
		if len(v) > limit {
			return len(v)
		}
	}
	return 0
}
