package plan

import (
	"bytes"
	"unicode/utf8"
)

// Reader reads a plan that is still being written. It is not safe for concurrent use. Its total time is
// linear in the length of the text: it reads again only after the text has grown by a fraction of its length.
type Reader struct {
	buf   []byte
	opts  []Option
	limit int
	seen  int // length of the text at the last reading
	ready Graph
}

// NewReader returns an empty Reader. The options are those of Parse.
func NewReader(opts ...Option) *Reader {
	var o options
	for _, f := range opts {
		f(&o)
	}
	return &Reader{opts: opts, limit: o.limits.withDefaults().MaxBytes}
}

// Write adds text. It never fails. Bytes over the limit are dropped, because Parse would not read them.
func (r *Reader) Write(p []byte) (int, error) {
	if room := r.limit + 1 - len(r.buf); room > 0 {
		r.buf = append(r.buf, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

// streaming reports whether a problem of the dialect is finished when the next one begins, because the
// problem itself states its dependencies. In other dialects the edges stand further down, and nothing is
// finished before the end.
func streaming(dialect string) bool {
	switch dialect {
	case "task_list", "command_tasks", "nested_calls", "evidence", "numbered_calls", "assignments", "call_log", "xml_functions":
		return true
	}
	return false
}

const (
	// smallText is the length of text up to which new lines trigger a reading. Beyond it an eighth is new.
	smallText = 16 << 10
	// shortText is the length up to which each line does. Beyond it the new lines have freshText bytes.
	shortText, freshText = 2 << 10, 64
)

// Due reports whether enough text has come for Ready to read again. Otherwise Ready costs nothing.
func (r *Reader) Due() bool { return r.readable() > 0 }

// readable is the length of the text that Ready would read now, or 0.
func (r *Reader) readable() int {
	fresh := r.buf[r.seen:]
	if len(fresh) == 0 || len(r.buf) > smallText && len(fresh) < len(r.buf)/8 {
		return 0
	}
	if i := bytes.LastIndexByte(fresh, '\n'); i >= 0 {
		if said := len(bytes.TrimSpace(fresh)); said == 0 || said < freshText && len(r.buf) > shortText {
			return 0
		}
		return r.seen + i + 1
	}
	if len(fresh) < 256 {
		return 0
	}
	return len(r.buf)
}

// Len is the length of the text so far, as far as it is read.
func (r *Reader) Len() int { return len(r.buf) }

// Ready returns the finished problems, with all edges that lead to them, in the order of the plan. A later
// call returns the same and possibly more. If later text takes something back, Close reports RETRACTED.
func (r *Reader) Ready() Graph {
	end := r.readable()
	if end == 0 {
		return r.ready
	}
	for end > 0 && end < len(r.buf) && !utf8.RuneStart(r.buf[end]) {
		end--
	}
	r.seen = len(r.buf)
	res := Parse(string(r.buf[:end]), r.opts...)
	if res.NoPlan != nil || !streaming(res.Dialect) {
		return r.ready
	}
	for _, d := range res.Diagnostics {
		switch d.Code {
		case Truncated, Unclosed, UnknownReference:
		default:
			if d.Severity == Error {
				return r.ready
			}
		}
	}
	n := len(res.Graph.Problems)
	if !isData(res.Dialect) || closed(r.buf[:end]) != n {
		n-- // the last one may go on
	}
	if n <= len(r.ready.Problems) {
		return r.ready
	}
	next := Graph{Problems: res.Graph.Problems[:n:n]}
	done := make(map[string]bool, n)
	for _, p := range next.Problems {
		done[p.ID] = true
	}
	for _, e := range res.Graph.Edges {
		if done[e.To] {
			next.Edges = append(next.Edges, e)
		}
	}
	if _, ok := next.extends(r.ready); ok {
		r.ready = next
	}
	return r.ready
}

// closed counts the objects of a list that have ended, if the text ends between two of them. The list is the
// outermost one that is open at the end. In any other place the count is -1.
func closed(text []byte) int {
	type open struct {
		bracket byte
		objects int
	}
	var stack []open
	inText, escaped := false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case inText:
			escaped, inText = c == '\\', c != '"'
		case c == '"':
			inText = true
		case c == '[' || c == '{':
			stack = append(stack, open{bracket: c})
		case (c == ']' || c == '}') && len(stack) > 0:
			stack = stack[:len(stack)-1]
			if n := len(stack); c == '}' && n > 0 {
				stack[n-1].objects++
			}
		}
	}
	for i := range stack {
		if stack[i].bracket == '[' {
			if i == len(stack)-1 && !inText {
				return stack[i].objects
			}
			break
		}
	}
	return -1
}

// extends reports whether g contains everything in old. If it does not, it names what is missing.
func (g Graph) extends(old Graph) (string, bool) {
	for i, p := range old.Problems {
		if i >= len(g.Problems) || g.Problems[i].ID != p.ID || g.Problems[i].Request != p.Request {
			return p.ID, false
		}
	}
	type key struct{ from, to string }
	count := make(map[key]int, len(g.Edges))
	for _, e := range g.Edges {
		count[key{e.From, e.To}]++
	}
	in := make(map[string]int, len(old.Problems))
	for _, e := range old.Edges {
		if count[key{e.From, e.To}]--; count[key{e.From, e.To}] < 0 {
			return e.From + " -> " + e.To, false
		}
		in[e.To]++
	}
	// A problem that was returned as finished must not get another edge.
	given := make(map[string]bool, len(old.Problems))
	for _, p := range old.Problems {
		given[p.ID] = true
	}
	for _, e := range g.Edges {
		if given[e.To] {
			if in[e.To]--; in[e.To] < 0 {
				return e.From + " -> " + e.To, false
			}
		}
	}
	return "", true
}

// Close returns the result of the whole text.
func (r *Reader) Close() Result {
	res := Parse(string(r.buf), r.opts...)
	if el, ok := res.Graph.extends(r.ready); !ok {
		res.Diagnostics = append(res.Diagnostics, Diagnostic{Code: Retracted, Severity: Error, Element: el, Message: "the text changed a part that had been read as finished", Hint: "write one plan and do not correct it further down"})
	}
	return res
}
