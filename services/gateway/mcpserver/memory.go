package mcpserver

import (
	"context"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/delegation"
	"github.com/epigraph-run/epigraph/internal/delegation/delegationpb"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// forWhom are the subjects of scopes. A run has them; a client says them.
const forWhom = `"user_id": {"type": "string", "maxLength": 1024, "description": "The user whose memory it is."},
    "epic_id": {"type": "string", "maxLength": 64, "description": "The epic whose memory it is."},
    "workflow_slug": {"type": "string", "maxLength": 100, "description": "The workflow whose memory it is."}`

func memoryTools() []*tool {
	return []*tool{
		{name: "memory_read", reads: true, description: "Tells what is remembered for everybody, and for the user, the epic and the workflow that are named: facts, preferences, and procedures by which goals were reached before.",
			schema: delegation.Object(``, delegation.SoughtProperties+`,
    "scope": {"type": "string", "description": "Only what is kept for the user, the epic, the workflow or the namespace; all that are named and the namespace when absent."},
    "agent": {"type": "string", "maxLength": 256, "description": "Only what this agent has learned, such as agent/NAME."}, `+delegation.SureProperty+`,
    "limit": {"type": "integer", "description": "How many are told, from 1 to 50; 10 when absent."}, `+forWhom), does: readMemory},
		{name: "memory_write", repeats: true, destroys: true, description: "Remembers something under a key: for the user, the epic or the workflow that is named, else for everybody in the namespace.",
			schema: delegation.Object(``, delegation.KeptProperties+`,
    "scope": {"type": "string", "description": "user, epic, workflow or namespace; that which is named when absent."}, `+delegation.HeldProperties+`, `+forWhom+`, `+requestProperty), does: writeMemory},
	}
}

// subjects say whose memory is meant.
type subjects struct {
	UserID   string `json:"user_id"`
	EpicID   string `json:"epic_id"`
	Workflow string `json:"workflow_slug"`
}

// scopes are the scopes that are meant: one if its word is given, else those with a subject, the narrowest
// first, and that of the namespace.
func (a *subjects) scopes(f *delegation.Faults, word string) (out []*registryv1.MemoryScope) {
	word = f.Word("scope", word, delegation.Scopes())
	level := delegationpb.NumberOf[registryv1.MemoryLevel](delegation.Scopes(), word)
	for _, one := range []*registryv1.MemoryScope{
		{Level: registryv1.MemoryLevel_MEMORY_LEVEL_USER, Subject: a.UserID},
		{Level: registryv1.MemoryLevel_MEMORY_LEVEL_EPIC, Subject: a.EpicID},
		{Level: registryv1.MemoryLevel_MEMORY_LEVEL_WORKFLOW, Subject: a.Workflow},
		{Level: registryv1.MemoryLevel_MEMORY_LEVEL_NAMESPACE},
	} {
		whole := one.GetLevel() == registryv1.MemoryLevel_MEMORY_LEVEL_NAMESPACE
		switch {
		case level == one.GetLevel() && !whole && one.GetSubject() == "":
			f.Add("the scope %s needs its subject: give user_id, epic_id or workflow_slug", word)
			return nil
		case level == one.GetLevel():
			return []*registryv1.MemoryScope{one}
		case level == 0 && (whole || one.GetSubject() != ""):
			out = append(out, one)
		}
	}
	return out
}

func readMemory(ctx context.Context, c *call) (any, error) {
	var a struct {
		subjects

		Scope   string   `json:"scope"`
		Query   string   `json:"query"`
		About   string   `json:"about"`
		Key     string   `json:"key"`
		Type    string   `json:"fact_type"`
		Agent   string   `json:"agent"`
		AtLeast float64  `json:"min_confidence"`
		Limit   *float64 `json:"limit"`
	}
	if err := c.read(&a); err != nil {
		return nil, err
	}
	var f delegation.Faults
	req := &registryv1.SearchMemoryRequest{
		Query: strings.TrimSpace(a.Query + " " + a.About), Key: a.Key, Agent: a.Agent, Scopes: a.scopes(&f, a.Scope), MinConfidence: f.Part("min_confidence", a.AtLeast),
		Limit: delegation.MemoriesTold, UserId: a.UserID,
	}
	f.Bound("query", req.GetQuery(), delegation.MaxQuery)
	f.Bound("key", a.Key, delegation.MaxKey)
	f.Bound("agent", a.Agent, delegation.MaxKey)
	if kind := f.Word("fact_type", a.Type, delegation.Kinds()); kind != "" {
		req.Kinds = append(req.Kinds, delegationpb.NumberOf[registryv1.MemoryKind](delegation.Kinds(), kind))
	}
	if err := refusal(f); err != nil {
		return nil, err
	}
	if a.Limit != nil {
		req.Limit = int32(min(max(*a.Limit, 1), delegation.MaxMemories))
	}
	got, err := asked(ctx, c.Server, c.Memory.SearchMemory, req)
	if err != nil {
		return nil, err
	}
	found := make([]delegation.Memory, len(got.GetMatches()))
	for i, match := range got.GetMatches() {
		m := match.GetMemory()
		found[i] = delegation.Memory{
			Key: m.GetKey(), Kind: delegationpb.WordOf(delegation.Kinds(), m.GetKind()), Scope: delegationpb.WordOf(delegation.Scopes(), m.GetScope().GetLevel()), Text: m.GetText(),
			Value: m.GetValue().GetJson(), Tags: m.GetTags(), Confidence: m.GetConfidence(), Written: m.GetUpdateTime().AsTime(),
		}
	}
	return delegation.MemoriesFound(found), nil
}

func writeMemory(ctx context.Context, c *call) (any, error) {
	var a struct {
		subjects
		delegation.Kept

		Request string `json:"request_id"`
	}
	if err := c.read(&a); err != nil {
		return nil, err
	}
	var f delegation.Faults
	kept, all := a.Memory(&f), a.scopes(&f, a.Scope)
	if err := refusal(f); err != nil {
		return nil, err
	}
	e := &registryv1.Memory{
		Scope: all[0], Key: kept.Key, Kind: delegationpb.NumberOf[registryv1.MemoryKind](delegation.Kinds(), kept.Kind), Text: kept.Text, Tags: kept.Tags,
		Confidence: &kept.Confidence, UserId: a.UserID,
	}
	if len(kept.Value) > 0 {
		e.Value = &graphv1.Payload{Json: kept.Value}
	}
	req := &registryv1.WriteMemoryRequest{Memory: e, RequestId: a.Request}
	if kept.Life > 0 {
		req.Ttl = durationpb.New(kept.Life)
	}
	got, err := asked(ctx, c.Server, c.Memory.WriteMemory, req)
	if err != nil {
		return nil, err
	}
	m := got.GetMemory()
	out := map[string]any{"success": true, "key": m.GetKey(), "scope": delegationpb.WordOf(delegation.Scopes(), m.GetScope().GetLevel()), "fact_type": delegationpb.WordOf(delegation.Kinds(), m.GetKind())}
	if gone := got.GetGaveWay(); len(gone) > 0 {
		out["gave_way"] = gone[:min(len(gone), maxList)]
	}
	return out, nil
}
