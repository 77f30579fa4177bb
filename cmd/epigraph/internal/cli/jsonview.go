package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// compact removes insignificant space: protojson varies it on purpose, and output should not.
func compact(b []byte) ([]byte, error) {
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return out.Bytes(), nil
}

// value reads a value given on the command line: JSON if it is JSON, else a text.
func value(s string) json.RawMessage {
	if json.Valid([]byte(s)) {
		return json.RawMessage(s)
	}
	b, _ := json.Marshal(s) // a string always marshals
	return b
}
