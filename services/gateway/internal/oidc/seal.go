package oidc

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/epigraph-run/epigraph/internal/conf"
)

// maxCookie bounds a sealed value, in bytes. Browsers keep cookies of up to 4,096 with name and
// attributes.
const maxCookie = 3800

// seals keeps values that browsers hold from being read and from being changed. Every process with the
// same keys opens them, so that replicas share no state.
type seals struct {
	aeads []cipher.AEAD
	place string
}

func newSeals(keys []conf.Secret, place string) (*seals, error) {
	s := &seals{place: place}
	for _, k := range keys {
		key, err := hkdf.Key(sha256.New, []byte(k.Reveal()), nil, "epigraph session 1", 32)
		if err != nil {
			return nil, fmt.Errorf("derive the key of sessions: %w", err)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("derive the key of sessions: %w", err)
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, fmt.Errorf("derive the key of sessions: %w", err)
		}
		s.aeads = append(s.aeads, aead)
	}
	return s, nil
}

// seal writes a value for one use, such as a session: it opens as nothing else, and nowhere else.
func (s *seals) seal(use string, v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("seal: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(s.aeads[0].Seal(nil, nil, b, []byte(use+" "+s.place))), nil
}

// open reads what seal wrote, with any of the keys.
func (s *seals) open(use, text string, v any) error {
	if len(text) > maxCookie {
		return errors.New("the sealed value is too long")
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	for _, a := range s.aeads {
		if plain, err := a.Open(nil, nil, b, []byte(use+" "+s.place)); err == nil {
			return json.Unmarshal(plain, v)
		}
	}
	return errors.New("no key opens the sealed value")
}
