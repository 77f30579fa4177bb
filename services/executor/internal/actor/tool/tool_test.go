package tool_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/actortest"
	actorhttp "github.com/epigraph-run/epigraph/services/executor/internal/actor/http"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/starlark"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/tool"
	"github.com/epigraph-run/epigraph/workgraph"
)

const credential = "Bearer of-the-operator"

// bank answers with what it was asked.
func bank(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"path": r.URL.Path, "method": r.Method, "body": string(body), "authorization": r.Header.Get("Authorization")})
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func bases(t *testing.T) []actor.Spec {
	web, err := actorhttp.Spec(actorhttp.Config{AllowPrivate: []string{"127.0.0.0/8"}}, tracenoop.NewTracerProvider(), propagation.TraceContext{})
	require.NoError(t, err)
	return []actor.Spec{web, starlark.Spec(starlark.DefaultConfig())}
}

func one(t *testing.T, c tool.Tool) actor.Spec {
	t.Helper()
	specs, err := tool.Config{"it": c}.Specs(bases(t)...)
	require.NoError(t, err)
	require.Len(t, specs, 1)
	_, err = actor.NewRegistry(specs...)
	require.NoError(t, err)
	return specs[0]
}

func pay(url string) tool.Tool {
	return tool.Tool{Description: "Pays.", Arguments: conf.NewSecret(`{"url": "` + url + `/pay", "method": "POST", "headers": {"Authorization": "` + credential + `"}}`),
		Schema: `{"type": "object", "required": ["json"], "properties": {"json": {"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer", "maximum": 10}}}}}`}
}

type answer struct {
	Body struct{ Path, Method, Body, Authorization string }
}

func TestCall(t *testing.T) {
	t.Parallel()
	url := bank(t)
	ask := func(t *testing.T, s actor.Spec, named string, change ...func(*workgraph.Start)) (got answer) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(actortest.Value(t, s, named, change...)), &got))
		return got
	}
	t.Run("FixedArguments/GoWithEveryCall", func(t *testing.T) {
		t.Parallel()
		got := ask(t, one(t, pay(url)), `{"json": {"amount": 7}}`).Body
		require.Equal(t, struct{ Path, Method, Body, Authorization string }{"/pay", "POST", `{"amount": 7}`, credential}, got)
	})
	t.Run("FixedArguments/WinOverThoseOfTheCall", func(t *testing.T) {
		t.Parallel()
		elsewhere := bank(t)
		got := ask(t, one(t, pay(url)), `{"json": {"amount": 7}, "url": "`+elsewhere+`/steal", "method": "GET", "headers": {}, "body": "x", "query": {"to": "eve"}}`).Body
		require.Equal(t, struct{ Path, Method, Body, Authorization string }{"/pay", "POST", `{"amount": 7}`, credential}, got)
	})
	t.Run("FixedArguments/AreGoneAfterTheCall", func(t *testing.T) {
		t.Parallel()
		named := map[string]json.RawMessage{"json": json.RawMessage(`{"amount": 1}`)}
		s := one(t, pay(url))
		c := workgraph.NewCall(workgraph.Start{RunID: "run_1", Generation: 1, Effect: workgraph.Unsafe, Named: named, Own: named}, workgraph.CallOptions{})
		_, err := s.Actor.Call(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, named, c.Named)
		require.Equal(t, named, c.Own)
		require.Len(t, named, 1)
	})
	t.Run("Schema/IsCheckedAtTheCall", func(t *testing.T) {
		t.Parallel()
		s := one(t, pay(url))
		for named, want := range map[string]string{`{"json": {"amount": 11}}`: "11", `{}`: "json", `{"json": 1}`: "object"} {
			e := actortest.Fails(t, s, named)
			require.Equal(t, actor.ReasonArguments, e.Reason)
			require.Contains(t, e.Message, want)
			require.NotContains(t, e.Message, credential)
		}
	})
	t.Run("NoSchema/TakesTheOtherArguments", func(t *testing.T) {
		t.Parallel()
		s := one(t, tool.Tool{Arguments: conf.NewSecret(`{"url": "` + url + `"}`)})
		require.NotContains(t, s.Schema, `"url"`)
		require.Contains(t, s.Schema, `"method"`)
		require.Equal(t, "PUT", ask(t, s, `{"method": "PUT", "body": "x"}`).Body.Method)
	})
	t.Run("Problem/IsSent", func(t *testing.T) {
		t.Parallel()
		s := one(t, tool.Tool{Arguments: conf.NewSecret(`{"url": "` + url + `", "method": "POST"}`)})
		got := ask(t, s, `{"request": "solve it"}`, func(s *workgraph.Start) { s.Kind = workgraph.ProblemKind })
		require.JSONEq(t, `{"request": "solve it"}`, got.Body.Body)
	})
	t.Run("Script/IsHidden", func(t *testing.T) {
		t.Parallel()
		s := one(t, tool.Tool{Actor: "starlark", Arguments: conf.NewSecret(`{"script": "def main(n):\n    return n * 2"}`),
			Schema: `{"type": "object", "properties": {"n": {"type": "integer"}}}`})
		require.Equal(t, "42", actortest.Value(t, s, `{"n": 21, "script": "result = 1"}`))
	})
	t.Run("Namespaces/OthersAreRefused", func(t *testing.T) {
		t.Parallel()
		c := pay(url)
		c.Namespaces = []string{"team-a"}
		s := one(t, c)
		call := func(ns string) error {
			_, err := s.Actor.Call(actor.WithNamespace(t.Context(), ns), workgraph.NewCall(workgraph.Start{RunID: "run_1", Generation: 1, Effect: workgraph.Unsafe, Named: map[string]json.RawMessage{"json": json.RawMessage(`{"amount": 1}`)}}, workgraph.CallOptions{}))
			return err
		}
		require.NoError(t, call("team-a"))
		var e *workgraph.Error
		require.ErrorAs(t, call("team-b"), &e)
		require.Equal(t, tool.ReasonNamespace, e.Reason)
	})
	t.Run("Failure/ShowsNothingFixed", func(t *testing.T) {
		t.Parallel()
		gone := httptest.NewServer(nil)
		gone.Close()
		c := pay(gone.URL)
		require.NotContains(t, actortest.Fails(t, one(t, c), `{"json": {"amount": 1}}`).Message, credential)
	})
}

func TestSpec(t *testing.T) {
	t.Parallel()
	t.Run("Effect/FollowsTheFixedMethod", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, workgraph.Unsafe, one(t, pay("http://bank.example")).EffectOf(&workgraph.Node{}))
	})
	t.Run("Effect/IsStated", func(t *testing.T) {
		t.Parallel()
		c := pay("http://bank.example")
		c.Effect = workgraph.Idempotent
		s := one(t, c)
		require.Nil(t, s.EffectOf)
		require.Equal(t, workgraph.Idempotent, s.Effect)
	})
	t.Run("Version/ChangesWithTheAddressAndNotWithTheCredential", func(t *testing.T) {
		t.Parallel()
		first, other, renewed := pay("http://bank.example"), pay("http://other.example"), pay("http://bank.example")
		renewed.Arguments = conf.NewSecret(`{"url": "http://bank.example/pay", "method": "POST", "headers": {"Authorization": "another"}}`)
		require.NotEqual(t, one(t, first).Version, one(t, other).Version)
		require.Equal(t, one(t, first).Version, one(t, renewed).Version)
	})
	t.Run("Examine/SpeaksOfTheNodeAlone", func(t *testing.T) {
		t.Parallel()
		s := one(t, tool.Tool{Arguments: conf.NewSecret(`{"url": "http://bank.example", "json": 1}`)})
		found := s.Examine(t.Context(), &workgraph.Node{Named: map[string]json.RawMessage{"body": json.RawMessage(`"x"`)}})
		require.Len(t, found, 1)
		require.Equal(t, "body", found[0].Arg)
		require.Empty(t, s.Examine(t.Context(), &workgraph.Node{}))
	})
	t.Run("File/HoldsTheArguments", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "pay.json")
		require.NoError(t, os.WriteFile(path, []byte(`{"url": "http://bank.example", "method": "PUT"}`), 0o600))
		require.Equal(t, workgraph.Idempotent, one(t, tool.Tool{File: path}).EffectOf(&workgraph.Node{}))
	})
	secret := `{"url": "http://bank.example/`
	for name, c := range map[string]struct {
		tool tool.Tool
		want string
	}{
		"Neither":             {tool.Tool{}, "give exactly one of arguments and file"},
		"Both":                {tool.Tool{Arguments: conf.NewSecret("{}"), File: "x"}, "give exactly one of arguments and file"},
		"NoObject":            {tool.Tool{Arguments: conf.NewSecret("[1]")}, "arguments: write a JSON object"},
		"NothingFixed":        {tool.Tool{Arguments: conf.NewSecret("{}")}, "arguments: write a JSON object"},
		"NoFile":              {tool.Tool{File: "/nowhere"}, "no such file"},
		"OtherActor":          {tool.Tool{Actor: "spawn", Arguments: conf.NewSecret(`{"ref": "x"}`)}, `actor "spawn": tools are made of http and starlark`},
		"UnknownArgument":     {tool.Tool{Arguments: conf.NewSecret(`{"ulr": "http://bank.example"}`)}, "arguments: http does not take them"},
		"WrongType":           {tool.Tool{Arguments: conf.NewSecret(`{"url": 7}`)}, "arguments: http does not take them: look at /url"},
		"NoAddress":           {tool.Tool{Arguments: conf.NewSecret(`{"url": "bank.example"}`)}, "arguments: url cannot be used"},
		"ScriptWithFaults":    {tool.Tool{Actor: "starlark", Arguments: conf.NewSecret(`{"script": "def ("}`)}, "arguments: script cannot be used"},
		"Effect":              {tool.Tool{Arguments: conf.NewSecret(secret + `"}`), Effect: "SAFE"}, "effect must be PURE, IDEMPOTENT or UNSAFE"},
		"Schema/None":         {tool.Tool{Arguments: conf.NewSecret(secret + `"}`), Schema: `[]`}, "schema: write the JSON Schema of an object"},
		"Schema/Fixed":        {tool.Tool{Arguments: conf.NewSecret(secret + `"}`), Schema: `{"type": "object", "properties": {"url": {}}}`}, "schema: properties.url is fixed"},
		"Schema/NotTaken":     {tool.Tool{Arguments: conf.NewSecret(secret + `"}`), Schema: `{"type": "object", "properties": {"amount": {}}}`}, "schema: properties.amount is no argument of http, which takes body, expect_status"},
		"Schema/CannotBeUsed": {tool.Tool{Arguments: conf.NewSecret(secret + `"}`), Schema: `{"type": "object", "properties": {"json": {"type": "nothing"}}}`}, "schema: "},
	} {
		t.Run("Refused/"+name, func(t *testing.T) {
			t.Parallel()
			_, err := tool.Config{"it": c.tool}.Specs(bases(t)...)
			require.ErrorContains(t, err, "tools.it: ")
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "bank.example/")
		})
	}
	t.Run("Refused/Name", func(t *testing.T) {
		t.Parallel()
		_, err := tool.Config{"Pay It": pay("http://bank.example")}.Specs(bases(t)...)
		require.ErrorContains(t, err, "small letters")
	})
}
