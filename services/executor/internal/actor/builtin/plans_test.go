package builtin_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/compile"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/builtin"
	"github.com/epigraph-run/epigraph/workgraph"
)

var (
	plansFile = flag.String("plans", "../../../../../../shared/data/plans.jsonl.gz", "recorded plans, gzipped JSON Lines")
	plansEach = flag.Int("each", 50, "check each n-th recorded plan; 1 checks all")
)

// defaults are default actors of a plan with their arguments.
func defaults(t *testing.T) (*builtin.Set, map[string]map[string]json.RawMessage) {
	t.Helper()
	cfg := builtin.DefaultConfig()
	cfg.Agents = agent.Config{"finder": {Definition: `{"actions": {"cel": {}}}`}}
	set, err := builtin.New(cfg, builtin.Deps{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	named := func(text string) (m map[string]json.RawMessage) {
		require.NoError(t, json.Unmarshal([]byte(text), &m))
		return m
	}
	return set, map[string]map[string]json.RawMessage{
		"llm":          named(`{"system": "Be brief."}`),
		"agent":        named(`{"actions": {"cel": {}}, "form": "tools"}`),
		"agent/finder": nil,
		"http":         named(`{"url": "https://example.com"}`),
	}
}

// fits requires a plan that compiles to be valid with each default actor. ok is false if it does not compile;
// uses says that a problem of it uses the result of another one.
func fits(ctx context.Context, t *testing.T, set *builtin.Set, actors map[string]map[string]json.RawMessage, text string) (uses, ok bool) {
	t.Helper()
	read := plan.Parse(text, plan.WithContext(ctx))
	if read.NoPlan != nil || read.HasErrors() {
		return false, false
	}
	for name, named := range actors {
		g, err := compile.Graph(ctx, read.Graph, compile.Options{DefaultActor: name, Named: named})
		if _, bad := errors.AsType[*compile.Error](err); bad {
			return false, false
		}
		require.NoError(t, err)
		faults, err := workgraph.ValidateFor(ctx, g, set, nil)
		require.NoError(t, err)
		require.Empty(t, faults, "as the work of %s:\n%s", name, text)
		for i := range g.Nodes {
			uses = uses || g.Nodes[i].Named[compile.ArgReferences] != nil
		}
	}
	return uses, true
}

// A plan that compiles runs with the built-in actors, whatever its notation says of its problems.
func TestPlansFit(t *testing.T) {
	t.Parallel()
	set, actors := defaults(t)
	for name, text := range map[string]string{
		"Evidence":      "Plan: look it up\n#E1 = Search[tower]\nPlan: ask\n#E2 = LLM[how old is #E1]",
		"NumberedCalls": "1. search(\"a\")\n2. math(\"$1 * 2\")\n3. join()",
		"Assignments":   "1. who = FIND(CTX, \"who\") : find who\n2. ans = ASK(CTX, who) : ask",
		"NestedCalls":   `[{"name": "rate", "arguments": {}, "label": "var1"}, {"name": "pay", "arguments": {"sum": "$var1.value$"}, "label": "var2"}]`,
		"Code":          "a = fetch()\nb = parse(a)\nsave(b)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			uses, ok := fits(t.Context(), t, set, actors, text)
			require.True(t, ok)
			require.True(t, uses, "a problem uses the result of another one")
		})
	}
}

// TestRecordedPlansFit checks a sample of the recorded plans; -each 1 checks all of them.
func TestRecordedPlansFit(t *testing.T) {
	t.Parallel()
	f, err := os.Open(*plansFile)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s does not exist", *plansFile)
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	set, actors := defaults(t)
	plans, compiled, using := 0, 0, 0
	for dec := json.NewDecoder(z); ; plans++ {
		var r struct {
			ID, Raw string
		}
		if err := dec.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		if plans%*plansEach != 0 {
			continue
		}
		if uses, ok := fits(t.Context(), t, set, actors, r.Raw); ok {
			if compiled++; uses {
				using++
			}
		}
	}
	t.Logf("%d plans, %d of a sample compile, %d of these use results of earlier problems; all are valid with llm, agent, agent/NAME and http", plans, compiled, using)
	require.Positive(t, using)
}
