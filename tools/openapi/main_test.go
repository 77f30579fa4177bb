package main

import (
	"encoding/json"
	"strings"
	"testing"
)

const head = `{"openapi":"3.1.0","info":{"title":"T"},"components":{"responses":{"Error":{"description":"e"}}}}`

func part(paths, schemas string) []byte {
	return []byte(`{"openapi":"3.1.0","info":{"title":"part"},"paths":{` + paths + `},"components":{"schemas":{` + schemas + `}}}`)
}

func TestMerge(t *testing.T) {
	t.Run("Path/OneForTwoNamesOfAVariable", func(t *testing.T) {
		got, err := merge([]byte(head), [][]byte{
			part(`"/v1/epics/{epic_id}":{"get":{"parameters":[{"name":"epic_id","in":"path"}]}}`, `"A":{"type":"string"}`),
			part(`"/v1/epics/{epic.id}":{"patch":{"parameters":[{"name":"epic.id","in":"path"},{"name":"a.b","in":"query"}]}}`, `"A":{"type":"string"}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Info  struct{ Title string }
			Paths map[string]map[string]struct {
				Parameters []struct{ Name string }
				Responses  map[string]any
			}
		}
		if err := json.Unmarshal(got, &doc); err != nil {
			t.Fatal(err)
		}
		item := doc.Paths["/v1/epics/{epic_id}"]
		if doc.Info.Title != "T" || len(doc.Paths) != 1 || len(item) != 2 {
			t.Fatalf("got %s", got)
		}
		if p := item["patch"].Parameters; p[0].Name != "epic_id" || p[1].Name != "a.b" {
			t.Fatalf("got %v", p)
		}
		if item["get"].Responses["default"] == nil {
			t.Fatal("an operation has no error response")
		}
	})

	for name, c := range map[string]struct {
		parts [][]byte
		want  string
	}{
		"Schema/TwoMeanings": {[][]byte{part("", `"A":{"type":"string"}`), part("", `"A":{"type":"object"}`)}, "A is defined twice"},
		"Path/TwoMeanings":   {[][]byte{part(`"/a":{"get":{"summary":"x"}}`, ""), part(`"/a":{"get":{"summary":"y"}}`, "")}, "get is defined twice"},
		"Reference/Nowhere":  {[][]byte{part("", `"A":{"$ref":"#/components/schemas/B"}`)}, "leads nowhere"},
		"Version/Other":      {[][]byte{[]byte(`{"openapi":"3.0.0"}`)}, "OpenAPI version"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := merge([]byte(head), c.parts); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestBase(t *testing.T) {
	if _, err := merge(base, nil); err != nil {
		t.Fatal(err)
	}
}
