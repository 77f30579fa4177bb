package form

import (
	"sort"
	"strings"
)

// Source is the text being read, with its lines. NewSource fills it; later only Once changes it.
type Source struct {
	Text  string
	Lines []Line
	// MaxDepth bounds nesting. MaxItems and MaxLinks bound the content of one reading. Readers stop at the
	// bound and report it, or return one element more.
	MaxDepth, MaxItems, MaxLinks int
	// Ended reports whether the caller no longer waits for the result. Long loops call it regularly.
	Ended func() bool
	// ends holds, for each line, the index of the first line behind its code fence or behind the text between
	// two fences.
	ends []int
	made map[any]any
}

// Once calls made for the first call with a key, and returns the same result for later calls. It is not safe
// for concurrent use.
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
	// Start is the offset of the line, Off that of its first character other than space, and End the end of
	// its text.
	Start, Off, End int
	// Text is the line without surrounding space.
	Text string
	// Indent is the column at which Text begins; a tab counts as 4.
	Indent int
	// Fence is set on a line that opens or closes a code fence, InCode on the lines between. Lang is the
	// language of the fence.
	Fence, InCode bool
	Lang          string
}

// space is the white space that is trimmed from lines.
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

// blocks computes the end of the block of each line.
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

// LineAt returns the index in Lines of the line that holds the byte at off.
func (s *Source) LineAt(off int) int {
	return max(0, sort.Search(len(s.Lines), func(i int) bool { return s.Lines[i].Start > off })-1)
}
