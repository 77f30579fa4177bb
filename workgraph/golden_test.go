package workgraph

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden journals and snapshots of this machine version anew")

// goldenJournal is one run as a binary of its machine version stored it. Files of released machine versions
// are never rewritten: every later binary must replay them to the same position. The first line is this
// struct, each other line an event or a snapshot.
type goldenJournal struct {
	Machine int      `json:"machine"`
	Graph   *Graph   `json:"graph"`
	Visits  []string `json:"visits"`
}

func visitLines(s *State) []string {
	var out []string
	s.Visits(func(v VisitInfo) bool {
		line := fmt.Sprintf("%s %s attempt=%d generation=%d", v.Ref, v.Status, v.Attempt, v.Generation)
		for _, x := range v.Values {
			line += " " + string(x)
		}
		if v.Error != nil {
			line += " " + v.Error.Reason
		}
		if v.Note != "" {
			line += " " + v.Note
		}
		out = append(out, line)
		return true
	})
	return out
}

func TestGoldenJournals(t *testing.T) {
	if *update {
		for name, m := range goldenRuns(t) {
			writeGolden(t, name, m)
		}
	}
	files, err := filepath.Glob("testdata/golden/*.jsonl")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			head, events, _ := strings.Cut(string(raw), "\n")
			var g goldenJournal
			require.NoError(t, json.Unmarshal([]byte(head), &g))
			p, err := Compile(t.Context(), g.Graph, nil)
			require.NoError(t, err)
			s := New(p, "run")
			for line := range strings.Lines(events) {
				ev, err := DecodeEvent([]byte(line))
				require.NoError(t, err)
				_, err = s.Apply(t.Context(), ev)
				require.NoError(t, err)
			}
			require.Equal(t, g.Visits, visitLines(s))
		})
	}
}

// TestGoldenSnapshots restores snapshots that binaries of every machine version made of a run under way, and
// runs it to its end.
func TestGoldenSnapshots(t *testing.T) {
	if *update {
		writeWaiting(t)
	}
	files, err := filepath.Glob("testdata/golden/*-waiting.snapshot")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			head, snap, _ := strings.Cut(string(raw), "\n")
			var g goldenJournal
			require.NoError(t, json.Unmarshal([]byte(head), &g))
			p, err := Compile(t.Context(), g.Graph, nil)
			require.NoError(t, err)
			s, err := Restore(t.Context(), p, []byte(snap))
			require.NoError(t, err)
			require.Equal(t, g.Visits, visitLines(s))
			m := newMachine(t, p)
			m.s = s
			for _, st := range s.Outstanding() {
				m.open[st.Ref] = st
			}
			m.later(time.Minute)
			m.do(Answered{ID: "q", Decision: Approved, By: "ann", Now: m.now})
			require.NoError(t, m.child(Ref{Node: "kids", Visit: 1}, "c2", StatusCompleted, "2"))
			m.end("hear", Outcome{Wait: &Wait{Signal: &SignalWait{Name: "early"}}})
			for range 20 {
				for r := range m.open {
					m.endRef(r, &Outcome{Values: one("9")}, nil)
				}
			}
			m.later(time.Hour)
			require.Equal(t, StatusCompleted, s.End().Status)
			out := s.End().Outputs
			require.Contains(t, string(out["ask"]), `"decision":"APPROVED"`)
			require.JSONEq(t, `[{"run_id":"c1","status":"COMPLETED","result":1},{"run_id":"c2","status":"COMPLETED","result":2}]`, string(out["kids"]))
			delete(out, "ask")
			delete(out, "kids")
			require.JSONEq(t, `{"T":"t","M":[{"ok":1},{"ok":2},{"ok":9}],"R":9,"end":9,"hear":"hi"}`, string(js(out)))
		})
	}
}

// TestLaterMachineVersions checks that a binary refuses events and snapshots of a version that it does not
// know.
func TestLaterMachineVersions(t *testing.T) {
	p, err := Compile(t.Context(), nodesOf("x", nodes(PassDown{}, "A").Graph()), nil)
	require.NoError(t, err)
	m := newMachine(t, p)
	m.begin()
	ev := m.events[0]
	for _, version := range []int{0, MachineVersion + 1} {
		ev.Version = version
		_, err = DecodeEvent(js(ev))
		require.ErrorContains(t, err, fmt.Sprintf("machine version %d, this binary knows 1 to %d", version, MachineVersion))
		_, err = New(p, "run").Apply(t.Context(), ev)
		require.ErrorIs(t, err, ErrCorrupt)
		snap, err := m.s.Snapshot()
		require.NoError(t, err)
		other := strings.Replace(string(snap), fmt.Sprintf(`"v":%d`, MachineVersion), fmt.Sprintf(`"v":%d`, version), 1)
		_, err = Restore(t.Context(), p, []byte(other))
		require.ErrorIs(t, err, ErrCorrupt)
		require.ErrorContains(t, err, fmt.Sprintf("machine version %d", version))
	}
}

func writeGolden(t *testing.T, name string, m *goldenRun) {
	var lines []string
	for _, ev := range m.events {
		lines = append(lines, string(js(ev)))
	}
	m.write(t, name+".jsonl", lines...)
}

// writeWaiting writes a snapshot of a run with one wait of each kind.
func writeWaiting(t *testing.T) {
	g := nodesOf("x", nodes(FirstArg(), "T", "M", "R", "H", "end", "kids", "ask", "hear").Edge("H", "end").Back("H", "H", "visit < 3").State("log", Append).Graph())
	g.Nodes[1].Map = &Map{Over: "[1,2,3]", MaxParallel: 2}
	g.Nodes[2].Retry.Jitter = Unlimited
	p, err := Compile(t.Context(), g, nil)
	require.NoError(t, err)
	r := &goldenRun{newMachine(t, p), p}
	r.do(Begin{Input: Input{Args: one("0")}, Budget: &Budget{NanoUSD: i64(1000), Tokens: i64(1000)}, Now: r.now})
	r.end("T", Outcome{Values: one(`"t"`), Wait: &Wait{Timer: &Timer{After: Duration(time.Hour)}}})
	r.endRef(Ref{Node: "M", Visit: 1, Item: 1}, &Outcome{Values: one("1")}, nil)
	r.endRef(Ref{Node: "M", Visit: 1, Item: 2}, &Outcome{Values: one("2"), Wait: &Wait{Timer: &Timer{After: Duration(time.Minute)}}}, nil)
	r.fail("R", Errorf(Retryable, "SHAKY", ""))
	spent := used(7, 3)
	spent.State = map[string]json.RawMessage{"log": js("h")}
	r.end("H", spent)
	r.end("kids", spawn("c1", "c2"))
	require.NoError(t, r.child(Ref{Node: "kids", Visit: 1}, "c1", StatusCompleted, "1"))
	r.end("ask", ask("q", func(q *Interrupt) { q.Approve = js("this") }))
	r.do(Signaled{Name: "early", Payload: js("hi"), Now: r.now})
	snap, err := r.s.Snapshot()
	require.NoError(t, err)
	r.write(t, "waiting.snapshot", string(snap))
}

func (r *goldenRun) write(t *testing.T, name string, lines ...string) {
	text := string(js(goldenJournal{Machine: MachineVersion, Graph: r.p.Graph(), Visits: visitLines(r.s)})) + "\n" + strings.Join(lines, "\n") + "\n"
	require.NoError(t, os.MkdirAll("testdata/golden", 0o755))
	require.NoError(t, os.WriteFile(fmt.Sprintf("testdata/golden/v%d-%s", MachineVersion, name), []byte(text), 0o644))
}

type goldenRun struct {
	*machine
	p *Program
}

// goldenRuns are runs that together contain every step of the machine.
func goldenRuns(t *testing.T) map[string]*goldenRun {
	start := func(g *Graph, args ...string) *goldenRun {
		p, err := Compile(t.Context(), g, nil)
		require.NoError(t, err)
		r := &goldenRun{newMachine(t, p), p}
		r.begin(args...)
		return r
	}
	runs := map[string]*goldenRun{}

	g := nodesOf("x", nodes(Key("prev"), "A", "B", "C", "D", "rescue", "U").Edge("A", "B").Edge("A", "C").Edge("B", "D").Edge("C", "D").
		Edge("C", "rescue", OnFailure()).Edge("A", "U").State("log", Append).Graph())
	g.Nodes[2].OnError.Action, g.Nodes[2].Retry = Route, Retry{MaxAttempts: 2, Jitter: Unlimited}
	g.Nodes[3].Join = Join{Mode: Any, Losers: CancelLosers}
	g.Nodes[5].Effect = Unsafe
	r := start(g, "1")
	r.end("A", Outcome{Values: one(`"a"`), State: map[string]json.RawMessage{"log": js("a")},
		Usage: []Usage{{Provider: "p", Model: "m", InputTokens: 10, OutputTokens: 2}}})
	r.do(Attempt{Ref: r.ref("U"), Attempt: 1, Now: r.now})
	r.fail("C", Errorf(Retryable, "SHAKY", "once"))
	r.fail("U", Errorf(Unknown, ReasonTimeout, ""))
	r.now = r.now.Add(time.Minute)
	r.do(TimerDue{Now: r.now})
	r.do(Reconcile{Ref: Ref{Node: "U", Visit: 1}, Outcome: &Outcome{Values: one(`"u"`)}, Now: r.now})
	r.do(Resume{Now: r.now})
	r.fail("C", Errorf(Permanent, "BROKEN", "for good"))
	r.end("rescue", Outcome{})
	r.end("B", Outcome{Values: one(`"b"`)})
	r.end("D", Outcome{Values: one(`"d"`), Wait: &Wait{Timer: &Timer{After: Duration(time.Hour)}}})
	r.do(TimerDue{Now: r.now.Add(time.Hour)})
	require.Equal(t, StatusCompleted, r.s.End().Status)
	runs["routes-and-effects"] = r

	g = nodesOf("x", nodes(FirstArg(), "H", "W", "X", "skip").Chain("H", "W", "X").Edge("X", "skip", When("false")).Back("W", "H", "result[0].ok < 3").Graph())
	g.Nodes[0].MaxVisits = 2
	g.Nodes[1].Map = &Map{Over: "[args[0], 9]", MaxParallel: 1, OnItemError: ContinueItems}
	r = start(g, "0")
	for i := range 3 {
		if i == 2 {
			r.do(Resume{Now: r.now})
		}
		r.end("H", Outcome{Values: []json.RawMessage{js(i + 1)}})
		r.endRef(Ref{Node: "W", Visit: i + 1, Item: 1}, &Outcome{Values: []json.RawMessage{js(i + 1)}}, nil)
		r.endRef(Ref{Node: "W", Visit: i + 1, Item: 2}, nil, Errorf(Permanent, "NO", ""))
	}
	r.end("X", Outcome{Values: one(`"x"`)})
	require.Equal(t, StatusCompleted, r.s.End().Status)
	runs["loop-limit-and-map"] = r

	g = nodesOf("x", nodes(PassDown{}, "A", "B", "C").Edge("A", "B").Edge("B", "C").Graph())
	p, err := Compile(t.Context(), g, nil)
	require.NoError(t, err)
	r = &goldenRun{newMachine(t, p), p}
	r.do(Begin{Budget: &Budget{Tokens: i64(5)}, Now: r.now})
	r.end("A", used(5, -1))
	r.do(Resume{Budget: &Budget{NanoUSD: i64(3), Tokens: i64(100)}, Now: r.now})
	r.end("B", Outcome{Wait: &Wait{Children: &Children{Runs: []Child{{ID: "x", Ref: "self", Budget: tokens(3)}}}}})
	r.do(Resume{Budget: &Budget{NanoUSD: i64(4)}, Now: r.now})
	r.do(ChildEnded{Ref: Ref{Node: "B", Visit: 1}, Slot: ChildSlot{RunID: "x", Status: StatusCompleted, Spent: &Spent{NanoUSD: 4, Tokens: 3, Unpriced: 1}}, Now: r.now})
	require.Equal(t, VisitHeld, r.status("C"))
	r.do(Resume{Budget: &Budget{NanoUSD: i64(5)}, Now: r.now})
	r.end("C", used(1, 1))
	require.Equal(t, StatusCompleted, r.s.End().Status)
	runs["budget"] = r

	g = nodesOf("x", nodes(PassDown{}, "A", "B", "C").Edge("A", "B").Edge("A", "C").Graph())
	r = start(g)
	r.end("A", used(5, 2))
	r.do(Resume{Budget: &Budget{NanoUSD: i64(10), Tokens: i64(100)}, Price: true, Now: r.now})
	r.fail("B", Errorf(NotPerformed, ReasonUnsettled, ""))
	r.settlePrices(i64(3))
	r.end("B", late(2, -1))
	r.do(Pause{Reason: "MINE", Now: r.now})
	r.do(Resume{Now: r.now})
	r.settlePrices(nil)
	r.end("C", Outcome{Wait: &Wait{Children: &Children{Runs: []Child{{ID: "x", Ref: "self"}}}}})
	r.do(ChildEnded{Ref: Ref{Node: "C", Visit: 1}, Slot: ChildSlot{RunID: "x", Status: StatusCompleted, Spent: &Spent{Tokens: 3}, Usage: used(3, 0).Usage,
		Unsettled: []Unsettled{{Usage: used(3, -1).Usage[0], At: r.now}}}, Now: r.now})
	require.Equal(t, StatusCompleted, r.s.End().Status)
	runs["unsettled"] = r

	g = nodesOf("x", nodes(PassDown{}, "A", "B", "C", "D").Edge("A", "B").Edge("A", "C").Edge("B", "D").Edge("C", "D").Graph())
	r = start(g)
	r.do(Pause{Reason: "BUDGET", Now: r.now})
	r.end("A", Outcome{})
	r.do(Resume{Now: r.now})
	r.end("B", Outcome{Stop: AbstainResult})
	r.fail("C", Errorf(Retryable, "SHAKY", ""))
	r.do(Cancel{Reason: "user", Now: r.now})
	require.Equal(t, StatusCanceled, r.s.End().Status)
	runs["pause-and-cancel"] = r

	g = nodesOf("x", nodes(FirstArg(), "A", "L", "R", "X").Edge("A", "L").Edge("A", "R").Edge("L", "R").Back("R", "L", "visit < 3").Edge("R", "X").Graph())
	g.Nodes[1].Join.Mode, g.Nodes[2].Join.Mode = Any, Any
	r = start(g, "0")
	for r.s.End() == nil {
		for _, id := range []string{"A", "L", "R", "X"} {
			for v := 1; v < 10; v++ {
				if _, ok := r.open[Ref{Node: id, Visit: v}]; ok {
					r.endRef(Ref{Node: id, Visit: v}, &Outcome{Values: []json.RawMessage{js(v)}}, nil)
				}
			}
		}
	}
	require.Equal(t, StatusCompleted, r.s.End().Status)
	runs["irreducible"] = r

	g = nodesOf("x", nodes(FirstArg(), "kids", "late", "ask", "old", "task", "hear", "items", "end").Chain("kids", "end").Edge("ask", "end").State("log", Append).Graph())
	g.Nodes[4].Effect = Unsafe
	g.Nodes[6].Map = &Map{Over: "[1,2]", OnItemError: ContinueItems}
	r = start(g, "1")
	r.do(Signaled{Name: "early", Payload: js(1), Now: r.now})
	r.do(Attempt{Ref: r.ref("task"), Attempt: 1, Now: r.now})
	kids := spawn("c1", "c2")
	kids.State = map[string]json.RawMessage{"log": js("kids")}
	r.end("kids", kids)
	late := spawn("l1", "l2")
	late.Wait.Children.Timeout = Duration(time.Minute)
	r.end("late", late)
	r.end("ask", ask("q", func(q *Interrupt) { q.Approve = js("this") }))
	r.end("old", ask("q2", func(q *Interrupt) { q.Timeout, q.Default = Duration(time.Minute), js("never mind") }))
	r.end("task", Outcome{Wait: &Wait{Completion: &CompletionWait{}}})
	r.end("hear", Outcome{Wait: &Wait{Signal: &SignalWait{Name: "go"}}})
	r.endRef(Ref{Node: "items", Visit: 1, Item: 1}, &Outcome{Wait: &Wait{Signal: &SignalWait{Name: "early"}}}, nil)
	r.endRef(Ref{Node: "items", Visit: 1, Item: 2}, &Outcome{Wait: &Wait{Completion: &CompletionWait{Timeout: Duration(time.Second)}}}, nil)
	require.NoError(t, r.child(Ref{Node: "late", Visit: 1}, "l2", StatusCompleted, "2"))
	r.later(time.Minute)
	r.do(ChildEnded{Ref: Ref{Node: "kids", Visit: 1}, Slot: ChildSlot{RunID: "c2", Status: StatusFailed, Error: Errorf(Permanent, "NO", ""),
		Usage: []Usage{{Model: "m", InputTokens: 4}}}, Now: r.now})
	require.NoError(t, r.child(Ref{Node: "kids", Visit: 1}, "c1", StatusCompleted, `{"a":1}`))
	r.do(Answered{ID: "q", Decision: Approved, By: "ann", Now: r.now})
	r.do(AttemptCompleted{Ref: Ref{Node: "task", Visit: 1}, Attempt: 1, Outcome: &Outcome{Values: one(`"built"`)}, By: "ci", Now: r.now})
	r.do(Signaled{Name: "go", Payload: js("now"), Now: r.now})
	r.end("end", Outcome{})
	require.Equal(t, StatusCompleted, r.s.End().Status)
	runs["waits"] = r

	g = nodesOf("x", inbox(nodes(FirstArg(), "A", "I", "J", "end").Edge("A", "I").Edge("I", "J").Edge("J", "I", When("visit < 3")).Edge("J", "end").Graph(),
		Inbox{BatchSize: 2, TTL: Duration(time.Minute)}, "I", "J"))
	g.Nodes[1].MaxVisits = 1
	r = start(g, "1")
	require.NoError(t, r.send("user", "I", `"old"`))
	r.now = r.now.Add(time.Minute)
	require.NoError(t, r.send("user", "", `"hi"`))
	r.end("A", Outcome{Values: one(`"a"`)})
	r.end("I", Outcome{Values: one(`"i"`)})
	r.end("J", Outcome{Values: one(`"j"`)})
	r.do(Resume{Now: r.now})
	r.end("I", Outcome{Stop: AbstainResult})
	r.end("end", Outcome{})
	require.Equal(t, StatusCompleted, r.s.End().Status)
	runs["inboxes"] = r

	g = nodesOf("x", nodes(FirstArg(), "A", "B", "C", "D").Edge("A", "B").Edge("A", "C").Edge("B", "D").State("log", Append).Graph())
	p, err = Compile(t.Context(), g, nil)
	require.NoError(t, err)
	r = &goldenRun{newMachine(t, p), p}
	r.do(Begin{Now: r.now, Reuse: []ReusedVisit{{Ref: Ref{Node: "A", Visit: 1}, Outcome: Outcome{Values: one("1"), State: map[string]json.RawMessage{"log": js("a")},
		Select: &Select{Others: SelectNames, Names: []string{"B"}}}}, {Ref: Ref{Node: "B", Visit: 1}, Outcome: Outcome{Stop: AbstainResult}}}})
	require.Equal(t, StatusCompleted, r.s.End().Status)
	runs["reused"] = r

	r = start(nodesOf("x", nodes(FirstArg(), "A", "B").Graph()))
	r.end("A", spawn("c"))
	r.do(DeadlinePassed{Now: r.now})
	r.fail("B", Errorf(NotPerformed, ReasonCanceled, ""))
	require.Equal(t, ReasonDeadline, r.s.End().Reason)
	runs["deadline"] = r
	g = nodesOf("x", nodes(Key("k"), "H", "A", "B", "C").Chain("H", "A", "B", "C").Back("B", "H", "visit < 2").Graph())
	r = start(g, "0")
	part := nodesOf("x", nodes(Key("k"), "x", "y").Graph())
	r.end("H", Outcome{Values: one(`"h1"`)})
	r.end("A", Outcome{Values: one(`"a1"`), Expand: part})
	r.end("A#1/x", Outcome{Values: one(`"x1"`)})
	r.end("A#1/y", Outcome{Values: one(`"y1"`)})
	r.end("B", Outcome{Values: one(`"b1"`)})
	r.end("H", Outcome{Values: one(`"h2"`)})
	r.end("A", Outcome{Values: one(`"a2"`)})
	r.amend(Patch{PutNodes: []Node{put("C", Named("more", js(1))), put("N")}, AddEdges: []Edge{{From: "C", To: "N"}}})
	r.end("B", Outcome{Values: one(`"b2"`)})
	r.end("C", Outcome{Values: one(`"c"`), Expand: part})
	r.amend(Patch{PutNodes: []Node{put("C#1/y", Named("more", js(2))), put("M")}, AddEdges: []Edge{{From: "C", To: "M", When: `result == "c"`}}})
	for _, id := range []string{"C#1/x", "C#1/y", "M", "N"} {
		r.end(id, Outcome{Values: one(`"end"`)})
	}
	require.Equal(t, StatusCompleted, r.s.End().Status)
	runs["expand-and-amend"] = r
	return runs
}
