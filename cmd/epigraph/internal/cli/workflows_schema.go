package cli

import "github.com/epigraph-run/epigraph/workflow"

type workflowsSchemaCmd struct{}

// Help says what the schema is good for.
func (workflowsSchemaCmd) Help() string {
	return `Editors use it to complete keys, to explain them, and to mark what is wrong while it is written. A definition that begins with this line is checked by editors that use the YAML language server:

    # yaml-language-server: $schema=workflow.schema.json

    epigraph workflows schema > workflow.schema.json`
}

// Run prints the JSON Schema of definitions.
func (*workflowsSchemaCmd) Run(e *env) error {
	_, err := e.io.Out.Write(workflow.Schema())
	return err
}
