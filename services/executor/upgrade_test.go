package executor_test

import (
	"compress/gzip"
	"context"
	"database/sql"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
)

// The databases in testdata/releases were left by executors of earlier releases that were killed in the middle of their work: of
// each release the same runs, on both stores, as SQL.
func TestRunsOfEarlierReleasesGoOn(t *testing.T) {
	releases, err := filepath.Glob("testdata/releases/*")
	require.NoError(t, err)
	require.NotEmpty(t, releases)
	for _, dir := range releases {
		for _, store := range []string{"sqlite", "postgres"} {
			t.Run(filepath.Base(dir)+"/"+store, func(t *testing.T) {
				cfg := executor.DefaultConfig()
				cfg.Store, cfg.ID, cfg.ScanInterval = store, "successor", 50*time.Millisecond
				cfg.Actors.HTTP.AllowPrivate = []string{"127.0.0.0/8"}
				dump := unzip(t, filepath.Join(dir, store+".sql.gz"))
				if store == "sqlite" {
					cfg.SQLitePath = filepath.Join(t.TempDir(), "executor.db")
					loadSQLite(t, cfg.SQLitePath, dump)
				} else {
					url := pgtest.New(t)
					loadPostgres(t, url, dump)
					cfg.PostgresURL = conf.NewSecret(url)
				}
				goOn(t, cfg)
			})
		}
	}
}

// Executors of the first release would take runs that wait without an owner for lost ones.
func TestMigrateWaitsForTheEndOfTheFirstRelease(t *testing.T) {
	url := pgtest.New(t)
	loadPostgres(t, url, unzip(t, "testdata/releases/v0.1/postgres.sql.gz"))
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	beat := func(age string) {
		_, err := conn.Exec(t.Context(), `UPDATE executor.executors SET heartbeat = now() - $1::interval`, age)
		require.NoError(t, err)
	}
	cfg := executor.DefaultConfig()
	cfg.Store, cfg.PostgresURL = "postgres", conf.NewSecret(url)

	beat("1 s")
	_, _, err = executor.Migrate(t.Context(), cfg)
	require.True(t, errs.Is(err, errs.FailedPrecondition), "got %v", err)
	require.Equal(t, dbkit.ReasonMigrationRefused, errs.ReasonOf(err))
	require.ErrorContains(t, err, "executors of an earlier release are running: dev")
	var version int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT max(version_id) FROM executor.goose_db_version`).Scan(&version))
	require.Equal(t, 1, version)

	beat("1 hour")
	from, to, err := executor.Migrate(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, int64(1), from)
	require.Greater(t, to, from)
	// What the old binary says at its first statement about runs.
	_, err = conn.Exec(t.Context(), `UPDATE executor.runs SET cancel_state = 1`)
	require.ErrorContains(t, err, "cancel_state")
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

// goOn opens the database and looks at what becomes of each of its runs.
func goOn(t *testing.T, cfg executor.Config) {
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
	f := &fixture{ExecutorServiceClient: executorv1.NewExecutorServiceClient(conn)}
	list, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{})
	require.NoError(t, err)
	id := map[string]string{}
	for _, r := range list.GetRuns() {
		id[r.GetGraphName()] = r.GetId()
	}

	t.Run("RunThatHadEndedIsAsItWas", func(t *testing.T) {
		run := f.wait(t, id["rounds"], executorv1.RunState_RUN_STATE_COMPLETED)
		require.Equal(t, `"published: draft 3"`, string(run.GetOutputs()["publish"].GetJson()))
		run = f.wait(t, id["failed"], executorv1.RunState_RUN_STATE_FAILED)
		require.Equal(t, "BROKEN", run.GetError().GetReason())
	})
	t.Run("TimerThatBecameDueMeanwhile", func(t *testing.T) {
		run := f.wait(t, id["mixed"], executorv1.RunState_RUN_STATE_COMPLETED)
		require.Equal(t, `"one then rested"`, string(run.GetOutputs()["b"].GetJson()))
	})
	t.Run("BackOffThatBecameDueMeanwhile", func(t *testing.T) {
		run := f.wait(t, id["backoff"], executorv1.RunState_RUN_STATE_COMPLETED)
		require.Equal(t, `"at last"`, string(run.GetResult().GetJson()))
	})
	t.Run("CallThatWasUnderWayIsMadeAgainOrGivenUp", func(t *testing.T) {
		f.wait(t, id["hanging"], executorv1.RunState_RUN_STATE_COMPLETED)
	})
	t.Run("LoopAtItsLimitIsResumed", func(t *testing.T) {
		run := f.wait(t, id["limited"], executorv1.RunState_RUN_STATE_PAUSED)
		require.Equal(t, "MAX_VISITS", run.GetStateReason())
		_, err := f.ResumeRun(t.Context(), &executorv1.ResumeRunRequest{RunId: run.GetId(), Reason: "go on"})
		require.NoError(t, err)
		f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
	})
	t.Run("UnsafeCallThatWasUnderWayNeedsReconciliation", func(t *testing.T) {
		run := f.wait(t, id["unsafe"], executorv1.RunState_RUN_STATE_PAUSED)
		require.Equal(t, "NEEDS_RECONCILIATION", run.GetStateReason())
		_, err := f.ReconcileVisit(t.Context(), &executorv1.ReconcileVisitRequest{RunId: run.GetId(), Visit: &executorv1.VisitRef{NodeId: "pay"}, By: "auditor",
			Outcome: &executorv1.ReconcileVisitRequest_Performed{Performed: &executorv1.CallPerformed{Values: []*graphv1.Payload{value(`{"paid":true}`)}}}})
		require.NoError(t, err)
		_, err = f.ResumeRun(t.Context(), &executorv1.ResumeRunRequest{RunId: run.GetId()})
		require.NoError(t, err)
		run = f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
		require.Equal(t, `"done"`, string(run.GetResult().GetJson()))
	})
}
