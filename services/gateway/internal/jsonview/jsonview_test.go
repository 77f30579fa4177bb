package jsonview_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/jsonview"
)

func payload(text string) *graphv1.Payload { return &graphv1.Payload{Json: []byte(text)} }

func decode(t testing.TB, body string, into proto.Message) error {
	t.Helper()
	raw, err := jsonview.Decode([]byte(body), into.ProtoReflect().Descriptor(), free)
	if err != nil {
		return err
	}
	require.NoError(t, protojson.Unmarshal(raw, into), "%s", raw)
	return nil
}

// TestDecodeRest checks that a body can be read on without its faulty parts, where that leaves something.
func TestDecodeRest(t *testing.T) {
	t.Parallel()
	many := "{"
	for i := range 60 {
		many += fmt.Sprintf(`"x%d": 1, `, i)
	}
	for name, c := range map[string]struct {
		body string
		more bool
	}{
		"Unknown":      {`{"grph": {"a": [1]}, "taskId": "tk_1"}`, true},
		"WrongTypeToo": {`{"grph": {}, "taskId": "tk_1", "userId": 7}`, true},
		"WrongType":    {`{"userId": {"a": 1}, "taskId": "tk_1"}`, true},
		"WrongNumber":  {`{"priority": "x", "taskId": "tk_1", "timeout": "10", "startTime": 5}`, true},
		"WrongEnum":    {`{"conflictPolicy": "no", "taskId": "tk_1"}`, true},
		"NoList":       {`{"args": {"a": 1}, "labels": [], "taskId": "tk_1", "graph": 5}`, true},
		"HalfAText":    {`{"userId": "\ud800", "taskId": "tk_1"}`, true},
		"Twice":        {`{"taskId": "tk_1", "task_id" : "tk_2", "labels": {}}`, true},
		"OneOfTwo":     {`{"graph": {"nodes": [{"resultPassDownMode": {"key": "a", "merge": "b"}}]}, "taskId": "tk_1"}`, true},
		"TwiceInAMap":  {`{"labels": {"a": "1", "a": "2"}, "taskId": "tk_1"}`, false},
		"WithinAList":  {`{"graph": {"nodes": [7]}, "taskId": "tk_1"}`, false},
		"WithinAMap":   {`{"labels": {"a": 7}, "taskId": "tk_1"}`, false},
		"TooMany":      {many + `"taskId": "tk_1"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m executorv1.StartRunRequest
			raw, err := jsonview.Decode([]byte(c.body), m.ProtoReflect().Descriptor(), free)
			require.True(t, errs.Is(err, errs.InvalidArgument))
			if !c.more {
				require.Nil(t, raw)
				return
			}
			require.NoError(t, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, &m))
			require.Equal(t, "tk_1", m.GetTaskId())
		})
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	t.Run("Payload/StaysByteForByte", func(t *testing.T) {
		t.Parallel()
		var got executorv1.StartRunRequest
		require.NoError(t, decode(t, `{
			"args": [ 9007199254740991, -9007199254740991, 1.50, 1E+400, "a\u00e9\/", null, { "b" : [ 1 , {} ] } ],
			"named": {"x y": true, "": []},
			"context": null,
			"task_id": "tk_1",
			"labels": {"team": "a"}
		}`, &got))
		want := &executorv1.StartRunRequest{
			Args: []*graphv1.Payload{
				payload("9007199254740991"), payload("-9007199254740991"), payload("1.50"), payload("1E+400"),
				payload(`"a\u00e9\/"`), payload("null"), payload(`{ "b" : [ 1 , {} ] }`),
			},
			Named:   map[string]*graphv1.Payload{"x y": payload("true"), "": payload("[]")},
			Context: payload("null"),
			TaskId:  "tk_1",
			Labels:  map[string]string{"team": "a"},
		}
		require.Empty(t, cmp.Diff(want, &got, protocmp.Transform()))
	})
	t.Run("Payload/AnywhereInAMessage", func(t *testing.T) {
		t.Parallel()
		var got plannerv1.CompilePlanRequest
		require.NoError(t, decode(t, `{"text":"a","named":{"model":"gpt"}}`, &got))
		require.JSONEq(t, `"gpt"`, string(got.GetNamed()["model"].GetJson()))
		var run executorv1.StartRunRequest
		require.NoError(t, decode(t, `{"graph":{"nodes":[{"id":"n","args":[[1]],"check":{"jsonSchema":{"type":"object"}}}]},"attachments":[{"content":"x"}]}`, &run))
		require.Equal(t, `{"type":"object"}`, string(run.GetGraph().GetNodes()[0].GetCheck().GetJsonSchema().GetJson()))
		require.Equal(t, `[1]`, string(run.GetGraph().GetNodes()[0].GetArgs()[0].GetJson()))
		require.Equal(t, `"x"`, string(run.GetAttachments()[0].GetContent().GetJson()))
	})
	t.Run("Body/EmptyIsAnEmptyMessage", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, decode(t, " \n", &executorv1.CancelRunRequest{}))
	})
	t.Run("Fields/ByEitherName", func(t *testing.T) {
		t.Parallel()
		var got registryv1.Epic
		require.NoError(t, decode(t, `{"budget_tokens":"12","budgetNanoUsd":9223372036854775807,"createTime":"2026-01-31T12:00:00Z","state":"EPIC_STATE_ACTIVE","priority":1,"tags":null}`, &got))
		require.EqualValues(t, 12, got.GetBudgetTokens())
		require.EqualValues(t, 9223372036854775807, got.GetBudgetNanoUsd())
		require.Equal(t, registryv1.Priority_PRIORITY_CRITICAL, got.GetPriority())
		require.NoError(t, decode(t, `{"state":"ACTIVE", "title": "after it"}`, &got), "without the prefix of its enum")
		require.Equal(t, registryv1.EpicState_EPIC_STATE_ACTIVE, got.GetState())
		require.Equal(t, "after it", got.GetTitle())
		var run executorv1.StartRunRequest
		require.NoError(t, decode(t, `{"budget":{"tokens":"1.20e2"},"priority":3.0,"timeout":"-0.5s"}`, &run))
		require.EqualValues(t, 120, run.GetBudget().GetTokens())
		require.EqualValues(t, 3, run.GetPriority())
		require.Equal(t, -500*time.Millisecond, run.GetTimeout().AsDuration())
	})
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 300) + strings.Repeat("]", 300)
	for _, tc := range []struct {
		name   string
		body   string
		into   proto.Message
		reason string
		fields []string
		hint   string
		text   string
	}{
		{name: "Integer/TooLarge", body: "{\"args\":[1,\n {\"user\":{\"id\":9007199254740993}}]}", reason: "INTEGER_TOO_LARGE_FOR_JSON",
			fields: []string{"args[1].user.id"}, hint: "as a string", text: "line 2, column 16: the integer 9007199254740993"},
		{name: "Integer/TooSmallInNamed", body: `{"named":{"a b":[0,-9007199254740992]}}`, reason: "INTEGER_TOO_LARGE_FOR_JSON", fields: []string{`named["a b"][1]`}, hint: "as a string"},
		{name: "Integer/AllOfThem", body: `{"args":[9007199254740992,12345678901234567890123]}`, reason: "INTEGER_TOO_LARGE_FOR_JSON", fields: []string{"args[0]", "args[1]"}},
		{name: "Field/Unknown", body: `{"taskid":"x"}`, reason: "UNKNOWN_FIELD", fields: []string{"taskid"}, hint: `"taskId"`},
		{name: "Field/UnknownWithinAGraph", body: `{"graph":{"nodes":[{"idd":"x"}]}}`, reason: "UNKNOWN_FIELD", fields: []string{"graph.nodes[0].idd"}, hint: `"id"`},
		{name: "Field/FarFromAll", body: `{"zzzzzzzzzz":1}`, reason: "UNKNOWN_FIELD", fields: []string{"zzzzzzzzzz"}, hint: "it has graph, args"},
		{name: "Field/Twice", body: `{"taskId":"a","task_id":"b"}`, reason: "DUPLICATE_KEY", fields: []string{"task_id"}},
		{name: "Key/TwiceInAPayload", body: `{"context":{"a":1,"\u0061":2}}`, reason: "DUPLICATE_KEY", fields: []string{"context.a"}},
		{name: "Key/TwiceInAMap", body: `{"labels":{"a":"1","a":"2"}}`, reason: "DUPLICATE_KEY", fields: []string{"labels.a"}},
		{name: "Type/StringForList", body: `{"args":"x"}`, reason: "WRONG_TYPE", fields: []string{"args"}, text: "an array, not a string"},
		{name: "Type/NumberForString", body: `{"userId":7}`, reason: "WRONG_TYPE", fields: []string{"userId"}},
		{name: "Type/NoTimestamp", body: `{"createTime":"yesterday"}`, into: &registryv1.Epic{}, reason: "WRONG_TYPE", fields: []string{"createTime"}, hint: "2026"},
		{name: "Type/IntegerBeyond64Bits", body: `{"budgetTokens":"9223372036854775808"}`, into: &registryv1.Epic{}, reason: "WRONG_TYPE", fields: []string{"budgetTokens"}},
		{name: "Type/FractionForInteger", body: `{"budget":{"tokens":1.5}}`, reason: "WRONG_TYPE", fields: []string{"budget.tokens"}, text: "1.5 is no whole number"},
		{name: "Type/FractionInAString", body: `{"priority":"15e-1"}`, reason: "WRONG_TYPE", fields: []string{"priority"}},
		{name: "Type/Exponent", body: `{"budget":{"tokens":1e19}}`, reason: "WRONG_TYPE", fields: []string{"budget.tokens"}, text: "is too large for 64 bits"},
		{name: "Type/HugeExponent", body: `{"budget":{"tokens":1e999999999}}`, reason: "WRONG_TYPE", fields: []string{"budget.tokens"}},
		{name: "Type/IntegerBeyond32Bits", body: `{"priority":2147483648}`, reason: "WRONG_TYPE", fields: []string{"priority"}, text: "too large for 32 bits"},
		{name: "Type/IntegerWithSign", body: `{"priority":"+1"}`, reason: "WRONG_TYPE", fields: []string{"priority"}},
		{name: "Type/IntegerWithZero", body: `{"priority":"01"}`, reason: "WRONG_TYPE", fields: []string{"priority"}},
		{name: "Type/IntegerWithSpace", body: `{"priority":" 1"}`, reason: "WRONG_TYPE", fields: []string{"priority"}},
		{name: "Type/EnumFraction", body: `{"state":1.5}`, into: &registryv1.Epic{}, reason: "WRONG_TYPE", fields: []string{"state"}},
		{name: "Type/EnumBeyond32Bits", body: `{"state":2147483648}`, into: &registryv1.Epic{}, reason: "WRONG_TYPE", fields: []string{"state"}},
		{name: "Type/NoDuration", body: `{"timeout":"abc"}`, reason: "WRONG_TYPE", fields: []string{"timeout"}, hint: `"1.5s"`},
		{name: "Type/DurationOfGo", body: `{"timeout":"1m30s"}`, reason: "WRONG_TYPE", fields: []string{"timeout"}, hint: `"1.5s"`},
		{name: "Type/DurationWithExponent", body: `{"timeout":"1e3s"}`, reason: "WRONG_TYPE", fields: []string{"timeout"}},
		{name: "Type/DurationTooFine", body: `{"timeout":"1.0000000001s"}`, reason: "WRONG_TYPE", fields: []string{"timeout"}},
		{name: "Type/DurationTooLong", body: `{"timeout":"315576000001s"}`, reason: "WRONG_TYPE", fields: []string{"timeout"}},
		{name: "Type/DurationNaN", body: `{"timeout":"NaNs"}`, reason: "WRONG_TYPE", fields: []string{"timeout"}},
		{name: "Type/DurationWithinAGraph", body: `{"graph":{"nodes":[{"id":"a"},{"timeout":"abc"}]}}`, reason: "WRONG_TYPE", fields: []string{"graph.nodes[1].timeout"}},
		{name: "Type/TimestampTooFine", body: `{"startTime":"2026-01-31T12:00:00.0000000001Z"}`, reason: "WRONG_TYPE", fields: []string{"startTime"}},
		{name: "Type/TimestampTooEarly", body: `{"startTime":"0000-01-31T12:00:00Z"}`, reason: "WRONG_TYPE", fields: []string{"startTime"}},
		{name: "Type/HalfACharacter", body: `{"userId":"\ud800"}`, reason: "WRONG_TYPE", fields: []string{"userId"}},
		{name: "Type/Body", body: `[1]`, reason: "INVALID_BODY"},
		{name: "Enum/Unknown", body: `{"state":"active"}`, into: &registryv1.Epic{}, reason: "UNKNOWN_ENUM_VALUE", fields: []string{"state"}, hint: `"EPIC_STATE_ACTIVE"`},
		{name: "Oneof/Both", body: `{"text":"a","graph":{}}`, into: &plannerv1.CompilePlanRequest{}, reason: "ONEOF_CONFLICT", fields: []string{"graph"}},
		{name: "Several/AtOnce", body: `{"userId":7,"nope":1,"args":[9007199254740992]}`, reason: "INVALID_BODY", fields: []string{"userId", "nope", "args[0]"}},
		{name: "Syntax/Trailing", body: "{\n  \"args\": [1,]\n}", reason: "INVALID_JSON", fields: []string{"2:14"}, text: "line 2, column 14"},
		{name: "Syntax/Cut", body: `{"args":[1`, reason: "INVALID_JSON", fields: []string{"1:11"}},
		{name: "Syntax/Two", body: `{} {}`, reason: "INVALID_JSON", fields: []string{"1:4"}},
		{name: "Syntax/Python", body: `{'a':1}`, reason: "INVALID_JSON", fields: []string{"1:2"}},
		{name: "Syntax/NaN", body: `{"args":[NaN]}`, reason: "INVALID_JSON", fields: []string{"1:10"}},
		{name: "Syntax/LeadingZero", body: `{"args":[01]}`, reason: "INVALID_JSON", fields: []string{"1:11"}},
		{name: "Syntax/Escape", body: `{"args":["\x"]}`, reason: "INVALID_JSON", fields: []string{"1:12"}},
		{name: "Syntax/Control", body: "{\"args\":[\"\x01\"]}", reason: "INVALID_JSON", fields: []string{"1:11"}},
		{name: "Syntax/UTF8", body: "{\"args\":[\"\xff\"]}", reason: "INVALID_JSON", fields: []string{"1:11"}},
		{name: "Depth/Payload", body: `{"context":` + deep + `}`, reason: "JSON_TOO_DEEP"},
		{name: "Depth/Unknown", body: `{"nope":` + deep + `}`, reason: "JSON_TOO_DEEP"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			into := tc.into
			if into == nil {
				into = &executorv1.StartRunRequest{}
			}
			err := decode(t, tc.body, into)
			require.Error(t, err)
			e := errs.From(err)
			require.Equal(t, errs.InvalidArgument, e.Kind)
			require.Equal(t, tc.reason, e.Reason, "%v", err)
			if tc.fields != nil {
				var fields []string
				for _, v := range e.Violations {
					fields = append(fields, v.Field)
				}
				require.Equal(t, tc.fields, fields)
			}
			require.Contains(t, e.HintText(), tc.hint)
			require.Contains(t, err.Error(), tc.text)
		})
	}
	t.Run("Faults/AreBounded", func(t *testing.T) {
		t.Parallel()
		err := decode(t, `{"args":[`+strings.Repeat("9007199254740992,", 999)+`9007199254740992]}`, &executorv1.StartRunRequest{})
		require.Len(t, errs.From(err).Violations, 50)
		require.Contains(t, errs.From(err).Message, "and 999 more")
	})
}

// free gives all the memory that is asked for.
func free(int64) error { return nil }

func TestPopulated(t *testing.T) {
	t.Parallel()
	got := jsonview.Populated([]byte(`{"budget_tokens":null,"title":"","requirements":{"a":1}}`), (&registryv1.Task{}).ProtoReflect().Descriptor())
	require.Equal(t, []string{"title", "requirements"}, got)
}

func TestEncode(t *testing.T) {
	t.Parallel()
	t.Run("Payload/IsPlainJSON", func(t *testing.T) {
		t.Parallel()
		got, err := jsonview.Encode(&executorv1.Run{
			Id: "run_1", Args: []*graphv1.Payload{payload(` { "n" : 9007199254740991 , "s":"a b\"c" } `), payload(""), payload("1E+400")},
			Outputs:    map[string]*graphv1.Payload{"b": payload("[ 1 ]"), "a": payload("")},
			Context:    payload(""),
			Result:     payload("null"),
			LastSeq:    9223372036854775807,
			CreateTime: timestamppb.New(time.Unix(1, 0)),
		})
		require.NoError(t, err)
		text := string(got)
		require.Contains(t, text, `"args":[{"n":9007199254740991,"s":"a b\"c"},null,1E+400]`)
		require.Contains(t, text, `"outputs":{"a":null,"b":[1]}`)
		require.Contains(t, text, `"result":null`)
		require.Contains(t, text, `"lastSeq":"9223372036854775807"`)
		require.NotContains(t, text, `"context"`)
		require.True(t, json.Valid(got), "%s", got)
	})
	t.Run("Defaults/AreThere", func(t *testing.T) {
		t.Parallel()
		got, err := jsonview.Encode(&executorv1.ListRunsResponse{})
		require.NoError(t, err)
		require.JSONEq(t, `{"runs":[],"nextPageToken":""}`, string(got))
	})
	t.Run("Integer/LargeKeepsAllItsDigits", func(t *testing.T) {
		t.Parallel()
		got, err := jsonview.Encode(&executorv1.ListVisitsResponse{Visits: []*executorv1.Visit{
			{}, {Values: []*graphv1.Payload{payload(`{"a":[1,9007199254740993]}`)}},
		}})
		require.NoError(t, err)
		require.Contains(t, string(got), `"values":[{"a":[1,9007199254740993]}]`)
	})
	t.Run("Payload/NoJSONIsAnError", func(t *testing.T) {
		t.Parallel()
		for _, bad := range []string{"{", "1 2", "\"\xff\"", "nil", " "} {
			_, err := jsonview.Encode(&executorv1.Run{Outputs: map[string]*graphv1.Payload{"n": payload(bad)}})
			require.Equal(t, "PAYLOAD_INVALID", errs.ReasonOf(err), "%q: %v", bad, err)
			require.Contains(t, err.Error(), "outputs.n")
		}
	})
	t.Run("Payload/RepeatedKeysPass", func(t *testing.T) {
		t.Parallel()
		got, err := jsonview.Encode(&executorv1.Run{Result: payload(`{"a":1,"a":2}`)})
		require.NoError(t, err)
		require.Contains(t, string(got), `"result":{"a":1,"a":2}`)
	})
	t.Run("Messages/LookAsProtojsonWritesThem", func(t *testing.T) {
		t.Parallel()
		m := &registryv1.Task{Id: "tk_\"<>&\u2028", State: registryv1.TaskState_TASK_STATE_BLOCKED, Duration: durationpb.New(1500e6),
			Labels: map[string]string{"a\"b": "c"}, Notes: []*registryv1.Note{{Text: "x\ny"}}}
		want, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
		require.NoError(t, err)
		got, err := jsonview.Encode(m)
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(got))
		require.NotContains(t, string(got), "\n")
	})
}

// jsonValue draws a JSON text with the spellings that people use.
func jsonValue(depth int) *rapid.Generator[string] {
	space := rapid.SampledFrom([]string{"", " ", "\n", "\t "})
	leaf := rapid.OneOf(
		rapid.SampledFrom([]string{"null", "true", "false", "0", "-0", "1e5", "-1.25E-3", "9007199254740991", "-9007199254740991", `"\ud83d\ude00"`, `"\/"`}),
		rapid.Map(rapid.String(), func(s string) string { b, _ := json.Marshal(s); return string(b) }),
		rapid.Map(rapid.Int64Range(-9007199254740991, 9007199254740991), func(i int64) string { return fmt.Sprint(i) }),
	)
	if depth == 0 {
		return leaf
	}
	return rapid.OneOf(leaf, rapid.Custom(func(t *rapid.T) string {
		items := rapid.SliceOfN(jsonValue(depth-1), 0, 4).Draw(t, "items")
		sp := space.Draw(t, "space")
		if rapid.Bool().Draw(t, "object") {
			for i := range items {
				items[i] = fmt.Sprintf(`%s"k%d"%s:%s%s`, sp, i, sp, sp, items[i])
			}
			return "{" + strings.Join(items, sp+",") + sp + "}"
		}
		return "[" + sp + strings.Join(items, sp+","+sp) + "]"
	}))
}

// TestRoundTrip reads what Encode wrote and finds the same message, its payloads the same tokens.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := jsonValue(3)
		one := func(name string) *graphv1.Payload { return payload(value.Draw(t, name)) }
		m := &executorv1.StartRunRequest{
			Graph:   &graphv1.Graph{Nodes: []*graphv1.Node{{Id: rapid.String().Draw(t, "id"), Named: map[string]*graphv1.Payload{rapid.String().Draw(t, "key"): one("named")}}}},
			Context: one("context"), UserId: rapid.String().Draw(t, "user"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "args") {
			m.Args = append(m.Args, one("arg"))
		}
		text, err := jsonview.Encode(m)
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		raw, err := jsonview.Decode(text, m.ProtoReflect().Descriptor(), free)
		if err != nil {
			t.Fatalf("decode %s: %v", text, err)
		}
		var got executorv1.StartRunRequest
		if err := protojson.Unmarshal(raw, &got); err != nil {
			t.Fatalf("unmarshal %s: %v", raw, err)
		}
		again, err := jsonview.Encode(&got)
		if err != nil || string(again) != string(text) {
			t.Fatalf("want %s\ngot  %s (%v)", text, again, err)
		}
		for i := range m.GetArgs() {
			var a, b strings.Builder
			compactInto(&a, m.GetArgs()[i].GetJson())
			compactInto(&b, got.GetArgs()[i].GetJson())
			if a.String() != b.String() {
				t.Fatalf("payload changed from %s to %s", a.String(), b.String())
			}
		}
	})
}

func compactInto(b *strings.Builder, raw []byte) {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	for {
		tok, err := d.Token()
		if err != nil {
			return
		}
		fmt.Fprintf(b, "%T %v;", tok, tok)
	}
}

// FuzzPayloadJSON holds the reader to three promises for any text: it never panics, it accepts only
// what encoding/json and protojson accept too, and what it accepts comes back unchanged.
func FuzzPayloadJSON(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"args":[1,"a",null,{"b":[]}]}`, `{"context":{"a":1,"a":2}}`, `{"named":{"":9007199254740993}}`,
		`{"graph":{"nodes":[{"id":"x","onError":{"fallback":1}}]}}`, `{"labels":{"a":"b"}}`, `{"requestId":"\ud800"}`, `{"timeout":"1.5s","priority":"2e0","budget":{"tokens":-1.0}}`, `{"startTime":"2026-01-31T12:00:00Z","conflictPolicy":1}`, "{\"args\":[\"\xc3\"]}", `[[[[`,
	} {
		f.Add([]byte(s))
	}
	md := (&executorv1.StartRunRequest{}).ProtoReflect().Descriptor()
	f.Fuzz(func(t *testing.T, body []byte) {
		raw, err := jsonview.Decode(body, md, free)
		if err != nil {
			require.Equal(t, errs.InvalidArgument, errs.KindOf(err), "%v", err)
			return
		}
		if len(strings.TrimSpace(string(body))) > 0 {
			require.True(t, json.Valid(body), "accepted %q", body)
		}
		var m executorv1.StartRunRequest
		if err := protojson.Unmarshal(raw, &m); err != nil {
			// half a character in a key: protojson has the last word
			require.Contains(t, strings.ToLower(string(body)), `\ud`, "%v", err)
			return
		}
		text, err := jsonview.Encode(&m)
		require.NoError(t, err)
		require.True(t, json.Valid(text))
		raw, err = jsonview.Decode(text, md, free)
		require.NoError(t, err, "%s", text)
		var again executorv1.StartRunRequest
		require.NoError(t, protojson.Unmarshal(raw, &again))
		once, err := jsonview.Encode(&again)
		require.NoError(t, err)
		require.Equal(t, string(text), string(once))
	})
}
