package plan

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

var thoughtTags = [...]string{"think", "thinking", "thought", "thoughts", "reasoning", "scratchpad"}

// thoughtTag is <think …> or </think>.
type thoughtTag struct {
	name     string
	off, end int
	closing  bool
}

// findThoughtTags returns, in order, the tags between which models think aloud.
func findThoughtTags(text string) []thoughtTag {
	var out []thoughtTag
	for i := 0; i < len(text); {
		j := strings.IndexByte(text[i:], '<')
		if j < 0 {
			break
		}
		i += j
		k := i + 1
		closing := k < len(text) && text[k] == '/'
		if closing {
			k++
		}
		for _, t := range thoughtTags {
			e := k + len(t)
			if !hasFold(text[k:], t) || e >= len(text) || text[e] != '>' && (closing || text[e] != ' ') {
				continue
			}
			end := strings.IndexByte(text[e:min(len(text), e+100)], '>')
			if end < 0 || strings.IndexByte(text[e:e+end], '<') >= 0 || end > 0 && text[e+end-1] == '/' {
				break
			}
			out = append(out, thoughtTag{t, i, e + end + 1, closing})
			break
		}
		i++
	}
	return out
}

// maskThoughts blanks out what a model thought aloud before it answered, so that no dialect takes a draft for
// the plan. Thoughts may nest. A closing tag without an opening one ends a thought that began with the text.
// Blanks keep the length in bytes, and so every offset.
func (d *document) maskThoughts(text string) string {
	tags := findThoughtTags(text)
	if len(tags) == 0 {
		return text
	}
	out := []byte(text)
	hide := func(from, to int, name string) {
		for k := from; k < to; k++ {
			if out[k] != '\n' && out[k] != '\r' {
				out[k] = ' '
			}
		}
		d.repairs = append(d.repairs, Repair{Code: ThinkRemoved, Message: "left out the thoughts in <" + name + ">", Applied: true, Line: from, Column: -1})
	}
	done := 0
	for i := 0; i < len(tags); {
		t := tags[i]
		if t.closing {
			if done == 0 && strings.TrimSpace(text[t.end:]) != "" {
				hide(0, t.end, t.name)
				done = t.end
			}
			i++
			continue
		}
		// The thought ends where its tags balance, or else at the last closing tag before the next balanced
		// thought.
		depth, last, j := 0, -1, i
		for ; j < len(tags); j++ {
			if !tags[j].closing {
				depth++
				continue
			}
			last = j
			if depth--; depth == 0 {
				break
			}
		}
		if last < 0 {
			d.thinkOpen = true
			hide(t.off, len(text), t.name)
			break
		}
		hide(t.off, tags[last].end, t.name)
		done = tags[last].end
		i = last + 1
	}
	return string(out)
}

// spokenView returns a chat or transcript without the times and the names of the speakers. It returns nil
// unless nearly every line begins with one of a few names.
func (d *document) spokenView() *document {
	lines, spoken := 0, 0
	names := map[string]bool{}
	for _, l := range d.lines {
		if l.text == "" || l.fence {
			continue
		}
		lines++
		if name, _ := speaker(l.text); name != "" {
			names[name] = true
			spoken++
		}
	}
	if spoken < 4 || spoken*5 < lines*4 || len(names) < 2 || len(names)*2 > spoken {
		return nil
	}
	var v viewBuilder
	for _, l := range d.lines {
		name, n := speaker(l.text)
		if name == "" {
			n = 0 // the digits may be a step number rather than a time: "1.1.1 dig"
		}
		v.copy(l.text[n:], l.off+n)
		v.add("\n", l.off+len(l.text))
	}
	return v.document(d, len(d.text))
}

// speaker returns the name of the speaker at the start of a line of chat, and the index of the words behind
// it: "Ann: yes", "[12.06., 18:02] Ann: yes", "00:41 ANN: yes". The name of a field or a step is no speaker.
func speaker(s string) (name string, n int) {
	time := strings.TrimLeft(s, "[0123456789:., /")
	if time = strings.TrimPrefix(time, "]"); len(s)-len(time) >= 5 {
		n = len(s) - len(strings.TrimLeft(time, " "))
	}
	name, words, ok := strings.Cut(s[n:], ": ")
	if a, b, wide := strings.Cut(s[n:], "："); wide && (!ok || len(a) < len(name)) {
		name, words, ok = a, b, true
	}
	first, _ := utf8.DecodeRuneInString(name)
	if !ok || len(name) > 40 || strings.Count(name, " ") > 2 || unicode.IsLower(first) || strings.ContainsFunc(name, func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsMark(c) && !strings.ContainsRune(" .-'", c)
	}) || utf8.RuneCountInString(name) < 2 || lexicon.Is(lexicon.Steps, name) || lexicon.Is(lexicon.Plan, name) {
		return "", n
	}
	if _, field := lexicon.Field(name); field {
		return "", n
	}
	return name, len(s) - len(strings.TrimLeft(words, " "))
}
