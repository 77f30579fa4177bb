package rpc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/telegram"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/bots"
	"github.com/epigraph-run/epigraph/services/executor/internal/signature"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
)

// sameBody is the span of the clock in which calls with the same body are one, if nothing else names them.
const sameBody = 5 * time.Minute

// HookServer answers epigraph.executor.v1.HookService.
type HookServer struct {
	executorv1.UnimplementedHookServiceServer
	triggers *trigger.Controller
	bots     *bots.Bots
}

// NewHookServer returns a server of the webhooks among the triggers of a controller, and of those of bots.
func NewHookServer(c *trigger.Controller, b *bots.Bots) *HookServer { return &HookServer{triggers: c, bots: b} }

// errHook is the error of every call that is not let in: nobody learns from it which webhooks there are.
func errHook() error {
	return errs.New(errs.NotFound, "HOOK_NOT_FOUND", "there is no webhook for this call: the path, the signature, or the trigger does not fit")
}

// ReceiveWebhook implements the service.
func (s *HookServer) ReceiveWebhook(ctx context.Context, req *executorv1.ReceiveWebhookRequest) (*executorv1.ReceiveWebhookResponse, error) {
	ns, now := grpckit.Namespace(ctx), time.Now()
	if secret := header(req, telegram.HeaderSecret); secret != "" && strings.HasPrefix(req.GetPath(), bots.HookPrefix) {
		err := s.bots.Pushed(ctx, ns, req.GetPath(), secret, req.GetBody())
		if err == signature.ErrRefused { //nolint:errorlint // it is never wrapped
			return nil, errHook()
		}
		return &executorv1.ReceiveWebhookResponse{}, away(err)
	}
	t, err := s.triggers.ByPath(ctx, ns, req.GetPath())
	if errs.Is(err, errs.NotFound) {
		return nil, errHook()
	}
	if err != nil {
		return nil, away(err)
	}
	id, err := admitted(&t, req, now)
	if err != nil {
		return nil, errHook()
	}
	body, err := hookEvent(req)
	if err != nil {
		return nil, err
	}
	d, err := s.triggers.Receive(ctx, trigger.Event{Trigger: t.Key, ID: id, Body: body, At: now})
	switch reason := errs.ReasonOf(err); {
	case reason == trigger.ReasonNotActive || reason == trigger.ReasonNotFound:
		return nil, errHook()
	case err != nil:
		return nil, away(err)
	}
	out := &executorv1.ReceiveWebhookResponse{DeliveryId: d.ID, Repeated: d.Repeated}
	if d.Status == trigger.Started {
		out.RunId = d.RunID
	}
	return out, nil
}

func header(req *executorv1.ReceiveWebhookRequest, name string) string {
	return req.GetHeaders()[strings.ToLower(name)]
}

// admitted checks who calls, and returns what names the event.
func admitted(t *trigger.Trigger, req *executorv1.ReceiveWebhookRequest, now time.Time) (id string, err error) {
	sum := sha256.Sum256(req.GetBody())
	body := "body/" + hex.EncodeToString(sum[:]) + "/" + strconv.FormatInt(now.Unix()/int64(sameBody/time.Second), 10)
	switch t.Spec.Signature {
	case "github":
		id, err = header(req, signature.HeaderGitHubDelivery), signature.CheckGitHub(t.Secret, header(req, signature.HeaderGitHub), req.GetBody())
	case "token":
		id, err = header(req, "Idempotency-Key"), signature.CheckToken(t.Secret, header(req, "Authorization"))
		if id == "" {
			id = header(req, signature.HeaderID)
		}
	default:
		k, kerr := signature.Key(t.Secret)
		if kerr != nil {
			return "", signature.ErrRefused
		}
		id = header(req, signature.HeaderID)
		err = signature.CheckStandard(k, id, header(req, signature.HeaderTime), header(req, signature.HeaderSignature), req.GetBody(), now)
	}
	if id == "" {
		id = body
	}
	return id, err
}

// shownHeaders are those that an event has. What proves who calls is not among them.
func shownHeaders() []string {
	return []string{"Content-Type", "User-Agent", signature.HeaderID, signature.HeaderTime, signature.HeaderGitHubEvent, signature.HeaderGitHubDelivery}
}

// hookEvent is what the trigger is told of a call.
func hookEvent(req *executorv1.ReceiveWebhookRequest) (json.RawMessage, error) {
	query, err := url.ParseQuery(req.GetQuery())
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, trigger.ReasonInvalid, "the query of the address cannot be read")
	}
	e := struct {
		Headers map[string]string `json:"headers"`
		Query   map[string]any    `json:"query"`
		Body    any               `json:"body"`
	}{map[string]string{}, map[string]any{}, json.RawMessage("null")}
	for _, name := range shownHeaders() {
		if v := header(req, name); v != "" {
			e.Headers[strings.ToLower(name)] = v
		}
	}
	for name, v := range query {
		if e.Query[name] = v; len(v) == 1 {
			e.Query[name] = v[0]
		}
	}
	switch body := req.GetBody(); {
	case len(body) == 0:
	case json.Valid(body):
		e.Body = json.RawMessage(body)
	default:
		e.Body = strings.ReplaceAll(strings.ToValidUTF8(string(body), "�"), "\x00", "")
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	return b, nil
}
