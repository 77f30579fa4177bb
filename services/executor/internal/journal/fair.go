package journal

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/turns"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

// fair is a journal that namespaces ask in turns, so that those which ask a lot leave connections to the
// others, and one to the engine. What the engine itself asks, for all namespaces, has no turn. It embeds
// nothing: a new method is decided on here.
type fair struct {
	j     Journal
	turns *dbkit.Turns
	// puts are those of registrations of workers, one of a namespace at a time: on PostgreSQL the others
	// would wait for each other with a connection each, on SQLite before everybody's writes.
	puts *turns.Turns
}

var _ Journal = fair{}

// Fair returns j such that reads, posts and deletions of namespaces have these turns, which are those of the
// connections that answer the API.
func Fair(j Journal, t *dbkit.Turns) Journal { return fair{j, t, turns.New(1)} }

// Close implements Journal.
func (f fair) Close() error { return f.j.Close() }

// What Members says.

func (f fair) Register(ctx context.Context, id, addr string) (Owner, error) {
	return f.j.Register(ctx, id, addr)
}

func (f fair) TokenKey(ctx context.Context, fresh []byte) ([]byte, error) {
	return f.j.TokenKey(ctx, fresh)
}

func (f fair) Heartbeat(ctx context.Context, owner Owner) error {
	return f.j.Heartbeat(ctx, owner)
}

func (f fair) Executors(ctx context.Context) ([]Executor, error) {
	return f.j.Executors(ctx)
}

func (f fair) TakeOver(ctx context.Context, self Owner, o TakeOverOptions) (TakeOverResult, error) {
	return f.j.TakeOver(ctx, self, o)
}

func (f fair) ClaimRun(ctx context.Context, self Owner, namespace, runID string, p TakeOverPolicy) (Owner, error) {
	return f.j.ClaimRun(ctx, self, namespace, runID, p)
}

func (f fair) Mark(ctx context.Context, owner Owner, runID, doing, harmless string) error {
	return f.j.Mark(ctx, owner, runID, doing, harmless)
}

func (f fair) SweepOwnerless(ctx context.Context, late time.Duration, limit int) (int, error) {
	return f.j.SweepOwnerless(ctx, late, limit)
}

func (f fair) ReadyJobs(ctx context.Context, ahead time.Duration, limit int) (int, error) {
	return f.j.ReadyJobs(ctx, ahead, limit)
}

func (f fair) WorkJobsAs(ctx context.Context, owner Owner, worker string) error {
	return f.j.WorkJobsAs(ctx, owner, worker)
}

func (f fair) RescueJobs(ctx context.Context, worker string, after time.Duration, limit int) (int, error) {
	return f.j.RescueJobs(ctx, worker, after, limit)
}

func (f fair) LastUnsent(ctx context.Context, namespace, thread string, before int64) (int64, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) (int64, error) { return f.j.LastUnsent(ctx, namespace, thread, before) })
}

func (f fair) WakeUnsent(ctx context.Context, namespace, thread string, after int64) error {
	return f.turns.Do(ctx, namespace, func(ctx context.Context) error { return f.j.WakeUnsent(ctx, namespace, thread, after) })
}

func (f fair) ExpediteUnpriced(ctx context.Context, reason string, limit int) (int, error) {
	return f.j.ExpediteUnpriced(ctx, reason, limit)
}

func (f fair) Release(ctx context.Context, owner Owner, runIDs []string) error {
	return f.j.Release(ctx, owner, runIDs)
}

func (f fair) Deregister(ctx context.Context, owner Owner) error {
	return f.j.Deregister(ctx, owner)
}

// What thread.Store says.

func (f fair) Thread(ctx context.Context, namespace, id string) (thread.Thread, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) (thread.Thread, error) { return f.j.Thread(ctx, namespace, id) })
}

func (f fair) ThreadsByKeys(ctx context.Context, namespace string, keys []string) ([]thread.Thread, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]thread.Thread, error) { return f.j.ThreadsByKeys(ctx, namespace, keys) })
}

func (f fair) ThreadByKey(ctx context.Context, namespace, key string) (thread.Thread, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) (thread.Thread, error) { return f.j.ThreadByKey(ctx, namespace, key) })
}

func (f fair) ListThreads(ctx context.Context, namespace string, filter thread.Filter, after page.Cursor, limit int) ([]thread.Thread, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]thread.Thread, error) {
		return f.j.ListThreads(ctx, namespace, filter, after, limit)
	})
}

func (f fair) CreateThread(ctx context.Context, c thread.Create) (thread.Thread, error) {
	return dbkit.Write(ctx, f.turns, c.Namespace, func(ctx context.Context) (thread.Thread, error) { return f.j.CreateThread(ctx, c) })
}

func (f fair) ImportThreads(ctx context.Context, m thread.Import) (thread.Thread, error) {
	return dbkit.Write(ctx, f.turns, m.Namespace, func(ctx context.Context) (thread.Thread, error) { return f.j.ImportThreads(ctx, m) })
}

func (f fair) Family(ctx context.Context, namespace, id string, limit int) ([]thread.Relative, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]thread.Relative, error) {
		return f.j.Family(ctx, namespace, id, limit)
	})
}

func (f fair) DeleteThread(ctx context.Context, namespace, id string) error {
	return f.turns.Do(ctx, namespace, func(ctx context.Context) error { return f.j.DeleteThread(ctx, namespace, id) })
}

func (f fair) HoldThread(ctx context.Context, namespace, id string, runs []string) error {
	return f.turns.Do(ctx, namespace, func(ctx context.Context) error { return f.j.HoldThread(ctx, namespace, id, runs) })
}

func (f fair) Lineage(ctx context.Context, namespace, id string) ([]thread.Segment, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]thread.Segment, error) { return f.j.Lineage(ctx, namespace, id) })
}

func (f fair) SegmentItems(ctx context.Context, namespace string, s thread.Segment, q thread.Selection) ([]thread.Item, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]thread.Item, error) {
		return f.j.SegmentItems(ctx, namespace, s, q)
	})
}

func (f fair) ThreadUsage(ctx context.Context, namespace string) (thread.Usage, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) (thread.Usage, error) { return f.j.ThreadUsage(ctx, namespace) })
}

func (f fair) QueueTurn(ctx context.Context, t thread.Turn, q thread.Request, b thread.Bounds) (thread.Turn, error) {
	return dbkit.Write(ctx, f.turns, t.Namespace, func(ctx context.Context) (thread.Turn, error) { return f.j.QueueTurn(ctx, t, q, b) })
}

func (f fair) NextTurn(ctx context.Context, namespace, id string) (thread.Line, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) (thread.Line, error) { return f.j.NextTurn(ctx, namespace, id) })
}

func (f fair) SettleTurn(ctx context.Context, t thread.Turn) error {
	return f.turns.Do(ctx, t.Namespace, func(ctx context.Context) error { return f.j.SettleTurn(ctx, t) })
}

func (f fair) Turn(ctx context.Context, namespace, id string, number int64) (thread.Turn, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) (thread.Turn, error) { return f.j.Turn(ctx, namespace, id, number) })
}

func (f fair) ListTurns(ctx context.Context, namespace, id string, after int64, limit int) ([]thread.Turn, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]thread.Turn, error) {
		return f.j.ListTurns(ctx, namespace, id, after, limit)
	})
}

func (f fair) HeldTurns(ctx context.Context, namespace, runID, after string, limit int) ([]string, error) {
	return f.j.HeldTurns(ctx, namespace, runID, after, limit)
}

func (f fair) OverdueTurns(ctx context.Context, before time.Time, after string, limit int) ([]thread.Name, error) {
	return f.j.OverdueTurns(ctx, before, after, limit)
}

func (f fair) SweepThreads(ctx context.Context, unusedSince time.Time, after string, limit int) (hidden int, next string, err error) {
	return f.j.SweepThreads(ctx, unusedSince, after, limit)
}

func (f fair) HideParts(ctx context.Context, after string, limit int) (next string, err error) {
	return f.j.HideParts(ctx, after, limit)
}

func (f fair) PurgeThreads(ctx context.Context, limit int) (more bool, err error) {
	return f.j.PurgeThreads(ctx, limit)
}

// What Log says.

func (f fair) Commit(ctx context.Context, owner Owner, writes []Write) ([]Result, error) {
	return f.j.Commit(ctx, owner, writes)
}

func (f fair) Load(ctx context.Context, runID string) (Loaded, error) {
	return f.j.Load(ctx, runID)
}

func (f fair) SweepRequestIDs(ctx context.Context, before time.Time) (int, error) {
	return f.j.SweepRequestIDs(ctx, before)
}

// What Reader says.

func (f fair) Get(ctx context.Context, namespace, runID string) (Run, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) (Run, error) { return f.j.Get(ctx, namespace, runID) })
}

func (f fair) Head(ctx context.Context, namespace, runID string) (Run, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) (Run, error) { return f.j.Head(ctx, namespace, runID) })
}

func (f fair) Graph(ctx context.Context, namespace, runID string) (hash string, body []byte, err error) {
	err = f.turns.Read(ctx, namespace, func(ctx context.Context) (err error) {
		hash, body, err = f.j.Graph(ctx, namespace, runID)
		return err
	})
	return hash, body, err
}

func (f fair) GraphBody(ctx context.Context, namespace, hash string) ([]byte, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]byte, error) { return f.j.GraphBody(ctx, namespace, hash) })
}

func (f fair) Requested(ctx context.Context, namespace, method, requestID string) (runID, bodyHash string, err error) {
	err = f.turns.Read(ctx, namespace, func(ctx context.Context) (err error) {
		runID, bodyHash, err = f.j.Requested(ctx, namespace, method, requestID)
		return err
	})
	return runID, bodyHash, err
}

func (f fair) List(ctx context.Context, namespace string, filter Filter, after page.Cursor, limit int) ([]Run, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]Run, error) { return f.j.List(ctx, namespace, filter, after, limit) })
}

func (f fair) Events(ctx context.Context, namespace, runID string, afterSeq int64, limit int) ([]Event, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]Event, error) { return f.j.Events(ctx, namespace, runID, afterSeq, limit) })
}

func (f fair) OpenBelow(ctx context.Context, namespace, runID, graphName string, limit int) ([]string, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]string, error) {
		return f.j.OpenBelow(ctx, namespace, runID, graphName, limit)
	})
}

func (f fair) Descendants(ctx context.Context, namespace, runID string) ([]Descendant, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]Descendant, error) { return f.j.Descendants(ctx, namespace, runID) })
}

func (f fair) CountBelow(ctx context.Context, namespace, runID string, most int) (all, open int, err error) {
	all, err = dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) (n int, err error) {
		n, open, err = f.j.CountBelow(ctx, namespace, runID, most)
		return n, err
	})
	return all, open, err
}

func (f fair) Readers() int {
	return f.j.Readers()
}

func (f fair) LoadFor(ctx context.Context, namespace, runID string) (Loaded, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) (Loaded, error) { return f.j.LoadFor(ctx, namespace, runID) })
}

// What Outbox says.

func (f fair) ClaimOutbox(ctx context.Context, limit int, ttl time.Duration) ([]OutboxItem, error) {
	return f.j.ClaimOutbox(ctx, limit, ttl)
}

func (f fair) AckOutbox(ctx context.Context, acks []OutboxAck) error {
	return f.j.AckOutbox(ctx, acks)
}

func (f fair) RetryOutbox(ctx context.Context, retries []OutboxRetry) error {
	return f.j.RetryOutbox(ctx, retries)
}

func (f fair) Accounting(ctx context.Context, namespace, runID, kind string) (Accounting, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) (Accounting, error) { return f.j.Accounting(ctx, namespace, runID, kind) })
}

func (f fair) OutboxBacklog(ctx context.Context) (int64, error) {
	return f.j.OutboxBacklog(ctx)
}

// What Commands says.

func (f fair) Enqueue(ctx context.Context, p EnqueueRequest) (Enqueued, error) {
	return dbkit.Write(ctx, f.turns, p.Command.Namespace, func(ctx context.Context) (Enqueued, error) { return f.j.Enqueue(ctx, p) })
}

func (f fair) PendingCommands(ctx context.Context, owner Owner, look CommandQuery) ([]Command, error) {
	return f.j.PendingCommands(ctx, owner, look)
}

func (f fair) Outstanding(ctx context.Context, namespace, runID string) (Outstanding, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) (Outstanding, error) { return f.j.Outstanding(ctx, namespace, runID) })
}

func (f fair) UnappliedCommands(ctx context.Context, namespace, runID string, limit int) ([]Command, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]Command, error) {
		return f.j.UnappliedCommands(ctx, namespace, runID, limit)
	})
}

func (f fair) FindCommand(ctx context.Context, namespace, runID string, kind CommandKind, key string, whole bool) (m Command, found bool, err error) {
	err = f.turns.Read(ctx, namespace, func(ctx context.Context) (err error) {
		m, found, err = f.j.FindCommand(ctx, namespace, runID, kind, key, whole)
		return err
	})
	return m, found, err
}

func (f fair) CommandWakes(ctx context.Context, owner Owner) (<-chan struct{}, error) {
	return f.j.CommandWakes(ctx, owner)
}

// What Interrupts says.

func (f fair) GetInterrupt(ctx context.Context, namespace, id string) (Interrupt, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) (Interrupt, error) { return f.j.GetInterrupt(ctx, namespace, id) })
}

func (f fair) ListInterrupts(ctx context.Context, namespace string, filter InterruptFilter, after page.Cursor, limit int) ([]Interrupt, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]Interrupt, error) {
		return f.j.ListInterrupts(ctx, namespace, filter, after, limit)
	})
}

func (f fair) OldestQuestion(ctx context.Context, namespace, runID string, ofAgent bool) (string, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) (string, error) {
		return f.j.OldestQuestion(ctx, namespace, runID, ofAgent)
	})
}

// What Jobs says.

func (f fair) InsertJobs(ctx context.Context, namespace string, jobs []Job) error {
	return f.turns.Do(ctx, namespace, func(ctx context.Context) error { return f.j.InsertJobs(ctx, namespace, jobs) })
}

// What Workers says.

func (f fair) PutActors(ctx context.Context, self Owner, namespace string, actors []RemoteActor, lease time.Duration, limit int) error {
	leave, err := f.puts.Enter(ctx, namespace)
	if err != nil {
		return err
	}
	defer leave()
	return f.j.PutActors(ctx, self, namespace, actors, lease, limit)
}

func (f fair) RemoteActors(ctx context.Context, namespace string, names []string) ([]RemoteActor, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]RemoteActor, error) { return f.j.RemoteActors(ctx, namespace, names) })
}

func (f fair) ActorNames(ctx context.Context, namespace string) ([]string, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]string, error) { return f.j.ActorNames(ctx, namespace) })
}

func (f fair) SyncWorkers(ctx context.Context, self Owner, s WorkerSync) error {
	return f.j.SyncWorkers(ctx, self, s)
}

func (f fair) Routes(ctx context.Context, namespace, actor string, lease time.Duration) ([]WorkerRoute, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]WorkerRoute, error) { return f.j.Routes(ctx, namespace, actor, lease) })
}

func (f fair) Workers(ctx context.Context, namespace string, lease time.Duration) ([]Worker, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]Worker, error) { return f.j.Workers(ctx, namespace, lease) })
}

func (f fair) WorkerWakes(ctx context.Context) (<-chan struct{}, error) {
	return f.j.WorkerWakes(ctx)
}

// What Deletion says.

func (f fair) DeleteRun(ctx context.Context, namespace, runID string, revision int64, tell TellDeleted) (int, error) {
	return dbkit.Write(ctx, f.turns, namespace, func(ctx context.Context) (int, error) {
		return f.j.DeleteRun(ctx, namespace, runID, revision, tell)
	})
}

func (f fair) PurgeRuns(ctx context.Context, limit int) (more bool, err error) {
	return f.j.PurgeRuns(ctx, limit)
}

// What Blobs says.

func (f fair) NoteBlobs(ctx context.Context, namespace string, refs []BlobRef) ([]BlobState, error) {
	return f.j.NoteBlobs(ctx, namespace, refs)
}

func (f fair) OrphanBlobs(ctx context.Context, grace, again time.Duration, limit int) ([]BlobName, error) {
	return f.j.OrphanBlobs(ctx, grace, again, limit)
}

func (f fair) ForgetBlobs(ctx context.Context, names []BlobName) error {
	return f.j.ForgetBlobs(ctx, names)
}

// What Retention says.

func (f fair) Expired(ctx context.Context, before func(namespace string) time.Time, after Ended, limit int) ([]Ended, error) {
	return f.j.Expired(ctx, before, after, limit)
}

func (f fair) NoteArchive(ctx context.Context, namespace, runID, place string) error {
	return f.j.NoteArchive(ctx, namespace, runID, place)
}

func (f fair) ArchiveOf(ctx context.Context, namespace, runID string) (string, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) (string, error) { return f.j.ArchiveOf(ctx, namespace, runID) })
}

func (f fair) Extend(ctx context.Context, width, ahead time.Duration) (Parts, error) {
	return f.j.Extend(ctx, width, ahead)
}

func (f fair) Shrink(ctx context.Context, before time.Time, limit int) (more bool, err error) {
	return f.j.Shrink(ctx, before, limit)
}

func (f fair) SweepGraphs(ctx context.Context, before time.Time, after Key, limit int) (removed int, next Key, err error) {
	return f.j.SweepGraphs(ctx, before, after, limit)
}

// What ToolLists says.

func (f fair) KeptTools(ctx context.Context, server string) ([]byte, error) {
	return f.j.KeptTools(ctx, server)
}

func (f fair) KeepTools(ctx context.Context, server string, list []byte) error {
	return f.j.KeepTools(ctx, server, list)
}

// What OutcomeCache says.

func (f fair) KeptOutcome(ctx context.Context, namespace string, key []byte, now time.Time) (outcome []byte, until time.Time, err error) {
	err = f.turns.Read(ctx, namespace, func(ctx context.Context) (err error) {
		outcome, until, err = f.j.KeptOutcome(ctx, namespace, key, now)
		return err
	})
	return outcome, until, err
}

func (f fair) SweepOutcomes(ctx context.Context, now time.Time, most int) (int, error) {
	return f.j.SweepOutcomes(ctx, now, most)
}
