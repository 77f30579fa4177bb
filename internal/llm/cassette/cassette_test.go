package cassette

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// live answers by a function, in pieces when streamed, and counts its calls.
type live struct {
	n      int
	answer func(n int, req llm.Request) (llm.Response, error)
}

func (l *live) Generate(_ context.Context, req llm.Request) (llm.Response, error) {
	l.n++
	return l.answer(l.n, req)
}

func (l *live) Stream(ctx context.Context, req llm.Request, delta func(llm.Delta) error) (llm.Response, error) {
	out, err := l.Generate(ctx, req)
	for _, word := range strings.SplitAfter(out.Message.Content, " ") {
		if err == nil {
			time.Sleep(time.Second) //nolint:forbidigo // in a bubble
			err = delta(llm.Delta{Text: word})
		}
	}
	return out, err
}

func says(text string) llm.Response {
	return llm.Response{ID: "r", Profile: "p", Provider: "acme", Model: "m", Message: llm.Message{Role: llm.Assistant, Content: text}, FinishReason: llm.FinishStop, Usage: llm.Usage{Input: 5, CachedInput: 1, Output: 4, Reasoning: 2, Known: true}}
}

func ask(texts ...string) llm.Request {
	req := llm.Request{Model: "m"}
	for _, text := range texts {
		req.Messages = append(req.Messages, llm.Message{Role: llm.User, Content: text})
	}
	return req
}

func echo(_ int, req llm.Request) (llm.Response, error) {
	return says("echo " + req.Messages[len(req.Messages)-1].Content), nil
}

func open(t *testing.T, c Config, inner llm.Model, secrets ...string) llm.Model {
	t.Helper()
	if c.Match == "" {
		c.Match = Strict
	}
	around, err := Open(c, secrets, nil)
	require.NoError(t, err)
	m := around(inner)
	t.Cleanup(func() { require.NoError(t, m.(interface{ Close() error }).Close()) })
	return m
}

// recorded is a cassette with the calls of a live model.
func recorded(t *testing.T, l *live, secrets []string, reqs ...llm.Request) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.jsonl")
	m := open(t, Config{Mode: Record, Path: path}, l, secrets...)
	for _, req := range reqs {
		_, _ = m.Generate(t.Context(), req)
	}
	return path
}

func fault(t *testing.T, err error) *llm.Error {
	t.Helper()
	var e *llm.Error
	require.ErrorAs(t, err, &e)
	return e
}

func TestStrict(t *testing.T) {
	t.Parallel()
	t.Run("EqualRequestsGetTheirAnswersInOrder", func(t *testing.T) {
		t.Parallel()
		l := &live{answer: func(n int, _ llm.Request) (llm.Response, error) {
			if n == 2 {
				return llm.Response{}, &llm.Error{Class: llm.Retryable, Status: 429, Code: "busy", Message: "later", RetryAfter: 1500 * time.Millisecond}
			}
			return says(strings.Repeat("x", n)), nil
		}}
		path := recorded(t, l, nil, ask("a"), ask("a"), ask("a"), ask("b"))
		m := open(t, Config{Mode: Replay, Path: path}, l)
		b, err := m.Generate(t.Context(), ask("b"))
		require.NoError(t, err)
		require.Equal(t, says("xxxx"), b, "usage and all")
		first, err := m.Generate(t.Context(), ask("a"))
		require.NoError(t, err)
		require.Equal(t, says("x"), first)
		_, err = m.Generate(t.Context(), ask("a"))
		require.Equal(t, &llm.Error{Class: llm.Retryable, Status: 429, Code: "busy", Message: "later", RetryAfter: 1500 * time.Millisecond}, fault(t, err))
		_, err = m.Generate(t.Context(), ask("a"))
		require.NoError(t, err)
		_, err = m.Generate(t.Context(), ask("a"))
		require.ErrorContains(t, err, "was recorded 3 times")
		require.Equal(t, 4, l.n, "nothing was asked while playing")
	})
	t.Run("AnAttemptThatIsMadeAgainGetsItsAnswerAgain", func(t *testing.T) {
		t.Parallel()
		l := &live{answer: echo}
		m := open(t, Config{Mode: Replay, Path: recorded(t, l, nil, ask("a"))}, l)
		req := ask("a")
		req.IdempotencyKey = "run_1/a/1"
		for range 3 {
			_, err := m.Generate(t.Context(), req)
			require.NoError(t, err)
		}
		req.IdempotencyKey = "run_1/b/1"
		_, err := m.Generate(t.Context(), req)
		require.Equal(t, "NOT_RECORDED", fault(t, err).Code)
		require.Contains(t, fault(t, err).Message, "start the server again")
	})
	t.Run("TheKeyAndTheOrderOfFieldsAreNoDifference", func(t *testing.T) {
		t.Parallel()
		l := &live{answer: echo}
		one, two := ask("a"), ask("a")
		one.Tools, two.Tools = []llm.Tool{{Name: "t", Schema: json.RawMessage(`{"a":1, "b":9007199254740993}`)}}, []llm.Tool{{Name: "t", Schema: json.RawMessage(`{"b":9007199254740993,"a":1}`)}}
		one.IdempotencyKey = "x"
		m := open(t, Config{Mode: Replay, Path: recorded(t, l, nil, one)}, l)
		_, err := m.Generate(t.Context(), two)
		require.NoError(t, err)
	})
	t.Run("AMissTellsWhatDiffers", func(t *testing.T) {
		t.Parallel()
		l := &live{answer: echo}
		m := open(t, Config{Mode: Replay, Path: recorded(t, l, nil, ask("system", "what is the capital of France?"), ask("something else entirely"))}, l)
		_, err := m.Generate(t.Context(), ask("system", "what is the capital of Spain?"))
		e := fault(t, err)
		require.Equal(t, llm.Permanent, e.Class)
		require.Equal(t, "NOT_RECORDED", e.Code)
		require.Contains(t, e.Message, `messages[1].content: recorded "what is the capital of France?", asked "what is the capital of Spain?"`)
		require.Contains(t, e.Message, "models.cassette.match=nearest")
	})
	t.Run("AFailureIsWhatItWas", func(t *testing.T) {
		t.Parallel()
		e := llm.Error{Class: llm.Unknown, Code: "MALFORMED", Message: "none", RetryAfter: 1 << 62, Used: []llm.Spent{{Profile: "p", Provider: "q", Model: "m", Usage: says("").Usage}}}
		l := &live{answer: func(int, llm.Request) (llm.Response, error) { return llm.Response{}, &e }}
		_, err := open(t, Config{Mode: Replay, Path: recorded(t, l, nil, ask("a"))}, l).Generate(t.Context(), ask("a"))
		e.RetryAfter = time.Hour
		require.Equal(t, &e, fault(t, err), "but for a pause of ages")
	})
	t.Run("NothingAndNullDiffer", func(t *testing.T) {
		t.Parallel()
		l := &live{answer: echo}
		call := func(arguments string) llm.Request {
			req := ask("a")
			req.Messages = append(req.Messages, llm.Message{Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: "c", Name: "t", Arguments: json.RawMessage(arguments)}}},
				llm.Message{Role: llm.ToolRole, ToolCallID: "c"})
			return req
		}
		for was, is := range map[string]string{`{"city":null}`: `{}`, `{}`: `{"city":null}`, `[null]`: `[]`, `null`: `{}`} {
			m := open(t, Config{Mode: Replay, Path: recorded(t, l, nil, call(was))}, l)
			_, err := m.Generate(t.Context(), call(is))
			require.Contains(t, fault(t, err).Message, "messages[1].tool_calls[0].arguments", "%s and %s", was, is)
		}
	})
	t.Run("CanceledCallsAreNotRecorded", func(t *testing.T) {
		t.Parallel()
		l := &live{answer: func(n int, _ llm.Request) (llm.Response, error) {
			if n == 1 {
				return llm.Response{}, &llm.Error{Code: "CANCELED"}
			}
			return says("x"), nil
		}}
		m := open(t, Config{Mode: Replay, Path: recorded(t, l, nil, ask("a"), ask("a"))}, l)
		_, err := m.Generate(t.Context(), ask("a"))
		require.NoError(t, err)
	})
}

func TestNearest(t *testing.T) {
	t.Parallel()
	l := &live{answer: echo}
	long := strings.Repeat("All work and no play makes a dull text. ", 30)
	path := recorded(t, l, nil, ask("list the rivers of France with their lengths"), ask(long+"one"), ask("list the rivers of Spain with their lengths"))
	m := open(t, Config{Mode: Replay, Path: path, Match: Nearest}, l)
	get := func(req llm.Request) string {
		out, err := m.Generate(t.Context(), req)
		require.NoError(t, err)
		return out.Message.Content
	}
	require.Equal(t, "echo list the rivers of Spain with their lengths", get(ask("list the rivers of Spain with their lengths")), "an equal one comes first")
	changed := ask(long + "two")
	changed.MaxOutputTokens = 7
	require.Equal(t, "echo "+long+"one", get(changed))
	require.Equal(t, "echo list the rivers of France with their lengths", get(ask("list the rivers of Spain with their lengths", "please")), "one that was played is left")
	require.Equal(t, "echo list the rivers of Spain with their lengths", get(ask("list the rivers of Spain with their lengths")), "equal, and played before")
	require.Equal(t, 3, l.n)

	raw, err := os.ReadFile(strings.TrimSuffix(path, ".jsonl") + ".drift.jsonl")
	require.NoError(t, err)
	var drifts []Drift
	for line := range bytes.Lines(raw) {
		var d Drift
		require.NoError(t, json.Unmarshal(line, &d))
		drifts = append(drifts, d)
	}
	require.Len(t, drifts, 3)
	require.Equal(t, "max_output_tokens", drifts[0].Changes[0].Field)
	require.Equal(t, Change{Field: "max_output_tokens", Asked: "7"}, drifts[0].Changes[0])
	require.Equal(t, "messages[0].content", drifts[0].Changes[1].Field)
	require.True(t, strings.HasSuffix(drifts[0].Changes[1].Recorded, `one"`), drifts[0].Changes[1].Recorded)
	require.Less(t, len(drifts[0].Changes[1].Recorded), 200)
	require.Greater(t, drifts[0].Similarity, 0.5)
	require.Equal(t, "messages[1]", drifts[1].Changes[1].Field)
	require.Empty(t, drifts[1].Changes[1].Recorded)
	require.True(t, drifts[2].Reused)
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	const known, key, aws = `p"ss-w0rd-of-ours-0123`, "sk-proj-0123456789abcdefghij", "AKIAABCDEFGHIJKLMNOP"
	pem := "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"
	l := &live{answer: func(_ int, req llm.Request) (llm.Response, error) {
		if strings.HasPrefix(req.Messages[0].Content, "fail") {
			return llm.Response{}, &llm.Error{Message: "incorrect API key: " + key}
		}
		return says("your key is " + key + " and " + known), nil
	}}
	req := ask("use " + known + ", Bearer abcdefghijklmnopqrst, " + pem + " and " + aws)
	req.Extra = map[string]json.RawMessage{"token": json.RawMessage(`"` + key + `"`)}
	path := recorded(t, l, []string{known, "short"}, req, ask("fail"), ask("a short text"))
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, secret := range []string{"ss-w0rd-of-ours", key, aws, "MIIE", "abcdefghijklmnopqrst"} {
		require.NotContains(t, string(raw), secret)
	}
	require.Contains(t, string(raw), "a short text", "a short secret would be part of many words")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	m := open(t, Config{Mode: Replay, Path: path}, l, known)
	out, err := m.Generate(t.Context(), req)
	require.NoError(t, err, "a request with secrets is found again")
	require.Equal(t, "your key is [redacted] and [redacted]", out.Message.Content)
	again := ask("x")
	again.Messages = append(again.Messages, out.Message)
	_, err = canonical(&again, newRedactor(nil))
	require.NoError(t, err)
}

func TestStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &live{answer: func(int, llm.Request) (llm.Response, error) {
			out := says("one two three four")
			out.Message.ToolCalls = []llm.ToolCall{{ID: "c", Name: "t", Arguments: json.RawMessage(`{"a":1}`)}}
			return out, nil
		}}
		path := filepath.Join(t.TempDir(), "c.jsonl")
		rec := open(t, Config{Mode: Record, Path: path}, l)
		want, err := rec.Stream(t.Context(), ask("a"), func(llm.Delta) error { return nil })
		require.NoError(t, err)
		for _, pace := range []bool{false, true} {
			m := open(t, Config{Mode: Replay, Path: path, Pace: pace}, l)
			var a llm.Assembly
			pieces := 0
			start := time.Now()
			var first time.Duration
			out, err := m.Stream(t.Context(), ask("a"), func(d llm.Delta) error {
				if pieces++; pieces == 1 {
					first = time.Since(start)
				}
				return a.Add(d)
			})
			require.NoError(t, err)
			require.Equal(t, want, out)
			require.Equal(t, want.Message, a.Message())
			require.Greater(t, pieces, 3)
			if pace {
				require.Equal(t, time.Second, first)
				require.InDelta(t, 4*time.Second, time.Since(start), float64(time.Second))
			} else {
				require.Zero(t, time.Since(start))
			}
		}
		m := open(t, Config{Mode: Replay, Path: path, Pace: true}, l)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		_, err = m.Stream(ctx, ask("a"), func(llm.Delta) error { return nil })
		require.Equal(t, "CANCELED", fault(t, err).Code)
		m = open(t, Config{Mode: Replay, Path: path}, l)
		stop := errors.New("enough")
		_, err = m.Stream(t.Context(), ask("a"), func(llm.Delta) error { return stop })
		require.ErrorIs(t, err, stop)
	})
}

func TestFiles(t *testing.T) {
	t.Parallel()
	t.Run("Directory", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		l := &live{answer: echo}
		for _, text := range []string{"a", "b"} {
			_, err := open(t, Config{Mode: Record, Path: dir}, l).Generate(t.Context(), ask(text))
			require.NoError(t, err)
		}
		m := open(t, Config{Mode: Replay, Path: dir}, l)
		for _, text := range []string{"b", "a"} {
			_, err := m.Generate(t.Context(), ask(text))
			require.NoError(t, err)
		}
	})
	t.Run("AnotherProcessGoesOn", func(t *testing.T) {
		t.Parallel()
		l := &live{answer: echo}
		path := recorded(t, l, nil, ask("a"))
		_, err := open(t, Config{Mode: Record, Path: path}, l).Generate(t.Context(), ask("b"))
		require.NoError(t, err)
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, append(raw, `{"request": {"mess`...), 0o600), "cut off by a crash")
		m := open(t, Config{Mode: Replay, Path: path}, l)
		_, err = m.Generate(t.Context(), ask("b"))
		require.NoError(t, err)
	})
	t.Run("AnotherProcessGoesOnBehindALineThatWasCutOff", func(t *testing.T) {
		t.Parallel()
		for cut, want := range map[string][]string{`{"request": {"mess`: {"a", "b"}, `{"casse`: {"b"}, "\n": {"a", "b"}} {
			l := &live{answer: echo}
			path := recorded(t, l, nil, ask("a"))
			raw, err := os.ReadFile(path)
			require.NoError(t, err)
			switch cut {
			case "\n":
				raw = bytes.TrimSuffix(raw, []byte(cut)) // a whole line without its end
			case `{"casse`:
				raw = []byte(cut)
			default:
				raw = append(raw, cut...)
			}
			require.NoError(t, os.WriteFile(path, raw, 0o600))
			_, err = open(t, Config{Mode: Record, Path: path}, l).Generate(t.Context(), ask("b"))
			require.NoError(t, err)
			m := open(t, Config{Mode: Replay, Path: path}, l)
			for _, text := range want {
				_, err = m.Generate(t.Context(), ask(text))
				require.NoError(t, err, "%q: %s", cut, text)
			}
		}
	})
	t.Run("Faulty", func(t *testing.T) {
		t.Parallel()
		const head = `{"cassette":1}` + "\n"
		const good = `{"request": {"messages": [{"role": "user", "content": "x"}]}, "response": {"message": {}}}` + "\n"
		for text, want := range map[string]string{
			"": "first line", "{}\n": "first line", `{"cassette":2}` + "\n": "first line", head: "no recorded call",
			head + "{\n" + good: "line 2", head + "{\n{\n" + head + good: "line 2", head + "{\n": "line 2", head + "{\n" + head + good: "", head + `{"request": {"messages": [{"role": "user"}]}}` + "\n": "neither a response nor an error",
			head + `{"request": {}, "response": {"message": {}}}` + "\n": "messages is empty", head + head + good: "",
		} {
			path := filepath.Join(t.TempDir(), "c.jsonl")
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			_, err := Open(Config{Mode: Replay, Path: path, Match: Strict}, nil, nil)
			if want == "" {
				require.NoError(t, err)
				continue
			}
			require.ErrorContains(t, err, want, "%q", text)
		}
		_, err := Open(Config{Mode: Replay, Path: "gone.jsonl", Match: Strict}, nil, nil)
		require.ErrorContains(t, err, "gone.jsonl")
		_, err = Open(Config{Mode: "play", Match: "about"}, nil, nil)
		for _, want := range []string{"mode", "path", "match"} {
			require.ErrorContains(t, err, want)
		}
		require.NoError(t, Config{}.Validate())
	})
}

// Requests differ in a field if their texts differ, and only then.
func TestDifferencesProperty(t *testing.T) {
	t.Parallel()
	value := rapid.SampledFrom([]string{`{}`, `{"a":null}`, `{"a":1}`, `{"a":1.0}`, `[]`, `[null]`, `[[]]`, `null`, `"null"`, `""`, `{"a":{"b":null}}`, `{"a":{}}`})
	rapid.Check(t, func(rt *rapid.T) {
		docs := make([]document, 2)
		for i := range docs {
			req := ask("x")
			req.Extra = map[string]json.RawMessage{"v": json.RawMessage(value.Draw(rt, "value"))}
			var err error
			docs[i], err = canonical(&req, newRedactor(nil))
			require.NoError(rt, err)
		}
		require.Equal(rt, docs[0].sum() == docs[1].sum(), len(differences(docs[0], docs[1])) == 0)
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("{\"cassette\":1}\n{\"request\": {\"messages\": [{\"role\": \"user\"}]}, \"error\": {\"class\": \"unknown\"}}\n"))
	f.Add([]byte("{\"cassette\":1}\n{"))
	f.Add([]byte("\x00"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		entries, err := read(bytes.NewReader(raw))
		if err != nil {
			return
		}
		for i := range entries {
			doc, err := canonical(&entries[i].Request, newRedactor(nil))
			require.NoError(t, err)
			require.True(t, json.Valid(doc.text))
			require.Empty(t, differences(doc, doc))
		}
	})
}
