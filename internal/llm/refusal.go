package llm

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/retryafter"
)

// maxCode bounds the code of an error.
const maxCode = 96

// refusal is what a server says that does not answer.
type refusal struct {
	code, message string
	retryAfter    time.Duration
}

// readRefusal reads the body of a response without success, or an error in a stream. Servers have several
// forms of it: an error object with a code, a status or a type, a text, a message at the top, and any of them
// in a list.
func readRefusal(body []byte) (out refusal) {
	body = bytes.TrimSpace(body)
	if len(body) > 0 && body[0] == '[' {
		var list []json.RawMessage
		if json.Unmarshal(body, &list) != nil || len(list) == 0 {
			return out
		}
		body = list[0]
	}
	var doc struct {
		Error   json.RawMessage `json:"error"`
		Message any             `json:"message"`
	}
	if json.Unmarshal(body, &doc) != nil {
		return out
	}
	var detail struct {
		Code    any             `json:"code"`
		Status  any             `json:"status"`
		Type    any             `json:"type"`
		Message string          `json:"message"`
		Details json.RawMessage `json:"details"`
	}
	switch {
	case json.Unmarshal(doc.Error, &detail) == nil:
		out.message = detail.Message
		for _, name := range []any{detail.Code, detail.Status, detail.Type} {
			if s, ok := name.(string); ok && s != "" {
				out.code = errs.Clip(s, maxCode)
				break
			}
		}
		var details []struct {
			RetryDelay string `json:"retryDelay"`
		}
		_ = json.Unmarshal(detail.Details, &details) // only some servers have them in this form
		for _, d := range details {
			if wait, err := time.ParseDuration(d.RetryDelay); err == nil && wait > 0 {
				out.retryAfter = retryafter.Bound(wait)
			}
		}
	case json.Unmarshal(doc.Error, &out.message) == nil:
	default:
		out.message, _ = doc.Message.(string)
	}
	return out
}
