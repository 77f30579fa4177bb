package purse_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/services/executor/internal/purse"
)

// BenchmarkTryWithoutCaps asks for calls that no cap bounds: the registry is asked now and then, whatever
// the number of calls.
func BenchmarkTryWithoutCaps(b *testing.B) {
	r := &registry{}
	p := purse.New(r, slog.New(slog.DiscardHandler))
	call := purse.Call{Entry: outbox.Entry{RunID: "run", Node: "n", TaskID: "free"}}
	_, err := p.Try(b.Context(), "ns", call)
	require.NoError(b, err)
	before := len(r.seen().batches)
	b.ResetTimer()
	for b.Loop() {
		call.Call++
		_, err := p.Try(b.Context(), "ns", call)
		require.NoError(b, err)
	}
	b.ReportMetric(float64(len(r.seen().batches)-before)/float64(b.N), "requests/op")
}
