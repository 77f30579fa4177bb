package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/plantest"
)

func TestReader(t *testing.T) {
	for _, name := range plantest.Notations() {
		r, err := plantest.Render(layered(40), name)
		if errors.Is(err, plantest.ErrCannotExpress) {
			continue
		}
		require.NoError(t, err)
		t.Run(name+"/GrowsAndAgreesWithParse", func(t *testing.T) {
			rd := plan.NewReader()
			last, early := plan.Graph{}, 0
			for i := 0; i < len(r.Text); i += 7 {
				n, err := rd.Write([]byte(r.Text[i:min(i+7, len(r.Text))]))
				require.NoError(t, err)
				require.Positive(t, n)
				g := rd.Ready()
				require.GreaterOrEqual(t, len(g.Problems), len(last.Problems))
				for k, p := range last.Problems {
					require.Equal(t, p.ID, g.Problems[k].ID)
				}
				if len(g.Problems) > 0 && early == 0 {
					early = i
				}
				last = g
			}
			res := rd.Close()
			require.Equal(t, plan.Parse(r.Text), res)
			for k, p := range last.Problems {
				require.Equal(t, p.ID, res.Graph.Problems[k].ID)
			}
			switch name {
			case "task_list", "command_tasks", "nested_calls", "evidence", "numbered_calls", "assignments", "call_log", "xml_functions":
				require.Greater(t, len(last.Problems), 30)
				require.Less(t, early, len(r.Text)/2)
			}
		})
	}
	t.Run("Closed/ATaskNeedNotWaitForTheNext", func(t *testing.T) {
		for text, want := range map[string]string{
			"[\n{\"id\": \"a\", \"request\": \"x\", \"needs\": []},\n":                                      "a",
			"{\"tasks\": [\n{\"id\": \"a\", \"request\": \"x\", \"needs\": []},\n":                          "a",
			"[\n{\"id\": \"a\", \"request\": \"}, {\", \"needs\": []},\n":                                   "a",
			"[\n{\"id\": \"a\", \"request\": \"x\", \"needs\": [],\n":                                       "",
			"[\n{\"id\": \"a\", \"request\": \"x\", \"needs\": [], \"args\": {\"of\": [\n{\"y\": 1},\n":     "",
			"[\n{\"id\": \"a\", \"request\": \"x\", \"needs\": []},\n{\"id\": \"b\", \"request\": \"y\",\n": "a",
		} {
			rd := plan.NewReader()
			_, err := rd.Write([]byte(text))
			require.NoError(t, err)
			require.True(t, rd.Due())
			require.Equal(t, want, ids(rd.Ready()), text)
			require.False(t, rd.Due())
		}
	})
	t.Run("SmallPieces/AreNotReadOneByOne", func(t *testing.T) {
		rd := plan.NewReader()
		write := func(s string) {
			_, err := rd.Write([]byte(s))
			require.NoError(t, err)
		}
		write("1. search(\"" + strings.Repeat("a", 3000) + "\")\n")
		require.True(t, rd.Due())
		rd.Ready()
		read := 0
		for range 6000 {
			write("\n")
			if rd.Due() {
				rd.Ready()
				read++
			}
		}
		require.Zero(t, read, "nothing was said")
		for range 6000 {
			write("a\n")
			if rd.Due() {
				rd.Ready()
				read++
			}
		}
		require.LessOrEqual(t, read, 12_000/64)
		require.NotZero(t, read)
	})
	t.Run("TakenBack/IsReported", func(t *testing.T) {
		rd := plan.NewReader()
		write := func(s string) {
			_, err := rd.Write([]byte(s))
			require.NoError(t, err)
		}
		write("1. search(\"a\")\n2. math(\"$1\")\n3. math(\"$2\")\n")
		require.Equal(t, "1 2", ids(rd.Ready()))
		write("Better so:\n{\"task_nodes\": [{\"task\": \"x\"}], \"task_links\": []}\n")
		res := rd.Close()
		require.Equal(t, "tool_graph", res.Dialect)
		require.Equal(t, "1", find(res.Diagnostics, plan.Retracted).Element)
	})
	t.Run("TooLong/IsBounded", func(t *testing.T) {
		rd := plan.NewReader(plan.WithLimits(plan.Limits{MaxBytes: 64}))
		for range 1000 {
			_, err := rd.Write([]byte("[{\"id\": 1, \"deps\": []},"))
			require.NoError(t, err)
		}
		require.Equal(t, plan.LimitReached, find(rd.Close().Diagnostics, plan.LimitReached).Code)
	})
}
