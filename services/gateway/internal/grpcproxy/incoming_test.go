package grpcproxy

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
)

// TestIncoming holds that one caller's headers cannot fill the connection to a service, which all namespaces
// share.
func TestIncoming(t *testing.T) {
	many, long, repeated := http.Header{}, http.Header{}, http.Header{}
	for i := range 10_000 {
		many.Set("X-H"+strconv.Itoa(i), "v")
		repeated.Add("X-B-Bin", "AAAA")
	}
	long.Set("X-Long", strings.Repeat("v", 9000))
	for name, h := range map[string]http.Header{"Many": many, "Long": long, "Repeated": repeated} {
		t.Run("Refused/"+name, func(t *testing.T) {
			_, err := incoming(h)
			require.Equal(t, ReasonMetadataTooLarge, errs.ReasonOf(err))
			require.True(t, errs.Is(err, errs.ResourceExhausted))
		})
	}
	t.Run("Passed/WhatTheGatewayKeepsDoesNotCount", func(t *testing.T) {
		md, err := incoming(http.Header{"Cookie": {strings.Repeat("c", 20_000)}, "X-Own": {"a", "b"}})
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, md.Get("x-own"))
		require.Len(t, md, 1)
	})
	t.Run("Passed/NotWhatServicesSayOfCalls", func(t *testing.T) {
		h := http.Header{}
		for _, name := range []string{grpckit.HeaderPrincipal, grpckit.HeaderRun, grpckit.HeaderMaker, grpckit.HeaderOrigin, grpckit.HeaderNamespace, "Authorization"} {
			h.Set(name, "lie")
		}
		md, err := incoming(h)
		require.NoError(t, err)
		require.Empty(t, md)
	})
}
