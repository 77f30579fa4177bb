// Command openapi merges the OpenAPI documents that are generated for each proto file into the one that the
// gateway serves unchanged. It adds the document's own head and the paths beside the annotated methods
// (base.json), the messages that only streams and errors carry, and one name for each path: two templates
// that differ only in the name of a parameter are one path to OpenAPI. Its first argument is a descriptor
// set. As "openapi events DOCUMENT" it writes the page of docs that lists the events of a run.
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

//go:embed base.json
var base []byte

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func run(files []string) error {
	if len(files) == 0 {
		return errors.New("give the descriptor set, then the documents")
	}
	if len(files) == 2 && files[0] == "events" {
		document, err := os.ReadFile(files[1])
		if err != nil {
			return err
		}
		text, err := events(document)
		if err != nil {
			return err
		}
		_, err = os.Stdout.Write(text)
		return err
	}
	set, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	files = files[1:]
	parts := make([][]byte, 0, len(files))
	for _, f := range files {
		body, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		parts = append(parts, body)
	}
	doc, err := merge(base, parts, set)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(doc)
	return err
}

type object = map[string]any

func merge(base []byte, parts [][]byte, set []byte) ([]byte, error) {
	var doc object
	if err := json.Unmarshal(base, &doc); err != nil {
		return nil, fmt.Errorf("read the base: %w", err)
	}
	paths, components := child(doc, "paths"), child(doc, "components")
	schemas := child(components, "schemas")
	own := slices.Collect(maps.Keys(schemas))
	tags := map[string]any{}

	for _, text := range parts {
		var part object
		if err := json.Unmarshal(text, &part); err != nil {
			return nil, fmt.Errorf("read a part: %w", err)
		}
		if part["openapi"] != doc["openapi"] {
			return nil, fmt.Errorf("a part has OpenAPI version %v, the base %v", part["openapi"], doc["openapi"])
		}
		for template, item := range child(part, "paths") {
			item, ok := item.(object)
			if !ok {
				return nil, fmt.Errorf("path %s is not an object", template)
			}
			if err := add(child(paths, plain(template)), rename(item), plain(template)); err != nil {
				return nil, err
			}
		}
		more := child(child(part, "components"), "schemas")
		for _, name := range own {
			delete(more, name)
		}
		if err := add(schemas, more, "schema"); err != nil {
			return nil, err
		}
		list, _ := part["tags"].([]any)
		for _, tag := range list {
			if t, ok := tag.(object); ok {
				tags[fmt.Sprint(t["name"])] = t
			}
		}
	}
	for _, item := range paths {
		for _, operation := range item.(object) {
			if o, ok := operation.(object); ok {
				child(o, "responses")["default"] = object{"$ref": "#/components/responses/Error"}
			}
		}
	}
	if set != nil {
		if err := describe(schemas, set); err != nil {
			return nil, err
		}
	}
	var list []any
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, tags[name])
	}
	doc["tags"] = list
	if err := resolve(doc, doc); err != nil {
		return nil, err
	}

	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(doc); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// child returns the object at key, made if there is none.
func child(of object, key string) object {
	c, ok := of[key].(object)
	if !ok {
		c = object{}
		of[key] = c
	}
	return c
}

// add puts the members of from into to and refuses to change existing ones.
func add(to, from object, what string) error {
	for _, key := range slices.Sorted(maps.Keys(from)) {
		if old, ok := to[key]; ok && !reflect.DeepEqual(old, from[key]) {
			return fmt.Errorf("%s %s is defined twice and differently", what, key)
		}
		to[key] = from[key]
	}
	return nil
}

var variable = regexp.MustCompile(`\{[^}]*\}`)

// plain names a path's variables without dots: {epic.id} is {epic_id}.
func plain(template string) string {
	return variable.ReplaceAllStringFunc(template, func(v string) string { return strings.ReplaceAll(v, ".", "_") })
}

// rename does the same to the parameters of the operations of a path.
func rename(item object) object {
	for _, operation := range item {
		o, ok := operation.(object)
		if !ok {
			continue
		}
		list, _ := o["parameters"].([]any)
		for _, parameter := range list {
			if p, ok := parameter.(object); ok && p["in"] == "path" {
				p["name"] = strings.ReplaceAll(fmt.Sprint(p["name"]), ".", "_")
			}
		}
	}
	return item
}

// resolve reports a reference that leads nowhere.
func resolve(doc object, v any) error {
	switch v := v.(type) {
	case object:
		if ref, ok := v["$ref"].(string); ok {
			var at any = doc
			for _, step := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
				o, _ := at.(object)
				at = o[step]
			}
			if at == nil {
				return errors.New("reference leads nowhere: " + ref)
			}
		}
		for _, c := range v {
			if err := resolve(doc, c); err != nil {
				return err
			}
		}
	case []any:
		for _, c := range v {
			if err := resolve(doc, c); err != nil {
				return err
			}
		}
	}
	return nil
}
