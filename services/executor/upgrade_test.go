package executor_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	_ "modernc.org/sqlite"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// makeRelease makes the databases of a release; testdata/releases/README.md says when.
var makeRelease = flag.String("release", "", "write the databases of this release, like v0.1, to testdata/releases")

// releaseRun is a run that a release leaves behind, and the state in which it does.
type releaseRun struct {
	state executorv1.RunState
	graph string
}

// deafAddr is the target of the calls that are under way when a release is killed. Nobody answers there.
const deafAddr = "127.0.0.1:18999"

// releaseRuns are the runs of a release by the name of their graph.
func releaseRuns() map[string]releaseRun {
	return map[string]releaseRun{
		"rounds": {executorv1.RunState_RUN_STATE_COMPLETED, `{"nodes": [
			{"id": "topics", "actor": "cel", "named": {"expr": "['price', 'speed', 'safety']"}},
			{"id": "notes", "actor": "template", "named": {"text": "a note on {{ args[0] }}"}, "map": {"over": "nodes.topics.result", "max_parallel": 2}},
			{"id": "draft", "actor": "template", "named": {"text": "draft {{ visit }}"}, "result_pass_down_mode": {"mode": "KEY", "key": "draft"}, "max_visits": 5},
			{"id": "review", "actor": "cel", "named": {"expr": "visit >= 3"}, "max_visits": 5},
			{"id": "publish", "actor": "template", "named": {"text": "published: {{ named.draft }}"}}],
			"edges": [{"from": "topics", "to": "notes"}, {"from": "notes", "to": "draft"}, {"from": "draft", "to": "review"},
			{"from": "review", "to": "draft", "kind": "BACK", "when": "result == false"}, {"from": "review", "to": "publish", "when": "result == true"}]}`},
		// Long enough to be kept compressed.
		"long": {executorv1.RunState_RUN_STATE_COMPLETED, `{"nodes": [{"id": "a", "actor": "template", "named": {"text": "` + strings.Repeat("long ", 2000) + `"}}]}`},
		"failed": {executorv1.RunState_RUN_STATE_FAILED, `{"nodes": [{"id": "a", "actor": "template", "named": {"text": "one"}},
			{"id": "bad", "actor": "fail", "named": {"reason": "BROKEN"}}, {"id": "c", "actor": "template", "named": {"text": "never"}}],
			"edges": [{"from": "a", "to": "bad"}, {"from": "bad", "to": "c"}]}`},
		"mixed": {executorv1.RunState_RUN_STATE_WAITING, `{"nodes": [{"id": "a", "actor": "template", "named": {"text": "one"}, "result_pass_down_mode": {"mode": "KEY", "key": "a"}},
			{"id": "list", "actor": "cel", "named": {"expr": "[1,2,3]"}},
			{"id": "each", "actor": "template", "named": {"text": "item {{ args[0] }}"}, "map": {"over": "nodes.list.result"}},
			{"id": "nap", "actor": "sleep", "named": {"duration": "95s", "value": "rested"}, "result_pass_down_mode": {"mode": "KEY", "key": "nap"}},
			{"id": "b", "actor": "template", "named": {"text": "{{ named.a }} then {{ named.nap }}"}}],
			"edges": [{"from": "a", "to": "nap"}, {"from": "list", "to": "each"}, {"from": "each", "to": "b"}, {"from": "nap", "to": "b"}]}`},
		"backoff": {executorv1.RunState_RUN_STATE_WAITING, `{"nodes": [{"id": "a", "actor": "template", "named": {"text": "one"}},
			{"id": "flaky", "actor": "fail", "named": {"attempts": 1, "type": "RETRYABLE", "value": "at last"}, "retry": {"initial_backoff": "90s", "jitter": -1}}],
			"edges": [{"from": "a", "to": "flaky"}]}`},
		"limited": {executorv1.RunState_RUN_STATE_PAUSED, `{"nodes": [{"id": "go", "actor": "template", "named": {"text": "round {{ visit }}"}, "max_visits": 3},
			{"id": "judge", "actor": "cel", "named": {"expr": "visit >= 5"}, "max_visits": 10}, {"id": "end", "actor": "template", "named": {"text": "end"}}],
			"edges": [{"from": "go", "to": "judge"}, {"from": "judge", "to": "go", "kind": "BACK", "when": "result == false"}, {"from": "judge", "to": "end", "when": "result == true"}]}`},
		"hanging": {executorv1.RunState_RUN_STATE_RUNNING, `{"nodes": [{"id": "a", "actor": "template", "named": {"text": "one"}},
			{"id": "get", "actor": "http", "named": {"url": "http://` + deafAddr + `/get"}}, {"id": "x", "actor": "sleep", "named": {"duration": "100s"}},
			{"id": "any", "actor": "template", "named": {"text": "first"}, "join": {"mode": "ANY", "losers": "CANCEL"}}],
			"edges": [{"from": "a", "to": "get"}, {"from": "a", "to": "x"}, {"from": "get", "to": "any"}, {"from": "x", "to": "any"}]}`},
		"unsafe": {executorv1.RunState_RUN_STATE_RUNNING, `{"nodes": [{"id": "a", "actor": "template", "named": {"text": "one"}},
			{"id": "pay", "actor": "http", "named": {"method": "POST", "url": "http://` + deafAddr + `/pay", "body": "{\"amount\":1}"}},
			{"id": "after", "actor": "template", "named": {"text": "done"}}],
			"edges": [{"from": "a", "to": "pay"}, {"from": "pay", "to": "after"}]}`},
		"asks":    {executorv1.RunState_RUN_STATE_WAITING, `{"nodes": [{"id": "ask", "actor": "human", "named": {"prompt": "go on?", "approve": {"amount": 7}}}]}`},
		"hears":   {executorv1.RunState_RUN_STATE_WAITING, `{"nodes": [{"id": "hear", "actor": "signal", "named": {"name": "go"}}]}`},
		"outside": {executorv1.RunState_RUN_STATE_WAITING, `{"nodes": [{"id": "build", "actor": "completion"}]}`},
		"family": {executorv1.RunState_RUN_STATE_WAITING, `{"nodes": [{"id": "spawn", "actor": "spawn", "named": {"as_result": true,
			"graph": {"name": "child", "nodes": [{"id": "nap", "actor": "sleep", "named": {"duration": "95s", "value": "grown"}}]}}}]}`},
		"grown": {executorv1.RunState_RUN_STATE_WAITING, `{"nodes": [{"id": "more", "actor": "expand", "named": {
			"graph": {"nodes": [{"id": "nap", "actor": "sleep", "named": {"duration": "95s", "value": "inner"}}]}}}]}`},
	}
}

// TestMakeRelease writes what executors of this binary leave behind when they are killed in the middle of
// their work: of both stores a database with the runs of releaseRuns, as SQL, and the token of a task that
// goes on outside.
func TestMakeRelease(t *testing.T) {
	if *makeRelease == "" {
		return // it is asked for by hand, once for each release
	}
	dir := filepath.Join("testdata/releases", *makeRelease)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	called := make(chan string, 10)
	deaf := &http.Server{Addr: deafAddr, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		called <- r.URL.Path
		select {
		case <-r.Context().Done():
		case <-t.Context().Done():
		}
	})}
	go func() { _ = deaf.ListenAndServe() }()
	t.Cleanup(func() { require.NoError(t, deaf.Close()) })
	tokens := map[string]string{}
	for _, store := range []string{"sqlite", "postgres"} {
		cfg := releaseConfig(store)
		cfg.ID = "left"
		if store == "sqlite" {
			cfg.SQLitePath = filepath.Join(t.TempDir(), "executor.db")
		} else {
			cfg.PostgresURL = conf.NewSecret(pgtest.New(t))
		}
		f := openRelease(t, cfg)
		ids := map[string]string{}
		for name, r := range releaseRuns() {
			g, err := workgraph.Decode([]byte(r.graph))
			require.NoError(t, err, name)
			g.Name = name
			pb, err := graphpb.ToProto(g)
			require.NoError(t, err)
			run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: pb, RequestId: name, Labels: map[string]string{"kept": name}})
			require.NoError(t, err, name)
			ids[name] = run.GetId()
		}
		_, err := executorv1.NewScheduleServiceClient(f.conn).CreateSchedule(t.Context(), &executorv1.CreateScheduleRequest{Schedule: &executorv1.Schedule{
			Id: "nightly", Cron: "0 3 * * *", Paused: true, Start: &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "a", Actor: "cel", Named: map[string]*graphv1.Payload{"expr": value(`"1"`)}})}}})
		require.NoError(t, err)
		for name, r := range releaseRuns() {
			f.wait(t, ids[name], r.state)
		}
		below, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{ParentRunId: ids["family"]})
		require.NoError(t, err)
		require.Len(t, below.GetRuns(), 1)
		f.wait(t, below.GetRuns()[0].GetId(), executorv1.RunState_RUN_STATE_WAITING)
		// Both calls are under way; the one to be made once has its intent.
		require.ElementsMatch(t, []string{"/get", "/pay"}, []string{<-called, <-called})
		visits, err := f.ListVisits(t.Context(), &executorv1.ListVisitsRequest{RunId: ids["outside"]})
		require.NoError(t, err)
		tokens[store] = visits.GetVisits()[0].GetWait().GetAttemptToken()
		require.NotEmpty(t, tokens[store])

		dump := dumpSQLite
		place := cfg.SQLitePath
		if store == "postgres" {
			dump, place = dumpPostgres, cfg.PostgresURL.Reveal()
		}
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		require.NoError(t, err)
		_, err = io.WriteString(z, dump(t, place))
		require.NoError(t, err)
		require.NoError(t, z.Close())
		require.NoError(t, os.WriteFile(filepath.Join(dir, store+".sql.gz"), b.Bytes(), 0o644))
	}
	text, err := json.MarshalIndent(tokens, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokens.json"), append(text, '\n'), 0o644))
}

// dumpSQLite is the whole database as SQL, as it is at one moment.
func dumpSQLite(t *testing.T, path string) string {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	strs := func(query string, args ...any) (out []string) {
		rows, err := tx.QueryContext(t.Context(), query, args...)
		require.NoError(t, err)
		defer rows.Close()
		for rows.Next() {
			var s string
			require.NoError(t, rows.Scan(&s))
			out = append(out, s)
		}
		require.NoError(t, rows.Err())
		return out
	}
	var b strings.Builder
	b.WriteString("PRAGMA foreign_keys = off;\nBEGIN;\n")
	write := func(statements []string) {
		for _, s := range statements {
			b.WriteString(s + ";\n")
		}
	}
	write(strs(`SELECT sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid`))
	for _, table := range strs(`SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'sqlite_stat1' ORDER BY rowid`) {
		var cols, values []string
		for _, c := range strs(`SELECT name FROM pragma_table_info($1) ORDER BY cid`, table) {
			cols, values = append(cols, `"`+c+`"`), append(values, `quote("`+c+`")`)
		}
		write(strs(fmt.Sprintf(`SELECT 'INSERT INTO "%s" (%s) VALUES (' || %s || ')' FROM "%s"`, table, strings.Join(cols, ", "), strings.Join(values, ` || ', ' || `), table)))
	}
	write(strs(`SELECT sql FROM sqlite_master WHERE type IN ('index', 'trigger', 'view') AND sql IS NOT NULL ORDER BY rowid`))
	b.WriteString("COMMIT;\n")
	return b.String()
}

// dumpPostgres is the executor's schema with its rows as SQL, as it is at one moment.
func dumpPostgres(t *testing.T, url string) string {
	t.Helper()
	cmd := exec.Command("pg_dump", "--schema=executor", "--inserts", "--rows-per-insert=100", "--no-owner", "--no-privileges", "--no-comments", url)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	// Commands of psql, and settings that not every version has.
	return string(regexp.MustCompile(`(?m)^(\\.*|SET (transaction_timeout|default_table_access_method).*)\n`).ReplaceAll(out, nil))
}

// TestReleasesGoOn opens what each release left behind with this binary.
func TestReleasesGoOn(t *testing.T) {
	releases, err := filepath.Glob("testdata/releases/v*")
	require.NoError(t, err)
	require.NotEmpty(t, releases)
	for _, dir := range releases {
		raw, err := os.ReadFile(filepath.Join(dir, "tokens.json"))
		require.NoError(t, err)
		var tokens map[string]string
		require.NoError(t, json.Unmarshal(raw, &tokens))
		for _, store := range []string{"sqlite", "postgres"} {
			t.Run(filepath.Base(dir)+"/"+store, func(t *testing.T) {
				cfg := releaseConfig(store)
				cfg.ID = "successor"
				dump := unzip(t, filepath.Join(dir, store+".sql.gz"))
				if store == "sqlite" {
					cfg.SQLitePath = filepath.Join(t.TempDir(), "executor.db")
					loadSQLite(t, cfg.SQLitePath, dump)
				} else {
					url := pgtest.New(t)
					loadPostgres(t, url, dump)
					cfg.PostgresURL = conf.NewSecret(url)
				}
				goOn(t, cfg, tokens[store])
			})
		}
	}
}

// TestSchemaOfALaterRelease checks that an executor neither migrates nor opens a database that a later
// release has migrated.
func TestSchemaOfALaterRelease(t *testing.T) {
	for _, store := range []string{"sqlite", "postgres"} {
		t.Run(store, func(t *testing.T) {
			cfg := releaseConfig(store)
			var later func(query string)
			if store == "sqlite" {
				cfg.SQLitePath = filepath.Join(t.TempDir(), "executor.db")
				later = func(query string) { loadSQLite(t, cfg.SQLitePath, query) }
			} else {
				url := pgtest.New(t)
				cfg.PostgresURL = conf.NewSecret(url)
				later = func(query string) { loadPostgres(t, url, "SET search_path = executor; "+query) }
			}
			from, to, err := executor.Migrate(t.Context(), cfg)
			require.NoError(t, err)
			require.Zero(t, from)
			require.Positive(t, to)
			from, again, err := executor.Migrate(t.Context(), cfg)
			require.NoError(t, err)
			require.Equal(t, []int64{to, to}, []int64{from, again}, "nothing is left to do")

			later(fmt.Sprintf(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (%d, true)`, to+1))
			tooNew := func(err error) {
				t.Helper()
				require.True(t, errs.Is(err, errs.FailedPrecondition), "got %v", err)
				require.Equal(t, dbkit.ReasonSchemaNew, errs.ReasonOf(err))
				require.ErrorContains(t, err, fmt.Sprintf("is at version %d, this binary knows only %d", to+1, to))
			}
			_, _, err = executor.Migrate(t.Context(), cfg)
			tooNew(err)
			for _, cfg.Migrate = range []bool{true, false} {
				_, err = executor.Open(t.Context(), cfg, executor.Deps{Telemetry: obs.Noop()})
				tooNew(err)
			}
		})
	}
}

func unzip(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	b, err := io.ReadAll(z)
	require.NoError(t, err)
	return string(b)
}

func loadSQLite(t *testing.T, path, dump string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), dump)
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

func loadPostgres(t *testing.T, url, dump string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	_, err = conn.PgConn().Exec(t.Context(), dump).ReadAll()
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}

func releaseConfig(store string) executor.Config {
	cfg := executor.DefaultConfig()
	cfg.Store, cfg.ScanInterval, cfg.EvictAfter = store, 50*time.Millisecond, time.Second
	cfg.Actors.HTTP.AllowPrivate = []string{"127.0.0.0/8"}
	return cfg
}

func openRelease(t *testing.T, cfg executor.Config) *fixture {
	t.Helper()
	tel := obs.Noop()
	tel.Logger = testkit.Logger(t)
	svc, err := executor.Open(t.Context(), cfg, executor.Deps{Telemetry: tel})
	require.NoError(t, err)
	server, err := grpckit.NewServer(grpckit.Options{Telemetry: tel})
	require.NoError(t, err)
	svc.Register(server)
	var buf grpckit.BufNet
	l, err := buf.Listen("executor")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	wg.Go(func() { _ = svc.Run(ctx) })
	conn, err := grpckit.Dial("executor", grpckit.DialOptions{Buf: &buf, Telemetry: tel})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		cancel()
		server.Stop()
		wg.Wait()
		require.NoError(t, svc.Close())
	})
	f := &fixture{ExecutorServiceClient: executorv1.NewExecutorServiceClient(conn), conn: conn}
	testkit.Eventually(t, func() bool {
		_, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{}, grpc.WaitForReady(true))
		return err == nil && svc.Ready(t.Context()) == nil
	})
	return f
}

// goOn opens the database and looks at what becomes of each of its runs.
func goOn(t *testing.T, cfg executor.Config, token string) {
	f := openRelease(t, cfg)
	list, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{PageSize: 100})
	require.NoError(t, err)
	id := map[string]string{}
	for _, r := range list.GetRuns() {
		id[r.GetGraphName()] = r.GetId()
	}
	completed := func(t *testing.T, name string) string {
		t.Helper()
		return string(f.wait(t, id[name], executorv1.RunState_RUN_STATE_COMPLETED).GetResult().GetJson())
	}

	t.Run("RunThatHadEndedIsAsItWas", func(t *testing.T) {
		require.Equal(t, `"published: draft 3"`, completed(t, "rounds"))
		require.Equal(t, `"`+strings.Repeat("long ", 2000)+`"`, completed(t, "long"))
		run := f.wait(t, id["failed"], executorv1.RunState_RUN_STATE_FAILED)
		require.Equal(t, "BROKEN", run.GetError().GetReason())
	})
	t.Run("HistoryIsRead", func(t *testing.T) {
		events := f.watch(t, &executorv1.WatchRunRequest{RunId: id["rounds"]})
		require.NotNil(t, events[0].GetRunStarted())
		require.EqualValues(t, workgraph.MachineVersion, events[0].GetRunStarted().GetMachineVersion())
	})
	t.Run("RepeatedRequestStartsNothing", func(t *testing.T) {
		graph, err := f.GetRunGraph(t.Context(), &executorv1.GetRunGraphRequest{RunId: id["hears"]})
		require.NoError(t, err)
		again, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: graph.GetGraph(), RequestId: "hears", Labels: map[string]string{"kept": "hears"}})
		if err == nil { // ids are kept for 72 hours only
			require.Equal(t, "hears", again.GetGraphName())
		}
	})
	t.Run("TimerThatBecameDueMeanwhile", func(t *testing.T) {
		run := f.wait(t, id["mixed"], executorv1.RunState_RUN_STATE_COMPLETED)
		require.Equal(t, `"one then rested"`, string(run.GetOutputs()["b"].GetJson()))
	})
	t.Run("BackOffThatBecameDueMeanwhile", func(t *testing.T) { require.Equal(t, `"at last"`, completed(t, "backoff")) })
	t.Run("CallThatWasUnderWayIsMadeAgainOrGivenUp", func(t *testing.T) { require.Equal(t, `"first"`, completed(t, "hanging")) })
	t.Run("ChildIsWaitedFor", func(t *testing.T) { require.Equal(t, `"grown"`, completed(t, "family")) })
	t.Run("ExpandedGraphGoesOn", func(t *testing.T) { require.Equal(t, `"inner"`, completed(t, "grown")) })
	t.Run("QuestionIsAnswered", func(t *testing.T) {
		open, err := f.ListInterrupts(t.Context(), &executorv1.ListInterruptsRequest{RunId: id["asks"]})
		require.NoError(t, err)
		require.Len(t, open.GetInterrupts(), 1)
		_, err = f.AnswerInterrupt(t.Context(), &executorv1.AnswerInterruptRequest{InterruptId: open.GetInterrupts()[0].GetId(), Decision: executorv1.Decision_DECISION_APPROVED, By: "ann"})
		require.NoError(t, err)
		require.Contains(t, completed(t, "asks"), `"APPROVED"`)
	})
	t.Run("SignalIsHeard", func(t *testing.T) {
		_, err := f.SignalRun(t.Context(), &executorv1.SignalRunRequest{RunId: id["hears"], Name: "go", Payload: value(`"now"`)})
		require.NoError(t, err)
		require.Equal(t, `"now"`, completed(t, "hears"))
	})
	t.Run("AttemptTokenIsGood", func(t *testing.T) {
		_, err := f.CompleteAttempt(t.Context(), &executorv1.CompleteAttemptRequest{AttemptToken: token,
			Result: &executorv1.CompleteAttemptRequest_Completed{Completed: &executorv1.AttemptPerformed{Values: []*graphv1.Payload{value(`"built"`)}}}})
		require.NoError(t, err)
		require.Equal(t, `"built"`, completed(t, "outside"))
	})
	t.Run("LoopAtItsLimitIsResumed", func(t *testing.T) {
		run := f.wait(t, id["limited"], executorv1.RunState_RUN_STATE_PAUSED)
		require.Equal(t, "MAX_VISITS", run.GetStateReason())
		_, err := f.ResumeRun(t.Context(), &executorv1.ResumeRunRequest{RunId: run.GetId(), Reason: "go on"})
		require.NoError(t, err)
		require.Equal(t, `"end"`, completed(t, "limited"))
	})
	t.Run("UnsafeCallThatWasUnderWayNeedsReconciliation", func(t *testing.T) {
		run := f.wait(t, id["unsafe"], executorv1.RunState_RUN_STATE_PAUSED)
		require.Equal(t, "NEEDS_RECONCILIATION", run.GetStateReason())
		_, err := f.ReconcileVisit(t.Context(), &executorv1.ReconcileVisitRequest{RunId: run.GetId(), Visit: &executorv1.VisitRef{NodeId: "pay"}, By: "auditor",
			Outcome: &executorv1.ReconcileVisitRequest_Performed{Performed: &executorv1.AttemptPerformed{Values: []*graphv1.Payload{value(`{"paid":true}`)}}}})
		require.NoError(t, err)
		_, err = f.ResumeRun(t.Context(), &executorv1.ResumeRunRequest{RunId: run.GetId()})
		require.NoError(t, err)
		require.Equal(t, `"done"`, completed(t, "unsafe"))
	})
	t.Run("ScheduleIsThere", func(t *testing.T) {
		s, err := executorv1.NewScheduleServiceClient(f.conn).GetSchedule(t.Context(), &executorv1.GetScheduleRequest{ScheduleId: "nightly"})
		require.NoError(t, err)
		require.Equal(t, "0 3 * * *", s.GetCron())
		require.True(t, s.GetPaused())
	})
}
