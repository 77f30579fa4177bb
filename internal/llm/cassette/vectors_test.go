package cassette

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm"
)

// lengths is a model whose vector of a text has its length; texts with "busy" in them are refused.
type lengths struct{ n int }

func (l *lengths) embed(texts []string) (out llm.Vectors, err error) {
	l.n++
	used := llm.Spent{Profile: "p", Provider: "acme", Model: "v-1", Usage: llm.Usage{Known: true}}
	for _, text := range texts {
		if strings.Contains(text, "busy") {
			return llm.Vectors{}, &llm.Error{Class: llm.Retryable, Status: 429, Message: "later", RetryAfter: time.Second}
		}
		out.Values = append(out.Values, []float32{float32(len(text)), 0.1})
		used.Usage.Input += int64(len(text))
	}
	out.Model, out.Spent = "v", []llm.Spent{used}
	return out, nil
}

// recordedVectors is a cassette with calls for vectors alone.
func recordedVectors(t *testing.T, l *lengths, secrets []string, calls ...[]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.jsonl")
	m := open(t, Config{Mode: Record, Path: path}, nil, secrets...)
	for _, texts := range calls {
		_, _ = m.(llm.Tape).Embed(t.Context(), "v", texts, func(context.Context) (llm.Vectors, error) { return l.embed(texts) })
	}
	return path
}

func TestVectors(t *testing.T) {
	t.Parallel()
	t.Run("ACallComesAsItWas", func(t *testing.T) {
		t.Parallel()
		l := &lengths{}
		want, err := l.embed([]string{"a", "bcd"})
		require.NoError(t, err)
		m := open(t, Config{Mode: Replay, Path: recordedVectors(t, l, nil, []string{"a", "bcd"})}, nil).(llm.Tape)
		for range 2 { // it is made of a text whenever it is asked for
			got, err := m.Embed(t.Context(), "v", []string{"a", "bcd"}, nil)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		require.Equal(t, 2, l.n, "nothing was asked while playing")
	})
	t.Run("TextsMayComeInOtherCalls", func(t *testing.T) {
		t.Parallel()
		m := open(t, Config{Mode: Replay, Path: recordedVectors(t, &lengths{}, nil, []string{"a", "bcd"}, []string{"ef"})}, nil).(llm.Tape)
		got, err := m.Embed(t.Context(), "v", []string{"ef", "bcd"}, nil)
		require.NoError(t, err)
		require.Equal(t, [][]float32{{2, 0.1}, {3, 0.1}}, got.Values)
		require.Equal(t, []llm.Spent{{Profile: "p", Provider: "acme", Model: "v-1", Usage: llm.Usage{Input: 5, Known: true}}}, got.Spent, "each text has its share")
	})
	t.Run("AFailureComesInItsTurn", func(t *testing.T) {
		t.Parallel()
		m := open(t, Config{Mode: Replay, Path: recordedVectors(t, &lengths{}, nil, []string{"busy"})}, nil).(llm.Tape)
		_, err := m.Embed(t.Context(), "v", []string{"busy"}, nil)
		require.Equal(t, &llm.Error{Class: llm.Retryable, Status: 429, Message: "later", RetryAfter: time.Second}, fault(t, err))
	})
	for name, c := range map[string]struct {
		model, match string
		texts        []string
	}{"Text": {"v", Strict, []string{"a", "missing text"}}, "Model": {"w", Strict, []string{"missing text"}}, "Nearest": {"v", Nearest, []string{"missing text"}}} {
		t.Run("WhatIsMissingIsRefusedByName/"+name, func(t *testing.T) {
			t.Parallel()
			m := open(t, Config{Mode: Replay, Path: recordedVectors(t, &lengths{}, nil, []string{"a"}), Match: c.match}, nil).(llm.Tape)
			_, err := m.Embed(t.Context(), c.model, c.texts, nil)
			e := fault(t, err)
			require.Equal(t, "NOT_RECORDED", e.Code)
			require.Contains(t, e.Message, `no vector of model `+c.model)
			require.Contains(t, e.Message, `"missing text"`)
			require.True(t, e.Configured(), "it is no fault of the text")
		})
	}
	t.Run("ARequestIsNotAnsweredByVectors", func(t *testing.T) {
		t.Parallel()
		for _, match := range []string{Strict, Nearest} {
			m := open(t, Config{Mode: Replay, Path: recordedVectors(t, &lengths{}, nil, []string{"a"}), Match: match}, nil)
			_, err := m.Generate(t.Context(), ask("a"))
			require.Equal(t, "NOT_RECORDED", fault(t, err).Code)
		}
	})
	t.Run("SecretsStayOutAndAreFound", func(t *testing.T) {
		t.Parallel()
		const secret = "p-ss-w0rd-of-ours-0123"
		path := recordedVectors(t, &lengths{}, []string{secret}, []string{"use " + secret})
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NotContains(t, string(raw), secret)
		m := open(t, Config{Mode: Replay, Path: path}, nil, secret).(llm.Tape)
		_, err = m.Embed(t.Context(), "v", []string{"use " + secret}, nil)
		require.NoError(t, err)
	})
	for name, line := range map[string]string{
		"NoModel": `{"embed":{"texts":["a"],"vectors":[[1]]}}`, "NoTexts": `{"embed":{"model":"m"}}`,
		"OneIsMissing": `{"embed":{"model":"m","texts":["a","b"],"vectors":[[1]]}}`, "Neither": `{"embed":{"model":"m","texts":["a"]}}`,
	} {
		t.Run("AFileThatCannotBePlayedIsRefused/"+name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "c.jsonl")
			require.NoError(t, os.WriteFile(path, []byte(`{"cassette":1}`+"\n"+line+"\n"), 0o600))
			_, err := Open(Config{Mode: Replay, Path: path, Match: Strict}, nil, nil)
			require.ErrorContains(t, err, "line 2")
		})
	}
}
