package epigraph

import (
	"context"
	"iter"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// Thread is a thread by its id: what an agent said, heard and decided. It holds no connection of its own.
type Thread struct {
	// ID is "thr_…".
	ID string
	c  *Client
}

// ThreadOption says more about a thread that is to be.
type ThreadOption func(*executorv1.Thread)

// ThreadKey gives the thread a name that is unique in the namespace, such as "USER:CHAT:WORKFLOW".
func ThreadKey(key string) ThreadOption { return func(t *executorv1.Thread) { t.Key = key } }

// ThreadAgent sets the actor that takes the thread's messages.
func ThreadAgent(actor string) ThreadOption {
	return func(t *executorv1.Thread) { t.Agent = actor }
}

// ThreadTitle sets what people call the thread.
func ThreadTitle(title string) ThreadOption {
	return func(t *executorv1.Thread) { t.Title = title }
}

// ThreadUser says whose conversation the thread is: runs that its messages start have this user and this
// chat, either of which may be empty.
func ThreadUser(user, chat string) ThreadOption {
	return func(t *executorv1.Thread) { t.UserId, t.ChatId = user, chat }
}

// EphemeralThread lets the thread go an hour after its last use.
func EphemeralThread() ThreadOption {
	return func(t *executorv1.Thread) {
		t.Lifetime = executorv1.ThreadLifetime_THREAD_LIFETIME_EPHEMERAL
	}
}

// RunThread lets the thread go with the end of the run that holds it. Only a run is started with such a
// thread.
func RunThread() ThreadOption {
	return func(t *executorv1.Thread) {
		t.Lifetime = executorv1.ThreadLifetime_THREAD_LIFETIME_RUN
	}
}

func threadOf(opts []ThreadOption) *executorv1.Thread {
	t := &executorv1.Thread{}
	for _, f := range opts {
		f(t)
	}
	return t
}

func (c *Client) threads() executorv1.ThreadServiceClient {
	return executorv1.NewThreadServiceClient(c.conn)
}

// CreateThread makes an empty thread whose messages go to an agent, such as "agent/NAME". If another thread
// has the key, the reason is THREAD_ALREADY_EXISTS.
func (c *Client) CreateThread(ctx context.Context, agent string, opts ...ThreadOption) (*Thread, error) {
	m, err := c.threads().CreateThread(ctx, &executorv1.CreateThreadRequest{Thread: threadOf(append([]ThreadOption{ThreadAgent(agent)}, opts...))})
	if err != nil {
		return nil, err
	}
	return c.Thread(m.GetId()), nil
}

// Thread is the thread of that id; nothing is asked.
func (c *Client) Thread(id string) *Thread { return &Thread{ID: id, c: c} }

// ThreadByKey finds the thread that has the key. If there is none, the reason is THREAD_NOT_FOUND.
func (c *Client) ThreadByKey(ctx context.Context, key string) (*Thread, error) {
	m, err := c.threads().GetThread(ctx, &executorv1.GetThreadRequest{ThreadId: "-", Key: key})
	if err != nil {
		return nil, err
	}
	return c.Thread(m.GetId()), nil
}

// Threads are those that a filter finds, newest first; nil finds all. An error is the last pair.
func (c *Client) Threads(ctx context.Context, filter *executorv1.ListThreadsRequest) iter.Seq2[*executorv1.Thread, error] {
	return all(func(token string) ([]*executorv1.Thread, string, error) {
		req := copyOf(filter)
		req.PageSize, req.PageToken = largePage, token
		m, err := c.threads().ListThreads(ctx, req)
		return m.GetThreads(), m.GetNextPageToken(), err
	})
}

// OnThread lets the run work on a thread.
func OnThread(id string) StartOption {
	return func(r *executorv1.StartRunRequest) error { r.ThreadId = id; return nil }
}

// OnNewThread lets the run work on a thread that is made with it, or on the one that has its key already. A
// conversation without a key has that of the run's user, chat and graph.
func OnNewThread(opts ...ThreadOption) StartOption {
	return func(r *executorv1.StartRunRequest) error { r.Thread = threadOf(opts); return nil }
}

// Get reads the thread.
func (t *Thread) Get(ctx context.Context) (*executorv1.Thread, error) {
	return t.c.threads().GetThread(ctx, &executorv1.GetThreadRequest{ThreadId: t.ID})
}

// Fork makes a thread that goes on after an item of this one; 0 means the last one.
func (t *Thread) Fork(ctx context.Context, sequence int64, opts ...ThreadOption) (*Thread, error) {
	m, err := t.c.threads().ForkThread(ctx, &executorv1.ForkThreadRequest{ThreadId: t.ID, Sequence: sequence, Thread: threadOf(opts)})
	if err != nil {
		return nil, err
	}
	return t.c.Thread(m.GetId()), nil
}

// Delete removes the thread. While an open run holds it, the reason is THREAD_BUSY.
func (t *Thread) Delete(ctx context.Context) error {
	_, err := t.c.threads().DeleteThread(ctx, &executorv1.DeleteThreadRequest{ThreadId: t.ID})
	return err
}

// Send sends a message to the agent. RunId of the turn names the run that takes it, once the turn is no
// longer queued. A call with a requestID may be repeated.
func (t *Thread) Send(ctx context.Context, content any, requestID string) (*executorv1.Turn, error) {
	p, err := Payload(content)
	if err != nil {
		return nil, err
	}
	return t.c.threads().AppendMessage(ctx, &executorv1.AppendMessageRequest{ThreadId: t.ID, Content: p, RequestId: requestID})
}

// Turn shows what became of a message.
func (t *Thread) Turn(ctx context.Context, number int64) (*executorv1.Turn, error) {
	return t.c.threads().GetTurn(ctx, &executorv1.GetTurnRequest{ThreadId: t.ID, Number: number})
}

// Turns are the messages that were sent to the agent, in order. An error is the last pair.
func (t *Thread) Turns(ctx context.Context) iter.Seq2[*executorv1.Turn, error] {
	return all(func(token string) ([]*executorv1.Turn, string, error) {
		m, err := t.c.threads().ListTurns(ctx, &executorv1.ListTurnsRequest{ThreadId: t.ID, PageSize: largePage, PageToken: token})
		return m.GetTurns(), m.GetNextPageToken(), err
	})
}

// Messages are those of the thread, newest first. An error is the last pair.
func (t *Thread) Messages(ctx context.Context) iter.Seq2[*executorv1.ThreadItem, error] {
	return all(func(token string) ([]*executorv1.ThreadItem, string, error) {
		m, err := t.c.threads().ListMessages(ctx, &executorv1.ListMessagesRequest{ThreadId: t.ID, PageSize: largePage, PageToken: token})
		return m.GetMessages(), m.GetNextPageToken(), err
	})
}

// States are those of the agents that worked on the thread, newest first, with their bodies. An error is the
// last pair.
func (t *Thread) States(ctx context.Context) iter.Seq2[*executorv1.ThreadItem, error] {
	return all(func(token string) ([]*executorv1.ThreadItem, string, error) {
		m, err := t.c.threads().ListStates(ctx, &executorv1.ListStatesRequest{ThreadId: t.ID, PageSize: largePage, PageToken: token, Full: true})
		return m.GetStates(), m.GetNextPageToken(), err
	})
}

// Learnings are what agents have learned on the thread, newest first. An error is the last pair.
func (t *Thread) Learnings(ctx context.Context) iter.Seq2[*executorv1.ThreadItem, error] {
	return all(func(token string) ([]*executorv1.ThreadItem, string, error) {
		m, err := t.c.threads().ListLearnings(ctx, &executorv1.ListLearningsRequest{ThreadId: t.ID, PageSize: largePage, PageToken: token})
		return m.GetLearnings(), m.GetNextPageToken(), err
	})
}

// Summaries are what agents were told in place of older items, newest first. An error is the last pair.
func (t *Thread) Summaries(ctx context.Context) iter.Seq2[*executorv1.ThreadItem, error] {
	return all(func(token string) ([]*executorv1.ThreadItem, string, error) {
		m, err := t.c.threads().ListSummaries(ctx, &executorv1.ListSummariesRequest{ThreadId: t.ID, PageSize: largePage, PageToken: token})
		return m.GetSummaries(), m.GetNextPageToken(), err
	})
}
