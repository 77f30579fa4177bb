package wait_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/actortest"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/wait"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestHuman(t *testing.T) {
	t.Parallel()
	t.Run("Interrupt/Carries", func(t *testing.T) {
		t.Parallel()
		out, err := actortest.Call(t, wait.Human(), `{"prompt": "Go?", "schema": {"type": "boolean"}, "timeout": "72h", "default": false, "approve": {"sum": 9007199254740993}}`)
		require.NoError(t, err)
		in := out.Wait.Interrupt
		require.Equal(t, `"Go?"`, string(in.Prompt))
		require.Equal(t, `{"type": "boolean"}`, string(in.Schema))
		require.Equal(t, workgraph.Duration(72*time.Hour), in.Timeout)
		require.Equal(t, `false`, string(in.Default))
		require.Equal(t, `{"sum": 9007199254740993}`, string(in.Approve))
		require.Empty(t, in.ID, "ids are the engine's")
	})
	for name, named := range map[string]string{
		"Arguments/Nothing":        `{}`,
		"Arguments/Default":        `{"prompt": "x", "default": 1}`,
		"Arguments/DefaultOfShape": `{"prompt": "x", "default": 1, "timeout": "1m", "schema": {"type": "string"}}`,
		"Arguments/Schema":         `{"prompt": "x", "schema": {"type": 7}}`,
		"Arguments/SchemaFromFile": `{"prompt": "x", "schema": {"$ref": "file:///etc/passwd"}}`,
		"Arguments/SchemaFromWeb":  `{"prompt": "x", "schema": {"$ref": "http://127.0.0.1:1/x.json"}}`,
		"Arguments/Timeout":        `{"prompt": "x", "timeout": "soon"}`,
		"Arguments/TimeoutTooLong": `{"prompt": "x", "timeout": "90000h"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := actortest.Fails(t, wait.Human(), named)
			require.Equal(t, actor.ReasonArguments, e.Reason)
			require.Equal(t, workgraph.Permanent, e.Type)
		})
	}
}

func TestChoices(t *testing.T) {
	t.Parallel()
	t.Run("Schema/IsOfTheChoices", func(t *testing.T) {
		t.Parallel()
		for named, want := range map[string]string{
			`{"prompt": "?", "choices": ["red", 7, true]}`: `{"enum": ["red", 7, true]}`,
			`{"prompt": "?", "choices": [{"value": "r", "label": "Red"}, 9007199254740993]}`: `{"enum": ["r", 9007199254740993],
				"enumNames": ["Red", "9007199254740993"]}`,
			`{"prompt": "?", "choices": ["a", "b"], "multiple": true}`: `{"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": true}`,
		} {
			out, err := actortest.Call(t, wait.Human(), named)
			require.NoError(t, err)
			require.JSONEq(t, want, string(out.Wait.Interrupt.Schema))
		}
	})
	t.Run("Answer/IsHeldAgainstThem", func(t *testing.T) {
		t.Parallel()
		out, err := actortest.Call(t, wait.Human(), `{"prompt": "?", "choices": [{"value": "r", "label": "Red"}, {"value": "b", "label": "Blue"}]}`)
		require.NoError(t, err)
		schema, err := workgraph.CompileSchema(t.Context(), out.Wait.Interrupt.Schema)
		require.NoError(t, err)
		require.NoError(t, schema.Check(t.Context(), json.RawMessage(`"b"`)))
		require.ErrorContains(t, schema.Check(t.Context(), json.RawMessage(`"Blue"`)), `must be one of 'r', 'b'`)
	})
	for name, c := range map[string]struct{ named, says string }{
		"None":           {`{"prompt": "x", "choices": []}`, "give 1 to 100, not 0"},
		"NoList":         {`{"prompt": "x", "choices": {"a": 1}}`, "must be a list"},
		"NoValue":        {`{"prompt": "x", "choices": [{"label": "a"}]}`, "choices[0]: the value must be"},
		"Unknown":        {`{"prompt": "x", "choices": [{"value": 1, "name": "a"}]}`, "choices[0]: an object has value and label"},
		"Null":           {`{"prompt": "x", "choices": ["a", null]}`, "choices[1]: the value must be"},
		"Twice":          {`{"prompt": "x", "choices": ["a", "a"]}`, `choices[1]: the value "a" is there already`},
		"LabelTwice":     {`{"prompt": "x", "choices": [{"value": 1, "label": "a"}, {"value": 2, "label": "A"}]}`, `the label "A" is there already`},
		"WithSchema":     {`{"prompt": "x", "choices": ["a"], "schema": {}}`, "choices or schema"},
		"WithApprove":    {`{"prompt": "x", "choices": ["a"], "approve": 1}`, "choices or approve"},
		"DefaultOfOther": {`{"prompt": "x", "choices": ["a"], "default": "b", "timeout": "1h"}`, "default: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := actortest.Fails(t, wait.Human(), c.named)
			require.Equal(t, actor.ReasonArguments, e.Reason)
			require.Contains(t, e.Message, c.says)
			n := &workgraph.Node{ID: "n", Actor: "human"}
			require.NoError(t, json.Unmarshal([]byte(c.named), &n.Named))
			require.Len(t, wait.Human().Examine(t.Context(), n), 1, "it is seen before a run")
		})
	}
}

func FuzzChoices(f *testing.F) {
	for _, choices := range []string{`["a"]`, `[{"value": 1, "label": "x"}, 2.5]`, `[{}]`, `[1e400, "\ud800"]`, `[ {"value": "a"}]`} {
		f.Add(choices, true)
	}
	f.Fuzz(func(t *testing.T, choices string, multiple bool) {
		named, err := json.Marshal(map[string]any{"prompt": "?", "multiple": multiple, "choices": json.RawMessage(choices)})
		if err != nil {
			return
		}
		out, err := actortest.Call(t, wait.Human(), string(named))
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		_, err = workgraph.CompileSchema(t.Context(), out.Wait.Interrupt.Schema)
		require.NoError(t, err)
	})
}

func TestSignal(t *testing.T) {
	t.Parallel()
	out, err := actortest.Call(t, wait.Signal(), `{"name": "paid", "timeout": "1h"}`)
	require.NoError(t, err)
	require.Equal(t, &workgraph.SignalWait{Name: "paid", Timeout: workgraph.Duration(time.Hour)}, out.Wait.Signal)
	require.Equal(t, actor.ReasonArguments, actortest.Fails(t, wait.Signal(), `{}`).Reason)
	require.Equal(t, actor.ReasonArguments, actortest.Fails(t, wait.Signal(), `{"name": "x", "timeout": "-1s"}`).Reason)
}

func TestTask(t *testing.T) {
	t.Parallel()
	out, err := actortest.Call(t, wait.Completion(), `{"timeout": "1h"}`)
	require.NoError(t, err)
	require.Equal(t, &workgraph.CompletionWait{Timeout: workgraph.Duration(time.Hour)}, out.Wait.Completion)
	require.Equal(t, actor.ReasonArguments, actortest.Fails(t, wait.Completion(), `{"timeout": "x"}`).Reason)
}

func TestExamine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ actor, named, arg, says string }{
		"HumanTimeout":      {"human", `{"prompt": "?", "timeout": "5"}`, "timeout", `write "5s" for seconds`},
		"SignalTimeout":     {"signal", `{"name": "go", "timeout": "-1h"}`, "timeout", "above 0"},
		"CompletionTimeout": {"completion", `{"timeout": "a day"}`, "timeout", "no length of time"},
		"Schema":            {"human", `{"prompt": "?", "schema": {"type": "strnig"}}`, "schema", `this is no JSON Schema: at /type: "strnig" is no type; did you mean "string"?`},
		"SchemaBelow":       {"human", `{"prompt": "?", "schema": {"properties": {"color": "string"}}}`, "schema", `at /properties/color: this must be true or false or an object, not a text; write {"type": "string"}`},
		"Default":           {"human", `{"prompt": "?", "timeout": "1h", "schema": {"type": "string"}, "default": 7}`, "default", "got number, want string"},
		"Good":              {"human", `{"prompt": "?", "timeout": "1h", "schema": {"type": "string"}, "default": "7"}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &workgraph.Node{ID: "n", Actor: c.actor}
			require.NoError(t, json.Unmarshal([]byte(c.named), &n.Named))
			spec := map[string]func() actor.Spec{"human": wait.Human, "signal": wait.Signal, "completion": wait.Completion}[c.actor]()
			found := spec.Examine(t.Context(), n)
			if c.says == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Equal(t, c.arg, found[0].Arg)
			require.Contains(t, found[0].Fault, c.says)
		})
	}
}
