package epigraph

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// Events of webhooks, as in WebhookMessage.Type.
const (
	RunEnded        = "run.ended"
	RunPaused       = "run.paused"
	InterruptOpened = "interrupt.opened"
)

// Webhook sends messages about the run to an address. The secret signs them, for VerifyWebhook; without one
// they are not signed. The events are RunEnded, RunPaused and InterruptOpened; none means RunEnded.
func Webhook(url, secret string, events ...string) StartOption {
	return func(r *executorv1.StartRunRequest) error {
		m := &executorv1.Webhook{Url: url, Secret: secret}
		for _, name := range events {
			e, ok := map[string]executorv1.WebhookEvent{
				RunEnded: executorv1.WebhookEvent_WEBHOOK_EVENT_RUN_ENDED, RunPaused: executorv1.WebhookEvent_WEBHOOK_EVENT_RUN_PAUSED,
				InterruptOpened: executorv1.WebhookEvent_WEBHOOK_EVENT_INTERRUPT_OPENED,
			}[name]
			if !ok {
				return fmt.Errorf("epigraph: %q is no event of a webhook: give %s, %s or %s", name, RunEnded, RunPaused, InterruptOpened)
			}
			m.Events = append(m.Events, e)
		}
		r.Webhooks = append(r.Webhooks, m)
		return nil
	}
}

// WebhookMessage is the body of a delivery. A field that does not belong to the event is zero.
type WebhookMessage struct {
	// ID is the same for every try of one delivery. A receiver that has seen it may answer 200 and do
	// nothing.
	ID        string    `json:"id"`
	Type      string    `json:"type"`
	Namespace string    `json:"namespace"`
	RunID     string    `json:"run_id"`
	RootRunID string    `json:"root_run_id"`
	Time      time.Time `json:"time"`
	// Sequence is the event's sequence in the run: of two messages about one run the higher one is the later,
	// in whatever order they arrive.
	Sequence int64 `json:"sequence"`
	// State is spelled as in REST, for example "RUN_STATE_COMPLETED".
	State       string            `json:"state"`
	Reason      string            `json:"reason"`
	GraphName   string            `json:"graph_name"`
	TaskID      string            `json:"task_id"`
	BusinessKey string            `json:"business_key"`
	Labels      map[string]string `json:"labels"`
	Metadata    map[string]string `json:"metadata"`
	// Result is left out, and ResultOmitted set, when it is larger than 64 KiB. Link says where to read it.
	Result        json.RawMessage `json:"result"`
	ResultOmitted bool            `json:"result_omitted"`
	Error         *WebhookError   `json:"error"`
	// UnbookedAttempts counts the attempts of an ended run whose usage is not booked yet.
	UnbookedAttempts int64             `json:"unbooked_attempts"`
	Interrupt        *WebhookInterrupt `json:"interrupt"`
	// Link is the run's path over REST.
	Link string `json:"link"`
}

// WebhookError says why a run failed.
type WebhookError struct {
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	NodeID  string `json:"node_id"`
	Visit   int    `json:"visit"`
}

// WebhookInterrupt is a question that waits for an answer.
type WebhookInterrupt struct {
	ID     string `json:"id"`
	NodeID string `json:"node_id"`
	Visit  int    `json:"visit"`
	Item   int    `json:"item"`
	// Prompt, Schema and Approve are left out, and Omitted set, when they are larger than 64 KiB together.
	Prompt      json.RawMessage `json:"prompt"`
	Schema      json.RawMessage `json:"schema"`
	Approve     json.RawMessage `json:"approve"`
	ApproveHash string          `json:"approve_hash"`
	Omitted     bool            `json:"omitted"`
	ExpireTime  time.Time       `json:"expire_time"`
	// Link is the interrupt's path over REST; with ":answer" it takes the answer.
	Link string `json:"link"`
}

// WebhookTolerance is how far the clock of who sent a webhook may be from ours.
const WebhookTolerance = 5 * time.Minute

// ErrWebhookSignature is the error of a request that is not signed with the secret or is too old.
var ErrWebhookSignature = errors.New("epigraph: the webhook is not signed as it should be")

// VerifyWebhook checks that a request was signed with the secret within WebhookTolerance, and decodes its
// body, which must be the bytes as received. Signatures are compared in constant time. A delivery is repeated
// if the receiver answers with another status than 2xx and most of 4xx.
func VerifyWebhook(secret string, header http.Header, body []byte) (*WebhookMessage, error) {
	if secret == "" {
		return nil, errors.New("epigraph: verify webhook: no secret is given")
	}
	key := []byte(secret)
	if text, ok := strings.CutPrefix(secret, "whsec_"); ok {
		var err error
		if key, err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, errors.New("epigraph: verify webhook: after whsec_ the secret is not base64")
		}
	}
	id, stamp := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp")
	sent, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || id == "" {
		return nil, fmt.Errorf("%w: webhook-id or webhook-timestamp is missing", ErrWebhookSignature)
	}
	if d := time.Since(time.Unix(sent, 0)); d > WebhookTolerance || d < -WebhookTolerance {
		return nil, fmt.Errorf("%w: it is of another time", ErrWebhookSignature)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	want, found := mac.Sum(nil), false
	for given := range strings.FieldsSeq(header.Get("Webhook-Signature")) {
		text, ok := strings.CutPrefix(given, "v1,")
		sum, err := base64.StdEncoding.DecodeString(text)
		if ok && err == nil && hmac.Equal(sum, want) {
			found = true
		}
	}
	if !found {
		return nil, ErrWebhookSignature
	}
	var m WebhookMessage
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, fmt.Errorf("epigraph: read webhook: %w", err)
	}
	return &m, nil
}
