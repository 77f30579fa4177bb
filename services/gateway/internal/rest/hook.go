package rest

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/cells"
	"github.com/epigraph-run/epigraph/services/gateway/internal/jsonview"
)

const (
	// maxHookBody bounds the body of a webhook, maxHookHeader one of its headers and maxHookQuery the
	// query of its address, in bytes.
	maxHookBody, maxHookHeader, maxHookQuery = 256 << 10, 4 << 10, 4 << 10
	// maxHookPath bounds the path behind the namespace.
	maxHookPath = 256
	// maxHookCalls is how many webhooks of one namespace are called at once. Anybody can call them, so
	// they take nothing of what the keys of the namespace have.
	maxHookCalls = 64

	reasonHookNotFound = "HOOK_NOT_FOUND"
)

// hookHeaders are the headers that are handed on: those that prove who calls, those that name the
// event, and a few that tell of it.
func hookHeaders() []string {
	return []string{
		"Authorization", "Content-Type", "Idempotency-Key", "User-Agent", "Webhook-Id", "Webhook-Signature", "Webhook-Timestamp",
		"X-Github-Delivery", "X-Github-Event", "X-Hub-Signature-256", "X-Telegram-Bot-Api-Secret-Token",
	}
}

// hookRoute takes calls of webhooks. They need no key: their signature is the right to call, which the
// executor checks.
func (s *Server) hookRoute() *route {
	rt := newRoute(http.MethodPost, "/v1/hooks/{namespace}/{path=**}")
	rt.open, rt.handler = true, http.HandlerFunc(s.hook)
	return rt
}

func errHook() error {
	return errs.New(errs.NotFound, reasonHookNotFound, "there is no webhook for this call").Hint("see what `epigraph triggers ls` shows as its path, and how the call is to be signed")
}

func (s *Server) hook(w http.ResponseWriter, r *http.Request) {
	namespace, path := r.PathValue("namespace"), r.PathValue("path")
	if !grpckit.ValidNamespace(namespace) || len(path) > maxHookPath {
		s.writeError(w, r, errHook())
		return
	}
	ctx := grpckit.AsService(grpckit.WithNamespace(r.Context(), namespace))
	answer, err := s.receive(ctx, w, r, path)
	if err != nil {
		s.writeError(w, r, hookError(err))
		return
	}
	body, err := jsonview.Encode(answer)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write(body) // the caller may have left
}

// receive hands a call on.
func (s *Server) receive(ctx context.Context, w http.ResponseWriter, r *http.Request, path string) (*executorv1.ReceiveWebhookResponse, error) {
	if err := checkEncoding(r); err != nil {
		return nil, err
	}
	if len(r.URL.RawQuery) > maxHookQuery {
		return nil, errs.New(errs.InvalidArgument, "INVALID_QUERY", "the query has more than %d bytes", maxHookQuery)
	}
	req := &executorv1.ReceiveWebhookRequest{Path: path, Query: strings.ToValidUTF8(r.URL.RawQuery, ""), Headers: map[string]string{}}
	for _, name := range hookHeaders() {
		v := r.Header.Values(name)
		switch {
		case len(v) > 1:
			return nil, errs.New(errs.InvalidArgument, "HEADER_REPEATED", "the header %s may be given once", name)
		case len(v) == 1 && len(v[0]) <= maxHookHeader && utf8.ValidString(v[0]):
			req.Headers[strings.ToLower(name)] = v[0]
		}
	}
	// Who calls is not known yet, and anybody can name any namespace: all of them together have one share,
	// which is none of that which keys have.
	share := s.Budget.Share("hooks")
	defer share.Free()
	var err error
	if req.Body, err = readBody(w, r, maxHookBody, &share); err != nil {
		return nil, err
	}
	leave, ok := s.hooks.Try(grpckit.Namespace(ctx)) // behind the body, which may come slowly
	if !ok {
		return nil, grpckit.TooManyCalls(maxHookCalls)
	}
	defer leave()
	ctx, cancel := context.WithTimeoutCause(ctx, s.RequestTimeout, errRequestTimeout)
	defer cancel()
	answer, err := executorv1.NewHookServiceClient(s.Cells.Conn(cells.Executor)).ReceiveWebhook(ctx, req)
	if err != nil {
		return nil, fromCall(err)
	}
	return answer, nil
}

// hookError is an error as the caller of a webhook sees it. What is not there is told alike, whatever
// it is: a namespace, a path, or a signature.
func hookError(err error) error {
	e := errs.From(err)
	hidden := []errs.Kind{errs.NotFound, errs.PermissionDenied, errs.Unauthenticated, errs.FailedPrecondition}
	if slices.Contains(hidden, e.Kind) || e.Reason == "NAMESPACE_NOT_PLACED" {
		return errHook()
	}
	return e
}
