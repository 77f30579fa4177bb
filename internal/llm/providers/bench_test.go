package providers_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/llm/providers"
)

// BenchmarkCall is one call over HTTP on this machine, the scripted server's part included.
func BenchmarkCall(b *testing.B) {
	for _, provider := range providers.Names() {
		for _, messages := range []int{2, 1000} {
			b.Run(fmt.Sprintf("%s/messages=%d", provider, messages), func(b *testing.B) {
				s := httptest.NewServer(fakellm.New(fakellm.Script{Default: fakellm.Reply{Text: strings.Repeat("word ", 50)}}))
				defer s.Close()
				url := s.URL
				if provider == "openai" {
					url += "/v1"
				}
				set, err := providers.Open(profile(provider, url), llm.Options{})
				require.NoError(b, err)
				defer func() { require.NoError(b, set.Close()) }()
				req := ask("go")
				for range messages/2 - 1 {
					req.Messages = append(req.Messages, llm.Message{Role: llm.Assistant, Content: strings.Repeat("y ", 100)}, llm.Message{Role: llm.User, Content: strings.Repeat("x ", 100)})
				}
				b.ReportAllocs()
				for b.Loop() {
					_, err := set.Generate(b.Context(), req)
					require.NoError(b, err)
				}
			})
		}
	}
}
