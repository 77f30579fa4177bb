package http

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSameParty(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		from, to string
		want     bool
	}{
		{"https://a.example/x", "https://A.example:443/y", true},
		{"http://a.example/", "https://a.example/", true},
		{"https://a.example/", "http://a.example/", false},
		{"http://a.example:8080/", "https://a.example/", false},
		{"https://a.example/", "https://b.a.example/", false},
		{"https://a.example/", "https://a.example:8443/", false},
		{"http://127.0.0.1/", "http://127.0.0.2/", false},
	} {
		from, err := url.Parse(tt.from)
		require.NoError(t, err)
		to, err := url.Parse(tt.to)
		require.NoError(t, err)
		require.Equal(t, tt.want, sameParty(from, to), "%s -> %s", tt.from, tt.to)
	}
}
