package executor_test

import (
	"context"
	"io"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
)

func TestModelAccounts(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		fake := fakellm.New(fakellm.Script{Rules: []fakellm.Rule{
			{Match: "stop", Reply: fakellm.Reply{Fault: fakellm.RateLimit, RetryAfter: 5 * time.Minute}},
			{Match: "hang", Reply: fakellm.Reply{Fault: fakellm.Hang}},
		}})
		server := httptest.NewServer(fake)
		t.Cleanup(server.Close)
		t.Cleanup(func() { require.NoError(t, fake.Close()) })
		f := serve(t, nil, store, func(c *executor.Config) {
			c.Parallel = 2
			c.Models.Accounts = map[string]llm.AccountLimits{"refused": {RequestsPerMinute: 1000}, "narrow": {MaxConcurrent: 1}}
			for _, account := range []string{"refused", "narrow"} {
				c.Models.Change(account, func(p *llm.Profile) { p.BaseURL, p.Model, p.Account = server.URL+"/v1", "fake-1", account })
			}
		})
		ask := func(profile, request string) *graphv1.Node {
			return &graphv1.Node{Id: "ask", Actor: "llm", Named: map[string]*graphv1.Payload{
				"profile": value(`"` + profile + `"`), "request": value(`"` + request + `"`)}}
		}
		begin := func(t *testing.T, n *graphv1.Node) string {
			r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: &graphv1.Graph{Nodes: []*graphv1.Node{n}}})
			require.NoError(t, err)
			return r.GetId()
		}
		t.Run("CallsThatWaitHoldNoSlot", func(t *testing.T) {
			hangs := begin(t, ask("narrow", "hang"))
			testkit.Eventually(t, func() bool { return len(fake.Requests()) == 1 })
			waiting := begin(t, ask("narrow", "later"))
			later := []string{waiting}
			for range 5 { // with the one under way more than there are slots
				later = append(later, begin(t, ask("narrow", "later")))
			}
			b, _ := explained(t, f, waiting, executorv1.BlockerKind_BLOCKER_KIND_MODEL_ACCOUNT)
			require.Equal(t, "narrow", b.GetName())
			require.Contains(t, b.GetMessage(), "waits for room in the limits of the model account narrow")
			f.wait(t, begin(t, ask("refused", "now")), executorv1.RunState_RUN_STATE_COMPLETED)
			_, err := f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: hangs})
			require.NoError(t, err)
			for _, id := range later {
				f.wait(t, id, executorv1.RunState_RUN_STATE_COMPLETED)
			}
		})
		govern := func(ctx context.Context, account string) (grpc.BidiStreamingClient[executorv1.GovernRequest, executorv1.GovernResponse], *executorv1.GovernResponse, error) {
			s, err := executorv1.NewPeerServiceClient(f.conn).Govern(ctx)
			require.NoError(t, err)
			require.NoError(t, s.Send(&executorv1.GovernRequest{Step: &executorv1.GovernRequest_Call{Call: &executorv1.ModelCall{
				Namespace: "acme", Account: account, Estimate: &executorv1.ModelTokens{Input: 10, Output: 10}}}}))
			m, err := s.Recv()
			return s, m, err
		}
		t.Run("CallsOfOtherServicesTakeRoom", func(t *testing.T) {
			s, m, err := govern(t.Context(), "narrow")
			require.NoError(t, err)
			require.Nil(t, m.GetRefusal())
			id := begin(t, ask("narrow", "later"))
			explained(t, f, id, executorv1.BlockerKind_BLOCKER_KIND_MODEL_ACCOUNT)
			require.NoError(t, s.Send(&executorv1.GovernRequest{Step: &executorv1.GovernRequest_Sent{Sent: &executorv1.ModelCallSent{}}}))
			require.NoError(t, s.Send(&executorv1.GovernRequest{Step: &executorv1.GovernRequest_End{End: &executorv1.ModelCallEnd{Used: &executorv1.ModelTokens{Input: 9, Output: 5}}}}))
			_, err = s.Recv()
			require.ErrorIs(t, err, io.EOF)
			f.wait(t, id, executorv1.RunState_RUN_STATE_COMPLETED)
		})
		t.Run("CallsOfAServiceThatGoesAwayEnd", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			_, _, err := govern(ctx, "narrow")
			require.NoError(t, err)
			id := begin(t, ask("narrow", "later"))
			explained(t, f, id, executorv1.BlockerKind_BLOCKER_KIND_MODEL_ACCOUNT)
			cancel()
			f.wait(t, id, executorv1.RunState_RUN_STATE_COMPLETED)
		})
		t.Run("AnAccountThatIsNotThereIsNamed", func(t *testing.T) {
			_, _, err := govern(t.Context(), "wide")
			e := errs.From(grpckit.FromStatus(err))
			require.Equal(t, "MODEL_ACCOUNT_UNKNOWN", e.Reason)
			require.Contains(t, e.Message, `no model account "wide"`)
		})
		t.Run("ARefusalIsExplainedToOthers", func(t *testing.T) {
			explained(t, f, begin(t, ask("refused", "stop")), executorv1.BlockerKind_BLOCKER_KIND_BACKOFF)
			asked := len(fake.Requests())
			id := begin(t, ask("refused", "now"))
			var b *executorv1.Blocker
			testkit.Eventually(t, func() bool { // it is known with the answer to the first exchange
				b, _ = explained(t, f, id, executorv1.BlockerKind_BLOCKER_KIND_MODEL_ACCOUNT)
				return b.GetUntil() != nil
			})
			require.Contains(t, b.GetMessage(), "the provider refused calls and wants none for now")
			require.WithinRange(t, b.GetUntil().AsTime(), time.Now().Add(3*time.Minute), time.Now().Add(5*time.Minute))
			now := len(fake.Requests())
			require.Equal(t, asked, now)
			_, m, err := govern(t.Context(), "refused")
			require.NoError(t, err)
			require.Contains(t, m.GetRefusal().GetMessage(), "the provider refused calls")
			require.Greater(t, m.GetRefusal().GetRetryAfter().AsDuration(), 3*time.Minute)
			_, err = f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: id})
			require.NoError(t, err)
			f.wait(t, id, executorv1.RunState_RUN_STATE_CANCELED)
		})
	})
}
