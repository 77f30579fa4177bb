package mcpserver

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

const (
	// maxDays is the longest life of an entry that is given one.
	maxDays = 3650
	// forWhom are the subjects of scopes. A run has them; a client says them.
	forWhom = `"user_id": {"type": "string", "maxLength": 1024, "description": "The user whose memory it is."},
    "epic_id": {"type": "string", "maxLength": 64, "description": "The epic whose memory it is."},
    "workflow_slug": {"type": "string", "maxLength": 100, "description": "The workflow whose memory it is."}`
)

// scopes and kinds are the words in the order of the numbers of the API, from 1.
func scopes() []string { return []string{"namespace", "user", "epic", "workflow"} }
func kinds() []string  { return []string{"fact", "procedure", "preference"} }

func memoryTools() []*tool {
	return []*tool{
		{name: "memory_read", reads: true, description: "Tells what is remembered for everybody, and for the user, the epic and the workflow that are named: facts, preferences, and procedures by which goals were reached before.",
			schema: object(``, `"query": {"type": "string", "maxLength": 4096, "description": "Words to look for; the latest entries when absent."},
    "about": {"type": "string", "maxLength": 4096, "description": "The same as query."},
    "key": {"type": "string", "maxLength": 256, "description": "The key of one entry."},
    "fact_type": {"type": "string", "description": "Only fact, procedure or preference."},
    "scope": {"type": "string", "description": "Only what is kept for the user, the epic, the workflow or the namespace; all that are named and the namespace when absent."},
    "agent": {"type": "string", "maxLength": 256, "description": "Only what this agent has learned, such as agent/NAME."},
    "min_confidence": {"type": "number", "minimum": 0, "maximum": 1},
    "limit": {"type": "integer", "description": "How many are told, from 1 to 50; 10 when absent."}, `+forWhom), does: readMemory},
		{name: "memory_write", repeats: true, destroys: true, description: "Remembers something under a key: for the user, the epic or the workflow that is named, else for everybody in the namespace.",
			schema: object(``, `"key": {"type": "string", "maxLength": 256, "description": "Its name: what was kept under it before is replaced."},
    "value": {"description": "What is kept: a text, or any JSON."},
    "text": {"type": "string", "description": "What is kept in words, beside a value."},
    "fact_type": {"type": "string", "description": "fact, procedure or preference; fact when absent."},
    "scope": {"type": "string", "description": "user, epic, workflow or namespace; that which is named when absent."},
    "tags": {"description": "A list of words, or words with commas between them; 20 at most."},
    "confidence": {"type": "number", "minimum": 0, "maximum": 1, "description": "How sure it is; 1 when absent."},
    "expires_in_days": {"type": "number", "description": "After how many days it is forgotten; never when absent."}, `+forWhom+`, `+requestProperty), does: writeMemory},
	}
}

// subjects say whose memory is meant.
type subjects struct {
	Scope    string `json:"scope"`
	UserID   string `json:"user_id"`
	EpicID   string `json:"epic_id"`
	Workflow string `json:"workflow_slug"`
}

// scopes are the scopes that are meant: one if it is named, else those with a subject, the
// narrowest first, and that of the namespace.
func (a *subjects) scopes() (out []*registryv1.MemoryScope, err error) {
	level, err := numberOf[registryv1.MemoryLevel]("scope", a.Scope, scopes())
	if err != nil {
		return nil, err
	}
	for _, one := range []*registryv1.MemoryScope{
		{Level: registryv1.MemoryLevel_MEMORY_LEVEL_USER, Subject: a.UserID},
		{Level: registryv1.MemoryLevel_MEMORY_LEVEL_EPIC, Subject: a.EpicID},
		{Level: registryv1.MemoryLevel_MEMORY_LEVEL_WORKFLOW, Subject: a.Workflow},
		{Level: registryv1.MemoryLevel_MEMORY_LEVEL_NAMESPACE},
	} {
		whole := one.GetLevel() == registryv1.MemoryLevel_MEMORY_LEVEL_NAMESPACE
		switch {
		case level == one.GetLevel() && !whole && one.GetSubject() == "":
			return nil, badArguments("the scope %s needs its subject: give user_id, epic_id or workflow_slug", a.Scope)
		case level == one.GetLevel():
			return []*registryv1.MemoryScope{one}, nil
		case level == 0 && (whole || one.GetSubject() != ""):
			out = append(out, one)
		}
	}
	return out, nil
}

func readMemory(ctx context.Context, c *call) (any, error) {
	var a struct {
		subjects

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
	all, err := a.scopes()
	if err != nil {
		return nil, err
	}
	kind, err := numberOf[registryv1.MemoryKind]("fact_type", a.Type, kinds())
	if err != nil {
		return nil, err
	}
	req := &registryv1.SearchMemoryRequest{Query: strings.TrimSpace(a.Query + " " + a.About), Key: a.Key, Agent: a.Agent, Scopes: all, MinConfidence: a.AtLeast, Limit: 10, UserId: a.UserID}
	if a.Limit != nil {
		req.Limit = int32(min(max(*a.Limit, 1), 50))
	}
	if kind != 0 {
		req.Kinds = append(req.Kinds, kind)
	}
	got, err := asked(ctx, c.Server, c.Memory.SearchMemory, req)
	if err != nil {
		return nil, err
	}
	return toldMemories(got.GetMatches()), nil
}

// toldMemories has the entries, and the same as lines of text.
func toldMemories(found []*registryv1.MemoryMatch) map[string]any {
	list, lines, told := []map[string]any{}, strings.Builder{}, 0
	out := map[string]any{"success": true}
	for i, match := range found {
		e := match.GetMemory()
		value := e.GetValue().GetJson()
		if told += len(e.GetText()) + len(value); told > maxPart && len(list) > 0 {
			out["left_out"] = len(found) - i
			break
		}
		m := map[string]any{
			"key": e.GetKey(), "fact_type": wordOf(kinds(), e.GetKind()), "scope": wordOf(scopes(), e.GetScope().GetLevel()), "confidence": e.GetConfidence(),
			"written": e.GetUpdateTime().AsTime(),
		}
		line := e.GetText()
		if line != "" {
			m["text"] = line
		}
		if len(value) > 0 {
			if m["value"] = json.RawMessage(value); line == "" {
				line = e.GetKey() + ": " + string(value)
			}
		}
		if len(e.GetTags()) > 0 {
			m["tags"] = e.GetTags()
		}
		list = append(list, m)
		lines.WriteString("- " + line + "\n")
	}
	out["memories"], out["action_memory"] = list, map[string]any{"memory": strings.TrimSuffix(lines.String(), "\n")}
	return out
}

func writeMemory(ctx context.Context, c *call) (any, error) {
	var a struct {
		subjects

		Key        string          `json:"key"`
		Value      json.RawMessage `json:"value"`
		Text       string          `json:"text"`
		Type       string          `json:"fact_type"`
		Tags       json.RawMessage `json:"tags"`
		Confidence *float64        `json:"confidence"`
		Days       *float64        `json:"expires_in_days"`
		Request    string          `json:"request_id"`
	}
	if err := c.read(&a); err != nil {
		return nil, err
	}
	all, err := a.scopes()
	if err != nil {
		return nil, err
	}
	e := &registryv1.Memory{Scope: all[0], Key: strings.TrimSpace(a.Key), Text: a.Text, Confidence: a.Confidence, UserId: a.UserID}
	if e.Kind, err = numberOf[registryv1.MemoryKind]("fact_type", a.Type, kinds()); err != nil {
		return nil, err
	}
	if e.Tags, err = listOf("tags", a.Tags, 20); err != nil {
		return nil, err
	}
	var said string
	switch {
	case !there(a.Value):
	case json.Unmarshal(a.Value, &said) == nil && e.Text == "":
		e.Text = said // a value that is a text is what people read
	default:
		e.Value = &graphv1.Payload{Json: a.Value}
	}
	if e.Text == "" && e.Value == nil {
		return nil, badArguments("value is missing: what is to be remembered")
	}
	req := &registryv1.WriteMemoryRequest{Memory: e, RequestId: a.Request}
	if a.Days != nil {
		if !(*a.Days > 0 && *a.Days <= maxDays) {
			return nil, badArguments("expires_in_days must be more than 0 and at most %d", maxDays)
		}
		req.Ttl = durationpb.New(time.Duration(*a.Days * 24 * float64(time.Hour)))
	}
	got, err := asked(ctx, c.Server, c.Memory.WriteMemory, req)
	if err != nil {
		return nil, err
	}
	m := got.GetMemory()
	out := map[string]any{"success": true, "key": m.GetKey(), "scope": wordOf(scopes(), m.GetScope().GetLevel()), "fact_type": wordOf(kinds(), m.GetKind())}
	if gone := got.GetGaveWay(); len(gone) > 0 {
		out["gave_way"] = gone[:min(len(gone), maxList)]
	}
	return out, nil
}
