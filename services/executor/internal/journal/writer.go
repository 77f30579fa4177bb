package journal

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/internal/turns"
)

// Committer is what a Writer needs of a Journal.
type Committer interface {
	Commit(ctx context.Context, owner Owner, writes []Write) ([]Result, error)
}

// WriterOptions tune a Writer; zero fields take the defaults named at each.
type WriterOptions struct {
	// Limits are checked by Submit; default DefaultLimits.
	Limits Limits
	// MaxRows and MaxBytes bound a batch; defaults 1,000 and 4 MiB. A larger write goes alone. While commits
	// take long batches are smaller.
	MaxRows, MaxBytes int
	// MaxBacklog is how many bytes may wait before new runs are refused, half of it of one namespace, or one
	// write; default 64 MiB. Appends are always taken, since what they tell has already happened. What a
	// namespace has beyond its half keeps out nobody else's runs.
	MaxBacklog int
	// Timeout bounds one try of a commit; default 30 s.
	Timeout time.Duration
	// Drain bounds how long a stopping Writer goes on with what waits; default 10 s.
	Drain time.Duration
	// RowEvery is how far a run's row may lie behind its journal in what the journal tells as well: nodes and
	// the time of the last change. Default 1 s; negative lets every append write the status that it carries.
	RowEvery time.Duration
	// Packer gives values the form in which they are kept; nil keeps them as they are.
	Packer Packer
	// Logger gets a warning for each failed try; nil discards.
	Logger *slog.Logger
	// Account is told how many bytes of a namespace's writes wait, or do not any more; nil is fine.
	Account func(namespace string, bytes int64)
	// Observe is called after each batch, one call at a time; nil is fine.
	Observe func(Batch)
}

// Batch tells how one batch went.
type Batch struct {
	Writes, Rows, Bytes int
	// Waited is how long the oldest write of the batch had waited before it was taken.
	Waited time.Duration
	// Duration is from the first try to the answer; Tries is 1 if nothing went wrong.
	Duration time.Duration
	Tries    int
	// Err is set if the writer gave up.
	Err error
}

// Writer is the group commit of one owner: one goroutine at a time leads, which takes all that waits, commits
// it in one flush, answers, and takes the next. There is no timer: a lone write is committed at once, and
// under load batches grow by themselves. It is Run's goroutine that leads, unless somebody else does so for a
// batch by Lead. While commits take long, a second batch is committed beside the first, of namespaces that
// have nothing in it: who writes little does not wait for the batches of who writes much. Writes of one run
// keep the order of their Submits; namespaces take turns. Safe for concurrent use.
type Writer struct {
	c     Committer
	owner Owner
	o     WriterOptions
	wake  chan struct{}
	// beside wakes who commits a second batch.
	beside chan struct{}
	done   chan struct{}
	rows   *statusCoalescer
	// observing lets Observe be called once at a time.
	observing sync.Mutex
	// slots are for the writes that store large values, and lanes for those of one namespace. storing is
	// those writes.
	slots   chan struct{}
	lanes   *turns.Turns
	storing sync.WaitGroup

	mu     sync.Mutex
	held   map[string][]*held // see hold
	queues map[string]*queue
	// turn are the namespaces with something waiting and nothing in a batch that is being committed, the next
	// one first.
	turn   []string
	bytes  map[string]int // of each namespace, what waits
	count  int
	closed error // why nothing more is taken
	err    error // why Run ended
	// flights is how many batches are being committed, flying are the namespaces in them.
	flights int
	flying  map[string]struct{}
	// most is how many rows a batch may have just now, and mostBytes how many bytes.
	most, mostBytes int
	// hard ends when the writer gives up; nil until it runs.
	hard context.Context //nolint:containedctx // those who submit and lead have none that a commit may end with
	// broken is why a leader gave up, for Run to end with.
	broken error
	// timed says that Run looks after rows that are behind.
	timed bool
}

type queue struct{ items []item }

type item struct {
	write Write
	done  func(Result)
	rows  int
	size  int
	since time.Time
	// counted is what was told to Account: the values as they came, and as they are to be kept.
	counted int64
	// whole says that the status of the write is to be written, whatever the row says.
	whole bool
}

// NewWriter returns a writer for owner. Nothing is written until Run runs.
func NewWriter(c Committer, owner Owner, o WriterOptions) *Writer {
	def := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	if o.Limits == (Limits{}) {
		o.Limits = DefaultLimits()
	}
	def(&o.MaxRows, 1000)
	def(&o.MaxBytes, 4<<20)
	def(&o.MaxBacklog, 64<<20)
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Drain <= 0 {
		o.Drain = 10 * time.Second
	}
	if o.RowEvery == 0 {
		o.RowEvery = time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Writer{
		c: c, owner: owner, o: o, most: o.MaxRows, mostBytes: o.MaxBytes, rows: newStatusCoalescer(o.RowEvery),
		wake: make(chan struct{}, 1), beside: make(chan struct{}, 1), done: make(chan struct{}),
		slots: make(chan struct{}, maxStoring), lanes: turns.New(maxStoring / 2),
		held: map[string][]*held{}, queues: map[string]*queue{}, bytes: map[string]int{}, flying: map[string]struct{}{},
	}
}

// Submit queues w and returns at once. If it returns nil, done is called exactly once, by whoever
// leads: it must not block, and may Submit. An error means that nothing was queued and
// done is not called: a permanent one (ReasonPayloadTooLarge, ReasonWriteInvalid), ReasonBacklogFull for a
// Start, or the reason why the writer stopped.
func (w *Writer) Submit(wr Write, done func(Result)) error {
	return w.submit(wr, done, true)
}

// Leave is Submit for those who call Lead as soon as they can wait for a commit: until somebody leads,
// nothing happens.
func (w *Writer) Leave(wr Write, done func(Result)) error {
	return w.submit(wr, done, false)
}

func (w *Writer) submit(wr Write, done func(Result), call bool) error {
	if err := Validate(wr, w.o.Limits); err != nil {
		return err
	}
	counted := int64(wr.Size())
	var store func(context.Context) Write
	if w.o.Packer != nil {
		wr, store = w.o.Packer.Pack(wr)
		counted += int64(wr.Size())
	}
	it := item{write: wr, done: done, rows: wr.Rows(), size: wr.Size(), since: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed != nil {
		return w.closed
	}
	if wr.Start != nil && w.full(wr.Namespace(), it.size) {
		return errs.New(errs.Unavailable, ReasonBacklogFull, "too much waits to be written").Hint("try again in a moment")
	}
	if w.o.Account != nil {
		it.counted = counted
		w.o.Account(wr.Namespace(), counted)
	}
	if (store != nil || len(w.held) > 0) && w.hold(it, store) {
		return nil
	}
	w.push(it)
	if call {
		w.notify()
	}
	return nil
}

// full reports whether there is no room for a new run. It is called with w.mu held.
func (w *Writer) full(namespace string, size int) bool {
	share := w.o.MaxBacklog / 2
	own := w.bytes[namespace]
	if own > 0 && own+size > share {
		return true
	}
	others := 0
	for ns, n := range w.bytes {
		if ns != namespace {
			others += min(n, share)
		}
	}
	return others+min(own+size, share) > w.o.MaxBacklog
}

// waits counts n bytes more of a namespace that wait, or less. It is called with w.mu held.
func (w *Writer) waits(namespace string, n int) {
	if w.bytes[namespace] += n; w.bytes[namespace] == 0 {
		delete(w.bytes, namespace)
	}
}

// Lead commits what waits on the caller's goroutine, unless somebody leads already: then that one will. A
// lone write so comes through without waking another goroutine, and another again for its answer. It is one
// batch at most, Run goes on with what came meanwhile.
func (w *Writer) Lead() { w.lead() }

// lead is Lead; it reports whether there was a batch.
func (w *Writer) lead() bool {
	w.mu.Lock()
	if !w.mayFly() || w.hard == nil || w.broken != nil || len(w.turn) == 0 {
		w.mu.Unlock()
		return false
	}
	batch, _ := w.take()
	w.carry(batch)
	if w.broken != nil || w.closed != nil || len(w.turn) > 0 || !w.timed && w.rows.behind() {
		w.notify()
	}
	w.mu.Unlock()
	return true
}

// maxFlights is how many batches are committed at once while commits take long.
const maxFlights = 2

// mayFly reports whether a batch may be committed now. It is called with w.mu held.
func (w *Writer) mayFly() bool {
	return w.flights == 0 || w.flights < maxFlights && (w.most < w.o.MaxRows || w.mostBytes < w.o.MaxBytes)
}

// carry commits a batch and answers it. It is called with w.mu held, and lets go of it meanwhile.
func (w *Writer) carry(batch []item) {
	w.fly(batch)
	w.mu.Unlock()
	err := w.flush(batch)
	w.mu.Lock()
	w.land(batch, err)
}

// fly notes that a batch is being committed: what its namespaces write from now on waits for it. It is called
// with w.mu held.
func (w *Writer) fly(batch []item) {
	w.flights++
	for i := range batch {
		w.flying[batch[i].write.Namespace()] = struct{}{}
	}
	w.turn = slices.DeleteFunc(w.turn, func(ns string) bool { _, in := w.flying[ns]; return in })
}

// land notes that a batch was committed and answered, err if that was the end of the writer. It is called
// with w.mu held.
func (w *Writer) land(batch []item, err error) {
	w.flights--
	for i := range batch {
		ns := batch[i].write.Namespace()
		if _, in := w.flying[ns]; !in {
			continue
		}
		delete(w.flying, ns)
		if q := w.queues[ns]; q != nil {
			w.turn = append(w.turn, ns)
		}
	}
	if w.broken == nil {
		w.broken = err
	}
}

// push puts an item where the next batch finds it.
func (w *Writer) push(it item) {
	ns := it.write.Namespace()
	q := w.queues[ns]
	if q == nil {
		q = &queue{}
		w.queues[ns] = q
		if _, in := w.flying[ns]; !in {
			w.turn = append(w.turn, ns)
		}
	}
	q.items = append(q.items, it)
	w.waits(ns, it.size)
	w.count++
}

// Do submits w and waits for its result. If ctx ends first its error is returned and the write goes
// on: it may still become durable. Result.Err is returned as the error too.
func (w *Writer) Do(ctx context.Context, wr Write) (Result, error) {
	answer := make(chan Result, 1)
	if err := w.Submit(wr, func(r Result) { answer <- r }); err != nil {
		return Result{Err: err}, err
	}
	select {
	case r := <-answer:
		return r, r.Err
	case <-ctx.Done():
		return Result{Err: ctx.Err()}, ctx.Err()
	}
}

// Waiting returns how many writes wait, the batch under way not counted.
func (w *Writer) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// Done is closed when Run has ended and every result was given.
func (w *Writer) Done() <-chan struct{} { return w.done }

// Err says why Run ended: nil after a clean stop, ReasonFenced after a take-over.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Run writes until ctx ends or the owner is fenced; call it once. When ctx ends nothing new is taken
// and what waits is still written, for at most WriterOptions.Drain; then it returns nil, or
// ReasonWriterStopped if something was left. Fenced, every waiting write fails with ReasonFenced and so
// does Run. Any other failure of a commit is tried again with the identical batch for as long as it takes.
func (w *Writer) Run(ctx context.Context) error {
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	finished := make(chan struct{})
	var aux sync.WaitGroup
	aux.Go(func() {
		select {
		case <-ctx.Done():
		case <-finished:
			return
		}
		w.refuse(stopped())
		drain := time.NewTimer(w.o.Drain)
		defer drain.Stop()
		select {
		case <-drain.C:
			cancel()
		case <-finished:
		}
	})
	w.beginStoring(hard)
	aux.Go(func() {
		for {
			select {
			case <-w.beside:
				for w.lead() { // until all that waits has something in the first batch
				}
			case <-finished:
				return
			}
		}
	})
	err := w.loop()
	w.refuse(stopped())
	if err != nil {
		w.fail(err)
	}
	w.mu.Lock()
	w.err = err
	w.mu.Unlock()
	close(finished)
	cancel()
	w.storing.Wait()
	aux.Wait()
	close(w.done)
	return err
}

func (w *Writer) loop() error {
	for {
		w.mu.Lock()
		if !w.mayFly() || w.flights > 0 && (w.broken != nil || w.closed != nil) {
			w.timed = false
			w.mu.Unlock()
			<-w.wake // whoever leads calls us if anything is left to do
			continue
		}
		if w.broken != nil {
			w.mu.Unlock()
			return w.broken
		}
		w.timed = false
		batch, closed := w.take()
		batch, wait := w.owed(batch, closed)
		if len(batch) > 0 {
			w.carry(batch)
			w.mu.Unlock()
			continue
		}
		w.timed = wait > 0
		w.mu.Unlock()
		if closed {
			return nil
		}
		w.rest(wait)
	}
}

// owed adds to a batch the rows that have been behind for too long. It tells too how long it is until there
// are more, 0 if none is behind. It is called with w.mu held.
func (w *Writer) owed(batch []item, closed bool) ([]item, time.Duration) {
	// A run that is written to just now brings its row along by itself.
	inBatch := make(map[string]bool, len(batch))
	for i := range batch {
		inBatch[batch[i].write.RunID()] = true
	}
	now := time.Now()
	if closed {
		// There is no later.
		now = now.Add(w.rows.every)
	}
	owed, wait := w.rows.due(now, w.o.MaxRows, func(namespace, id string) bool {
		_, flying := w.flying[namespace]
		return flying || inBatch[id]
	})
	for _, wr := range owed {
		batch = append(batch, item{write: wr, done: func(Result) {}, rows: 1, since: time.Now(), whole: true})
	}
	return batch, wait
}

// flush commits one batch and answers it. An error means that the writer is over.
func (w *Writer) flush(batch []item) error {
	writes := make([]Write, len(batch))
	b := Batch{Writes: len(batch), Waited: time.Since(batch[0].since)}
	begin := time.Now()
	for i, it := range batch {
		if writes[i] = it.write; !it.whole {
			writes[i] = w.rows.slim(it.write, begin)
		}
		b.Rows += it.rows
		b.Bytes += it.size
		b.Waited = max(b.Waited, time.Since(it.since))
	}
	results, tries, err := w.commit(w.hard, writes)
	b.Duration, b.Tries, b.Err = time.Since(begin), tries, err
	if w.o.Observe != nil {
		w.observing.Lock()
		w.o.Observe(b)
		w.observing.Unlock()
	}
	w.adapt(b)
	for i, it := range batch {
		w.uncount(it)
		if err != nil {
			it.done(Result{Err: err, RunID: it.write.RunID()})
			continue
		}
		w.rows.note(it.write, writes[i], results[i], begin)
		it.done(results[i])
	}
	return err
}

func (w *Writer) commit(hard context.Context, writes []Write) (results []Result, tries int, err error) {
	wait := 5 * time.Millisecond
	for {
		tries++
		ctx, cancel := context.WithTimeoutCause(hard, w.o.Timeout, errCommitTimeout)
		failpoint.Hit(failpoint.CommitBefore)
		results, err = w.c.Commit(ctx, w.owner, writes)
		failpoint.Hit(failpoint.CommitAfter)
		cancel()
		switch {
		case err == nil, IsFenced(err):
			return results, tries, err
		case hard.Err() != nil:
			return nil, tries, errs.From(stopped()).With(err)
		}
		w.o.Logger.WarnContext(hard, "commit failed, sending it again", "err", err, "try", tries, "writes", len(writes))
		if !sleep.For(hard, wait/2+rand.N(wait)) {
			return nil, tries, errs.From(stopped()).With(err)
		}
		wait = min(2*wait, time.Second)
	}
}

const (
	// longCommit is how long a commit may take before batches get smaller: who comes just after one was taken
	// waits for two.
	longCommit = 25 * time.Millisecond
	// fewRows and fewBytes are what a batch may have however long it takes, so that the work for each commit
	// stays a small part.
	fewRows, fewBytes = 8, 128 << 10
)

// adapt bounds the next batch by how long the last one took.
func (w *Writer) adapt(b Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b.Tries == 1 { // else it waited for something else
		w.most = adapted(w.most, min(fewRows, w.o.MaxRows), w.o.MaxRows, b.Rows, b.Duration)
		w.mostBytes = adapted(w.mostBytes, min(fewBytes, w.o.MaxBytes), w.o.MaxBytes, b.Bytes, b.Duration)
	}
}

// adapted is how much the next batch may have, where the last one had that much and took that long.
func adapted(most, few, all, had int, took time.Duration) int {
	switch {
	case took > longCommit && had > few:
		return max(few, min(most, int(int64(had)*int64(longCommit)/int64(took))))
	case took <= longCommit/2 && had >= most/2: // a small one tells nothing of large ones
		return min(all, 2*most)
	}
	return most
}

// take removes the next batch: namespaces in turn, one write each, until a limit is reached. closed tells
// that there will be no other. It is called with w.mu held.
func (w *Writer) take() (batch []item, closed bool) {
	rows, size := 0, 0
	for len(w.turn) > 0 {
		ns := w.turn[0]
		q := w.queues[ns]
		it := q.items[0]
		if len(batch) > 0 && (rows+it.rows > w.most || size+it.size > w.mostBytes) {
			break
		}
		batch = append(batch, it)
		rows += it.rows
		size += it.size
		w.waits(ns, -it.size)
		q.items[0] = item{}
		q.items = q.items[1:]
		w.turn = w.turn[1:]
		if len(q.items) > 0 {
			w.turn = append(w.turn, ns)
		} else {
			delete(w.queues, ns)
		}
	}
	w.count -= len(batch)
	return batch, w.closed != nil && len(w.held) == 0
}

func (w *Writer) refuse(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed == nil {
		w.closed = err
		w.notify()
	}
}

// fail answers all that still waits.
func (w *Writer) fail(err error) {
	w.mu.Lock()
	w.closed = err
	queues := w.queues
	heldBack := w.held
	w.held = map[string][]*held{}
	w.queues, w.turn, w.bytes, w.count = map[string]*queue{}, nil, map[string]int{}, 0
	w.mu.Unlock()
	for _, hs := range heldBack {
		for _, h := range hs {
			w.uncount(h.item)
			h.done(Result{Err: err, RunID: h.write.RunID()})
		}
	}
	for _, q := range queues {
		for _, it := range q.items {
			w.uncount(it)
			it.done(Result{Err: err, RunID: it.write.RunID()})
		}
	}
}

// uncount tells that a write waits no more.
func (w *Writer) uncount(it item) {
	if it.counted != 0 {
		w.o.Account(it.write.Namespace(), -it.counted)
	}
}

// rest waits until there is something to do, for at most wait if it is not 0.
func (w *Writer) rest(wait time.Duration) {
	if wait <= 0 {
		<-w.wake
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.wake:
	case <-timer.C:
	}
}

// notify wakes the goroutine that takes the next batch. While one batch is being committed, either Run's
// goroutine or the one for a second batch may be idle, so both are woken. It is called with w.mu held.
func (w *Writer) notify() {
	if w.flights > 0 && w.broken == nil && w.closed == nil {
		if !w.mayFly() {
			return // who leads sees what waits when its batch has landed
		}
		signal(w.beside)
	}
	signal(w.wake)
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func stopped() error {
	return errs.New(errs.Unavailable, ReasonWriterStopped, "the executor is stopping").Hint("try again, another executor answers")
}
