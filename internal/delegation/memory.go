package delegation

import (
	"encoding/json"
	"strings"
	"time"
)

// Bounds of memories.
const (
	// MaxQuery and MaxKey bound texts of a search, in bytes.
	MaxQuery = 4 << 10
	MaxKey   = 256
	// MemoriesTold is how many entries are told when nothing is said, and MaxMemories how many at most.
	// MaxMemory bounds their texts and values together, in bytes.
	MemoriesTold = 10
	MaxMemories  = 50
	MaxMemory    = 64 << 10
	// maxDays is the longest life of an entry that is given one.
	maxDays = 3650
)

// Scopes are the words for scopes of memories, in the order of the numbers that the registry has for them,
// from 1.
func Scopes() []string { return []string{"namespace", "user", "epic", "workflow"} }

// Kinds are the words for kinds of memories, in the order of their numbers, from 1.
func Kinds() []string { return []string{"fact", "procedure", "preference"} }

// Properties of the schemas of tools over memories: all of them but those of scopes and limits, which differ.
const (
	SoughtProperties = `"query": {"type": "string", "maxLength": 4096, "description": "Words to look for; the latest entries when absent."},
    "about": {"type": "string", "maxLength": 4096, "description": "The same as query."},
    "key": {"type": "string", "maxLength": 256, "description": "The key of one entry."},
    "fact_type": {"type": "string", "description": "Only fact, procedure or preference."}`
	SureProperty   = `"min_confidence": {"type": "number", "minimum": 0, "maximum": 1}`
	KeptProperties = `"key": {"type": "string", "maxLength": 256, "description": "Its name: what was kept under it before is replaced."},
    "value": {"description": "What is kept: a text, or any JSON."},
    "text": {"type": "string", "description": "What is kept in words, beside a value."},
    "fact_type": {"type": "string", "description": "fact, procedure or preference; fact when absent."}`
	HeldProperties = `"tags": {"description": "A list of words, or words with commas between them; 20 at most."},
    "confidence": {"type": "number", "minimum": 0, "maximum": 1, "description": "How sure it is; 1 when absent."},
    "expires_in_days": {"type": "number", "description": "After how many days it is forgotten; never when absent."}`
)

// Memory is a memory as a tool writes and tells it.
type Memory struct {
	Key, Kind, Scope, Text string
	// Value is one JSON value, or empty.
	Value      json.RawMessage
	Tags       []string
	Confidence float64
	// Life is how long it is remembered; 0 is for ever.
	Life time.Duration
	// Written is when it was written last.
	Written time.Time
}

// Kept are the arguments of tools that write memories, without the scope.
type Kept struct {
	Key        string          `json:"key"`
	Value      json.RawMessage `json:"value"`
	Text       string          `json:"text"`
	Type       string          `json:"fact_type"`
	Scope      string          `json:"scope"`
	Tags       json.RawMessage `json:"tags"`
	Confidence *float64        `json:"confidence"`
	Days       *float64        `json:"expires_in_days"`
}

// Memory is the memory that is to be written, without its scope. A value that is a text is its text, since
// that is what people read.
func (a *Kept) Memory(f *Faults) Memory {
	m := Memory{Key: strings.TrimSpace(a.Key), Kind: f.Word("fact_type", a.Type, Kinds()), Text: a.Text, Tags: f.List("tags", a.Tags, MaxTags, MaxTag), Confidence: 1}
	var text string
	switch {
	case !Given(a.Value):
	case json.Unmarshal(a.Value, &text) == nil && m.Text == "":
		m.Text = text
	default:
		m.Value = a.Value
	}
	f.Bound("key", m.Key, MaxKey)
	f.Bound("text", m.Text, maxMemoryText)
	f.Bound("value", string(m.Value), maxMemoryValue)
	if m.Text == "" && len(m.Value) == 0 && len(*f) == 0 {
		f.Add("value is missing: what is to be remembered")
	}
	if a.Confidence != nil {
		m.Confidence = f.Part("confidence", *a.Confidence)
	}
	switch {
	case a.Days == nil:
	case !(*a.Days > 0 && *a.Days <= maxDays):
		f.Add("expires_in_days must be more than 0 and at most %d", maxDays)
	default:
		m.Life = time.Duration(*a.Days * 24 * float64(time.Hour))
	}
	return m
}

// MemoriesFound is the answer of memory_read: the entries, and the same as the memory of an action, which
// prompts show as {action_memory}. Of many long ones the first are told.
func MemoriesFound(found []Memory) map[string]any {
	list := []map[string]any{}
	out := map[string]any{"success": true}
	var lines strings.Builder
	told := 0
	for i := range found {
		e := &found[i]
		if told += len(e.Text) + len(e.Value); told > MaxMemory && len(list) > 0 {
			out["left_out"] = len(found) - i
			break
		}
		m := map[string]any{"key": e.Key, "fact_type": e.Kind, "scope": e.Scope, "confidence": e.Confidence, "written": e.Written}
		line := e.Text
		if e.Text != "" {
			m["text"] = e.Text
		}
		if len(e.Value) > 0 {
			if m["value"] = e.Value; line == "" {
				line = e.Key + ": " + string(e.Value)
			}
		}
		if len(e.Tags) > 0 {
			m["tags"] = e.Tags
		}
		list = append(list, m)
		lines.WriteString("- " + line + "\n")
	}
	out["memories"], out["action_memory"] = list, map[string]any{"memory": strings.TrimSuffix(lines.String(), "\n")}
	return out
}
