package llm

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestNames(t *testing.T) {
	t.Parallel()
	t.Run("AreOfTheFormThatProvidersTakeAndComeBack", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			var req Request
			for _, name := range rapid.SliceOfNDistinct(rapid.OneOf(rapid.StringN(1, 100, -1), rapid.SampledFrom([]string{"a/b", "a_b", "a.b", "_a_b", "a_b_2", "-", "9"})), 0, 12, rapid.ID[string]).Draw(t, "names") {
				req.Tools = append(req.Tools, Tool{Name: name})
			}
			n := newNames(&req)
			sent := req
			n.apply(&sent)
			seen := map[string]bool{}
			for i, tool := range sent.Tools {
				require.Regexp(t, plainName, tool.Name)
				require.False(t, seen[tool.Name])
				seen[tool.Name] = true
				require.Equal(t, req.Tools[i].Name, n.back[tool.Name])
			}
			require.Equal(t, n.sent, newNames(&req).sent, "equal requests get equal names")
		})
	})
	t.Run("ManyThatBecomeTheSameTakeTimeInProportion", func(t *testing.T) {
		t.Parallel()
		const many = 50_000
		req := Request{Tools: make([]Tool, many)}
		for i := range req.Tools {
			req.Tools[i].Name = string([]rune{rune(0x4E00 + i%20_000), rune(0x4E00 + i/20_000)})
		}
		done := make(chan names, 1)
		go func() { done <- newNames(&req) }()
		select {
		case n := <-done:
			require.Len(t, n.back, many)
		case <-time.After(20 * time.Second):
			require.Fail(t, "the names took longer than 20 seconds")
		}
	})
	t.Run("ARequestIsNotChanged", func(t *testing.T) {
		t.Parallel()
		req := Request{Tools: []Tool{{Name: "a/b"}}, ToolChoice: "a/b", Messages: []Message{{Role: Assistant, ToolCalls: []ToolCall{{ID: "1", Name: "a/b"}}}}}
		before, err := json.Marshal(req)
		require.NoError(t, err)
		sent := req
		newNames(&req).apply(&sent)
		require.Equal(t, "a_b a_b a_b", sent.Tools[0].Name+" "+sent.ToolChoice+" "+sent.Messages[0].ToolCalls[0].Name)
		after, err := json.Marshal(req)
		require.NoError(t, err)
		require.Equal(t, string(before), string(after))
	})
}

func FuzzReadRefusal(f *testing.F) {
	for _, seed := range []string{
		`{"error": {"message": "m", "code": "c"}}`, `{"error": {"code": 429, "status": "S", "details": [{"retryDelay": "3s"}]}}`, `[{"error": "x"}]`, `{"message": 7}`, `[`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r := readRefusal(body)
		require.GreaterOrEqual(t, int64(r.retryAfter), int64(0))
	})
}
