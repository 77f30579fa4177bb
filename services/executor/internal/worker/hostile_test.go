package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// deaf is the stream of a worker that says one thing after the other and reads nothing.
type deaf struct {
	grpc.BidiStreamingServer[executorv1.WorkRequest, executorv1.WorkResponse]
	ctx  context.Context
	said atomic.Int64
	// most is after how much it says no more.
	most int64
}

func (d *deaf) Context() context.Context { return d.ctx }

func (d *deaf) RecvMsg(m any) error {
	n := d.said.Add(1)
	if n > d.most {
		<-d.ctx.Done()
		return d.ctx.Err()
	}
	m.(*executorv1.WorkRequest).Message = &executorv1.WorkRequest_Heartbeat{Heartbeat: &executorv1.WorkerHeartbeat{Number: n}}
	return nil
}

func (d *deaf) Send(*executorv1.WorkResponse) error {
	<-d.ctx.Done()
	return d.ctx.Err()
}

type noBuiltin struct{}

func (noBuiltin) ActorInfo(string) (workgraph.ActorInfo, bool) { return workgraph.ActorInfo{}, false }
func (noBuiltin) Actor(string) (workgraph.Actor, bool)         { return nil, false }
func (noBuiltin) Names() []string                              { return nil }
func (noBuiltin) Learn(context.Context, string)                {}
func (noBuiltin) Absent(string) bool                           { return false }
func (noBuiltin) Changes(string) bool                          { return false }

// The queue of messages for a worker is bounded: until the worker reads, its messages are not read, and at
// last it counts as silent.
func TestDeafWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(DefaultConfig(), Deps{Builtin: noBuiltin{}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		sess := newSession(s.pool, 1, map[string]int{"a": 0})
		sess.wake, sess.read, sess.heard, sess.visits, sess.changed = make(chan struct{}, 1), make(chan struct{}, 1), time.Now(), map[uint64]*visit{}, s.touch
		d := &deaf{ctx: ctx, most: 100_000}
		over := make(chan error, 1)
		go func() { over <- s.attend(ctx, sess, d) }()
		synctest.Wait()
		sess.mu.Lock()
		waiting := len(sess.out)
		sess.mu.Unlock()
		require.LessOrEqual(t, waiting, maxSaid)
		require.LessOrEqual(t, d.said.Load(), int64(3*maxSaid))
		err := <-over
		require.Equal(t, ReasonSilent, errs.ReasonOf(err), "%v", err)
		sess.end()
	})
}

// large is the stream of a worker that sends one large result after the other.
type large struct {
	deaf
	most int64
}

func (l *large) RecvMsg(m any) error {
	if l.said.Add(1) > l.most {
		return io.EOF
	}
	m.(*executorv1.WorkRequest).Message = &executorv1.WorkRequest_Tokens{Tokens: &executorv1.AttemptTokens{Text: strings.Repeat("x", 1<<20)}}
	return nil
}

// While the live runs of a namespace hold too much, its workers are read slowly, because there is no room for
// their results. Heartbeats behind a large result still arrive in time.
func TestHeldWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(DefaultConfig(), Deps{Builtin: noBuiltin{}})
		var until atomic.Pointer[chan struct{}]
		held := make(chan struct{})
		until.Store(&held)
		s.Own(s.owner, func(string) <-chan struct{} {
			if c := until.Load(); c != nil {
				return *c
			}
			return nil
		})
		sess := newSession(s.pool, 1, map[string]int{"a": 0})
		sess.wake, sess.read, sess.visits = make(chan struct{}, 1), make(chan struct{}, 1), map[uint64]*visit{}
		l := &large{deaf: deaf{ctx: t.Context()}, most: 10}
		over := make(chan error, 1)
		go func() { over <- s.listen(sess, l) }()
		synctest.Wait()
		require.EqualValues(t, 1, l.said.Load(), "the next one waits")
		time.Sleep(s.cfg.HeartbeatInterval) //nolint:forbidigo // the bubble's clock
		synctest.Wait()
		require.EqualValues(t, 2, l.said.Load(), "but not for long")
		until.Store(nil)
		close(held)
		require.NoError(t, <-over)
	})
}

// The workers of a namespace at one executor serve only so many actors together, and so do not hold the
// pool's lock for long.
func TestServedIsBounded(t *testing.T) {
	t.Parallel()
	s := New(DefaultConfig(), Deps{Builtin: noBuiltin{}})
	join := func(namespace string, actors int) error {
		sess := newSession(s.pool, 1, nil)
		sess.namespace, sess.names = namespace, make([]string, actors)
		return s.enlist(sess)
	}
	for range maxServed / 1000 {
		require.NoError(t, join("acme", 1000))
	}
	err := join("acme", 1)
	require.Equal(t, ReasonTooManyWorkers, errs.ReasonOf(err), "%v", err)
	require.NoError(t, join("other", 1000))
}

// The cache of actors is bounded by bytes too.
func TestKnownIsBounded(t *testing.T) {
	t.Parallel()
	k := newKnown()
	schema := []byte(strings.Repeat("x", maxSchema))
	for i := range 3 * maxKnownBytes / maxSchema {
		k.put("acme", []journal.RemoteActor{{Name: fmt.Sprint("a", i%1500), Schema: schema}})
		require.LessOrEqual(t, k.bytes, int64(maxKnownBytes))
	}
	sum := int64(0)
	for _, a := range k.actors {
		sum += a.Size()
	}
	require.Equal(t, sum, k.bytes)
	k.forget("acme")
	require.Zero(t, k.bytes)
	require.Empty(t, k.actors)
}

// The schemas of a hello are compiled in the turns of its namespace.
func TestHelloHasItsTurn(t *testing.T) {
	t.Parallel()
	turns := &admission.Control{}
	s := New(DefaultConfig(), Deps{Builtin: noBuiltin{}, Admission: turns})
	leave, err := turns.Enter(t.Context(), grpckit.DefaultNamespace, admission.PerNamespace)
	require.NoError(t, err)
	defer leave()
	h := &executorv1.WorkerHello{Slots: 1}
	for i := range 10 {
		h.Actors = append(h.Actors, &executorv1.WorkerActor{Name: fmt.Sprint("a", i), ArgsSchema: &graphv1.Payload{Json: fmt.Appendf(nil, `{"description": %q}`, strings.Repeat("x", 50_000))}})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.readHello(ctx, h)
	require.Error(t, err)
	require.NotEqual(t, ReasonHelloInvalid, errs.ReasonOf(err))
	leave()
	_, err = s.readHello(t.Context(), h)
	require.NoError(t, err)
}

// lookups is a journal in which one namespace waits for its turn to read.
type lookups struct {
	registrations
}

// registrations has another name than journal.Workers, whose method of that name the field would hide.
type registrations = journal.Workers

func (lookups) WorkerWakes(context.Context) (<-chan struct{}, error) {
	return nil, errors.New("there are none")
}

func (lookups) Routes(ctx context.Context, namespace, _ string, _ time.Duration) ([]journal.WorkerRoute, error) {
	if namespace == "slow" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return []journal.WorkerRoute{{Executor: journal.Owner{ID: "far"}, Addr: "far:1", Slots: 1}}, nil
}

// A namespace whose lookups never end does not keep others from finding workers of other executors.
func TestLookupsOfNeighbors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(DefaultConfig(), Deps{Builtin: noBuiltin{}, Journal: lookups{}, Dial: func(string) (*grpc.ClientConn, error) { return nil, errors.New("nobody") }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			s.lookFor(ctx)
			close(done)
		}()
		s.pool.enter(name{"slow", "a"}, false, func(*slot) { t.Error("there is none") })
		synctest.Wait()
		for range 3 {
			found := make(chan *slot, 1)
			s.pool.enter(name{"quick", "a"}, false, func(pl *slot) { found <- pl })
			select {
			case pl := <-found:
				pl.release()
			case <-time.After(10 * time.Second):
				t.Error("nobody looked")
			}
		}
		cancel()
		<-done
	})
}
