package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
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
		"## Every event\n\nThe fields of every event, besides those of its kind:\n\n| field | type | |\n|---|---|---|\n| `seq` | string | The sequence. |\n\n## Durable\n",
		"## Ephemeral\n\n### token\n", "### State\n\nState is one.\n\n`A`, `B`\n",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	for line := range strings.Lines(string(page)) {
		if text := strings.TrimSuffix(line, "\n"); !strings.ContainsAny(text[:min(len(text), 1)], "|{ ") && utf8.RuneCountInString(text) > pageWidth {
			t.Errorf("a line of more than %d columns: %s", pageWidth, text)
		}
	}
	t.Run("Refuse/NoEvents", func(t *testing.T) {
		t.Parallel()
		if _, err := events([]byte(`{"components": {"schemas": {}}}`)); err == nil {
			t.Error("a document without events was accepted")
		}
	})
	t.Run("Refuse/KindWithoutClass", func(t *testing.T) {
		t.Parallel()
		if _, err := events([]byte(strings.Replace(document, "Ephemeral: some", "Some", 1))); err == nil {
			t.Error("an event that is neither durable nor companion nor ephemeral was accepted")
		}
	})
}

// Every name of the API that the page mentions is declared in a proto.
func TestEventsNames(t *testing.T) {
	t.Parallel()
	const protos = "../../proto"
	document, err := os.ReadFile(protos + "/gen/openapi/epigraph.json")
	if err != nil {
		t.Fatal(err)
	}
	page, err := events(document)
	if err != nil {
		t.Fatal(err)
	}
	declaration := regexp.MustCompile(`(?m)^\s*(?:rpc|message|enum) (\w+)`)
	declared := map[string]bool{}
	err = filepath.WalkDir(protos+"/epigraph", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".proto" {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range declaration.FindAllSubmatch(source, -1) {
			declared[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Compact(slices.Sorted(slices.Values(regexp.MustCompile(`\b[A-Z][a-z]+(?:[A-Z][a-z]*)+\b`).FindAllString(string(page), -1))))
	if len(names) == 0 {
		t.Fatal("the page mentions no name")
	}
	for _, name := range names {
		if !declared[name] {
			t.Errorf("the page mentions %s, which no proto declares", name)
		}
	}
}
