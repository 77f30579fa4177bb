package actor

import (
	"encoding/json"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/epigraph-run/epigraph/workgraph"
)

// CompileSchema makes a JSON Schema (2020-12) usable. It reads nothing from elsewhere: a $ref to another document is an error.
func CompileSchema(raw json.RawMessage) (*jsonschema.Schema, error) {
	return workgraph.CompileSchema(raw)
}

// Satisfies tells why a value is not what a schema asks for; nil if it is.
func Satisfies(s *jsonschema.Schema, value json.RawMessage) error {
	return workgraph.CheckSchema(s, value)
}
