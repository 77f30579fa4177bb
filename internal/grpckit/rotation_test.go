package grpckit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// TestRotation replaces a service token: processes of one step and of the next call each other at any time,
// and at the end the old token is refused.
func TestRotation(t *testing.T) {
	t.Parallel()
	before, after := conf.NewSecret("token-of-before"), conf.NewSecret("token-of-after")
	steps := []struct {
		shows  conf.Secret
		takes  []conf.Secret
		server *grpckit.BufNet
	}{{shows: before}, {shows: before, takes: []conf.Secret{after}}, {shows: after, takes: []conf.Secret{before}}, {shows: after}}
	for i, s := range steps {
		server, err := grpckit.NewServer(grpckit.Options{Auth: grpckit.AuthConfig{ServiceToken: s.shows, OldServiceTokens: s.takes}})
		require.NoError(t, err)
		executorv1.RegisterExecutorServiceServer(server, &holder{})
		steps[i].server = buffered(t, server, "x")
	}
	call := func(from, to int) error {
		conn, err := grpckit.Dial("x", grpckit.DialOptions{Token: steps[from].shows, Buf: steps[to].server})
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		return conn.Invoke(t.Context(), executorv1.ExecutorService_GetRun_FullMethodName, &executorv1.GetRunRequest{RunId: "run_1"}, &executorv1.Run{})
	}
	for i := range len(steps) - 1 {
		for _, pair := range [][2]int{{i, i}, {i, i + 1}, {i + 1, i}, {i + 1, i + 1}} {
			require.NoError(t, call(pair[0], pair[1]), "from step %d to step %d", pair[0], pair[1])
		}
	}
	require.True(t, errs.Is(call(0, 3), errs.Unauthenticated), "the old one opens nothing")
}
