package mcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// Memory keeps what servers listed last, so that an executor that starts while one is down knows the schemas
// of its tools. It is safe for concurrent use.
type Memory interface {
	// KeptTools returns what was kept of a server last, nil if nothing.
	KeptTools(ctx context.Context, server string) ([]byte, error)
	// KeepTools keeps a list in place of the last one.
	KeepTools(ctx context.Context, server string, list []byte) error
}

// keepWithin is how long a list may take to be kept.
const keepWithin = 10 * time.Second

// keptList is what a server listed.
type keptList struct {
	// Server is the hash of the address or the command: the list of another server says nothing.
	Server string     `json:"server"`
	Tools  []keptTool `json:"tools"`
}

type keptTool struct {
	Name        string           `json:"name"`
	Description string           `json:"description,omitempty"`
	Version     string           `json:"version,omitempty"`
	Hint        workgraph.Effect `json:"hint"`
	Schema      json.RawMessage  `json:"schema,omitempty"`
}

// target is the hash of what the server is reached by.
func (sv *server) target() string {
	h := sha256.New()
	for _, s := range append([]string{sv.cfg.URL, sv.cfg.Command}, sv.cfg.Args...) {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// keep has a list kept, unless it is the one that is kept. It is called with sv.mu held, and does not wait.
func (sv *server) keep(tools map[string]*tool) {
	if sv.memory == nil {
		return
	}
	list := keptList{Server: sv.target(), Tools: []keptTool{}}
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		t := tools[name]
		list.Tools = append(list.Tools, keptTool{Name: t.name, Description: t.description, Version: t.version, Hint: t.hint, Schema: t.schema})
	}
	raw, err := json.Marshal(list)
	if err != nil || bytes.Equal(raw, sv.kept) || sv.closed {
		return
	}
	sv.kept = raw
	sv.behind.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), keepWithin)
		defer cancel()
		if err := sv.memory.KeepTools(ctx, sv.name, raw); err != nil {
			sv.log.WarnContext(ctx, "tools of MCP server not kept", "server", sv.name, "err", err)
		}
	})
}

// recall takes the last list that was kept, the first time that it is called.
func (sv *server) recall(ctx context.Context) {
	sv.mu.Lock()
	again := sv.recalled
	sv.recalled = true
	sv.mu.Unlock()
	if again || sv.memory == nil {
		return
	}
	raw, err := sv.memory.KeptTools(ctx, sv.name)
	if err != nil {
		sv.log.WarnContext(ctx, "tools of MCP server not recalled", "server", sv.name, "err", err)
		return
	}
	var list keptList
	if len(raw) == 0 || json.Unmarshal(raw, &list) != nil || list.Server != sv.target() {
		return
	}
	tools := map[string]*tool{}
	for _, k := range list.Tools {
		if !usable(k.Name) || !sv.cfg.allows(k.Name) {
			continue
		}
		t := &tool{name: k.Name, description: k.Description, version: k.Version, hint: k.Hint}
		var schema struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		if len(k.Schema) > 0 && json.Unmarshal(k.Schema, &schema) == nil {
			t.schema, t.properties = k.Schema, set(schema.Properties)
		}
		t.effect = sv.effectOf(t)
		tools[k.Name] = t
	}
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if sv.tools == nil {
		sv.tools, sv.kept = tools, raw
	}
}
