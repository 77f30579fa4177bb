package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	eventsSchema = "epigraph.executor.v1.RunEvent"
	eventsHead   = `# Events of a run

What ` + "`GET /v1/runs/{id}/events`" + ` and WatchRun tell, by kind. This page is generated from the protos: ` + "`make gen`" + `.

Over server-sent events the name of the event is its kind as below in snake case (` + "`event: attempt_ended`" + `), and ` + "`data`" + ` is the whole RunEvent:

` + "```json" + `
{"seq": "7", "time": "2026-01-02T03:04:05.678901Z", "runId": "run_…", "rootRunId": "run_…",
 "attemptEnded": {"visit": {"nodeId": "sum", "visit": 1}, "attempt": 1, "state": "VISIT_STATE_COMPLETED", "values": [42], "actor": "cel"}}
` + "```" + `

- **Durable** events carry a sequence without gaps, ` + "`seq`" + `, which is the ` + "`id`" + ` of the server-sent event: send the last one as ` + "`Last-Event-ID`" + ` to go on after it.
- **Companions** have no sequence. They come right before the durable event that they belong to, whenever that comes, and are never lost.
- **Ephemeral** events have no sequence either. They are told to whoever watches at that moment, and may be lost.
`
)

// events writes the page that lists what a run's events carry, from the finished OpenAPI document.
func events(document []byte) ([]byte, error) {
	var doc struct {
		Components struct {
			Schemas map[string]schema
		}
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	all := doc.Components.Schemas
	var b strings.Builder
	b.WriteString(eventsHead)
	told := map[string]bool{eventsSchema: true}
	var more []string
	table := func(fields map[string]schema) {
		b.WriteString("\n| field | type | |\n|---|---|---|\n")
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			f := fields[name]
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, f.kind(&more), cell(f.Description))
		}
	}
	event, ok := all[eventsSchema]
	if !ok {
		return nil, fmt.Errorf("there is no schema %s", eventsSchema)
	}
	classes := []string{"Durable", "Companion", "Ephemeral"}
	common := map[string]schema{}
	for name, f := range event.Properties {
		class, _, _ := strings.Cut(f.Description, ": ")
		switch {
		case slices.Contains(classes, class):
		case f.Ref != "":
			return nil, fmt.Errorf("the comment of %s in %s begins with none of %s", name, eventsSchema, strings.Join(classes, ", "))
		default:
			common[name] = f
		}
	}
	b.WriteString("\n## Every event\n\nBesides what its kind tells, each carries:\n")
	table(common)
	for _, class := range classes {
		fmt.Fprintf(&b, "\n## %s\n", class)
		for _, kind := range slices.Sorted(maps.Keys(event.Properties)) {
			what, ours := strings.CutPrefix(event.Properties[kind].Description, class+": ")
			if !ours {
				continue
			}
			name := named(event.Properties[kind].Ref)
			told[name] = true
			fmt.Fprintf(&b, "\n### %s\n\n%s\n", kind, strings.ToUpper(what[:1])+what[1:])
			if fields := all[name].Properties; len(fields) > 0 {
				table(fields)
			}
		}
	}
	b.WriteString("\n## What they are made of\n")
	for len(more) > 0 {
		name := more[0]
		more = more[1:]
		s, known := all[name]
		if told[name] || !known || !strings.HasPrefix(name, "epigraph.executor.") {
			continue
		}
		told[name] = true
		fmt.Fprintf(&b, "\n### %s\n\n%s\n", short(name), cell(s.Description))
		switch {
		case len(s.Enum) > 0:
			fmt.Fprintf(&b, "\n`%s`\n", strings.Join(s.Enum, "`, `"))
		case len(s.Properties) > 0:
			table(s.Properties)
		}
	}
	return []byte(b.String()), nil
}

// schema is as much of an OpenAPI schema as the page needs.
type schema struct {
	Ref                  string `json:"$ref"`
	Type                 any
	Format               string
	Description          string
	Properties           map[string]schema
	Items                *schema
	AdditionalProperties *schema
	Enum                 []string
}

// kind is the type of a field in words; the types that it refers to are added to refs.
func (s schema) kind(refs *[]string) string {
	switch {
	case s.Ref != "":
		name := named(s.Ref)
		*refs = append(*refs, name)
		switch {
		case strings.HasPrefix(name, "epigraph.executor."):
			return short(name)
		case name == "epigraph.graph.v1.Payload":
			return "any JSON value"
		case strings.HasPrefix(name, "google.protobuf."):
			return strings.ToLower(short(name))
		}
		return short(name)
	case s.Items != nil:
		return "list of " + s.Items.kind(refs)
	case s.AdditionalProperties != nil:
		return "map of " + s.AdditionalProperties.kind(refs)
	case s.Format != "":
		return s.Format
	}
	return fmt.Sprint(s.Type)
}

func named(ref string) string { return strings.TrimPrefix(ref, "#/components/schemas/") }

// short is a schema's name without its package.
func short(name string) string { return name[strings.LastIndex(name, ".")+1:] }

// cell is a description on one line of a table.
func cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}
