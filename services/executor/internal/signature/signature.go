// Package signature owns how senders of webhooks prove who they are: Standard Webhooks, in both
// directions, the form of GitHub, and shared tokens. It is pure: the time is an argument, and it must
// not know where a secret is kept, nor what a message is for.
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks.
const (
	HeaderID        = "Webhook-Id"
	HeaderTime      = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// The headers of GitHub.
const (
	HeaderGitHub         = "X-Hub-Signature-256"
	HeaderGitHubDelivery = "X-Github-Delivery"
	HeaderGitHubEvent    = "X-Github-Event"
)

const (
	// Tolerance is how far the time of a message may be from that of the receiver, in both directions,
	// so that a message that was overheard cannot be repeated later.
	Tolerance = 5 * time.Minute
	// MaxID bounds the id of a message in bytes.
	MaxID = 256

	minSecret, maxSecret = 16, 256
	minKey, maxKey       = 16, 64
	secretPrefix         = "whsec_"
	version              = "v1,"
	gitHubPrefix         = "sha256="
	// maxHeader and maxSignatures bound what is looked at.
	maxHeader, maxSignatures = 4096, 16
)

// ErrRefused is the error of every message that is not what its sender would have sent. It says no
// more, so that nobody learns from it which part was right.
var ErrRefused = errors.New("the signature does not fit")

// Key is what signs by a secret: the bytes behind "whsec_", which are base64, or the text itself. It is
// nil for an empty secret. The error never holds the secret.
func Key(secret string) ([]byte, error) {
	if secret == "" {
		return nil, nil
	}
	if text, ok := strings.CutPrefix(secret, secretPrefix); ok {
		k, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(k) < minKey || len(k) > maxKey {
			return nil, fmt.Errorf("begins with %s, so base64 of %d to %d bytes must follow", secretPrefix, minKey, maxKey)
		}
		return k, nil
	}
	if len(secret) < minSecret || len(secret) > maxSecret {
		return nil, fmt.Errorf("has %d bytes: give %d to %d", len(secret), minSecret, maxSecret)
	}
	return []byte(secret), nil
}

// Standard is the value of HeaderSignature of a message.
func Standard(key []byte, id string, at time.Time, body []byte) string {
	return version + base64.StdEncoding.EncodeToString(standard(key, id, at.Unix(), body))
}

func standard(key []byte, id string, at int64, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + strconv.FormatInt(at, 10) + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// CheckStandard checks a message by the values of the three headers. The signature may hold several,
// separated by spaces, as senders do that change their secret; one must fit. An error is ErrRefused.
func CheckStandard(key []byte, id, timestamp, signatures string, body []byte, now time.Time) error {
	if len(key) == 0 || id == "" || len(id) > MaxID || len(signatures) > maxHeader {
		return ErrRefused
	}
	at, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || strconv.FormatInt(at, 10) != timestamp {
		return ErrRefused
	}
	// Both borders are computed from the receiver's clock, which is within range.
	if at < now.Add(-Tolerance).Unix() || at > now.Add(Tolerance).Unix() {
		return ErrRefused
	}
	want := standard(key, id, at, body)
	fits := 0
	for i, text := range strings.Fields(signatures) {
		if i == maxSignatures {
			break
		}
		text, ok := strings.CutPrefix(text, version)
		if !ok {
			continue // of another version
		}
		if got, err := base64.StdEncoding.DecodeString(text); err == nil {
			fits |= subtle.ConstantTimeCompare(got, want)
		}
	}
	if fits == 0 {
		return ErrRefused
	}
	return nil
}

// GitHub is the value of HeaderGitHub of a body.
func GitHub(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return gitHubPrefix + hex.EncodeToString(mac.Sum(nil))
}

// CheckGitHub checks a body by the value of HeaderGitHub. The secret is the text that GitHub was given.
// An error is ErrRefused.
func CheckGitHub(secret, signature string, body []byte) error {
	text, ok := strings.CutPrefix(signature, gitHubPrefix)
	if !ok || secret == "" {
		return ErrRefused
	}
	got, err := hex.DecodeString(text)
	if err != nil {
		return ErrRefused
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	if !hmac.Equal(got, mac.Sum(nil)) {
		return ErrRefused
	}
	return nil
}

// CheckToken checks the value of the header Authorization, which is to be "Bearer" and the secret. An
// error is ErrRefused.
func CheckToken(secret, authorization string) error {
	scheme, token, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ErrRefused
	}
	return CheckText(secret, strings.TrimSpace(token))
}

// CheckText compares a secret with a given text in a time that tells nothing about either. An empty
// secret opens nothing. An error is ErrRefused.
func CheckText(secret, given string) error {
	a, b := sha256.Sum256([]byte(secret)), sha256.Sum256([]byte(given))
	if secret == "" || subtle.ConstantTimeCompare(a[:], b[:]) == 0 {
		return ErrRefused
	}
	return nil
}
