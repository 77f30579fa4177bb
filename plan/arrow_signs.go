package plan

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// splitArrows splits a line at its arrows; back tells for each arrow whether it points back. Quoted parts
// are kept whole and lose their quotes later.
func splitArrows(s string) (parts []string, back []bool) {
	pieces, back := form.SplitArrows(s, 0)
	parts = make([]string, len(pieces))
	for i, p := range pieces {
		parts[i] = p.Text
	}
	return parts, back
}

func splitPieces(s string) []string {
	s = stripSet(strings.TrimSpace(s))
	var out []string
	start := 0
	for i := 0; i <= len(s); {
		n := 0
		switch {
		case i == len(s):
			n = 1
		case (s[i] == '"' || s[i] == '`') && form.OpensQuote(s[start:i]):
			if q := form.QuotedLength(s[i:]); q > 0 {
				i += q
				continue
			}
		case s[i] == ',':
			n = 1
		case s[i] == 0xef && strings.HasPrefix(s[i:], "，"), s[i] == 0xe3 && strings.HasPrefix(s[i:], "、"):
			n = 3
		}
		if n == 0 {
			i++
			continue
		}
		if id := strings.TrimSpace(s[start:i]); id != "" || i < len(s) || len(out) > 0 {
			out = append(out, id)
		}
		i += n
		start = i
	}
	return out
}

// stripSet drops the brackets around a set of ids such as "{A, B}".
func stripSet(s string) string {
	if len(s) < 2 || strings.IndexByte(s, ',') < 0 && strings.IndexByte(s, ' ') < 0 {
		return s
	}
	closing := bracketOf(s[0])
	if closing == 0 || s[len(s)-1] != closing {
		return s
	}
	inner := s[1 : len(s)-1]
	if strings.ContainsAny(inner, "()[]{}") || strings.IndexByte(inner, ',') < 0 {
		return s
	}
	return inner
}

func bracketOf(c byte) byte {
	switch c {
	case '(':
		return ')'
	case '[':
		return ']'
	case '{':
		return '}'
	}
	return 0
}

// bareID drops quotes and decoration around an id.
func bareID(s string) string {
	for {
		n := len(s)
		switch {
		case n > 2 && s[0] == '"' && s[n-1] == '"' && form.QuotedLength(s) == n:
			return form.Unescape(s[1:n-1], true)
		case n > 2 && (s[0] == '`' || s[0] == '\'') && s[n-1] == s[0] && strings.IndexByte(s[1:n-1], s[0]) < 0:
			s = strings.TrimSpace(s[1 : n-1])
		case n > 4 && strings.HasPrefix(s, "**") && strings.HasSuffix(s, "**"):
			s = strings.TrimSpace(s[2 : n-2])
		default:
			return s
		}
	}
}

// splitStatements splits a line at the semicolons outside quotes. A line without any is one statement.
func splitStatements(s string) []string {
	if strings.IndexByte(s, ';') < 0 {
		return []string{s}
	}
	var out []string
	start := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"', '`':
			if form.OpensQuote(s[start:i]) || strings.HasSuffix(strings.TrimSpace(s[start:i]), ">") {
				if n := form.QuotedLength(s[i:]); n > 0 {
					i += n - 1
				}
			}
		case ';':
			if t := strings.TrimSpace(s[start:i]); t != "" {
				out = append(out, t)
			}
			start = i + 1
		}
	}
	if t := strings.TrimSpace(s[start:]); t != "" {
		out = append(out, t)
	}
	return out
}

// cutLineComment drops " # …", " // …" and " %% …" from the end of a line.
func cutLineComment(s string) (kept, comment string) {
	for _, mark := range [...]string{" # ", " // ", " %% "} {
		if i := strings.Index(s, mark); i > 0 && strings.Count(s[:i], `"`)%2 == 0 {
			return strings.TrimSpace(s[:i]), s[i+1:]
		}
	}
	return s, ""
}

func isCommentLine(s string) bool {
	return strings.HasPrefix(s, "# ") || strings.HasPrefix(s, "// ") || strings.HasPrefix(s, "%%") || strings.HasPrefix(s, "<!--") && strings.HasSuffix(s, "-->")
}
