package llm

import (
	"fmt"
	"regexp"
	"strings"
)

// plainName is what every provider takes as the name of a tool.
var plainName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$`)

var strange = regexp.MustCompile(`[^a-zA-Z0-9_-]+`)

// names translates names of tools, such as mcp/files/read, into those that providers take, and back.
type names struct {
	sent map[string]string
	back map[string]string
}

// maxPlain is the longest name that is made: with the number behind it, it has 64 bytes at most.
const maxPlain = 58

// newNames gives each tool of a request a name of its own. Plain names stay, and equal requests get equal
// names. It takes time in proportion to the request, whatever the names are.
func newNames(req *Request) names {
	n := names{sent: map[string]string{}, back: map[string]string{}}
	var odd []string
	note := func(name string) {
		switch _, known := n.sent[name]; {
		case known:
		case plainName.MatchString(name):
			n.sent[name], n.back[name] = name, name
		default:
			n.sent[name] = ""
			odd = append(odd, name)
		}
	}
	for i := range req.Tools {
		note(req.Tools[i].Name)
	}
	for i := range req.Messages {
		for _, c := range req.Messages[i].ToolCalls {
			note(c.Name)
		}
	}
	next := map[string]int{} // the number for the next name that becomes a plain one
	for _, name := range odd {
		plain := strings.Trim(strange.ReplaceAllString(name, "_"), "-")
		if plain == "" || !plainName.MatchString(plain[:1]) {
			plain = "_" + plain
		}
		plain = plain[:min(len(plain), maxPlain)]
		as := plain
		for i := max(2, next[plain]); ; i++ {
			if _, taken := n.back[as]; !taken {
				next[plain] = i
				break
			}
			as = fmt.Sprintf("%s_%d", plain, i)
		}
		n.sent[name], n.back[as] = as, name
	}
	return n
}

// apply puts the names that are sent into a request. Its lists may be those of another one, and stay as they
// are.
func (n names) apply(req *Request) {
	plain := true
	for name, as := range n.sent {
		plain = plain && name == as
	}
	if plain {
		return
	}
	tools := make([]Tool, len(req.Tools))
	for i, t := range req.Tools {
		t.Name = n.sent[t.Name]
		tools[i] = t
	}
	messages := make([]Message, len(req.Messages))
	for i, m := range req.Messages {
		if len(m.ToolCalls) > 0 {
			calls := make([]ToolCall, len(m.ToolCalls))
			for k, c := range m.ToolCalls {
				c.Name = n.sent[c.Name]
				calls[k] = c
			}
			m.ToolCalls = calls
		}
		messages[i] = m
	}
	req.Tools, req.Messages = tools, messages
	if as, ok := n.sent[req.ToolChoice]; ok {
		req.ToolChoice = as
	}
}
