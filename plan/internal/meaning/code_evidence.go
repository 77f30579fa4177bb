package meaning

import (
	"encoding/json"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(b)
}

// evidenceLine splits "#E1 = Tool[input]" at its sign; the label may have a plan in front of it.
func evidenceLine(s string) (at, n int, body string) {
	for i := range len(s) {
		if s[i] != '#' {
			continue
		}
		j := i + 1
		for j < len(s) && (isWord(s[j])) {
			j++
		}
		if j == i+1 || strings.Trim(s[i+1:j], "0123456789") == s[i+1:j] {
			continue
		}
		t := strings.TrimLeft(s[j:], " *`")
		if strings.HasPrefix(t, "=") || strings.HasPrefix(t, ":") && strings.ContainsAny(t, "[(") {
			return i, j - i, strings.TrimLeft(t[1:], " =")
		}
	}
	return -1, 0, ""
}

// readEvidence reads "Plan: …" and "#E1 = Tool[input]": each evidence is a problem, and links come from its uses.
func readEvidence(src *form.Source, first, end int) *Reading {
	p := newProgram(92, "evidence")
	p.r.Stated = true
	type found struct {
		id, body string
		off      int
	}
	var all []found
	index := map[string]int{}
	title := ""
	for k := first; k < end; k++ {
		l := &src.Lines[k]
		at, n, body := evidenceLine(l.Text)
		if at < 0 {
			if len(all) > 0 && l.Text != "" && !strings.HasSuffix(all[len(all)-1].body, "]") && strings.Contains(all[len(all)-1].body, "[") && len(all[len(all)-1].body) < 4000 {
				all[len(all)-1].body += " " + l.Text
				p.r.Items[len(all)-1].End, p.r.End = l.End, l.End
			} else if head, rest, ok := strings.Cut(l.Text, ":"); ok && len(head) < 24 {
				title = strings.TrimSpace(rest)
			}
			continue
		}
		id := l.Text[at : at+n]
		if before := strings.TrimSpace(l.Text[:at]); len(before) > 8 {
			_, title, _ = strings.Cut(before, ":")
		}
		tool, _, _ := strings.Cut(body, "[")
		t := strings.TrimSpace(title)
		if t == "" {
			t = strings.TrimSpace(body)
		}
		index[id] = p.item(id, t, true, l.Off+at, l.End)
		p.r.Items[len(all)].Attrs = []Attr{{Key: "tool", Role: Tool, Value: quote(strings.TrimSpace(tool)), Off: l.Off}}
		all = append(all, found{id, body, l.Off + at})
		title = ""
	}
	if len(all) == 0 {
		return nil
	}
	for k, f := range all {
		if strings.Count(f.body, "[") > strings.Count(f.body, "]") {
			p.note(true, "UNCLOSED", f.id, "the input of "+f.id+" is not closed", "write the closing ]", f.off)
		}
		for i := 0; i < len(f.body); i++ {
			if f.body[i] != '#' {
				continue
			}
			j := i + 1
			for j < len(f.body) && isWord(f.body[j]) {
				j++
			}
			to := f.body[i:j]
			from, ok := index[to]
			shape := ok || len(to) > 2 && markShape(to) == markShape(f.id)
			if !shape {
				continue
			}
			p.r.Items[k].Refs = append(p.r.Items[k].Refs, Ref{Text: to, To: to, Off: f.off})
			if ok {
				if from != k {
					p.link(from, k, Variable, f.off)
				} else {
					p.r.Links = append(p.r.Links, Link{From: to, To: to, Source: Variable, Off: f.off})
				}
			} else {
				p.r.Links = append(p.r.Links, Link{From: to, To: f.id, Source: Variable, Off: f.off})
			}
			i = j - 1
		}
	}
	return p.reading()
}
