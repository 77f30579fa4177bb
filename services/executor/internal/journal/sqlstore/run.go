package sqlstore

import (
	"fmt"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// ThisRun holds for the run r that is $2 of namespace $1. While tables are empty every index looks as
	// good as any other, and PostgreSQL could stay with one that begins with the namespace. The
	// concatenation keeps it from that.
	ThisRun = ` r.run_id = $2 AND r.namespace || '' = $1`
	// SelectEvents reads events for ScanEvent.
	SelectEvents = `SELECT run_id, seq, time, kind, node_id, visit, data FROM events`
)

// statements are those that several methods, or drivers, share, rendered for a dialect.
type statements struct {
	// selectRun reads runs r for readRun. A condition on r follows.
	selectRun string
	// head is selectRun without what is large.
	head    string
	columns string
	// children joins the runs r of namespace $1 that are right below the runs b.
	children string
	// ofRoot holds for interrupts i of the run $2 in namespace $1 and of all below it.
	ofRoot string
	// pendingCommands is that of PendingCommands.
	pendingCommands string
}

func newStatements(d dbkit.Dialect) statements {
	st := statements{
		columns:         fmt.Sprintf(runColumns, LastSeq(d)),
		pendingCommands: pendingCommands(d),
		children:        d.LookUp(`runs`, `r`, `r.namespace = $1 AND r.parent_run_id = b.run_id AND r.parent_run_id <> ''`),
	}
	st.head = `SELECT ` + st.columns + ` FROM runs r` + details + ` WHERE`
	st.selectRun = `SELECT ` + st.columns + `, d.args, d.named, d.context, d.attachments, d.result, d.outputs FROM runs r` + details + ` WHERE`
	st.ofRoot = ` i.root_run_id = (SELECT r.root_run_id FROM runs r WHERE` + ThisRun + `) AND (i.root_run_id = $2 OR i.run_id IN (
		WITH RECURSIVE ` + st.below(`SELECT `+d.Text(`$2`), `run_id`) + ` SELECT run_id FROM below))`
	return st
}

// details joins what belongs to runs r.
const details = ` JOIN run_details d ON d.run_id = r.run_id LEFT JOIN run_costs k ON k.run_id = r.run_id`

// runColumns are those of runs without what is large; LastSeq is left open.
const runColumns = `r.run_id, r.namespace, r.owner_id, r.owner_incarnation, %s, r.revision, r.create_time, r.start_time, r.end_time,
	r.update_time, r.wake_time, r.cancel_time, r.input_tokens, r.cached_input_tokens, r.output_tokens, r.reasoning_tokens, r.calls,
	r.takeovers, r.doing, r.died_doing, r.machine_version, r.state, r.nodes_total, r.nodes_completed, r.nodes_failed, r.nodes_skipped,
	r.nodes_running, r.sampled, r.state_reason, r.cancel_reason, r.graph_name, r.graph_hash, r.task_id, r.user_id, r.chat_id, r.thread_id,
	r.business_key, r.parent_run_id, r.root_run_id, r.trace_parent, r.trace_state, r.graph_revision, r.deadline, r.priority,
	r.forked_from, r.schedule_id, r.epic_id, r.workflow_version, coalesce(k.cost_nano_usd, 0), coalesce(k.unpriced_calls, 0), d.labels, d.metadata, d.error`

// LastSeq is where the journal of r ends: the row tells only of the last change of the row.
func LastSeq(d dbkit.Dialect) string {
	return d.Greatest(`r.last_seq`, `coalesce((SELECT e.seq FROM events e WHERE e.run_id = r.run_id ORDER BY e.seq DESC LIMIT 1), 0)`)
}

// below is a CTE of runs: those of a select, and all below them. The columns are those of runs, run_id first.
func (s *statements) below(start string, columns ...string) string {
	names, next := "", ""
	for i, c := range columns {
		if i > 0 {
			names, next = names+", ", next+", "
		}
		names, next = names+c, next+"r."+c
	}
	return `below (` + names + `) AS (` + start + ` UNION ALL SELECT ` + next + ` FROM below b` + s.children + `)`
}

// readRun reads a row of selectRun; one that is not whole lacks what is large.
func readRun(row dbkit.Scanner, whole bool) (journal.Run, error) {
	var r journal.Run
	var labels []byte
	dst := []any{
		&r.ID, &r.Namespace, &r.Owner.ID, &r.Owner.Incarnation, &r.LastSeq, &r.Revision, dbkit.At(&r.CreateTime), dbkit.At(&r.StartTime), dbkit.At(&r.EndTime),
		dbkit.At(&r.UpdateTime), dbkit.At(&r.WakeTime), dbkit.At(&r.CancelTime), &r.Usage.InputTokens, &r.Usage.CachedInputTokens, &r.Usage.OutputTokens,
		&r.Usage.ReasoningTokens, &r.Usage.Calls, &r.Takeovers, &r.Doing, &r.DiedDoing, &r.MachineVersion, &r.State, &r.Nodes.Total, &r.Nodes.Completed,
		&r.Nodes.Failed, &r.Nodes.Skipped, &r.Nodes.Running, &r.Sampled, &r.Reason, &r.CancelReason, &r.GraphName, &r.GraphHash, &r.TaskID, &r.UserID,
		&r.ChatID, &r.ThreadID, &r.BusinessKey, &r.ParentID, &r.RootID, &r.TraceParent, &r.TraceState, &r.GraphRevision, dbkit.At(&r.Deadline), &r.Priority,
		&r.ForkedFrom, &r.ScheduleID, &r.EpicID, &r.WorkflowVersion, &r.CostNanoUSD, &r.UnpricedCalls, &labels, &r.Metadata, &r.Error,
	}
	if whole {
		dst = append(dst, &r.Args, &r.Named, &r.Context, &r.Attachments, &r.Result, &r.Outputs)
	}
	if err := row.Scan(dst...); err != nil {
		return journal.Run{}, err
	}
	r.Result = readResult(r.Result, r.Outputs)
	var err error
	r.Labels, err = journal.DecodeLabels(labels)
	return r, err
}

// ScanEvent reads a row of SelectEvents.
func ScanEvent(row dbkit.Scanner) (e journal.Event, err error) {
	err = row.Scan(&e.RunID, &e.Seq, dbkit.At(&e.Time), &e.Kind, &e.NodeID, &e.Visit, &e.Data)
	return e, err
}

func scanEvent(rows dbkit.Rows) (journal.Event, error) { return ScanEvent(rows) }
