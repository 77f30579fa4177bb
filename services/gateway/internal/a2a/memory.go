package a2a

import (
	"context"
	"encoding/json"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/epigraph-run/epigraph/internal/inflight"
)

const (
	// answerMemory is how often an answer is in memory at once: as a message, and as JSON in a buffer that
	// doubles.
	answerMemory = 3
	// fieldMemory is about what a message or a part takes beside its content.
	fieldMemory = 256
)

// memory is what the answer to a request holds of the gateway's memory. It is not safe for concurrent use.
type memory struct {
	out *inflight.Answer
	// begin gives back what the request holds: its answer must not wait for it.
	begin func()
	told  int64
}

// read counts n bytes that were read for the next part of the answer.
func (m *memory) read(ctx context.Context, n int) error {
	m.begin()
	return m.out.Hold(ctx, answerMemory*m.told+int64(n))
}

// tell counts n bytes that the answer has from now on.
func (m *memory) tell(ctx context.Context, n int) error {
	m.begin()
	m.told += int64(n)
	return m.out.Hold(ctx, answerMemory*m.told)
}

// await waits for the memory of one event of a stream.
func (m *memory) await(ctx context.Context, n int) error {
	m.begin()
	return m.out.Await(ctx, answerMemory*int64(n))
}

// drop gives back what was read, or what an event has taken.
func (m *memory) drop() { m.out.Shrink(answerMemory * m.told) }

// sizeOf is about how many bytes a task or another event takes.
func sizeOf(ev spec.Event) int {
	switch ev := ev.(type) {
	case *spec.Task:
		n := sizeOfMessage(ev.Status.Message)
		for _, a := range ev.Artifacts {
			n += sizeOfParts(a.Parts)
		}
		for _, m := range ev.History {
			n += sizeOfMessage(m)
		}
		return fieldMemory + n
	case *spec.TaskStatusUpdateEvent:
		return fieldMemory + sizeOfMessage(ev.Status.Message)
	case *spec.TaskArtifactUpdateEvent:
		return fieldMemory + sizeOfParts(ev.Artifact.Parts)
	}
	return fieldMemory
}

func sizeOfMessage(m *spec.Message) int {
	if m == nil {
		return 0
	}
	return fieldMemory + sizeOfParts(m.Parts)
}

func sizeOfParts(parts spec.ContentParts) (n int) {
	for _, p := range parts {
		n += fieldMemory
		switch c := p.Content.(type) {
		case spec.Text:
			n += len(c)
		case spec.Data:
			n += sizeOfValue(c.Value)
		}
	}
	return n
}

// sizeOfValue is the size of a value as this package makes them: JSON, a text, or a map of these.
func sizeOfValue(v any) (n int) {
	switch v := v.(type) {
	case json.RawMessage:
		return len(v)
	case string:
		return len(v)
	case map[string]any:
		for key, one := range v {
			n += len(key) + sizeOfValue(one)
		}
	}
	return n
}
