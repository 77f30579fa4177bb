package plan

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// marker is what makes a line an item of a list: its number, in whatever form, and what follows it.
type marker struct {
	id, text string
	heading  int  // the number of # before it, 7 for a bold line, 0 for none
	weak     bool // letters, roman numbers and [1]: a list only where the text says so or holds nothing else
}

var stepWords = [...]string{
	"step", "task", "subtask", "sub-task", "phase", "stage", "étape", "etape", "schritt", "paso", "passo", "etapa", "stap", "steg", "krok", "adım", "bước", "langkah", "шаг", "этап",
	"步骤", "步驟", "任务", "任務", "阶段", "階段", "ステップ", "手順", "단계",
}

// maxMarker bounds the length of a number such as 1.2.3.
const maxMarker = 64

// itemLine reads the marker of a line: "1. text", "(1) text", "**1.** text", "- [ ] 1.2 text", "### Step 3: text",
// "第一步：text", "① text". A label is what labels found in lists by letters.
func itemLine(s string) (marker, bool) {
	var m marker
	t := s
	for len(t) > 0 && t[0] == '#' {
		m.heading++
		t = t[1:]
	}
	if m.heading > 0 {
		if t == "" || t[0] != ' ' && m.heading > 1 {
			return m, false
		}
		if t[0] != ' ' { // "#1 text"
			if t[0] < '0' || t[0] > '9' {
				return m, false
			}
			m.heading = 0
		}
		t = strings.TrimLeft(t, " ")
	}
	t = cutBullet(t)
	deco := len(t)
	t = strings.TrimLeft(t, "*_`")
	deco -= len(t)
	if deco > 0 && (t == "" || t[0] == ' ') {
		return m, false
	}
	if deco >= 2 && isBoldHeading(s) && m.heading == 0 {
		m.heading = 7
	}
	var ok bool
	if m.id, m.text, ok = wideNumber(t); !ok {
		if m.id, m.text, ok = plainNumber(t); !ok {
			if m.id, m.text, ok = wordNumber(t, m.heading > 0); !ok {
				return m, false
			}
		}
		if len(m.id) > maxMarker {
			return m, false
		}
		m.weak = strings.HasPrefix(t, "[") && '0' <= t[1] && t[1] <= '9'
	}
	m.text = strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(m.text), ":：-–—"))
	if deco > 0 {
		m.text = strings.TrimSpace(strings.Replace(strings.TrimLeft(m.text, "*_`"), "**", "", 1))
		m.text = strings.TrimSpace(strings.TrimLeft(m.text, ":：-–—"))
	}
	for _, box := range [...]string{"[ ] ", "[x] ", "[X] "} {
		m.text = strings.TrimPrefix(m.text, box)
	}
	return m, true
}

// cutBullet drops a bullet and a check box.
func cutBullet(t string) string {
	for _, b := range [...]string{"- ", "* ", "+ ", "• ", "– ", "· ", "◦ "} {
		if rest, ok := strings.CutPrefix(t, b); ok {
			t = strings.TrimLeft(rest, " ")
			break
		}
	}
	for _, box := range [...]string{"[ ] ", "[x] ", "[X] ", "☐ ", "☑ "} {
		if rest, ok := strings.CutPrefix(t, box); ok {
			return strings.TrimLeft(rest, " ")
		}
	}
	return t
}

// plainNumber reads "1.", "1)", "(1)", "[1]", "1\.", "**1**." and "１．" at the start of s.
func plainNumber(s string) (id, rest string, ok bool) {
	t := asciiDigits(s)
	closing := ""
	for _, p := range [...][2]string{{"(", ")"}, {"（", "）"}, {"[", "]"}, {"【", "】"}} {
		if inner, found := strings.CutPrefix(t, p[0]); found {
			t, closing = asciiDigits(inner), p[1]
			break
		}
	}
	if t == "" || t[0] < '0' || t[0] > '9' {
		return "", s, false
	}
	if closing != "" {
		end := strings.Index(t[:min(len(t), 12)], closing)
		if end <= 0 || strings.Trim(t[:end], "0123456789.") != "" || strings.HasPrefix(t[end+len(closing):], "(") {
			return "", s, false
		}
		rest = t[end+len(closing):]
		return strings.TrimRight(t[:end], "."), strings.TrimLeft(rest, " .:：、"), rest != "" || closing == ")"
	}
	// The mark may stand behind decoration or a backslash.
	n := len(t) - len(strings.TrimLeft(t, "0123456789."))
	if n > 0 && n < len(t) && strings.IndexByte("*_`\\", t[n]) >= 0 {
		after := strings.TrimLeft(t[n:], "*_`\\")
		if number := strings.TrimRight(t[:n], "."); number != "" && (t[n-1] == '.' || after != "" && strings.IndexByte(".):", after[0]) >= 0) {
			return cutNumber(number + ". " + strings.TrimLeft(after, ".): "))
		}
	}
	return cutNumber(t)
}

// wordNumber reads "Step 1: …", "[Step 1] …", "步骤一：…", "第1步 …" and "1단계: …" at the start of s.
func wordNumber(s string, heading bool) (id, rest string, ok bool) {
	t := s
	if t == "" {
		return "", s, false
	}
	bracket := t[0] == '[' || t[0] == '('
	if bracket {
		t = t[1:]
	}
	if t == "" {
		return "", s, false
	}
	if after, found := strings.CutPrefix(t, "第"); found {
		num := asciiDigits(after)
		n := len(num) - len(strings.TrimLeft(num, "0123456789"))
		for _, w := range [...]string{"步", "阶段", "階段", "项", "項"} {
			if n > 0 && n < 4 && strings.HasPrefix(num[n:], w) {
				return num[:n], strings.TrimLeft(num[n+len(w):], "骤驟 ：:、，,."), true
			}
		}
		return "", s, false
	}
	if '0' <= t[0] && t[0] <= '9' {
		n := len(t) - len(strings.TrimLeft(t, "0123456789"))
		if after, found := strings.CutPrefix(t[n:], "단계"); found && n < 4 {
			return t[:n], strings.TrimLeft(after, " :：.-"), true
		}
		return "", s, false
	}
	for _, w := range stepWords {
		if !hasFold(t, w) {
			continue
		}
		after := strings.TrimLeft(t[len(w):], " #")
		if num, rest, ok := wideDigitsAt(after); ok {
			if mark := strings.TrimLeft(rest, " "); mark != "" && strings.ContainsAny(firstRune(mark), ":：、，,.-–—") {
				return num, strings.TrimLeft(mark, " :：、，,.-–—"), true
			}
			return "", s, false
		}
		after = asciiDigits(after)
		n := 0
		for n < len(after) && ('0' <= after[n] && after[n] <= '9' || after[n] == '.' && n+1 < len(after) && '0' <= after[n+1] && after[n+1] <= '9') {
			n++
		}
		if n == 0 || n > 12 {
			return "", s, false
		}
		num, rest := after[:n], after[n:]
		// "/3" and " of 3"
		for _, of := range [...]string{"/", " of "} {
			if total, found := strings.CutPrefix(rest, of); found {
				rest = strings.TrimLeft(total, "0123456789")
			}
		}
		if bracket {
			if rest == "" || rest[0] != ']' && rest[0] != ')' {
				return "", s, false
			}
			return num, strings.TrimLeft(rest[1:], " :：-–—"), true
		}
		mark := strings.TrimLeft(rest, " *_`")
		switch {
		case mark == "":
			return num, "", true
		case strings.ContainsAny(firstRune(mark), ".):：、-–—"):
			return num, strings.TrimLeft(mark, " .):：、-–—*_`"), true
		case heading || rest != "" && rest[0] == '*':
			return num, mark, true
		}
		return "", s, false // "Task 2 and 3 depend on it" is no item
	}
	return "", s, false
}

func firstRune(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return s[:n]
}

// asciiDigits turns the digits of any script at the start of s into ASCII ones.
func asciiDigits(s string) string {
	if s == "" || s[0] < utf8.RuneSelf {
		return s
	}
	var b strings.Builder
	for i, c := range s {
		switch {
		case c == '．' && b.Len() > 0:
			b.WriteByte('.')
		case '0' <= c && c <= '9' || c == '.' && b.Len() > 0:
			b.WriteRune(c)
		case unicode.IsDigit(c):
			b.WriteByte(byte('0' + digitValue(c)))
		default:
			if b.Len() == 0 {
				return s
			}
			return b.String() + s[i:]
		}
	}
	return b.String()
}

// digitValue returns the value of a decimal digit: Unicode has them in blocks of ten.
func digitValue(c rune) int {
	n := 0
	for n < 9 && unicode.IsDigit(c-1) {
		c--
		n++
	}
	return n
}

const wideDigits = "一二三四五六七八九十"

func wideDigitsAt(s string) (num, rest string, ok bool) {
	n := 0
	for _, c := range s {
		if !strings.ContainsRune(wideDigits, c) {
			break
		}
		n += utf8.RuneLen(c)
	}
	return s[:n], s[n:], n > 0 && n <= 9
}

// wideNumber reads "一、text", "（二）text", "第三步：text", "第一，text" and "①text"; the id is what stands there.
func wideNumber(s string) (id, rest string, ok bool) {
	if s == "" || s[0] < utf8.RuneSelf && s[0] != '(' {
		return "", s, false
	}
	if c, n := utf8.DecodeRuneInString(s); '①' <= c && c <= '⑳' || '❶' <= c && c <= '❿' || '⑴' <= c && c <= '⒇' || '⒈' <= c && c <= '⒛' {
		return s[:n], strings.TrimLeft(s[n:], " .、"), true
	}
	t := s
	paren := []string(nil)
	switch {
	case strings.HasPrefix(t, "（"):
		paren, t = []string{"）"}, t[len("（"):]
	case strings.HasPrefix(t, "第"):
		paren, t = []string{"步骤", "步驟", "步", "阶段", "階段", "，", "、", "：", ","}, t[len("第"):]
	case t[0] == '(':
		paren, t = []string{")"}, t[1:]
	}
	id, rest, ok = wideDigitsAt(t)
	if !ok {
		return "", s, false
	}
	if paren != nil {
		for _, p := range paren {
			if after, found := strings.CutPrefix(rest, p); found {
				return id, strings.TrimLeft(after, " ：:、，"), true
			}
		}
		return "", s, false
	}
	for _, m := range []string{"、", "．", ".", "：", ":"} {
		if strings.HasPrefix(rest, m) {
			return id, rest[len(m):], true
		}
	}
	return "", s, false
}

// letterLabel reads "a)", "(a)", "A." or "iv." at the start of an item; style tells lists of different looks apart.
func letterLabel(s string) (label, text, style string, ok bool) {
	t := strings.TrimLeft(cutBullet(strings.TrimLeft(s, "# ")), "*_`")
	open := ""
	if strings.HasPrefix(t, "(") {
		open, t = "(", t[1:]
	}
	n := 0
	for n < len(t) && n < 6 && ('a' <= t[n]|0x20 && t[n]|0x20 <= 'z') {
		n++
	}
	if n == 0 || n >= len(t) || n > 1 && romanValue(t[:n]) == 0 {
		return "", "", "", false
	}
	after := strings.TrimLeft(t[n:], "*_`")
	if after == "" || after[0] != ')' && (open != "" || after[0] != '.') {
		return "", "", "", false
	}
	rest := strings.TrimLeft(after[1:], "*_`")
	if rest == "" || rest[0] != ' ' {
		return "", "", "", false
	}
	style = open + after[:1]
	if t[0] < 'a' {
		style += "A"
	}
	return t[:n], strings.TrimSpace(strings.Replace(rest, "**", "", 1)), style, true
}

// romanValue returns the value of a roman number up to 39 in one case, or 0.
func romanValue(s string) int {
	l := strings.ToLower(s)
	if l != s && strings.ToUpper(s) != s {
		return 0
	}
	n := 0
	for strings.HasPrefix(l, "x") && n < 30 {
		n += 10
		l = l[1:]
	}
	for i, r := range [...]string{"", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix"} {
		if l == r {
			return n + i
		}
	}
	return 0
}

// letteredItems finds the lines that are items of lists counted by letters or roman numbers. A line that merely starts
// with a letter is none: its neighbors must count from the first one up.
func (d *document) letteredItems() map[int]marker {
	type list struct {
		n     int
		roman bool
		first int
		m     marker
	}
	out := map[int]marker{}
	open := map[string]*list{}
	for i, l := range d.lines {
		if l.text == "" || l.fence || len(l.text) > 2000 {
			continue
		}
		if m, ok := itemLine(l.text); ok && m.heading == 0 {
			// A list of letters inside an item ends with it.
			for k, o := range open {
				if d.lines[o.first].indent > l.indent {
					delete(open, k)
				}
			}
			continue
		}
		label, text, style, ok := letterLabel(l.text)
		if !ok {
			continue
		}
		key := style + strconv.Itoa(l.indent)
		o := open[key]
		m := marker{id: label, text: text, weak: true}
		letter := 0
		if len(label) == 1 {
			letter = int(label[0]|0x20-'a') + 1
		}
		switch {
		case o != nil && (o.roman && romanValue(label) == o.n+1 || !o.roman && letter == o.n+1):
			out[o.first] = o.m
			out[i] = m
			o.n++
		case letter == 1, romanValue(label) == 1:
			if len(open) >= 64 {
				clear(open)
			}
			open[key] = &list{n: 1, roman: romanValue(label) == 1, first: i, m: m}
		default:
			delete(open, key)
		}
	}
	return out
}

// dashNumber reads "1-2 text" under an item 1 or 1-1, as some write 1.2.
func dashNumber(s, last string) (id, text string, ok bool) {
	n := len(s) - len(strings.TrimLeft(s, "0123456789-"))
	if n < 3 || n >= len(s) || last == "" {
		return "", "", false
	}
	id = strings.TrimRight(s[:n], "-")
	parent, _, found := strings.Cut(last, "-")
	if i := strings.LastIndexByte(id, '-'); !found {
		parent = last
		if i < 0 || id[i+1:] != "1" {
			return "", "", false
		}
	}
	if !strings.HasPrefix(id, parent+"-") || strings.IndexByte(".): ", s[n]) < 0 {
		return "", "", false
	}
	return id, strings.TrimLeft(s[n:], ".): "), true
}
