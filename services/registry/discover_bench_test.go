package registry_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/store/pg"
	"github.com/epigraph-run/epigraph/services/registry/internal/store/sqlite"
	"github.com/epigraph-run/epigraph/workflow/discover"
)

// discovered is how many workflows the benchmark of discovery has: as many as a namespace may have.
const discovered = 100_000

var (
	benchTypes = []string{"agent", "categorizer", "extractor", "code", "http", "actor", "transform", "reply_chat", "switch", "assertion", "filter", "merge", "human", "wait", "workflow"}
	benchWords = []string{"invoice", "letter", "report", "daily", "customer", "support", "summary", "translate", "weather", "order", "parcel", "alert", "backup", "release", "review", "meeting"}
)

// some are up to n of the words.
func some(r *rand.Rand, words []string, n int) (out []string) {
	for range 1 + r.IntN(n) {
		out = append(out, words[r.IntN(len(words))])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// benchTools are 200 names.
func benchTools() (out []string) {
	for i := range 200 {
		out = append(out, fmt.Sprintf("mcp/server%d/tool%d", i%20, i))
	}
	return out
}

func benchWorkflow(r *rand.Rand, tools []string, i int) catalog.Workflow {
	w := catalog.New("bench", dbkit.Now(), "")
	words := some(r, benchWords, 6)
	w.Slug, w.Base, w.Number, w.Change, w.Latest, w.Versions = fmt.Sprint("w-", i), fmt.Sprint("w-", i), 1, int64(i+1), 1, 1
	w.Name, w.Tags = fmt.Sprintf("%s %s %d", words[0], words[len(words)-1], i), some(r, benchWords, 4)
	w.Description = fmt.Sprintf("Does the %v of the day for number %d.", words, i)
	w.Can = discover.Capabilities{Triggers: []string{"manual"}, NodeTypes: some(r, benchTypes, 8), Tools: some(r, tools, 5), Models: []string{fmt.Sprint("model-", r.IntN(20))}}
	return w
}

// fill adds the workflows without their texts, which a search does not read.
func fill(b *testing.B, s store.Store) {
	r, tools := rand.New(rand.NewPCG(1, 2)), benchTools()
	for i := 0; i < discovered; i += 5000 {
		batch := make([]catalog.Workflow, 5000)
		for n := range batch {
			batch[n] = benchWorkflow(r, tools, i+n)
		}
		require.NoError(b, s.Update(b.Context(), "bench", func(ctx context.Context, tx store.Tx) error {
			for _, w := range batch {
				if err := tx.InsertWorkflow(ctx, w); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	require.NoError(b, s.Close())
}

// BenchmarkDiscover searches 100,000 workflows by way of gRPC. It reports how long the first search
// takes, which reads them, how long others take, and the memory of the index.
func BenchmarkDiscover(b *testing.B) {
	for name, open := range map[string]func(*testing.B) (registry.Config, store.Store){
		"sqlite": func(b *testing.B) (registry.Config, store.Store) {
			cfg := registry.DefaultConfig()
			cfg.SQLitePath = filepath.Join(b.TempDir(), "registry.db")
			s, err := sqlite.Open(b.Context(), cfg.SQLitePath, dbkit.SQLiteOptions{})
			require.NoError(b, err)
			_, err = s.Migrate(b.Context())
			require.NoError(b, err)
			return cfg, s
		},
		"postgres": func(b *testing.B) (registry.Config, store.Store) {
			cfg := registry.DefaultConfig()
			url := pgtest.New(b)
			cfg.Store, cfg.PostgresURL, cfg.MaxConns = "postgres", conf.NewSecret(url), 4
			s, err := pg.Open(b.Context(), url, dbkit.PostgresOptions{})
			require.NoError(b, err)
			_, err = s.Migrate(b.Context())
			require.NoError(b, err)
			return cfg, s
		},
	} {
		b.Run(name, func(b *testing.B) {
			cfg, s := open(b)
			fill(b, s)
			dial, _ := serveConn(b, cfg, grpckit.AuthConfig{}, nil)
			search(b, registryv1.NewWorkflowServiceClient(dial("")))
		})
	}
}

func search(b *testing.B, c registryv1.WorkflowServiceClient) {
	ctx := grpckit.WithNamespace(b.Context(), "bench")
	r, tools := rand.New(rand.NewPCG(3, 4)), benchTools()
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, begin := heap(), time.Now()
	first, err := c.DiscoverWorkflows(ctx, &registryv1.DiscoverWorkflowsRequest{})
	require.NoError(b, err)
	require.EqualValues(b, discovered, first.GetTotalSearched())
	load := time.Since(begin)
	used := heap() - before
	var took []time.Duration
	for b.Loop() {
		req := &registryv1.DiscoverWorkflowsRequest{Limit: 5, Requirements: &registryv1.WorkflowRequirements{
			NodeTypes: some(r, benchTypes, 4), Tools: some(r, tools, 3), Tags: some(r, benchWords, 2),
		}}
		if r.IntN(2) == 0 {
			req.Query, req.Requirements.Description = "customer report", "of the day"
		}
		begin := time.Now()
		_, err := c.DiscoverWorkflows(ctx, req)
		require.NoError(b, err)
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(load.Seconds(), "load-s")
	b.ReportMetric(float64(used)/discovered, "B/workflow")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
