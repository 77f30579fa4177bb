package journaltest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func readCases(t *testing.T, d Driver) {
	t.Run("NamespacesAreApart", func(t *testing.T) {
		w := open(t, d)
		id := w.started(2)
		_, err := w.j.Get(t.Context(), "other", id)
		reason(t, err, journal.ReasonRunNotFound)
		_, _, err = w.j.Graph(t.Context(), "other", id)
		reason(t, err, journal.ReasonRunNotFound)
		es, err := w.j.Events(t.Context(), "other", id, 0, 10)
		require.NoError(t, err)
		require.Empty(t, es)
		list, err := w.j.List(t.Context(), "other", journal.Filter{}, page.Cursor{}, 10)
		require.NoError(t, err)
		require.Empty(t, list)
		_, err = w.j.Load(t.Context(), "run_none")
		reason(t, err, journal.ReasonRunNotFound)
	})
	t.Run("GraphsByHashAndRequestsById", func(t *testing.T) {
		w := open(t, d)
		var s *journal.Start
		id := w.started(1, func(st *journal.Start) {
			st.Request, s = journal.Request{Method: "StartRun", ID: "r", BodyHash: "h"}, st
		})
		body, err := w.j.GraphBody(t.Context(), ns, s.Run.GraphHash)
		require.NoError(t, err)
		require.Equal(t, s.Graph, body)
		_, err = w.j.GraphBody(t.Context(), "other", s.Run.GraphHash)
		reason(t, err, journal.ReasonGraphNotFound)
		run, hash, err := w.j.Requested(t.Context(), ns, "StartRun", "r")
		require.NoError(t, err)
		require.Equal(t, []string{id, "h"}, []string{run, hash})
		for _, k := range [][3]string{{"other", "StartRun", "r"}, {ns, "CancelRun", "r"}, {ns, "StartRun", "s"}} {
			run, _, err = w.j.Requested(t.Context(), k[0], k[1], k[2])
			require.NoError(t, err)
			require.Empty(t, run)
		}
	})
	t.Run("HeadIsTheRunWithoutItsValues", func(t *testing.T) {
		w := open(t, d)
		id := w.started(3, func(s *journal.Start) {
			s.Run.Args, s.Run.Named, s.Run.Context, s.Run.Attachments = []byte(`["a"]`), []byte(`{"n":1}`), []byte(`{"c":1}`), []byte(`[{"x":1}]`)
		})
		want, err := w.j.Get(t.Context(), ns, id)
		require.NoError(t, err)
		require.NotEmpty(t, want.Args)
		want.Args, want.Named, want.Context, want.Attachments, want.Result, want.Outputs = nil, nil, nil, nil, nil, nil
		got, err := w.j.Head(t.Context(), ns, id)
		require.NoError(t, err)
		require.Equal(t, want, got)
		_, err = w.j.Head(t.Context(), "other", id)
		reason(t, err, journal.ReasonRunNotFound)
	})
	t.Run("EventsFromACursor", func(t *testing.T) {
		w := open(t, d)
		id := w.started(9)
		es, err := w.j.Events(t.Context(), ns, id, 4, 3)
		require.NoError(t, err)
		require.Len(t, es, 3)
		require.EqualValues(t, 5, es[0].Seq)
		es, err = w.j.Events(t.Context(), ns, id, 9, 3)
		require.NoError(t, err)
		require.Empty(t, es)
	})
	t.Run("EventsUpToTheBytesOfAPage", func(t *testing.T) {
		w := open(t, d)
		const large = page.MaxBytes / 5
		id := w.started(9, func(s *journal.Start) {
			for i := range s.Events {
				s.Events[i].Data = []byte(`"` + strings.Repeat("x", large) + `"`)
			}
		})
		var sizes []int
		for after := int64(0); ; {
			es, err := w.j.Events(t.Context(), ns, id, after, 500)
			require.NoError(t, err)
			if len(es) == 0 {
				break
			}
			sizes = append(sizes, len(es))
			for _, e := range es {
				after++
				require.Equal(t, after, e.Seq)
				require.Len(t, e.Data, large+2)
			}
		}
		require.Equal(t, []int{5, 4}, sizes)
	})
	t.Run("Descendants", func(t *testing.T) {
		w := open(t, d)
		child := func(parent string, at int) string {
			return w.started(1, func(s *journal.Start) {
				s.Run.ParentID, s.Run.CreateTime = parent, base.Add(time.Duration(at)*time.Second)
			})
		}
		top := child("", 0)
		a := child(top, 1)
		aa := child(a, 2)
		b := w.started(1, func(s *journal.Start) {
			s.Run.ParentID, s.Run.GraphName, s.Run.CreateTime = top, "team", base.Add(3*time.Second)
		})
		ds, err := w.j.Descendants(t.Context(), ns, top)
		require.NoError(t, err)
		want := []journal.Descendant{
			{RunID: a, ParentRunID: top, GraphName: "g", State: journal.StateRunning, LastSeq: 1},
			{RunID: aa, ParentRunID: a, GraphName: "g", State: journal.StateRunning, LastSeq: 1},
			{RunID: b, ParentRunID: top, GraphName: "team", State: journal.StateRunning, LastSeq: 1},
		}
		require.Equal(t, want, ds)
		ds, err = w.j.Descendants(t.Context(), ns, a)
		require.NoError(t, err)
		require.Equal(t, want[1:2], ds)
		for most, n := range map[int]int{0: 0, 1: 1, 2: 2, 3: 3, 99: 3} {
			all, running, err := w.j.CountBelow(t.Context(), ns, top, most)
			require.NoError(t, err)
			require.Equal(t, n, all)
			require.Equal(t, n, running)
		}
		none, _, err := w.j.CountBelow(t.Context(), "other", top, 9)
		require.NoError(t, err)
		require.Zero(t, none)
		w.started(1, func(s *journal.Start) {
			s.Run.ParentID, s.Run.State, s.Run.EndTime = a, journal.StateCompleted, base
		})
		all, running, err := w.j.CountBelow(t.Context(), ns, top, 9)
		require.NoError(t, err)
		require.Equal(t, []int{4, 3}, []int{all, running}, "one of them has ended")
		ds, err = w.j.Descendants(t.Context(), "other", top)
		require.NoError(t, err)
		require.Empty(t, ds)
	})
	t.Run("OpenBelow", func(t *testing.T) {
		w := open(t, d)
		child := func(parent, graph string, at int, change ...func(*journal.Start)) string {
			return w.started(1, func(s *journal.Start) {
				s.Run.ParentID, s.Run.GraphName, s.Run.CreateTime = parent, graph, base.Add(time.Duration(at)*time.Second)
				for _, c := range change {
					c(s)
				}
			})
		}
		over := func(s *journal.Start) { s.Run.State, s.Run.EndTime = journal.StateCompleted, base }
		top := child("", "team", 0)
		a := child(top, "g", 1)
		deep := child(a, "team", 2)
		late, early := child(top, "team", 5), child(top, "team", 4)
		child(top, "team", 3, over)
		child(child(top, "g", 3, over), "team", 3) // nobody goes on there
		for most, want := range map[int][]string{1: {early}, 2: {early, late}, 3: {early, late, deep}, 9: {early, late, deep}} {
			got, err := w.j.OpenBelow(t.Context(), ns, top, "team", most)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		got, err := w.j.OpenBelow(t.Context(), "other", top, "team", 9)
		require.NoError(t, err)
		require.Empty(t, got)
	})
	t.Run("ListFilters", func(t *testing.T) {
		w := open(t, d)
		var runs []string
		for i := range 12 {
			runs = append(runs, w.started(1, func(s *journal.Start) {
				r := &s.Run
				r.CreateTime = base.Add(time.Duration(i) * time.Second)
				r.TaskID, r.UserID = fmt.Sprint("tk_", i%2), fmt.Sprint("u", i%3)
				r.ChatID, r.ThreadID = fmt.Sprint("c", i%4), fmt.Sprint("thr_", i%6)
				r.BusinessKey, r.ParentID = fmt.Sprint("b", i), fmt.Sprint("run_", i%5)
				r.EpicID = fmt.Sprint("ep_", i%4)
				if i%2 == 0 {
					r.WorkflowVersion = fmt.Sprintf("digest@%d", i%3)
				}
				r.Labels = map[string]string{"mod2": fmt.Sprint(i % 2), "mod3": fmt.Sprint(i % 3)}
				if i >= 9 {
					r.State = journal.StateFailed
				}
			}))
		}
		for name, c := range map[string]struct {
			f    journal.Filter
			want []int
		}{
			"all":          {journal.Filter{}, []int{11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}},
			"states":       {journal.Filter{States: []journal.State{journal.StateFailed, journal.StatePaused}}, []int{11, 10, 9}},
			"state twice":  {journal.Filter{States: []journal.State{journal.StateFailed, journal.StatePaused, journal.StateFailed}}, []int{11, 10, 9}},
			"task":         {journal.Filter{TaskID: "tk_1"}, []int{11, 9, 7, 5, 3, 1}},
			"user":         {journal.Filter{UserID: "u2"}, []int{11, 8, 5, 2}},
			"chat":         {journal.Filter{ChatID: "c3"}, []int{11, 7, 3}},
			"thread":       {journal.Filter{ThreadID: "thr_5"}, []int{11, 5}},
			"business key": {journal.Filter{BusinessKey: "b7"}, []int{7}},
			"parent":       {journal.Filter{ParentID: "run_4"}, []int{9, 4}},
			"epic":         {journal.Filter{EpicID: "ep_3"}, []int{11, 7, 3}},
			"workflow":     {journal.Filter{Workflow: "digest"}, []int{10, 8, 6, 4, 2, 0}},
			"version":      {journal.Filter{WorkflowVersion: "digest@2"}, []int{8, 2}},
			"no workflow":  {journal.Filter{Workflow: "dig"}, nil},
			"of an epic":   {journal.Filter{Workflow: "digest", EpicID: "ep_0", States: []journal.State{journal.StateRunning}}, []int{8, 4, 0}},
			"label":        {journal.Filter{Labels: map[string]string{"mod3": "1"}}, []int{10, 7, 4, 1}},
			"labels":       {journal.Filter{Labels: map[string]string{"mod3": "1", "mod2": "0"}}, []int{10, 4}},
			"no label":     {journal.Filter{Labels: map[string]string{"mod3": "4"}}, nil},
			"after":        {journal.Filter{CreatedAfter: base.Add(10 * time.Second)}, []int{11, 10}},
			"before":       {journal.Filter{CreatedBefore: base.Add(2 * time.Second)}, []int{1, 0}},
			"after finer":  {journal.Filter{CreatedAfter: base.Add(10*time.Second + 1)}, []int{11}},
			"before finer": {journal.Filter{CreatedBefore: base.Add(2*time.Second + 1)}, []int{2, 1, 0}},
			"combined": {journal.Filter{
				TaskID: "tk_1", Labels: map[string]string{"mod3": "0"}, CreatedBefore: base.Add(9 * time.Second),
				States: []journal.State{journal.StateRunning},
			}, []int{3}},
		} {
			var want []string
			for _, i := range c.want {
				want = append(want, runs[i])
			}
			got := pages(w, c.f, 5, nil)
			require.Equal(t, want, got, name)
		}
	})
	t.Run("ListEndsWhereThePageIsFull", func(t *testing.T) {
		w := open(t, d)
		var want []string
		for i := range 5 {
			want = append([]string{w.started(1, func(s *journal.Start) {
				s.Run.CreateTime, s.Run.Metadata = base.Add(time.Duration(i)*time.Second), []byte(`"`+strings.Repeat("m", 3<<20)+`"`)
			})}, want...)
		}
		budget := inflight.New(0)
		answer := budget.Answer(ns)
		defer answer.Free()
		rows, err := w.j.List(answer.Context(w.t.Context()), ns, journal.Filter{}, page.Cursor{}, 100)
		require.NoError(t, err)
		require.Len(t, rows, 3, "nothing is read behind the first that has no room")
		require.Greater(t, budget.Used(), int64(9<<20), "what is read counts for the answer")
		require.Equal(t, want, pages(w, journal.Filter{}, 100, nil))
		none := inflight.New(8 << 20).Answer(ns)
		for range 3 { // one that is larger than all is read all the same
			if _, err = w.j.List(none.Context(w.t.Context()), ns, journal.Filter{}, page.Cursor{}, 100); err != nil {
				break
			}
		}
		require.NoError(t, err)
	})
	t.Run("ListPagesAreStable", func(t *testing.T) {
		// Many runs of one instant, and new ones and changes while somebody pages.
		w := open(t, d)
		at := func(s *journal.Start) { s.Run.CreateTime, s.Run.Labels = base, map[string]string{"k": "v"} }
		want := map[string]bool{}
		for range 25 {
			want[w.started(1, at)] = true
		}
		for name, f := range map[string]journal.Filter{"plain": {}, "label": {Labels: map[string]string{"k": "v"}}} {
			got := pages(w, f, 4, func() {
				w.started(1, func(s *journal.Start) {
					s.Run.CreateTime, s.Run.Labels = base.Add(time.Minute), map[string]string{"k": "v"}
				})
			})
			seen := map[string]bool{}
			for _, id := range got {
				if want[id] {
					require.False(t, seen[id], "%s: %s came twice", name, id)
					seen[id] = true
				}
			}
			require.Len(t, seen, 25, name)
		}
	})
}

// pages lists all with a page size, calling between after each page.
func pages(w *world, f journal.Filter, size int32, between func()) []string {
	w.t.Helper()
	var ids []string
	token := ""
	for {
		p, err := page.Parse(size, token, page.Query{Method: "ListRuns", Parent: ns})
		require.NoError(w.t, err)
		rows, err := w.j.List(w.t.Context(), ns, f, p.After, p.Limit+1)
		require.NoError(w.t, err)
		rows, token = page.Cut(p, rows, func(r journal.Run) page.Cursor { return page.Cursor{CreateTime: r.CreateTime, ID: r.ID} })
		for _, r := range rows {
			ids = append(ids, r.ID)
		}
		if token == "" {
			return ids
		}
		if between != nil {
			between()
		}
	}
}
