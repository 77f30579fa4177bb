package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/feed"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// Scale is how much data a benchmark of figures at scale has. There are at least 2,000 tasks for each big
// epic.
type Scale struct {
	Tasks, Entries int
	// Big is how many epics have bigTasks tasks; all others have 10.
	Big int
}

// Filler is what the statements that make the data need of a driver.
type Filler struct {
	Open Open
	// Exec runs a statement in the database of the store that was opened last.
	Exec func(t testing.TB, stmt string)
	// Series is a table s of the numbers n from 0 to one less than the given.
	Series func(n int) string
	// Time is the time so many microseconds after the beginning of the data, Never one that is not set.
	Time  func(micros string) string
	Never string
	// Tags are a stored list of one tag.
	Tags string
	// Indexes drops the indexes that no key needs, and returns what makes them again: that takes less
	// time when all rows are there.
	Indexes func(t testing.TB) []string
	// After runs when all rows are there, as a database in use has long since done.
	After []string
}

const (
	// bigTasks are the tasks of a big epic.
	bigTasks = 1000
	// epicWordCount is how many words an epic and its tasks have.
	epicWordCount = 40
	vocabulary    = 30_000
	// failedEvery is of how many epics one has failed.
	failedEvery = 1000
	// days is over how many days the tasks are done.
	days = 30
)

// epics is how many epics there are.
func (s Scale) epics() int { return s.Big + (s.Tasks-s.Big*bigTasks)/10 }

func named(prefix, n string) string {
	return `'` + prefix + `' || substr(CAST(100000000 + ` + n + ` AS text), 2)`
}

func scaleEpic(n int) string { return fmt.Sprintf("ep_%08d", n) }

func scaleTask(n int) string { return fmt.Sprintf("tk_%08d", n) }

// fill writes the data in SQL: rows one by one would take hours. A task has one run, on one day, whose
// entries have nodes of their own, and the same model and actor.
func (f *Filler) fill(b testing.TB, s Scale) {
	b.Helper()
	ofTask := fmt.Sprintf(`CASE WHEN n < %[1]d THEN n / %[2]d ELSE %[3]d + (n - %[1]d) / 10 END`, s.Big*bigTasks, bigTasks, s.Big)
	per := s.Entries / s.Tasks
	day := fmt.Sprintf(`n / %d`, s.Tasks/days)
	indexes := f.Indexes(b)
	model, actor := `'model-' || (n % 5)`, `CASE n % 2 WHEN 0 THEN 'llm' ELSE 'agent' END`
	for _, stmt := range append([]string{
		`INSERT INTO epics (namespace, id, title, description, search, tags, labels, state, priority, total_tasks, completed_tasks, failed_tasks,
			result_summary, workflow_slug, user_id, created_by_node_id, create_time, update_time, end_time, revision)
		SELECT 'default', ` + named("ep_", "n") + `, 'goal ' || n, 'a goal among many', 'goal a goal among many', ` + f.Tags + `, '{}',
			CASE n % ` + fmt.Sprint(failedEvery) + ` WHEN ` + fmt.Sprint(failedEvery-1) + ` THEN 5 ELSE 2 END, 2, ` + fmt.Sprintf(`CASE WHEN n < %[1]d THEN %[2]d ELSE 10 END, CASE WHEN n < %[1]d THEN %[2]d / 2 ELSE 5 END`, s.Big, bigTasks) + `, 0,
			'', '', 'user-' || (n % 100), '', ` + f.Time(`CAST(n AS bigint) * 1000000`) + `, ` + f.Time(`CAST(n AS bigint) * 1000000`) + `, ` + f.Never + `, 1
		FROM ` + f.Series(s.epics()),
		`INSERT INTO tasks (namespace, id, epic_id, title, tags, labels, state, priority, depends_on, workflow_slug, workflow_source, run_id,
			estimated_tokens, duration_us, retry_count, max_retries, created_by_node_id, create_time, update_time, start_time, end_time, revision)
		SELECT 'default', ` + named("tk_", "n") + `, ` + named("ep_", "("+ofTask+")") + `, 'task ' || n, ` + f.Tags + `, '{}', CASE n % 2 WHEN 0 THEN 4 ELSE 1 END, 2,
			` + strings.ReplaceAll(strings.ReplaceAll(f.Tags, `"tag"`, ``), `tag`, ``) + `, 'flow-' || (n % 50), 1, '', 0, 0, 0, 3, '', ` + f.Time(`CAST(n AS bigint) * 100000`) + `, ` +
			f.Time(`CAST(n AS bigint) * 100000`) + `, ` + f.Never + `, ` + f.Never + `, 1
		FROM ` + f.Series(s.Tasks),
		`INSERT INTO task_bodies (namespace, id, description, result_summary, error_message, notes)
		SELECT 'default', ` + named("tk_", "n") + `, 'a task among many', '', '', '[]' FROM ` + f.Series(s.Tasks),
		`INSERT INTO usage_entries (namespace, run_id, source, node_id, visit, item, attempt, call, id, kind, task_id, epic_id, provider, model,
			input_tokens, cached_input_tokens, output_tokens, reasoning_tokens, cost_nano_usd, price_id, time, failed, recorded_by, principal, actor)
		SELECT 'default', ` + named("run_", "n") + `, 1, 'node-' || k, 1, 0, 1, 0, ` + named("us_", "n") + ` || '_' || k, 1, ` + named("tk_", "n") + `, ` + named("ep_", "("+ofTask+")") + `, 'openai', ` + model + `,
			1000, 0, 100, 0, n, '', ` + f.Time(day+` * CAST(86400000000 AS bigint) + n * 1000 + k`) + `, false, '', '', ` + actor + `
		FROM (SELECT t.n, k.n AS k FROM (SELECT * FROM ` + f.Series(s.Tasks) + `) t CROSS JOIN (SELECT * FROM ` + f.Series(per) + `) k) e`,
		`INSERT INTO usage_runs SELECT 'default', ` + named("ep_", "("+ofTask+")") + `, ` + named("tk_", "n") + `, ` + named("run_", "n") + `, ` + model + `, ` + actor + `, 1,
			` + fmt.Sprintf(`%[1]d, 0, 0, %[1]d * 1000, 0, %[1]d * 100, 0, CAST(n AS bigint) * %[1]d`, per) + ` FROM ` + f.Series(s.Tasks),
		`INSERT INTO usage_days SELECT 'default', false, epic_id, 20454 + day, model, actor, 1, sum(calls), 0, 0, sum(input_tokens), 0, sum(output_tokens), 0, sum(nano_usd)
			FROM (SELECT r.*, ` + day + ` AS day FROM (SELECT u.*, CAST(substr(task_id, 4) AS integer) AS n FROM usage_runs u) r) e GROUP BY epic_id, day, model, actor`,
		`INSERT INTO usage_epics SELECT 'default', epic_id, sum(calls), 0, 0, sum(input_tokens), 0, sum(output_tokens), 0, sum(nano_usd) FROM usage_runs GROUP BY epic_id`,
		`INSERT INTO usage_days SELECT 'default', true, '', day, model, actor, 1, CAST(sum(calls) AS bigint), 0, 0, CAST(sum(input_tokens) AS bigint), 0,
			CAST(sum(output_tokens) AS bigint), 0, CAST(sum(nano_usd) AS bigint) FROM usage_days GROUP BY day, model, actor`,
		`INSERT INTO usage_nodes SELECT 'default', false, epic_id, day, 'node-' || k, 1, sum(calls) / ` + fmt.Sprint(per) + `, 0, 0, sum(input_tokens) / ` + fmt.Sprint(per) +
			`, 0, sum(output_tokens) / ` + fmt.Sprint(per) + `, 0, sum(nano_usd) / ` + fmt.Sprint(per) + `
			FROM usage_days CROSS JOIN (SELECT n AS k FROM ` + f.Series(per) + `) s WHERE NOT whole GROUP BY epic_id, day, k`,
		`INSERT INTO usage_nodes SELECT 'default', true, '', day, node_id, 1, CAST(sum(calls) AS bigint), 0, 0, CAST(sum(input_tokens) AS bigint), 0,
			CAST(sum(output_tokens) AS bigint), 0, CAST(sum(nano_usd) AS bigint) FROM usage_nodes GROUP BY day, node_id`,
		`INSERT INTO namespace_totals (namespace, used_epics) SELECT 'default', count(*) FROM usage_epics`,
		// Words are the more frequent the smaller their number is.
		fmt.Sprintf(`INSERT INTO epic_words SELECT 'default', CASE k WHEN 0 THEN 'goal' ELSE 'w' || CAST(floor(x * x * x * x * %d) AS integer) END, id, 10 FROM (
				SELECT %s AS id, k, ((e.n * CAST(48271 AS bigint) + k * 69621 + e.n %% 1009 * k * 31) %% 65537) / 65537.0 AS x
				FROM (SELECT t.n, k.n AS k FROM (SELECT * FROM %s) t CROSS JOIN (SELECT * FROM %s) k) e) w
			WHERE true ORDER BY 2, 3 ON CONFLICT DO NOTHING`, vocabulary, named("ep_", "e.n"), f.Series(s.epics()), f.Series(epicWordCount)),
	}, append(indexes, f.After...)...) {
		at := time.Now()
		f.Exec(b, stmt)
		b.Logf("%6.1f s: %s", time.Since(at).Seconds(), strings.Join(strings.Fields(stmt[:min(len(stmt), 60)]), " "))
	}
}

// scaleOp is an operation that BenchScale measures; run gets the number of the call.
type scaleOp struct {
	name string
	run  func(i int) error
}

// scaleOps are the operations on the data that fill makes.
func (f *fixture) scaleOps(s Scale) []scaleOp {
	pick := func(i, most int) int { return int(uint64(i) * 7919 % uint64(most)) }
	report := func(q store.ReportQuery) func(int) error {
		q.Namespace, q.Limit = ns, 51
		return func(int) error {
			_, err := f.Report(f.ctx, q)
			return err
		}
	}
	entries := func(q store.EntryQuery) func(int) error {
		q.Namespace, q.Limit = ns, 51
		return func(int) error {
			_, err := f.Entries(f.ctx, q)
			return err
		}
	}
	search := func(query func(i int) string) func(int) error {
		return func(i int) error {
			_, err := f.SearchEpics(f.ctx, query(i), store.SearchQuery{Namespace: ns}, epic.Hit{}, 51)
			return err
		}
	}
	word := func(n int) string { return fmt.Sprint("w", n) }
	changed := 0
	next := func() int { // a pending task of an active epic
		for {
			changed++
			n := 2*pick(changed, (s.Tasks-s.Big*bigTasks)/2) + 1
			if (s.Big+n/10)%failedEvery != failedEvery-1 {
				return s.Big*bigTasks + n
			}
		}
	}
	by := func(keys ...usage.ReportKey) []usage.ReportKey { return keys }
	big, someDay := scaleEpic(0), usage.Day(20454)
	return []scaleOp{
		{"epics/list", func(int) error { _, err := f.Epics(f.ctx, store.EpicQuery{Namespace: ns, Limit: 51}); return err }},
		{"epics/list-by-state", func(int) error {
			_, err := f.Epics(f.ctx, store.EpicQuery{Namespace: ns, States: []epic.State{epic.Failed}, Limit: 51})
			return err
		}},
		{"tasks/list-by-state", func(int) error {
			_, err := f.Tasks(f.ctx, store.TaskQuery{Namespace: ns, States: []epic.TaskState{epic.TaskFailed, epic.TaskBlocked}, Limit: 51})
			return err
		}},
		{"tasks/ready", func(int) error {
			return f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
				_, err := tx.Ready(ctx, ns, big, 51)
				return err
			})
		}},
		{"feed/first-page", func(int) error {
			_, err := f.Events(f.ctx, feed.Query{Namespace: ns, Limit: 51})
			return err
		}},
		{"epics/get", func(i int) error { _, err := f.Epic(f.ctx, ns, scaleEpic(pick(i, s.epics()))); return err }},
		{"epics/search-common", search(func(int) string { return "goal w0 w1" })},
		{"epics/search-mixed", search(func(i int) string { return fmt.Sprintf("goal w1 %s %s", word(10+i%100), word(29_000-i%1000)) })},
		{"epics/search-rare", search(func(i int) string { return word(20_000+i%9000) + " " + word(25_000+i%4000) })},
		{"epics/search-16-words", search(func(i int) string {
			words := []string{"goal"}
			for n := range 15 {
				words = append(words, word(i%50+n))
			}
			return strings.Join(words, " ")
		})},
		{"tasks/list", func(int) error { _, err := f.Tasks(f.ctx, store.TaskQuery{Namespace: ns, Limit: 51}); return err }},
		{"tasks/list-of-epic", func(int) error {
			_, err := f.Tasks(f.ctx, store.TaskQuery{Namespace: ns, EpicID: big, Limit: 51})
			return err
		}},
		{"tasks/get", func(i int) error { _, err := f.Task(f.ctx, ns, scaleTask(pick(i, s.Tasks))); return err }},
		{"tasks/claim", func(int) error {
			n := next()
			_, _, err := f.ClaimTask(f.ctx, ns, scaleTask(n), fmt.Sprint("run_new_", n), time.Minute)
			return err
		}},
		{"usage/book", func(int) error {
			n := next()
			_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run_book", n, scaleTask(n), 100, 10)})
			return err
		}},
		{"entries/newest", entries(store.EntryQuery{})},
		{"entries/of-epic", entries(store.EntryQuery{EpicID: big})},
		{"entries/of-task", entries(store.EntryQuery{TaskID: scaleTask(1)})},
		{"entries/of-run", entries(store.EntryQuery{RunID: "run_00000001"})},
		{"report/model", report(store.ReportQuery{By: by(usage.ByModel)})},
		{"report/day", report(store.ReportQuery{By: by(usage.ByDay)})},
		{"report/model,day", report(store.ReportQuery{By: by(usage.ByModel, usage.ByDay)})},
		{"report/epic", report(store.ReportQuery{By: by(usage.ByEpic)})},
		{"report/of-epic/model,day", report(store.ReportQuery{EpicID: big, By: by(usage.ByModel, usage.ByDay)})},
		{"report/of-epic/task", report(store.ReportQuery{EpicID: big, By: by(usage.ByTask)})},
		{"report/of-epic/run", report(store.ReportQuery{EpicID: big, By: by(usage.ByRun)})},
		{"report/of-epic/node", report(store.ReportQuery{EpicID: big, By: by(usage.ByNode)})},
		{"report/node", report(store.ReportQuery{By: by(usage.ByNode)})},
		{"report/node-of-a-day", report(store.ReportQuery{By: by(usage.ByNode), From: &someDay, To: &someDay})},
		{"report/model-of-a-day", report(store.ReportQuery{By: by(usage.ByModel), From: &someDay, To: &someDay})},
		{"report/of-epic/node,day", report(store.ReportQuery{EpicID: big, By: by(usage.ByNode, usage.ByDay)})},
		{"report/of-task/node", report(store.ReportQuery{TaskID: scaleTask(1), By: by(usage.ByNode)})},
		{"report/of-run/node", report(store.ReportQuery{RunID: "run_00000001", By: by(usage.ByNode)})},
	}
}

// BenchScale reports how long lists, searches, changes and reports take among many epics, tasks and
// entries: the median, and what 99 of 100 do not exceed. Of each operation the benchmark must ask for
// at least 100.
func BenchScale(b *testing.B, filler Filler, s Scale) {
	f := newFixture(b, filler.Open)
	filler.fill(b, s)
	for _, op := range f.scaleOps(s) {
		b.Run(op.name, func(b *testing.B) {
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				at := time.Now()
				err := op.run(i)
				took = append(took, time.Since(at))
				require.NoError(b, err)
			}
			slices.Sort(took)
			for _, p := range []int{50, 99} {
				b.ReportMetric(float64(took[len(took)*p/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", p))
			}
		})
	}
}

// BenchReservation makes, in turn, a commit that does nothing else than change one row, a reservation of
// one call, and one of a batch as executors that are busy make it. The figures are medians, so that they
// stand beside each other however busy the machine is: what a reservation takes longer than the bare
// commit that the executor makes anyway is its price.
func BenchReservation(b *testing.B, open Open) {
	const batch = 64
	f := newFixture(b, open)
	v := f.task(b, f.epic(b, epic.Epic{BudgetTokens: ptr(int64(1 << 60))}).ID)
	_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", 0, "", 10, 2)})
	require.NoError(b, err)
	n := 0
	reserve := func(size int) func() error {
		return func() error {
			calls := make([]accounting.Reservation, size)
			for i := range calls {
				calls[i] = reservation("run", n, v.ID, 100, 10)
				n++
			}
			_, err := f.Reserve(f.ctx, ns, ledgerLease, calls)
			return err
		}
	}
	steps := []func() error{
		func() error {
			return f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
				all, err := tx.LockNamespaceTotals(ctx, ns)
				if err != nil {
					return err
				}
				all.Tokens++
				return tx.PutNamespaceTotals(ctx, ns, all)
			})
		},
		reserve(1), reserve(batch),
	}
	took := make([][]time.Duration, len(steps))
	for b.Loop() {
		for i, step := range steps {
			at := time.Now()
			require.NoError(b, step())
			took[i] = append(took[i], time.Since(at))
		}
	}
	median := func(i int) float64 {
		slices.Sort(took[i])
		return float64(took[i][len(took[i])/2].Nanoseconds())
	}
	b.ReportMetric(median(0), "ns/bare-commit")
	b.ReportMetric(median(1), "ns/reservation-alone")
	b.ReportMetric(median(2)/batch, "ns/reservation-of-64")
	b.ReportMetric(median(1)/median(0), "alone/bare")
	b.ReportMetric(median(2)/batch/median(0), "of-64/bare")
}
