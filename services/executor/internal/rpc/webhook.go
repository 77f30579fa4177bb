package rpc

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
)

// hookEvents are the wire forms of the events of webhooks.
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
		if h.Chat != nil {
			continue // the caller did not ask for it
		}
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

// keepSecrets gives webhooks without headers and secret those of the same address in an earlier start,
// each once: of several at one address, those with the same events first. A new address gets nothing,
// so that nobody learns a secret by it.
func keepSecrets(req *executorv1.StartRunRequest, earlier []byte) (kept bool, err error) {
	var old executorv1.StartRunRequest
	if err := proto.Unmarshal(earlier, &old); err != nil {
		return false, fmt.Errorf("decode start of schedule: %w", err)
	}
	left := slices.Clone(old.GetWebhooks())
	done := map[*executorv1.Webhook]bool{}
	for _, alike := range []bool{true, false} {
		for _, m := range req.GetWebhooks() {
			if done[m] || len(m.GetHeaders()) > 0 || m.GetSecret() != "" {
				continue
			}
			i := slices.IndexFunc(left, func(o *executorv1.Webhook) bool {
				return o.GetUrl() == m.GetUrl() && (!alike || slices.Equal(o.GetEvents(), m.GetEvents()))
			})
			if i < 0 {
				continue
			}
			o := left[i]
			left, done[m] = slices.Delete(left, i, i+1), true
			m.Headers, m.Secret = o.GetHeaders(), o.GetSecret()
			kept = kept || len(m.GetHeaders()) > 0 || m.GetSecret() != ""
		}
	}
	return kept, nil
}
