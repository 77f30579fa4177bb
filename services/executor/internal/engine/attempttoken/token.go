// Package attempttoken signs and reads the tokens by which attempts are completed from outside.
package attempttoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/workgraph"
)

// ReasonInvalid is the reason of an attempt token that this service never gave out, or gave out in
// another namespace.
const ReasonInvalid = "ATTEMPT_TOKEN_INVALID"

// tokenPrefix is the version of attempt token.
const tokenPrefix = "t1."

// maxToken bounds an attempt token in bytes.
const maxToken = 1024

// macBytes is the length of a token's signature: 128 bits of HMAC-SHA256.
const macBytes = 16

// Token names an attempt to whoever finishes its work from outside. To its holders it is opaque and
// cannot be made up. Whoever comes with it must be let into its namespace all the same, and it counts only
// while the visit waits for that very attempt.
type Token struct {
	Namespace string `json:"n"`
	RunID     string `json:"r"`
	Node      string `json:"o"`
	Visit     int    `json:"v"`
	Item      int    `json:"i,omitempty"`
	Attempt   int    `json:"a"`
}

// Keys signs attempt token by the first of its keys and takes those of all. Every executor of a database
// needs the same. The zero value signs by an empty key, which keeps out mistakes alone: an executor has the
// key of its database at least.
type Keys struct{ keys [][]byte }

// NewKeys returns Keys with these keys.
func NewKeys(keys ...[]byte) Keys { return Keys{keys} }

// Sign is the token as it is given out; empty for one that would be too long.
func (k Keys) Sign(t Token) string {
	name := t.Name()
	if name == "" {
		return ""
	}
	var key []byte
	if len(k.keys) > 0 {
		key = k.keys[0]
	}
	return name + "." + mac(key, name)
}

// Parse reads a token. The namespace is that of the caller, who gets no other's runs by it.
func (k Keys) Parse(namespace, s string) (Token, error) {
	bad := errs.New(errs.InvalidArgument, ReasonInvalid, "the attempt token is not one of this namespace").
		Hint("pass on the token as the call or the visit shows it, whole and unchanged")
	if len(s) > maxToken {
		return Token{}, bad
	}
	name, signature, ok := cutLast(s, ".")
	if !ok || !k.signed(name, signature) {
		return Token{}, bad
	}
	t, err := parseName(name)
	if err != nil {
		return Token{}, bad.With(err)
	}
	if t.Namespace != namespace {
		return Token{}, bad
	}
	return t, nil
}

// signed compares with every key, in a time that tells nothing of them.
func (k Keys) signed(name, signature string) bool {
	keys := k.keys
	if len(keys) == 0 {
		keys = [][]byte{nil}
	}
	ok := false
	for _, key := range keys {
		if subtle.ConstantTimeCompare([]byte(mac(key, name)), []byte(signature)) == 1 {
			ok = true
		}
	}
	return ok
}

func mac(key []byte, name string) string {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(name)) // it never fails
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:macBytes])
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// Ref is the visit, or item of one, that the token is of.
func (t Token) Ref() workgraph.Ref {
	return workgraph.Ref{Node: t.Node, Visit: t.Visit, Item: t.Item}
}

// Name is the token without its signature: the same whichever key signs it. Empty for one that would be too
// long.
func (t Token) Name() string {
	raw, err := t.json()
	if err != nil || len(tokenPrefix)+base64.RawURLEncoding.EncodedLen(len(raw))+1+base64.RawURLEncoding.EncodedLen(macBytes) > maxToken {
		return ""
	}
	var room [maxToken]byte
	return string(base64.RawURLEncoding.AppendEncode(append(room[:0], tokenPrefix...), raw))
}

// json is what encoding/json makes of t. Every call of an actor gets a token, so plain ones are put together
// by hand.
func (t Token) json() ([]byte, error) {
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

var errTokenContent = errors.New("the token names no attempt")

// parseName reads what name wrote.
func parseName(s string) (Token, error) {
	rest, ok := strings.CutPrefix(s, tokenPrefix)
	if !ok {
		return Token{}, errTokenContent
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if err != nil {
		return Token{}, err
	}
	var t Token
	if err := json.Unmarshal(raw, &t); err != nil {
		return Token{}, err
	}
	// Only what name gives counts, so that one attempt has one name.
	if t.RunID == "" || t.Node == "" || t.Visit < 1 || t.Item < 0 || t.Attempt < 1 || !utf8.ValidString(t.RunID+t.Node) || t.Name() != s {
		return Token{}, errTokenContent
	}
	return t, nil
}
