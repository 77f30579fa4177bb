package epic_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestTransitions(t *testing.T) {
	t.Parallel()
	t.Run("Epic/TableIsExactlyThis", func(t *testing.T) {
		t.Parallel()
		allowed := []string{
			"PLANNING ACTIVE", "PLANNING COMPLETED", "PLANNING CANCELED",
			"ACTIVE PAUSED", "ACTIVE COMPLETED", "ACTIVE FAILED", "ACTIVE CANCELED",
			"PAUSED ACTIVE", "PAUSED CANCELED",
		}
		var got []string
		for from := epic.Planning; from <= epic.Canceled; from++ {
			for to := epic.State(0); to <= epic.Canceled+1; to++ {
				e := epic.Epic{ID: "ep_1", State: from}
				err := e.Move(to, now)
				if err == nil {
					got = append(got, from.String()+" "+to.String())
					require.Equal(t, to.Ended(), !e.EndTime.IsZero())
					continue
				}
				require.Equal(t, from, e.State)
				require.Equal(t, epic.ReasonInvalidTransition, errs.ReasonOf(err))
			}
		}
		require.ElementsMatch(t, allowed, got)
	})
	t.Run("Task/TableIsExactlyThis", func(t *testing.T) {
		t.Parallel()
		allowed := []string{
			"PENDING BLOCKED", "PENDING RUNNING", "PENDING COMPLETED", "PENDING CANCELED",
			"BLOCKED PENDING", "BLOCKED FAILED", "BLOCKED CANCELED",
			"RUNNING COMPLETED", "RUNNING FAILED", "RUNNING CANCELED",
			"FAILED PENDING",
		}
		var got []string
		for from := epic.TaskPending; from <= epic.TaskCanceled; from++ {
			for to := epic.TaskState(0); to <= epic.TaskCanceled+1; to++ {
				v := epic.Task{ID: "tk_1", State: from, MaxRetries: 1}
				if v.Move(to, now) == nil {
					got = append(got, from.String()+" "+to.String())
					require.Equal(t, to.Ended(), !v.EndTime.IsZero())
				}
			}
		}
		require.ElementsMatch(t, allowed, got)
	})
	t.Run("Refusal/NamesFromToAndWhatIsAllowed", func(t *testing.T) {
		t.Parallel()
		e := epic.Epic{ID: "ep_1", State: epic.Paused}
		err := e.Move(epic.Completed, now)
		require.True(t, errs.Is(err, errs.FailedPrecondition))
		require.EqualError(t, err, "epic ep_1 cannot go from PAUSED to COMPLETED; from PAUSED it may go to: ACTIVE, CANCELED")
		bad, ok := errors.AsType[*errs.Error](err)
		require.True(t, ok)
		require.Equal(t, map[string]string{
			"from": "PAUSED", "to": "COMPLETED", "allowed": "ACTIVE, CANCELED", "hint": "from PAUSED it may go to: ACTIVE, CANCELED",
		}, bad.Meta)
		v := epic.Task{ID: "tk_1", State: epic.TaskCompleted}
		require.ErrorContains(t, v.Move(epic.TaskRunning, now), "COMPLETED is an end")
	})
	t.Run("Refusal/SaysThatItIsThereAlready", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			err  error
			want string
		}{
			{(&epic.Epic{ID: "ep_1", State: epic.Canceled}).Move(epic.Canceled, now), "epic ep_1 is CANCELED already; nothing is to be done; for more work create another epic"},
			{(&epic.Epic{ID: "ep_1", State: epic.Paused}).Move(epic.Paused, now), "epic ep_1 is PAUSED already; from PAUSED it may go to: ACTIVE, CANCELED"},
			{(&epic.Task{ID: "tk_1", State: epic.TaskCompleted}).Move(epic.TaskCompleted, now), "task tk_1 is COMPLETED already; nothing is to be done; for more work create another task"},
			{(&epic.Task{ID: "tk_1", State: epic.TaskFailed}).Move(epic.TaskFailed, now), "task tk_1 is FAILED already; from FAILED it may go to: PENDING"},
		} {
			require.EqualError(t, c.err, c.want)
			require.Equal(t, epic.ReasonInvalidTransition, errs.ReasonOf(c.err))
			require.Contains(t, c.want, errs.From(c.err).HintText())
		}
	})
	t.Run("Task/WorkSetsItsTimes", func(t *testing.T) {
		t.Parallel()
		v := epic.Task{State: epic.TaskPending, MaxRetries: 1}
		require.NoError(t, v.Move(epic.TaskRunning, now))
		require.NoError(t, v.Move(epic.TaskFailed, now.Add(time.Second)))
		require.Equal(t, now.Add(time.Second), v.EndTime)
		require.NoError(t, v.Move(epic.TaskPending, now.Add(2*time.Second)))
		require.True(t, v.EndTime.IsZero())
		require.NoError(t, v.Move(epic.TaskRunning, now.Add(3*time.Second)))
		require.Equal(t, now.Add(3*time.Second), v.StartTime)
		require.NoError(t, v.Move(epic.TaskFailed, now))
		require.Equal(t, epic.ReasonRetriesExhausted, errs.ReasonOf(v.Move(epic.TaskPending, now)))
	})
}

func TestTransitionsOfAnyTask(t *testing.T) {
	t.Parallel()
	// A generator is for one test at a time.
	anyState := func() *rapid.Generator[epic.TaskState] {
		return rapid.Map(rapid.IntRange(0, int(epic.TaskCanceled)+1), func(n int) epic.TaskState { return epic.TaskState(n) })
	}
	t.Run("Moves/FollowTheTableAndTheRetries", func(t *testing.T) {
		t.Parallel()
		states := anyState()
		rapid.Check(t, func(rt *rapid.T) {
			v := epic.Task{ID: "tk_1", State: epic.TaskPending, MaxRetries: int32(rapid.IntRange(-1, 3).Draw(rt, "max_retries"))}
			at := now
			for _, to := range rapid.SliceOfN(states, 1, 40).Draw(rt, "moves") {
				was := v
				at = at.Add(time.Second)
				retry := was.State == epic.TaskFailed && to == epic.TaskPending
				allowed := slices.Contains(was.State.Next(), to) && (!retry || was.RetryCount < was.MaxRetries)
				if err := v.Move(to, at); !allowed {
					require.Error(rt, err)
					require.Equal(rt, was, v, "a refused move changes nothing")
					continue
				}
				require.Equal(rt, to, v.State)
				require.Equal(rt, to.Ended(), v.EndTime.Equal(at))
				require.Equal(rt, retry, v.RetryCount == was.RetryCount+1)
				require.LessOrEqual(rt, v.RetryCount, max(v.MaxRetries, 0))
			}
		})
	})
	t.Run("Policies/DecideAboutBlockedTasksAlone", func(t *testing.T) {
		t.Parallel()
		states := anyState()
		policies := rapid.Map(rapid.IntRange(0, int(epic.Fail)), func(n int) epic.DependencyPolicy { return epic.DependencyPolicy(n) })
		rapid.Check(t, func(rt *rapid.T) {
			v := epic.Task{ID: "tk_1", State: states.Draw(rt, "state"), DependsOn: []string{"a", "b"}, DependencyPolicy: policies.Draw(rt, "own")}
			was, epics := v, policies.Draw(rt, "epic")
			others := map[string]epic.TaskState{"a": states.Draw(rt, "a"), "b": states.Draw(rt, "b")}
			require.NoError(rt, v.Decide(epics, others, now))
			to, ends := v.DependencyPolicy.In(epics).Ends()
			dead := epic.Dead(v.DependsOn, others)
			if was.State != epic.TaskBlocked || len(dead) == 0 || !ends {
				require.Equal(rt, was, v)
				return
			}
			require.Equal(rt, []any{to, dead[0]}, []any{v.State, v.EndedBy})
			d := epic.Dependent{State: epic.TaskBlocked, DependsOn: v.DependsOn, Policy: v.DependencyPolicy.In(epics)}
			require.True(rt, d.Decide(func(id string) bool { return others[id].Dead() }))
			require.Equal(rt, []any{v.State, v.EndedBy}, []any{d.State, d.EndedBy}, "a task read as a whole and one read in part are decided alike")
		})
	})
}

func TestEpic(t *testing.T) {
	t.Parallel()
	t.Run("Count/FollowsAnyPath", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(rt *rapid.T) {
			var e epic.Epic
			states := make([]epic.TaskState, 4) // zero is a task that is not there
			for _, step := range rapid.SliceOf(rapid.IntRange(0, 4*7-1)).Draw(rt, "steps") {
				i, to := step/7, epic.TaskState(step%7)
				e.Count(states[i], to)
				states[i] = to
			}
			var total, completed, failed int32
			for _, s := range states {
				if s != 0 {
					total++
				}
				if s == epic.TaskCompleted {
					completed++
				}
				if s == epic.TaskFailed {
					failed++
				}
			}
			require.Equal(rt, []int32{total, completed, failed}, []int32{e.TotalTasks, e.CompletedTasks, e.FailedTasks})
		})
	})
	t.Run("Claimable/AFailedTaskIsToBeMoved", func(t *testing.T) {
		t.Parallel()
		err := epic.Claimable(epic.Epic{State: epic.Active}, epic.Task{ID: "tk_1", State: epic.TaskFailed}, nil, now)
		require.Equal(t, "move it to PENDING with TransitionTask to try it again", errs.From(err).HintText())
	})
	t.Run("Etag/AnyOrThisOne", func(t *testing.T) {
		t.Parallel()
		e := epic.Epic{ID: "ep_1", Revision: 3}
		for _, ok := range []string{"", "*", `"3"`} {
			require.NoError(t, e.CheckEtag(ok))
		}
		for _, bad := range []string{"3", `"2"`, `W/"3"`} {
			require.True(t, errs.Is(e.CheckEtag(bad), errs.Conflict), bad)
		}
	})
	t.Run("Fields/AllCanBeTaken", func(t *testing.T) {
		t.Parallel()
		for _, f := range epic.Fields() {
			require.True(t, new(epic.Epic).Take(f, epic.Epic{}), f)
		}
		for _, f := range epic.TaskFields() {
			ok, err := new(epic.Task).Take(f, epic.Task{}, now)
			require.NoError(t, err)
			require.True(t, ok, f)
		}
		require.False(t, new(epic.Epic).Take("state", epic.Epic{}))
		ok, err := new(epic.Task).Take("epic_id", epic.Task{}, now)
		require.NoError(t, err)
		require.False(t, ok)
	})
	t.Run("Duration/StopsAtItsLimit", func(t *testing.T) {
		t.Parallel()
		var v epic.Task
		v.AddDuration(-time.Second)
		require.Zero(t, v.Duration)
		v.AddDuration(1<<63 - 1)
		v.AddDuration(time.Hour)
		require.Greater(t, v.Duration, time.Duration(1<<62))
	})
}

// A slow search for any path back is the reference of the cycle check.
func TestCycle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(rt, "n")
		edges := map[string][]string{}
		for i := range n {
			for j := range i {
				if rapid.Bool().Draw(rt, "edge") {
					edges[strconv.Itoa(i)] = append(edges[strconv.Itoa(i)], strconv.Itoa(j))
				}
			}
		}
		task := strconv.Itoa(rapid.IntRange(0, n-1).Draw(rt, "task"))
		deps := rapid.SliceOfDistinct(rapid.Map(rapid.IntRange(0, n-1), strconv.Itoa), rapid.ID[string]).Draw(rt, "deps")
		asked := map[string]bool{}
		var back func(at string) bool
		back = func(at string) bool { return at == task || slices.ContainsFunc(edges[at], back) }
		err := epic.CheckCycle(task, deps, func(ids []string) (map[string][]string, error) {
			require.NotEmpty(rt, ids)
			out := map[string][]string{}
			for _, id := range ids {
				out[id] = edges[id]
				require.False(rt, asked[id], "each task is asked for once")
				asked[id] = true
			}
			return out, nil
		})
		require.Equal(rt, slices.ContainsFunc(deps, back), err != nil, "%v", err)
	})
}

func TestBudgetSaysDollars(t *testing.T) {
	t.Parallel()
	for nano, want := range map[int64]string{
		0: "$0.00", 1: "$0.000000001", 800_000: "$0.0008", 10_000_000: "$0.01", 1_500_000_000: "$1.50", 12_345_678_900: "$12.3456789",
	} {
		e := &epic.Epic{ID: "ep_1", BudgetNanoUSD: &nano}
		e.Spent.NanoUSD = nano
		require.ErrorContains(t, e.CheckBudget(), "epic ep_1 has spent "+want+" of "+want)
	}
}
