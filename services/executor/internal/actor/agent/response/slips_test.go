package response

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan/plantest"
)

// TestSlips reads the slips that package lenient mends, in each place where a model writes JSON.
func TestSlips(t *testing.T) {
	t.Parallel()
	for _, s := range plantest.Slips() {
		for place, in := range map[string]json.RawMessage{
			"Args":    quoted(`<ImmediateNextActions><Action><Type>a</Type><Args><![CDATA[` + s.Text + `]]></Args></Action></ImmediateNextActions>`),
			"Call":    json.RawMessage(`{"role": "assistant", "tool_calls": [{"id": "c", "name": "a", "arguments": ` + string(quoted(s.Text)) + `}]}`),
			"Actions": quoted("```json\n{\"actions\": [{\"action\": \"a\", \"arguments\": " + s.Text + "}]}\n```"),
		} {
			if place == "Actions" && (s.Name == "SurplusBrackets" || s.Name == "OnlyBracket" || s.Name == "CutOff") {
				continue // there they mean something else
			}
			t.Run(s.Name+"/"+place, func(t *testing.T) {
				t.Parallel()
				r, err := Read(in)
				if s.JSON == "" {
					require.Error(t, err, "%+v", r)
					return
				}
				require.NoError(t, err)
				require.Len(t, r.Groups, 1)
				got, err := json.Marshal(r.Groups[0][0].Arguments)
				require.NoError(t, err)
				require.JSONEq(t, s.JSON, string(got))
			})
		}
	}
	for name, shape := range plantest.HostileShapes() {
		begin := time.Now()
		for _, before := range []string{"", `{"actions": [`, `<ImmediateNextActions><Action><Type>a</Type><Args>{"x":`} {
			_, _ = Read(quoted(before + shape(8<<10))) // whatever it says
		}
		require.Less(t, time.Since(begin), 10*time.Second, name)
	}
}

func TestAttributes(t *testing.T) {
	t.Parallel()
	r, err := Read(quoted(`<ImmediateNextActions><Action Type="mail" target="a &amp; b" color="red"><Args text="hi" n="1"><to>bob</to></Args></Action><Action type='x'/></ImmediateNextActions>`))
	require.NoError(t, err)
	require.Equal(t, `mail{"n":"1","target":"a \u0026 b","text":"hi","to":"bob"} > x{}`, shown(r))
}
