package a2a

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestBounded(t *testing.T) {
	many := func(n int) string { return "[" + strings.Repeat("0,", n-2) + "0]" }
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, c := range map[string]struct {
		text   string
		events bool
		most   int64
		says   string
	}{
		"Whole":                  {text: "0123456789", most: 10},
		"TooLong":                {text: "01234567890", most: 10, says: "more than 10 bytes"},
		"LinesAreNoEvents":       {text: "a\n\nb\n\nc\n\nd\n\n", most: 10, says: "more than 10 bytes"},
		"Events":                 {text: strings.Repeat("data: a\n\n", 100), events: true, most: 10},
		"EventsWithReturns":      {text: strings.Repeat("d: a\r\n\r\n", 100), events: true, most: 10},
		"EventTooLong":           {text: "data: a\ndata: b\n\n", events: true, most: 10, says: "more than 10 bytes"},
		"TwoReturnsEndNoEvent":   {text: strings.Repeat("d: a\n\r\r\n", 100), events: true, most: 10, says: "more than 10 bytes"},
		"Values":                 {text: many(maxValues)},
		"TooManyValues":          {text: many(maxValues + 1), says: "more than 20000 values"},
		"TooManyEmptyObjects":    {text: "[" + strings.Repeat("{},", maxValues/2) + "{}]", says: "more than 20000 values"},
		"CommasOfTexts":          {text: `"\"` + strings.Repeat(",", 2*maxValues) + `"`},
		"ValuesOfEvents":         {text: strings.Repeat("data: "+many(maxValues)+"\n\n", 3), events: true},
		"TooManyValuesOfAnEvent": {text: "data: " + many(maxValues+1) + "\n\n", events: true, says: "more than 20000 values"},
		"TooManyValuesOverLines": {text: strings.Repeat("data: "+many(maxValues/2+1)+"\n", 3), events: true, says: "more than 20000 values"},
		"QuoteOfAComment":        {text: ": \"\ndata: " + many(maxValues+1) + "\n\n", events: true, says: "more than 20000 values"},
		"Depth":                  {text: deep(maxDepth)},
		"TooDeep":                {text: deep(maxDepth + 1), says: "nested more than 64 deep"},
		"TooDeepBehindAComment":  {text: ": ]]]]\ndata: " + deep(maxDepth+1), events: true, says: "nested more than 64 deep"},
		"TooDeepWithoutASpace":   {text: "data:" + deep(maxDepth+1), events: true, says: "nested more than 64 deep"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.most == 0 {
				c.most = 1 << 20
			}
			_, err := io.ReadAll(&bounded{ReadCloser: io.NopCloser(strings.NewReader(c.text)), most: c.most, events: c.events})
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestBounds(t *testing.T) {
	data := func(value string) string {
		return `{"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"data": ` + value + `}]}}`
	}
	for name, value := range map[string]string{
		"TooManyValues": "[" + strings.Repeat("{},", maxValues) + "{}]",
		"TooDeep":       strings.Repeat("[", 100) + strings.Repeat("]", 100),
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := rpc(t, Agent{}, map[string]http.HandlerFunc{"SendMessage": says(data(value))})
			_, err := s.send(t.Context(), step(workgraph.Idempotent, 0))
			e, ok := errors.AsType[*workgraph.Error](err)
			require.True(t, ok, "got %v", err)
			require.Equal(t, ReasonProtocol, e.Reason)
			require.Equal(t, workgraph.Permanent, e.Type)
		})
	}
	t.Run("AnAnswerOfEventsIsOneAnswer", func(t *testing.T) {
		s, _ := rpc(t, Agent{MaxResponseBytes: 4 << 10}, map[string]http.HandlerFunc{"SendMessage": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			answer(w, data(strings.Repeat("\n\n", 8<<10)+"1"))
		}})
		_, err := s.send(t.Context(), step(workgraph.Idempotent, 0))
		require.ErrorContains(t, err, "more than 4096 bytes")
	})
	large := data(`"` + strings.Repeat("x", 2*largeBody) + `"`)
	t.Run("RoomIsAskedOnce", func(t *testing.T) {
		states := []string{"WORKING", "COMPLETED"}
		s, _ := rpc(t, Agent{MaxResponseBytes: 1 << 20}, map[string]http.HandlerFunc{"GetTask": func(w http.ResponseWriter, _ *http.Request) {
			answer(w, taskOf(states[0], strings.Repeat("x", 2*largeBody)))
			states = states[1:]
		}})
		var asked []int64
		ctx := actor.WithRoom(t.Context(), func(_ context.Context, n int64) error { asked = append(asked, n); return nil })
		_, err := s.follow(ctx, step(workgraph.Idempotent, 0))
		require.NoError(t, err)
		require.Empty(t, states)
		require.Equal(t, []int64{expansion << 20}, asked)
	})
	t.Run("RoomIsAskedForManyValues", func(t *testing.T) {
		s, _ := rpc(t, Agent{}, map[string]http.HandlerFunc{"SendMessage": says(data("[" + strings.Repeat("{},", manyValues) + "{}]"))})
		asked := 0
		_, err := s.send(actor.WithRoom(t.Context(), func(context.Context, int64) error { asked++; return nil }), step(workgraph.Idempotent, 0))
		require.NoError(t, err)
		require.Equal(t, 1, asked)
	})
	t.Run("NothingIsDecodedWithoutRoom", func(t *testing.T) {
		s, _ := rpc(t, Agent{}, map[string]http.HandlerFunc{"SendMessage": says(large)})
		_, err := s.send(actor.WithRoom(t.Context(), func(context.Context, int64) error { return context.Canceled }), step(workgraph.Idempotent, 0))
		require.Error(t, err)
	})
	t.Run("SmallAnswersAskForNone", func(t *testing.T) {
		s, _ := rpc(t, Agent{}, map[string]http.HandlerFunc{"SendMessage": says(data("1"))})
		_, err := s.send(actor.WithRoom(t.Context(), func(context.Context, int64) error { return context.Canceled }), step(workgraph.Idempotent, 0))
		require.NoError(t, err)
	})
	t.Run("LongIDsOfArtifactsAreNotKept", func(t *testing.T) {
		var h heard
		w := &watch{to: &h, known: map[sdk.ArtifactID]int{}}
		a := func(n int) *sdk.Artifact {
			return &sdk.Artifact{ID: sdk.ArtifactID(strings.Repeat("x", n)), Parts: sdk.ContentParts{sdk.NewTextPart("a")}}
		}
		w.snapshot(&sdk.Task{Artifacts: []*sdk.Artifact{a(maxContext), a(maxContext + 1)}})
		w.update(a(maxContext+2), true)
		require.Len(t, w.known, 1)
	})
}
