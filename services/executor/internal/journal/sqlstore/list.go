package sqlstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// List implements journal.Reader.
func (s *Store) List(ctx context.Context, namespace string, f journal.Filter, after page.Cursor, limit int) ([]journal.Run, error) {
	query, args := s.listRuns(namespace, f, after, limit)
	rows, err := s.db.Read.Query(ctx, query, args...)
	return dbkit.CollectPage(ctx, rows, err, func(rows dbkit.Rows) (journal.Run, error) { return readRun(rows, false) })
}

func (s *Store) listRuns(namespace string, f journal.Filter, after page.Cursor, limit int) (query string, args []any) {
	var a arguments
	tenant, last := a.add(namespace), a.add(limit)
	conds := []string{"r.namespace = " + tenant}
	keys, workflow := 0, f.Workflow
	if workflow == "" && len(f.States) > 0 {
		// The index of the workflow knows the states, that of the version does not.
		workflow, _, _ = strings.Cut(f.WorkflowVersion, "@")
	}
	for _, c := range []struct{ name, value string }{
		{"task_id", f.TaskID}, {"user_id", f.UserID}, {"chat_id", f.ChatID}, {"thread_id", f.ThreadID},
		{"business_key", f.BusinessKey}, {"parent_run_id", f.ParentID}, {"schedule_id", f.ScheduleID},
		{"epic_id", f.EpicID}, {"workflow", workflow}, {"workflow_version", f.WorkflowVersion},
	} {
		if c.value != "" {
			keys++
			// The second half lets the planner use the partial index.
			conds = append(conds, "r."+c.name+" = "+a.add(c.value)+" AND r."+c.name+" <> ''")
		}
	}
	labels := slices.Sorted(maps.Keys(f.Labels))
	labeled := keys == 0 && len(labels) > 0
	states := f.States
	// Without a key, runs are found in the order of time state by state, and so are those of a workflow
	// or an epic, which may have many. With another key, its index knows the order, and whatever the
	// planner believes about states must not lead it away from there.
	byState := keys == 1 && f.EpicID != "" || keys > 0 && keys == count(workflow, f.WorkflowVersion)
	if (keys > 0 || labeled) && len(states) > 0 && !byState {
		conds = append(conds, s.d.In("r.state + 0", a.add(numbers(states))))
		states = nil
	} else if keys == 0 && !labeled && len(states) == 0 {
		states = journal.States()
	}
	if f.Reason != "" {
		conds = append(conds, "r.state_reason = "+a.add(f.Reason))
	}
	from, place := "runs r", "r"
	if labeled {
		place = "l"
		conds[0] = "r.namespace || '' = " + tenant
		from = "run_labels l" + s.d.LookUp("runs", "r", "r.run_id = l.run_id AND "+strings.Join(conds, " AND "))
		conds = []string{"l.namespace = " + tenant + " AND l.key = " + a.add(labels[0]) + " AND l.value = " + a.add(f.Labels[labels[0]])}
		labels = labels[1:]
	}
	for i, k := range labels {
		m := fmt.Sprintf("m%d", i)
		conds = append(conds, s.d.Holds("run_labels", m, fmt.Sprintf("%[1]s.run_id = %[2]s.run_id AND %[1]s.key = %[3]s AND %[1]s.value = %[4]s", m, place, a.add(k), a.add(f.Labels[k]))))
	}
	if !after.IsZero() {
		conds = append(conds, fmt.Sprintf("(%[1]s.create_time, %[1]s.run_id) < (%[2]s, %[3]s)", place, a.add(after.CreateTime), a.add(after.ID)))
	}
	if !f.CreatedAfter.IsZero() {
		conds = append(conds, place+".create_time >= "+a.add(journal.CeilMicros(f.CreatedAfter)))
	}
	if !f.CreatedBefore.IsZero() {
		conds = append(conds, place+".create_time < "+a.add(journal.CeilMicros(f.CreatedBefore)))
	}
	found := dbkit.Merged(states, func(state string) string {
		return fmt.Sprintf("SELECT %[1]s.create_time AS create_time, %[1]s.run_id AS run_id FROM %[2]s WHERE %[3]s", place, from, strings.Join(append(conds[:len(conds):len(conds)], state), " AND "))
	}, "r", "create_time DESC, run_id DESC", last)
	if keys > 1 {
		// Which index is best depends on the values.
		a = append(slices.Clone(s.db.ByValue), a...)
	}
	return "SELECT " + s.columns + " FROM (" + found + ") p" + s.d.LookUp("runs", "r", "r.run_id = p.run_id") + details + " ORDER BY p.create_time DESC, p.run_id DESC", a
}

// count counts the texts that are not empty.
func count(texts ...string) (n int) {
	for _, s := range texts {
		if s != "" {
			n++
		}
	}
	return n
}

// arguments are those of a statement that is put together.
type arguments []any

// add returns the name of the new parameter.
func (a *arguments) add(v any) string {
	*a = append(*a, v)
	return fmt.Sprintf("$%d", len(*a))
}

// numbers are states as the database knows them.
func numbers[S ~int32](states []S) []int32 {
	out := make([]int32, len(states))
	for i, s := range states {
		out[i] = int32(s)
	}
	return out
}
