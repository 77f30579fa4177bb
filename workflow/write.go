package workflow

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFlow is how long a list, or keys and values, may be as JSON to be written on one line, in bytes.
const maxFlow = 80

// write is the text of a definition, in YAML. Short lists, keys and values stand on one line. What YAML
// would read otherwise than it was meant is written as JSON as a whole.
func write(v *value) []byte {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(yamlNode(v)); err == nil && enc.Close() == nil {
		if again := readSource(&teller{}, b.Bytes()); again != nil && same(v, again) {
			return b.Bytes()
		}
	}
	var pretty bytes.Buffer
	_ = json.Indent(&pretty, v.json(), "", "  ") // a value has a JSON form
	pretty.WriteByte('\n')
	return pretty.Bytes()
}

// ofOldYAML are texts that other readers of YAML take for true or false.
var ofOldYAML = []string{"y", "n", "yes", "no", "on", "off"}

func yamlNode(v *value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: v.text}
	switch v.kind {
	case null:
		n.Value, n.Tag = "null", "!!null"
	case text:
		if n.Tag = "!!str"; slices.Contains(ofOldYAML, strings.ToLower(v.text)) {
			n.Style = yaml.DoubleQuotedStyle
		}
	case list:
		n.Kind = yaml.SequenceNode
		for _, item := range v.items {
			n.Content = append(n.Content, yamlNode(item))
		}
	case mapping:
		n.Kind = yaml.MappingNode
		for i := range v.entries {
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v.entries[i].key}, yamlNode(v.entries[i].value))
		}
	case boolean, number: // written as they were read
	}
	if n.Kind != yaml.ScalarNode && v.under != nil && v.short() {
		n.Style = yaml.FlowStyle
	}
	return n
}

// short reports whether a value fits on one line.
func (v *value) short() bool {
	for _, item := range v.inside() {
		if len(item.inside()) > 0 || strings.Contains(item.text, "\n") {
			return false
		}
	}
	return len(v.json()) <= maxFlow
}

// inside are the items of a list, and the values of keys.
func (v *value) inside() []*value {
	out := slices.Clone(v.items)
	for i := range v.entries {
		out = append(out, v.entries[i].value)
	}
	return out
}

// same reports whether two values mean the same, keys in the same order.
func same(a, b *value) bool {
	if a.kind != b.kind || len(a.items) != len(b.items) || len(a.entries) != len(b.entries) || a.kind != null && a.text != b.text {
		return false
	}
	for i := range a.items {
		if !same(a.items[i], b.items[i]) {
			return false
		}
	}
	for i := range a.entries {
		if a.entries[i].key != b.entries[i].key || !same(a.entries[i].value, b.entries[i].value) {
			return false
		}
	}
	return true
}
