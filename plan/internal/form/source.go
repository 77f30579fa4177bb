package form

import (
	"sort"
	"strings"
)

// Source is the text that is read, with its lines. It is not changed after NewSource, but remembers what
// was made of it.
type Source struct {
	Text  string
	Lines []Line
	// MaxDepth bounds nesting, MaxItems and MaxLinks what one reading may hold; readers stop there and say
	// so, or one behind it.
	MaxDepth, MaxItems, MaxLinks int
	// Ended reports whether nobody waits for the result any more; loops over the text ask now and then.
	Ended func() bool
	// ends are the places of the first line behind each line's code fence, or behind the text between two.
	ends []int
	made map[any]any
}

// Once returns what made returned when it was first called for the key. It is not safe for concurrent use.
func Once[T any](s *Source, key any, made func() T) T {
	if x, ok := s.made[key]; ok {
		return x.(T)
	}
	if s.made == nil {
		s.made = map[any]any{}
	}
	x := made()
	s.made[key] = x
	return x
}

// Line is one line without its line end.
type Line struct {
	// Start is where the line begins, Off where its first character that is no space stands, End where its
	// text ends.
	Start, Off, End int
	// Text is the line without the space around it.
	Text string
	// Indent is the column at which Text begins; a tab counts as 4.
	Indent int
	// Fence is set on a line that opens or closes a code fence, InCode on those between two; Lang is the
	// fence's language.
	Fence, InCode bool
	Lang          string
}

// space is what is trimmed from lines besides ASCII white space.
const space = " \t\r\u3000\u00a0\ufeff\u200b"

// NewSource splits text into lines.
func NewSource(text string) *Source {
	text = withoutSpanArrows(text)
	s := &Source{Text: text, MaxDepth: 200, MaxItems: 10_000, MaxLinks: 100_000, Ended: func() bool { return false }}
	s.Lines = make([]Line, 0, strings.Count(text, "\n")+1)
	inCode, lang := false, ""
	for start := 0; ; {
		n := strings.IndexByte(text[start:], '\n')
		raw := text[start:]
		if n >= 0 {
			raw = text[start : start+n]
		}
		l := Line{Start: start, InCode: inCode, Lang: lang}
		body := strings.TrimLeft(raw, space)
		for _, r := range raw[:len(raw)-len(body)] {
			switch r {
			case '\t':
				l.Indent += 4
			case ' ', '\u00a0':
				l.Indent++
			case '\u3000':
				l.Indent += 2
			}
		}
		l.Off = start + len(raw) - len(body)
		l.Text = strings.TrimRight(body, space)
		l.End = l.Off + len(l.Text)
		if strings.HasPrefix(l.Text, "```") || strings.HasPrefix(l.Text, "~~~") {
			l.Fence, l.InCode = true, false
			if inCode {
				inCode, lang = false, ""
			} else {
				inCode, lang = true, strings.ToLower(strings.TrimSpace(strings.Trim(l.Text, "`~")))
			}
			l.Lang = lang
		}
		s.Lines = append(s.Lines, l)
		if n < 0 {
			s.blocks()
			return s
		}
		start += n + 1
	}
}

// blocks finds out where the block of each line ends.
func (s *Source) blocks() {
	s.ends = make([]int, len(s.Lines))
	for i := len(s.Lines) - 1; i >= 0; i-- {
		l := &s.Lines[i]
		switch {
		case l.Fence:
			s.ends[i] = i
		case i+1 < len(s.Lines) && s.Lines[i+1].InCode == l.InCode:
			s.ends[i] = s.ends[i+1]
		default:
			s.ends[i] = i + 1
		}
	}
}

// LineAt returns the place in Lines of the line that holds the byte at off.
func (s *Source) LineAt(off int) int {
	return max(0, sort.Search(len(s.Lines), func(i int) bool { return s.Lines[i].Start > off })-1)
}
