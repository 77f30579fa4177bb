package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	eventsSchema = "epigraph.executor.v1.RunEvent"
	eventsHead   = `# Events of a run

The events of ` + "`GET /v1/runs/{id}/events`" + ` and WatchRun, by kind. This page is generated from the protos: ` + "`make gen`" + `.

Over server-sent events the name of an event is its kind in snake case (` + "`event: attempt_ended`" + `), and ` + "`data`" + ` is the whole RunEvent:

` + "```json" + `
{"seq": "7", "time": "2026-01-02T03:04:05.678901Z", "runId": "run_…", "rootRunId": "run_…",
 "attemptEnded": {"visit": {"nodeId": "sum", "visit": 1}, "attempt": 1,
  "state": "VISIT_STATE_COMPLETED", "values": [42], "actor": "cel"}}
` + "```" + `

- **Durable** events have a sequence without gaps, ` + "`seq`" + `, which is the ` + "`id`" + ` of the server-sent event. To resume, send the last one as ` + "`Last-Event-ID`" + `.
- **Companions** have no sequence. They are sent right before the durable event that they belong to, and are never lost.
- **Ephemeral** events have no sequence either. They are sent to the watchers of that moment, at whichever executor they watch, and may be lost.
`
)

// events writes the page of a run's events, from the finished OpenAPI document.
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
	written := map[string]bool{eventsSchema: true}
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
	b.WriteString("\n## Every event\n\nThe fields of every event, besides those of its kind:\n")
	table(common)
	for _, class := range classes {
		fmt.Fprintf(&b, "\n## %s\n", class)
		for _, kind := range slices.Sorted(maps.Keys(event.Properties)) {
			what, ours := strings.CutPrefix(event.Properties[kind].Description, class+": ")
			if !ours {
				continue
			}
			name := named(event.Properties[kind].Ref)
			written[name] = true
			fmt.Fprintf(&b, "\n### %s\n\n%s\n", kind, strings.ToUpper(what[:1])+what[1:])
			if fields := all[name].Properties; len(fields) > 0 {
				table(fields)
			}
		}
	}
	b.WriteString("\n## Types\n")
	for len(more) > 0 {
		name := more[0]
		more = more[1:]
		s, known := all[name]
		if written[name] || !known || !strings.HasPrefix(name, "epigraph.executor.") {
			continue
		}
		written[name] = true
		fmt.Fprintf(&b, "\n### %s\n\n%s\n", short(name), cell(s.Description))
		switch {
		case len(s.Enum) > 0:
			fmt.Fprintf(&b, "\n`%s`\n", strings.Join(s.Enum, "`, `"))
		case len(s.Properties) > 0:
			table(s.Properties)
		}
	}
	return []byte(wrap(b.String())), nil
}

// pageWidth is the longest line of the page, except in tables and code.
const pageWidth = 100

// wrap breaks the lines of text and list items at pageWidth. The further lines of an item are indented.
func wrap(page string) string {
	var b strings.Builder
	code := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if code || strings.HasPrefix(line, "|") {
			b.WriteString(line)
			continue
		}
		indent := ""
		if strings.HasPrefix(line, "- ") {
			indent = "  "
		}
		width := 0
		for i, word := range strings.Fields(line) {
			n := utf8.RuneCountInString(word)
			switch {
			case i == 0:
			case width+1+n > pageWidth:
				b.WriteString("\n" + indent)
				width = len(indent)
			default:
				b.WriteByte(' ')
				width++
			}
			b.WriteString(word)
			width += n
		}
		b.WriteByte('\n')
	}
	return b.String()
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
