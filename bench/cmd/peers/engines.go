package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// peers are the other engines. Each comes as it is installed, and tuned: with the settings of its own
// documentation that serve these loads.
func peers() []*spec {
	const each = "each node, before its successors start"
	var all []*spec
	add := func(s *spec) {
		s.peer = true
		all = append(all, s)
	}
	program := func(name string, args ...string) process {
		return process{program: "peers/" + name, args: args, engine: true}
	}

	for name, args := range map[string][]string{"DBOS": nil, "DBOS, tuned": {"-conns", "32"}} {
		s := &spec{name: name, class: localClass, store: onPostgres, prepare: goPeer("dbos"),
			durability: each + ": a step's result is a commit; " + settingsOf(args, "its own pool"),
			processes:  []process{program("dbos", append([]string{"-store", "{store}"}, args...)...)}}
		s.skip = map[string]string{w7alone: enough}
		add(s)
	}
	add(&spec{name: "DBOS, SQLite", class: sqliteClass, store: onSQLite, prepare: goPeer("dbos"), durability: each, skip: map[string]string{w7alone: enough},
		processes: []process{program("dbos", "-store", "{store}")}})
	for name, args := range map[string][]string{"DBOS queue": nil, "DBOS queue, tuned": {"-conns", "32", "-poll", "5ms"}} {
		s := &spec{name: name, class: remoteClass, store: onPostgres, prepare: goPeer("dbos"),
			durability: each + "; runs come through its queue, steps run where the run does; " + settingsOf(args, "polls every second"),
			processes:  []process{program("dbos", append([]string{"-store", "{store}", "-queue"}, args...)...)}}
		s.skip = map[string]string{w7alone: enough, w7many: "its steps run where the run does: DBOS says the same"}
		if args == nil {
			s.skip[w5] = "it polls every second"
		}
		add(s)
	}
	for name, args := range map[string][]string{"River": nil, "River, tuned": {"-cooldown", "1ms", "-poll", "100ms", "-workers", "5000", "-conns", "32"}} {
		s := &spec{name: name, class: remoteClass, store: onPostgres, prepare: goPeer("river"),
			durability: each + ": result, successors' jobs and completion in one transaction; " + settingsOf(args, "FetchCooldown 100 ms, 100 workers"),
			processes:  []process{program("river", append([]string{"-store", "{store}"}, args...)...)}}
		s.skip = map[string]string{w7alone: enough}
		if args == nil {
			s.skip = map[string]string{w7alone: "its default cooldown makes each level wait 100 ms", w7many: "its default cooldown makes each level wait 100 ms"}
		}
		add(s)
	}
	add(&spec{name: "River, SQLite", class: sqliteClass, store: onSQLite, prepare: goPeer("river"),
		durability: each + ": result, successors' jobs and completion in one transaction; polls every 2 ms (as it comes, every second)", skip: map[string]string{w7alone: enough},
		processes: []process{program("river", "-store", "{store}", "-cooldown", "1ms", "-poll", "2ms")}})

	for name, conns := range map[string]string{"LangGraph.js": "10", "LangGraph.js, tuned": "32"} {
		add(&spec{name: name, class: localClass, store: onPostgres, prepare: langgraph,
			durability: `durability "sync": each superstep, before the next one; pool of ` + conns,
			skip:       map[string]string{w7alone: supersteps, w7many: supersteps},
			processes:  []process{node("--socket={socket}", "--database={database}", "--conns="+conns)}})
	}
	add(&spec{name: "LangGraph.js, SQLite", class: sqliteClass, store: onSQLite, prepare: langgraph,
		durability: `durability "sync", synchronous FULL (its build says NORMAL)`,
		skip:       map[string]string{w7alone: supersteps, w7many: supersteps},
		processes:  []process{node("--sqlite={store}")}})

	for name, t := range map[string]temporal{"Temporal": {shards: 4, conns: 20}, "Temporal, tuned": {shards: 16, conns: 48, dynamic: temporalDynamic, worker: []string{"-pollers", "16", "-activities", "10000"}}} {
		add(&spec{name: name, class: remoteClass, store: onPostgres, prepare: both(temporalServer, goPeer("temporalsdk")), also: []string{"_visibility"},
			durability: fmt.Sprintf("each activity, before the workflow sees it; %d shards, %d connections%s", t.shards, t.conns, t.note()),
			skip:       map[string]string{w7alone: manySeconds, w7many: manySeconds},
			processes: []process{
				{program: "{cache}/temporal/temporal-server", args: []string{"-r", "{dir}", "-c", "config", "-e", "bench", "--allow-no-auth", "start"}, engine: true, silent: true, ports: 9, before: t.configure},
				{program: "peers/temporalsdk", args: append([]string{"-addr", "127.0.0.1:{port0}"}, t.worker...)},
			}})
	}
	add(&spec{name: "Temporal dev server, SQLite", class: sqliteClass, store: onSQLite, prepare: both(temporalCLI, goPeer("temporalsdk")),
		durability: "each activity, before the workflow sees it; server and worker are two processes",
		skip:       map[string]string{w7alone: manySeconds, w7many: manySeconds},
		processes: []process{
			{program: "{cache}/temporalcli/temporal", args: []string{"server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", "{port0}", "--http-port", "{port1}",
				"--metrics-port", "{port2}", "--db-filename", "{store}", "--log-level", "error"}, engine: true, silent: true, ports: 3},
			{program: "peers/temporalsdk", args: []string{"-addr", "127.0.0.1:{port0}"}},
		}})

	add(&spec{name: "Eino", class: memoryClass, durability: "none", prepare: goPeer("eino"), skip: map[string]string{w7alone: enough}, processes: []process{program("eino")}})
	sortByName(all)
	return all
}

const (
	supersteps  = "its supersteps wait for the slowest of a level, which is another question"
	manySeconds = "it takes minutes and says what W4 says"
)

func settingsOf(args []string, none string) string {
	if len(args) == 0 {
		return "as it comes (" + none + ")"
	}
	return strings.ReplaceAll(strings.Join(args, " "), " -", ", -")
}

func node(args ...string) process {
	return process{program: "node", args: append([]string{"driver.mjs"}, args...), dir: "{cache}/langgraph", engine: true,
		env: []string{"NODE_ENV=production", "LANGSMITH_TRACING=false"}}
}

// goPeer builds a program of the module of the peers.
func goPeer(name string) func(context.Context, *harness) error {
	return func(ctx context.Context, h *harness) error {
		return h.command(ctx, filepath.Join(h.dir, "peers"), nil, "go", "build", "-o", h.bin+"/", "./"+name)
	}
}

func both(a, b func(context.Context, *harness) error) func(context.Context, *harness) error {
	return func(ctx context.Context, h *harness) error { return errors.Join(a(ctx, h), b(ctx, h)) }
}

// kept runs make unless it already did for the same inputs: results are kept between runs.
func (h *harness) kept(name string, inputs []string, make func(dir string) error) error {
	sum := sha256.New()
	for _, in := range inputs {
		raw, err := os.ReadFile(in)
		if err != nil {
			return err
		}
		sum.Write(raw)
	}
	dir, want := filepath.Join(h.cache, name), hex.EncodeToString(sum.Sum(nil))
	stamp := filepath.Join(dir, ".stamp")
	have, err := os.ReadFile(stamp)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if string(have) == want {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	h.log.Info("building a peer; this is done once", "peer", name)
	if err := make(dir); err != nil {
		return err
	}
	return os.WriteFile(stamp, []byte(want), 0o600)
}

// langgraph installs what the lock file says.
func langgraph(ctx context.Context, h *harness) error {
	from := filepath.Join(h.dir, "peers", "langgraph")
	var inputs []string
	for _, f := range []string{"package.json", "package-lock.json", "driver.mjs"} {
		inputs = append(inputs, filepath.Join(from, f))
	}
	return h.kept("langgraph", inputs, func(dir string) error {
		for _, in := range inputs {
			raw, err := os.ReadFile(in)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(in)), raw, 0o600); err != nil {
				return err
			}
		}
		if err := h.command(ctx, dir, nil, "npm", "ci", "--legacy-peer-deps", "--ignore-scripts", "--no-audit", "--no-fund"); err != nil {
			return err
		}
		// The SQLite binding is compiled here.
		return h.command(ctx, dir, nil, "npm", "rebuild", "better-sqlite3")
	})
}

// Temporal says which Go it needs, and may need a newer one than ours.
var anyToolchain = []string{"GOTOOLCHAIN=auto"}

func temporalServer(ctx context.Context, h *harness) error {
	from := filepath.Join(h.dir, "peers", "temporal")
	return h.kept("temporal", []string{filepath.Join(from, "go.mod"), filepath.Join(from, "go.sum")}, func(dir string) error {
		if err := h.command(ctx, from, anyToolchain, "go", "build", "-o", filepath.Join(dir, "temporal-server"), "go.temporal.io/server/cmd/server"); err != nil {
			return err
		}
		return h.command(ctx, from, anyToolchain, "go", "build", "-o", filepath.Join(dir, "temporal-sql-tool"), "go.temporal.io/server/cmd/tools/sql")
	})
}

func temporalCLI(ctx context.Context, h *harness) error {
	from := filepath.Join(h.dir, "peers", "temporalcli")
	return h.kept("temporalcli", []string{filepath.Join(from, "go.mod"), filepath.Join(from, "go.sum")}, func(dir string) error {
		return h.command(ctx, from, anyToolchain, "go", "build", "-o", filepath.Join(dir, "temporal"), "github.com/temporalio/cli/cmd/temporal")
	})
}

// temporal is how a Temporal server is set up.
type temporal struct {
	shards, conns int
	dynamic       string
	worker        []string
}

func (t temporal) note() string {
	if t.dynamic == "" {
		return ", as its own configuration for development says"
	}
	return ", one partition for each queue, no rate limits, " + settingsOf(t.worker, "")
}

// temporalDynamic lifts the limits that a small server has by default and leaves out partitions that one
// worker does not need.
const temporalDynamic = `
frontend.rps: [{value: 100000}]
frontend.namespaceRPS: [{value: 100000}]
frontend.namespaceCount: [{value: 100000}]
frontend.persistenceMaxQPS: [{value: 100000}]
history.rps: [{value: 100000}]
history.persistenceMaxQPS: [{value: 100000}]
matching.rps: [{value: 100000}]
matching.persistenceMaxQPS: [{value: 100000}]
matching.numTaskqueueReadPartitions: [{value: 1}]
matching.numTaskqueueWritePartitions: [{value: 1}]
system.enableActivityEagerExecution: [{value: true}]
`

// configure makes the schemas and writes the configuration.
func (t temporal) configure(ctx context.Context, h *harness, c *contestant, words map[string]string) error {
	dir := filepath.Join(words["{dir}"], "config")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tool := filepath.Join(h.cache, "temporal", "temporal-sql-tool")
	for i, schema := range []string{"temporal", "visibility"} {
		common := []string{"--plugin", "postgres12_pgx", "--ep", "127.0.0.1", "-p", "5432", "-u", "postgres", "--pw", "none", "--db", c.databases[i], "--ca", "host=" + words["{socket}"]}
		if err := h.command(ctx, dir, nil, tool, append(common, "setup-schema", "-v", "0.0")...); err != nil {
			return err
		}
		if err := h.command(ctx, dir, nil, tool, append(common, "update-schema", "--schema-name", "postgresql/v12/"+schema)...); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "dynamic.yaml"), []byte(t.dynamic), 0o600); err != nil {
		return err
	}
	fill := []string{"{shards}", strconv.Itoa(t.shards), "{conns}", strconv.Itoa(t.conns), "{visibility}", c.databases[1], "{dynamic}", filepath.Join(dir, "dynamic.yaml")}
	for w, v := range words {
		fill = append(fill, w, v)
	}
	return os.WriteFile(filepath.Join(dir, "bench.yaml"), []byte(strings.NewReplacer(fill...).Replace(temporalConfig)), 0o600)
}

const temporalConfig = `
log: {stdout: true, level: error}
persistence:
  defaultStore: main
  visibilityStore: visibility
  numHistoryShards: {shards}
  datastores:
    main:
      sql:
        pluginName: postgres12_pgx
        databaseName: {database}
        connectAddr: "127.0.0.1:5432"
        connectProtocol: tcp
        connectAttributes: {host: "{socket}"}
        user: postgres
        password: none
        maxConns: {conns}
        maxIdleConns: {conns}
        maxConnLifetime: 1h
    visibility:
      sql:
        pluginName: postgres12_pgx
        databaseName: {visibility}
        connectAddr: "127.0.0.1:5432"
        connectProtocol: tcp
        connectAttributes: {host: "{socket}"}
        user: postgres
        password: none
        maxConns: 4
        maxIdleConns: 4
        maxConnLifetime: 1h
global:
  membership: {maxJoinDuration: 30s, broadcastAddress: 127.0.0.1}
services:
  frontend: {rpc: {grpcPort: {port0}, membershipPort: {port1}, bindOnLocalHost: true, httpPort: {port2}}}
  matching: {rpc: {grpcPort: {port3}, membershipPort: {port4}, bindOnLocalHost: true}}
  history: {rpc: {grpcPort: {port5}, membershipPort: {port6}, bindOnLocalHost: true}}
  worker: {rpc: {grpcPort: {port7}, membershipPort: {port8}, bindOnLocalHost: true}}
clusterMetadata:
  enableGlobalNamespace: false
  failoverVersionIncrement: 10
  masterClusterName: active
  currentClusterName: active
  clusterInformation:
    active: {enabled: true, initialFailoverVersion: 1, rpcName: frontend, rpcAddress: "127.0.0.1:{port0}"}
dcRedirectionPolicy: {policy: noop}
dynamicConfigClient: {filepath: "{dynamic}", pollInterval: 60s}
`
