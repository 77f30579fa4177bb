package webhook

import (
	"encoding/json"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/signature"
)

// MaxValue is how large a result, and what an interrupt consists of, may be to be carried along.
const MaxValue = 64 << 10

// Message is the body of a delivery. It is the same for every try.
type Message struct {
	ID        string `json:"id"`
	Type      Event  `json:"type"`
	Namespace string `json:"namespace"`
	RunID     string `json:"run_id"`
	RootRunID string `json:"root_run_id"`
	// Time and Sequence are those of the event in the journal of RunID.
	Time     time.Time `json:"time"`
	Sequence int64     `json:"sequence"`
	// State is where the run stood then, spelled as REST spells it, and Reason why.
	State       string            `json:"state,omitempty"`
	Reason      string            `json:"reason,omitempty"`
	GraphName   string            `json:"graph_name,omitempty"`
	TaskID      string            `json:"task_id,omitempty"`
	BusinessKey string            `json:"business_key,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	// Metadata are the facts that the caller gave for its own use.
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// Result is absent, and ResultOmitted set, when it is larger than MaxValue.
	Result        json.RawMessage `json:"result,omitempty"`
	ResultOmitted bool            `json:"result_omitted,omitempty"`
	Error         *Error          `json:"error,omitempty"`
	// UnbookedAttempts counts, when a run has ended, the attempts whose usage is not booked yet.
	UnbookedAttempts int64      `json:"unbooked_attempts,omitempty"`
	Interrupt        *Interrupt `json:"interrupt,omitempty"`
	// Text is what was said in a chat.
	Text string `json:"-"`
	// Link is where the run can be read over REST.
	Link string `json:"link"`
}

// Error says why a run failed.
type Error struct {
	Type    string `json:"type,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	NodeID  string `json:"node_id,omitempty"`
	Visit   int    `json:"visit,omitempty"`
}

// Interrupt is a question.
type Interrupt struct {
	ID     string `json:"id"`
	NodeID string `json:"node_id"`
	Visit  int32  `json:"visit"`
	Item   int32  `json:"item,omitempty"`
	// Prompt, Schema and Approve are absent, and Omitted set, when they are larger than MaxValue
	// together.
	Prompt      json.RawMessage `json:"prompt,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
	Approve     json.RawMessage `json:"approve,omitempty"`
	ApproveHash string          `json:"approve_hash,omitempty"`
	Omitted     bool            `json:"omitted,omitempty"`
	ExpireTime  time.Time       `json:"expire_time,omitzero"`
	// Link is where the interrupt can be read and, with ":answer", answered over REST.
	Link string `json:"link"`
}

// sign is the value of the header of the signature, empty without a secret.
func sign(secret, id string, at time.Time, body []byte) (string, error) {
	k, err := signature.Key(secret)
	if err != nil || k == nil {
		return "", err
	}
	return signature.Standard(k, id, at, body), nil
}
