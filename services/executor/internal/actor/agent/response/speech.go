package response

import (
	"html"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/lenient"
)

// Speech reads a decision while it is written, and gives what it says to the user: the InstantResponse of the
// XML form, or the first text of instant_response and result in a JSON object. It gives text only when it is
// certain whether it is said, and takes linear time. A text of no form says nothing here: how it goes on
// decides what it is. The zero value is ready. It is not safe for concurrent use.
type Speech struct {
	read int
	out  []byte
	over bool // nothing more is said
	// take reads the next byte within a tag, a CDATA section or JSON; nil outside of these.
	take func(*Speech, byte)

	tag   tagText
	form  bool   // a tag of the form was there
	skip  string // the leaf tag whose end is waited for
	open  byte   // a bracket outside of tags: what follows says whether it is JSON
	ends  int    // how many brackets of the end of a CDATA section were there
	doubt doubt  // whether a CDATA section may lack its end

	// Within an InstantResponse: a part of a character, of a character reference, and space that may be the
	// end of it all.
	speaking, begun, said bool
	part, entity, space   []byte
	// holds says that a tag of the form stood in it. What follows is text only if the end tag comes.
	holds bool
	held  []byte

	json jsonSpeech
}

// doubt says what held begins with in a CDATA section.
type doubt byte

const (
	noDoubt doubt = iota
	mayBeTag
	isTag // of the form: all behind it is text only if the section has an end
)

// tagText is a tag that is being read.
type tagText struct {
	raw   []byte
	name  int // the length of "<" or "</" with the name; 0 while it is not known
	quote byte
}

// maxHeld bounds what is kept of a text that is not certain yet. A text that needs more says nothing more.
const maxHeld = 64 << 10

// Write takes the next piece of the decision, and returns what it says to the user beyond what was returned
// before.
func (s *Speech) Write(piece string) string {
	if s.read += len(piece); s.read > MaxBytes {
		s.over = true
	}
	s.out = s.out[:0]
	for i := 0; i < len(piece) && !s.over; i++ {
		if s.take == nil {
			s.free(piece[i])
			continue
		}
		s.take(s, piece[i])
	}
	return string(s.out)
}

// free reads a byte outside of tags.
func (s *Speech) free(c byte) {
	if s.open != 0 && !s.bracket(c) {
		return
	}
	switch {
	case c == '<':
		s.tag = tagText{raw: append(s.tag.raw[:0], c)}
		s.take = (*Speech).inTag
	case s.speaking:
		s.text(c)
	case !s.form && (c == '{' || c == '['):
		s.open = c
	}
}

// bracket reads what follows a bracket. It reports whether the byte is to be read as any other.
func (s *Speech) bracket(c byte) bool {
	open := s.open
	switch {
	case c == ' ' || c == '\t' || c == '\r' || c == '\n':
		return false
	case open == '{' && (c == '"' || c == '\''):
		s.open = 0
		s.json.begin()
		s.take = (*Speech).inJSON
		s.inJSON(c)
		return false
	case open == '[' && (c == '{' || c == '['):
		s.over = true // a list of actions says nothing
		return false
	}
	s.open = 0
	return true
}

// inTag reads a byte of what may be a tag.
func (s *Speech) inTag(c byte) {
	t := &s.tag
	if len(t.raw) >= maxHeld {
		s.over = true
		return
	}
	switch {
	case len(t.raw) < len(cdata) && string(t.raw) == cdata[:len(t.raw)] && c == cdata[len(t.raw)]:
		if t.raw = append(t.raw, c); len(t.raw) == len(cdata) {
			s.take, s.ends = (*Speech).inCDATA, 0
			s.keep(cdata)
		}
	case t.name == 0 && (isNameByte(c) || c == '/' && len(t.raw) == 1):
		if t.raw = append(t.raw, c); len(t.raw) > maxTagName {
			s.noTag()
		}
	case t.name == 0 && !isTagEnd(c), t.name == 0 && !s.known():
		s.noTag()
		s.free(c)
	case t.quote != 0:
		t.raw = append(t.raw, c)
		if c == t.quote {
			t.quote = 0
		}
	case c == '<':
		s.noTag()
		s.free(c)
	case c == '>':
		t.named()
		t.raw = append(t.raw, c)
		if _, _, n := lenient.Tag(string(t.raw), 0); n != len(t.raw) {
			s.noTag()
			return
		}
		s.take = nil
		s.tagged()
	default:
		t.named()
		if c == '"' || c == '\'' {
			t.quote = c
		}
		t.raw = append(t.raw, c)
	}
}

func (t *tagText) named() {
	if t.name == 0 {
		t.name = len(t.raw)
	}
}

func isNameByte(c byte) bool {
	return c == '_' || c == '-' || c == '.' || c == ':' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func isTagEnd(c byte) bool {
	return c == '>' || c == '/' || c == ' ' || c == '\t' || c == '\r' || c == '\n'
}

// known reports whether the name that was read is that of a tag of the form.
func (s *Speech) known() bool {
	return isFormTag(s.tag.raw)
}

// isFormTag reports whether a text, which begins with "<", is the beginning of a tag of the form.
func isFormTag(raw []byte) bool {
	_, ok := inside[strings.ToLower(strings.TrimPrefix(string(raw[1:]), "/"))]
	return ok
}

// noTag takes what was read for text.
func (s *Speech) noTag() {
	s.take = nil
	if s.speaking {
		for _, c := range s.tag.raw {
			s.text(c)
		}
	}
}

// tagged takes a tag of the form.
func (s *Speech) tagged() {
	s.form = true
	name, end := strings.CutPrefix(strings.ToLower(string(s.tag.raw[1:s.tag.name])), "/")
	empty := !end && s.tag.raw[len(s.tag.raw)-2] == '/'
	switch {
	case s.skip != "":
		if end && name == s.skip {
			s.skip = ""
		}
	case s.speaking && name != tagInstant:
		if !s.holds {
			s.flush()
		}
		s.holds = true
		s.keep(string(s.tag.raw))
	case s.speaking && end:
		s.release()
		s.silence()
	case name == tagInstant && !end:
		s.silence()
		s.speaking = !empty
	case !end && !empty && leaf(name):
		s.skip = name
	}
}

// keep adds to the text behind a tag of the form.
func (s *Speech) keep(text string) {
	if !s.speaking || !s.holds {
		return
	}
	if s.held = append(s.held, text...); len(s.held) > maxHeld {
		s.over = true
	}
}

// release says what stood behind a tag of the form: it was text.
func (s *Speech) release() {
	held := string(s.held)
	s.held, s.holds = s.held[:0], false
	for held != "" {
		before, rest, ok := strings.Cut(held, cdata)
		for i := range len(before) {
			s.text(before[i])
		}
		s.flush()
		if !ok {
			return
		}
		inner, after, _ := strings.Cut(rest, cdataEnd)
		s.say(inner)
		held = after
	}
}

// silence ends what is said. Another InstantResponse begins a line of its own.
func (s *Speech) silence() {
	if s.speaking && !s.holds {
		s.flush()
	}
	s.speaking, s.begun, s.holds = false, false, false
	s.part, s.entity, s.space, s.held = s.part[:0], s.entity[:0], s.space[:0], s.held[:0]
}

// inCDATA reads a byte of a CDATA section.
func (s *Speech) inCDATA(c byte) {
	switch {
	case c == '>' && s.ends == len("]]"):
		s.take, s.ends = nil, 0
		if s.doubt != noDoubt {
			s.doubt = noDoubt
			s.say(string(s.held))
			s.held = s.held[:0]
		}
		s.keep(cdataEnd)
		return
	case c == ']' && s.ends < len("]]"):
		s.ends++
		return
	case c != ']':
		for ; s.ends > 0; s.ends-- {
			s.literal(']')
		}
	}
	s.literal(c)
}

// literal takes a byte of the text of a CDATA section.
func (s *Speech) literal(c byte) {
	switch {
	case !s.speaking:
	case s.holds:
		s.keep(string([]byte{c}))
	case s.doubt != noDoubt:
		if s.doubt == mayBeTag && !isNameByte(c) && (c != '/' || len(s.held) > 1) {
			if s.doubt = isTag; !isFormTag(s.held) {
				s.say(string(s.held))
				s.doubt, s.held = noDoubt, s.held[:0]
				s.literal(c)
				return
			}
		}
		if s.held = append(s.held, c); len(s.held) > maxHeld {
			s.over = true
		}
	case c == '<':
		s.flush()
		s.doubt, s.held = mayBeTag, append(s.held[:0], c)
	default:
		s.flush()
		s.say(string([]byte{c}))
	}
}

// text takes a byte of what is said, outside of CDATA sections.
func (s *Speech) text(c byte) {
	if s.holds {
		s.keep(string([]byte{c}))
		return
	}
	if len(s.entity) > 0 {
		if c != '&' && len(s.entity) < maxEntity && (c == '#' || c == ';' || isNameByte(c)) {
			s.entity = append(s.entity, c)
			if c == ';' {
				s.flush()
			}
			return
		}
		s.flush()
	}
	if c == '&' {
		s.entity = append(s.entity, c)
		return
	}
	s.say(string([]byte{c}))
}

// maxEntity is longer than any character reference.
const maxEntity = 40

// flush says what may have been a character reference.
func (s *Speech) flush() {
	if len(s.entity) > 0 {
		s.say(html.UnescapeString(string(s.entity)))
		s.entity = s.entity[:0]
	}
}

// say adds text without the space around all of it.
func (s *Speech) say(text string) {
	s.part = append(s.part, text...)
	left := s.part
	for len(left) > 0 && utf8.FullRune(left) {
		r, n := utf8.DecodeRune(left)
		one := left[:n]
		left = left[n:]
		if unicode.IsSpace(r) {
			if s.begun {
				s.space = append(s.space, one...)
			}
			continue
		}
		if !s.begun && s.said {
			s.out = append(s.out, '\n')
		}
		s.begun, s.said = true, true
		s.out = append(append(s.out, s.space...), one...)
		s.space = s.space[:0]
	}
	s.part = append(s.part[:0], left...)
}

// inJSON reads a byte of a JSON object.
func (s *Speech) inJSON(c byte) {
	if s.out = s.json.next(s.out, c); s.json.depth == 0 {
		s.take = nil
	}
}
