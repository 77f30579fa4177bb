package main

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
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
		}, nil)
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
			if _, err := merge([]byte(head), c.parts, nil); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestBase checks that what base.json itself refers to is there once the descriptors have been added.
func TestBase(t *testing.T) {
	set, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{
		{Name: proto.String("event.proto"), Package: proto.String("epigraph.executor.v1"), Syntax: proto.String("proto3"), MessageType: []*descriptorpb.DescriptorProto{
			{Name: proto.String("RunEvent"), Field: []*descriptorpb.FieldDescriptorProto{
				{Name: proto.String("run_id"), JsonName: proto.String("runId"), Number: proto.Int32(1), Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()},
			}},
		}},
		{Name: proto.String("errors.proto"), Package: proto.String("epigraph.errors.v1"), Syntax: proto.String("proto3"), MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("Error")}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := merge(base, [][]byte{part("", `"epigraph.graph.v1.Payload":{"type":"object"}`)}, set)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Type       string
				Properties map[string]any
			}
		}
	}
	if err := json.Unmarshal(got, &doc); err != nil {
		t.Fatal(err)
	}
	schemas := doc.Components.Schemas
	if schemas["epigraph.executor.v1.RunEvent"].Properties["runId"] == nil {
		t.Fatalf("the event is not described: %s", got)
	}
	if schemas["epigraph.graph.v1.Payload"].Type != "" {
		t.Fatal("a payload is any JSON value, whatever the generator says")
	}
}
