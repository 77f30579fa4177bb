package memory_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
	"github.com/epigraph-run/epigraph/services/registry/internal/words"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	good := memory.Entry{Scope: memory.Scope{Level: memory.OfUser, Subject: "ada"}, Key: "k", Text: "x", Confidence: 1}
	_, err := memory.New("ns", good, now)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(*memory.Entry)
		reason string
	}{
		"Nothing":       {func(e *memory.Entry) { e.Text = "" }, memory.ReasonInvalid},
		"NoLevel":       {func(e *memory.Entry) { e.Scope.Level = 0 }, memory.ReasonScopeInvalid},
		"UnknownLevel":  {func(e *memory.Entry) { e.Scope.Level = 5 }, memory.ReasonScopeInvalid},
		"NoSubject":     {func(e *memory.Entry) { e.Scope.Subject = "" }, memory.ReasonScopeInvalid},
		"SubjectOfAll":  {func(e *memory.Entry) { e.Scope.Level = memory.OfNamespace }, memory.ReasonScopeInvalid},
		"SubjectBreaks": {func(e *memory.Entry) { e.Scope.Subject = "a\nb" }, memory.ReasonScopeInvalid},
		"LongKey":       {func(e *memory.Entry) { e.Key = strings.Repeat("k", 257) }, memory.ReasonInvalid},
		"KeyBreaks":     {func(e *memory.Entry) { e.Key = "a\nb" }, memory.ReasonInvalid},
		"LongText":      {func(e *memory.Entry) { e.Text = strings.Repeat("x", memory.MaxText+1) }, memory.ReasonInvalid},
		"NoJSON":        {func(e *memory.Entry) { e.Value = []byte("{") }, memory.ReasonInvalid},
		"LongValue":     {func(e *memory.Entry) { e.Value = []byte(`"` + strings.Repeat("x", memory.MaxValue) + `"`) }, memory.ReasonInvalid},
		"ManyTags":      {func(e *memory.Entry) { e.Tags = strings.Split("a b c d e f g h i j k l m n o p q r s t u", " ") }, memory.ReasonInvalid},
		"LongTag":       {func(e *memory.Entry) { e.Tags = []string{strings.Repeat("x", 129)} }, memory.ReasonInvalid},
		"Doubt":         {func(e *memory.Entry) { e.Confidence = 1.1 }, memory.ReasonInvalid},
		"Over":          {func(e *memory.Entry) { e.ExpireTime = now }, memory.ReasonInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := good
			c.change(&e)
			_, err := memory.New("ns", e, now)
			require.True(t, errs.Is(err, errs.InvalidArgument), "%v", err)
			require.Equal(t, c.reason, errs.ReasonOf(err))
		})
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	t.Run("Key/IsOfTheTextIfThereIsNone", func(t *testing.T) {
		t.Parallel()
		in := memory.Entry{Scope: memory.Scope{Level: memory.OfNamespace}, Text: "likes tea"}
		a, err := memory.New("ns", in, now)
		require.NoError(t, err)
		b, err := memory.New("ns", in, now)
		require.NoError(t, err)
		in.Text = "likes milk"
		c, err := memory.New("ns", in, now)
		require.NoError(t, err)
		require.Equal(t, a.Key, b.Key)
		require.NotEqual(t, a.Key, c.Key)
		require.NotEmpty(t, a.Key)
	})
	t.Run("Scope/IsReadBackFromItsPlace", func(t *testing.T) {
		t.Parallel()
		for _, s := range []memory.Scope{{Level: memory.OfNamespace}, {Level: memory.OfUser, Subject: "a/b"}, {Level: memory.OfEpic, Subject: "ep_1"}, {Level: memory.OfWorkflow, Subject: "w"}} {
			require.Equal(t, s, memory.ScopeAt(s.Place()))
		}
	})
	t.Run("Words/AreThoseOfTextsNotOfFieldNames", func(t *testing.T) {
		t.Parallel()
		e := memory.Entry{Key: "drink", Text: "likes tea", Tags: []string{"taste"}, Value: []byte(`{"goal": "visit", "list": ["one", {"deep": "two", "n": 3}], "last": "three"}`)}
		require.Equal(t, words.Weights{"drink": 8, "taste": 6, "like": 4, "tea": 4, "visit": 2, "one": 2, "two": 2, "three": 2}, e.Words())
	})
}

func TestProcedureOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		total, completed int32
		rate             float64
	}{"NoTasks": {0, 0, 1}, "All": {2, 2, 1}, "Half": {2, 1, 0.5}, "None": {3, 0, 0}} {
		t.Run("Rate/"+name, func(t *testing.T) {
			t.Parallel()
			e, err := memory.ProcedureOf(memory.Outcome{EpicID: "ep_1", Goal: "goal", Total: c.total, Completed: c.completed})
			require.NoError(t, err)
			require.Equal(t, c.rate, e.Confidence)
		})
	}
	t.Run("Bounds/TheLongestFits", func(t *testing.T) {
		t.Parallel()
		long := strings.Repeat("\"<\u2028\x01\\", 1000)
		many := strings.Split(strings.Repeat(long[:90]+",", 100), ",")
		e, err := memory.ProcedureOf(memory.Outcome{EpicID: strings.Repeat("e", 64), Goal: long, Summary: long, Tags: many, Tasks: many, Workflows: append([]string{long}, many...)})
		require.NoError(t, err)
		require.True(t, json.Valid(e.Value))
		_, err = memory.New("ns", e, time.Now())
		require.NoError(t, err)
	})
}

func FuzzNew(f *testing.F) {
	f.Add("k", "text", `{"a": "b"}`, "tag", "ada")
	f.Add("", "a\x00b", `["x", {"y": []}]`, "t", "")
	f.Fuzz(func(t *testing.T, key, text, value, tag, subject string) {
		in := memory.Entry{Scope: memory.Scope{Level: memory.OfUser, Subject: subject}, Key: key, Text: text, Value: []byte(value), Tags: []string{tag}}
		e, err := memory.New("ns", in, time.Now())
		if err != nil {
			return
		}
		require.NotContains(t, e.Text, "\x00")
		require.NotEmpty(t, e.Key)
		require.Equal(t, e.Scope, memory.ScopeAt(e.Scope.Place()))
		require.LessOrEqual(t, len(e.Words()), 200)
	})
}
