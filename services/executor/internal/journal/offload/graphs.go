package offload

import (
	"bytes"
	"sync"
)

// maxGraphs bounds the bytes of graphs that are remembered with their forms.
const maxGraphs = 1 << 20

// graphForms remembers the forms of the graphs that runs were started with last, since many runs share one.
// The zero value is usable.
type graphForms struct {
	mu    sync.Mutex
	forms map[string]graphForm
	size  int
}

type graphForm struct{ body, form []byte }

// compress is the codec's, for the graph of this hash.
func (g *graphForms) compress(c *codec, hash string, body []byte) []byte {
	if c.idle(body) || len(body) > maxGraphs/4 {
		return c.compress(body)
	}
	g.mu.Lock()
	known, ok := g.forms[hash]
	g.mu.Unlock()
	if ok && bytes.Equal(known.body, body) {
		return known.form
	}
	form := c.compress(body)
	g.mu.Lock()
	defer g.mu.Unlock()
	size := len(body) + len(form)
	if old, ok := g.forms[hash]; ok {
		g.size -= len(old.body) + len(old.form)
	}
	if g.size += size; g.forms == nil || g.size > maxGraphs {
		g.forms, g.size = map[string]graphForm{}, size
	}
	g.forms[hash] = graphForm{body, form}
	return form
}
