package threadvalue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/services/executor/internal/threadvalue"
	"github.com/epigraph-run/epigraph/workgraph"
)

const ns = "ns"

// held is a store of threads in memory.
type held struct {
	threads map[string]*thread.Thread
	items   map[string][]thread.Item
	busy    string
	// gone are threads whose items were removed meanwhile.
	gone string
}

func (h *held) put(id, partOf string, items ...thread.Item) *thread.Thread {
	if h.threads == nil {
		h.threads, h.items = map[string]*thread.Thread{}, map[string][]thread.Item{}
	}
	for i := range items {
		items[i].Seq, items[i].Time = int64(i)+1, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	}
	h.threads[id] = &thread.Thread{ID: id, Namespace: ns, PartOf: partOf, Last: int64(len(items))}
	h.items[id] = items
	return h.threads[id]
}

func (h *held) Thread(_ context.Context, namespace, id string) (thread.Thread, error) {
	if t := h.threads[id]; t != nil && namespace == ns {
		return *t, nil
	}
	return thread.Thread{}, thread.NotFound(id)
}

func (h *held) Family(ctx context.Context, namespace, id string, limit int) ([]thread.Relative, error) {
	t, err := h.Thread(ctx, namespace, id)
	if err != nil {
		return nil, err
	}
	out := []thread.Relative{{Thread: t}}
	for i := 0; i < len(out); i++ {
		if out[i].ID == h.busy {
			out[i].By = "run_1"
		}
		for _, id := range slices.Sorted(keysOf(h.threads)) {
			if t := h.threads[id]; t.PartOf == out[i].ID && len(out) < limit {
				out = append(out, thread.Relative{Thread: *t})
			}
		}
	}
	rest := out[1:]
	slices.SortFunc(rest, func(a, b thread.Relative) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

func keysOf(m map[string]*thread.Thread) func(func(string) bool) {
	return func(yield func(string) bool) {
		for id := range m {
			if !yield(id) {
				return
			}
		}
	}
}

func (h *held) Lineage(_ context.Context, _, id string) ([]thread.Segment, error) {
	return []thread.Segment{{Thread: id, First: 1, Last: h.threads[id].Last}}, nil
}

func (h *held) SegmentItems(_ context.Context, _ string, s thread.Segment, q thread.Selection) ([]thread.Item, error) {
	var out []thread.Item
	const page = 2 // pages are small here
	for i := s.Last; i >= s.First && len(out) < min(q.Limit, page) && s.Thread != h.gone; i-- {
		out = append(out, h.items[s.Thread][i-1])
	}
	return out, nil
}

func says(text string) thread.Item {
	return thread.Item{Kind: workgraph.ThreadMessage, Body: []byte(fmt.Sprintf(`{"role": "user", "content": %q}`, text))}
}

func state(body string) thread.Item {
	return thread.Item{Kind: workgraph.ThreadState, Brief: []byte(`{"task_status":"Ongoing"}`), Body: []byte(body)}
}

// talk is a team with a member and a team within it.
func talk() *held {
	h := &held{}
	h.put("thr_whole", "", says("hello"), says("<b>&"), state(`{"team": {"seq": 3, "last": "a", "heard": {"a": 1}, "began": "2026-01-01T00:00:00Z", "turns": 1, "messages": 2}, "members": ["a", "sub"],
		"threads": {"a": "thr_a", "sub": "thr_sub", "memory": "thr_key", "old": "thr_gone"}, "ends": {"a": 2, "sub": 1, "memory": 1, "old": 4}}`))
	h.put("thr_a", "thr_whole", says("1"), says("2"))
	h.put("thr_sub", "thr_whole", state(`{"team": {"seq": 1, "began": "2026-01-01T00:00:00Z", "turns": 0, "messages": 0}, "threads": {"x": "thr_inner"}, "ends": {"x": 1}}`))
	h.put("thr_inner", "thr_sub", thread.Item{Kind: workgraph.ThreadLearning, Body: []byte(`"fact"`)})
	h.put("thr_key", "", says("secret")).Key = "ann:agent"
	return h
}

func export(t *testing.T, h *held, id string) []byte {
	t.Helper()
	out, err := threadvalue.Export(t.Context(), h, ns, id)
	require.NoError(t, err)
	return out
}

func reasonOf(t *testing.T, err error, want string) *errs.Error {
	t.Helper()
	require.Error(t, err)
	e := errs.From(err)
	require.Equal(t, want, e.Reason, "got %v", err)
	require.NotEmpty(t, e.HintText())
	return e
}

// kept is what a state says of threads.
type kept struct {
	Threads map[string]string
	Ends    map[string]int64
}

func keptIn(t *testing.T, it thread.Item) (k kept) {
	t.Helper()
	require.NoError(t, json.Unmarshal(it.Body, &k))
	return k
}

func TestExport(t *testing.T) {
	t.Parallel()
	t.Run("ReadsBackUnderNewIds", func(t *testing.T) {
		t.Parallel()
		v, err := threadvalue.Read("value", export(t, talk(), "thr_whole"))
		require.NoError(t, err)
		now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
		made, err := v.Make(workgraph.ThreadCreate{Key: "k", Title: "Again"}, now)
		require.NoError(t, err)
		require.Len(t, made, 4)
		whole := &made[0]
		require.True(t, ids.Valid(thread.IDPrefix, whole.Thread))
		require.Equal(t, "k", whole.Create.Key)
		k := keptIn(t, whole.Items[2])
		at := map[string]*thread.Append{}
		for i := range made {
			at[made[i].Thread] = &made[i]
			require.NotContains(t, string(made[i].Items[0].Body), "thr_a")
		}
		require.Equal(t, map[string]int64{"a": 2, "sub": 1}, k.Ends)
		require.Len(t, k.Threads, 2, "threads of others and those that are gone are left out")
		require.Equal(t, whole.Thread, at[k.Threads["a"]].Create.PartOf)
		require.JSONEq(t, `{"role": "user", "content": "2"}`, string(at[k.Threads["a"]].Items[1].Body))
		inner := keptIn(t, at[k.Threads["sub"]].Items[0]).Threads["x"]
		require.Equal(t, k.Threads["sub"], at[inner].Create.PartOf)
		require.JSONEq(t, `"fact"`, string(at[inner].Items[0].Body))
		require.Equal(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), whole.Items[0].Time)
		require.Contains(t, string(whole.Items[1].Body), "<b>&", "texts stay as they are")
	})
	t.Run("OfOneThatARunHoldsIsRefused", func(t *testing.T) {
		t.Parallel()
		h := talk()
		h.busy = "thr_inner"
		_, err := threadvalue.Export(t.Context(), h, ns, "thr_whole")
		reasonOf(t, err, thread.ReasonBusy)
	})
	t.Run("OfAnotherNamespaceIsNotThere", func(t *testing.T) {
		t.Parallel()
		_, err := threadvalue.Export(t.Context(), talk(), "other", "thr_whole")
		reasonOf(t, err, thread.ReasonNotFound)
	})
	t.Run("OfOneThatIsRemovedMeanwhileIsNotThere", func(t *testing.T) {
		t.Parallel()
		h := talk()
		h.gone = "thr_a"
		_, err := threadvalue.Export(t.Context(), h, ns, "thr_whole")
		reasonOf(t, err, thread.ReasonNotFound)
	})
	t.Run("OfACopyHasThePartsUpToItsEnd", func(t *testing.T) {
		t.Parallel()
		h := talk()
		h.put("thr_copy", "", state(`{"team": {"seq": 1, "began": "2026-01-01T00:00:00Z", "turns": 0, "messages": 0}, "threads": {"a": "thr_a", "sub": "thr_sub"}, "ends": {"a": 1, "sub": 1}}`))
		v, err := threadvalue.Read("value", export(t, h, "thr_copy"))
		require.NoError(t, err)
		made, err := v.Make(workgraph.ThreadCreate{}, time.Now())
		require.NoError(t, err)
		require.Len(t, made, 4, "those that the state names, and those which these name")
		k := keptIn(t, made[0].Items[0])
		for i := range made {
			if made[i].Thread == k.Threads["a"] {
				require.Len(t, made[i].Items, 1)
				require.Equal(t, made[0].Thread, made[i].Create.PartOf)
			}
		}
	})
	t.Run("OfAPartIsAWhole", func(t *testing.T) {
		t.Parallel()
		v, err := threadvalue.Read("value", export(t, talk(), "thr_sub"))
		require.NoError(t, err)
		made, err := v.Make(workgraph.ThreadCreate{}, time.Now())
		require.NoError(t, err)
		require.Len(t, made, 2)
		require.Empty(t, made[0].Create.PartOf)
	})
	t.Run("PartsWithANameAreFoundAgain", func(t *testing.T) {
		t.Parallel()
		h := &held{}
		whole := ids.New(thread.IDPrefix)
		h.put(whole, "", says("hello"))
		h.put("thr_part", whole, says("there")).Key = thread.PartKey(whole, "graph", "did")
		h.put("thr_else", whole, says("else"))
		v, err := threadvalue.Read("value", export(t, h, whole))
		require.NoError(t, err)
		made, err := v.Make(workgraph.ThreadCreate{}, time.Now())
		require.NoError(t, err)
		want := thread.PartKey(made[0].Thread, "graph", "did")
		found := slices.IndexFunc(made, func(a thread.Append) bool { return a.Create.Key == want })
		require.Positive(t, found)
		require.Contains(t, string(made[found].Items[0].Body), "there")
	})
	t.Run("TooLargeIsRefused", func(t *testing.T) {
		t.Parallel()
		for name, h := range map[string]*held{"Items": manyItems(), "Threads": manyThreads(), "Bytes": manyBytes()} {
			_, err := threadvalue.Export(t.Context(), h, ns, "thr_whole")
			reasonOf(t, err, thread.ReasonValueTooLarge)
			require.ErrorContains(t, err, "thr_whole", name)
		}
	})
}

func manyItems() *held {
	h := &held{}
	h.put("thr_whole", "", says("x")).Last = thread.MaxValueItems + 1 // none of them is read
	return h
}

func manyThreads() *held {
	h := &held{}
	h.put("thr_whole", "")
	for i := range thread.MaxValueThreads {
		h.put(fmt.Sprintf("thr_%03d", i), "thr_whole")
	}
	return h
}

func manyBytes() *held {
	h := &held{}
	var items []thread.Item
	for range 9 {
		items = append(items, says(strings.Repeat("x", 1<<20)))
	}
	h.put("thr_whole", "", items...)
	return h
}

// doc is a document with these threads.
func doc(threads ...string) string {
	return `{"format": "epigraph.thread/1", "threads": [` + strings.Join(threads, ", ") + `]}`
}

const (
	ownState = `{"kind": "state", "brief": {}, "body": {"team": {"seq": 1, "began": "2026-01-01T00:00:00Z", "turns": 0, "messages": 0}, "threads": {"a": "%s"}, "ends": {"a": %d}}}`
	teamOnly = `{"kind": "state", "brief": {}, "body": {"team": %s}}`
	moment   = `"began": "2026-01-01T00:00:00Z"`
)

func holding(items ...string) string {
	return doc(`{"id": "w", "items": [`+strings.Join(items, ", ")+`]}`, `{"id": "p", "part_of": "w", "items": []}`)
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, place, says string }{
		"Nothing":          {``, "value", "missing"},
		"NoJSON":           {`{`, "value", "not JSON"},
		"NoText":           {"\"\xff\"", "value", "UTF-8"},
		"NoObject":         {`[1]`, "value", "cannot unmarshal"},
		"Null":             {`null`, "value.format", `is ""`},
		"AnotherFormat":    {`{"format": "epigraph.thread/2", "threads": []}`, "value.format", "epigraph.thread/2"},
		"NoThreads":        {doc(), "value.threads", "empty"},
		"ThreadsOfNoList":  {`{"format": "epigraph.thread/1", "threads": {}}`, "value", "no list"},
		"UnknownField":     {`{"format": "epigraph.thread/1", "threads": [], "owner": 1}`, "value", `unknown field "owner"`},
		"UnknownOfThread":  {doc(`{"id": "w", "items": [], "user_id": "ann"}`), "value", `unknown field "user_id"`},
		"UnknownOfItem":    {holding(`{"kind": "message", "body": {}, "run": 1}`), "value.threads[0].items", `unknown field "run"`},
		"NoID":             {doc(`{"items": []}`), "value.threads[0].id", "0 bytes"},
		"TwoOfOneID":       {doc(`{"id": "w", "items": []}`, `{"id": "w", "part_of": "w", "items": []}`), "value.threads[1].id", `"w"`},
		"TwoWholes":        {doc(`{"id": "w", "items": []}`, `{"id": "x", "items": []}`), "value.threads[1].part_of", "no thread before it"},
		"ACircle":          {doc(`{"id": "w", "items": []}`, `{"id": "x", "part_of": "y", "items": []}`, `{"id": "y", "part_of": "x", "items": []}`), "value.threads[1].part_of", `"y"`},
		"PartOfItself":     {doc(`{"id": "w", "part_of": "w", "items": []}`), "value.threads[0]", "is the whole"},
		"TwoOfOneName":     {doc(`{"id": "w", "items": []}`, `{"id": "x", "part_of": "w", "name": "n", "items": []}`, `{"id": "y", "part_of": "w", "name": "n", "items": []}`), "value.threads[2].name", `"n"`},
		"NULInATitle":      {doc(`{"id": "w", "title": "a\u0000b", "items": []}`), "value.threads[0]", "no text"},
		"LongAgent":        {doc(`{"id": "w", "agent": "` + strings.Repeat("a", 300) + `", "items": []}`), "value.threads[0]", "300 bytes"},
		"NoItems":          {doc(`{"id": "w"}`), "value.threads[0].items", "no list"},
		"NoKind":           {holding(`{"kind": "secret", "body": 1}`), "value.threads[0].items[0].kind", "secret"},
		"NoBody":           {holding(`{"kind": "message"}`), "value.threads[0].items[0]", "not JSON"},
		"StrangeRole":      {holding(`{"kind": "message", "body": {"role": "root"}}`), "value.threads[0].items[0].body.role", "root"},
		"StateWithoutOne":  {holding(`{"kind": "state", "body": {}}`), "value.threads[0].items[0].brief", "no object"},
		"SummaryOfLater":   {holding(`{"kind": "summary", "body": {"first": 1, "last": 9, "summary": "x"}}`), "value.threads[0].items[0].body", "1 to 9"},
		"ThreadOfOthers":   {holding(fmt.Sprintf(ownState, "thr_01h455vb4pex5vsknk084sn02q", 0)), "value.threads[0].items[0].body.threads", "thr_01h455vb4pex5vsknk084sn02q"},
		"ItsOwnThread":     {holding(fmt.Sprintf(ownState, "w", 0)), "value.threads[0].items[0].body.threads", "no part"},
		"EndAfterTheLast":  {holding(fmt.Sprintf(ownState, "p", 1)), "value.threads[0].items[0].body.ends", "ends with item 1"},
		"NegativeEnd":      {holding(fmt.Sprintf(ownState, "p", -1)), "value.threads[0].items[0].body", "negative"},
		"UnknownInTheTeam": {holding(fmt.Sprintf(teamOnly, `{`+moment+`, "root": true}`)), "value.threads[0].items[0].body", `unknown field "root"`},
		"LaterSequence":    {holding(fmt.Sprintf(teamOnly, `{`+moment+`, "seq": 99}`)), "value.threads[0].items[0].body", "seq is 99"},
		"LaterInAnInbox":   {holding(fmt.Sprintf(teamOnly, `{`+moment+`, "queues": {"a": [{"seq": 7, "at": "2026-01-01T00:00:00Z"}]}}`)), "value.threads[0].items[0].body", `queues of "a" is 7`},
		"ArrivedTwice":     {holding(fmt.Sprintf(teamOnly, `{`+moment+`, "arrived": {"a": [1, 1]}}`)), "value.threads[0].items[0].body", "twice"},
		"NegativeTurns":    {holding(fmt.Sprintf(teamOnly, `{`+moment+`, "turns": -1}`)), "value.threads[0].items[0].body", "-1 turns"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := threadvalue.Read("value", []byte(c.text))
			e := reasonOf(t, err, threadvalue.ReasonInvalid)
			require.Len(t, e.Violations, 1)
			require.Equal(t, c.place, e.Violations[0].Field, "%v", err)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestReadIsBounded(t *testing.T) {
	t.Parallel()
	deep := []string{`{"id": "t0", "items": []}`}
	for i := 1; i < 40; i++ {
		deep = append(deep, fmt.Sprintf(`{"id": "t%d", "part_of": "t%d", "items": []}`, i, i-1))
	}
	wide := []string{`{"id": "t0", "items": []}`}
	for i := 1; i <= thread.MaxValueThreads; i++ {
		wide = append(wide, fmt.Sprintf(`{"id": "t%d", "part_of": "t0", "items": []}`, i))
	}
	spread := slices.Clone(wide[:200]) // no thread has too many items alone
	for i := range spread {
		spread[i] = strings.Replace(spread[i], "[]", "["+strings.TrimSuffix(strings.Repeat(`{"kind": "message", "body": 1},`, 100), ",")+"]", 1)
	}
	t.Run("Depth", func(t *testing.T) {
		t.Parallel()
		_, err := threadvalue.Read("value", []byte(doc(deep...)))
		require.ErrorContains(t, err, "threads above it")
	})
	for name, text := range map[string]string{
		"Threads": doc(wide...), "Items": holding(strings.TrimSuffix(strings.Repeat("{},", 1_000_000), ",")), "ItemsOfAll": doc(spread...), "Bytes": doc(`{"id": "` + strings.Repeat("x", thread.MaxValueBytes) + `"}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := threadvalue.Read("value", []byte(text))
			e := reasonOf(t, err, thread.ReasonValueTooLarge)
			require.Equal(t, errs.InvalidArgument, e.Kind)
		})
	}
	t.Run("NestedValues", func(t *testing.T) {
		t.Parallel()
		_, err := threadvalue.Read("value", []byte(holding(`{"kind": "message", "body": `+strings.Repeat("[", 5000)+strings.Repeat("]", 5000)+`}`)))
		require.ErrorContains(t, err, "nested")
	})
}

// TestReadOfManyItemsTakesLittle is alone: it measures what is allocated.
func TestReadOfManyItemsTakesLittle(t *testing.T) {
	text := []byte(holding(strings.TrimSuffix(strings.Repeat("{},", 1_000_000), ",")))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := threadvalue.Read("value", text)
	runtime.ReadMemStats(&after)
	require.Error(t, err)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20), "a million items are not made before they are counted")
}

func TestMakeBoundsTimes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	v, err := threadvalue.Read("value", []byte(holding(`{"kind": "message", "time": "2999-01-01T00:00:00Z", "body": 1}`, `{"kind": "message", "time": "0001-01-01T00:00:01Z", "body": 1}`, `{"kind": "message", "body": 1}`)))
	require.NoError(t, err)
	made, err := v.Make(workgraph.ThreadCreate{Lifetime: workgraph.ThreadEphemeral}, now)
	require.NoError(t, err)
	for _, it := range made[0].Items {
		require.Equal(t, now, it.Time, "a thread is not used after it was made")
	}
	require.Equal(t, workgraph.ThreadEphemeral, made[1].Create.Lifetime)
}

// A key that is folded to the same letters is the same one to a reader: what is made has none of these.
func TestMakeWritesStatesAnew(t *testing.T) {
	t.Parallel()
	foreign := ids.New(thread.IDPrefix)
	for _, key := range []string{"Threads", "thread\u017f"} {
		text := holding(strings.Replace(fmt.Sprintf(ownState, "p", 0), `"threads"`, `"`+key+`": {"a": "`+foreign+`"}, "threads"`, 1))
		v, err := threadvalue.Read("value", []byte(text))
		require.NoError(t, err)
		made, err := v.Make(workgraph.ThreadCreate{}, time.Now())
		require.NoError(t, err)
		require.NotContains(t, string(made[0].Items[0].Body), foreign)
		require.Equal(t, made[1].Thread, keptIn(t, made[0].Items[0]).Threads["a"])
	}
}

// FuzzRead holds that what is read can be made, and names nothing but what is made with it.
func FuzzRead(f *testing.F) {
	for _, h := range []string{"thr_whole", "thr_sub", "thr_a"} {
		out, err := threadvalue.Export(f.Context(), talk(), ns, h)
		require.NoError(f, err)
		f.Add(out)
	}
	f.Add([]byte(doc(`{"id": "w", "items": []}`, `{"id": "p", "part_of": "w", "name": "n", "items": []}`)))
	f.Add([]byte(holding(fmt.Sprintf(ownState, "p", 0))))
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := threadvalue.Read("value", raw)
		if err != nil {
			require.Contains(t, []string{threadvalue.ReasonInvalid, thread.ReasonValueTooLarge}, errs.ReasonOf(err))
			return
		}
		made, err := v.Make(workgraph.ThreadCreate{}, time.Now())
		require.NoError(t, err)
		own := map[string]bool{}
		for i := range made {
			require.NoError(t, thread.CheckCreate(made[i].Create))
			require.False(t, own[made[i].Thread], "two of one id")
			require.True(t, i == 0 && made[i].Create.PartOf == "" || own[made[i].Create.PartOf])
			own[made[i].Thread] = true
		}
		for i := range made {
			for _, it := range made[i].Items {
				require.NoError(t, thread.CheckItem(&workgraph.ThreadItem{Kind: it.Kind, Brief: it.Brief, Body: it.Body}))
				var k struct {
					Team    *struct{}
					Threads map[string]string
				}
				if it.Kind != workgraph.ThreadState || json.Unmarshal(it.Body, &k) != nil || k.Team == nil {
					continue
				}
				for _, id := range k.Threads {
					require.True(t, own[id], "a state names %q, which was not made with it", id)
				}
			}
		}
	})
}
