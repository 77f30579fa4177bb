// Package attempttoken signs and verifies the tokens with which a client completes an attempt. It knows the
// form of a token and its keys, and no run.
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

// ReasonInvalid is the reason for a token that this service never issued, or issued in another namespace.
const ReasonInvalid = "ATTEMPT_TOKEN_INVALID"

// tokenPrefix names the version of the token's form.
const tokenPrefix = "t1."

// maxToken bounds a token in bytes.
const maxToken = 1024

// macBytes is the length of a token's signature: 128 bits of HMAC-SHA256.
const macBytes = 16

// Token names the attempt that a client completes. It is opaque to its holder and cannot be forged. It
// grants no access to its namespace, and it is valid only while the visit waits for this attempt.
type Token struct {
	Namespace string `json:"n"`
	RunID     string `json:"r"`
	Node      string `json:"o"`
	Visit     int    `json:"v"`
	Item      int    `json:"i,omitempty"`
	Attempt   int    `json:"a"`
}

// Keys signs with its first key and accepts signatures of every key. All executors of a database need the
// same keys. The zero value signs with an empty key, which protects against mistakes only; an executor has
// at least the key of its database.
type Keys struct{ keys [][]byte }

// NewKeys returns Keys that sign with the first key.
func NewKeys(keys ...[]byte) Keys { return Keys{keys} }

// Sign returns the signed token. It is empty if the token would be too long.
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

// Parse verifies a token. namespace is the caller's; a token of another namespace is refused.
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

// signed compares the signature with that of every key, in constant time.
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

// Ref is the visit, or the item of a visit, that the token names.
func (t Token) Ref() workgraph.Ref {
	return workgraph.Ref{Node: t.Node, Visit: t.Visit, Item: t.Item}
}

// Name is the token without its signature, so it does not depend on the key. It is empty if the token would
// be too long.
func (t Token) Name() string {
	raw, err := t.json()
	if err != nil || len(tokenPrefix)+base64.RawURLEncoding.EncodedLen(len(raw))+1+base64.RawURLEncoding.EncodedLen(macBytes) > maxToken {
		return ""
	}
	var room [maxToken]byte
	return string(base64.RawURLEncoding.AppendEncode(append(room[:0], tokenPrefix...), raw))
}

// json returns the bytes that encoding/json would return. Every call of an actor gets a token, so tokens of
// plain strings are written by hand.
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

// plain reports whether JSON writes s without escapes.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

var errTokenContent = errors.New("the token names no attempt")

// parseName is the inverse of Name.
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
	// Only the form that Name writes is accepted, so that one attempt has one name.
	if t.RunID == "" || t.Node == "" || t.Visit < 1 || t.Item < 0 || t.Attempt < 1 || !utf8.ValidString(t.RunID+t.Node) || t.Name() != s {
		return Token{}, errTokenContent
	}
	return t, nil
}
