package record

import (
	"encoding/json"
	"fmt"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Metadata is the content of the row's metadata column.
type Metadata struct {
	User      json.RawMessage `json:"user,omitempty"`
	RequestID string          `json:"request_id,omitempty"`
	// Principal is the caller that started the run.
	Principal string `json:"principal,omitempty"`
	BodyHash  string `json:"body_hash,omitempty"`
	// Ref, Depth and Borrowed are those of the lineage.
	Ref      *workgraph.Ref `json:"parent_visit,omitempty"`
	Depth    int            `json:"depth,omitempty"`
	Borrowed bool           `json:"borrowed_task,omitempty"`
	// Delegated is that of the lineage.
	Delegated int `json:"delegated,omitempty"`
	// Budget is the present budget of the run.
	Budget *workgraph.Budget `json:"budget,omitempty"`
	// Webhooks are the run's own. Asks is that of the lineage.
	Webhooks []webhook.Hook `json:"webhooks,omitempty"`
	Asks     []int          `json:"webhooks_of_root,omitempty"`
	// Approved is that of the lineage.
	Approved *Approval `json:"approved,omitempty"`
	// Agent is that of the lineage.
	Agent *workgraph.AgentRun `json:"agent,omitempty"`
	// Workflow is that of the lineage.
	Workflow string `json:"workflow,omitempty"`
	// Within is that of the lineage.
	Within string `json:"within_workflow,omitempty"`
	// TurnOf is that of the lineage.
	TurnOf string `json:"turn_of,omitempty"`
	// Origin is that of the lineage.
	Origin *Origin `json:"origin,omitempty"`
	// Standing is that of the lineage.
	Standing *workgraph.Standing `json:"standing,omitempty"`
	// Payer is that of the lineage. It changes while the run goes on.
	Payer *Payer `json:"payer,omitempty"`
	// Maker is that of the lineage, where it is not the root of the run with Principal.
	Maker *access.Maker `json:"maker,omitempty"`
}

// MakerOf is the maker of a run whose root is this one.
func (m *Metadata) MakerOf(root string) access.Maker {
	if m.Maker != nil {
		return *m.Maker
	}
	return access.Maker{Root: root, Principal: m.Principal}
}

// Empty reports whether there is nothing to store.
func (m *Metadata) Empty() bool {
	return m.User == nil && m.RequestID == "" && m.Principal == "" && m.Ref == nil && m.Depth == 0 && m.Delegated == 0 && !m.Borrowed && m.Budget == nil && len(m.Webhooks) == 0 && len(m.Asks) == 0 && m.Approved == nil && m.Agent == nil && m.Workflow == "" && m.Within == "" && m.TurnOf == "" && m.Origin == nil && m.Standing == nil && m.Payer == nil && m.Maker == nil
}

// DecodeMetadata reads the metadata of a row. Empty metadata give the zero value.
func DecodeMetadata(b []byte) (Metadata, error) {
	var m Metadata
	if len(b) == 0 {
		return m, nil
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("decode metadata: %w", err)
	}
	return m, nil
}

// CallerData is what callers attached to a run: people, programs, or the visit of another run.
type CallerData struct {
	// Metadata is that of the start request.
	Metadata json.RawMessage
	// Budget is that of the start request, or of a later Resume; nil means no limit.
	Budget *workgraph.Budget
	// Principal is the caller that started the run, by the API key.
	Principal string
	// Webhooks are without their secrets.
	Webhooks []webhook.Hook
	// Parent is the visit that spawned the run, or nil.
	Parent *workgraph.Ref
	// Workflow is the version of the catalog that the graph was taken from.
	Workflow string
}

// CallerDataOf reads what callers attached from the metadata of a run's row.
func CallerDataOf(row []byte) (CallerData, error) {
	m, err := DecodeMetadata(row)
	return CallerData{Metadata: m.User, Budget: m.Budget, Principal: m.Principal, Webhooks: webhook.Without(m.Webhooks), Parent: m.Ref, Workflow: m.Workflow}, err
}

// WithoutSecrets is the metadata of a row without the secrets of webhooks, as it may leave the executor.
func WithoutSecrets(row []byte) ([]byte, error) {
	m, err := DecodeMetadata(row)
	if err != nil || len(m.Webhooks) == 0 {
		return row, err
	}
	m.Webhooks = webhook.Without(m.Webhooks)
	return json.Marshal(m)
}

// StartedBy reports whether this request started the run.
func (m *Metadata) StartedBy(req journal.Request) bool {
	return req.ID != "" && m.RequestID == req.ID && m.BodyHash == req.BodyHash
}
