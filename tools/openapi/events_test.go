package main

import (
	"strings"
	"testing"
)

func TestEvents(t *testing.T) {
	t.Parallel()
	const document = `{"components": {"schemas": {
		"epigraph.executor.v1.RunEvent": {"properties": {
			"ended": {"$ref": "#/components/schemas/epigraph.executor.v1.Ended", "description": "Durable: it\nended."},
			"token": {"$ref": "#/components/schemas/epigraph.executor.v1.Token", "description": "Ephemeral: some text."},
			"seq": {"type": "string", "description": "The sequence."}}},
		"epigraph.executor.v1.Ended": {"properties": {
			"state": {"$ref": "#/components/schemas/epigraph.executor.v1.State", "description": "Where a | b."},
			"values": {"type": "array", "items": {"$ref": "#/components/schemas/epigraph.graph.v1.Payload"}}}},
		"epigraph.executor.v1.State": {"enum": ["A", "B"], "description": "State is one."},
		"epigraph.executor.v1.Token": {"properties": {}}}}}`
	page, err := events([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"## Durable\n\n### ended\n", "| `state` | State | Where a \\| b. |", "| `values` | list of any JSON value |",
		"## Ephemeral\n\n### token\n", "### State\n\nState is one.\n\n`A`, `B`\n",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	t.Run("Refuse/NoEvents", func(t *testing.T) {
		t.Parallel()
		if _, err := events([]byte(`{"components": {"schemas": {}}}`)); err == nil {
			t.Error("a document without events was accepted")
		}
	})
}
