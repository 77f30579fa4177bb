package sqlstore

import (
	"bytes"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// StoredResult is the form in which the result of o is kept in a database that tells an empty value from
// null. The result is empty if it is the only one of the outputs, as it mostly is, and null if there is
// none. readResult undoes it.
func StoredResult(o *journal.Outcome) []byte {
	switch {
	case len(o.Result) == 0:
		return nil
	case bytes.Equal(o.Result, onlyOutput(o.Outputs)):
		return []byte{}
	}
	return o.Result
}

// PlainResult is the form in which the result of o is kept in a database that does not tell an empty value
// from null.
func PlainResult(o *journal.Outcome) []byte { return null(o.Result) }

// readResult returns the result that was kept as stored beside outputs.
func readResult(stored, outputs []byte) []byte {
	if stored != nil && len(stored) == 0 {
		return bytes.Clone(onlyOutput(outputs))
	}
	return stored
}

// onlyOutput is the value of {"node":value}. Of anything else it is some part, but always the same.
func onlyOutput(outputs []byte) []byte {
	_, value, _ := bytes.Cut(outputs, []byte(`":`))
	return bytes.TrimSuffix(value, []byte("}"))
}
