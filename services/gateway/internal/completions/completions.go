// Package completions owns the OpenAI-compatible API: chat completions in front of agents and of
// workflows that a chat starts, and the list of both as models. It owns how a request becomes a message
// on a thread, and how the run that answers becomes a completion. It must not know routes, credentials
// or statuses of HTTP.
package completions

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/exposed"
)

// Options say how requests are answered. All are required.
type Options struct {
	Executor  executorv1.ExecutorServiceClient
	Threads   executorv1.ThreadServiceClient
	Workflows *exposed.Workflows
	// Body reads the body of a request within its bounds, and holds memory for it until free is called.
	Body func(http.ResponseWriter, *http.Request) (body []byte, free func(), err error)
	// Fail answers a request with an error, before an answer has begun.
	Fail func(http.ResponseWriter, *http.Request, error)
	// Error renders an error.
	Error func(error) []byte
	// KeepAlive is the longest silence of a stream, and WriteTimeout how long a client may leave a
	// piece unread.
	KeepAlive, WriteTimeout time.Duration
	// Stopping returns a channel that is closed when the server drains.
	Stopping func(context.Context) <-chan struct{}
}

const (
	// HeaderThread names the thread of a conversation by its id or its key, in requests and answers.
	HeaderThread = "Epigraph-Thread"
	// HeaderRun names the run that answers.
	HeaderRun = "Epigraph-Run"
	// HeaderUnused names the parameters of a request that say what an agent decides by itself.
	HeaderUnused = "Epigraph-Unused"
	// headerOnce makes a request repeatable.
	headerOnce = "Idempotency-Key"
	// headerRetry tells the clients of OpenAI whether to try again by themselves. After the message was
	// sent they must not: it would be sent twice.
	headerRetry = "X-Should-Retry"

	agentPrefix, workflowPrefix = "agent/", "workflow/"
	// maxAnswer bounds how long a request waits for its answer. Clients of OpenAI wait as long.
	maxAnswer = 10 * time.Minute
	// turnPoll and maxTurnPoll are the pauses between looks at a turn that waits for others.
	turnPoll, maxTurnPoll = 50 * time.Millisecond, time.Second
)

// Handler answers requests. It is safe for concurrent use.
type Handler struct{ Options }

// New returns a handler.
func New(o Options) *Handler { return &Handler{o} }

// ServeHTTP serves POST /v1/chat/completions.
func (d *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), maxAnswer)
	defer cancel()
	body, free, err := d.Body(w, r)
	defer free()
	var req *request
	if err == nil {
		req, err = read(body)
	}
	if err != nil {
		d.Fail(w, r, err)
		return
	}
	t := &talk{Handler: d, request: req, once: r.Header.Get(headerOnce)}
	if err := t.begin(ctx, r.Header.Get(HeaderThread)); err != nil {
		d.Fail(w, r, err)
		return
	}
	h := w.Header()
	h.Set(HeaderThread, t.thread.GetId())
	if len(req.unused) > 0 {
		h.Set(HeaderUnused, strings.Join(req.unused, ", "))
	}
	turn, err := t.send(ctx)
	req.Messages = nil
	free() // the answer may take minutes
	if err == nil {
		err = t.taken(ctx, turn)
	}
	if err != nil {
		h.Set(headerRetry, "false")
		d.Fail(w, r, err)
		return
	}
	h.Set(HeaderRun, t.run)
	if req.Stream {
		t.stream(ctx, w, r)
		return
	}
	a, err := t.answer(ctx, func(string) error { return nil }, func() error { return nil })
	if err != nil {
		h.Set(headerRetry, "false")
		d.Fail(w, r, err)
		return
	}
	h.Set("Content-Type", "application/json")
	finish := "stop"
	out, err := json.Marshal(completion{
		ID: "chatcmpl-" + t.run, Object: "chat.completion", Created: time.Now().Unix(), Model: t.model,
		Choices: []choice{{Message: &said{Role: "assistant", Content: &a.text}, Finish: &finish}}, Usage: &a.usage, Epigraph: t.about(a),
	})
	if err != nil {
		d.Fail(w, r, err)
		return
	}
	_, _ = w.Write(out) // the client is gone if this fails
}

// completion is an answer, or a piece of one.
type completion struct {
	ID       string   `json:"id"`
	Object   string   `json:"object"`
	Created  int64    `json:"created"`
	Model    string   `json:"model"`
	Choices  []choice `json:"choices"`
	Usage    *usage   `json:"usage,omitempty"`
	Epigraph *about   `json:"epigraph,omitempty"`
}

type choice struct {
	Index   int     `json:"index"`
	Message *said   `json:"message,omitempty"`
	Delta   *said   `json:"delta,omitempty"`
	Finish  *string `json:"finish_reason"`
}

type said struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
}

// about is what clients of OpenAI do not look at.
type about struct {
	Thread string `json:"thread_id"`
	Run    string `json:"run_id"`
	// Interrupt is the question that waits, if the answer is one.
	Interrupt string `json:"interrupt_id,omitempty"`
}

func (t *talk) about(a *answer) *about {
	return &about{Thread: t.thread.GetId(), Run: t.run, Interrupt: a.interrupt}
}

// model is an entry of the list of models.
type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Owner   string `json:"owned_by"`
}

// Models serves GET /v1/models: the agents, and the exposed workflows that a chat starts.
func (d *Handler) Models(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	actors, err := d.Executor.ListActors(ctx, &executorv1.ListActorsRequest{})
	if err != nil {
		d.Fail(w, r, err)
		return
	}
	list := struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{"list", []model{}}
	for _, a := range actors.GetActors() {
		if strings.HasPrefix(a.GetName(), agentPrefix) {
			list.Data = append(list.Data, model{ID: a.GetName(), Object: "model", Owner: "agent"})
		}
	}
	workflows, err := d.Workflows.Chats(ctx)
	if err != nil {
		d.Fail(w, r, err)
		return
	}
	for _, f := range workflows {
		list.Data = append(list.Data, model{ID: exposed.Ref(f), Object: "model", Created: f.GetCreateTime().GetSeconds(), Owner: "workflow"})
	}
	slices.SortFunc(list.Data, func(a, b model) int { return cmp.Compare(a.ID, b.ID) })
	out, err := json.Marshal(list)
	if err != nil {
		d.Fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(out) // the client is gone if this fails
}

// fault is an error of a field of a request.
func fault(field, reason, format string, args ...any) error {
	e := errs.New(errs.InvalidArgument, reason, format, args...)
	return e.Violate(field, reason, e.Message)
}
