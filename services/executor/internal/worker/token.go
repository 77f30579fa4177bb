package worker

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
)

// life is a random number that no two streams share.
type life [12]byte

func newLife() (l life) {
	_, _ = rand.Read(l[:]) // it never fails
	return l
}

// token names a visit's attempt to its worker: the stream's random number and a counter of this stream. So
// the token of another stream or of an ended attempt differs from every open one.
func (l life) token(n uint64) string {
	var b [len(life{}) + 8]byte
	copy(b[:], l[:])
	binary.BigEndian.PutUint64(b[len(l):], n)
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// number returns the counter in a token of this stream.
func (l life) number(token string) (uint64, bool) {
	var b [len(life{}) + 8]byte
	if len(token) != base64.RawURLEncoding.EncodedLen(len(b)) {
		return 0, false
	}
	n, err := base64.RawURLEncoding.Strict().Decode(b[:], []byte(token))
	if err != nil || n != len(b) || life(b[:len(l)]) != l {
		return 0, false
	}
	return binary.BigEndian.Uint64(b[len(l):]), true
}
