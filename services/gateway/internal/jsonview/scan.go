package jsonview

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// segment is one step from the root of a document to a value: a key, or an index when the key is empty.
type segment struct {
	key   string
	index int
}

// scanner reads JSON and knows where it is, both as an offset and as a path of keys. It stops at the
// first error of syntax; faults of meaning are gathered.
type scanner struct {
	in       []byte
	pos      int
	depth    int
	maxDepth int
	path     []segment
	faults   []errs.Violation
	more     int // faults beyond maxFaults

	// checkIntegers refuses, inside payloads, integers that JSON readers with doubles would change.
	checkIntegers bool
	// checkKeys refuses objects that name a key twice, inside payloads.
	checkKeys bool
	// live is the memory of the keys of the objects that are being read, most its maximum; grow, if not nil,
	// is called for more.
	live, most int64
	keys       []string
	grow       func(bytes int64) error
}

// keySet are the keys of one object that were read. The few of an ordinary object are in the scanner's own
// list, from an index on.
type keySet struct {
	from, n int
	many    map[string]struct{}
	bytes   int64
}

const (
	// fewKeys is how many keys are compared one by one.
	fewKeys = 16
	// keyMemory is the memory of a key in a map besides its bytes, spare capacity included.
	keyMemory = 64
)

// keySet returns the empty set of an object that begins.
func (s *scanner) keySet() keySet { return keySet{from: len(s.keys)} }

// remember reports whether a key comes for the first time in its object.
func (s *scanner) remember(seen *keySet, key string) (first bool, err error) {
	if seen.many != nil {
		if _, ok := seen.many[key]; ok {
			return false, nil
		}
		seen.many[key] = struct{}{}
	} else {
		if slices.Contains(s.keys[seen.from:], key) {
			return false, nil
		}
		if s.keys = append(s.keys, key); len(s.keys)-seen.from > fewKeys {
			seen.many = make(map[string]struct{}, 4*fewKeys)
			for _, k := range s.keys[seen.from:] {
				seen.many[k] = struct{}{}
			}
		}
	}
	seen.n++
	n := keyMemory + int64(len(key))
	seen.bytes += n
	s.live += n
	if grown := s.live - s.most; grown > 0 && s.grow != nil {
		s.most = s.live
		return true, s.grow(grown)
	}
	return true, nil
}

// forget is called at the end of the object.
func (s *scanner) forget(seen *keySet) {
	s.keys = s.keys[:seen.from]
	s.live -= seen.bytes
}

// full reports whether no more faults are collected.
func (s *scanner) full() bool { return len(s.faults) >= maxFaults }

// syntaxError is where a text stops being JSON.
type syntaxError struct {
	offset int
	reason string
	text   string
	path   string
}

func (e *syntaxError) Error() string { return e.text }

func (s *scanner) fail(text string) error {
	return &syntaxError{offset: s.pos, reason: ReasonInvalidJSON, text: text, path: s.where()}
}

// unexpected is the fault of a token other than the wanted one.
func (s *scanner) unexpected(wanted string) error {
	if s.pos >= len(s.in) {
		return s.fail("the text ends where " + wanted + " is expected")
	}
	r, _ := utf8.DecodeRune(s.in[s.pos:])
	return s.fail(strconv.QuoteRune(r) + " stands where " + wanted + " is expected")
}

// fault records a fault of the value at the present path and the given offset.
func (s *scanner) fault(offset int, reason, text string) {
	if s.full() {
		s.more++
		return
	}
	line, column := lineColumn(s.in, offset)
	s.faults = append(s.faults, errs.Violation{
		Field:   s.where(),
		Reason:  reason,
		Message: "line " + strconv.Itoa(line) + ", column " + strconv.Itoa(column) + ": " + text,
	})
}

func (s *scanner) where() string {
	var b strings.Builder
	for _, p := range s.path {
		switch {
		case p.key == "" && p.index >= 0:
			b.WriteByte('[')
			b.WriteString(strconv.Itoa(p.index))
			b.WriteByte(']')
		case plainKey(p.key):
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(p.key)
		default:
			b.WriteByte('[')
			b.WriteString(strconv.Quote(clip(p.key, 128)))
			b.WriteByte(']')
		}
	}
	return b.String()
}

func plainKey(k string) bool {
	if k == "" || len(k) > 128 {
		return false
	}
	for i := range len(k) {
		c := k[i]
		if c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}

func (s *scanner) pushKey(k string) { s.path = append(s.path, segment{key: k, index: -1}) }
func (s *scanner) pushIndex(i int)  { s.path = append(s.path, segment{index: i}) }
func (s *scanner) pop()             { s.path = s.path[:len(s.path)-1] }

func (s *scanner) space() {
	for s.pos < len(s.in) {
		switch s.in[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek skips white space and returns the next byte without taking it, 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.pos >= len(s.in) {
		return 0
	}
	return s.in[s.pos]
}

func (s *scanner) enter() error {
	s.depth++
	if s.depth > s.maxDepth {
		return &syntaxError{
			offset: s.pos, reason: ReasonTooDeep, path: s.where(),
			text: "values are nested more than " + strconv.Itoa(s.maxDepth) + " deep",
		}
	}
	return nil
}

// object reads an object and calls member with each key, when the scanner stands before the value.
func (s *scanner) object(member func(key string, keyOffset int) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer func() { s.depth-- }()
	s.pos++ // '{'
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		if s.peek() != '"' {
			return s.unexpected("a key in quotes")
		}
		at := s.pos
		key, err := s.str()
		if err != nil {
			return err
		}
		if s.peek() != ':' {
			return s.unexpected("':'")
		}
		s.pos++
		s.space()
		s.pushKey(key)
		if err := member(key, at); err != nil {
			return err
		}
		s.pop()
		switch s.peek() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			return nil
		default:
			return s.unexpected("',' or '}'")
		}
	}
}

// array reads an array and calls element with each index, when the scanner stands before the value.
func (s *scanner) array(element func(i int) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer func() { s.depth-- }()
	s.pos++ // '['
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for i := 0; ; i++ {
		s.space()
		s.pushIndex(i)
		if err := element(i); err != nil {
			return err
		}
		s.pop()
		switch s.peek() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			return nil
		default:
			return s.unexpected("',' or ']'")
		}
	}
}

// skip reads one value of any kind.
func (s *scanner) skip() error {
	switch c := s.peek(); {
	case c == '{':
		seen := s.keySet()
		defer s.forget(&seen)
		return s.object(func(key string, at int) error {
			if s.checkKeys {
				first, err := s.remember(&seen, key)
				if err != nil {
					return err
				}
				if !first {
					s.fault(at, ReasonDuplicateKey, "the key "+quote(key)+" is given twice in one object")
				}
			}
			return s.skip()
		})
	case c == '[':
		return s.array(func(int) error { return s.skip() })
	case c == '"':
		_, err := s.rawString()
		return err
	case c == '-' || c >= '0' && c <= '9':
		at := s.pos
		n, err := s.number()
		if err != nil {
			return err
		}
		if s.checkIntegers && !safeInteger(n) {
			s.fault(at, ReasonIntegerTooLarge,
				"the integer "+clip(string(n), 80)+" lies beyond ±9007199254740991 (2^53-1) and would change in readers that use doubles")
		}
		return nil
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	default:
		return s.unexpected("a JSON value")
	}
}

func (s *scanner) literal(word string) error {
	if !strings.HasPrefix(string(s.in[s.pos:min(len(s.in), s.pos+len(word))]), word) {
		return s.fail("this is no JSON value; only true, false and null are words")
	}
	s.pos += len(word)
	return nil
}

// rawString reads a string with its quotes.
func (s *scanner) rawString() ([]byte, error) {
	start := s.pos
	s.pos++ // '"'
	for s.pos < len(s.in) {
		switch c := s.in[s.pos]; {
		case c == '"':
			s.pos++
			return s.in[start:s.pos], nil
		case c < 0x20:
			return nil, s.fail("a control character stands unescaped in a string")
		case c == '\\':
			s.pos++
			if s.pos >= len(s.in) {
				return nil, s.fail("the text ends within a string")
			}
			switch s.in[s.pos] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				s.pos++
			case 'u':
				if s.pos+4 >= len(s.in) || !hex4(s.in[s.pos+1:s.pos+5]) {
					return nil, s.fail("\\u must be followed by four hexadecimal digits")
				}
				s.pos += 5
			default:
				return nil, s.fail("this escape is not known in JSON")
			}
		default:
			s.pos++
		}
	}
	return nil, s.fail("the text ends within a string")
}

func hex4(b []byte) bool {
	for _, c := range b {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return true
}

// str reads a string and resolves its escapes.
func (s *scanner) str() (string, error) {
	raw, err := s.rawString()
	if err != nil {
		return "", err
	}
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), nil
	}
	var out string
	if err := json.Unmarshal(raw, &out); err != nil {
		return "", s.fail("this string cannot be read")
	}
	return out, nil
}

// number reads a number as it is written.
func (s *scanner) number() ([]byte, error) {
	start := s.pos
	digits := func() bool {
		from := s.pos
		for s.pos < len(s.in) && s.in[s.pos] >= '0' && s.in[s.pos] <= '9' {
			s.pos++
		}
		return s.pos > from
	}
	at := func(c byte) bool { return s.pos < len(s.in) && s.in[s.pos] == c }
	if at('-') {
		s.pos++
	}
	if at('0') {
		s.pos++
		if s.pos < len(s.in) && s.in[s.pos] >= '0' && s.in[s.pos] <= '9' {
			return nil, s.fail("a number may not begin with 0")
		}
	} else if !digits() {
		return nil, s.unexpected("a digit")
	}
	if at('.') {
		s.pos++
		if !digits() {
			return nil, s.unexpected("a digit")
		}
	}
	if at('e') || at('E') {
		s.pos++
		if at('+') || at('-') {
			s.pos++
		}
		if !digits() {
			return nil, s.unexpected("a digit")
		}
	}
	return s.in[start:s.pos], nil
}

const maxSafe = "9007199254740991"

// safeInteger reports whether a number is no integer by its spelling, or one that a double carries.
func safeInteger(n []byte) bool {
	t := string(n)
	if strings.ContainsAny(t, ".eE") {
		return true
	}
	t = strings.TrimPrefix(t, "-")
	return len(t) < len(maxSafe) || len(t) == len(maxSafe) && t <= maxSafe
}

// lineColumn turns an offset into a line and a column, both from 1; columns count characters.
func lineColumn(in []byte, offset int) (line, column int) {
	before := in[:min(offset, len(in))]
	line = 1 + bytes.Count(before, []byte{'\n'})
	return line, 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
}

func quote(s string) string { return strconv.Quote(clip(s, 128)) }

// clip shortens s to at most n bytes without cutting a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
