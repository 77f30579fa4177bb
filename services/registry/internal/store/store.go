// Package store owns the contract between package accounting and a database: rows in and out as domain
// values, inside one transaction. It must not know any rule of epics, tasks or prices, nor any driver.
package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/idkind"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/feed"
	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
	"github.com/epigraph-run/epigraph/services/registry/internal/words"
)

const (
	// ReasonEpicNotFound names an epic that the namespace does not have.
	ReasonEpicNotFound = "EPIC_NOT_FOUND"
	// ReasonTaskNotFound names a task that the namespace does not have.
	ReasonTaskNotFound = "TASK_NOT_FOUND"
	// ReasonPriceNotFound names a price that the namespace does not have.
	ReasonPriceNotFound = "PRICE_NOT_FOUND"
	// ReasonWorkflowNotFound names a workflow that the namespace does not have.
	ReasonWorkflowNotFound = "WORKFLOW_NOT_FOUND"
	// ReasonVersionNotFound names a version that a workflow does not have.
	ReasonVersionNotFound = "WORKFLOW_VERSION_NOT_FOUND"
	// ReasonPriceExists refuses a second price of one model from the same time on.
	ReasonPriceExists = "PRICE_EXISTS"
)

// Store keeps the registry's data. Implementations are safe for concurrent use. All return equal values,
// times in whole microseconds and UTC included.
type Store interface {
	// Update runs fn in one transaction: commit if fn returns nil, else roll back. fn may run again
	// after a lost race, so it must have no effect besides the transaction. It has a turn of the namespace,
	// as dbkit.Turns says.
	Update(ctx context.Context, namespace string, fn func(context.Context, Tx) error) error
	// View runs fn for reading only, in a turn of the namespace.
	View(ctx context.Context, namespace string, fn func(context.Context, Reader) error) error
	// Sweep marks claims whose lease has ended as lost and deletes requests remembered before the given time.
	// It returns how many of each there were.
	Sweep(ctx context.Context, requestsBefore time.Time) (claims, requests int64, err error)
	// LeaseOrders returns at most limit orders to runs of a database, from each namespace in turn, of
	// each the longest waiting, and hides them from further calls during hold. Orders that are not
	// acknowledged come again after that, those to start after a multiple of it that grows with each
	// lease. Orders to start, and to runs of an unknown database, come to every caller. Concurrent
	// calls may get fewer than there are.
	LeaseOrders(ctx context.Context, database string, limit int, hold time.Duration) ([]epic.Order, error)
	// AcknowledgeOrders deletes orders, by namespace, task, run and id. Missing ones are no error.
	AcknowledgeOrders(ctx context.Context, done []epic.Order) error
	// AccountsOfCalls returns those of the accounts that exist, and those of the epics of the tasks. It also
	// returns the epic of each task that exists.
	AccountsOfCalls(ctx context.Context, namespace string, ids []ledger.ID, taskIDs []string) (found []ledger.Account, epics map[string]string, err error)
	// ForgottenReservations returns at most limit reservations whose lease has ended, the longest forgotten,
	// by namespace and key.
	ForgottenReservations(ctx context.Context, limit int) ([]Forgotten, error)
	// SweepLedger removes accounts of runs of which nothing was reserved or booked since the day before a
	// time, and forgets reservations whose lease ended before it and that were booked at their estimate: at
	// most limit of each.
	SweepLedger(ctx context.Context, before time.Time, limit int) (accounts, reservations int64, err error)
	// CappedNamespaces returns at most limit namespaces behind one, by name, that have epics which a cap of
	// the namespace has stopped.
	CappedNamespaces(ctx context.Context, after string, limit int) ([]string, error)
	// QuietEpics returns at most limit epics behind one, by namespace and id, that run by themselves and have
	// a task that is ready, while a confirmed claim with an estimate holds nothing, as Estimated says.
	QuietEpics(ctx context.Context, quiet time.Time, after EpicKey, limit int) ([]EpicKey, error)
	// SeedPrices adds prices of no namespace and skips those that are there.
	SeedPrices(ctx context.Context, prices []usage.Price) error
	// SweepWorkflows removes workflows that were deleted before the one time, with their versions, and
	// forgets which runs were counted, and how far sources had advanced, before the other. It returns how
	// many workflows there were, and how many of all others.
	SweepWorkflows(ctx context.Context, deletedBefore, runsBefore time.Time) (workflows, runs int64, err error)
	// SweepFeed removes events that are older, or more, than the bounds allow, some of them at a time.
	SweepFeed(ctx context.Context, b feed.Bounds, now time.Time) (removed int64, err error)
	// SweepMemory removes entries that have expired, and records of reads that are older, or more, than the
	// bounds allow: at most limit in one transaction. Namespaces have turns until nothing is left, or each
	// has had 20.
	SweepMemory(ctx context.Context, b MemoryBounds, now time.Time, limit int) (entries, reads int64, err error)
	// SweepAPIKeys removes keys that have ended before a time, at most limit of those that have
	// expired and of those that were revoked.
	SweepAPIKeys(ctx context.Context, endedBefore time.Time, limit int) (removed int64, err error)
	// SweepAudit removes entries of the audit log of calls that began before a time: at most limit in one
	// transaction, in the turns of SweepMemory.
	SweepAudit(ctx context.Context, before time.Time, limit int) (removed int64, err error)
	// LeaseUnembedded hands out entries of all namespaces that have no vector of a model. Until the
	// lease ends, after hold, nobody else gets them.
	LeaseUnembedded(ctx context.Context, model string, limit int, hold time.Duration) ([]memory.Entry, error)
	// FeedChanges returns a channel that has a value when the feed of a namespace may have new events, until
	// stop. Those that another process writes are told while Follow runs, and soon. Some may not be told:
	// whoever waits looks from time to time.
	FeedChanges(namespace string) (changed <-chan struct{}, stop func())
	// Follow tells other processes of new events, and hears of theirs, until ctx ends.
	Follow(ctx context.Context) error
	// Ready returns nil if the database answers and has the schema that this binary knows.
	Ready(ctx context.Context) error
	// Close may be called more than once.
	Close() error
}

// Reader reads. Every method sees one namespace only; the error for a missing row is errs.NotFound.
type Reader interface {
	MemoryReader
	APIKeyReader
	AuditReader
	Epic(ctx context.Context, namespace, id string) (epic.Epic, error)
	Task(ctx context.Context, namespace, id string) (epic.Task, error)
	// BlockedBy returns at most limit of the failed and canceled tasks that a task depends on, itself or
	// through others that are blocked, by id.
	BlockedBy(ctx context.Context, namespace, taskID string, limit int) ([]string, error)
	// Epics lists the newest first.
	Epics(ctx context.Context, q EpicQuery) (Found[epic.Epic], error)
	// FindEpics returns the epics that have one of the words and pass the filters, in no order, with the
	// weights of all words that they have. Of each word it looks at the newest epics that have it,
	// MaxFound of all words together.
	FindEpics(ctx context.Context, q SearchQuery) ([]epic.Hit, error)
	// EpicsOf reads those of the epics that there are.
	EpicsOf(ctx context.Context, namespace string, ids []string) (map[string]epic.Epic, error)
	// SlugsOf returns the workflows of the tasks of epics, MaxSlugs of each at most, by name: of a task the
	// version that its run runs, or else what the task names.
	SlugsOf(ctx context.Context, namespace string, ids []string) (map[string][]string, error)
	// Tasks lists the oldest first.
	Tasks(ctx context.Context, q TaskQuery) (Found[epic.Task], error)
	// Entries lists the newest first.
	Entries(ctx context.Context, q EntryQuery) ([]usage.Entry, error)
	// Report sums up entries by groups, the dearest first, with the sum and the number of all groups.
	Report(ctx context.Context, q ReportQuery) (rows []usage.Report, all usage.Sum, groups int64, err error)
	// NamespaceTotals is zero for a namespace that has used nothing.
	NamespaceTotals(ctx context.Context, namespace string) (usage.Totals, error)
	// Prices lists the prices of a namespace and those of none, by provider, model and date.
	Prices(ctx context.Context, q PriceQuery) ([]usage.Price, error)
	// Price finds one of the namespace or of none.
	Price(ctx context.Context, namespace, id string) (usage.Price, error)
	// PriceBook returns all prices that may concern these models.
	PriceBook(ctx context.Context, namespace string, models []string) (usage.Book, error)

	// Accounts returns those of the accounts that exist, by level and name.
	Accounts(ctx context.Context, namespace string, ids []ledger.ID) ([]ledger.Account, error)

	// Booked returns those of the keys that have a usage entry, in no order.
	Booked(ctx context.Context, namespace string, keys []usage.Key) ([]usage.Key, error)
	// TaskTotals returns epic and totals of those of the tasks that exist.
	TaskTotals(ctx context.Context, namespace string, ids []string) (map[string]TaskTotals, error)

	// SelfRunning returns the epics that run by themselves of some tasks, and of those that are named, in one
	// statement.
	SelfRunning(ctx context.Context, namespace string, tasks, epics []string) ([]SelfRunning, error)
	// CappedEpics returns at most limit epics behind one, by id, that a cap of the namespace has stopped:
	// all, or those of which no run works on a task or is about to.
	CappedEpics(ctx context.Context, namespace, after string, all bool, limit int) ([]string, error)

	// Reservations returns those of the reservations that exist, by key.
	Reservations(ctx context.Context, namespace string, keys []usage.Key) ([]ledger.Held, error)

	// OutputSamples are samples of what calls of models put out, by model, in no order.
	OutputSamples(ctx context.Context, namespace string, models []string) (map[string][]int64, error)

	// Workflow finds one that is not deleted, by slug or id.
	Workflow(ctx context.Context, namespace, name string) (catalog.Workflow, error)
	// Slugs returns the slugs of those workflows that are not deleted, by id.
	Slugs(ctx context.Context, namespace string, ids []string) (map[string]string, error)
	// Workflows lists those that are not deleted, the newest first.
	Workflows(ctx context.Context, q WorkflowQuery) (Found[catalog.Workflow], error)
	// WorkflowVersion reads a version with its text and its graph. slug is for the error.
	WorkflowVersion(ctx context.Context, namespace, id, slug string, number int64) (catalog.Version, error)
	// WorkflowVersions lists the versions of a workflow without texts and graphs, at most limit of
	// those before a number, which 0 leaves out; the newest first.
	WorkflowVersions(ctx context.Context, namespace, id string, before int64, limit int) ([]catalog.Version, error)
	// Samples returns the samples of runs of a version, in no order.
	Samples(ctx context.Context, namespace, id string, version int64) ([]catalog.Sample, error)
	// Request finds a request that was remembered; seen is false if none was.
	Request(ctx context.Context, namespace, method, id string) (earlier Request, seen bool, err error)

	// Events reads the feed of a namespace, the oldest events first: all that were committed when it began,
	// without a gap. A cursor is refused as feed.CheckCursor says.
	Events(ctx context.Context, q feed.Query) (feed.Page, error)
	// FeedEnd is the cursor behind the last event of a namespace.
	FeedEnd(ctx context.Context, namespace string) (int64, error)

	// VersionOf is the number of the version of a workflow whose content has this hash, 0 if there is none.
	VersionOf(ctx context.Context, namespace, id, hash string) (int64, error)
	// ChangedWorkflows returns at most limit workflows of a namespace, deleted ones too, that have
	// changed after a change, in the order of their changes.
	ChangedWorkflows(ctx context.Context, namespace string, after int64, limit int) ([]catalog.Workflow, error)
}

// Place is how far the changes of a source outside the registry were recorded: of a run, by the sequence of
// its events.
type Place struct {
	Source string
	Seq    int64
}

// Tx reads and writes in one transaction. The lock of an epic guards all of its tasks and claims:
// every writer of one of them holds it, so values read after locking stay true until the end. What it
// changes of epics, tasks, usage, caps, prices, workflows and memory becomes events of the feed by
// itself, when it commits.
type Tx interface {
	Reader
	MemoryTx
	APIKeyTx
	AuditTx
	// Clock is the database's time, by which leases run.
	Clock(ctx context.Context) (time.Time, error)
	// Remember keeps a request, or returns the one that came earlier under the same namespace, method
	// and id. Of two at the same time one waits until the other has committed or rolled back.
	Remember(ctx context.Context, r Request) (earlier Request, seen bool, err error)
	// Forget removes a request that was remembered, if it still is and has made this resource.
	Forget(ctx context.Context, r Request) error

	// LockEpic locks an epic and reads it.
	LockEpic(ctx context.Context, namespace, id string) (epic.Epic, error)
	// LockSpent locks the existing ones of the epics, in order of their ids, and returns the amount spent on
	// each.
	LockSpent(ctx context.Context, namespace string, ids []string) (map[string]usage.Totals, error)
	// CountEpics counts the epics of a namespace, up to most.
	CountEpics(ctx context.Context, namespace string, most int) (int, error)
	InsertEpic(ctx context.Context, e epic.Epic) error
	// PutEpic writes all but Spent, and only over this revision; otherwise it is a Conflict.
	PutEpic(ctx context.Context, e epic.Epic, over int64) error
	// DeleteEpic removes an epic of this revision with its tasks and claims, but not the orders to
	// their runs; otherwise it is a Conflict.
	DeleteEpic(ctx context.Context, namespace, id string, revision int64) error

	// AddWords adds weights to the words by which a locked epic is found. A word is forgotten where nothing
	// is left of its weight.
	AddWords(ctx context.Context, namespace, epicID string, added words.Weights) error

	InsertTask(ctx context.Context, t epic.Task) error
	// PutTask writes all but Actual, and only over this revision; otherwise it is a Conflict.
	PutTask(ctx context.Context, t epic.Task, over int64) error
	// DeleteTask removes a task of this revision and its claims, but not its id from other tasks, which
	// ForgetDependency does.
	DeleteTask(ctx context.Context, namespace, id string, revision int64) error
	// EndTasks moves all tasks of an epic that are in one of these states to another, as of now. A principal
	// that is not empty did that.
	EndTasks(ctx context.Context, namespace, epicID string, from []epic.TaskState, to epic.TaskState, now time.Time, principal string) error
	// TaskStates returns the states of those of the tasks that are in the epic.
	TaskStates(ctx context.Context, namespace, epicID string, ids []string) (map[string]epic.TaskState, error)
	// CountTasks counts the tasks of an epic in this state.
	CountTasks(ctx context.Context, namespace, epicID string, state epic.TaskState) (int, error)
	// Blocked returns at most limit of the blocked tasks that depend on this one, with ids after another, by
	// id.
	Blocked(ctx context.Context, namespace, taskID, after string, limit int) ([]epic.Dependent, error)
	// Dead returns the tasks of an epic that have failed or were canceled.
	Dead(ctx context.Context, namespace, epicID string) ([]string, error)
	// Doomed returns the blocked tasks of an epic that do not go on since some tasks have failed or were
	// canceled: those that depend on one of them, or on another of the doomed, and whose policy is not Block.
	// policy is that of the epic. They come by id.
	Doomed(ctx context.Context, namespace, epicID string, policy epic.DependencyPolicy, tasks []string) ([]epic.Dependent, error)
	// PutStates writes only the states of tasks, and EndedBy and the time of those that end, each only over
	// the revision that was read, which it increments; if one has changed it is a Conflict.
	PutStates(ctx context.Context, namespace string, tasks []epic.Dependent, now time.Time) error
	// ForgetDependency takes a task out of what all others depend on, as of now, and returns how many they
	// are. A principal that is not empty did that.
	ForgetDependency(ctx context.Context, namespace, taskID string, now time.Time, principal string) (int, error)
	// Edges returns what each of these tasks depends on; tasks that depend on nothing are left out.
	Edges(ctx context.Context, namespace string, ids []string) (map[string][]string, error)

	// Claim returns what a run has to do with a task, or nil.
	Claim(ctx context.Context, namespace, taskID, runID string) (*epic.Claim, error)
	// ActiveClaim returns the claim of a task that is Claimed, its lease over or not, or Confirmed; or nil.
	ActiveClaim(ctx context.Context, namespace, taskID string) (*epic.Claim, error)
	// PutClaim adds a claim or overwrites that of the same task and run.
	PutClaim(ctx context.Context, c epic.Claim) error
	// Estimated sums up what claims that are not over hold of the estimates of their tasks: what is
	// neither booked since nor reserved. They are those of an epic, or of the whole namespace if epicID
	// is empty, without that of one task. A confirmed claim holds nothing while its task stands as it was
	// before a time, and nothing is reserved for it.
	Estimated(ctx context.Context, namespace, epicID, exceptTask string, quiet time.Time) (int64, error)
	// CancelRuns orders every run to cancel that has a claim, not settled, of this task, or of any task
	// of the epic if taskID is empty. It replaces other orders.
	CancelRuns(ctx context.Context, namespace, epicID, taskID, reason string) error
	// CancelRun orders one run to cancel that has confirmed its claim, of this database.
	CancelRun(ctx context.Context, namespace, taskID, runID, database, reason string) error
	// OrderRuns orders every run to pause or to resume that has confirmed its claim of this task, or of
	// any task of the epic if taskID is empty. It replaces an order that is not a cancel. If that one
	// is leased, the new one is due when the lease has ended, so that the two cannot be carried out in
	// the wrong order.
	OrderRuns(ctx context.Context, namespace, epicID, taskID string, kind epic.OrderKind, reason string) error
	// ForgetOrder removes the order to a run, if there is one.
	ForgetOrder(ctx context.Context, namespace, taskID, runID string) error

	// AnyOpen reports whether an epic has a task that has not ended.
	AnyOpen(ctx context.Context, namespace, epicID string) (bool, error)
	// AnyRetryable reports whether an epic has a task that has failed, by no policy, and may be tried again.
	AnyRetryable(ctx context.Context, namespace, epicID string) (bool, error)
	// Busy counts, up to most, the tasks of an epic that are RUNNING by a run or have an order to
	// start.
	Busy(ctx context.Context, namespace, epicID string, most int) (int, error)
	// Ready returns at most limit PENDING tasks of an epic without an order to start, the most urgent
	// first and then the oldest.
	Ready(ctx context.Context, namespace, epicID string, limit int) ([]epic.Ready, error)
	// OrderStarts orders tasks of an epic to be started, each after its pause.
	OrderStarts(ctx context.Context, namespace, epicID string, tasks []epic.Ready) error
	// EstimatedStarts sums up the estimates of the tasks of an epic that are ordered to start and not
	// claimed.
	EstimatedStarts(ctx context.Context, namespace, epicID string) (int64, error)
	// StartOrder is the id of the order to start a task; empty if there is none.
	StartOrder(ctx context.Context, namespace, taskID string) (string, error)
	// ForgetStarts removes the order to start a task, or those of all tasks of the epic if taskID is
	// empty.
	ForgetStarts(ctx context.Context, namespace, epicID, taskID string) error
	// Overspent returns those of the epics that run by themselves, are active and have spent their
	// budget.
	Overspent(ctx context.Context, namespace string, ids []string) ([]string, error)
	// ReleaseClaims moves the active claims of all tasks of an epic to Released.
	ReleaseClaims(ctx context.Context, namespace, epicID string) error

	// Book adds entries that are sorted by key, except those whose key is taken. It returns all of them as
	// they are booked, in the same order, and which are new.
	Book(ctx context.Context, namespace string, entries []usage.Entry) (booked []usage.Entry, fresh []bool, err error)
	// PutTotals overwrites the totals of locked epics and of their tasks.
	PutTotals(ctx context.Context, namespace string, epics, tasks map[string]usage.Totals, now time.Time) error
	// LockNamespaceTotals locks and returns the totals of a namespace. It comes after every other lock.
	LockNamespaceTotals(ctx context.Context, namespace string) (usage.Totals, error)
	PutNamespaceTotals(ctx context.Context, namespace string, t usage.Totals) error
	// AddSums adds to the sums of days, runs and epics. They come in order, each once.
	AddSums(ctx context.Context, namespace string, s usage.Sums) error
	// LockAccounts locks those of the accounts that exist, in the order of their ids, and returns them. It
	// comes after the locks of epics and of reservations. That of a namespace comes after the lock of its
	// totals, and so do those of runs that are opened meanwhile; the others come before it.
	LockAccounts(ctx context.Context, namespace string, ids []ledger.ID) ([]ledger.Account, error)
	// OpenAccounts adds those of the accounts that do not exist. It waits for others who add one of them.
	OpenAccounts(ctx context.Context, namespace string, accounts []ledger.Account) error
	// BookedOfRuns sums up what is booked of each of the runs itself, but for what clients recorded.
	BookedOfRuns(ctx context.Context, namespace string, runIDs []string) (map[string]ledger.Amount, error)
	// PutAccounts overwrites locked accounts.
	PutAccounts(ctx context.Context, namespace string, accounts []ledger.Account) error
	// LockReservations locks those of the reservations that exist, by key, and returns them.
	LockReservations(ctx context.Context, namespace string, keys []usage.Key) ([]ledger.Held, error)
	// LockForCalls is LockAccounts. Once the accounts are locked it also finds those of the keys that are
	// reserved or have a usage entry, in no order.
	LockForCalls(ctx context.Context, namespace string, ids []ledger.ID, keys []usage.Key) ([]ledger.Account, []usage.Key, error)
	// TakeReservations adds reservations, which are forgotten after the lease, and overwrites the locked
	// accounts from which they take.
	TakeReservations(ctx context.Context, namespace string, held []ledger.Held, lease time.Duration, from []ledger.Account) error
	// OwnReservations gives reservations, which come by key, the incarnation of a later owner. It comes
	// before the locks of accounts.
	OwnReservations(ctx context.Context, namespace string, held []ledger.Held) error
	DeleteReservations(ctx context.Context, namespace string, keys []usage.Key) error
	// RenewReservations lets leases end so long after now.
	RenewReservations(ctx context.Context, namespace string, keys []usage.Key, lease time.Duration) error
	// EstimateReservations notes that reservations are booked at their estimate.
	EstimateReservations(ctx context.Context, namespace string, keys []usage.Key) error
	// CountPrices counts the prices that a namespace has added, up to most.
	CountPrices(ctx context.Context, namespace string, most int) (int, error)
	// InsertPrice returns AlreadyExists if the model has a price from the same time on.
	InsertPrice(ctx context.Context, p usage.Price) error
	// AddPrice adds a price unless the model has one from the same time on. It returns the price that is
	// there then, without its end.
	AddPrice(ctx context.Context, p usage.Price) (there usage.Price, added bool, err error)

	// NextChange locks the catalog of a namespace until the end of the transaction, and returns the
	// number of a change: every writer of workflows holds the lock, so changes are numbered in the
	// order of their commits.
	NextChange(ctx context.Context, namespace string) (int64, error)
	// CountExposed counts the workflows of a namespace that are exposed, up to most.
	CountExposed(ctx context.Context, namespace string, most int) (int, error)
	// CountWorkflows counts the workflows of a namespace, deleted ones too, up to most.
	CountWorkflows(ctx context.Context, namespace string, most int) (int, error)
	// LastSlug is the greatest number of the slugs of a base, 0 if there are none.
	LastSlug(ctx context.Context, namespace, base string) (int64, error)
	// TakenSlugs returns those of the slugs that workflows have, deleted ones too.
	TakenSlugs(ctx context.Context, namespace string, slugs []string) ([]string, error)
	InsertWorkflow(ctx context.Context, w catalog.Workflow) error
	// PutWorkflow writes all but the history, and only over this revision; otherwise it is a Conflict.
	PutWorkflow(ctx context.Context, w catalog.Workflow, over int64) error
	InsertVersion(ctx context.Context, v catalog.Version) error
	// VersionsAmong returns those of the numbers that are versions of a workflow.
	VersionsAmong(ctx context.Context, namespace, id string, numbers []int64) ([]int64, error)
	// TellRun adds what became of a run to the events of the transaction. The slug is that of its workflow,
	// if it has one, and the epic the one that it works for, if it does.
	TellRun(slug, epicID string, kind feed.Kind, state feed.RunState)
	// TellThread adds what became of a thread to the events of the transaction.
	TellThread(threadID string, kind feed.Kind, state feed.ThreadState)
	// Advance notes that changes of sources outside the registry were recorded, and reports for each whether
	// it is behind the last one of its source that was noted before. Others that advance in the namespace
	// wait until the commit.
	Advance(ctx context.Context, namespace string, to []Place, now time.Time) (fresh []bool, err error)
	// CountRun notes that a run has been counted, and reports whether it was not before.
	CountRun(ctx context.Context, namespace, runID, workflowID string, version int64, now time.Time) (fresh bool, err error)
	// RunTotals sums up what was booked of the calls of a run.
	RunTotals(ctx context.Context, namespace, runID string) (catalog.History, error)
	// AddHistory adds to the history of a version and of its workflow, which has changed by that.
	AddHistory(ctx context.Context, namespace, id string, version int64, h catalog.History, change int64) error
	// AddSamples keeps samples of runs of a version that AddHistory has counted just before as
	// completed or failed. They take the places of the oldest: catalog.MaxSamples are kept.
	AddSamples(ctx context.Context, namespace, id string, version int64, samples []catalog.Sample) error
}

// Request is a repeatable request that was served.
type Request struct {
	Namespace, Method, ID string
	// BodyHash identifies the content of the request, to compare repetitions.
	BodyHash [32]byte
	// Resource is the id of what the request made or changed.
	Resource string
	Time     time.Time
}

// Forgotten is a reservation whose lease has ended.
type Forgotten struct {
	Namespace string
	Key       usage.Key
}

// Compare orders forgotten reservations by namespace and key.
func (f Forgotten) Compare(o Forgotten) int {
	return cmp.Or(cmp.Compare(f.Namespace, o.Namespace), f.Key.Compare(o.Key))
}

// TaskTotals is what a roll-up must know of a task.
type TaskTotals struct {
	EpicID string
	Totals usage.Totals
}

// EpicKey names an epic of any namespace.
type EpicKey struct{ Namespace, ID string }

// SelfRunning is an epic that runs by itself.
type SelfRunning struct {
	// TaskID is the task whose epic was asked for; empty if the epic was named.
	TaskID, EpicID string
	State          epic.State
	PauseReason    string
}

// EpicQuery filters epics; all filters that are set must hold.
type EpicQuery struct {
	Namespace string
	States    []epic.State
	// AnyTag matches epics that have one of these.
	AnyTag []string
	// Text is searched in the folded title and description.
	Text   string
	Labels map[string]string
	Owners Owners
	// From and Until bound when they were created; Until is left out itself.
	From, Until time.Time
	After       page.Cursor
	Limit       int
	// Look is how many epics are looked at; 0 is MaxLook.
	Look int
}

const (
	// MaxFound is how many epics a search looks at.
	MaxFound = 1024
	// MaxSlugs is how many workflows are named with an epic that was found.
	MaxSlugs = 20
)

// Owners says whose epics are looked for; the zero value is those of everybody.
type Owners struct {
	// UserID matches epics of this user.
	UserID string
	// OpenTo matches epics of this user and those of no user.
	OpenTo string
}

// SearchQuery filters epics that are searched; all filters that are set must hold.
type SearchQuery struct {
	Namespace string
	// Words are different ones, at most words.MaxQuery.
	Words  []string
	States []epic.State
	// AnyTag matches epics that have one of these.
	AnyTag []string
	Owners Owners
	// From and Until bound when they were created; Until is left out itself.
	From, Until time.Time
}

// TaskQuery filters tasks; all filters that are set must hold.
type TaskQuery struct {
	Namespace, EpicID string
	States            []epic.TaskState
	// AnyTag matches tasks that have one of these.
	AnyTag []string
	Labels map[string]string
	After  page.Cursor
	Limit  int
	// Look is how many tasks are looked at; 0 is MaxLook.
	Look int
}

// EntryQuery filters usage entries; all filters that are set must hold. The cursor is time and ID.
type EntryQuery struct {
	Namespace, EpicID, TaskID, RunID string
	After                            page.Cursor
	Limit                            int
}

// ReportQuery groups and filters usage entries; all filters that are set must hold.
type ReportQuery struct {
	Namespace string
	// By is one key or two different ones.
	By                    []usage.ReportKey
	EpicID, TaskID, RunID string
	// From and To are the first and the last day; nil does not bound.
	From, To *usage.Day
	// Kind is 0 for all.
	Kind usage.Kind
	// After is where the page begins; nil is the start.
	After *ReportPlace
	Limit int
	// Most is how many entries, or sums of runs or nodes, are read where sums of days do not answer; 0 is
	// usage.MaxReported.
	Most int
}

// ReportPlace is a place in a report: behind Skip of the groups that cost NanoUSD. Keys may be longer than a
// page token, so the place does not name one.
type ReportPlace struct{ NanoUSD, Skip int64 }

// Narrow reports whether the query is not answered from sums of days, but from entries or sums of runs
// or nodes.
func (q ReportQuery) Narrow() bool {
	return q.TaskID != "" || q.RunID != "" || slices.ContainsFunc(q.By, func(k usage.ReportKey) bool {
		return k == usage.ByTask || k == usage.ByRun || k == usage.ByNode
	})
}

// OfRuns reports whether the query is answered from sums of runs, which know no day and no node. A
// single run is looked for among the entries, of which there is an index by run.
func (q ReportQuery) OfRuns() bool {
	return q.EpicID != "" && q.RunID == "" && q.From == nil && q.To == nil && q.Narrow() &&
		!slices.Contains(q.By, usage.ByNode) && !slices.Contains(q.By, usage.ByDay)
}

// OfNodes reports whether the query is answered from sums of days and nodes, which know no task, run,
// model and actor.
func (q ReportQuery) OfNodes() bool {
	return q.TaskID == "" && q.RunID == "" && slices.Contains(q.By, usage.ByNode) && !slices.ContainsFunc(q.By, func(k usage.ReportKey) bool {
		return k != usage.ByNode && k != usage.ByDay && k != usage.ByEpic
	})
}

// OfEpics reports whether the query is answered from sums of epics, which know no day and no kind.
func (q ReportQuery) OfEpics() bool {
	return q.EpicID == "" && q.TaskID == "" && q.RunID == "" && q.From == nil && q.To == nil && q.Kind == 0 &&
		len(q.By) == 1 && q.By[0] == usage.ByEpic
}

// PriceQuery filters prices; all filters that are set must hold. Of the cursor only the ID counts:
// the list goes on after the price that it names.
type PriceQuery struct {
	Namespace, Provider, Model string
	After                      page.Cursor
	Limit                      int
}

// WorkflowQuery filters workflows; all filters that are set must hold.
type WorkflowQuery struct {
	Namespace string
	States    []catalog.State
	// AnyTag matches workflows that have one of these.
	AnyTag []string
	// Exposed matches workflows that are.
	Exposed bool
	After   page.Cursor
	Limit   int
	// Look is how many workflows are looked at; 0 is MaxLook.
	Look int
}

// WorkflowNotFound is the error for a workflow that is not there.
func WorkflowNotFound(name string) error {
	return errs.New(errs.NotFound, ReasonWorkflowNotFound, "there is no workflow %q", name).Hint(idkind.Hint(name, catalog.Prefix, "ListWorkflows lists the existing ones"))
}

// VersionNotFound is the error for a version that a workflow does not have.
func VersionNotFound(slug string, number int64) error {
	return errs.New(errs.NotFound, ReasonVersionNotFound, "workflow %q has no version %d", slug, number).Hint("ListWorkflowVersions lists the existing ones")
}

// EpicNotFound is the error for an epic that is not there.
func EpicNotFound(id string) error {
	return errs.New(errs.NotFound, ReasonEpicNotFound, "there is no epic %q", id).Hint(idkind.Hint(id, "ep", "ListEpics lists the existing ones"))
}

// TaskNotFound is the error for a task that is not there.
func TaskNotFound(id string) error {
	return errs.New(errs.NotFound, ReasonTaskNotFound, "there is no task %q", id).Hint(idkind.Hint(id, "tk", "ListTasks lists the existing ones"))
}

// PriceNotFound is the error for a price that is not there.
func PriceNotFound(id string) error {
	return errs.New(errs.NotFound, ReasonPriceNotFound, "there is no price %q", id)
}

// PriceExists is the error for a second price of one model from the same time on.
func PriceExists(p usage.Price) error {
	return errs.New(errs.AlreadyExists, ReasonPriceExists, "provider %q has a price for model %q from %s on",
		p.Provider, p.Model, p.ValidFrom.Format(time.RFC3339)).Hint("let the new price begin later; prices are never changed")
}

// Changed is the error for a row that is no longer at the revision that was read.
func Changed(what, id string) error {
	return errs.New(errs.Conflict, epic.ReasonEtagMismatch, "%s %s has changed meanwhile", what, id).
		Hint("read it again and repeat the change with the present etag")
}
