package sqlstore

import (
	"bytes"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// StoredResult is the form of the result of o in a row of a database that tells nothing from null. A result that
// is the only one of the outputs, as it mostly is, is kept as nothing. None is kept as null. readResult undoes it.
func StoredResult(o *journal.Outcome) []byte {
	switch {
	case len(o.Result) == 0:
		return nil
	case bytes.Equal(o.Result, onlyOutput(o.Outputs)):
		return []byte{}
	}
	return o.Result
}

// PlainResult is the form of the result of o in a row of a database that does not tell nothing from null.
func PlainResult(o *journal.Outcome) []byte { return null(o.Result) }

// readResult returns the result that was kept as stored beside outputs.
func readResult(stored, outputs []byte) []byte {
	if stored != nil && len(stored) == 0 {
		return bytes.Clone(onlyOutput(outputs))
	}
	return stored
}

// onlyOutput is the value of {"node":value}; of anything else it is anything, but always the same.
func onlyOutput(outputs []byte) []byte {
	_, value, _ := bytes.Cut(outputs, []byte(`":`))
	return bytes.TrimSuffix(value, []byte("}"))
}
