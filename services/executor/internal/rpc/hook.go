package rpc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/plainjson"
	"github.com/epigraph-run/epigraph/internal/telegram"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/bots"
	"github.com/epigraph-run/epigraph/services/executor/internal/signature"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
)

const (
	// reasonHookNotFound is the reason of every call of a webhook that is not taken, whyever.
	reasonHookNotFound = "HOOK_NOT_FOUND"
	// bodySpan is for how long a body without a name is the same event.
	bodySpan = 5 * time.Minute
	// maxQuery bounds the names in the query of a call.
	maxQuery = 100
)

// HookServer answers epigraph.executor.v1.HookService.
type HookServer struct {
	executorv1.UnimplementedHookServiceServer
	controller *trigger.Controller
	bots       *bots.Bots
}

// NewHookServer returns a server of the webhooks of a controller, and of those of bots.
func NewHookServer(c *trigger.Controller, b *bots.Bots) *HookServer {
	return &HookServer{controller: c, bots: b}
}

// ReceiveWebhook implements the service.
func (s *HookServer) ReceiveWebhook(ctx context.Context, req *executorv1.ReceiveWebhookRequest) (*executorv1.ReceiveWebhookResponse, error) {
	missing := errs.New(errs.NotFound, reasonHookNotFound, "there is no such webhook, or the call is not signed as it should be").
		Hint("`epigraph triggers list` shows the paths, and `epigraph triggers rotate` makes a new secret")
	if secret := header(req, telegram.HeaderSecret); secret != "" && strings.HasPrefix(req.GetPath(), bots.HookPrefix) {
		err := s.bots.Pushed(ctx, grpckit.Namespace(ctx), req.GetPath(), secret, req.GetBody())
		if errors.Is(err, signature.ErrRefused) {
			return nil, missing
		}
		return &executorv1.ReceiveWebhookResponse{}, away(err)
	}
	t, err := s.controller.ByPath(ctx, grpckit.Namespace(ctx), strings.Trim(req.GetPath(), "/"))
	if errs.Is(err, errs.NotFound) {
		return nil, missing
	}
	if err != nil {
		return nil, away(err)
	}
	now := time.Now()
	id, err := checkCall(&t, req, now)
	if err != nil {
		return nil, missing
	}
	body, err := callEvent(req)
	if err != nil {
		return nil, err
	}
	d, err := s.controller.Receive(ctx, trigger.Event{Trigger: t.Key, ID: id, Body: body, At: now})
	switch r := errs.ReasonOf(err); {
	case r == trigger.ReasonNotActive || r == trigger.ReasonNotFound:
		return nil, missing
	case err != nil:
		return nil, away(err)
	}
	out := &executorv1.ReceiveWebhookResponse{DeliveryId: d.ID, Repeated: d.Repeated}
	if d.Status == trigger.Started {
		out.RunId = d.RunID
	}
	return out, nil
}

// header is a header of a call, by its name in any case.
func header(req *executorv1.ReceiveWebhookRequest, name string) string {
	return req.GetHeaders()[strings.ToLower(name)]
}

// checkCall checks the signature of a call, and returns the name of the event.
func checkCall(t *trigger.Trigger, req *executorv1.ReceiveWebhookRequest, now time.Time) (id string, err error) {
	body := req.GetBody()
	switch t.Spec.Signature {
	case "github":
		id, err = header(req, signature.HeaderGitHubDelivery), signature.CheckGitHub(t.Secret, header(req, signature.HeaderGitHub), body)
	case "token":
		err = signature.CheckToken(t.Secret, header(req, "Authorization"))
		if id = header(req, "Idempotency-Key"); id == "" {
			id = header(req, signature.HeaderID)
		}
	default:
		key, kerr := signature.Key(t.Secret)
		if kerr != nil {
			return "", kerr
		}
		id = header(req, signature.HeaderID)
		err = signature.CheckStandard(key, id, header(req, signature.HeaderTime), header(req, signature.HeaderSignature), body, now)
	}
	if err == nil && id == "" {
		sum := sha256.Sum256(append([]byte(req.GetQuery()+"\n"), body...))
		id = "body/" + hex.EncodeToString(sum[:]) + "/" + strconv.FormatInt(now.Unix()/int64(bodySpan/time.Second), 10)
	}
	return id, err
}

// callEvent is the event of a call: its body, parsed if it is JSON, its query and the headers that were
// handed on, without those that prove who calls.
func callEvent(req *executorv1.ReceiveWebhookRequest) (json.RawMessage, error) {
	headers := map[string]string{}
	proofs := []string{"authorization", "cookie", strings.ToLower(signature.HeaderSignature), strings.ToLower(signature.HeaderGitHub), strings.ToLower(telegram.HeaderSecret)}
	for name, v := range req.GetHeaders() {
		if !slices.Contains(proofs, strings.ToLower(name)) {
			headers[strings.ToLower(name)] = v
		}
	}
	query := map[string]string{}
	values, _ := url.ParseQuery(req.GetQuery()) // what cannot be read is left out
	for name, list := range values {
		if len(list) > 0 && len(query) < maxQuery {
			query[name] = list[0]
		}
	}
	var body any = strings.ToValidUTF8(string(req.GetBody()), "\uFFFD")
	if json.Valid(req.GetBody()) {
		body = json.RawMessage(req.GetBody())
	}
	out, err := plainjson.Marshal(map[string]any{"headers": headers, "query": query, "body": body})
	if err != nil {
		return nil, fmt.Errorf("encode call: %w", err)
	}
	return out, nil
}
