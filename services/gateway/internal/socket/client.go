package socket

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/epigraph-run/epigraph/internal/errs"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

const (
	// maxMessage bounds a message of a client, maxChannel the name of a channel in it.
	maxMessage, maxChannel = 4 << 10, 256
	// maxSubscriptions bounds the channels of one connection.
	maxSubscriptions = 100
	// perSecond and burst bound the messages and pings of a client.
	perSecond, burst = 20, 200
	// queueMessages and queueBytes bound what waits for a client that reads slowly, beside answers
	// to its own messages. A message that is larger finds room when nothing waits.
	queueMessages, queueBytes = 256, 256 << 10
)

// reasonFlood is why a client is cut off that sends too much.
const reasonFlood = "TOO_MANY_MESSAGES"

// entry is a message that waits to be written. An answer of the gateway itself has no event.
type entry struct {
	data []byte
	of   *hold
}

// client is one connection. Its goroutine reads; another one writes while there is something to write.
type client struct {
	*Server
	conn *websocket.Conn
	// ctx ends with the connection, and carries the namespace and the principal.
	ctx       context.Context //nolint:containedctx // the connection is the request
	cancel    context.CancelFunc
	namespace string

	mu      sync.Mutex
	subs    map[string]*subscription
	queue   []entry
	bytes   int
	writing bool
	closed  bool
	// room is closed when half of the queue is free; nil while nobody waits for that.
	room  chan struct{}
	spent float64
	heard time.Time
	rated time.Time
	ping  *time.Timer
}

// offer enqueues the messages of an event, all of them or none.
func (c *client) offer(s *subscription, e *event, messages [][]byte) bool {
	n := 0
	for _, m := range messages {
		n += len(m)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || s.gone {
		return true // nobody is left to miss it
	}
	if len(c.queue) > 0 && (c.bytes+n > queueBytes || len(c.queue)+len(messages) > queueMessages) {
		return false
	}
	for _, m := range messages {
		e.hold.keep()
		c.queue = append(c.queue, entry{m, e.hold})
	}
	c.bytes += n
	c.write()
	return true
}

// control enqueues an answer of the gateway. A client can cause only so many of them.
func (c *client) control(s *subscription, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || s != nil && s.gone {
		return
	}
	if len(c.queue) >= 4*queueMessages { // it asks and does not read
		c.close(websocket.StatusPolicyViolation, "TOO_SLOW")
		return
	}
	c.queue = append(c.queue, entry{data: data})
	c.write()
}

// write starts the writer, unless it is at work. The lock is held.
func (c *client) write() {
	if !c.writing {
		c.writing = true
		c.Server.work.Go(c.drain)
	}
}

// drain writes until nothing is left. A client that does not read is cut off after the write timeout.
func (c *client) drain() {
	for {
		c.mu.Lock()
		batch := c.queue
		c.queue, c.bytes = nil, 0
		if len(batch) == 0 || c.closed {
			c.writing = false
			c.mu.Unlock()
			free(batch)
			c.roomy()
			return
		}
		c.mu.Unlock()
		for i, e := range batch {
			ctx, cancel := context.WithTimeout(c.ctx, c.WriteTimeout)
			err := c.conn.Write(ctx, websocket.MessageText, e.data)
			cancel()
			if err != nil {
				free(batch[i:])
				c.end()
				break
			}
			if e.of != nil {
				e.of.release()
			}
			batch[i] = entry{}
		}
	}
}

func free(entries []entry) {
	for _, e := range entries {
		if e.of != nil {
			e.of.release()
		}
	}
}

// roomy wakes those who wait for room.
func (c *client) roomy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.room != nil {
		close(c.room)
		c.room = nil
	}
}

// await waits until nothing waits to be written. The write timeout bounds it.
func (c *client) await(ctx context.Context) error {
	c.mu.Lock()
	if len(c.queue) == 0 && !c.writing || c.closed {
		c.mu.Unlock()
		return ctx.Err()
	}
	if c.room == nil {
		c.room = make(chan struct{})
	}
	room := c.room
	c.mu.Unlock()
	select {
	case <-room:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end forgets everything of the connection. It is idempotent.
func (c *client) end() {
	c.cancel()
	c.mu.Lock()
	subs, queue := c.subs, c.queue
	c.closed, c.subs, c.queue, c.bytes = true, nil, nil, 0
	c.ping.Stop()
	c.mu.Unlock()
	c.roomy()
	free(queue)
	for _, s := range subs {
		s.end()
	}
}

// close tells the client why and ends the connection, without waiting for it.
func (c *client) close(code websocket.StatusCode, reason string) {
	c.Server.work.Go(func() { _ = c.conn.Close(code, reason) }) // the client may have gone
}

// serve reads what the client asks for until the connection ends.
func (c *client) serve() {
	for {
		kind, data, err := c.conn.Read(c.ctx)
		if err != nil {
			return
		}
		if !c.hear(1) {
			_ = c.conn.Close(websocket.StatusPolicyViolation, reasonFlood) // the client may have gone
			return
		}
		if kind != websocket.MessageText {
			_ = c.conn.Close(websocket.StatusUnsupportedData, "TEXT_ONLY") // the client may have gone
			return
		}
		c.ask(data)
	}
}

// hear notes that the client is there, and reports whether it may send so much.
func (c *client) hear(cost float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := time.Now()
	c.spent = max(0, c.spent-at.Sub(c.rated).Seconds()*perSecond) + cost
	c.heard, c.rated = at, at
	return c.spent <= burst
}

// pinged answers a ping of the client, unless there are too many.
func (c *client) pinged(context.Context, []byte) bool {
	if c.hear(1) {
		return true
	}
	c.close(websocket.StatusPolicyViolation, reasonFlood)
	return false
}

// probe pings a client of which nothing was heard for long, and ends the connection if it does not
// answer.
func (c *client) probe() {
	c.mu.Lock()
	quiet := time.Since(c.heard)
	closed := c.closed
	c.mu.Unlock()
	switch {
	case closed:
		return
	case quiet < c.Idle:
		c.ping.Reset(c.Idle - quiet)
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.Pong)
	defer cancel()
	if c.conn.Ping(ctx) != nil {
		_ = c.conn.CloseNow() // it may have gone
		return
	}
	c.hear(0)
	c.ping.Reset(c.Idle)
}

// request is a message of a client. From is a cursor, as text or as a number.
type request struct {
	Type    string          `json:"type"`
	Channel string          `json:"channel"`
	From    json.RawMessage `json:"from"`
}

func (c *client) ask(data []byte) {
	var q request
	if err := json.Unmarshal(data, &q); err != nil {
		c.refuse("", errs.New(errs.InvalidArgument, "MESSAGE_INVALID", "the message is not a JSON object with type, channel and from").
			Hint(`for example {"type": "subscribe", "channel": "epic:ep_…"}`))
		return
	}
	switch q.Type {
	case "subscribe":
		if err := c.subscribe(q); err != nil {
			c.refuse(errs.Clip(q.Channel, maxChannel), err)
		}
	case "unsubscribe":
		c.unsubscribe(q.Channel)
	case "ping":
		c.control(nil, message("pong", "", now(), "", nil, false))
	case "pong":
	default:
		c.refuse("", errs.New(errs.InvalidArgument, "MESSAGE_INVALID", "there are no messages of type %.40q", q.Type).
			Hint("send subscribe, unsubscribe or ping"))
	}
}

// kindError is the type of messages that tell of an error.
const kindError = "error"

// refuse tells an error; channel is that which the client has named.
func (c *client) refuse(channel string, err error) {
	c.control(nil, message(kindError, strings.ToValidUTF8(channel, ""), now(), "", c.describe(err), false))
}

func (c *client) subscribe(q request) error {
	kind, name := split(q.Channel)
	if len(q.Channel) > maxChannel || !utf8.ValidString(q.Channel) || name == "" && kind != feedChannel || strings.ContainsAny(name, " \t\r\n") {
		return errs.New(errs.InvalidArgument, "CHANNEL_UNKNOWN", "there is no channel %.80q", q.Channel).
			Hint("there are epic:ID, run:ID, thread:ID, workflow:SLUG and feed")
	}
	s := &subscription{client: c, channel: q.Channel, kind: kind, name: name}
	var from position
	if text := strings.Trim(string(q.From), `"`); text != "" && text != "null" {
		var ok bool
		if from, ok = parseCursor(s.run(), text); !ok {
			return errs.New(errs.InvalidArgument, "CURSOR_INVALID", "from %.40q is no cursor", text).Hint("send the last cursor that you have seen of this channel")
		}
	}
	s.ctx, s.cancel = context.WithCancel(c.ctx)
	c.mu.Lock()
	_, twice := c.subs[q.Channel]
	full := len(c.subs) >= maxSubscriptions
	if !twice && !full && !c.closed {
		c.subs[q.Channel] = s
	}
	c.mu.Unlock()
	switch {
	case twice:
		s.cancel()
		return errs.New(errs.AlreadyExists, "SUBSCRIBED_ALREADY", "this connection has the channel %s already", q.Channel).Hint("unsubscribe first to go on from another cursor")
	case full:
		s.cancel()
		return errs.New(errs.ResourceExhausted, "TOO_MANY_SUBSCRIPTIONS", "a connection has %d channels at most", maxSubscriptions).
			Hint("unsubscribe from some, or open another connection; the channel feed has all events of epics, tasks and workflows")
	}
	c.Server.work.Go(func() { s.begin(from) })
	return nil
}

func (c *client) unsubscribe(channel string) {
	c.mu.Lock()
	s := c.subs[channel]
	delete(c.subs, channel)
	if s != nil {
		s.gone = true
	}
	c.mu.Unlock()
	if s != nil {
		s.end()
	}
	c.control(nil, message("unsubscribed", errs.Clip(strings.ToValidUTF8(channel, ""), maxChannel), now(), "", nil, false))
}

// known checks that an epic is there which somebody wants to hear of from now on.
func (c *client) known(ctx context.Context, kind, name string) error {
	if kind != epicChannel {
		return nil
	}
	if _, err := c.Registry.GetEpic(ctx, &registryv1.GetEpicRequest{EpicId: name}); err != nil {
		return c.FromStatus(err)
	}
	return nil
}
