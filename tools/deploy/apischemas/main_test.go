package main

import (
	"encoding/json"
	"testing"
)

const sample = `{"definitions": {
  "v1.Thing": {
    "type": "object",
    "properties": {
      "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
      "port": {"$ref": "#/definitions/IntOrString"},
      "child": {"$ref": "#/definitions/v1.Child"}
    },
    "x-kubernetes-group-version-kind": [{"group": "apps.example", "version": "v1", "kind": "Thing"}]
  },
  "v1.Child": {
    "type": "object", "required": ["count"],
    "properties": {"count": {"type": "integer", "format": "int32"}, "again": {"$ref": "#/definitions/v1.Child"}}
  },
  "IntOrString": {"type": "string", "format": "int-or-string"}
}}`

func TestSchema(t *testing.T) {
	var doc document
	if err := json.Unmarshal([]byte(sample), &doc); err != nil {
		t.Fatal(err)
	}

	t.Run("Kind/IsClosedAndExact", func(t *testing.T) {
		got, err := doc.schema("apps.example", "v1", "Thing")
		if err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		want := `{"$schema":"http://json-schema.org/draft-07/schema#","additionalProperties":false,` +
			`"definitions":{"IntOrString":{"type":["integer","string"]},` +
			`"v1.Child":{"additionalProperties":false,"properties":{"again":{"$ref":"#/definitions/v1.Child"},` +
			`"count":{"maximum":2147483647,"minimum":-2147483648,"type":"integer"}},"required":["count"],"type":"object"}},` +
			`"properties":{"apiVersion":{"const":"apps.example/v1"},"child":{"$ref":"#/definitions/v1.Child"},` +
			`"kind":{"const":"Thing"},"metadata":{"type":"object"},"port":{"$ref":"#/definitions/IntOrString"}},` +
			`"required":["apiVersion","kind","metadata"],"type":"object"}`
		if string(body) != want {
			t.Fatalf("got  %s\nwant %s", body, want)
		}
	})

	t.Run("Kind/UnknownIsAnError", func(t *testing.T) {
		if _, err := doc.schema("", "v1", "Nothing"); err == nil {
			t.Fatal("want an error")
		}
	})
}

func TestFileName(t *testing.T) {
	for _, c := range []struct{ group, version, kind, want string }{
		{"", "v1", "Service", "service-v1.json"},
		{"apps", "v1", "Deployment", "deployment-apps-v1.json"},
		{"networking.k8s.io", "v1", "NetworkPolicy", "networkpolicy-networking-v1.json"},
	} {
		if got := fileName(c.group, c.version, c.kind); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
