package agent

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"sync"

	"github.com/epigraph-run/epigraph/internal/lru"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// maxDefinitions bounds the memory of decoded definitions. Each takes about definitionMemory times the
	// bytes of its text, with its schemas compiled.
	maxDefinitions, definitionMemory = 32 << 20, 16
)

// definitions keeps what the actors of loops read again and again: the definitions that come with every call,
// decoded once for all agents that have the same. It is safe for concurrent use.
type definitions struct {
	mu   sync.Mutex
	kept *lru.Cache[[sha256.Size]byte, *shared]
}

// shared is a definition that several calls use. It must not be changed.
type shared struct {
	*definition
	// mu guards compiled and the schemas until they are compiled.
	mu       sync.Mutex
	compiled bool
}

func newDefinitions() *definitions {
	return &definitions{kept: lru.New[[sha256.Size]byte, *shared](maxDefinitions)}
}

// of returns the definition of a call in the loop, from its own arguments. Its schemas may not be compiled.
func (k *definitions) of(c *workgraph.Call) (*definition, error) {
	s, err := k.read(c.Own["definition"])
	if err != nil {
		return nil, err
	}
	return s.definition, nil
}

// whole is of with the schemas compiled.
func (k *definitions) whole(ctx context.Context, raw json.RawMessage) (*definition, error) {
	s, err := k.read(raw)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.compiled {
		s.compile(ctx)
		if ctx.Err() != nil {
			return nil, actor.Interrupted(workgraph.NotPerformed)
		}
		s.compiled = true
	}
	return s.definition, nil
}

func (k *definitions) read(raw json.RawMessage) (*shared, error) {
	hash := sha256.Sum256(raw)
	k.mu.Lock()
	s, ok := k.kept.Get(hash)
	k.mu.Unlock()
	if ok {
		return s, nil
	}
	var d *definition
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &d); err != nil {
			return nil, actor.BadArguments("definition: %v", err)
		}
	}
	if d == nil {
		return nil, badLoop("definition is missing")
	}
	s = &shared{definition: d}
	s.History.clamp()
	s.complete()
	if err := s.templates(); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if first, ok := k.kept.Get(hash); ok {
		return first, nil // another call decoded it meanwhile
	}
	k.kept.Put(hash, s, definitionMemory*int64(len(raw)))
	return s, nil
}
