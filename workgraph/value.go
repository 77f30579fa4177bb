package workgraph

import (
	"encoding/json"
	"fmt"
)

// MaxValueDepth bounds the nesting of arrays and objects within one value. Stored forms nest values further
// (a result in an event, a slot, a list), and readers of JSON have a limit, so values must stay well below
// it.
const MaxValueDepth = 1000

// ValueFault says why a text is not a value of a run, as the end of a sentence ("the answer is not JSON"). It
// is empty if the text is one.
func ValueFault(raw json.RawMessage) string {
	switch {
	case tooDeep(raw):
		return fmt.Sprintf("is nested more than %d deep", MaxValueDepth)
	case !json.Valid(raw):
		return "is not JSON"
	}
	return ""
}

func tooDeep(raw json.RawMessage) bool { return deeper(raw, MaxValueDepth) }

// deeper reports whether raw is nested deeper than limit. It counts brackets, so raw must be valid JSON.
func deeper(raw json.RawMessage, limit int) bool {
	if len(raw) <= 2*limit { // each level takes at least two bytes
		return false
	}
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			if depth++; depth > limit {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}

// deepValues refuses combined values that are nested too deep to be stored and read again.
func deepValues(values []json.RawMessage) *Error {
	for _, v := range values {
		if tooDeep(v) {
			return Errorf(Permanent, ReasonBadOutcome, "the result %s", ValueFault(v))
		}
	}
	return nil
}
