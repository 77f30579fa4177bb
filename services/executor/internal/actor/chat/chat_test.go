package chat_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor/chat"
)

func TestText(t *testing.T) {
	t.Parallel()
	for result, want := range map[string]string{
		`"hi"`: "hi", `{"text":"hi","turns":3}`: "hi", `{"answer":"hi","x":1}`: "hi", `{"letter":"hi"}`: "hi", `{"text":1}`: `{"text":1}`,
		`{"a":1,"b":"x"}`: `{"a":1,"b":"x"}`, `[1]`: "[1]", `null`: "", ``: "", `{}`: "", `""`: "", `{"text":""}`: "",
	} {
		require.Equal(t, want, chat.Text(json.RawMessage(result)), result)
	}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	const colors = `{"enum":["red","green",3],"enumNames":["Red one","Green one","Three"]}`
	for _, c := range [][3]string{
		{colors, "2", `"green"`}, {colors, " GREEN ", `"green"`}, {colors, "red one", `"red"`}, {colors, "3", "3"}, {colors, "three", "3"},
		{colors, "4", `"4"`}, {colors, "0", `"0"`}, {colors, "blue", `"blue"`},
		{`{"enum":["2","1"]}`, "1", `"1"`},
		{`{"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true}`, "1, c, a", `["a","c"]`},
		{`{"type":"array","items":{"enum":["a","b","c"]}}`, "1, x", `"1, x"`},
		{`{"type":"boolean"}`, "Yes", "true"}, {`{"type":"boolean"}`, "no", "false"}, {`{"type":"boolean"}`, "perhaps", `"perhaps"`},
		{`{"type":"number"}`, "1.5", "1.5"}, {`{"type":"integer"}`, "many", `"many"`}, {`{"type":"string"}`, "1", `"1"`},
		{``, " as it is", `" as it is"`}, {`[]`, "1", `"1"`},
	} {
		require.Equal(t, c[2], string(chat.Answer(json.RawMessage(c[0]), c[1])), "%v", c)
	}
}

func TestQuestion(t *testing.T) {
	t.Parallel()
	require.Equal(t, "Which?\n1. Red one\n2. green", chat.Question(json.RawMessage(`"Which?"`), json.RawMessage(`{"enum":["red","green"],"enumNames":["Red one",""]}`)))
	require.Equal(t, "An answer is needed.", chat.Question(nil, nil))
}

func FuzzAnswer(f *testing.F) {
	f.Add(`{"enum":["red","green"]}`, "1")
	f.Add(`{"type":"array","items":{"enum":[1,{"a":2}]}}`, "1,2")
	f.Add(`{"type":"object"}`, "{}")
	f.Fuzz(func(t *testing.T, schema, text string) {
		require.True(t, json.Valid(chat.Answer(json.RawMessage(schema), text)))
		q := chat.Question(json.RawMessage(schema), json.RawMessage(schema))
		require.NotEmpty(t, q)
		require.LessOrEqual(t, strings.Count(q, "\n"), 60+strings.Count(schema, "\\n")+strings.Count(schema, "\n"))
	})
}
