package workgraph

import (
	"encoding/json"
	"fmt"
)

// MaxValueDepth is how deep arrays and objects may stand in each other within one value. What is written down puts values into each
// other (a result into an event, a slot, a list), and readers of JSON give up at some depth, so values keep well away from it.
const MaxValueDepth = 1000

// ValueFault says what keeps a text from being a value of a run, ready to follow its name ("the answer is not JSON"); it is empty if nothing does.
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

// deeper counts brackets, so it says something about valid JSON only.
func deeper(raw json.RawMessage, limit int) bool {
	if len(raw) <= 2*limit { // each level takes two bytes at least
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

// deepValues refuses values that were put together too deep to be written down and read again.
func deepValues(values []json.RawMessage) *Error {
	for _, v := range values {
		if tooDeep(v) {
			return Errorf(Permanent, ReasonBadOutcome, "the result %s", ValueFault(v))
		}
	}
	return nil
}
