package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// shell runs a command that must succeed.
func shell(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
}

// TestBackup follows the steps of docs/operations.md: a backup is made while a run waits, all is lost, and
// the run goes on from the backup.
func TestBackup(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	require.NoError(t, err)
	for _, store := range []string{"sqlite", "postgres"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			data, backup := filepath.Join(dir, "data"), filepath.Join(dir, "backup")
			require.NoError(t, os.Mkdir(data, 0o700))
			// On SQLite large values lie beside the file anyway.
			blobs, values, savedValues := "", filepath.Join(dir, "values"), filepath.Join(dir, "saved-values")
			if store == "postgres" {
				blobs = "file://" + values
				require.NoError(t, os.Mkdir(values, 0o700))
			}
			s := &suite{bin: bin, env: environment(dir), procs: map[string]*process{}, config: filepath.Join(dir, "epigraph.yaml")}
			begin := func(url string) executorv1.ExecutorServiceClient {
				quoted, err := json.Marshal(url)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(s.config, fmt.Appendf(nil, `
telemetry: {log_level: info, log_format: json}
admin: {addr: ""}
auth: {service_token: shared-by-the-services}
grpc: {executor_addr: "127.0.0.1:0", grace: 300ms}
upstream: {registry: ""}
executor: {store: %s, postgres_url: %s, sqlite_path: %q, blobs: %q, id: one, evict_after: 1s}
`, store, quoted, filepath.Join(data, "executor.db"), blobs), 0o600))
				s.serve(t, "executor", "")
				conn := s.dial(t, "executor")
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
			testkit.Within(t, timeout, 20*time.Millisecond, func() bool { return state() == executorv1.RunState_RUN_STATE_WAITING })

			if store == "postgres" {
				shell(t, "pg_dump", "--format=custom", "--file="+backup, url) // while it serves
				shell(t, "cp", "-a", values, savedValues)
				stored, err := filepath.Glob(filepath.Join(savedValues, "default", "*"))
				require.NoError(t, err)
				require.NotEmpty(t, stored, "the large value lies in the store of its own")
				s.procs["executor"].kill()
				psql(t, url, "DROP SCHEMA executor CASCADE")
				require.NoError(t, os.RemoveAll(values))
				shell(t, "cp", "-a", savedValues, values)
				url = pgtest.New(t)
				shell(t, "pg_restore", "--no-owner", "--dbname="+url, backup)
			} else {
				s.procs["executor"].stop(t)
				shell(t, "cp", "-a", data, backup)
				require.NoError(t, os.RemoveAll(data))
				shell(t, "cp", "-a", backup, data)
			}
			x = begin(url)
			testkit.Within(t, timeout, 50*time.Millisecond, func() bool { return state() == executorv1.RunState_RUN_STATE_COMPLETED }, "the run goes on")
			require.Equal(t, fmt.Sprint(400<<10), string(r.GetResult().GetJson()))
		})
	}
}

// TestBackupOfDev loses the directory of development mode, and puts its copy in the place.
func TestBackupOfDev(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	require.NoError(t, err)
	dir := t.TempDir()
	data, backup := filepath.Join(dir, "data"), filepath.Join(dir, "backup")
	begin := func() (*suite, *process) {
		cmd := exec.Command(bin, "dev", "--data="+data, "--set=gateway.addr=127.0.0.1:0", "--set=executor.evict_after=1s", "--grpc=127.0.0.1:0")
		cmd.Env = []string{"HOME=" + dir, "EPIGRAPH_EXECUTOR_DRAIN=1s"}
		p := launch(t, cmd)
		t.Cleanup(p.kill)
		return devReady(t, p), p
	}
	stop := func(p *process) {
		require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
		require.Zero(t, p.exitCode(t))
	}
	s, p := begin()
	printed := devKey.FindString(p.output())
	require.NotEmpty(t, printed)
	var epic, task struct{ ID, Title string }
	s.ask(t, request{path: "/v1/epics", key: printed, body: map[string]any{"title": "kept"}}, &epic)
	s.ask(t, request{path: "/v1/tasks", key: printed, body: map[string]any{"epicId": epic.ID, "title": "kept too"}}, &task)
	var r run
	s.ask(t, request{path: "/v1/runs", key: printed, body: map[string]any{"taskId": task.ID, "named": map[string]any{"big": strings.Repeat("x", 400<<10)},
		"graph": map[string]any{"nodes": []any{
			map[string]any{"id": "wait", "actor": "sleep", "named": map[string]any{"seconds": 8}},
			map[string]any{"id": "after", "actor": "cel", "named": map[string]any{"expr": "size(named.big)"}},
		}, "edges": []any{map[string]any{"from": "wait", "to": "after"}}}}}, &r)
	testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
		s.ask(t, request{path: "/v1/runs/" + r.ID, key: printed}, &r)
		return r.State == "RUN_STATE_WAITING"
	})
	stop(p)
	shell(t, "cp", "-a", data, backup)
	require.NoError(t, os.RemoveAll(data))
	shell(t, "cp", "-a", backup, data)

	s, p = begin()
	require.Equal(t, printed, devKey.FindString(p.output()), "the key is that of before")
	s.ask(t, request{path: "/v1/epics/" + epic.ID, key: printed}, &epic)
	require.Equal(t, "kept", epic.Title)
	testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
		s.ask(t, request{path: "/v1/runs/" + r.ID, key: printed}, &r)
		return r.ended()
	})
	require.Equal(t, "RUN_STATE_COMPLETED", r.State, "%+v", r.Error)
	require.JSONEq(t, fmt.Sprint(400<<10), string(r.Result))
	var after struct{ State, Title string }
	testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
		s.ask(t, request{path: "/v1/tasks/" + task.ID, key: printed}, &after)
		return after.State == "TASK_STATE_COMPLETED"
	}, "the registry is told the end of the run")
	require.Equal(t, "kept too", after.Title)
	stop(p)
}

// TestBackupOfTheRegistry loses the registry's data, and restores it from the backup that docs/operations.md
// describes.
func TestBackupOfTheRegistry(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	require.NoError(t, err)
	for _, store := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			data, backup := filepath.Join(dir, "data"), filepath.Join(dir, "backup")
			require.NoError(t, os.Mkdir(data, 0o700))
			s := &suite{bin: bin, env: environment(dir), procs: map[string]*process{}, config: filepath.Join(dir, "epigraph.yaml")}
			begin := func(url string) registryv1.RegistryServiceClient {
				quoted, err := json.Marshal(url)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(s.config, fmt.Appendf(nil, `
telemetry: {log_level: info, log_format: json}
admin: {addr: ""}
auth: {service_token: shared-by-the-services}
grpc: {registry_addr: "127.0.0.1:0", grace: 300ms}
registry: {store: %s, postgres_url: %s, sqlite_path: %q}
`, store, quoted, filepath.Join(data, "registry.db")), 0o600))
				s.serve(t, "registry", "")
				conn := s.dial(t, "registry")
				return registryv1.NewRegistryServiceClient(conn)
			}
			ended(t, s)
			url := ""
			if store == "postgres" {
				url = pgtest.New(t)
			}
			reg, ctx := begin(url), within(t)
			epic, err := reg.CreateEpic(ctx, &registryv1.CreateEpicRequest{RequestId: "one", Epic: &registryv1.Epic{Title: "kept"}})
			require.NoError(t, err)
			task, err := reg.CreateTask(ctx, &registryv1.CreateTaskRequest{Task: &registryv1.Task{EpicId: epic.GetId(), Title: "kept too"}})
			require.NoError(t, err)
			epic, err = reg.GetEpic(ctx, &registryv1.GetEpicRequest{EpicId: epic.GetId()})
			require.NoError(t, err)

			if store == "postgres" {
				shell(t, "pg_dump", "--format=custom", "--file="+backup, url) // while it serves
				s.procs["registry"].kill()
				psql(t, url, "DROP SCHEMA registry CASCADE")
				url = pgtest.New(t)
				shell(t, "pg_restore", "--no-owner", "--dbname="+url, backup)
			} else {
				s.procs["registry"].stop(t)
				shell(t, "cp", "-a", data, backup)
				require.NoError(t, os.RemoveAll(data))
				shell(t, "cp", "-a", backup, data)
			}
			reg = begin(url)
			got, err := reg.GetEpic(ctx, &registryv1.GetEpicRequest{EpicId: epic.GetId()})
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(epic, got, protocmp.Transform()))
			again, err := reg.CreateEpic(ctx, &registryv1.CreateEpicRequest{RequestId: "one", Epic: &registryv1.Epic{Title: "kept"}})
			require.NoError(t, err)
			require.Equal(t, epic.GetId(), again.GetId(), "request ids are kept, too")
			kept, err := reg.GetTask(ctx, &registryv1.GetTaskRequest{TaskId: task.GetId()})
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(task, kept, protocmp.Transform()))
		})
	}
}
