package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// TestBackup follows the steps of docs/operations.md: a backup is made while a run waits, all is lost, and the run goes on from the backup.
func TestBackup(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	require.NoError(t, err)
	shell := func(t *testing.T, name string, args ...string) {
		t.Helper()
		out, err := exec.Command(name, args...).CombinedOutput()
		require.NoError(t, err, "%s %v: %s", name, args, out)
	}
	for _, store := range []string{"sqlite", "postgres"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			data, backup := filepath.Join(dir, "data"), filepath.Join(dir, "backup")
			require.NoError(t, os.Mkdir(data, 0o700))
			s := &suite{bin: bin, env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir}, procs: map[string]*process{}, config: filepath.Join(dir, "epigraph.yaml")}
			begin := func(url string) executorv1.ExecutorServiceClient {
				quoted, err := json.Marshal(url)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(s.config, fmt.Appendf(nil, `
telemetry: {log_level: info, log_format: json}
admin: {addr: ""}
auth: {service_token: shared-by-the-services}
grpc: {executor_addr: "127.0.0.1:0", grace: 300ms}
upstream: {registry: ""}
executor: {store: %s, postgres_url: %s, sqlite_path: %q, id: one, park_after: 1s}
`, store, quoted, filepath.Join(data, "executor.db")), 0o600))
				s.serve(t, "executor", "")
				conn, err := grpckit.Dial(s.procs["executor"].addr, grpckit.DialOptions{Token: conf.NewSecret("shared-by-the-services"), Namespace: "default"})
				require.NoError(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				return executorv1.NewExecutorServiceClient(conn)
			}
			ended(t, s)
			url := ""
			if store == "postgres" {
				url = pgtest.New(t)
			}
			x := begin(url)
			ctx := within(t)
			big, err := json.Marshal(string(make([]byte, 400<<10))) // it lies beside the database
			require.NoError(t, err)
			r, err := x.StartRun(ctx, &executorv1.StartRunRequest{Named: map[string]*graphv1.Payload{"big": {Json: big}}, Graph: &graphv1.Graph{Nodes: []*graphv1.Node{
				{Id: "wait", Actor: "sleep", Named: map[string]*graphv1.Payload{"seconds": {Json: []byte("8")}}},
				{Id: "after", Actor: "cel", Named: map[string]*graphv1.Payload{"expr": {Json: []byte(`"size(named.big)"`)}}},
			}, Edges: []*graphv1.Edge{{From: "wait", To: "after"}}}})
			require.NoError(t, err)
			state := func() executorv1.RunState {
				r, err = x.GetRun(ctx, &executorv1.GetRunRequest{RunId: r.GetId()})
				require.NoError(t, err)
				return r.GetState()
			}
			testkit.Eventually(t, func() bool { return state() == executorv1.RunState_RUN_STATE_WAITING }, patience, 20*time.Millisecond)

			if store == "postgres" {
				shell(t, "pg_dump", "--format=custom", "--file="+backup, url) // while it serves
				s.procs["executor"].kill()
				psql(t, url, "DROP SCHEMA executor CASCADE")
				url = pgtest.New(t)
				shell(t, "pg_restore", "--no-owner", "--dbname="+url, backup)
			} else {
				s.procs["executor"].stop(t)
				shell(t, "cp", "-a", data, backup)
				require.NoError(t, os.RemoveAll(data))
				shell(t, "cp", "-a", backup, data)
			}
			x = begin(url)
			testkit.Eventually(t, func() bool { return state() == executorv1.RunState_RUN_STATE_COMPLETED }, patience, 50*time.Millisecond, "the run goes on")
			require.Equal(t, fmt.Sprint(400<<10), string(r.GetResult().GetJson()))
		})
	}
}
