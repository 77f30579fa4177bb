package engine

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/workgraph"
)

// ReasonTaskToken is the reason of a task token that this service never gave out, or gave out in another namespace.
const ReasonTaskToken = "TASK_TOKEN_INVALID"

// tokenPrefix is the version of task tokens.
const tokenPrefix = "t1."

// maxToken bounds a task token in bytes.
const maxToken = 1024

// TaskToken names an attempt to whoever finishes its work from outside. To its holders it is opaque. It is no secret: whoever comes with
// it must be let into its namespace first, and it counts only while the visit waits for that very attempt.
type TaskToken struct {
	Namespace string `json:"n"`
	RunID     string `json:"r"`
	Node      string `json:"o"`
	Visit     int    `json:"v"`
	Item      int    `json:"i,omitempty"`
	Attempt   int    `json:"a"`
}

// Ref is the visit, or item of one, that the token is of.
func (t TaskToken) Ref() workgraph.Ref {
	return workgraph.Ref{Node: t.Node, Visit: t.Visit, Item: t.Item}
}

// String is the token as it is given out; empty for one that would be too long.
func (t TaskToken) String() string {
	raw, err := t.json()
	if err != nil || len(tokenPrefix)+base64.RawURLEncoding.EncodedLen(len(raw)) > maxToken {
		return ""
	}
	var room [maxToken]byte
	return string(base64.RawURLEncoding.AppendEncode(append(room[:0], tokenPrefix...), raw))
}

// json is what encoding/json makes of t. Every call of an actor gets a token, so plain ones are put together by hand.
func (t TaskToken) json() ([]byte, error) {
	if !plain(t.Namespace) || !plain(t.RunID) || !plain(t.Node) {
		return json.Marshal(t)
	}
	b := make([]byte, 0, 48+len(t.Namespace)+len(t.RunID)+len(t.Node))
	b = append(append(b, `{"n":"`...), t.Namespace...)
	b = append(append(b, `","r":"`...), t.RunID...)
	b = append(append(b, `","o":"`...), t.Node...)
	b = strconv.AppendInt(append(b, `","v":`...), int64(t.Visit), 10)
	if t.Item != 0 {
		b = strconv.AppendInt(append(b, `,"i":`...), int64(t.Item), 10)
	}
	return append(strconv.AppendInt(append(b, `,"a":`...), int64(t.Attempt), 10), '}'), nil
}

// plain reports whether s stands in JSON as it is.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// ParseTaskToken reads a token. The namespace is that of the caller, who gets no other's runs by it.
func ParseTaskToken(namespace, s string) (TaskToken, error) {
	bad := errs.New(errs.InvalidArgument, ReasonTaskToken, "the task token is not one of this namespace").
		Hint("pass on the token as the call or the visit shows it, whole and unchanged")
	rest, ok := strings.CutPrefix(s, tokenPrefix)
	if !ok || len(s) > maxToken {
		return TaskToken{}, bad
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if err != nil {
		return TaskToken{}, bad.With(err)
	}
	var t TaskToken
	if err := json.Unmarshal(raw, &t); err != nil {
		return TaskToken{}, bad.With(err)
	}
	if t.Namespace != namespace || t.RunID == "" || t.Node == "" || t.Visit < 1 || t.Item < 0 || t.Attempt < 1 || !utf8.ValidString(t.RunID+t.Node) {
		return TaskToken{}, bad
	}
	// Only what String gives counts, so that one attempt has one token.
	if t.String() != s {
		return TaskToken{}, bad
	}
	return t, nil
}

// taskToken is the token of an attempt of the run.
func (r *run) taskToken(ref workgraph.Ref, attempt int) string {
	return TaskToken{Namespace: r.namespace, RunID: r.id, Node: ref.Node, Visit: ref.Visit, Item: ref.Item, Attempt: attempt}.String()
}
