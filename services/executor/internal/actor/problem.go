package actor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/epigraph-run/epigraph/workgraph"
)

// argAttachments is the named argument with documents for a call.
const argAttachments = "attachments"

// smallAttachments is how many bytes of attachments are put together even without free memory.
const smallAttachments = 64 << 10

// Attaching tells an actor the results of the nodes before a problem of a plan: each is one more of the named
// argument attachments, {id, description, content}, in the order of the edges. Other calls are as they were.
func Attaching(a workgraph.Actor) workgraph.Actor {
	return workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		if err := attach(ctx, c); err != nil {
			return workgraph.Outcome{}, err
		}
		return a.Call(ctx, c)
	})
}

func attach(ctx context.Context, c *workgraph.Call) error {
	if c.Kind != workgraph.ProblemKind {
		return nil
	}
	var list []json.RawMessage
	if given := c.Named[argAttachments]; Filled(given) && json.Unmarshal(given, &list) != nil {
		return nil // a result of this name; the actor may know what to do with it
	}
	size, before := 0, len(list)
	for _, u := range c.Upstream {
		if u.Outcome == workgraph.VisitCompleted {
			size += len(Result(u.Values))
		}
	}
	if size > smallAttachments {
		if err := Room(ctx, 2*int64(size)); err != nil {
			return err
		}
	}
	for _, u := range c.Upstream {
		if u.Outcome != workgraph.VisitCompleted || len(u.Values) == 0 {
			continue
		}
		raw, err := Encode(struct {
			ID          string          `json:"id"`
			Description string          `json:"description"`
			Content     json.RawMessage `json:"content"`
		}{u.Node, DescribeResult(u.Node), Result(u.Values)})
		if err != nil {
			return BadArguments("the result of %q: %v", u.Node, err)
		}
		list = append(list, raw)
	}
	if len(list) > before {
		if c.Named = maps.Clone(c.Named); c.Named == nil {
			c.Named = map[string]json.RawMessage{}
		}
		c.Named[argAttachments] = List(list)
	}
	return nil
}

// DescribeResult describes the result of another node to whom it is attached.
func DescribeResult(node string) string { return fmt.Sprintf("The result of the '%s' agent", node) }

// Problem is what a call knows of its problem of a plan, as an object: the request, what else the plan says
// of it, and the attachments.
func Problem(c *workgraph.Call) (json.RawMessage, error) {
	told := map[string]json.RawMessage{}
	for _, name := range []string{"request", "tool", "arguments", "references", argAttachments} {
		if raw, ok := c.Named[name]; ok {
			told[name] = raw
		}
	}
	return Encode(told)
}

// References tells a model what the references of a plan's problem stand for, a line each; empty if there are
// none. The elements are those of the argument references of a compiled plan. Others stand for themselves.
func References(refs []json.RawMessage) string {
	if len(refs) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("References:")
	for _, raw := range refs {
		var r struct {
			Text  string `json:"text"`
			Node  string `json:"node"`
			Field string `json:"field"`
		}
		if json.Unmarshal(raw, &r) != nil || r.Text == "" || r.Node == "" {
			fmt.Fprintf(&b, "\n%s", raw)
			continue
		}
		fmt.Fprintf(&b, "\n%s is the result of %q", r.Text, r.Node)
		if r.Field != "" {
			fmt.Fprintf(&b, ", field %q", r.Field)
		}
	}
	return b.String()
}

// Filled reports whether an argument holds something: it is there, and neither null nor an empty list.
func Filled(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	if len(raw) > 1 && raw[0] == '[' && len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0 {
		return false
	}
	return len(raw) > 0 && string(raw) != "null"
}
