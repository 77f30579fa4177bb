package conf

import (
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"reflect"
)

const redacted = "[redacted]"

// Secret is a string that shows itself only through Reveal: formatting, logging and marshaling print
// a mask, or nothing if it is empty. The zero value is the empty secret.
type Secret struct {
	// A pointer, because fmt prints the unexported fields of an enclosing struct without asking its
	// methods; it can only print an address this way.
	p *string
}

// NewSecret wraps s.
func NewSecret(s string) Secret {
	if s == "" {
		return Secret{}
	}
	return Secret{p: &s}
}

// Reveal returns the secret itself.
func (s Secret) Reveal() string {
	if s.p == nil {
		return ""
	}
	return *s.p
}

// IsZero reports whether the secret is empty.
func (s Secret) IsZero() bool { return s.p == nil }

// Hash returns the SHA-256 of the secret, which may be kept and compared in its place.
func (s Secret) Hash() [sha256.Size]byte { return sha256.Sum256([]byte(s.Reveal())) }

// Equal compares in constant time. Two empty secrets are not equal, so that an unset secret opens nothing.
func (s Secret) Equal(given string) bool {
	if s.IsZero() {
		return false
	}
	a, b := s.Hash(), sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// String returns the mask.
func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return redacted
}

// GoString returns the mask, for %#v.
func (s Secret) GoString() string { return `conf.Secret("` + s.String() + `")` }

// LogValue returns the mask, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns the mask, for YAML and map keys.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON returns the mask as a JSON string.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + s.String() + `"`), nil }

// UnmarshalText takes the secret as it is.
func (s *Secret) UnmarshalText(b []byte) error {
	*s = NewSecret(string(b))
	return nil
}

// HoldsSecrets reports whether anything in cfg is a secret that is set.
func HoldsSecrets(cfg any) bool { return holdsSecrets(reflect.ValueOf(cfg)) }

func holdsSecrets(v reflect.Value) bool {
	if v.IsValid() && v.Type() == reflect.TypeFor[Secret]() {
		return !v.IsZero()
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if holdsSecrets(v.Field(i)) {
				return true
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if holdsSecrets(v.Index(i)) {
				return true
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if holdsSecrets(it.Value()) {
				return true
			}
		}
	case reflect.Pointer, reflect.Interface:
		return holdsSecrets(v.Elem())
	}
	return false
}
