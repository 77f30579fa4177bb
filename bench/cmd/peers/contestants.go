package main

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"
)

// Stores.
const (
	onPostgres = "postgres"
	onSQLite   = "sqlite"
)

// Classes are never compared with each other.
const (
	limitClass  = "limits"
	localClass  = "in process, PostgreSQL"
	remoteClass = "server with workers, PostgreSQL"
	sqliteClass = "SQLite"
	memoryClass = "not durable"
	wakeClass   = "two replicas, PostgreSQL"
)

// Names of those that others are held against, or that have aims.
const (
	floorOne       = "floor-1"
	floorGroup     = "floor-B"
	sqliteOne      = "floor-1, SQLite"
	sqliteGroup    = "floor-B, SQLite"
	epigraphLocal  = "Epigraph"
	epigraphLite   = "Epigraph, SQLite"
	epigraphMem    = "Epigraph, in memory"
	epigraphRemote = "Epigraph, remote workers"
	epigraphTwo    = "Epigraph, two replicas"
)

// process is one process of a contestant. {store}, {database}, {dir} and {addr} stand for values that are
// known at start: the store's address, the database's name, a directory of its own, the address that the
// previous process printed.
type process struct {
	// program is a package of ours below bench/, an absolute path, or a command on the path.
	program string
	args    []string
	env     []string
	dir     string
	// engine marks the process whose memory counts.
	engine bool
	// silent processes do not print when they are ready; the next one waits for them.
	silent bool
	// ports is the number of free ports to find, as {port0} and so on; those of the last process that asked
	// stay.
	ports int
	// before prepares what the process reads.
	before func(ctx context.Context, h *harness, c *contestant, words map[string]string) error
}

// spec is a contestant.
type spec struct {
	name, class, store string
	// durability describes the data on disk when a node's successors start, and the settings that differ from
	// the defaults.
	durability string
	floor      bool
	peer       bool
	// processes are started in order; the last one is the driver.
	processes []process
	// prepare builds the needed programs, once, into a directory that is kept between runs.
	prepare func(ctx context.Context, h *harness) error
	// also are suffixes of further databases.
	also []string
	// skip says why it does not take part in a load.
	skip map[string]string
}

func (s *spec) baselines() (one, group string) {
	switch s.class {
	case localClass, remoteClass:
		return floorOne, floorGroup
	case sqliteClass:
		return sqliteOne, sqliteGroup
	}
	return "", ""
}

func (s *spec) takes(load string) bool {
	if (s.class == limitClass) != (load == limitsKey) || (s.class == wakeClass) != (load == w8) {
		return false
	}
	_, skipped := s.skip[load]
	return !skipped
}

// enough is why some take part in W7 only 16 at a time: a hundred graphs one after the other take half a
// minute.
const enough = "kept short: 16 at a time tells the same"

func floors(store, suffix, class string) []*spec {
	run := func(mode string) []process {
		return []process{{program: "contestant/floor", args: []string{"-store", "{store}", "-mode", mode}, engine: true}}
	}
	group := &spec{name: floorGroup + suffix, class: class, store: store, floor: true, durability: "what waits, in one insert and commit", processes: run("group")}
	one := &spec{name: floorOne + suffix, class: class, store: store, floor: true, durability: "one commit per node", processes: run("one")}
	if store == onSQLite {
		one.skip = map[string]string{w7alone: enough}
	}
	return []*spec{one, group}
}

func contestants() []*spec {
	limit := func(name, store, mode string) *spec {
		return &spec{name: name, class: limitClass, store: store, durability: "-", processes: []process{
			{program: "contestant/floor", args: []string{"-store", "{store}", "-mode", mode}, engine: true}}}
	}
	embedded := func(name, class, store string) *spec {
		return &spec{name: name, class: class, store: store, durability: "each node, before its successors start", processes: []process{
			{program: "contestant/host", args: []string{"-store", "{store}", "-cpuprofile", "{profile}"}, engine: true},
			{program: "contestant/client", args: []string{"-addr", "{addr}"}},
		}}
	}
	all := []*spec{
		limit("PostgreSQL", onPostgres, "limits"),
		limit("SQLite file", onSQLite, "limits"),
		limit("gRPC unary echo", "", "echo"),
	}
	all = append(all, floors(onPostgres, "", localClass)...)
	all = append(all, embedded(epigraphLocal, localClass, onPostgres))
	all = append(all, &spec{name: epigraphRemote, class: remoteClass, store: onPostgres, prepare: epigraphServer,
		durability: "each node, before its successors start; epigraph serve executor, one worker process with the Go SDK",
		processes: []process{
			{program: "bench/epigraph", engine: true, silent: true, ports: 1, args: []string{"serve", "executor", "--set", "executor.store=postgres",
				"--set", "executor.postgres_url={store}", "--set", "executor.id=bench", "--set", "executor.parallel=20000", "--set", "grpc.executor_addr=127.0.0.1:{port0}",
				"--set", "upstream.registry=", "--set", "admin.addr=", "--set", "telemetry.log_level=warn"}},
			{program: "contestant/worker", args: []string{"-addr", "127.0.0.1:{port0}"}},
			{program: "contestant/client", args: []string{"-addr", "{addr}"}},
		}})
	replica := func(id string) process {
		return process{program: "contestant/host", args: []string{"-store", "{store}", "-id", id, "-cpuprofile", "{profile}-" + id}, engine: true}
	}
	all = append(all, &spec{name: epigraphTwo, class: wakeClass, store: onPostgres, durability: "each node, before its successors start; two executors on one database",
		processes: []process{replica("r0"), replica("r1"), {program: "contestant/wake", args: []string{"-addrs", "{addr0},{addr1}", "-names", "r0,r1"}}}})
	all = append(all, floors(onSQLite, ", SQLite", sqliteClass)...)
	all = append(all, embedded(epigraphLite, sqliteClass, onSQLite))
	all = append(all, &spec{name: epigraphMem, class: memoryClass, durability: "none", skip: map[string]string{w7alone: enough},
		processes: []process{{program: "contestant/memory", engine: true}}})
	return append(all, peers()...)
}

// epigraphServer builds the product's own binary, in its workspace.
func epigraphServer(ctx context.Context, h *harness) error {
	return h.command(ctx, filepath.Dir(h.dir), []string{"GOWORK="}, "go", "build", "-o", filepath.Join(h.bin, "epigraph"), "./cmd/epigraph")
}

func sortByName(all []*spec) {
	slices.SortStableFunc(all, func(a, b *spec) int { return cmp.Compare(a.name, b.name) })
}

func (h *harness) binary(p process) string {
	if !filepath.IsAbs(p.program) && strings.Contains(p.program, "/") {
		return filepath.Join(h.bin, filepath.Base(p.program))
	}
	return p.program
}
