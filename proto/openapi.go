// Package proto holds the API of the suite: the protos, what is generated from them, and, for those
// who serve it, the OpenAPI document. It must not know who implements the API.
package proto

import _ "embed"

//go:embed gen/openapi/epigraph.json
var openAPI []byte

// OpenAPI returns a copy of the generated OpenAPI 3.1 document of all unary methods.
func OpenAPI() []byte { return append([]byte(nil), openAPI...) }
