package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/obs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	planv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/plan/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
)

// requireFits fails if a line is wider than most columns and could have been broken.
func requireFits(t *testing.T, text string, most int) {
	t.Helper()
	for l := range strings.Lines(text) {
		l = Plain(strings.TrimSuffix(l, "\n"))
		if words := strings.TrimSpace(l); Columns(l) > most && strings.ContainsRune(words[:wordEnd(words)], ' ') == strings.ContainsRune(words, ' ') {
			continue // one word, or what has to be typed
		}
		require.LessOrEqual(t, Columns(l), most, "%q of\n%s", l, text)
	}
}

func TestNarrow(t *testing.T) {
	t.Parallel()
	runs := [][]string{
		{"run_01KANV4T6Y2J8E5W3Q9RZC7DBX", "completed", "release notes", "3/3", "2026-11-22 15:36:45", "1.2s", "$0.0123", "task_01KANV4T6Y2J8E5W3Q9RZC7DBX", ""},
		{"run_01KANV4T6Y2J8E5W3Q9RZC7DBY", "paused NEEDS_RECONCILIATION", "", "1/3", "2026-11-22 15:36:45", "", "", "", "team=books stage=test"},
	}
	headings := []string{"RUN", "STATE", "GRAPH", "NODES", "CREATED", "TOOK", "COST", "TASK", "LABELS"}
	visits := [][]string{
		{"write", "1", "failed", "llm", "3", "2.1s", "MODEL_CALL_FAILED: the model at https://models.example answered 503 three times in a row"},
		{"日本語", "12", "completed", "cel", "1", "1ms", "the result of this node is a text that is as long as results are"},
	}
	visitHeadings := []string{"NODE", "VISIT", "STATE", "ACTOR", "TRIES", "TOOK", "RESULT"}
	var b strings.Builder
	for _, width := range []int{100, 60, 40} {
		s := Style{Width: width}
		fmt.Fprintf(&b, "== %d columns ==\n", width)
		for _, c := range []struct {
			name, text string
		}{
			{"runs", Table(s, headings, runs)},
			{"visits", Table(s, visitHeadings, visits)},
			{"plan", Plan(s, &plannerv1.ParsePlanResponse{
				Dialect: "numbered", Hash: "0123456789abcdef",
				Graph: &planv1.ProblemGraph{
					Problems: []*planv1.Problem{{Id: "prepare", Request: "Prepare everything that is needed for the release"}, {Id: "notes", Request: "Write the notes of the release, in English and in German"}},
					Edges:    []*planv1.ProblemEdge{{From: "prepare", To: "notes"}},
				},
				Repairs: []*planv1.Repair{{Code: "FENCE_REMOVED", Message: "left out the fence around the plan", Applied: true}},
			})},
			{"diagnostics", Diagnostics(s, "plan.txt", strings.Repeat("some words ", 20)+"A -> B -> A", []*planv1.Diagnostic{
				{Code: "CYCLE", Severity: planv1.Severity_SEVERITY_ERROR, Line: 1, Column: 231, Element: "A", Message: "these wait for each other, so that none can ever begin: A, B", Hint: "take one of the dependencies out: `A -> B` or `B -> A`"},
			})},
			{"explain", s.Fit("- backing off write: MODEL_CALL_FAILED at the last try, and the next one is at 15:40\n    `epigraph runs cancel run_01KANV4T6Y2J8E5W3Q9RZC7DBX` ends it\n")},
			{"error", s.Said("  nodes[3].when [EXPR_INVALID]:", "column 71: nothing is called \"foo\" here; there are args and named\n"+strings.Repeat("x", 66)+" && foo > 1\n"+strings.Repeat(" ", 70)+"^", "      ") + "\n"},
		} {
			requireFits(t, c.text, width)
			fmt.Fprintf(&b, "-- %s --\n%s", c.name, c.text)
		}
		story := newStory(graph("prepare collect-the-changes translate publish", "prepare>collect-the-changes", "collect-the-changes>translate", "translate>publish"))
		story.after(0, completed("prepare", 1)).after(0, started("collect-the-changes", 1, 1))
		story.after(time.Second, ended(&executorv1.AttemptEnded{
			Visit: ref("collect-the-changes", 1, 0), Attempt: 1, State: executorv1.VisitState_VISIT_STATE_FAILED, Error: &executorv1.RunError{Reason: "HTTP_FAILED", Message: "the server answered 404"},
		}))
		tree := story.tree.Render(s, Frame{Now: story.now, Turn: -1, Width: width})
		requireFits(t, tree, width)
		at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
		fall := Waterfall(s, []obs.Span{
			{TraceID: "0123456789abcdef0123456789abcdef", SpanID: "1", Service: "epigraph-gateway", Name: "epigraph.executor.v1.ExecutorService/StartRun", Start: at(0), End: at(10)},
			{SpanID: "2", ParentID: "1", Service: "epigraph-executor", Name: "invoke llm", Start: at(2), End: at(90)},
		}, width)
		requireFits(t, fall, width)
		fmt.Fprintf(&b, "-- tree --\n%s-- trace --\n%s", tree, fall)
	}
	golden(t, "narrow.txt", b.String())

	t.Run("Fit/KeepsWhatIsToBeCopiedWhole", func(t *testing.T) {
		t.Parallel()
		s := Style{Width: 20}
		require.Equal(t, "type this:\n  `epigraph runs resume run_1`\n  and wait", s.Fit("type this: `epigraph runs resume run_1` and wait"))
		require.Equal(t, "short", s.Fit("short"))
		require.Equal(t, "  aaaaaaaa bbbbbbbb\n    cccc", s.Fit("  aaaaaaaa bbbbbbbb cccc"))
		require.Equal(t, "\x1b[31maaaaaaaaaa\x1b[0m \x1b[31mbbbbb\x1b[0m\n  ccccc", s.Fit("\x1b[31maaaaaaaaaa\x1b[0m \x1b[31mbbbbb\x1b[0m ccccc"))
		require.Equal(t, "one ` alone is a\n  word like others", s.Fit("one ` alone is a word like others"))
	})
	t.Run("Command/GoesOnBehindABackslash", func(t *testing.T) {
		t.Parallel()
		s := Style{Width: 24}
		require.Equal(t, "  epigraph run", s.Command("epigraph run", "  "))
		require.Equal(t, "  epigraph run a.txt \\\n    --with 'x=a b c' \\\n    --detach", s.Command("epigraph run a.txt --with 'x=a b c' --detach", "  "))
		require.Equal(t, "  # change what follows\n  epigraph graph > g.txt", s.Command("epigraph graph > g.txt   # change what follows", "  "))
		require.Equal(t, "Some words that are not\none line.\n\n  epigraph run a.txt \\\n    --detach", s.Prose("Some words that are not one line.\n\n    epigraph run a.txt --detach"))
		require.Equal(t, "a long line of words\n\n  as it is", Style{}.Prose("a long line of\nwords\n\n    as it is"))
	})
	t.Run("Shorten/BetweenWords", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "failed in the …", shorten("failed in the morning", 16))
		require.Equal(t, "failed in the morning", shorten("failed in the morning", 21))
		require.Equal(t, "\x1b[31mfailed in the\x1b[0m …", shorten("\x1b[31mfailed in the morning\x1b[0m", 16))
		require.Equal(t, "onewordthatislo…", shorten("onewordthatislong", 16))
		require.Equal(t, "as long as…", OneLine("as long as sentences are", 14))
		require.Equal(t, "as sentences…", OneLine("as sentences are", 13))
	})
	t.Run("Tree/TheLastPictureLeavesNothingOut", func(t *testing.T) {
		t.Parallel()
		story := newStory(graph("collect-all-the-changes-of-a-release"))
		story.after(0, ended(&executorv1.AttemptEnded{Visit: ref("collect-all-the-changes-of-a-release", 1, 0), Attempt: 1, State: executorv1.VisitState_VISIT_STATE_FAILED,
			Error: &executorv1.RunError{Reason: "HTTP_FAILED", Message: "the server answered 404"}}))
		require.Equal(t, "✗ collect-all-the-changes-of-a-release\n    failed  HTTP_FAILED: the server\n    answered 404\n1 failed\n", story.tree.Render(Style{}, Frame{Now: story.now, Turn: -1, Width: 40}))
		require.Equal(t, "✗ collect-all-the…  failed …\n1 failed\n", story.tree.Render(Style{}, Frame{Now: story.now, Turn: -1, Width: 40, Height: 10}))
	})
	t.Run("Message/LeavesThePictureOut", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "column 1: no and more", Message("column 1: no\nfoo > 1\n^\nand more"))
		require.Equal(t, "it: column 1: no\n  foo > 1\n  ^\n  and more", Style{}.Said("it:", "column 1: no\nfoo > 1\n^\nand\nmore", "  "))
		requireSafe(t, Style{Width: 10}.Said("it:", hostile, "  "), "\n")
	})
	t.Run("Any/Width", func(t *testing.T) {
		t.Parallel()
		for width := range 60 {
			s := Style{Width: width}
			_ = s.Paragraph(hostile, "    ") + s.Prose("a b\n\n   c 'd e' f") + s.Command("a 'b c' d # e", "  ") + shorten(hostile, width)
			_ = Table(s, headings, runs) + s.Fit(hostile) + s.Said(hostile, hostile+"\nabc\n  ^", "   ")
			_ = Diagnostics(s, "x", "some text", []*planv1.Diagnostic{{Line: 1, Column: 6, Message: "m"}})
			_ = Waterfall(s, []obs.Span{{SpanID: "1", Name: "n"}}, width)
		}
	})
}
