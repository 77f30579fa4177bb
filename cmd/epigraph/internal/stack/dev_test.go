package stack_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

func TestDev(t *testing.T) {
	t.Parallel()
	t.Run("Suite/ServesAllOverRESTAndGRPC", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		d := openDev(t, stack.DevOptions{DataDir: dir})
		stop := run(t, d)
		require.NoError(t, d.Ready(testkit.Context(t, 20*time.Second)))
		testkit.Eventually(t, func() bool { code, _ := get(t, "http://"+d.HTTPAddr()+"/readyz"); return code == http.StatusOK })

		conn, err := grpckit.Dial(d.GRPCAddr(), grpckit.DialOptions{})
		require.NoError(t, err)
		defer conn.Close()
		_, err = plannerv1.NewPlannerServiceClient(conn).ParsePlan(t.Context(), &plannerv1.ParsePlanRequest{Text: "a -> b"})
		require.NoError(t, err)
		actors, err := executorv1.NewExecutorServiceClient(conn).ListActors(t.Context(), &executorv1.ListActorsRequest{})
		require.NoError(t, err)
		require.NotEmpty(t, actors.GetActors())
		_, err = registryv1.NewRegistryServiceClient(conn).ListEpics(t.Context(), &registryv1.ListEpicsRequest{})
		require.NoError(t, err)

		code, body := get(t, "http://"+d.HTTPAddr()+"/v1/actors", "Authorization", "Bearer "+d.APIKey())
		require.Equal(t, http.StatusOK, code, body)
		code, body = get(t, "http://"+d.HTTPAddr()+"/v1/actors")
		require.Equal(t, http.StatusOK, code, body)
		code, body = get(t, "http://"+d.HTTPAddr()+"/v1/actors", "Authorization", "Bearer wrong")
		require.Equal(t, http.StatusUnauthorized, code, body)

		info, err := os.Stat(filepath.Join(dir, "api_key"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		require.FileExists(t, filepath.Join(dir, "registry.db"))
		require.FileExists(t, filepath.Join(dir, "executor.db"))
		stop()
		again := openDev(t, stack.DevOptions{DataDir: dir})
		require.Equal(t, d.APIKey(), again.APIKey())
	})
	t.Run("Spans/OneNamePerService", func(t *testing.T) {
		t.Parallel()
		d := openDev(t, stack.DevOptions{DataDir: t.TempDir()})
		run(t, d)
		const trace = "0af7651916cd43dd8448eb211c80319c"
		testkit.Eventually(t, func() bool {
			code, _ := get(t, "http://"+d.HTTPAddr()+"/v1/epics", "traceparent", "00-"+trace+"-b7ad6b7169203331-01")
			return code == http.StatusOK
		})
		testkit.Eventually(t, func() bool {
			found := map[string]bool{}
			for _, s := range d.Ring().Trace(trace) {
				found[s.Service] = true
			}
			return found["epigraph-gateway"] && found["epigraph-registry"]
		})
	})
	t.Run("Accounts/LimitPlannerAndExecutorTogether", func(t *testing.T) {
		t.Parallel()
		asked, goOn := make(chan struct{}, 10), make(chan struct{})
		fake := fakellm.New(fakellm.Script{Answer: func(fakellm.Request) (fakellm.Reply, bool) {
			asked <- struct{}{}
			<-goOn
			return fakellm.Reply{Text: `[{"id": "a", "request": "x", "needs": []}]`}, true
		}})
		url, err := fake.Listen("127.0.0.1:0")
		require.NoError(t, err)
		defer func() { require.NoError(t, fake.Close()) }()
		cfg := quiet()
		cfg.Models.Accounts = map[string]llm.AccountLimits{"narrow": {MaxConcurrent: 1}}
		cfg.Models.Change(llm.DefaultProfile, func(p *llm.Profile) { p.BaseURL, p.Account = url, "narrow" })
		d := openDev(t, stack.DevOptions{DataDir: t.TempDir(), Config: cfg})
		run(t, d)
		require.NoError(t, d.Ready(testkit.Context(t, 20*time.Second)))
		conn, err := grpckit.Dial(d.GRPCAddr(), grpckit.DialOptions{})
		require.NoError(t, err)
		defer conn.Close()
		created := make(chan error, 1)
		go func() {
			_, err := plannerv1.NewPlannerServiceClient(conn).CreatePlan(t.Context(), &plannerv1.CreatePlanRequest{Goal: "x"})
			created <- err
		}()
		<-asked
		runs := executorv1.NewExecutorServiceClient(conn)
		r, err := runs.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: &graphv1.Graph{Nodes: []*graphv1.Node{
			{Id: "n", Actor: "llm", Named: map[string]*graphv1.Payload{"request": {Json: []byte(`"x"`)}}}}}})
		require.NoError(t, err)
		testkit.Eventually(t, func() bool {
			x, err := runs.ExplainRun(t.Context(), &executorv1.ExplainRunRequest{RunId: r.GetId()})
			require.NoError(t, err)
			return len(x.GetBlockers()) == 1 && x.GetBlockers()[0].GetKind() == executorv1.BlockerKind_BLOCKER_KIND_MODEL_ACCOUNT
		})
		require.Empty(t, asked)
		close(goOn)
		require.NoError(t, <-created)
		testkit.Eventually(t, func() bool {
			got, err := runs.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: r.GetId()})
			require.NoError(t, err)
			return got.GetState() == executorv1.RunState_RUN_STATE_COMPLETED
		})
	})
	t.Run("Stop/IsSilentBesideWatchers", func(t *testing.T) {
		t.Parallel()
		var log testkit.LogBuffer
		cfg := stack.DevConfig()
		cfg.Telemetry.LogWriter = &log
		d := openDev(t, stack.DevOptions{DataDir: t.TempDir(), Config: cfg})
		stop := run(t, d)
		require.NoError(t, d.Ready(testkit.Context(t, 20*time.Second)))
		ctx := testkit.Context(t, time.Minute)
		watching := make(chan struct{}, 100)
		var watchers sync.WaitGroup
		for _, addr := range []string{d.GRPCAddr(), d.HTTPAddr()} {
			conn, err := grpckit.Dial(addr, grpckit.DialOptions{})
			require.NoError(t, err)
			defer conn.Close()
			client := executorv1.NewExecutorServiceClient(conn)
			r, err := client.StartRun(ctx, &executorv1.StartRunRequest{Graph: &graphv1.Graph{Nodes: []*graphv1.Node{
				{Id: "nap", Actor: "sleep", Named: map[string]*graphv1.Payload{"duration": {Json: []byte(`"1h"`)}}},
			}}})
			require.NoError(t, err)
			watchers.Go(func() {
				for tries := 0; tries < 3; tries++ { // as clients do when a stream breaks
					stream, err := client.WatchRun(ctx, &executorv1.WatchRunRequest{RunId: r.GetId()})
					for err == nil {
						if _, err = stream.Recv(); err == nil {
							tries = 0
							watching <- struct{}{}
						}
					}
				}
			})
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.HTTPAddr()+"/v1/runs/"+r.GetId()+"/events", nil)
			require.NoError(t, err)
			watchers.Go(func() {
				for range 3 {
					res, err := http.DefaultClient.Do(req)
					if err != nil {
						continue
					}
					watching <- struct{}{}
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
			})
		}
		for range 4 {
			<-watching
		}
		before := log.String()
		stop()
		watchers.Wait()
		require.Empty(t, strings.TrimPrefix(log.String(), before))
	})
	t.Run("DataDir/OneProcessAtATime", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		openDev(t, stack.DevOptions{DataDir: dir})
		_, err := stack.OpenDev(t.Context(), stack.DevOptions{DataDir: dir, HTTPAddr: "127.0.0.1:0", GRPCAddr: "127.0.0.1:0", Config: quiet()})
		e := errs.From(err)
		require.Equal(t, "DATA_DIR_IN_USE", e.Reason)
		require.Contains(t, e.Message, "pid ")
		require.Contains(t, e.HintText(), "--data")
	})
	t.Run("Settings/FaultsAreAllToldAtOnceBeforeAnythingIsTaken", func(t *testing.T) {
		t.Parallel()
		first := openDev(t, stack.DevOptions{DataDir: t.TempDir()})
		dir := filepath.Join(t.TempDir(), "data")
		c := quiet()
		c.Executor.Parallel, c.GRPC.MaxRecvBytes = -3, 0
		open := func(web, rpc string) *errs.Error {
			_, err := stack.OpenDev(t.Context(), stack.DevOptions{DataDir: dir, HTTPAddr: web, GRPCAddr: rpc, Config: c})
			return errs.From(err)
		}
		e := open(first.HTTPAddr(), first.GRPCAddr())
		require.Equal(t, conf.ReasonInvalid, e.Reason)
		require.Contains(t, e.Message, "parallel must be positive")
		require.Contains(t, e.Message, "max_recv_bytes must be positive")

		c.Admin.Addr = "admin"
		e = open("nonsense", "127.0.0.1:70000")
		require.Equal(t, conf.ReasonInvalid, e.Reason)
		for _, want := range []string{"parallel must be positive", `"nonsense" is no host:port`, `"127.0.0.1:70000" is no host:port`, `"admin" is no host:port`} {
			require.Contains(t, e.Message, want)
		}
		for _, want := range []string{"docs/configuration.md", "--http", "--grpc", "EPIGRAPH_ADMIN_ADDR"} {
			require.Contains(t, e.HintText(), want)
		}
		require.NoDirExists(t, dir)
	})
	t.Run("Settings/PagesOfEveryOriginAreRefusedBeforeAnythingIsTaken", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "data")
		c := quiet()
		c.Gateway.CORSOrigins = []string{"*"}
		_, err := stack.OpenDev(t.Context(), stack.DevOptions{DataDir: dir, HTTPAddr: "127.0.0.1:0", GRPCAddr: "127.0.0.1:0", Config: c})
		require.Equal(t, "CORS_OPEN", errs.ReasonOf(err))
		require.NoDirExists(t, dir)
	})
	t.Run("Settings/WhatNeedsAKeyIsTaken", func(t *testing.T) {
		t.Parallel()
		c := quiet()
		c.Gateway.CORSOrigins = []string{"*"}
		c.GRPC.TLS.ClientCerts = "optional"
		openDev(t, stack.DevOptions{DataDir: t.TempDir(), HTTPAddr: "0.0.0.0:0", Config: c})
	})
	t.Run("Settings/AKeyWithTheSecretOfTheDataDirectoryIsRefused", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "api_key"), []byte("ek_of_both\n"), 0o600))
		c := quiet()
		c.Auth.Keys = []grpckit.APIKey{{Name: "ci", Namespace: "default", Secret: conf.NewSecret("ek_of_both")}}
		_, err := stack.OpenDev(t.Context(), stack.DevOptions{DataDir: dir, HTTPAddr: "127.0.0.1:0", GRPCAddr: "127.0.0.1:0", Config: c})
		e := errs.From(err)
		require.Equal(t, conf.ReasonInvalid, e.Reason)
		require.Contains(t, e.Message, "same secret")
		require.NotContains(t, e.Message, "ek_of_both")
	})
	t.Run("Port/AllThatAreTakenAreTold", func(t *testing.T) {
		t.Parallel()
		first := openDev(t, stack.DevOptions{DataDir: t.TempDir()})
		c := quiet()
		c.Admin.Addr = first.HTTPAddr()
		_, err := stack.OpenDev(t.Context(), stack.DevOptions{DataDir: t.TempDir(), HTTPAddr: first.HTTPAddr(), GRPCAddr: first.GRPCAddr(), Config: c})
		e := errs.From(err)
		require.Equal(t, "PORT_TAKEN", e.Reason)
		for _, want := range []string{first.HTTPAddr(), first.GRPCAddr()} {
			require.Contains(t, e.Message, want)
		}
		for _, want := range []string{"--http", "--grpc", "EPIGRAPH_ADMIN_ADDR"} {
			require.Contains(t, e.HintText(), want)
		}
	})
	t.Run("Port/TakenNamesItAndTheWayOut", func(t *testing.T) {
		t.Parallel()
		first := openDev(t, stack.DevOptions{DataDir: t.TempDir()})
		for flagName, o := range map[string]stack.DevOptions{
			"--http": {HTTPAddr: first.HTTPAddr(), GRPCAddr: "127.0.0.1:0"},
			"--grpc": {HTTPAddr: "127.0.0.1:0", GRPCAddr: first.HTTPAddr()},
		} {
			o.DataDir, o.Config = t.TempDir(), quiet()
			_, err := stack.OpenDev(t.Context(), o)
			e := errs.From(err)
			require.Equal(t, "PORT_TAKEN", e.Reason)
			require.Contains(t, e.Message, first.HTTPAddr())
			require.Contains(t, e.HintText(), flagName)
		}
	})
	t.Run("Close/WithoutRun", func(t *testing.T) {
		t.Parallel()
		d := openDev(t, stack.DevOptions{DataDir: t.TempDir()})
		require.NoError(t, d.Close())
		require.NoError(t, d.Close())
	})
}
