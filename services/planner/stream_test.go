package planner_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
)

// held is a reply whose text goes on behind a mark only when the test lets it.
type held struct {
	reply fakellm.Reply
	// at is closed when the text in front of the mark was sent; on lets the rest come.
	at, on chan struct{}
}

func holdAt(text, mark string) *held {
	h := &held{at: make(chan struct{}), on: make(chan struct{})}
	until := strings.Index(text, mark)
	waited := false
	h.reply = fakellm.Reply{Text: text, Hold: func(ctx context.Context, sent string) bool {
		if waited || len(sent) < until {
			return true
		}
		waited = true
		close(h.at)
		select {
		case <-h.on:
			return true
		case <-ctx.Done():
			return false
		}
	}}
	return h
}

// told are the events of a stream by kind.
type told struct {
	text   map[int32]string
	parts  []*plannerv1.PlanPart
	rounds []*plannerv1.AuthorRound
	result *plannerv1.CreatePlanResponse
}

// nodes are the nodes of the parts, in order.
func (e *told) nodes() (out []string) {
	for _, p := range e.parts {
		for _, n := range p.GetNodes() {
			out = append(out, n.GetId())
		}
	}
	return out
}

type planStream = interface {
	Recv() (*plannerv1.StreamPlanResponse, error)
}

// hear reads a stream until stop says so, or to its end.
func (e *told) hear(s planStream, stop func() bool) error {
	if e.text == nil {
		e.text = map[int32]string{}
	}
	for stop == nil || !stop() {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case m.GetText() != nil:
			e.text[m.GetText().GetRound()] += m.GetText().GetText()
		case m.GetPart() != nil:
			e.parts = append(e.parts, m.GetPart())
		case m.GetRound() != nil:
			e.rounds = append(e.rounds, m.GetRound())
		case m.GetResult() != nil:
			e.result = m.GetResult()
		}
	}
	return nil
}

const longer = "[\n{\"id\": \"find\", \"request\": \"Find a flight\", \"tool\": \"search\", \"args\": {\"q\": \"OSL\"}, \"needs\": []},\n" +
	"{\"id\": \"hotel\", \"request\": \"Find a hotel\", \"needs\": []},\n" +
	"{\"id\": \"pick\", \"request\": \"Pick both\", \"needs\": [\"find\", \"hotel\"]}\n]"

func TestStreamPlan(t *testing.T) {
	t.Parallel()
	ask := func(change ...func(*plannerv1.StreamPlanRequest)) *plannerv1.StreamPlanRequest {
		r := &plannerv1.StreamPlanRequest{Plan: goal()}
		for _, f := range change {
			f(r)
		}
		return r
	}
	// stream hears all of a plan that the model writes in these answers.
	stream := func(t *testing.T, script fakellm.Script) (*told, *fakellm.Server) {
		t.Helper()
		c, fake := writing(t, script, nil, nil)
		s, err := c.StreamPlan(t.Context(), ask())
		require.NoError(t, err)
		e := &told{}
		require.NoError(t, e.hear(s, nil))
		require.NotNil(t, e.result)
		return e, fake
	}
	t.Run("TellsATaskBeforeTheTextEnds", func(t *testing.T) {
		t.Parallel()
		h := holdAt(longer, `{"id": "pick"`)
		c, _ := writing(t, fakellm.Script{Default: h.reply}, nil, nil)
		s, err := c.StreamPlan(t.Context(), ask())
		require.NoError(t, err)
		e := &told{}
		require.NoError(t, e.hear(s, func() bool { return len(e.nodes()) == 2 }))
		<-h.at
		require.Equal(t, []string{"find", "hotel"}, e.nodes())
		require.NotContains(t, e.text[1], "Pick both")
		close(h.on)
		require.NoError(t, e.hear(s, nil))
		require.Equal(t, longer, e.text[1])
		require.Equal(t, longer, e.result.GetText())
		require.False(t, e.parts[0].GetStarted(), "nothing runs without a run")
		compiled, err := c.CreatePlan(t.Context(), goal())
		require.NoError(t, err)
		require.Equal(t, compiled.GetGraphHash(), e.result.GetGraphHash())
		require.Equal(t, "search", e.parts[0].GetNodes()[0].GetActor())
	})
	t.Run("AFaultyTaskAndAllBehindItAreNotTold", func(t *testing.T) {
		t.Parallel()
		bad := strings.Replace(longer, `{"q": "OSL"}`, `{"q": 7}`, 1)
		e, _ := stream(t, answers(bad, longer))
		require.Len(t, e.rounds, 1)
		require.Equal(t, "ARGUMENT_INVALID", e.rounds[0].GetDiagnostics()[0].GetCode())
		require.Equal(t, []string{"hotel", "find", "pick"}, e.nodes(), "the mended task comes with the second answer")
		require.NotNil(t, e.result.GetGraph())
	})
	t.Run("AMendedPlanKeepsWhatWasTold", func(t *testing.T) {
		t.Parallel()
		dangles := strings.Replace(longer, `["find", "hotel"]`, `["find", "car"]`, 1)
		e, fake := stream(t, answers(dangles, longer))
		require.Equal(t, []string{"find", "hotel", "pick"}, e.nodes())
		said := fake.Requests()[1].Messages[3].Content
		require.Contains(t, said, "UNKNOWN_REFERENCE")
		require.Contains(t, said, "List each of them again, unchanged")
		require.Contains(t, said, `{"id":"find","request":"Find a flight","tool":"search","args":{"q":"OSL"},"needs":[]}`)
		require.Equal(t, plannerv1.AuthorEnd_AUTHOR_END_COMPLETE, e.result.GetAuthoring().GetEnd())
	})
	t.Run("AnAnswerThatChangesWhatWasToldIsFaulty", func(t *testing.T) {
		t.Parallel()
		dangles := strings.Replace(longer, `["find", "hotel"]`, `["find", "car"]`, 1)
		for name, second := range map[string]string{
			"Request": strings.Replace(longer, "Find a hotel", "Find a hostel", 1),
			"Edges":   strings.Replace(longer, `"Find a hotel", "needs": []`, `"Find a hotel", "needs": ["find"]`, 1),
			"Missing": sound,
		} {
			e, fake := stream(t, answers(dangles, second, longer))
			require.Len(t, e.rounds, 2, name)
			require.Equal(t, "TASK_STARTED", e.rounds[1].GetDiagnostics()[0].GetCode(), name)
			require.Equal(t, "hotel", e.rounds[1].GetDiagnostics()[0].GetElement(), name)
			require.Contains(t, fake.Requests()[2].Messages[3].Content, `{"id":"hotel","request":"Find a hotel","needs":[]}`, name)
			require.NotNil(t, e.result.GetGraph(), name)
		}
	})
	t.Run("NotationsWithoutCertainPartsAreToldAtTheEnd", func(t *testing.T) {
		t.Parallel()
		c, _ := writing(t, answers("Find a flight -> Pick one\nFind a hotel -> Pick one\n"), nil, nil)
		s, err := c.StreamPlan(t.Context(), ask())
		require.NoError(t, err)
		e := &told{}
		require.NoError(t, e.hear(s, nil))
		require.Empty(t, e.parts)
		require.Len(t, e.result.GetGraph().GetNodes(), 3)
	})
	t.Run("ABrokenStreamIsNoPlan", func(t *testing.T) {
		t.Parallel()
		e, fake := stream(t, fakellm.Script{Default: fakellm.Reply{Text: longer, Fault: fakellm.Disconnect}})
		require.Nil(t, e.result.GetGraph())
		require.Equal(t, plannerv1.AuthorEnd_AUTHOR_END_MODEL_FAILED, e.result.GetAuthoring().GetEnd())
		require.Len(t, fake.Requests(), 1, "an answer that has begun is not asked for again")
	})
	t.Run("ACallerWhoGoesEndsTheCall", func(t *testing.T) {
		t.Parallel()
		gone := make(chan struct{})
		c, _ := writing(t, fakellm.Script{Default: fakellm.Reply{Text: longer, Hold: func(ctx context.Context, sent string) bool {
			if len(sent) < 40 {
				return true
			}
			<-ctx.Done()
			close(gone)
			return false
		}}}, nil, nil)
		ctx, cancel := context.WithCancel(t.Context())
		s, err := c.StreamPlan(ctx, ask())
		require.NoError(t, err)
		e := &told{}
		require.NoError(t, e.hear(s, func() bool { return e.text[1] != "" }))
		cancel()
		<-gone
	})
	t.Run("WithoutAnExecutorARunIsRefused", func(t *testing.T) {
		t.Parallel()
		c, fake := writing(t, answers(longer), nil, nil)
		s, err := c.StreamPlan(t.Context(), ask(func(r *plannerv1.StreamPlanRequest) { r.Run = &plannerv1.PlanRun{} }))
		require.NoError(t, err)
		require.Equal(t, "PLAN_RUN_NOT_CONFIGURED", errs.ReasonOf((&told{}).hear(s, nil)))
		require.Empty(t, fake.Requests())
	})
}
