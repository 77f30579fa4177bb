package view

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/obs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	planv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/plan/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with a file, in which ESC is shown as ␛ so that reviews can see it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	got = strings.ReplaceAll(got, "\x1b", "␛")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// hostile is text as a model could write it, to take a terminal over or to hide what it says.
const hostile = "\x1b[2J\x1b]0;owned\a\u009b31m\rover\nnext\tcol\u202egnp.exe\u2028line\x00\x7f\xff \U000E0041end"

// requireSafe fails if text holds a character that a terminal would obey, besides those allowed.
func requireSafe(t *testing.T, text, allowed string) {
	t.Helper()
	require.True(t, utf8.ValidString(text), "%q", text)
	for _, r := range text {
		if !strings.ContainsRune(allowed, r) && !harmless(r) {
			require.Failf(t, "harmful character", "%U in %q", r, text)
		}
	}
}

func TestOneLine(t *testing.T) {
	for _, c := range []struct {
		name, in string
		most     int
		want     string
	}{
		{"Spaces", "  a \n\n b\tc ", 0, "a b c"},
		{"Short", "abc", 3, "abc"},
		{"Long", "abcd", 3, "ab…"},
		{"WideCharactersCountTwice", "日本語の計画", 7, "日本語…"},
		{"WideCharacterThatDoesNotFit", "日本語の計画", 6, "日本…"},
		{"CombiningCharactersCountNothing", "e\u0301e\u0301e\u0301", 3, "e\u0301e\u0301e\u0301"},
		{"EmojiStaysWhole", "👩\u200d💻 ok", 0, "👩\u200d💻 ok"},
		{"Hostile", hostile, 0, "[2J ]0;owned 31m over next col gnp.exe line � end"},
		{"Empty", "\x1b", 5, ""},
	} {
		t.Run("OneLine/"+c.name, func(t *testing.T) {
			require.Equal(t, c.want, OneLine(c.in, c.most))
		})
	}
}

func TestLines(t *testing.T) {
	require.Equal(t, []string{"# Title", "", "    code", "over", "[31mred"}, Lines("\n\n# Title\r\n\r\n\tcode  \rover\n\x1b[31mred\n\n"))
	require.Equal(t, []string{""}, Lines(""))
}

func TestColumns(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "日本": 4, "ｱ": 1, "Ａ": 2, "é": 1, "e\u0301": 1, "✓": 1, "─": 1, "🙂": 2, "…": 1} {
		require.Equal(t, want, Columns(text), "%q", text)
	}
}

func TestNumbers(t *testing.T) {
	t.Run("Money/Digits", func(t *testing.T) {
		for nano, want := range map[int64]string{
			0: "$0.00", 1: "$0.000000001", 10_000_000: "$0.01", 1_849_000: "$0.001849", 1_500_000_000: "$1.50", 1234_567_000_000_000: "$1,234,567.00",
			-250_000_000: "-$0.25", -1 << 63: "-$9,223,372,036.854775808",
		} {
			require.Equal(t, want, Money(nano))
		}
	})
	t.Run("Took/Units", func(t *testing.T) {
		for d, want := range map[time.Duration]string{
			-1: "", 0: "0µs", 94 * time.Microsecond: "94µs", 999 * time.Millisecond: "999ms", time.Second: "1.0s", 59_990 * time.Millisecond: "59.9s",
			61 * time.Second: "1m01s", time.Hour + 5*time.Minute: "1h05m", 30 * time.Hour: "30h00m", 50 * time.Hour: "2d02h",
		} {
			require.Equal(t, want, Took(d))
		}
	})
	t.Run("Count/Thousands", func(t *testing.T) {
		for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", 1234567: "1,234,567", -123: "-123", -1 << 63: "-9,223,372,036,854,775,808"} {
			require.Equal(t, want, Count(n))
		}
	})
	t.Run("Plural/Words", func(t *testing.T) {
		require.Equal(t, "1 dependency, 2 dependencies, 0 nodes, 1,000 nodes",
			strings.Join([]string{Plural(1, "dependency"), Plural(2, "dependency"), Plural(0, "node"), Plural(1000, "node")}, ", "))
	})
}

func TestTable(t *testing.T) {
	t.Run("Table/WideAndEmptyColumns", func(t *testing.T) {
		got := Table(Style{}, []string{"ID", "TITLE", "NOTHING", "LAST"}, [][]string{{"a", "日本語", "", "x"}, {"bcd", "ab", "", ""}})
		require.Equal(t, "ID   TITLE   LAST\na    日本語  x\nbcd  ab\n", got)
	})
	t.Run("Table/HostileCells", func(t *testing.T) {
		requireSafe(t, Table(Style{}, []string{"A", "B"}, [][]string{{hostile, hostile}}), "\n")
	})
}

func TestDiagnostics(t *testing.T) {
	long := strings.Repeat("word ", 60) + "X -> Y" + strings.Repeat(" tail", 60)
	text := strings.Join([]string{"A -> B", "日本語 -> 漢字, Z", "\tTAB\t-> Q", long, "crlf -> \x1b[31mZ\r"}, "\n")
	ds := []*planv1.Diagnostic{
		{Code: "CYCLE", Severity: planv1.Severity_SEVERITY_ERROR, Line: 1, Column: 6, Element: "B", Message: "these wait for each other", Hint: "take one out"},
		{Code: "WIDE", Severity: planv1.Severity_SEVERITY_WARNING, Line: 2, Column: 8, Element: "漢字", Message: "after wide characters"},
		{Code: "TABS", Severity: planv1.Severity_SEVERITY_WARNING, Line: 3, Column: 9, Element: "Q", Message: "after tabs"},
		{Code: "LONG", Severity: planv1.Severity_SEVERITY_WARNING, Line: 4, Column: 301, Element: "X", Message: "in a long line"},
		{Code: "END", Severity: planv1.Severity_SEVERITY_WARNING, Line: 5, Column: 99, Message: "behind the end of a line with \x1b[2J"},
		{Code: "WHOLE", Severity: planv1.Severity_SEVERITY_ERROR, Message: "of no place"},
		{Code: "GONE", Severity: planv1.Severity_SEVERITY_ERROR, Line: 99, Column: 1, Message: "of a line that is not there"},
		{Code: "OPEN_END", Severity: planv1.Severity_SEVERITY_INFO, Line: 1, Column: 1, Message: "worth knowing", Hint: "not shown"},
	}
	for range 7 { // the last two are counted
		ds = append(ds, &planv1.Diagnostic{Code: "MANY", Severity: planv1.Severity_SEVERITY_WARNING, Line: 1, Column: 1, Message: "the same again"})
	}
	golden(t, "diagnostics.txt", Diagnostics(Style{}, "plan.txt", text, ds))
	golden(t, "diagnostics.color.txt", Diagnostics(Style{Color: true}, "plan.txt", text, ds[:2]))

	t.Run("Diagnostics/Hostile", func(t *testing.T) {
		for column := range int32(70) {
			requireSafe(t, Diagnostics(Style{}, hostile, hostile, []*planv1.Diagnostic{{Code: hostile, Line: 1, Column: column, Element: hostile, Message: hostile, Hint: hostile}}), "\n")
		}
	})
}

func TestPlan(t *testing.T) {
	golden(t, "plan.txt", Plan(Style{}, &plannerv1.ParsePlanResponse{
		Dialect: "numbered", Hash: "0123456789abcdef",
		Graph: &planv1.ProblemGraph{
			Problems: []*planv1.Problem{
				{Id: "1", Request: "Prepare"}, {Id: "1.1", Request: "Book", Details: "by Friday\n\x1b[31mred\n- a seat\n- a room\n- a car", ParentId: "1"}, {Id: "1.2", Request: "日本語で書く " + strings.Repeat("x", 80), ParentId: "1"},
				{Id: "名前", Request: "名前"}, {Id: "\x1b[31mred", Request: "line\nbreak", Tool: "mail.send"},
			},
			Edges: []*planv1.ProblemEdge{
				{From: "1.1", To: "1.2", Source: planv1.EdgeSource_EDGE_SOURCE_LISTED_ORDER}, {From: "1.1", To: "名前"},
				{From: "1.2", To: "名前", Source: planv1.EdgeSource_EDGE_SOURCE_NUMBERING},
			},
		},
		Surroundings: []*planv1.LineRange{{First: 1, Last: 3}, {First: 9, Last: 9}},
		Repairs:      []*planv1.Repair{{Code: "FENCE_REMOVED", Message: "left out the fence", Applied: true}, {Code: "REUSED_TOOL", Message: "name them apart"}},
	}))
	require.Equal(t, "There is no plan in this text (PROSE).\n", Plan(Style{}, &plannerv1.ParsePlanResponse{NoPlan: true, NoPlanReason: "PROSE"}))
	require.Equal(t, "There is no plan in this text (REFUSAL: the text declines).\n", Plan(Style{}, &plannerv1.ParsePlanResponse{NoPlan: true, NoPlanReason: "REFUSAL", NoPlanMessage: "the text declines"}))
}

func sample() Diagram {
	return Diagram{
		Nodes: []DiagramNode{
			{ID: "G", Label: `The "whole" <b> & #1`}, {ID: "a-b", Label: "end", Group: "G"}, {ID: "c", Label: `C:\new` + "\nline", Group: "a-b"},
			{ID: "own", Label: "`own`", Group: "own"}, {ID: "p", Label: "p", Group: "q"}, {ID: "q", Label: "q", Group: "p"}, {ID: "lost", Label: "lost", Group: "nobody"},
		},
		Edges: []DiagramEdge{{From: "a-b", To: "c", Label: `x > "1"`}, {From: "c", To: "ghost", Dashed: true}, {From: "q", To: "p"}},
	}
}

func TestDiagram(t *testing.T) {
	golden(t, "diagram.mermaid", sample().Mermaid())
	golden(t, "diagram.dot", sample().Dot())

	t.Run("Diagram/LeavesItsInputAlone", func(t *testing.T) {
		d := sample()
		_ = d.Mermaid()
		require.Equal(t, sample(), d)
	})
}

func FuzzOneLine(f *testing.F) {
	f.Add(hostile, 10)
	f.Add("日本語", 3)
	f.Fuzz(func(t *testing.T, text string, most int) {
		got := OneLine(text, most)
		requireSafe(t, got, "")
		if most > 0 {
			require.LessOrEqual(t, Columns(got), most)
		}
		require.Equal(t, got, OneLine(got, most), "printing it again changes nothing")
		for _, l := range Lines(text) {
			requireSafe(t, l, "")
		}
	})
}

func FuzzDiagram(f *testing.F) {
	f.Add(hostile, `"quoted" \ #quot;`, "a", "b")
	f.Add("a", "]; n2[", "a", "")
	f.Fuzz(func(t *testing.T, id, label, group, to string) {
		d := Diagram{
			Nodes: []DiagramNode{{ID: id, Label: label, Group: group}, {ID: group, Label: label, Group: to}},
			Edges: []DiagramEdge{{From: id, To: to, Label: label}},
		}
		mermaid, dot := d.Mermaid(), d.Dot()
		requireSafe(t, mermaid, "\n")
		requireSafe(t, dot, "\n")
		for l := range strings.Lines(mermaid) {
			require.Contains(t, []int{0, 2}, strings.Count(l, `"`), "%q", l)
		}
		for l := range strings.Lines(dot) {
			quotes, escaped := 0, false
			for _, r := range l {
				if r == '"' && !escaped {
					quotes++
				}
				escaped = r == '\\' && !escaped
			}
			require.Contains(t, []int{0, 2}, quotes, "%q", l)
		}
	})
}

func TestWaterfall(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	spans := []obs.Span{
		{TraceID: "t", SpanID: "1", Service: "epigraph-gateway", Name: "epigraph.executor.v1.ExecutorService/StartRun", Start: at(0), End: at(10)},
		{TraceID: "t", SpanID: "2", ParentID: "1", Service: "epigraph-executor", Name: "invoke llm", Start: at(2), End: at(90), Failed: true},
		{TraceID: "t", SpanID: "3", ParentID: "2", Service: "epigraph-executor", Name: hostile, Start: at(50), End: at(50)},
		{TraceID: "t", SpanID: "4", ParentID: "elsewhere", Service: "epigraph-registry", Name: strings.Repeat("long ", 20), Start: at(80), End: at(100)},
		{TraceID: "t", SpanID: "5", ParentID: "5", Service: "x", Name: "its own parent", Start: at(0), End: at(1)},
	}
	golden(t, "waterfall.txt", Waterfall(Style{}, spans, 110))
	require.Equal(t, "no spans\n", Waterfall(Style{}, nil, 100))
	t.Run("Waterfall/Many", func(t *testing.T) {
		var many []obs.Span
		for i := range 140 {
			many = append(many, obs.Span{SpanID: fmt.Sprint(i), Start: at(i), End: at(i)})
		}
		got := Waterfall(Style{}, many, 10)
		require.Contains(t, got, "… and 20 more spans")
	})
}

func TestStyle(t *testing.T) {
	require.Equal(t, "x", Style{}.red("x"))
	require.Equal(t, "\x1b[31mx\x1b[0m", Style{Color: true}.red("x"))
	require.Empty(t, Style{Color: true}.Bold(""))
	require.Equal(t, "ab", Plain(Style{Color: true}.Bold("a")+Style{Color: true}.red("b")))
	require.Equal(t, "\x1b[31mab\x1b[0m", clip("\x1b[31mabc\x1b[0m", 2))
	require.Equal(t, "日", clip("日本", 3))
	require.Equal(t, "needs_reconciliation", Word("VISIT_STATE_NEEDS_RECONCILIATION", "VISIT_STATE_"))
	require.Empty(t, When(nil))
	require.False(t, unicode.Is(unicode.Cf, 'x'))
}

// story is a run, event by event.
type story struct {
	tree *Tree
	now  time.Time
	seq  int64
	log  []string
	st   Style
}

func newStory(g *graphv1.Graph) *story {
	return &story{tree: NewTree("run_1", g), now: time.Unix(1000, 0)}
}

func (s *story) after(d time.Duration, ev *executorv1.RunEvent) *story {
	s.now = s.now.Add(d)
	ev.Time, ev.RunId = timestamppb.New(s.now), "run_1"
	if ev.GetAttemptStarted() == nil && ev.GetTokenDelta() == nil && ev.GetVisitsChanged() == nil && ev.GetInterruptOpened() == nil {
		s.seq++
		ev.Seq = s.seq
	}
	if l := s.tree.Apply(s.st, ev); l != "" {
		s.log = append(s.log, l)
	}
	return s
}

func ref(node string, visit, item int32) *executorv1.VisitRef {
	return &executorv1.VisitRef{NodeId: node, Visit: visit, Item: item}
}

func started(node string, visit, attempt int32) *executorv1.RunEvent {
	return &executorv1.RunEvent{Event: &executorv1.RunEvent_AttemptStarted{AttemptStarted: &executorv1.AttemptStarted{Visit: ref(node, visit, 0), Attempt: attempt}}}
}

func ended(e *executorv1.AttemptEnded) *executorv1.RunEvent {
	return &executorv1.RunEvent{Event: &executorv1.RunEvent_AttemptEnded{AttemptEnded: e}}
}

func completed(node string, visit int32) *executorv1.RunEvent {
	return ended(&executorv1.AttemptEnded{Visit: ref(node, visit, 0), Attempt: 1, State: executorv1.VisitState_VISIT_STATE_COMPLETED})
}

func changed(list ...*executorv1.VisitChange) *executorv1.RunEvent {
	return &executorv1.RunEvent{Event: &executorv1.RunEvent_VisitsChanged{VisitsChanged: &executorv1.VisitsChanged{Visits: list}}}
}

func runEnded(state executorv1.RunState) *executorv1.RunEvent {
	return &executorv1.RunEvent{Event: &executorv1.RunEvent_RunEnded{RunEnded: &executorv1.RunEnded{State: state}}}
}

func graph(nodes string, edges ...string) *graphv1.Graph {
	g := &graphv1.Graph{}
	for n := range strings.FieldsSeq(nodes) {
		g.Nodes = append(g.Nodes, &graphv1.Node{Id: n, Actor: "llm"})
	}
	for _, e := range edges {
		from, to, _ := strings.Cut(e, ">")
		g.Edges = append(g.Edges, &graphv1.Edge{From: from, To: to})
	}
	return g
}

func TestCost(t *testing.T) {
	for _, c := range []struct {
		name               string
		nano               int64
		known              bool
		unpriced, unbooked int64
		want               string
	}{
		{"Whole", 30, true, 0, 0, "$0.00000003"},
		{"Free", 0, true, 0, 0, "$0.00"},
		{"OfNoPrice", 0, false, 2, 0, "price unknown"},
		{"SomeOfNoPrice", 30, true, 2, 0, "$0.00000003 + 2 unpriced"},
		{"NothingBooked", 0, true, 0, 2, "2 attempts not booked yet"},
		{"SomeBooked", 30, true, 0, 1, "$0.00000003 + 1 attempt not booked yet"},
		{"BookedAtNoPrice", 0, false, 1, 1, "1 unpriced + 1 attempt not booked yet"},
	} {
		t.Run("Cost/"+c.name, func(t *testing.T) {
			require.Equal(t, c.want, Cost(c.nano, c.known, c.unpriced, c.unbooked))
		})
	}
}

func TestTree(t *testing.T) {
	second := time.Second
	t.Run("Counts/OfARunWithChildrenThatEnded", func(t *testing.T) {
		s := newStory(graph("agent"))
		s.tree.Spend(&executorv1.Usage{CostNanoUsd: 1_500_000, InputTokens: 243, OutputTokens: 17})
		require.Contains(t, s.tree.Render(Style{}, Frame{Now: s.now, Turn: -1}), "243→17 tokens · $0.0015 so far")
		s.after(0, completed("agent", 1))
		s.after(0, runEnded(executorv1.RunState_RUN_STATE_COMPLETED))
		require.Contains(t, s.tree.Render(Style{}, Frame{Now: s.now, Turn: -1}), "1 completed · 243→17 tokens · $0.0015\n")
	})
	t.Run("Tree/Story", func(t *testing.T) {
		s := newStory(graph("ask 調べる write nap gone", "ask>write", "調べる>write", "write>gone"))
		first := s.tree.Render(Style{}, Frame{Now: s.now, Turn: -1})
		s.after(0, started("ask", 1, 1)).after(0, started("調べる", 1, 1)).after(0, started("nap", 1, 1))
		s.after(second, ended(&executorv1.AttemptEnded{Visit: ref("nap", 1, 0), Attempt: 1, State: executorv1.VisitState_VISIT_STATE_WAITING}))
		s.after(second, ended(&executorv1.AttemptEnded{
			Visit: ref("ask", 1, 0), Attempt: 1, State: executorv1.VisitState_VISIT_STATE_BACKING_OFF, RetryTime: timestamppb.New(s.now.Add(3 * second)),
			Error: &executorv1.RunError{Reason: "MODEL_CALL_FAILED", Message: "busy\x1b[2J"},
		}))
		s.after(0, &executorv1.RunEvent{Event: &executorv1.RunEvent_TokenDelta{TokenDelta: &executorv1.TokenDelta{Visit: ref("調べる", 1, 0), Text: "Reading\x1b[31m the page"}}})
		s.tree.Spend(&executorv1.Usage{CostNanoUsd: 1_500_000})
		middle := s.tree.Render(Style{}, Frame{Now: s.now, Turn: 3})
		s.after(second, started("ask", 1, 2))
		s.after(second, ended(&executorv1.AttemptEnded{
			Visit: ref("ask", 1, 0), Attempt: 2, State: executorv1.VisitState_VISIT_STATE_COMPLETED, Usage: &executorv1.Usage{InputTokens: 1200, OutputTokens: 34},
		}))
		s.after(0, changed(&executorv1.VisitChange{Visit: ref("nap", 1, 0), State: executorv1.VisitState_VISIT_STATE_COMPLETED}))
		s.after(0, &executorv1.RunEvent{Event: &executorv1.RunEvent_TimerFired{TimerFired: &executorv1.TimerFired{Visit: ref("nap", 1, 0)}}})
		s.after(0, completed("調べる", 1))
		s.after(0, changed(&executorv1.VisitChange{Visit: ref("gone", 1, 0), State: executorv1.VisitState_VISIT_STATE_CANCELED}))
		s.after(0, &executorv1.RunEvent{Event: &executorv1.RunEvent_CancelRequested{CancelRequested: &executorv1.CancelRequested{Reason: "enough"}}})
		s.after(second, ended(&executorv1.AttemptEnded{
			Visit: ref("write", 1, 0), Attempt: 1, State: executorv1.VisitState_VISIT_STATE_FAILED, Error: &executorv1.RunError{Reason: "DRILL", Message: hostile},
		}))
		s.after(0, runEnded(executorv1.RunState_RUN_STATE_FAILED))
		s.tree.Book("ask", 2_000_000, true)
		s.tree.Book("調べる", 0, false)
		last := s.tree.Render(Style{}, Frame{Now: s.now, Turn: -1})
		all := strings.Join(s.log, "\n") + "\n"
		golden(t, "tree.txt", "-- at first --\n"+first+"-- in the middle --\n"+middle+"-- at last --\n"+last+"-- the log --\n"+all)
		requireSafe(t, first+middle+last+all, "\n")
	})

	t.Run("Tree/Color", func(t *testing.T) {
		s := newStory(graph("a b c", "a>b", "b>c"))
		s.after(0, completed("a", 1)).after(0, started("b", 1, 1))
		golden(t, "tree.color.txt", s.tree.Render(Style{Color: true}, Frame{Now: s.now, Width: 30}))
	})

	t.Run("Tree/EveryVisitHasItsOwnTime", func(t *testing.T) {
		s := newStory(graph("a"))
		s.after(0, started("a", 1, 1)).after(5*second, completed("a", 1)).after(second, started("a", 2, 1)).after(2*second, completed("a", 2))
		require.Equal(t, "✓ a  llm  visit 2  2.0s\n1 completed\n", s.tree.Render(Style{}, Frame{Now: s.now}))
	})

	t.Run("Tree/ItemsOfAMap", func(t *testing.T) {
		s := newStory(graph("m after", "m>after"))
		item := func(i int32, state executorv1.VisitState, failed bool) {
			e := &executorv1.AttemptEnded{Visit: ref("m", 1, i), Attempt: 1, State: state}
			if failed {
				e.Error = &executorv1.RunError{Reason: "DRILL", Message: "no"}
			}
			s.after(second, ended(e))
		}
		all := func(state executorv1.VisitState) {
			s.after(0, changed(&executorv1.VisitChange{Visit: ref("m", 1, 0), State: state}))
		}
		s.after(0, &executorv1.RunEvent{Event: &executorv1.RunEvent_AttemptStarted{AttemptStarted: &executorv1.AttemptStarted{Visit: ref("m", 1, 1), Attempt: 1}}})
		item(1, executorv1.VisitState_VISIT_STATE_COMPLETED, false)
		require.Empty(t, s.log)
		item(2, executorv1.VisitState_VISIT_STATE_BACKING_OFF, true)
		item(2, executorv1.VisitState_VISIT_STATE_FAILED, true)
		require.Equal(t, []string{"▶ m  running  1 item  (item 2 is tried again: DRILL: no)", "▶ m  running  2 items  1 failed  (item 2: DRILL: no)"}, s.log)
		require.Contains(t, s.tree.Render(Style{}, Frame{Now: s.now}), "1 running")
		all(executorv1.VisitState_VISIT_STATE_COMPLETED)
		item(3, executorv1.VisitState_VISIT_STATE_COMPLETED, false)
		require.Equal(t, "✓ m  3 items  1 failed  3.0s", s.log[2], "a map that takes failed items is complete")

		s = newStory(graph("m"))
		all(executorv1.VisitState_VISIT_STATE_FAILED)
		item(1, executorv1.VisitState_VISIT_STATE_FAILED, true)
		require.Equal(t, []string{"✗ m  failed  1 item  1 failed  DRILL: no  (item 1: DRILL: no)"}, s.log)
		require.Contains(t, s.tree.Render(Style{}, Frame{Now: s.now}), "1 failed")
	})

	t.Run("Tree/LargeGraphShowsWhereSomethingHappens", func(t *testing.T) {
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprintf("n%02d", i))
		}
		s := newStory(graph(strings.Join(names, " ")))
		for i := range 50 {
			s.after(second, completed(names[i], 1))
		}
		s.after(0, started("n77", 1, 1)).after(0, started("n99", 1, 1))
		got := s.tree.Render(Style{}, Frame{Now: s.now, Turn: -1, Height: 9})
		require.Equal(t, 9, strings.Count(got, "\n"))
		require.Contains(t, got, "▶ n77")
		require.Contains(t, got, "▶ n99")
		require.Contains(t, got, "✓ n49", "the last that ended")
		require.NotContains(t, got, "n45")
		require.Contains(t, got, "· n50", "the next to come")
		require.Contains(t, got, "… and 92 more nodes · 50 completed · 2 running · 48 to come")
		require.Equal(t, maxLines+1, strings.Count(s.tree.Render(Style{}, Frame{Now: s.now}), "\n"))
		require.Equal(t, 2, strings.Count(s.tree.Render(Style{}, Frame{Now: s.now, Height: 1}), "\n"), "never nothing")
	})

	t.Run("Tree/FitsTheWidth", func(t *testing.T) {
		s := newStory(graph("a 長い名前の節点 c", "a>長い名前の節点", "長い名前の節点>c"))
		s.after(0, started("長い名前の節点", 1, 1))
		for w := 1; w < 60; w++ {
			for l := range strings.Lines(s.tree.Render(Style{Color: true}, Frame{Now: s.now, Width: w, Height: 20})) {
				require.LessOrEqual(t, Columns(Plain(strings.TrimSuffix(l, "\n"))), w)
			}
		}
	})

	t.Run("Tree/EveryStateHasItsMark", func(t *testing.T) {
		s := newStory(graph("start closed ask late child nap gone off amount twice unsure never", "start>ask", "ask>never"))
		change := func(node string, state executorv1.VisitState, reason, message string) *executorv1.VisitChange {
			c := &executorv1.VisitChange{Visit: ref(node, 1, 0), State: state, Reason: reason}
			if message != "" {
				c.Reason, c.Error = "", &executorv1.RunError{Reason: reason, Message: message}
			}
			return c
		}
		waits := func(node string, w *executorv1.WaitInfo) *executorv1.RunEvent {
			return ended(&executorv1.AttemptEnded{Visit: ref(node, 1, 0), Attempt: 1, State: executorv1.VisitState_VISIT_STATE_WAITING, Wait: w})
		}
		s.after(0, changed(change("closed", executorv1.VisitState_VISIT_STATE_SKIPPED, "CONDITION_FALSE", ""), change("start", executorv1.VisitState_VISIT_STATE_FAILED, "EXPR_FAILED", "nothing is called x")))
		s.after(0, &executorv1.RunEvent{Event: &executorv1.RunEvent_RunStarted{RunStarted: &executorv1.RunStarted{}}})
		asks := &executorv1.InterruptOpened{InterruptId: "int_1", Visit: ref("ask", 1, 0), Approve: &graphv1.Payload{Json: []byte(`{"amount":7}`)}, ApproveHash: "ab"}
		s.after(0, &executorv1.RunEvent{Event: &executorv1.RunEvent_InterruptOpened{InterruptOpened: asks}})
		s.after(0, waits("ask", &executorv1.WaitInfo{Kind: executorv1.WaitKind_WAIT_KIND_INTERRUPT, InterruptId: "int_1"}))
		s.after(0, waits("late", &executorv1.WaitInfo{Kind: executorv1.WaitKind_WAIT_KIND_SIGNAL, Signal: "go"}))
		s.after(0, waits("child", &executorv1.WaitInfo{Kind: executorv1.WaitKind_WAIT_KIND_CHILDREN, ChildRunIds: []string{"run_2"}}))
		s.after(0, waits("nap", &executorv1.WaitInfo{Kind: executorv1.WaitKind_WAIT_KIND_TIMER}))
		s.after(0, waits("off", &executorv1.WaitInfo{Kind: executorv1.WaitKind_WAIT_KIND_COMPLETION}))
		require.Contains(t, s.tree.Render(Style{}, Frame{Now: s.now, Turn: -1, Width: 80, Height: 24}), "ask asks to approve: {\"amount\":7}\n  `epigraph interrupts answer int_1 yes|no`\n",
			"a picture that moves shows open interrupts below the tree")
		require.Equal(t, 9, strings.Count(s.tree.Render(Style{}, Frame{Now: s.now, Turn: -1, Width: 80, Height: 9}), "\n"))
		s.after(second, changed(change("ask", executorv1.VisitState_VISIT_STATE_FAILED, "APPROVAL_REJECTED", "ada rejected it: too much")))
		s.after(0, &executorv1.RunEvent{Event: &executorv1.RunEvent_InterruptClosed{InterruptClosed: &executorv1.InterruptClosed{
			InterruptId: "int_1", Visit: ref("ask", 1, 0), Decision: "REJECTED", By: "ada"}}})
		s.after(second, changed(change("late", executorv1.VisitState_VISIT_STATE_FAILED, "SIGNAL_EXPIRED", "no signal \"go\" came within 2s")))
		s.after(0, &executorv1.RunEvent{Event: &executorv1.RunEvent_TimerFired{TimerFired: &executorv1.TimerFired{Visit: ref("late", 1, 0)}}})
		s.after(0, changed(change("child", executorv1.VisitState_VISIT_STATE_FAILED, "CHILD_FAILED", "child run_2 ended FAILED")))
		s.after(0, &executorv1.RunEvent{Event: &executorv1.RunEvent_ChildEnded{ChildEnded: &executorv1.ChildEnded{Visit: ref("child", 1, 0), RunId: "run_2", State: executorv1.RunState_RUN_STATE_FAILED}}})
		s.after(0, changed(change("nap", executorv1.VisitState_VISIT_STATE_COMPLETED, "", "")))
		s.after(0, &executorv1.RunEvent{Event: &executorv1.RunEvent_TimerFired{TimerFired: &executorv1.TimerFired{Visit: ref("nap", 1, 0)}}})
		s.after(0, ended(&executorv1.AttemptEnded{Visit: ref("amount", 1, 0), Attempt: 1, State: executorv1.VisitState_VISIT_STATE_ABSTAINED, Abstained: true}))
		s.after(0, ended(&executorv1.AttemptEnded{Visit: ref("twice", 1, 0), Attempt: 1, State: executorv1.VisitState_VISIT_STATE_BACKING_OFF, Error: &executorv1.RunError{Reason: "BUSY", Message: "later"}}))
		s.after(0, ended(&executorv1.AttemptEnded{Visit: ref("unsure", 1, 0), Attempt: 1, State: executorv1.VisitState_VISIT_STATE_NEEDS_RECONCILIATION, Error: &executorv1.RunError{Reason: "LOST", Message: "gone"}}))
		s.after(0, started("gone", 1, 1))
		picture := s.tree.Render(Style{}, Frame{Now: s.now, Turn: -1, Width: 80, Height: 24})
		require.NotContains(t, picture, "int_1", "the interrupt is answered")
		var b strings.Builder
		show := func(when string) {
			for _, width := range []int{120, 80, 40} {
				text := s.tree.Render(Style{}, Frame{Now: s.now, Turn: -1, Width: width})
				requireFits(t, text, width)
				fmt.Fprintf(&b, "-- %s, %d columns --\n%s", when, width, text)
			}
		}
		show("before its deadline")
		s.after(second, changed(change("gone", executorv1.VisitState_VISIT_STATE_CANCELING, "", ""), change("off", executorv1.VisitState_VISIT_STATE_CANCELED, "", ""),
			change("twice", executorv1.VisitState_VISIT_STATE_CANCELED, "", "")))
		s.after(0, &executorv1.RunEvent{Event: &executorv1.RunEvent_DeadlinePassed{DeadlinePassed: &executorv1.DeadlinePassed{}}})
		show("draining")
		s.after(0, runEnded(executorv1.RunState_RUN_STATE_FAILED))
		show("at the end")
		golden(t, "states.txt", b.String()+"-- the log --\n"+strings.Join(s.log, "\n")+"\n")
	})

	t.Run("Tree/MapTakenBack", func(t *testing.T) {
		s := newStory(graph("m"))
		item := func(state executorv1.VisitState) *executorv1.RunEvent {
			return changed(&executorv1.VisitChange{Visit: ref("m", 1, 1), State: state})
		}
		s.after(0, started("m", 1, 1))
		s.after(0, item(executorv1.VisitState_VISIT_STATE_COMPLETED))
		s.after(0, changed(&executorv1.VisitChange{Visit: ref("m", 1, 0)}))
		s.after(0, started("m", 1, 1))
		s.after(0, item(executorv1.VisitState_VISIT_STATE_COMPLETED))
		require.Contains(t, s.tree.Render(Style{}, Frame{Now: s.now, Turn: -1, Width: 80}), "1 item ", "what was taken back does not count")
	})

	t.Run("Tree/PausedAndResumed", func(t *testing.T) {
		s := newStory(graph("a"))
		s.after(0, &executorv1.RunEvent{Event: &executorv1.RunEvent_RunPaused{RunPaused: &executorv1.RunPaused{Reason: "MAX_VISITS", Message: "kept"}}})
		s.after(0, &executorv1.RunEvent{Event: &executorv1.RunEvent_RunResumed{RunResumed: &executorv1.RunResumed{}}})
		require.Equal(t, []string{"⏸ paused: MAX_VISITS, kept", "▶ goes on"}, s.log)
	})

	t.Run("Tree/UnexpectedGraphs", func(t *testing.T) {
		g := graph("a b c", "a>b", "b>a", "ghost>c", "c>ghost")
		g.Edges = append(g.Edges, &graphv1.Edge{From: "c", To: "c", Kind: graphv1.EdgeKind_EDGE_KIND_BACK})
		s := newStory(g)
		s.after(0, started("born-later", 1, 1))
		got := s.tree.Render(Style{}, Frame{Now: s.now, Turn: -1})
		for _, id := range []string{"a", "b", "c", "born-later"} {
			require.Contains(t, got, " "+id+" ")
		}
		require.Empty(t, newStory(nil).tree.Render(Style{}, Frame{})[1:])
	})

	t.Run("Tree/EventsOfOtherRunsAreLeftAlone", func(t *testing.T) {
		tree := NewTree("run_1", graph("a"))
		ev := started("a", 1, 1)
		ev.RunId = "run_2"
		require.Empty(t, tree.Apply(Style{}, ev))
		require.Contains(t, tree.Render(Style{}, Frame{}), "1 to come")
	})
}
