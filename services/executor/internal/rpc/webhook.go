package rpc

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
)

// hookEvents are the wire forms of what webhooks are told of.
var hookEvents = map[executorv1.WebhookEvent]webhook.Event{
	executorv1.WebhookEvent_WEBHOOK_EVENT_RUN_ENDED:        webhook.RunEnded,
	executorv1.WebhookEvent_WEBHOOK_EVENT_RUN_PAUSED:       webhook.RunPaused,
	executorv1.WebhookEvent_WEBHOOK_EVENT_INTERRUPT_OPENED: webhook.InterruptOpened,
}

func webhooks(in []*executorv1.Webhook) []webhook.Hook {
	var out []webhook.Hook
	for _, m := range in {
		h := webhook.Hook{URL: m.GetUrl(), Headers: m.GetHeaders(), Secret: m.GetSecret()}
		for _, e := range m.GetEvents() {
			h.Events = append(h.Events, hookEvents[e])
		}
		out = append(out, h)
	}
	return out
}

func webhooksShown(in []webhook.Hook) []*executorv1.Webhook {
	var out []*executorv1.Webhook
	for _, h := range in {
		m := &executorv1.Webhook{Url: h.URL}
		for _, e := range h.Events {
			for wire, name := range hookEvents {
				if name == e {
					m.Events = append(m.Events, wire)
				}
			}
		}
		out = append(out, m)
	}
	return out
}

// conceal takes out of a start what must not be shown.
func conceal(req *executorv1.StartRunRequest) {
	for _, m := range req.GetWebhooks() {
		m.Headers, m.Secret = nil, ""
	}
}

// bare reports whether a start has webhooks as conceal leaves them.
func bare(req *executorv1.StartRunRequest) bool {
	for _, m := range req.GetWebhooks() {
		if len(m.GetHeaders()) == 0 && m.GetSecret() == "" {
			return true
		}
	}
	return false
}

// keepSecrets gives webhooks that come without headers and secret those of the same address in an earlier start. An address that changes
// gets nothing, so that nobody learns a secret by it.
func keepSecrets(req *executorv1.StartRunRequest, earlier []byte) (kept bool, err error) {
	var old executorv1.StartRunRequest
	if err := proto.Unmarshal(earlier, &old); err != nil {
		return false, fmt.Errorf("decode start of schedule: %w", err)
	}
	for _, m := range req.GetWebhooks() {
		if len(m.GetHeaders()) > 0 || m.GetSecret() != "" {
			continue
		}
		for _, o := range old.GetWebhooks() {
			if o.GetUrl() == m.GetUrl() && (len(o.GetHeaders()) > 0 || o.GetSecret() != "") {
				m.Headers, m.Secret, kept = o.GetHeaders(), o.GetSecret(), true
				break
			}
		}
	}
	return kept, nil
}
