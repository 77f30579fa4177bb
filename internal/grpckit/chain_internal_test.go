package grpckit

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

func TestChain(t *testing.T) {
	t.Parallel()
	t.Run("Links/OuterToInner", func(t *testing.T) {
		var got []string
		for _, l := range (&chain{}).order() {
			got = append(got, l.name)
		}
		require.Equal(t, []string{"request-id", "metrics", "access-log", "to-status", "audit", "recovery", "auth", "timeout", "protovalidate"}, got)
	})
	t.Run("ServiceConfig/RetriesOnlyReads", func(t *testing.T) {
		sc, err := serviceConfig(protoregistry.GlobalFiles)
		require.NoError(t, err)
		require.Contains(t, sc, `"method":"GetRun"`)
		require.Contains(t, sc, `"method":"ListRuns"`)
		require.NotContains(t, sc, `"method":"StartRun"`)
		require.NotContains(t, sc, `"method":"WatchRun"`)
		require.Contains(t, sc, `"retryableStatusCodes":["UNAVAILABLE"]`)
	})
	t.Run("Polled/IsAMethodThatThereIs", func(t *testing.T) {
		require.True(t, polled(registryv1.RegistryService_LeaseOrders_FullMethodName))
		require.False(t, polled(registryv1.RegistryService_AcknowledgeOrders_FullMethodName))
	})
	t.Run("ReasonText/UpperSnake", func(t *testing.T) {
		for in, want := range map[string]string{"string.min_len": "STRING_MIN_LEN", "NotFound": "NOT_FOUND", "required": "REQUIRED"} {
			require.Equal(t, want, reasonText(in))
		}
	})
}
