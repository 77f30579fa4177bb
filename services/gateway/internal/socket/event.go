package socket

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// position says how far events were seen: the last sequence of each series. The feed of a namespace
// is the series "", a run is the series of its id.
type position map[string]int64

func (p position) clone() position {
	out := make(position, len(p))
	for k, v := range p {
		out[k] = v
	}
	return out
}

// reaches reports whether everything up to other was seen.
func (p position) reaches(other position) bool {
	for k, v := range other {
		if p[k] < v {
			return false
		}
	}
	return true
}

// part is one message that an event becomes.
type part struct {
	kind string
	data []byte
	// brief says that the task in data comes without its long texts.
	brief bool
}

// event is one event of a series with the messages that it becomes. Those messages are made once
// for each channel, by whoever holds the hub's lock, and are shared by the connections that send
// them.
type event struct {
	series string
	// seq is 0 for an event that is told to those who are there and to nobody else.
	seq  int64
	time time.Time
	// channels are those that get it; nil means all of the hub.
	channels []string
	// cursor is where to go on from behind the event, and before where to go on from ahead of it.
	// They are empty for one that is told to those who are there.
	cursor, before string
	parts          []part

	hold *hold
	// made are the messages by channel.
	made map[string][][]byte
}

// hold is what one or several events take of the budget, until nobody has them any more.
type hold struct {
	refs atomic.Int32
	free func()
}

// newHold returns a hold that its caller has.
func newHold(free func()) *hold {
	h := &hold{free: free}
	h.keep()
	return h
}

func (h *hold) keep() { h.refs.Add(1) }

func (h *hold) release() {
	if h.refs.Add(-1) == 0 {
		h.free()
	}
}

// size is about how much memory the event takes.
func (e *event) size() int64 {
	n := int64(512 + len(e.cursor)*(len(e.parts)+1))
	for _, p := range e.parts {
		n += int64(2*len(p.data)) + 128
	}
	return n
}

// messages are those of a channel. Each carries the cursor to go on from: only with the last
// message of an event the event is behind it.
func (e *event) messages(channel string) [][]byte {
	if m, ok := e.made[channel]; ok {
		return m
	}
	if e.made == nil {
		e.made = map[string][][]byte{}
	}
	e.made[channel] = e.write(channel, e.before, e.cursor)
	return e.made[channel]
}

func (e *event) write(channel, before, cursor string) (out [][]byte) {
	for i, p := range e.parts {
		at := before
		if i == len(e.parts)-1 {
			at = cursor
		}
		out = append(out, message(p.kind, channel, e.time, at, p.data, p.brief))
	}
	return out
}

// messagesTo are the messages for one who has seen more of other descendants of a run than whoever read the
// event.
func (e *event) messagesTo(channel, run string, seen position) [][]byte {
	if run == "" || e.cursor == "" || len(seen) == 0 {
		return e.messages(channel)
	}
	return e.write(channel, behind(run, e.before, seen), behind(run, e.cursor, seen))
}

// message writes one message of the protocol. An empty channel or cursor and nil data are left out.
func message(kind, channel string, at time.Time, cursor string, data []byte, brief bool) []byte {
	b := make([]byte, 0, len(kind)+len(channel)+len(data)+96)
	b = append(b, `{"type":"`...)
	b = append(b, kind...)
	b = append(b, '"')
	if channel != "" {
		b = append(b, `,"channel":`...)
		b = append(b, quoted(channel)...)
	}
	b = append(b, `,"timestamp":`...)
	b = strconv.AppendFloat(b, float64(at.UnixMicro())/1e6, 'f', -1, 64)
	if cursor != "" {
		b = append(b, `,"cursor":"`...)
		b = append(b, cursor...)
		b = append(b, '"')
	}
	if brief {
		b = append(b, `,"brief":true`...)
	}
	if data != nil {
		b = append(b, `,"data":`...)
		b = append(b, data...)
	}
	return append(b, '}')
}

func quoted(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil { // a string has a JSON form
		return []byte(`""`)
	}
	return b
}

// The names of channels, and of the one that has all of the feed.
const (
	epicChannel, runChannel, workflowChannel, threadChannel = "epic:", "run:", "workflow:", "thread:"
	feedChannel                                             = "feed"
)

// ofFeed makes an event of one of the feed. data is the value in it: an epic, a task or what else
// the kind has.
func ofFeed(ev *registryv1.FeedEvent, encode func(proto.Message) ([]byte, error)) (*event, error) {
	name, body := chosen(ev)
	data, err := encode(body)
	if err != nil {
		return nil, err
	}
	channels := []string{feedChannel}
	if ev.GetEpicId() != "" {
		channels = append(channels, epicChannel+ev.GetEpicId())
	}
	if slug := slugOf(ev); slug != "" {
		channels = append(channels, workflowChannel+slug)
	}
	for _, c := range []*registryv1.ThreadChanged{ev.GetThreadCreated(), ev.GetThreadMessage(), ev.GetThreadDeleted()} {
		if c != nil {
			channels = append(channels, threadChannel+c.GetThreadId())
		}
	}
	return &event{
		seq: ev.GetSeq(), time: ev.GetTime().AsTime(), channels: channels,
		cursor: strconv.FormatInt(ev.GetSeq(), 10), before: strconv.FormatInt(ev.GetSeq()-1, 10),
		parts: []part{{kind: name, data: data, brief: ev.GetBrief()}},
	}, nil
}

// slugOf is the workflow of an event, as the filter workflow_slug of the feed knows it.
func slugOf(ev *registryv1.FeedEvent) string {
	for _, r := range []*registryv1.RunChanged{ev.GetRunStarted(), ev.GetRunEnded(), ev.GetRunPaused(), ev.GetRunResumed(), ev.GetRunAmended(), ev.GetRunDeleted()} {
		if slug, _, ok := strings.Cut(r.GetWorkflow(), "@"); ok {
			return slug
		}
	}
	if slug, ok := strings.CutPrefix(ev.GetMemoryWritten().GetScope(), "workflow/"); ok {
		return slug
	}
	return ev.GetWorkflowPublished().GetSlug()
}

// chosen is the name and the value of the field of an event that is set.
func chosen(m proto.Message) (string, proto.Message) {
	r := m.ProtoReflect()
	var f protoreflect.FieldDescriptor
	if f = r.WhichOneof(r.Descriptor().Oneofs().ByName("event")); f == nil {
		return "event", m
	}
	return string(f.Name()), r.Get(f).Message().Interface()
}

// companion reports whether an event without a sequence belongs to the durable one that follows.
func companion(ev *executorv1.RunEvent) bool {
	switch ev.GetEvent().(type) {
	case *executorv1.RunEvent_VisitsChanged, *executorv1.RunEvent_ChildrenSpawned, *executorv1.RunEvent_InterruptOpened, *executorv1.RunEvent_GraphExpanded:
		return true
	}
	return false
}

// ofRun are the messages of an event of a run: its own, and those that show it under the names of
// executions and nodes. What happens at nodes of descendants has names of its own.
func ofRun(ev *executorv1.RunEvent, root string, encode func(proto.Message) ([]byte, error)) ([]part, error) {
	data, err := encode(ev)
	if err != nil {
		return nil, err
	}
	name, _ := chosen(ev)
	out := []part{{kind: name, data: data}}
	child := ev.GetRunId() != root
	status := func(v *executorv1.VisitRef, state string) {
		kind := "node_status"
		if child {
			kind = "child_" + kind
		}
		if state != "" {
			out = append(out, part{kind: kind, data: fields("run_id", ev.GetRunId(), "node_id", v.GetNodeId(), "visit", v.GetVisit(), "item", v.GetItem(), "status", state)})
		}
	}
	switch e := ev.GetEvent().(type) {
	case *executorv1.RunEvent_RunStarted:
		if !child {
			out = append(out, part{kind: "execution_started", data: fields("run_id", ev.GetRunId())})
		}
	case *executorv1.RunEvent_AttemptStarted:
		status(e.AttemptStarted.GetVisit(), "running")
	case *executorv1.RunEvent_AttemptEnded:
		status(e.AttemptEnded.GetVisit(), statusOf(e.AttemptEnded.GetState()))
		for _, n := range e.AttemptEnded.GetReadyNodes() {
			status(&executorv1.VisitRef{NodeId: n}, "pending")
		}
	case *executorv1.RunEvent_VisitsChanged:
		for _, v := range e.VisitsChanged.GetVisits() {
			status(v.GetVisit(), statusOf(v.GetState()))
		}
	case *executorv1.RunEvent_Reconciled:
		status(e.Reconciled.GetVisit(), statusOf(e.Reconciled.GetState()))
	case *executorv1.RunEvent_InterruptOpened:
		out = append(out, part{kind: "execution_interrupted", data: fields("run_id", ev.GetRunId(), "node_id", e.InterruptOpened.GetVisit().GetNodeId(),
			"interrupt_id", e.InterruptOpened.GetInterruptId(), "prompt", within(data, "interruptOpened", "prompt"))})
	case *executorv1.RunEvent_RunEnded:
		switch {
		case child:
		case e.RunEnded.GetState() == executorv1.RunState_RUN_STATE_COMPLETED:
			out = append(out, part{kind: "execution_completed", data: fields("run_id", ev.GetRunId(), "output", within(data, "runEnded", "result"),
				"activity_summary", within(data, "runEnded", "activitySummary"))})
		default:
			out = append(out, part{kind: "execution_failed", data: fields("run_id", ev.GetRunId(), "state", strings.TrimPrefix(e.RunEnded.GetState().String(), "RUN_STATE_"),
				"reason", e.RunEnded.GetReason(), "error", within(data, "runEnded", "error"))})
		}
	}
	return out, nil
}

// statusOf is the status of a node; empty for a state that has no name there.
func statusOf(s executorv1.VisitState) string {
	switch s {
	case executorv1.VisitState_VISIT_STATE_RUNNING, executorv1.VisitState_VISIT_STATE_CANCELING:
		return "running"
	case executorv1.VisitState_VISIT_STATE_BACKING_OFF, executorv1.VisitState_VISIT_STATE_HELD, executorv1.VisitState_VISIT_STATE_UNSPECIFIED:
		return "pending"
	case executorv1.VisitState_VISIT_STATE_WAITING, executorv1.VisitState_VISIT_STATE_NEEDS_RECONCILIATION:
		return "waiting"
	case executorv1.VisitState_VISIT_STATE_COMPLETED, executorv1.VisitState_VISIT_STATE_ABSTAINED:
		return "success"
	case executorv1.VisitState_VISIT_STATE_FAILED, executorv1.VisitState_VISIT_STATE_CANCELED:
		return "failed"
	case executorv1.VisitState_VISIT_STATE_SKIPPED:
		return "skipped"
	}
	return ""
}

// fields is a JSON object of names and values, in their order. Values that are zero or null are
// left out.
func fields(pairs ...any) []byte {
	b := []byte{'{'}
	for i := 0; i < len(pairs); i += 2 {
		var value []byte
		switch v := pairs[i+1].(type) {
		case string:
			if v != "" {
				value = quoted(v)
			}
		case int32:
			if v != 0 {
				value = strconv.AppendInt(nil, int64(v), 10)
			}
		case json.RawMessage:
			value = v
		}
		if value == nil {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), pairs[i].(string)...), `":`...)
		b = append(b, value...)
	}
	return append(b, '}')
}

// within is the value at a path of objects in an encoded event, or nil.
func within(data []byte, path ...string) json.RawMessage {
	at := json.RawMessage(data)
	for _, name := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(at, &object) != nil {
			return nil
		}
		at = object[name]
	}
	return at
}
