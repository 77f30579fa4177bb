package socket

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// replayed is how many events one answer of a replay has at most, and answerMemory how often it is
// in memory: as a message, as events, and as the messages of a channel.
const replayed, answerMemory = 50, 3

// feedSource is the feed of a namespace.
type feedSource struct{ s *Server }

var _ source = feedSource{}

func (feedSource) cursor(p position) string { return strconv.FormatInt(p[""], 10) }
func (feedSource) at(seq int64) position    { return position{"": seq} }

func (f feedSource) watch(ctx context.Context, from position, begin func(position), take func(*event)) error {
	req := &registryv1.WatchEventsRequest{}
	if from != nil {
		req.After = proto.Int64(from[""])
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := f.s.Registry.WatchEvents(ctx, req)
	if err != nil {
		return f.s.FromStatus(err)
	}
	for {
		ev, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) { // a feed has no end
				err = errs.New(errs.Unavailable, errs.ReasonStopping, "the feed broke off")
			}
			return f.s.FromStatus(err)
		}
		if alive := ev.GetKeepAlive(); alive != nil {
			begin(f.at(alive.GetCursor()))
			continue
		}
		begin(f.at(ev.GetSeq() - 1))
		take(f.event(ev))
	}
}

// event is an event of the feed. One that cannot be shown is told as an error, so that nobody waits
// for it.
func (f feedSource) event(ev *registryv1.FeedEvent) *event {
	e, err := ofFeed(ev, f.s.Encode)
	if err == nil {
		return e
	}
	e, _ = ofFeed(ev, func(proto.Message) ([]byte, error) { return f.s.unshown(err), nil })
	e.parts[0].kind = kindError
	return e
}

func (f feedSource) replay(ctx context.Context, channel string, at position, give func(*event) error, on func() bool) error {
	req := &registryv1.ListEventsRequest{After: at[""], PageSize: replayed}
	switch kind, name := split(channel); kind {
	case epicChannel:
		req.EpicId = name
	case workflowChannel:
		req.WorkflowSlug = name
	case threadChannel:
		req.ThreadId = name
	}
	for {
		p, err := f.page(ctx, req, give)
		if err != nil {
			return err
		}
		req.After = p.GetCursor()
		at[""] = p.GetCursor()
		if on() {
			return nil
		}
	}
}

func (f feedSource) page(ctx context.Context, req *registryv1.ListEventsRequest, give func(*event) error) (*registryv1.ListEventsResponse, error) {
	p, err := f.s.Registry.ListEvents(ctx, req)
	if err != nil {
		return nil, f.s.FromStatus(err)
	}
	held, err := f.s.await(ctx, answerMemory*int64(proto.Size(p)))
	if err != nil {
		return nil, err
	}
	defer held.release()
	for _, ev := range p.GetEvents() {
		e := f.event(ev)
		e.hold = held
		if err := give(e); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// runSource is a run with its descendants.
type runSource struct {
	s   *Server
	run string
	// first is where the first subscriber goes on, and the hub begins.
	first int64
}

var _ source = runSource{}

func (r runSource) cursor(p position) string { return newTrail(r.run, p).text }

func (r runSource) watch(ctx context.Context, from position, begin func(position), take func(*event)) error {
	if from == nil {
		// Descendants begin at their beginning: whoever goes on further behind is told no more than that, and
		// a cursor that is wrong is the trouble of one client.
		from = position{r.run: r.first}
	}
	return r.read(ctx, from, func() error {
		begin(from)
		return nil
	}, func(e *event) error {
		begin(from)
		take(e)
		return nil
	})
}

// errJoined ends a replay that is not needed any more.
var errJoined = errors.New("joined")

func (r runSource) replay(ctx context.Context, _ string, at position, give func(*event) error, on func() bool) error {
	asked := 0 // how many events ago
	ask := func() error {
		asked = 0
		if on() {
			return errJoined
		}
		return nil
	}
	err := r.read(ctx, at, ask, func(e *event) error {
		if e.seq > at[e.series] { // else it is told to those who are there, or was seen
			var err error
			if e.hold, err = r.s.await(ctx, e.size()); err != nil {
				return err
			}
			defer e.hold.release()
			if err := give(e); err != nil {
				return err
			}
			at[e.series] = e.seq
		}
		if asked++; asked > len(at)/askShare {
			return ask()
		}
		return nil
	})
	if errors.Is(err, errJoined) {
		return nil
	}
	return err
}

// askShare is which share of a position may be told before a replay asks again whether it is needed.
// The answer takes time for each series of the position, so asking after each event would cost the
// square of the descendants.
const askShare = 16

// read gives the events of a run and its descendants, each with the companions before it. Those of
// descendants come from their beginning, wherever the run itself goes on. It calls alive when it is
// known that the executor does not refuse the watch, in silence, and at the end.
func (r runSource) read(ctx context.Context, from position, alive func() error, give func(*event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.s.Executor.WatchRun(ctx, &executorv1.WatchRunRequest{RunId: r.run, AfterSeq: from[r.run], IncludeDescendants: true})
	if err != nil {
		return r.refused(err)
	}
	// An executor that does not tell it begins with its first message. An error is told by Recv.
	if head, err := stream.Header(); err == nil && grpckit.Watching(head) {
		if err := alive(); err != nil {
			return err
		}
	}
	told, waiting := newTrail(r.run, from), map[string][]part{}
	for {
		ev, err := stream.Recv()
		end := errors.Is(err, io.EOF)
		if err != nil && !end {
			return r.refused(err)
		}
		if end || ev.GetKeepAlive() != nil {
			if err := alive(); err != nil {
				return err
			}
			if end {
				return io.EOF
			}
			continue
		}
		run := ev.GetRunId()
		if run == "" {
			run = r.run
		}
		parts, err := ofRun(ev, r.run, r.s.Encode)
		if err != nil {
			parts = []part{{kind: kindError, data: r.s.unshown(err)}}
		}
		if companion(ev) && ev.GetSeq() == 0 {
			waiting[run] = append(waiting[run], parts...)
			continue
		}
		e := &event{series: run, seq: ev.GetSeq(), time: ev.GetTime().AsTime(), parts: parts}
		if e.seq > 0 {
			e.parts = append(waiting[run], parts...)
			delete(waiting, run)
			e.before = told.text
			told.move(run, e.seq)
			e.cursor = told.text
		}
		if err := give(e); err != nil {
			return err
		}
	}
}

// fewerRuns is what a client can do that follows too many runs.
const fewerRuns = "unsubscribe from a run; the channel of a root run has the events of its descendants, too"

// refused is why the executor does not let the run be watched, in terms of channels.
func (r runSource) refused(err error) error {
	err = r.s.FromStatus(err)
	if errs.ReasonOf(err) == reasonTooManyWatches {
		return errs.From(err).Hint(fewerRuns)
	}
	return err
}

// await waits for room for n bytes of the namespace.
func (s *Server) await(ctx context.Context, n int64) (*hold, error) {
	namespace := grpckit.Namespace(ctx)
	if err := s.Budget.Await(ctx, namespace, n); err != nil {
		return nil, err
	}
	return newHold(func() { s.Budget.Add(namespace, -n) }), nil
}

// split is the kind of a channel and what it is of.
func split(channel string) (kind, name string) {
	for _, kind := range []string{epicChannel, runChannel, workflowChannel, threadChannel} {
		if len(channel) > len(kind) && channel[:len(kind)] == kind {
			return kind, channel[len(kind):]
		}
	}
	return channel, ""
}

// now is the time of messages of the gateway itself.
func now() time.Time { return time.Now() }
