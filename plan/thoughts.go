package plan

import "strings"

var thoughtTags = [...]string{"think", "thinking", "thought", "thoughts", "reasoning", "scratchpad"}

// thoughtTag is <think …> or </think>.
type thoughtTag struct {
	name     string
	off, end int
	closing  bool
}

// findThoughtTags returns the tags between which models think aloud, in order.
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

// maskThoughts blanks out what a model thought aloud before it answered, so that no dialect takes a draft for the plan.
// Thoughts may nest; a closing tag without an opening one ends a thought that began with the text. Blanks keep the length
// in bytes, and with it every offset.
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
		// The thought ends where its tags balance, else with the last closing tag before the next balanced one.
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
