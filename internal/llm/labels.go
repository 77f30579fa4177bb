package llm

import (
	"net/http"
	"strconv"
)

// other is the label of a model that no profile names: nodes may state any text.
const other = "other"

// label is the model of a request as a label of metrics, of which there are as many as profiles.
func (p *profile) label(model string) string {
	if model == p.cfg.Model {
		return model
	}
	return other
}

// label is the kind of an error as a label of metrics: its code if it is a known one, else the HTTP status,
// else the word that the conventions have for it. Servers may send any text as a code.
func (e *Error) label() string {
	switch e.Code {
	case "TIMEOUT", codeFirstToken, "IDLE_TIMEOUT", "CANCELED", "CONNECTION", "MALFORMED", codeTruncated, "RESPONSE_TOO_LARGE", "REQUEST", "API_KEY":
		return e.Code
	case "rate_limit_exceeded", "insufficient_quota", "invalid_api_key", "model_not_found", "context_length_exceeded", "server_error", "overloaded": // OpenAI
		return e.Code
	case "rate_limit_error", "overloaded_error", "invalid_request_error", "authentication_error", "permission_error", "billing_error",
		"not_found_error", "request_too_large", "timeout_error", "api_error": // Anthropic
		return e.Code
	case "RESOURCE_EXHAUSTED", "UNAVAILABLE", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNAUTHENTICATED", "PERMISSION_DENIED", "NOT_FOUND",
		"INTERNAL", "DEADLINE_EXCEEDED": // Google
		return e.Code
	}
	if e.Status >= http.StatusBadRequest && e.Status < 600 {
		return strconv.Itoa(e.Status)
	}
	return "_OTHER"
}
