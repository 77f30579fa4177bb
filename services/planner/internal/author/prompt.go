package author

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

// createNames are the placeholders of the prompt for a new plan.
var createNames = []string{"goal", "context", "tools"}

// instructions ask for the notation that the reader understands with the fewest doubts, and of which a task
// is certain as soon as the next one begins.
const instructions = `You write plans that a machine runs. A plan is a JSON list of tasks, with one task on each line:

[
{"id": "forecast", "request": "Get the forecast for Oslo", "tool": "weather", "args": {"city": "Oslo"}, "needs": []},
{"id": "sights", "request": "List three sights of Oslo that are indoors", "needs": []},
{"id": "tour", "request": "Choose a sight that suits the forecast", "needs": ["forecast", "sights"]}
]

- "id" is a short name of its own for each task.
- "request" says all that whoever does the task must know: nobody sees the other tasks. The results of the tasks in "needs" are handed over.
- "needs" lists the ids of the tasks whose results the task uses, and [] if there are none. Tasks that need not wait for each other run at the same time, so list only what is used.
- "tool" names one of the given tools, with its arguments in "args". Leave both out for work that a language model can do.
- Write "$id" in "args" for the result of the task with that id, and list that id in "needs".
- No task may need itself, directly or through others.

Answer with the list alone: no explanation before or after it.`

const createPrompt = `Goal:
{goal}

What is known:
{context}

Tools:
{tools}

Write the plan.`

// paragraphs are separated by blank lines.
var paragraphs = regexp.MustCompile(`\n[ \t]*(?:\n[ \t]*)+`)

// fill puts values into a template. A paragraph is left out if it has placeholders and all of their values
// are empty. Values are not searched for placeholders.
func fill(template string, values map[string]string) string {
	var out []string
	for _, p := range paragraphs.Split(strings.ReplaceAll(template, "\r\n", "\n"), -1) {
		found, empty := false, true
		text := placeholder.ReplaceAllStringFunc(p, func(m string) string {
			v, known := values[m[1:len(m)-1]]
			if !known {
				return m
			}
			found, empty = true, empty && v == ""
			return v
		})
		if !found || !empty {
			out = append(out, text)
		}
	}
	return strings.TrimSpace(strings.Join(out, "\n\n"))
}

// Tool is something that a problem may use.
type Tool struct {
	Name, Description string
	// Schema is the JSON Schema of the arguments, or nil.
	Schema json.RawMessage
}

func toolText(tools []Tool) string {
	var b strings.Builder
	for _, t := range tools {
		b.WriteString("- " + t.Name)
		if t.Description != "" {
			b.WriteString(": " + strings.Join(strings.Fields(t.Description), " "))
		}
		b.WriteByte('\n')
		var schema bytes.Buffer
		if len(t.Schema) > 0 && json.Compact(&schema, t.Schema) == nil {
			b.WriteString("  args: " + schema.String() + "\n")
		}
	}
	return strings.TrimSpace(b.String())
}
