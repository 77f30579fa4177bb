package discover_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workflow/discover"
)

// original is the workflow for which the scores of the original are known.
func original() discover.Workflow {
	return discover.Workflow{
		ID: "w", Name: "Research", Description: "Looks things up on the web", Tags: []string{"a", "b", "c"},
		Capabilities: discover.Capabilities{Triggers: []string{"chat"}, NodeTypes: []string{"agent", "code"}, Tools: []string{"run_command"}, Models: []string{"gpt-4-turbo"}},
	}
}

// TestB9 has the numbers of the original, from the function and from an index of one workflow.
func TestB9(t *testing.T) {
	t.Parallel()
	always, never := discover.History{Completed: 4}, discover.History{}
	for name, c := range map[string]struct {
		requires discover.Requirements
		history  discover.History
		want     float64
		tier     discover.Tier
	}{
		"nothing required, never ran":               {discover.Requirements{}, never, 0.95, discover.Reuse},
		"nothing required, always succeeded":        {discover.Requirements{}, always, 1, discover.Reuse},
		"one tool of two":                           {discover.Requirements{Tools: []string{"run_command", "web"}}, always, 0.6, discover.ForkAndPatch},
		"two tags of four":                          {discover.Requirements{Tags: []string{"b", "c", "d"}}, always, 0.95, discover.Reuse},
		"a tag that is not there":                   {discover.Requirements{Tags: []string{"z"}}, always, 0.9, discover.ForkAndPatch},
		"part of the model's name":                  {discover.Requirements{ModelCapability: "gpt-4"}, never, 0.95, discover.Reuse},
		"the model's name in another case":          {discover.Requirements{ModelCapability: "GPT-4"}, never, 0.95, discover.Reuse},
		"a model that is not there":                 {discover.Requirements{ModelCapability: "claude"}, never, 0.15, discover.CreateNew},
		"description matches, tools do not":         {discover.Requirements{Tools: []string{"web"}, Description: "THINGS UP"}, never, 0.2, discover.CreateNew},
		"all matched with description is capped":    {discover.Requirements{Triggers: []string{"chat"}, Tools: []string{"run_command"}, Description: "the web"}, always, 1, discover.Reuse},
		"half of the runs succeeded":                {discover.Requirements{}, discover.History{Completed: 1, Failed: 1}, 0.95, discover.Reuse},
		"canceled runs do not count":                {discover.Requirements{}, discover.History{Completed: 1, Canceled: 9}, 1, discover.Reuse},
		"all kinds are one sum":                     {discover.Requirements{Triggers: []string{"chat", "cron"}, NodeTypes: []string{"agent"}, Tools: []string{"web"}, ModelCapability: "gpt"}, always, 0.68, discover.ForkAndPatch},
		"four decimals":                             {discover.Requirements{Tools: []string{"run_command", "x", "y"}}, always, 0.4667, discover.CreateNew},
		"a name that is required twice counts once": {discover.Requirements{Tools: []string{"run_command", "run_command", "web"}}, always, 0.6, discover.ForkAndPatch},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := original()
			w.History = c.history
			m := discover.Score(c.requires, w)
			require.InDelta(t, c.want, m.Score, 0)
			require.Equal(t, c.tier, m.Tier)
			var x discover.Index
			x.Put(w)
			got, total, err := x.Search(t.Context(), discover.Query{Requirements: c.requires})
			require.NoError(t, err)
			require.Equal(t, 1, total)
			require.Equal(t, []discover.Match{m}, got)
		})
	}
}

// TestViews shows both views of a match as JSON.
func TestViews(t *testing.T) {
	t.Parallel()
	w := original()
	w.History = discover.History{Completed: 23, Failed: 2, NanoUSD: 7}
	m := discover.Score(discover.Requirements{Triggers: []string{"chat"}, Tools: []string{"web"}, ModelCapability: "gpt"}, w)
	nested, err := json.Marshal(m)
	require.NoError(t, err)
	require.JSONEq(t, `{"workflow_id": "w", "match_score": 0.7253, "relevance": 0, "recommendation": "fork_and_patch", "success_rate": 0.92, "execution_count": 25, "nano_usd": 7,
		"has_capabilities": {"triggers": ["chat"], "node_types": [], "tools": [], "model_names": ["gpt-4-turbo"]},
		"missing_capabilities": {"triggers": [], "node_types": [], "tools": ["web"], "model_names": []},
		"extra_capabilities": {"triggers": [], "node_types": ["agent", "code"], "tools": ["run_command"], "model_names": []}}`, string(nested))
	flat, err := json.Marshal(m.Flat())
	require.NoError(t, err)
	require.JSONEq(t, `{"workflow_id": "w", "match_score": 0.7253, "has": ["chat", "gpt-4-turbo"], "missing": ["web"], "extra": ["agent", "code", "run_command"], "success_rate": 0.92}`, string(flat))
}

func TestReadRequirements(t *testing.T) {
	t.Parallel()
	want := discover.Requirements{Triggers: []string{"chat"}, NodeTypes: []string{"agent"}, Tools: []string{"code", "http"}, Tags: []string{"x"}, Description: "d", ModelCapability: "gpt"}
	text := `{"trigger": " chat ", "node_types": ["agent", "agent"], "tool": "http", "tools": ["code", ""], "tag": "x", "tags": null, "description": "d", "model_capability": "gpt"}`
	for _, src := range []string{text, string(must(json.Marshal(text)))} {
		got, faults := discover.ReadRequirements([]byte(src))
		require.Empty(t, faults)
		require.Equal(t, want, got)
	}
	for _, src := range []string{"", " ", `""`, "{}"} {
		got, faults := discover.ReadRequirements([]byte(src))
		require.Empty(t, faults)
		require.Empty(t, got)
	}
	// As a task has them.
	of, faults := discover.ReadRequirements([]byte(`{"model": "gpt-4", "tools": ["code"]}`))
	require.Empty(t, faults)
	require.Equal(t, discover.Requirements{Tools: []string{"code"}, ModelCapability: "gpt-4"}, of)
	for src, codes := range map[string][]string{
		`{"model": "a", "model_capability": "b"}`:                                                  {"DUPLICATE_KEY"},
		`{"tool": 7, "shape": 1, "description": [], "tags": ["` + strings.Repeat("x", 201) + `"]}`: {"WRONG_TYPE", "UNKNOWN_KEY", "WRONG_TYPE", "TOO_LONG"},
		`{"tools": [` + strings.Repeat(`"", `, 20) + manyNames(101) + `]}`:                         {"TOO_LARGE"},
		`{"tool": "a", "tool": "b"}`:                                                               {"DUPLICATE_KEY"},
		`[]`:                                                                                       {"NOT_A_MAPPING"},
		`{"tool": `:                                                                                {"SYNTAX"},
		`{} {}`:                                                                                    {"SYNTAX"},
		`{"description": "` + strings.Repeat("x", 5000) + `"}`:                 {"TOO_LONG"},
		`{"tools": ["` + strings.Repeat("x", discover.MaxRequirements) + `"]}`: {"TOO_LARGE"},
	} {
		_, faults := discover.ReadRequirements([]byte(src))
		var got []string
		for _, f := range faults {
			got = append(got, f.Code)
		}
		require.Equal(t, codes, got, "%.60s", src)
	}
}

// TestOfCode asks for a workflow with a webhook and a script, as a delegating agent does.
func TestOfCode(t *testing.T) {
	t.Parallel()
	d, faults := workflow.Read([]byte("name: W\ntriggers: [webhook]\nsteps: [{type: http, url: u}, {type: code, code: '1'}]"))
	require.Empty(t, faults)
	r, faults := discover.ReadRequirements([]byte(`{"trigger": "webhook", "tools": ["code"]}`))
	require.Empty(t, faults)
	w := discover.Workflow{ID: "w", Capabilities: discover.CapabilitiesOf(d), History: discover.History{Completed: 1}}
	m := discover.Score(r, w)
	require.Equal(t, discover.Reuse, m.Tier)
	require.Empty(t, m.Flat().Missing)
	require.Equal(t, [][]string{{"code", "webhook"}, {"http"}}, [][]string{m.Flat().Has, m.Flat().Extra})
	require.Equal(t, []string{"http"}, m.Extra.Tools)
	named, faults := discover.ReadRequirements([]byte(`{"tools": ["http_request"]}`))
	require.Empty(t, faults)
	require.Empty(t, discover.Score(named, w).Missing.Tools)
	var x discover.Index
	x.Put(w)
	found, _, err := x.Search(t.Context(), discover.Query{Requirements: named})
	require.NoError(t, err)
	require.Equal(t, discover.Score(named, w), found[0])
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func manyNames(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf(`"n%d"`, i)
	}
	return strings.Join(names, ",")
}

func FuzzReadRequirements(f *testing.F) {
	for _, src := range []string{`{"tools": ["a"]}`, `"{\"trigger\": \"chat\"}"`, `{"a": [}`, ``, `{"tool": "a", "tools": ["a", "b"]}`} {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		r, faults := discover.ReadRequirements(src)
		if len(faults) > 0 {
			require.Empty(t, r)
			return
		}
		again, faults := discover.ReadRequirements(must(json.Marshal(r)))
		require.Empty(t, faults)
		require.Equal(t, r, again)
	})
}

// TestCapabilities takes them from a definition, steps within others included.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	d, faults := workflow.Read([]byte(`
name: T
trigger: {type: manual}
model: small
agents:
  writer: {instructions: Write., model: large, tools: [agent/helper, {actor: mcp/files/read, name: read}]}
steps:
  - parallel:
      - {id: a, type: agent, agent: writer, prompt: "Go"}
      - - {id: b, type: categorizer, prompt: "x", categories: [p, q], model: tiny}
        - id: c
          type: switch
          rules: [{field: b.category, value: p, steps: [{type: actor, actor: mail}]}]
          default: continue
`))
	require.Empty(t, faults)
	require.Equal(t, discover.Capabilities{
		Triggers: []string{"manual"}, NodeTypes: []string{"actor", "agent", "categorizer", "switch"}, Tools: []string{"agent/helper", "mail", "mcp/files/read"}, Models: []string{"large", "small", "tiny"},
	}, discover.CapabilitiesOf(d))
	t.Run("AWorkflowWithinIt", func(t *testing.T) {
		t.Parallel()
		d, faults := workflow.Read([]byte(`
name: T
agents:
  front: {instructions: Ask., model: small}
  plan:
    workflow:
      name: Plan
      trigger: chat
      inputs: {task: {type: string}}
      agents: {doer: {instructions: Do., model: large, tools: [mail]}}
      steps:
        - {type: extractor, prompt: "{{ inputs.task }}", schema: {a: {type: string}}, model: tiny}
        - {type: agent, agent: doer, prompt: Go}
graph: [front, plan]
`))
		require.Empty(t, faults)
		require.Equal(t, discover.Capabilities{
			Triggers: []string{"manual"}, NodeTypes: []string{"agent", "extractor", "team", "workflow"}, Tools: []string{"mail"}, Models: []string{"large", "small", "tiny"},
		}, discover.CapabilitiesOf(d))
	})
}

// TestText finds workflows by words alone, and orders equal ones by words besides.
func TestText(t *testing.T) {
	t.Parallel()
	var x discover.Index
	for id, about := range map[string]string{"1": "Verify webhooks of a shop", "2": "Webhook, nothing else", "3": "Send letters", "4": "发送邮件 to users"} {
		x.Put(discover.Workflow{ID: id, Name: "W" + id, Description: about, Capabilities: discover.Capabilities{Tools: []string{"http"}}})
	}
	found := func(q discover.Query) (ids []string) {
		matches, _, err := x.Search(t.Context(), q)
		require.NoError(t, err)
		for _, m := range matches {
			ids = append(ids, m.ID)
		}
		return ids
	}
	require.Equal(t, []string{"1", "2"}, found(discover.Query{Text: "webhook verify!"}))
	require.Equal(t, []string{"4"}, found(discover.Query{Text: "邮件"}))
	require.Equal(t, []string{"3"}, found(discover.Query{Text: "LETTER"}))
	require.Empty(t, found(discover.Query{Text: "tea"}))
	require.Equal(t, []string{"3", "1", "2", "4"}, found(discover.Query{Text: "letters", Requirements: discover.Requirements{Tools: []string{"http"}}}))
	require.Equal(t, []string{"2", "4"}, found(discover.Query{Exclude: []string{"1", "3"}}))
	require.Equal(t, []string{"1"}, found(discover.Query{Limit: 1}))

	require.True(t, x.SetHistory("4", discover.History{Completed: 1}))
	require.True(t, x.SetHistory("1", discover.History{Failed: 1}))
	require.False(t, x.SetHistory("9", discover.History{}))
	require.Equal(t, []string{"4", "2", "3", "1"}, found(discover.Query{}))
	require.True(t, x.Remove("4"))
	require.False(t, x.Remove("4"))
	require.Equal(t, 3, x.Len())
	require.Empty(t, found(discover.Query{Text: "邮件"}))

	matches, _, err := x.Search(t.Context(), discover.Query{Text: "webhook verification"})
	require.NoError(t, err)
	require.Less(t, matches[0].Score, 0.95, "a part of the words is no reason to take it as it is")
	require.Positive(t, matches[0].Relevance)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = x.Search(ctx, discover.Query{})
	require.ErrorIs(t, err, context.Canceled)
}

// spread makes workflows as they are: few triggers and types, many tools and tags, of which some are
// used by many and most by few.
type spread struct {
	r                       *rand.Rand
	tool, tag, model, vocab *rand.Zipf
}

func newSpread(seed uint64) *spread {
	r := rand.New(rand.NewPCG(seed, 1))
	return &spread{r, rand.NewZipf(r, 1.2, 3, 4999), rand.NewZipf(r, 1.2, 3, 1999), rand.NewZipf(r, 1.5, 2, 49), rand.NewZipf(r, 1.1, 5, 29_999)}
}

func (s *spread) names(prefix string, z *rand.Zipf, most int) []string {
	out := make([]string, s.r.IntN(most+1))
	for i := range out {
		out[i] = fmt.Sprintf("%s%d", prefix, z.Uint64())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (s *spread) some(of ...string) []string {
	var out []string
	for _, name := range of {
		if s.r.IntN(4) == 0 {
			out = append(out, name)
		}
	}
	return out
}

func (s *spread) words(least, most int) string {
	out := make([]string, least+s.r.IntN(most-least+1))
	for i := range out {
		out[i] = fmt.Sprintf("word%d", s.vocab.Uint64())
	}
	return strings.Join(out, " ")
}

func (s *spread) capabilities() discover.Capabilities {
	return discover.Capabilities{
		Triggers:  s.some("manual", "webhook", "cron", "chat", "telegram", "workflow", "error"),
		NodeTypes: s.some("agent", "code", "http", "switch", "human", "wait", "merge", "loop", "filter", "transform", "categorizer", "extractor", "workflow", "actor"),
		Tools:     s.names("tool", s.tool, 6), Models: s.names("model", s.model, 2),
	}
}

func (s *spread) workflow(id int) discover.Workflow {
	return discover.Workflow{
		ID: fmt.Sprintf("workflow-%06d", id), Name: s.words(2, 5), Description: s.words(8, 40), Tags: s.names("tag", s.tag, 4),
		Capabilities: s.capabilities(), History: discover.History{Completed: int64(s.r.IntN(20)), Failed: int64(s.r.IntN(5))},
	}
}

func (s *spread) query() discover.Query {
	c := s.capabilities()
	q := discover.Query{Requirements: discover.Requirements{Triggers: c.Triggers, NodeTypes: c.NodeTypes, Tools: c.Tools, Tags: s.names("tag", s.tag, 3)}}
	switch s.r.IntN(4) {
	case 0:
		q.Description = s.words(1, 2)
	case 1:
		q.Text = s.words(1, 8)
	case 2:
		q.Requirements, q.Text = discover.Requirements{}, s.words(1, 8)
	default:
		q.ModelCapability = "odel1"
	}
	return q
}

// TestExact compares searches with the score of every workflow, after changes.
func TestExact(t *testing.T) {
	t.Parallel()
	s := newSpread(7)
	var x discover.Index
	all := map[string]discover.Workflow{}
	for range 3000 {
		w := s.workflow(s.r.IntN(800))
		switch s.r.IntN(4) {
		case 0:
			require.Equal(t, all[w.ID].ID != "", x.Remove(w.ID))
			delete(all, w.ID)
		default:
			x.Put(w)
			all[w.ID] = w
		}
	}
	require.Equal(t, len(all), x.Len())
	for range 200 {
		q := s.query()
		q.Text, q.Limit = "", 1+s.r.IntN(20)
		var want []discover.Match
		for _, w := range all {
			want = append(want, discover.Score(q.Requirements, w))
		}
		slices.SortFunc(want, func(a, b discover.Match) int {
			if a.Score != b.Score {
				return int((b.Score - a.Score) * 1e6)
			}
			return strings.Compare(a.ID, b.ID)
		})
		got, total, err := x.Search(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, len(all), total)
		require.Equal(t, want[:q.Limit], got)
	}
}

// TestConcurrent searches while workflows come and go.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	var x discover.Index
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			s := newSpread(uint64(k))
			for range 500 {
				if k == 0 {
					x.Put(s.workflow(s.r.IntN(100)))
					x.Remove(s.workflow(s.r.IntN(100)).ID)
					continue
				}
				_, _, err := x.Search(context.Background(), s.query())
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkDiscover searches among 100,000 workflows.
func BenchmarkDiscover(b *testing.B) {
	const n = 100_000
	s := newSpread(3)
	var x discover.Index
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	for i := range n {
		x.Put(s.workflow(i))
	}
	loaded := time.Since(began)
	runtime.GC()
	runtime.ReadMemStats(&after)
	var times []time.Duration
	for b.Loop() {
		q := s.query()
		from := time.Now()
		if _, _, err := x.Search(context.Background(), q); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(from))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/workflow")
	b.ReportMetric(loaded.Seconds(), "load-s")
}

// BenchmarkDiscoverWorst searches by as much as a query can ask.
func BenchmarkDiscoverWorst(b *testing.B) {
	s := newSpread(3)
	var x discover.Index
	for i := range 100_000 {
		x.Put(s.workflow(i))
	}
	q := discover.Query{Limit: discover.MaxLimit, Text: s.words(64, 64)}
	for i := range 100 {
		q.Tools, q.Tags, q.NodeTypes, q.Triggers = append(q.Tools, fmt.Sprintf("tool%d", i)), append(q.Tags, fmt.Sprintf("tag%d", i)), append(q.NodeTypes, fmt.Sprintf("n%d", i)), append(q.Triggers, fmt.Sprintf("t%d", i))
	}
	q.Description, q.ModelCapability = "word1", "m"
	for b.Loop() {
		if _, _, err := x.Search(context.Background(), q); err != nil {
			b.Fatal(err)
		}
	}
}
