package plan

import "strings"

// otherLists are what a line before a list says when the list is something else than a plan.
var otherLists = [...]string{
	"fact", "ingredient", "result", "reason", "question", "feature", "pros", "cons", "top ", "contents", "reference", "example", "summary", "option", "advantage", "benefit",
	"finding", "observation", "definition", "answers", "highlights", "changelog", "release notes", "score", "ranking", "here is why", "because", "known issues", "faq", "glossary", "participants", "decisions",
	"原因", "事实", "结果", "配料", "食材", "参考", "问题", "目录", "特点", "优点", "缺点",
}

// isOtherList reports whether the line before a list, or the list itself, says that it is no list of steps.
func isOtherList(d *document, n *run) bool {
	for _, at := range [...]int{n.intro, n.heading} {
		if at < 0 || at < n.first-4 {
			continue
		}
		t := strings.ToLower(d.lines[at].text)
		if isDecline(t) {
			return true
		}
		if !strings.HasSuffix(strings.TrimRight(t, "*_ "), ":") && !strings.HasSuffix(t, "：") && t[0] != '#' && strings.Count(t, " ") > 3 || saysPlan(t) {
			continue
		}
		for _, w := range otherLists {
			if i := strings.Index(t, w); i >= 0 && (w[0] >= 0x80 || i == 0 || t[i-1] < 'a' || t[i-1] > 'z') {
				return true
			}
		}
	}
	links, data := 0, 0
	for _, it := range n.items {
		if len(it.detail) > 0 && strings.HasPrefix(it.detail[0], "--->") {
			return true // the log of a build
		}
		t := strings.TrimLeft(it.text, "*[ ")
		if strings.HasPrefix(t, "http") || strings.HasPrefix(t, "www.") {
			links++
		}
		if t != "" && (strings.Trim(t, "0123456789.,:;%-+ \t") == "" || strings.HasSuffix(strings.TrimRight(t, "0123456789"), " ....") || strings.Contains(t, " .....")) {
			data++
		}
	}
	return links*2 > len(n.items) || data*2 > len(n.items)
}

// isDecline reports whether a line declines anywhere in it.
func isDecline(lower string) bool {
	for _, w := range refusals {
		if strings.HasPrefix(lower, w) {
			return true
		}
	}
	return false
}

// soundsLikeTalk reports whether a list asks, or the text around it refuses, rather than announces.
func soundsLikeTalk(d *document, n *run) bool {
	questions := 0
	for _, it := range n.items {
		if strings.HasSuffix(it.text, "?") || strings.HasSuffix(it.text, "？") {
			questions++
		}
	}
	return questions*2 > len(n.items) || isRefusal(d.text)
}
