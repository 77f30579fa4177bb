package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

func payload(raw string) *graphv1.Payload { return &graphv1.Payload{Json: []byte(raw)} }

func TestPrintJSON(t *testing.T) {
	show := func(t *testing.T, r *executorv1.Run) map[string]json.RawMessage {
		t.Helper()
		var out bytes.Buffer
		require.NoError(t, printJSON(&out, r))
		require.Equal(t, 1, strings.Count(out.String(), "\n"))
		var got map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(out.Bytes(), &got))
		return got
	}

	t.Run("Values/AreWhatTheyAre", func(t *testing.T) {
		r := &executorv1.Run{
			Result:  payload(`{"n": 12345678901234567890, "x": 1.50}`),
			Args:    []*graphv1.Payload{payload(`"a"`), payload(`[1, 2]`), payload(``), payload(`{broken`)},
			Outputs: map[string]*graphv1.Payload{"a": payload(`true`), "b": payload(`{"json":"e30="}`)},
			Labels:  map[string]string{"json": "e30="},
		}
		got := show(t, r)
		require.Equal(t, `{"n":12345678901234567890,"x":1.50}`, string(got["result"]))
		require.Equal(t, `["a",[1,2],null,null]`, string(got["args"]))
		require.JSONEq(t, `{"a":true,"b":{"json":"e30="}}`, string(got["outputs"]))
		require.Equal(t, `{"json":"e30="}`, string(got["labels"]), "a label that looks like a value is a label")
		require.Equal(t, `[]`, string(got["attachments"]), "lists are there even when they are empty")
		require.Equal(t, `"a"`, string(r.GetArgs()[0].GetJson()), "the message stays as it was")
	})

	t.Run("Values/ManyOfThem", func(t *testing.T) {
		r := &executorv1.Run{}
		for i := range 200 {
			b, err := json.Marshal(i)
			require.NoError(t, err)
			r.Args = append(r.Args, payload(string(b)))
		}
		var got []int
		require.NoError(t, json.Unmarshal(show(t, r)["args"], &got))
		for i, n := range got {
			require.Equal(t, i, n)
		}
	})

	t.Run("Values/NothingForATerminalToObey", func(t *testing.T) {
		var out bytes.Buffer
		text := "\u009b31m\u202e\x7f\u2028é日🙂"
		raw, err := json.Marshal(text)
		require.NoError(t, err)
		require.NoError(t, printJSON(&out, &executorv1.Run{GraphName: text, Result: payload(string(raw))}))
		require.NotContains(t, out.String(), "\u009b")
		require.NotContains(t, out.String(), "\u202e")
		require.NotContains(t, out.String(), "\x7f")
		var got struct{ GraphName, Result string }
		require.NoError(t, json.Unmarshal(out.Bytes(), &got))
		require.Equal(t, text, got.GraphName)
		require.Equal(t, text, got.Result)
	})
}

func TestValue(t *testing.T) {
	for in, want := range map[string]string{"1": "1", "true": "true", `{"a":1}`: `{"a":1}`, "plain text": `"plain text"`, "": `""`, `"quoted"`: `"quoted"`} {
		require.Equal(t, want, string(value(in)))
	}
}
