package agent

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"sync"

	"github.com/epigraph-run/epigraph/internal/lru"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/response"
	"github.com/epigraph-run/epigraph/workgraph"
)

// maxPlans bounds the memory of plans that were read. Each takes about planBase bytes, and planMemory times
// the bytes of its text and graph.
const maxPlans, planBase, planMemory = 16 << 20, 1 << 10, 2

// plans keeps plans from act, which reads and compiles them, to observe, which needs the same once more. It
// is safe for concurrent use.
type plans struct {
	mu   sync.Mutex
	kept *lru.Cache[[sha256.Size]byte, planned]
}

// planned is what a text was read as. It must not be changed.
type planned struct {
	said  *response.Response
	fault error
}

func newPlans() *plans { return &plans{kept: lru.New[[sha256.Size]byte, planned](maxPlans)} }

// read is readPlan for a call in the loop.
func (k *plans) read(ctx context.Context, d *definition, c *workgraph.Call, raw json.RawMessage, open, must bool) (*response.Response, error) {
	h := sha256.New()
	flags := byte(0)
	if open {
		flags |= 1
	}
	if must {
		flags |= 2
	}
	h.Write(c.Own["definition"])
	h.Write([]byte{0, flags})
	h.Write(raw)
	key := [sha256.Size]byte(h.Sum(nil))
	k.mu.Lock()
	p, ok := k.kept.Get(key)
	k.mu.Unlock()
	if ok {
		return p.said, p.fault
	}
	p.said, p.fault = d.readPlan(ctx, raw, open, must)
	if ctx.Err() != nil {
		return p.said, p.fault // the fault may be that of the context
	}
	weight := planBase + planMemory*len(raw)
	if p.said != nil {
		weight += planMemory * len(p.said.Graph)
	} else {
		weight += len(p.fault.Error())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept.Put(key, p, int64(weight))
	return p.said, p.fault
}
