package thread_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

func item(body string) workgraph.ThreadItem {
	return workgraph.ThreadItem{Kind: workgraph.ThreadMessage, Body: []byte(body)}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	one := func(change func(a *workgraph.ThreadAppend)) []workgraph.ThreadAppend {
		a := workgraph.ThreadAppend{Thread: "thr_1", Items: []workgraph.ThreadItem{item(`1`)}}
		change(&a)
		return []workgraph.ThreadAppend{a}
	}
	create := func(c workgraph.ThreadCreate) []workgraph.ThreadAppend {
		return one(func(a *workgraph.ThreadAppend) { a.Create, a.After = &c, c.ParentSeq })
	}
	require.NoError(t, thread.Check(one(func(*workgraph.ThreadAppend) {})))
	require.NoError(t, thread.Check(create(workgraph.ThreadCreate{Parent: "thr_0", ParentSeq: 3, Agent: "agent/x", Key: "k"})))
	for name, of := range map[string][]workgraph.ThreadAppend{
		"Nothing":        one(func(a *workgraph.ThreadAppend) { a.Items = nil }),
		"NoThread":       one(func(a *workgraph.ThreadAppend) { a.Thread = "" }),
		"Negative":       one(func(a *workgraph.ThreadAppend) { a.After = -1 }),
		"LongID":         one(func(a *workgraph.ThreadAppend) { a.Thread = strings.Repeat("x", thread.MaxName+1) }),
		"Kind":           one(func(a *workgraph.ThreadAppend) { a.Items[0].Kind = 5 }),
		"NoBody":         one(func(a *workgraph.ThreadAppend) { a.Items[0].Body = nil }),
		"BodyIsNotJSON":  one(func(a *workgraph.ThreadAppend) { a.Items[0].Body = []byte(`{`) }),
		"BriefIsNotJSON": one(func(a *workgraph.ThreadAppend) { a.Items[0].Brief = []byte(`{`) }),
		"LargeBody": one(func(a *workgraph.ThreadAppend) {
			a.Items[0].Body = []byte(`"` + strings.Repeat("x", thread.MaxBody) + `"`)
		}),
		"LargeBrief": one(func(a *workgraph.ThreadAppend) {
			a.Items[0].Brief = []byte(`"` + strings.Repeat("x", thread.MaxBrief) + `"`)
		}),
		"ManyItems":        one(func(a *workgraph.ThreadAppend) { a.Items = make([]workgraph.ThreadItem, thread.MaxItems+1) }),
		"ManyThreads":      make([]workgraph.ThreadAppend, thread.MaxAppends+1),
		"Lifetime":         create(workgraph.ThreadCreate{Lifetime: 4}),
		"SeqWithoutParent": create(workgraph.ThreadCreate{ParentSeq: 1}),
		"KeyOfEphemeral":   create(workgraph.ThreadCreate{Key: "k", Lifetime: workgraph.ThreadEphemeral}),
		"LongKey":          create(workgraph.ThreadCreate{Key: strings.Repeat("k", thread.MaxName+1)}),
		"NoText":           create(workgraph.ThreadCreate{Agent: "a\x00b"}),
		"LearningsWithoutItems": one(func(a *workgraph.ThreadAppend) {
			a.Create, a.Items, a.Learnings = &workgraph.ThreadCreate{}, nil, []workgraph.Learning{{Content: "x"}}
		}),
		"ManyLearnings": one(func(a *workgraph.ThreadAppend) { a.Learnings = make([]workgraph.Learning, thread.MaxLearnings+1) }),
		"LongTitle":     create(workgraph.ThreadCreate{Title: strings.Repeat("t", thread.MaxTitle+1)}),
		"OtherBegin": one(func(a *workgraph.ThreadAppend) {
			a.Create, a.After = &workgraph.ThreadCreate{Parent: "thr_0", ParentSeq: 2}, 3
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, thread.ReasonInvalid, errs.ReasonOf(thread.Check(of)))
		})
	}
}

func TestKeyOf(t *testing.T) {
	t.Parallel()
	require.Equal(t, "ann:desk:agent/x", thread.KeyOf("ann", "desk", "agent/x"))
	require.Equal(t, "ann:agent/x", thread.KeyOf("ann", "", "agent/x"))
	require.Empty(t, thread.KeyOf("", "desk", "agent/x"))
	require.Empty(t, thread.KeyOf("ann", "desk", ""))
	require.NotEqual(t, thread.KeyOf("ann:desk", "", "w"), thread.KeyOf("ann", "desk", "w"), "no user is taken for another one")
	require.NotEqual(t, thread.KeyOf("a%3Ab", "c", "w"), thread.KeyOf("a:b", "c", "w"))
	long := strings.Repeat("ä", 200)
	key := thread.KeyOf(long, long, "w")
	require.NoError(t, thread.CheckCreate(&workgraph.ThreadCreate{Key: key}))
	require.NotEqual(t, key, thread.KeyOf(long, long, "v"))
}

func TestResolve(t *testing.T) {
	t.Parallel()
	found := func() *thread.Found {
		f := &thread.Found{}
		f.Add(thread.Thread{ID: "thr_1", Namespace: "ns"})
		return f
	}
	appends := func(after int64, bodies ...string) []thread.Append {
		a := workgraph.ThreadAppend{Thread: "thr_1", After: after}
		for _, b := range bodies {
			a.Items = append(a.Items, item(b))
		}
		return thread.Appends([]workgraph.ThreadAppend{a}, "run_1", "n", 1, time.Now())
	}
	t.Run("InOneCommit/LaterAppendsSeeEarlierOnes", func(t *testing.T) {
		t.Parallel()
		f := found()
		for i := range int64(3) {
			w, err := f.Resolve("ns", "run_1", appends(i, fmt.Sprint(i)), thread.Room{}, 1)
			require.NoError(t, err)
			require.Len(t, w.Items, 1)
		}
		w, err := f.Resolve("ns", "run_1", appends(1, `1`, `2`), thread.Room{}, 1)
		require.NoError(t, err)
		require.Empty(t, w.Items, "they are there")
	})
	t.Run("Refused/ChangesNothing", func(t *testing.T) {
		t.Parallel()
		f := found()
		_, err := f.Resolve("ns", "run_1", append(appends(0, `1`), appends(5, `6`)...), thread.Room{}, 1)
		require.Equal(t, thread.ReasonConflict, errs.ReasonOf(err))
		w, err := f.Resolve("ns", "run_2", appends(0, `2`), thread.Room{}, 2)
		require.NoError(t, err)
		require.Len(t, w.Items, 1)
	})
	t.Run("PartlyThere/IsAConflict", func(t *testing.T) {
		t.Parallel()
		f := found()
		f.AddItem("thr_1", appends(0, `1`)[0].Items[0])
		_, err := f.Resolve("ns", "run_1", appends(0, `1`, `2`), thread.Room{}, 1)
		require.Equal(t, thread.ReasonConflict, errs.ReasonOf(err))
	})
}
