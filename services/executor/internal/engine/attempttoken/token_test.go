package attempttoken_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/attempttoken"
	"github.com/epigraph-run/epigraph/workgraph"
)

const ns = "ns"

var tokens = attempttoken.NewKeys([]byte("key"))

func TestAttemptToken(t *testing.T) {
	t.Parallel()
	good := attempttoken.Token{Namespace: ns, RunID: "run_1", Node: "review#2/ask", Visit: 3, Item: 4, Attempt: 2}
	t.Run("Key/IsReplacedWithoutLosingTokens", func(t *testing.T) {
		t.Parallel()
		old, both, fresh := attempttoken.NewKeys([]byte("old")), attempttoken.NewKeys([]byte("new"), []byte("old")), attempttoken.NewKeys([]byte("new"))
		for _, given := range []string{old.Sign(good), both.Sign(good)} {
			got, err := both.Parse(ns, given)
			require.NoError(t, err)
			require.Equal(t, good, got)
		}
		require.Equal(t, fresh.Sign(good), both.Sign(good))
		_, err := fresh.Parse(ns, old.Sign(good))
		require.Equal(t, attempttoken.ReasonInvalid, errs.ReasonOf(err))
	})
	t.Run("Token/RoundTrip", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			want := attempttoken.Token{Namespace: ns, RunID: rapid.StringN(1, 40, 60).Draw(t, "run"), Node: rapid.StringN(1, 60, 100).Draw(t, "node"),
				Visit: rapid.IntRange(1, 1<<31-1).Draw(t, "visit"), Item: rapid.IntRange(0, 10_000).Draw(t, "item"), Attempt: rapid.IntRange(1, 100).Draw(t, "attempt")}
			got, err := tokens.Parse(ns, tokens.Sign(want))
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Equal(t, workgraph.Ref{Node: want.Node, Visit: want.Visit, Item: want.Item}, got.Ref())
		})
	})
	token := tokens.Sign(good)
	signed, signature, _ := strings.Cut(strings.TrimPrefix(token, "t1."), ".")
	made := func(raw string) string { // signed by hand; the signature belongs to another token
		return "t1." + base64.RawURLEncoding.EncodeToString([]byte(raw)) + "." + signature
	}
	for name, s := range map[string]string{
		"Empty": "", "NoVersion": strings.TrimPrefix(token, "t1."), "OtherVersion": "t9." + strings.TrimPrefix(token, "t1."),
		"Cut": token[:20], "Padded": token + "=", "NotBase64": "t1.***." + signature, "NotJSON": made("xx"), "TooLong": "t1." + strings.Repeat("A", 2000),
		"NoSignature": "t1." + signed, "EmptySignature": "t1." + signed + ".", "ShortSignature": token[:len(token)-1],
		"NoNode":       tokens.Sign(attempttoken.Token{Namespace: ns, RunID: "r", Visit: 1, Attempt: 1}),
		"NoAttempt":    tokens.Sign(attempttoken.Token{Namespace: ns, RunID: "r", Node: "n", Visit: 1}),
		"OtherTenant":  tokens.Sign(attempttoken.Token{Namespace: "other", RunID: "r", Node: "n", Visit: 1, Attempt: 1}),
		"MadeUp":       made(`{"n":"` + ns + `","r":"run_1","o":"review#2/ask","v":3,"i":4,"a":3}`),
		"OtherKey":     attempttoken.NewKeys([]byte("other")).Sign(good),
		"EmptyKey":     attempttoken.Keys{}.Sign(good),
		"UnsignedForm": strings.Replace(token, "."+signature, "", 1),
	} {
		t.Run("Token/Refused"+name, func(t *testing.T) {
			t.Parallel()
			_, err := tokens.Parse(ns, s)
			require.Equal(t, attempttoken.ReasonInvalid, errs.ReasonOf(err), "%q", s)
			require.True(t, errs.Is(err, errs.InvalidArgument))
		})
	}
}

func FuzzAttemptToken(f *testing.F) {
	f.Add(tokens.Sign(attempttoken.Token{Namespace: ns, RunID: "run_1", Node: "n", Visit: 1, Attempt: 1}))
	f.Add("t1.")
	f.Add("t1.e30.AAAA")
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := tokens.Parse(ns, s)
		if err != nil {
			require.Equal(t, attempttoken.ReasonInvalid, errs.ReasonOf(err))
			return
		}
		require.Equal(t, s, tokens.Sign(tok))
		require.Equal(t, ns, tok.Namespace)
	})
}
