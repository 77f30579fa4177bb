package executor_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/attempttoken"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestTokenKeys goes through the stages of an installation: open, then with a key, then with the next one.
// Each step is a restart on the same database.
func TestTokenKeys(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "executor.db")
	first, second := []byte("the first key of this installation"), []byte("the second key")
	given := map[string]string{} // tokens of attempts that wait, by the step that gave them out
	complete := func(t *testing.T, f *fixture, token string) string {
		t.Helper()
		_, err := f.CompleteAttempt(t.Context(), &executorv1.CompleteAttemptRequest{AttemptToken: token, Result: &executorv1.CompleteAttemptRequest_Completed{Completed: &executorv1.AttemptPerformed{}}})
		return errs.ReasonOf(err)
	}
	token := func(t *testing.T, f *fixture) (id, token string) {
		t.Helper()
		run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "w", Actor: "delegates"})})
		require.NoError(t, err)
		testkit.Eventually(t, func() bool {
			r, err := f.ListVisits(t.Context(), &executorv1.ListVisitsRequest{RunId: run.GetId()})
			require.NoError(t, err)
			if len(r.GetVisits()) == 1 {
				token = r.GetVisits()[0].GetWait().GetAttemptToken()
			}
			return token != ""
		})
		return run.GetId(), token
	}
	for _, step := range []struct {
		name string
		keys [][]byte
		// takes and refuses are the steps whose tokens are valid here, or are not.
		takes, refuses []string
	}{
		{name: "Open"},
		{name: "OpenAgain", takes: []string{"Open"}},
		{name: "First", keys: [][]byte{first}, takes: []string{"OpenAgain"}},
		{name: "NextIsKnown", keys: [][]byte{first, second}, takes: []string{"First"}},
		{name: "NextSigns", keys: [][]byte{second, first}, takes: []string{"NextIsKnown"}},
		{name: "FirstIsGone", keys: [][]byte{second}, takes: []string{"NextSigns"}, refuses: []string{"First/kept"}},
	} {
		t.Run(step.name, func(t *testing.T) {
			f := serve(t, workgraph.Actors{"delegates": asks(workgraph.Wait{Completion: &workgraph.CompletionWait{}})}, func(c *executor.Config) { c.SQLitePath, c.TokenKeys = path, step.keys })
			for _, name := range step.takes {
				require.Empty(t, complete(t, f, given[name]), name)
			}
			for _, name := range step.refuses {
				require.Equal(t, attempttoken.ReasonInvalid, complete(t, f, given[name]), name)
			}
			_, given[step.name] = token(t, f)
			var id string
			id, given[step.name+"/kept"] = token(t, f)
			for _, guess := range []attempttoken.Keys{{}, attempttoken.NewKeys(nil), attempttoken.NewKeys([]byte{}), attempttoken.NewKeys(make([]byte, 32))} {
				made := guess.Sign(attempttoken.Token{Namespace: "acme", RunID: id, Node: "w", Visit: 1, Attempt: 1})
				require.Equal(t, attempttoken.ReasonInvalid, complete(t, f, made), "a token cannot be made up")
			}
		})
	}
}
