package plan

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// findRefs returns the uses of other problems' results in the strings of v.
func findRefs(d *document, v *form.Value, arg string) []Reference {
	var out []Reference
	var walk func(v *form.Value, depth int)
	walk = func(v *form.Value, depth int) {
		if v == nil || depth > 60 || len(out) > 1000 {
			return
		}
		if v.Kind == form.KindString || v.Kind == form.KindBare {
			for _, r := range scanRefs(v.Str) {
				r.Arg = arg
				r.Line, r.Column = d.place(v.Off)
				out = append(out, r)
			}
		}
		for _, x := range v.Items {
			walk(x, depth+1)
		}
		for i := range v.Fields {
			walk(v.Fields[i].Val, depth+1)
		}
	}
	walk(v, 0)
	return out
}

// scanRefs finds the forms in which models refer to a result: $1, ${1}, $var.field$, ${var.field}, #E1,
// <node-1>, <GENERATED>-1, <GENERATED-1> and {{var.field}}. It does not know which problems exist.
func scanRefs(s string) []Reference {
	var out []Reference
	for i := 0; i < len(s); {
		switch s[i] {
		case '$':
			if r, n := dollarRef(s[i:]); n > 0 {
				out = append(out, r)
				i += n
				continue
			}
		case '#':
			if n := evidenceRef(s[i:]); n > 0 {
				out = append(out, Reference{Text: s[i : i+n], To: s[i : i+n]})
				i += n
				continue
			}
		case '<':
			if r, n := angleRef(s[i:]); n > 0 {
				out = append(out, r)
				i += n
				continue
			}
		case '{':
			if strings.HasPrefix(s[i:], "{{") {
				if end := strings.Index(s[i:min(len(s), i+200)], "}}"); end > 2 {
					name, path := splitPath(strings.TrimSpace(s[i+2 : i+end]))
					if form.IsName(name) {
						out = append(out, Reference{Text: s[i : i+end+2], To: name, Path: path})
						i += end + 2
						continue
					}
				}
			}
		}
		i++
	}
	return out
}

func splitPath(s string) (name, path string) {
	if i := strings.IndexAny(s, ".["); i >= 0 {
		return s[:i], strings.TrimPrefix(s[i:], ".")
	}
	return s, ""
}

// dollarRef reads the reference at the start of s, which begins with $, and returns its length.
func dollarRef(s string) (Reference, int) {
	if len(s) < 2 {
		return Reference{}, 0
	}
	if s[1] == '{' {
		end := strings.IndexByte(s[:min(len(s), 200)], '}')
		if end < 3 {
			return Reference{}, 0
		}
		name, path := splitPath(strings.TrimSpace(s[2:end]))
		if !form.IsName(name) {
			return Reference{}, 0
		}
		n := end + 1
		if p, m := trailingPath(s[n:]); m > 0 && path == "" {
			path = p
			n += m
		}
		return Reference{Text: s[:n], To: name, Path: path}, n
	}
	j := 1
	for j < len(s) && form.IsWordByte(s[j]) {
		j++
	}
	if j == 1 {
		return Reference{}, 0
	}
	r := Reference{To: s[1:j]}
	n := j
	if p, m := trailingPath(s[j:]); m > 0 {
		r.Path = p
		n += m
	}
	if n < len(s) && s[n] == '$' {
		n++
	} else if '0' <= s[1] && s[1] <= '9' && r.Path != "" && s[j] == '.' {
		// $12.50 is money; $1.field is a reference.
		if c := r.Path[0]; '0' <= c && c <= '9' {
			return Reference{}, 0
		}
	}
	r.Text = s[:n]
	return r, n
}

// trailingPath reads .field[0].other at the start of s.
func trailingPath(s string) (string, int) {
	n := 0
	for n < len(s) {
		switch {
		case s[n] == '.' && n+1 < len(s) && form.IsWordByte(s[n+1]):
			n++
			for n < len(s) && form.IsWordByte(s[n]) {
				n++
			}
			continue
		case s[n] == '[':
			end := strings.IndexByte(s[n:min(len(s), n+60)], ']')
			if end > 1 {
				n += end + 1
				continue
			}
		}
		break
	}
	return strings.TrimPrefix(s[:n], "."), n
}

// evidenceRef returns the length of #E1 at the start of s.
func evidenceRef(s string) int {
	if len(s) < 3 || s[1] != 'E' && s[1] != 'e' {
		return 0
	}
	j := 2
	for j < len(s) && '0' <= s[j] && s[j] <= '9' {
		j++
	}
	if j == 2 {
		return 0
	}
	return j
}

// angleRef reads <node-1>, <GENERATED>-1 or <GENERATED-1> at the start of s.
func angleRef(s string) (Reference, int) {
	for _, p := range []string{"<node-", "<node_", "<resource-", "<GENERATED>-", "<GENERATED-"} {
		if !hasFold(s, p) {
			continue
		}
		j := len(p)
		for j < len(s) && '0' <= s[j] && s[j] <= '9' {
			j++
		}
		if j == len(p) {
			return Reference{}, 0
		}
		to := s[len(p):j]
		if j < len(s) && s[j] == '>' {
			j++
		}
		return Reference{Text: s[:j], To: to}, j
	}
	return Reference{}, 0
}
