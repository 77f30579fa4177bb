// Package proto holds the API of the suite: the protos, the generated code, and the OpenAPI document for its
// servers. It must not know the implementations of the API.
package proto

import _ "embed"

//go:embed gen/openapi/epigraph.json
var openAPI []byte

// OpenAPI returns a copy of the generated OpenAPI 3.1 document of all unary methods.
func OpenAPI() []byte { return append([]byte(nil), openAPI...) }
