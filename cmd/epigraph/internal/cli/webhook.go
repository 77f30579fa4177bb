package cli

import (
	"strings"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// runWebhooks are the flags for webhooks of a run.
type runWebhooks struct {
	Webhooks      []string `help:"Address of a webhook for events of the run." name:"webhook" placeholder:"URL" sep:"none"`
	WebhookOn     []string `help:"Events that webhooks get: ended (the default), paused, asked." name:"webhook-on" enum:"ended,paused,asked" placeholder:"EVENT"`
	WebhookSecret string   `help:"Secret that signs the requests of webhooks; better set EPIGRAPH_WEBHOOK_SECRET." name:"webhook-secret" env:"EPIGRAPH_WEBHOOK_SECRET" placeholder:"TEXT"`
}

// messages are the webhooks of a request; nil when no address was given.
func (f *runWebhooks) messages() []*executorv1.Webhook {
	var events []executorv1.WebhookEvent
	for _, name := range f.WebhookOn {
		events = append(events, map[string]executorv1.WebhookEvent{
			"ended":  executorv1.WebhookEvent_WEBHOOK_EVENT_RUN_ENDED,
			"paused": executorv1.WebhookEvent_WEBHOOK_EVENT_RUN_PAUSED,
			"asked":  executorv1.WebhookEvent_WEBHOOK_EVENT_INTERRUPT_OPENED,
		}[name])
	}
	var out []*executorv1.Webhook
	for _, url := range f.Webhooks {
		out = append(out, &executorv1.Webhook{Url: url, Events: events, Secret: f.WebhookSecret})
	}
	return out
}

// hooksText names the addresses; empty when there are none.
func hooksText(hooks []*executorv1.Webhook) string {
	urls := make([]string, 0, len(hooks))
	for _, h := range hooks {
		urls = append(urls, h.GetUrl())
	}
	return strings.Join(urls, ", ")
}
