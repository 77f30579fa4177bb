// Command apischemas turns the OpenAPI document of the Kubernetes API into one
// strict JSON Schema for each kind that is asked for: a field that the API does
// not know and a value of the wrong type are both faults. It knows nothing of
// the manifests that are later checked.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	swagger := flag.String("swagger", "", "the API's api/openapi-spec/swagger.json")
	out := flag.String("out", "", "directory to write the schemas to")
	kinds := flag.String("kinds", "", "comma-separated GROUP/VERSION/KIND; the core group is empty")
	flag.Parse()
	if err := run(*swagger, *out, strings.Split(*kinds, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "apischemas:", err)
		os.Exit(1)
	}
}

func run(swagger, out string, kinds []string) error {
	raw, err := os.ReadFile(swagger)
	if err != nil {
		return err
	}
	var doc document
	if err := json.Unmarshal(raw, &doc); err != nil {
		return fmt.Errorf("read %s: %w", swagger, err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, k := range kinds {
		parts := strings.Split(k, "/")
		if len(parts) != 3 {
			return fmt.Errorf("kind %q is not GROUP/VERSION/KIND", k)
		}
		schema, err := doc.schema(parts[0], parts[1], parts[2])
		if err != nil {
			return err
		}
		body, err := json.Marshal(schema)
		if err != nil {
			return err
		}
		name := filepath.Join(out, fileName(parts[0], parts[1], parts[2]))
		if err := os.WriteFile(name, append(body, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// fileName follows kubeconform's {{ .ResourceKind }}{{ .KindSuffix }}.json.
func fileName(group, version, kind string) string {
	group, _, _ = strings.Cut(group, ".")
	if group != "" {
		group += "-"
	}
	return strings.ToLower(kind + "-" + group + version + ".json")
}

type document struct {
	Definitions map[string]definition `json:"definitions"`
}

type definition struct {
	Ref                  string                                  `json:"$ref"`
	Type                 string                                  `json:"type"`
	Format               string                                  `json:"format"`
	Properties           map[string]definition                   `json:"properties"`
	Items                *definition                             `json:"items"`
	AdditionalProperties *definition                             `json:"additionalProperties"`
	Required             []string                                `json:"required"`
	Kinds                []struct{ Group, Version, Kind string } `json:"x-kubernetes-group-version-kind"`
}

const refPrefix = "#/definitions/"

// quantity is the syntax that the API's own parser accepts.
const quantity = `^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$`

// schema returns the self-contained schema of one kind. apiVersion and kind must
// be present and exact, which the document itself does not say.
func (d document) schema(group, version, kind string) (map[string]any, error) {
	root := ""
	for name, def := range d.Definitions {
		for _, k := range def.Kinds {
			if k.Group == group && k.Version == version && k.Kind == kind {
				root = name
			}
		}
	}
	if root == "" {
		return nil, fmt.Errorf("the API has no kind %s/%s/%s", group, version, kind)
	}
	used := map[string]any{}
	top, err := d.strict(d.Definitions[root], used)
	if err != nil {
		return nil, err
	}
	apiVersion := strings.TrimPrefix(group+"/"+version, "/")
	properties, ok := top["properties"].(map[string]any)
	if !ok {
		return nil, errors.New(root + " has no properties")
	}
	properties["apiVersion"] = map[string]any{"const": apiVersion}
	properties["kind"] = map[string]any{"const": kind}
	required := append([]string{"apiVersion", "kind", "metadata"}, d.Definitions[root].Required...)
	slices.Sort(required)
	top["required"] = slices.Compact(required)
	top["$schema"] = "http://json-schema.org/draft-07/schema#"
	top["definitions"] = used
	return top, nil
}

// strict converts one definition and, through used, all that it refers to.
func (d document) strict(def definition, used map[string]any) (map[string]any, error) {
	if def.Ref != "" {
		name := strings.TrimPrefix(def.Ref, refPrefix)
		if _, seen := used[name]; !seen {
			target, ok := d.Definitions[name]
			if !ok {
				return nil, fmt.Errorf("the document refers to %s but does not define it", name)
			}
			used[name] = nil // Definitions may refer to themselves.
			converted, err := d.strict(target, used)
			if err != nil {
				return nil, err
			}
			if strings.HasSuffix(name, ".resource.Quantity") {
				converted = map[string]any{"anyOf": []any{
					map[string]any{"type": "number"},
					map[string]any{"type": "string", "pattern": quantity},
				}}
			}
			used[name] = converted
		}
		return map[string]any{"$ref": def.Ref}, nil
	}

	out := map[string]any{}
	switch {
	case def.Format == "int-or-string":
		out["type"] = []string{"integer", "string"}
		return out, nil
	case def.Type == "" && def.Properties == nil:
		return out, nil // Any value, as in a custom resource's default.
	case def.Type != "":
		out["type"] = def.Type
	}
	switch def.Format {
	case "int32":
		out["minimum"], out["maximum"] = -1<<31, 1<<31-1
	case "date-time":
		out["format"] = def.Format
	}
	if def.Items != nil {
		items, err := d.strict(*def.Items, used)
		if err != nil {
			return nil, err
		}
		out["items"] = items
	}
	if len(def.Required) > 0 {
		out["required"] = def.Required
	}
	switch {
	case def.AdditionalProperties != nil:
		values, err := d.strict(*def.AdditionalProperties, used)
		if err != nil {
			return nil, err
		}
		out["additionalProperties"] = values
	case def.Properties != nil:
		properties := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(def.Properties)) {
			value, err := d.strict(def.Properties[name], used)
			if err != nil {
				return nil, err
			}
			properties[name] = value
		}
		out["properties"] = properties
		out["additionalProperties"] = false
	}
	return out, nil
}
