package template_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor/actortest"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/template"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestTemplate(t *testing.T) {
	t.Parallel()
	good := map[string][2]string{
		"Fill/TextStaysText":        {`{"text": "plain"}`, `"plain"`},
		"Fill/StringsAreNotQuoted":  {`{"text": "Hello {{ named.who }}!", "who": "Ann"}`, `"Hello Ann!"`},
		"Fill/OtherValuesAreJSON":   {`{"text": "{{named.n}} {{ named.l }}", "n": 9007199254740993, "l": [1, "x"]}`, `"9007199254740993 [1,\"x\"]"`},
		"Fill/BracesCanBeWritten":   {`{"text": "a {{{{ b }} c"}`, `"a {{ b }} c"`},
		"Fill/NothingIsNotAnError":  {`{"text": ""}`, `""`},
		"Fill/ValuesAreNotExpanded": {`{"text": "{{named.evil}}", "evil": "{{ named.x }}"}`, `"{{ named.x }}"`},
	}
	for name, tt := range good {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt[1], actortest.Value(t, template.Spec(), tt[0]))
		})
	}
	bad := map[string][2]string{
		"Refuse/Unclosed":    {`{"text": "a\nb {{ named.x"}`, "line 2"},
		"Refuse/Missing":     {`{"text": "{{ named.x }}"}`, "named.x"},
		"Refuse/TooMany":     {`{"text": "` + strings.Repeat("{{1}}", 1001) + `"}`, "1000"},
		"Refuse/Syntax":      {`{"text": "{{ 1 + }}"}`, "1 +"},
		"Refuse/NoTextAtAll": {`{}`, "text is missing"},
	}
	for name, tt := range bad {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := actortest.Fails(t, template.Spec(), tt[0])
			require.Contains(t, e.Message, tt[1])
			require.Equal(t, workgraph.Permanent, e.Type)
		})
	}
	t.Run("Refuse/ATextThatGrowsTooLong", func(t *testing.T) {
		t.Parallel()
		named, err := json.Marshal(map[string]string{"text": strings.Repeat("{{named.big}}", 900), "big": strings.Repeat("x", 10_000)})
		require.NoError(t, err)
		require.Equal(t, template.ReasonTemplate, actortest.Fails(t, template.Spec(), string(named)).Reason)
	})
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"", "a {{ 1 }}", "{{", "{{{{", "}}{{ named.x }}", "{{{{{{"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		named, err := json.Marshal(map[string]string{"text": text})
		require.NoError(t, err)
		if out, err := actortest.Call(t, template.Spec(), string(named)); err == nil && !strings.Contains(text, "{{") {
			var got string
			require.NoError(t, json.Unmarshal(out.Values[0], &got))
			require.Equal(t, strings.ToValidUTF8(text, "\uFFFD"), strings.ToValidUTF8(got, "\uFFFD"))
		}
	})
}
