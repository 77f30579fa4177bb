package worker

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/graphpb"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/workgraph"
)

// session is one worker's stream.
type session struct {
	pool      *pool
	namespace string
	id        string
	userAgent string
	principal string // the principal of its key
	connected time.Time
	life      life
	// names are the actors, in order; they never change. actors are the slots of each, effects what they do.
	names   []string
	actors  map[string]int
	effects map[string]string
	slots   int
	// wake signals that there is something to send, read that something was sent.
	wake, read chan struct{}
	// changed reports that the published facts about the workers have changed.
	changed func()

	// Under pool.mu.
	used   int
	busy   map[string]int
	closed bool // takes no new visits
	gone   bool // waiters that were promised room must look elsewhere

	mu     sync.Mutex
	heard  time.Time
	visits map[uint64]*visit
	last   uint64
	out    []item
	said   int // how many of out carry no visit
	ended  bool
	leaves bool // whether it is to end once it has no visits
	empty  chan struct{}
}

// visit is an attempt that is with a worker, or on its way there.
type visit struct {
	token  string
	actor  string
	slot   *slot
	sent   bool
	answer chan answer // gets exactly one
	beat   func(json.RawMessage)
	text   func(string)
}

// answer is the end of a visit: an outcome, an error, or lost.
type answer struct {
	out  *executorv1.Outcome
	fail *executorv1.AttemptError
	// refused is the fault of a message of the worker.
	refused error
	lost    lost
	// by is the principal of the worker that answered.
	by string
}

type lost uint8

const (
	// lostUnsent is a visit that surely did not reach the worker; 0 is one that was answered.
	lostUnsent lost = iota + 1
	// lostSent is one that may have been performed.
	lostSent
)

// item is something to send; v is set if it carries a visit.
type item struct {
	m *executorv1.WorkResponse
	v *visit
}

// hasRoom, take and giveBack are called with pool.mu held.
func (s *session) hasRoom(actor string) bool {
	limit, ok := s.actors[actor]
	return ok && !s.closed && s.used < s.slots && (limit == 0 || s.busy[actor] < limit)
}

func (s *session) take(actor string) { s.used++; s.busy[actor]++ }

func (s *session) giveBack(actor string) { s.used--; s.busy[actor]-- }

// begin hands a visit over. It returns nil when the session cannot take it, and the slot is free then.
func (s *session) begin(pl *slot, task *executorv1.Attempt, beat func(json.RawMessage), text func(string)) *visit {
	if !pl.take() {
		pl.release()
		return nil
	}
	v := &visit{actor: task.GetActor(), slot: pl, answer: make(chan answer, 1), beat: beat, text: text}
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		pl.end()
		return nil
	}
	s.last++
	v.token = s.life.token(s.last)
	s.visits[s.last] = v
	task.Token = v.token
	s.push(item{&executorv1.WorkResponse{Message: &executorv1.WorkResponse_Attempt{Attempt: task}}, v})
	s.mu.Unlock()
	return v
}

// push is called with s.mu held.
func (s *session) push(i item) {
	s.out = append(s.out, i)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// say queues a message.
func (s *session) say(m *executorv1.WorkResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.said++
		s.push(item{m: m})
	}
}

// maxSaid is how many answers to what a worker says may wait for it to read them; until it has, it is not
// listened to.
const maxSaid = 128

// heardOut waits until the worker may say more.
func (s *session) heardOut(ctx context.Context) error {
	for {
		s.mu.Lock()
		full := s.said >= maxSaid
		s.mu.Unlock()
		if !full {
			return nil
		}
		select {
		case <-s.read:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// cancel asks for the end of a visit. One that was not sent yet ends at once.
func (s *session) cancel(v *visit, reason string) {
	s.mu.Lock()
	n, _ := s.life.number(v.token)
	if s.visits[n] != v {
		s.mu.Unlock()
		return
	}
	if v.sent {
		s.push(item{m: &executorv1.WorkResponse{Message: &executorv1.WorkResponse_Cancel{Cancel: &executorv1.AttemptCancel{Token: v.token, Reason: reason}}}})
		s.mu.Unlock()
		return
	}
	s.forget(n)
	s.mu.Unlock()
	v.slot.end()
	v.answer <- answer{lost: lostUnsent}
}

// forget is called with s.mu held.
func (s *session) forget(n uint64) {
	delete(s.visits, n)
	if s.leaves && len(s.visits) == 0 {
		select {
		case <-s.empty:
		default:
			close(s.empty)
		}
	}
}

// endVisit ends a visit with what its worker said. It reports false if there is no such visit any more.
func (s *session) endVisit(token string, a answer) bool {
	s.mu.Lock()
	n, ok := s.life.number(token)
	v := s.visits[n]
	if !ok || v == nil || !v.sent {
		s.mu.Unlock()
		return false
	}
	s.forget(n)
	s.mu.Unlock()
	v.slot.end()
	if a.lost == 0 {
		a.by = s.principal
	}
	v.answer <- a
	return true
}

// find is an open visit, or nil.
func (s *session) find(token string) *visit {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.life.number(token)
	if !ok {
		return nil
	}
	return s.visits[n]
}

// leave takes no new visits. empty is closed when none is left.
func (s *session) leave() {
	s.pool.remove(s, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaves {
		return
	}
	s.leaves = true
	if len(s.visits) == 0 {
		close(s.empty)
	}
}

// end gives all visits back. It is idempotent.
func (s *session) end() {
	s.pool.remove(s, true)
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ended = true
	visits := s.visits
	s.visits, s.out, s.said = map[uint64]*visit{}, nil, 0
	// An item that is being sent counts as sent: see sender.
	lost := make(map[*visit]lost, len(visits))
	for _, v := range visits {
		lost[v] = lostUnsent
		if v.sent {
			lost[v] = lostSent
		}
	}
	s.mu.Unlock()
	for v, how := range lost {
		v.slot.end()
		v.answer <- answer{lost: how}
	}
}

// next are the messages to send, oldest first. The visits among them count as sent from now on.
func (s *session) next() []item {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := s.out
	s.out, s.said = nil, 0
	select {
	case s.read <- struct{}{}:
	default:
	}
	kept := batch[:0]
	for _, i := range batch {
		if i.v != nil {
			if n, _ := s.life.number(i.v.token); s.visits[n] != i.v {
				continue // canceled before it was sent
			}
			i.v.sent = true
		}
		kept = append(kept, i)
	}
	return kept
}

// perform makes a call on a slot. again says that the call was surely not made and may be made elsewhere.
func (s *session) perform(ctx context.Context, pl *slot, task *executorv1.Attempt, reason func(context.Context) string,
	beat func(json.RawMessage), text func(string)) (a answer, v *visit) {
	v = s.begin(pl, task, beat, text)
	if v == nil {
		return answer{lost: lostUnsent}, nil
	}
	done := ctx.Done()
	for {
		select {
		case a := <-v.answer:
			return a, v
		case <-done:
			why := reason(ctx)
			s.cancel(v, why)
			if letGo(why) {
				return answer{lost: lostSent}, v // the answer, which frees the slot, is nobody's any more
			}
			done = nil
		}
	}
}

// letGo reports whether nobody waits for the answer of a call that ended for this reason.
func letGo(reason string) bool { return reason == engine.EndStopping || reason == engine.EndFenced }

// refuse reports to the worker that its answer could not be used.
func (s *session) refuse(v *visit, fail *workgraph.Error) {
	s.say(&executorv1.WorkResponse{Message: &executorv1.WorkResponse_Refused{Refused: &executorv1.AttemptRefused{
		Token: v.token, Reason: fail.Reason, Message: fail.Message}}})
}

// receive acts on one message of the worker, other than the first.
func (s *session) receive(m *executorv1.WorkRequest, bad error) error {
	s.mu.Lock()
	s.heard = time.Now()
	s.mu.Unlock()
	stale := func(token string) {
		s.say(&executorv1.WorkResponse{Message: &executorv1.WorkResponse_Stale{Stale: &executorv1.AttemptStale{Token: token}}})
	}
	switch m := m.GetMessage().(type) {
	case *executorv1.WorkRequest_Outcome:
		if !s.endVisit(m.Outcome.GetToken(), answer{out: m.Outcome.GetOutcome(), refused: bad}) {
			if bad != nil {
				return bad
			}
			stale(m.Outcome.GetToken())
		}
		return nil
	case *executorv1.WorkRequest_Error:
		if !s.endVisit(m.Error.GetToken(), answer{fail: m.Error.GetError(), refused: bad}) {
			if bad != nil {
				return bad
			}
			stale(m.Error.GetToken())
		}
		return nil
	case *executorv1.WorkRequest_Declined:
		if bad != nil {
			return bad
		}
		s.leave() // first, so that the visit does not come back here
		s.changed()
		if !s.endVisit(m.Declined.GetToken(), answer{lost: lostUnsent}) {
			stale(m.Declined.GetToken())
		}
		return nil
	case *executorv1.WorkRequest_Heartbeat:
		s.say(&executorv1.WorkResponse{Message: &executorv1.WorkResponse_Heartbeat{Heartbeat: &executorv1.ExecutorHeartbeat{Number: m.Heartbeat.GetNumber()}}})
		return nil
	}
	if bad != nil {
		return bad
	}
	switch m := m.GetMessage().(type) {
	case *executorv1.WorkRequest_Progress:
		v := s.find(m.Progress.GetToken())
		if v == nil {
			stale(m.Progress.GetToken())
			return nil
		}
		raw, err := graphpb.Raw("details", m.Progress.GetDetails())
		if err != nil {
			raw = nil // still a heartbeat
		}
		v.beat(raw)
	case *executorv1.WorkRequest_Tokens:
		if v := s.find(m.Tokens.GetToken()); v != nil {
			v.text(m.Tokens.GetText())
		}
	case *executorv1.WorkRequest_Drain:
		s.leave()
		s.changed()
	case *executorv1.WorkRequest_Hello:
		return errHelloTwice
	}
	return nil
}

// silentFor is how long nothing was heard of the worker.
func (s *session) silentFor(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Sub(s.heard)
}

func (s *session) welcome(executor string, c Config) *executorv1.WorkResponse {
	return &executorv1.WorkResponse{Message: &executorv1.WorkResponse_Welcome{Welcome: &executorv1.WorkerWelcome{
		WorkerId: s.id, ExecutorId: executor, HeartbeatInterval: durationpb.New(c.HeartbeatInterval),
		HeartbeatTimeout: durationpb.New(c.HeartbeatTimeout), MaxPayloadBytes: int64(c.MaxPayload)}}}
}
