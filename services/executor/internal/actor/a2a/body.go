package a2a

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
)

const (
	// maxValues and maxDepth bound the JSON of an answer or event: a value of two bytes takes some hundred
	// bytes once it is decoded.
	maxValues, maxDepth = 20_000, 64
	// largeBody and manyValues are the size and the number of values from which on an answer or event asks
	// for room.
	largeBody, manyValues = 64 << 10, 1000
	// expansion is how many times the bound of an answer takes part in memory: as what was read, as what
	// was decoded, as the result and as its encoding.
	expansion = 4
)

// beyond is the error of an answer beyond its bounds.
type beyond struct{ what string }

// Error says what the bound is.
func (e *beyond) Error() string { return "the agent sent an answer or an event " + e.what }

// bounded is a body of one value within the bounds, or of events each of which is. It counts what it
// reads before anything is decoded.
type bounded struct {
	io.ReadCloser
	most   int64
	events bool
	// room waits for memory; nil if there is nothing to ask.
	room  func() error
	roomy bool

	size          int64
	values, depth int
	// text says that a string is open, escape that its next byte is escaped.
	text, escape bool
	// column is how many bytes of the line were read, as far as it matters; empty says that the line has
	// none but a return, foreign that it is not one of data.
	column         int
	empty, foreign bool
}

// dataPrefix begins the lines of an event that are decoded.
const dataPrefix = "data:"

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for _, ch := range p[:n] {
		b.size++
		if b.events {
			b.line(ch)
		} else {
			b.count(ch)
		}
		switch {
		case b.size > b.most:
			return 0, &beyond{fmt.Sprintf("of more than %d bytes", b.most)}
		case b.values >= maxValues: // the last one has no comma
			return 0, &beyond{fmt.Sprintf("of more than %d values", maxValues)}
		case b.depth > maxDepth:
			return 0, &beyond{fmt.Sprintf("whose values are nested more than %d deep", maxDepth)}
		}
		if !b.roomy && b.room != nil && (b.size > largeBody || b.values > manyValues) {
			if err := b.room(); err != nil {
				return 0, err
			}
			b.roomy = true
		}
	}
	return n, err
}

// line counts a byte of an event. No string goes over the end of a line.
func (b *bounded) line(ch byte) {
	switch {
	case ch == '\n':
		if b.column == 0 || b.empty {
			b.size, b.values, b.depth = 0, 0, 0
		}
		b.column, b.text, b.escape, b.empty, b.foreign = 0, false, false, false, false
	case b.column < len(dataPrefix):
		b.empty = b.column == 0 && ch == '\r'
		b.foreign = b.foreign || ch != dataPrefix[b.column]
		b.column++
	case !b.foreign:
		b.count(ch)
	}
}

// count counts a byte of JSON.
func (b *bounded) count(ch byte) {
	switch {
	case b.escape:
		b.escape = false
	case b.text && ch == '\\':
		b.escape = true
	case ch == '"':
		b.text = !b.text
	case b.text:
	case ch == '[' || ch == '{':
		b.depth++
		b.values++
	case ch == ']' || ch == '}':
		b.depth--
	case ch == ',':
		b.values++
	}
}

type reserveKey struct{}

// once is the room that a step has asked for.
type once struct {
	mu   sync.Mutex
	held bool
}

// reserving returns the context of a step that asks for room once, when an answer or event is large.
func reserving(ctx context.Context) context.Context {
	return context.WithValue(ctx, reserveKey{}, &once{})
}

// reserve waits for the memory that an answer of the agent may take. Requests of no step ask for none.
func reserve(ctx context.Context, cfg *Agent) error {
	o, _ := ctx.Value(reserveKey{}).(*once)
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held {
		return nil
	}
	if err := actor.Room(ctx, expansion*int64(cfg.MaxResponseBytes)); err != nil {
		return err
	}
	o.held = true
	return nil
}
