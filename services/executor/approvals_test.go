package executor_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
)

// TestApprovals decides approvals of a run with the key that started it, and with another one.
func TestApprovals(t *testing.T) {
	serverTLS, clientTLS := authority(t)
	for store, change := range map[string]func(*executor.Config){
		"SQLite":   func(*executor.Config) {},
		"Postgres": func(c *executor.Config) { c.Store, c.PostgresURL = "postgres", conf.NewSecret(pgtest.New(t)) },
	} {
		t.Run(store+"/ByAnother", func(t *testing.T) {
			byAnother(t, openWith(t, "p", serverTLS, clientTLS, func(c *executor.Config) {
				change(c)
				c.Approvals.ByAnother = true
			}))
		})
	}
	t.Run("Unset/TheStarterDecides", func(t *testing.T) {
		r := openWith(t, "p", serverTLS, clientTLS, nil)
		starter := executorv1.NewExecutorServiceClient(r.dial(keyAcme))
		_, err := decide(t.Context(), starter, openQuestion(t, starter, beginOf(t, starter, actorNode("q", "human", `{"prompt": "pay?", "approve": {"amount": 7}}`))))
		require.NoError(t, err)
	})
}

// approval asks for one.
const approval = `{"id": "q", "actor": "human", "named": {"prompt": "pay?", "approve": {"amount": 7}}}`

// beginOf starts a run of one node.
func beginOf(t *testing.T, c executorv1.ExecutorServiceClient, node *graphv1.Node) string {
	t.Helper()
	run, err := c.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(node)})
	require.NoError(t, err)
	return run.GetId()
}

// openQuestion is the open interrupt of a run or of one below it.
func openQuestion(t *testing.T, c executorv1.ExecutorServiceClient, runID string) (id string) {
	t.Helper()
	testkit.Eventually(t, func() bool {
		list, err := c.ListInterrupts(t.Context(), &executorv1.ListInterruptsRequest{RunId: runID, States: []executorv1.InterruptState{executorv1.InterruptState_INTERRUPT_STATE_OPEN}})
		require.NoError(t, err)
		if len(list.GetInterrupts()) == 0 {
			return false
		}
		id = list.GetInterrupts()[0].GetId()
		return true
	})
	return id
}

func decide(ctx context.Context, c executorv1.ExecutorServiceClient, id string) (*executorv1.Interrupt, error) {
	return c.AnswerInterrupt(ctx, &executorv1.AnswerInterruptRequest{InterruptId: id, Decision: executorv1.Decision_DECISION_APPROVED, By: "somebody else"})
}

func byAnother(t *testing.T, r *replica) {
	starter := executorv1.NewExecutorServiceClient(r.dial(keyAcme))
	// As the gateway calls for an approver.
	front := executorv1.NewExecutorServiceClient(r.dial(serviceToken))
	another := func(t *testing.T) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), grpckit.HeaderNamespace, "acme", grpckit.HeaderPrincipal,
			access.Principal{Kind: access.Key, Name: "boss", Scopes: access.Approver.Scopes()}.Encode())
	}
	refused := func(t *testing.T, id string) {
		t.Helper()
		_, err := decide(t.Context(), starter, id)
		require.Equal(t, "APPROVER_STARTED_RUN", errs.ReasonOf(err))
		require.True(t, errs.Is(err, errs.PermissionDenied))
		require.Contains(t, err.Error(), "key:acme")
		require.NotEmpty(t, errs.From(err).HintText())
		q, err := starter.GetInterrupt(t.Context(), &executorv1.GetInterruptRequest{InterruptId: id})
		require.NoError(t, err)
		require.Equal(t, executorv1.InterruptState_INTERRUPT_STATE_OPEN, q.GetState())
	}
	allowed := func(t *testing.T, id string) {
		t.Helper()
		q, err := decide(another(t), front, id)
		require.NoError(t, err)
		require.Equal(t, "key:boss", q.GetPrincipal())
	}
	t.Run("Starter/IsRefusedAndAnotherDecides", func(t *testing.T) {
		id := openQuestion(t, starter, beginOf(t, starter, actorNode("q", "human", `{"prompt": "pay?", "approve": {"amount": 7}}`)))
		refused(t, id)
		allowed(t, id)
	})
	t.Run("Starter/OfTheRootIsRefused", func(t *testing.T) {
		id := openQuestion(t, starter, beginOf(t, starter, actorNode("s", "spawn", `{"runs": [{"graph": {"nodes": [`+approval+`]}}]}`)))
		refused(t, id)
		allowed(t, id)
	})
	t.Run("Starter/OfWhatWasForkedIsRefused", func(t *testing.T) {
		origin := beginOf(t, starter, actorNode("q", "human", `{"prompt": "pay?", "approve": {"amount": 7}}`))
		openQuestion(t, starter, origin)
		ben := metadata.AppendToOutgoingContext(t.Context(), grpckit.HeaderNamespace, "acme", grpckit.HeaderPrincipal,
			access.Principal{Kind: access.Key, Name: "ben", Scopes: []access.Scope{access.Run, access.Approve}}.Encode())
		fork, err := front.ForkRun(ben, &executorv1.ForkRunRequest{RunId: origin})
		require.NoError(t, err)
		again, err := front.ForkRun(ben, &executorv1.ForkRunRequest{RunId: fork.GetId()})
		require.NoError(t, err)
		for _, id := range []string{openQuestion(t, starter, fork.GetId()), openQuestion(t, starter, again.GetId())} {
			refused(t, id)
			_, err = decide(ben, front, id)
			require.Equal(t, "APPROVER_STARTED_RUN", errs.ReasonOf(err), "whoever forked it started it, too")
			allowed(t, id)
		}
	})
	t.Run("Starter/OfTheRootOfWhatWasForkedIsRefused", func(t *testing.T) {
		root := beginOf(t, starter, actorNode("s", "spawn", `{"runs": [{"graph": {"nodes": [`+approval+`]}}]}`))
		q, err := starter.GetInterrupt(t.Context(), &executorv1.GetInterruptRequest{InterruptId: openQuestion(t, starter, root)})
		require.NoError(t, err)
		require.NotEqual(t, root, q.GetRunId())
		ben := metadata.AppendToOutgoingContext(t.Context(), grpckit.HeaderNamespace, "acme", grpckit.HeaderPrincipal,
			access.Principal{Kind: access.Key, Name: "ben", Scopes: []access.Scope{access.Run, access.Approve}}.Encode())
		fork, err := front.ForkRun(ben, &executorv1.ForkRunRequest{RunId: q.GetRunId()})
		require.NoError(t, err)
		id := openQuestion(t, starter, fork.GetId())
		refused(t, id)
		allowed(t, id)
	})
	t.Run("Starter/AnswersQuestions", func(t *testing.T) {
		id := openQuestion(t, starter, beginOf(t, starter, actorNode("q", "human", `{"prompt": "which?"}`)))
		_, err := starter.AnswerInterrupt(t.Context(), &executorv1.AnswerInterruptRequest{InterruptId: id, Answer: &graphv1.Payload{Json: []byte(`"this"`)}})
		require.NoError(t, err)
	})
}
