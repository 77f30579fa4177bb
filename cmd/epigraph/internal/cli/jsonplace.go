package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	planv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/plan/v1"
)

// spot is a value in a JSON text: where it begins, in bytes, and what stands there if it is short. key is
// where its key begins, if it has one.
type spot struct {
	offset int
	text   string
	key    int
}

// locate finds the place of a fault in a graph, such as graph.nodes[2].named.expr or graph.nodes[ID].when, in
// the text that holds the graph. Of a place that is not there it finds what encloses it.
func locate(text, field string) spot {
	rest, ok := strings.CutPrefix(field, "graph")
	if !ok {
		rest = "." + field
	}
	base, raw := 0, []byte(text)
	var doc map[string]json.RawMessage
	if json.Unmarshal(raw, &doc) == nil && len(doc["graph"]) > 0 && len(doc["nodes"]) == 0 {
		rest = ".graph" + rest
	}
	base += len(raw) - len(bytes.TrimLeft(raw, " \t\r\n"))
	return seek(raw[base:], base, rest, false)
}

// seek follows a path below a value that stands at base. last says that the value is the end of the path.
func seek(raw []byte, base int, path string, last bool) spot {
	here := spot{offset: base, key: base}
	if len(raw) == 0 {
		return here
	}
	if last || path == "" {
		if len(raw) <= 40 && !bytes.ContainsAny(raw, "\n{[") {
			here.text = string(raw)
		}
		return here
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	switch raw[0] {
	case '{':
		return seekMember(dec, raw, base, strings.TrimPrefix(path, "."), here)
	case '[':
		name, rest, ok := strings.Cut(strings.TrimPrefix(path, "["), "]")
		if !ok || path[0] != '[' {
			return here
		}
		return seekElement(dec, base, name, rest, here)
	}
	return here
}

func seekMember(dec *json.Decoder, raw []byte, base int, path string, here spot) spot {
	if _, err := dec.Token(); err != nil {
		return here
	}
	best, bestRest, found := spot{}, "", -1
	var value json.RawMessage
	var at int
	for dec.More() {
		t, err := dec.Token()
		key, _ := t.(string)
		end := int(dec.InputOffset())
		var v json.RawMessage
		if err != nil || dec.Decode(&v) != nil {
			return here
		}
		n := keyed(path, key)
		if n <= found {
			continue
		}
		begin := bytes.LastIndexByte(raw[:end-1], '"')
		for begin > 0 && raw[begin-1] == '\\' {
			begin = bytes.LastIndexByte(raw[:begin], '"')
		}
		best, bestRest, found = spot{base + begin, string(raw[begin:end]), base + begin}, path[n:], n
		value, at = v, base+int(dec.InputOffset())-len(v)
	}
	switch {
	case found < 0:
		return here
	case bestRest == "" && len(value) > 40:
		return best // the key says more than the first line of what it holds
	}
	s := seek(value, at, bestRest, bestRest == "")
	if bestRest == "" {
		s.key = best.key
	}
	return s
}

// keyed is the length of the key at the beginning of a path, or -1 if the path begins with another key. A
// field may have either of its forms.
func keyed(path, key string) int {
	if key != "" && strings.HasPrefix(path, key) && (len(path) == len(key) || path[len(key)] == '.' || path[len(key)] == '[') {
		return len(key)
	}
	n := strings.IndexAny(path, ".[")
	if n < 0 {
		n = len(path)
	}
	if n > 0 && strings.EqualFold(strings.ReplaceAll(path[:n], "_", ""), strings.ReplaceAll(key, "_", "")) {
		return n
	}
	return -1
}

func seekElement(dec *json.Decoder, base int, name, rest string, here spot) spot {
	if _, err := dec.Token(); err != nil {
		return here
	}
	found := false
	best, at := json.RawMessage(nil), 0
	for i := 0; dec.More(); i++ {
		var v json.RawMessage
		if dec.Decode(&v) != nil {
			return here
		}
		var item struct{ ID, From, To string }
		named := json.Unmarshal(v, &item) == nil && (item.ID == name || item.From+" -> "+item.To == name)
		if named || !found && strconv.Itoa(i) == name {
			best, at = v, base+int(dec.InputOffset())-len(v)
			if found = true; named {
				break
			}
		}
	}
	if !found {
		return here
	}
	return seek(best, at, rest, rest == "")
}

// placed are the faults of a graph with their places in the text, in the order of the text.
func placed(text string, faults []errs.Violation) []*planv1.Diagnostic {
	var ds []*planv1.Diagnostic
	for _, v := range faults {
		s := locate(text, v.Field)
		if v.Reason == "UNKNOWN_FIELD" {
			s.offset, s.text = s.key, ""
		}
		if n := within(text, s.offset, v.Message); n > 0 {
			s.offset, s.text = s.offset+n, ""
		}
		line, column := lineColumn(text, s.offset)
		ds = append(ds, &planv1.Diagnostic{Code: v.Reason, Severity: planv1.Severity_SEVERITY_ERROR, Line: int32(line), Column: int32(column), Element: s.text,
			Message: v.Field + ": " + v.Message})
	}
	slices.SortStableFunc(ds, func(a, b *planv1.Diagnostic) int {
		if a.GetLine() != b.GetLine() {
			return int(a.GetLine() - b.GetLine())
		}
		return int(a.GetColumn() - b.GetColumn())
	})
	return ds
}

// within is how many bytes further an expression is at fault that stands at offset as a JSON text; 0 if the
// message does not say, or the text is written with escapes.
func within(text string, offset int, message string) int {
	var column int
	if _, err := fmt.Sscanf(message, "column %d:", &column); err != nil || offset >= len(text) || text[offset] != '"' {
		return 0
	}
	at := 1
	for i, r := range text[offset+1:] {
		switch {
		case at == column:
			return i + 1
		case r == '\\' || r == '"':
			return 0
		}
		at++
	}
	return 0
}
