package storetest

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

func randomCases() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"Random/AgreesWithTheModel": func(t *testing.T, f *fixture) {
			rapid.Check(t, func(rt *rapid.T) {
				m := &model{f: f, ns: ids.New("ns"), epics: map[string]*modelEpic{}, tasks: map[string]*modelTask{}, entries: map[usage.Key]modelEntry{}}
				rt.Repeat(map[string]func(*rapid.T){
					"create epic": m.createEpic, "move epic": m.moveEpic, "delete epic": m.deleteEpic,
					"create task": m.createTask, "create task again": m.createTask, "move task": m.moveTask, "move task again": m.moveTask,
					"depend": m.depend, "policy of task": m.taskPolicy, "policy of epic": m.epicPolicy, "delete task": m.deleteTask,
					"claim": m.claim, "confirm": m.confirm, "settle": m.settle, "record": m.record,
				})
				m.compare(rt)
			})
		},
	}
}

// model is the simplest implementation of the contract of accounting: it keeps everything in maps, scans all
// of it each time, and shares no rule with accounting.
type model struct {
	f       *fixture
	ns      string
	epics   map[string]*modelEpic
	tasks   map[string]*modelTask
	entries map[usage.Key]modelEntry
	// lease increases, so that a repeated claim always asks to wait longer.
	lease time.Duration
}

type modelEpic struct {
	order  int
	state  string
	policy epic.DependencyPolicy
}

type modelTask struct {
	order          int
	epic, state    string
	deps           []string
	policy         epic.DependencyPolicy
	retries, limit int
	// claims holds "claimed", "confirmed", "settled" or "released" by run.
	claims map[string]string
}

type modelEntry struct {
	epic, task string
	totals     usage.Totals
}

func sorted[T any](m map[string]T, order func(T) int) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int { return order(m[a]) - order(m[b]) })
}

func (m *model) anyEpic(t *rapid.T) string {
	all := append(sorted(m.epics, func(e *modelEpic) int { return e.order }), "ep_none")
	return rapid.SampledFrom(all).Draw(t, "epic")
}

func (m *model) anyTask(t *rapid.T) string {
	return rapid.SampledFrom(append(sorted(m.tasks, func(v *modelTask) int { return v.order }), "tk_none")).Draw(t, "task")
}

func (m *model) someTasks(t *rapid.T) []string {
	all := sorted(m.tasks, func(v *modelTask) int { return v.order })
	if len(all) == 0 {
		return nil
	}
	return rapid.SliceOfNDistinct(rapid.SampledFrom(all), 0, min(3, len(all)), rapid.ID[string]).Draw(t, "deps")
}

func run(t *rapid.T) string { return rapid.SampledFrom([]string{"r1", "r2", "r3"}).Draw(t, "run") }

func (m *model) agree(t *rapid.T, allowed bool, err error) {
	if allowed {
		require.NoError(t, err)
		return
	}
	require.Error(t, err)
}

func (m *model) createEpic(t *rapid.T) {
	if len(m.epics) >= 3 {
		t.Skip("enough epics")
	}
	policy := rapid.SampledFrom([]epic.DependencyPolicy{epic.Block, epic.Skip, epic.Fail}).Draw(t, "policy")
	e, err := m.f.CreateEpic(m.f.ctx, m.ns, accounting.Once{}, epic.Epic{DependencyPolicy: policy})
	require.NoError(t, err)
	m.epics[e.ID] = &modelEpic{order: len(m.epics) + len(m.tasks), state: "PLANNING", policy: policy}
}

func (m *model) moveEpic(t *rapid.T) {
	id := m.anyEpic(t)
	// Ends are rare, so that there is something left to do.
	to := rapid.SampledFrom([]epic.State{
		epic.Planning, epic.Active, epic.Paused, epic.Active, epic.Paused, epic.Completed, epic.Failed, epic.Canceled,
	}).Draw(t, "state")
	e := m.epics[id]
	allowed := e != nil && slices.Contains(map[string][]string{
		"PLANNING": {"ACTIVE", "COMPLETED", "CANCELED"}, "ACTIVE": {"PAUSED", "COMPLETED", "FAILED", "CANCELED"}, "PAUSED": {"ACTIVE", "CANCELED"},
	}[e.state], to.String())
	_, err := m.f.MoveEpic(m.f.ctx, m.ns, id, accounting.Change{}, to, "")
	m.agree(t, allowed, err)
	if !allowed {
		return
	}
	e.state = to.String()
	for _, v := range m.tasks {
		if v.epic == id && to == epic.Canceled {
			if slices.Contains([]string{"PENDING", "BLOCKED", "RUNNING"}, v.state) {
				v.state = "CANCELED"
			}
			v.release()
		}
	}
}

func (v *modelTask) release() {
	for run, c := range v.claims {
		if c == "claimed" || c == "confirmed" {
			v.claims[run] = "released"
		}
	}
}

func (v *modelTask) heldBy() string {
	for run, c := range v.claims {
		if c == "claimed" || c == "confirmed" {
			return run
		}
	}
	return ""
}

func (m *model) ended(v *modelTask) bool {
	return slices.Contains([]string{"COMPLETED", "FAILED", "CANCELED"}, m.epics[v.epic].state)
}

func (m *model) unmet(v *modelTask) bool {
	return slices.ContainsFunc(v.deps, func(d string) bool { return m.tasks[d].state != "COMPLETED" })
}

// ends is where the policy of a task leads that waits in vain; empty if it goes on waiting.
func (m *model) ends(v *modelTask) string {
	policy := v.policy
	if policy == 0 {
		policy = m.epics[v.epic].policy
	}
	return map[epic.DependencyPolicy]string{epic.Skip: "CANCELED", epic.Fail: "FAILED"}[policy]
}

func (m *model) inVain(v *modelTask) bool {
	return slices.ContainsFunc(v.deps, func(d string) bool { return m.tasks[d].state == "FAILED" || m.tasks[d].state == "CANCELED" })
}

// decide ends what waits in vain until nothing does any more but by its policy.
func (m *model) decide() {
	for again := true; again; {
		again = false
		for _, v := range m.tasks {
			if to := m.ends(v); v.state == "BLOCKED" && to != "" && m.inVain(v) {
				v.state, again = to, true
			}
		}
	}
}

func (m *model) taskPolicy(t *rapid.T) {
	id := m.anyTask(t)
	policy := rapid.SampledFrom([]epic.DependencyPolicy{0, epic.Block, epic.Skip, epic.Fail}).Draw(t, "policy")
	v := m.tasks[id]
	_, err := m.f.UpdateTask(m.f.ctx, m.ns, id, accounting.Change{}, epic.Task{DependencyPolicy: policy}, []string{"dependency_policy"})
	m.agree(t, v != nil, err)
	if v != nil {
		v.policy = policy
		m.decide()
	}
}

func (m *model) epicPolicy(t *rapid.T) {
	id := m.anyEpic(t)
	policy := rapid.SampledFrom([]epic.DependencyPolicy{epic.Block, epic.Skip, epic.Fail}).Draw(t, "policy")
	e := m.epics[id]
	_, err := m.f.UpdateEpic(m.f.ctx, m.ns, id, accounting.Change{}, epic.Epic{DependencyPolicy: policy}, []string{"dependency_policy"})
	m.agree(t, e != nil, err)
	if e != nil {
		e.policy = policy
		m.decide()
	}
}

// unblock looks at everything that waits for a task.
func (m *model) unblock(id string) {
	for _, v := range m.tasks {
		if slices.Contains(v.deps, id) && v.state == "BLOCKED" && !m.unmet(v) {
			v.state = "PENDING"
		}
	}
}

func (m *model) deleteEpic(t *rapid.T) {
	id := m.anyEpic(t)
	if rapid.IntRange(0, 3).Draw(t, "rarely") > 0 {
		t.Skip("not now")
	}
	allowed := m.epics[id] != nil
	for _, v := range m.tasks {
		allowed = allowed && (v.epic != id || v.state != "RUNNING")
	}
	m.agree(t, allowed, m.f.DeleteEpic(m.f.ctx, m.ns, id, ""))
	if allowed {
		delete(m.epics, id)
		maps.DeleteFunc(m.tasks, func(_ string, v *modelTask) bool { return v.epic == id })
	}
}

func (m *model) createTask(t *rapid.T) {
	if len(m.tasks) >= 10 {
		t.Skip("enough tasks")
	}
	id, deps := m.anyEpic(t), m.someTasks(t)
	limit := rapid.SampledFrom([]int{-1, 1, 2}).Draw(t, "max_retries")
	policy := rapid.SampledFrom([]epic.DependencyPolicy{0, 0, epic.Block, epic.Skip, epic.Fail}).Draw(t, "policy")
	v := &modelTask{order: len(m.epics) + len(m.tasks), epic: id, deps: deps, policy: policy, limit: max(limit, 0), state: "PENDING", claims: map[string]string{}}
	e := m.epics[id]
	allowed := e != nil && !m.ended(v)
	for _, d := range deps {
		allowed = allowed && m.tasks[d].epic == id
	}
	got, err := m.f.CreateTask(m.f.ctx, m.ns, accounting.Once{}, epic.Task{EpicID: id, DependsOn: deps, MaxRetries: int32(limit), DependencyPolicy: policy})
	m.agree(t, allowed, err)
	if !allowed {
		return
	}
	if m.unmet(v) {
		v.state = "BLOCKED"
	}
	if e.state == "PLANNING" {
		e.state = "ACTIVE"
	}
	m.tasks[got.ID] = v
	m.decide()
}

func (m *model) moveTask(t *rapid.T) {
	id := m.anyTask(t)
	to := rapid.SampledFrom([]epic.TaskState{
		epic.TaskPending, epic.TaskBlocked, epic.TaskRunning, epic.TaskRunning, epic.TaskCompleted, epic.TaskCompleted, epic.TaskFailed, epic.TaskCanceled,
	}).Draw(t, "state")
	v := m.tasks[id]
	allowed := v != nil && m.mayMove(v, to.String())
	_, err := m.f.MoveTask(m.f.ctx, m.ns, id, accounting.Change{}, to, accounting.Outcome{})
	m.agree(t, allowed, err)
	if !allowed {
		return
	}
	was := v.state
	v.state = to.String()
	switch v.state {
	case "CANCELED":
		v.release()
	case "PENDING":
		if was == "FAILED" {
			v.retries++
		}
		if m.unmet(v) {
			v.state = "BLOCKED"
		}
	}
	if v.state == "COMPLETED" {
		m.unblock(id)
	}
	m.decide()
}

func (m *model) mayMove(v *modelTask, to string) bool {
	switch v.state + " " + to {
	case "PENDING BLOCKED":
		return v.heldBy() == ""
	case "PENDING RUNNING", "PENDING COMPLETED":
		return v.heldBy() == "" && m.epics[v.epic].state == "ACTIVE"
	case "BLOCKED PENDING":
		return !m.unmet(v) && !m.ended(v)
	case "FAILED PENDING":
		return v.retries < v.limit && !m.ended(v) && (m.ends(v) == "" || !m.inVain(v))
	case "BLOCKED FAILED":
		return true
	case "RUNNING COMPLETED", "RUNNING FAILED":
		return v.heldBy() == ""
	case "PENDING CANCELED", "BLOCKED CANCELED", "RUNNING CANCELED":
		return true
	}
	return false
}

func (m *model) depend(t *rapid.T) {
	id, deps := m.anyTask(t), m.someTasks(t)
	v := m.tasks[id]
	same := v != nil && slices.Equal(v.deps, deps)
	allowed := same || v != nil && slices.Contains([]string{"PENDING", "BLOCKED", "FAILED"}, v.state) && v.heldBy() == "" && !m.cyclic(id, deps)
	for _, d := range deps {
		allowed = allowed && m.tasks[d].epic == v.epic
	}
	_, err := m.f.UpdateTask(m.f.ctx, m.ns, id, accounting.Change{}, epic.Task{DependsOn: deps}, []string{"depends_on"})
	m.agree(t, allowed, err)
	if !allowed || same {
		return
	}
	v.deps = deps
	switch {
	case v.state == "PENDING" && m.unmet(v):
		v.state = "BLOCKED"
	case v.state == "BLOCKED" && !m.unmet(v):
		v.state = "PENDING"
	}
	m.decide()
}

// cyclic follows every path; there are at most ten tasks.
func (m *model) cyclic(id string, deps []string) bool {
	for _, d := range deps {
		if d == id || m.cyclic(id, m.tasks[d].deps) {
			return true
		}
	}
	return false
}

func (m *model) deleteTask(t *rapid.T) {
	id := m.anyTask(t)
	v := m.tasks[id]
	allowed := v != nil && v.state != "RUNNING"
	m.agree(t, allowed, m.f.DeleteTask(m.f.ctx, m.ns, id, ""))
	if !allowed {
		return
	}
	delete(m.tasks, id)
	for _, d := range m.tasks {
		if i := slices.Index(d.deps, id); i >= 0 {
			d.deps = slices.Delete(slices.Clone(d.deps), i, i+1)
			if d.state == "BLOCKED" && !m.unmet(d) {
				d.state = "PENDING"
			}
		}
	}
}

func (m *model) claim(t *rapid.T) {
	id, run := m.anyTask(t), run(t)
	v := m.tasks[id]
	open := v != nil && v.state == "PENDING" && m.epics[v.epic].state == "ACTIVE"
	allowed := v != nil && (v.claims[run] == "confirmed" || v.claims[run] == "claimed" && open || v.heldBy() == "" && v.claims[run] == "" && open)
	m.lease += time.Second
	_, _, err := m.f.ClaimTask(m.f.ctx, m.ns, id, run, time.Hour+m.lease)
	m.agree(t, allowed, err)
	if allowed && v.claims[run] == "" {
		v.claims[run] = "claimed"
	}
}

func (m *model) confirm(t *rapid.T) {
	id, run := m.anyTask(t), run(t)
	v := m.tasks[id]
	allowed := v != nil && slices.Contains([]string{"claimed", "confirmed", "settled"}, v.claims[run])
	_, err := m.f.ConfirmClaim(m.f.ctx, m.ns, id, run, time.Time{})
	m.agree(t, allowed, err)
	if allowed && v.claims[run] == "claimed" {
		v.claims[run], v.state = "confirmed", "RUNNING"
	}
}

func (m *model) settle(t *rapid.T) {
	id, run := m.anyTask(t), run(t)
	to := rapid.SampledFrom([]epic.TaskState{epic.TaskCompleted, epic.TaskFailed, epic.TaskCanceled}).Draw(t, "state")
	v := m.tasks[id]
	allowed := v != nil && v.claims[run] != ""
	_, err := m.f.SettleClaim(m.f.ctx, m.ns, id, run, accounting.Settlement{State: to})
	m.agree(t, allowed, err)
	if !allowed {
		return
	}
	held := v.heldBy() == run
	v.claims[run] = "settled"
	if !held {
		return
	}
	if v.state = to.String(); v.state == "COMPLETED" {
		m.unblock(id)
	}
	m.decide()
}

func (m *model) record(t *rapid.T) {
	var batch []usage.Entry
	for range rapid.IntRange(1, 6).Draw(t, "entries") {
		u := usage.Entry{
			Key: usage.Key{
				RunID: run(t), NodeID: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "node"),
				Visit: int32(rapid.IntRange(0, 2).Draw(t, "visit")), Call: int32(rapid.IntRange(0, 2).Draw(t, "call")),
			},
			Kind:   rapid.SampledFrom([]usage.Kind{usage.Model, usage.Tool, usage.Overhead}).Draw(t, "kind"),
			TaskID: m.anyTask(t), EpicID: m.anyEpic(t),
			Model:       rapid.SampledFrom([]string{"fake-a", "mystery"}).Draw(t, "model"),
			InputTokens: int64(rapid.IntRange(0, 9).Draw(t, "in")), OutputTokens: int64(rapid.IntRange(0, 9).Draw(t, "out")),
			CachedInputTokens: int64(rapid.IntRange(0, 9).Draw(t, "cached")),
			Time:              time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		}
		if v := m.tasks[u.TaskID]; v != nil && rapid.Bool().Draw(t, "told") {
			u.EpicID = v.epic
		}
		batch = append(batch, u)
	}
	_, err := m.f.RecordUsage(m.f.ctx, m.ns, batch)
	require.NoError(t, err)
	for _, u := range batch {
		if _, booked := m.entries[u.Key]; booked {
			continue
		}
		e := modelEntry{epic: u.EpicID, task: u.TaskID, totals: usage.Totals{Tokens: u.InputTokens + u.OutputTokens}}
		if v := m.tasks[u.TaskID]; v != nil {
			e.epic = v.epic
		}
		cached := min(u.CachedInputTokens, u.InputTokens)
		switch {
		case u.Model == "fake-a":
			e.totals.NanoUSD = (u.InputTokens-cached)*1000 + cached*250 + u.OutputTokens*4000
		case u.Kind != usage.Tool || e.totals.Tokens > 0:
			e.totals.UnpricedCalls = 1
		}
		switch u.Kind {
		case usage.Tool:
			e.totals.ToolCalls = 1
		case usage.Overhead:
			e.totals.OverheadTokens, e.totals.OverheadNanoUSD, e.totals.ModelCalls = e.totals.Tokens, e.totals.NanoUSD, 1
		default:
			e.totals.ModelCalls = 1
		}
		m.entries[u.Key] = e
	}
}

func (m *model) totals(of func(modelEntry) bool) (sum usage.Totals) {
	for _, e := range m.entries {
		if of(e) {
			sum.Tokens += e.totals.Tokens
			sum.NanoUSD += e.totals.NanoUSD
			sum.UnpricedCalls += e.totals.UnpricedCalls
			sum.OverheadTokens += e.totals.OverheadTokens
			sum.OverheadNanoUSD += e.totals.OverheadNanoUSD
			sum.ModelCalls += e.totals.ModelCalls
			sum.ToolCalls += e.totals.ToolCalls
		}
	}
	return sum
}

// compare looks at everything at the end.
func (m *model) compare(t *rapid.T) {
	f := m.f
	all, err := f.Epics(f.ctx, store.EpicQuery{Namespace: m.ns, Limit: 100})
	require.NoError(t, err)
	require.Len(t, all, len(m.epics))
	for _, e := range all {
		require.Equal(t, m.epics[e.ID].state, e.State.String())
		require.Equal(t, m.totals(func(u modelEntry) bool { return u.epic == e.ID }), e.Spent)
		f.recount(t, m.ns, e.ID)
	}
	tasks, err := f.Tasks(f.ctx, store.TaskQuery{Namespace: m.ns, Limit: 100})
	require.NoError(t, err)
	require.Len(t, tasks, len(m.tasks))
	for _, v := range tasks {
		want := m.tasks[v.ID]
		require.Equal(t, fmt.Sprintln(want.epic, want.state, want.deps, want.retries), fmt.Sprintln(v.EpicID, v.State, v.DependsOn, v.RetryCount))
		require.Equal(t, m.totals(func(u modelEntry) bool { return u.task == v.ID }), v.Actual)
	}
	got, err := f.NamespaceTotals(f.ctx, m.ns)
	require.NoError(t, err)
	require.Equal(t, m.totals(func(modelEntry) bool { return true }), got)
}
