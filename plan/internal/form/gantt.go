package form

import (
	"strings"
	"time"
)

// ganttTask is one task of a chart. from and to are times in hours from an arbitrary origin. fixed is set if
// they are known.
type ganttTask struct {
	id       string
	from, to int
	fixed    bool
	off      int
}

// ganttAt reads the Mermaid Gantt chart that begins on line i.
func ganttAt(src *Source, i int) *Diagram {
	l := &src.Lines[i]
	if rest, ok := cutWord(l.Text, "gantt"); !ok || rest != "" {
		return nil
	}
	g := newDiagram(src, "gantt", i)
	end := src.blockEnd(i)
	g.Closed = src.closedFence(end)
	c := &ganttChart{Diagram: g}
	for k := i + 1; k < end; k++ {
		text := src.Lines[k].Text
		if text == "" || ganttDirective(text) {
			if text != "" {
				g.Last, g.End = k, src.Lines[k].End
			}
			if name, ok := cutWord(text, "section"); ok {
				c.section = name
			}
			continue
		}
		title, data, ok := cutColon(text)
		if !ok {
			if !l.InCode {
				break
			}
			if !strings.HasPrefix(text, "%%") {
				g.fault(false, "SKIPPED_TEXT", src.Lines[k].Off, text, "this line of the chart was left out", "write Title :id, after id, 3d")
			}
			continue
		}
		g.Last, g.End = k, src.Lines[k].End
		c.task(title, data, src.Lines[k].Off)
	}
	c.resolve()
	return g
}

// ganttDirectives are the first words of lines of a chart that are no tasks.
var ganttDirectives = [...]string{"title", "dateFormat", "axisFormat", "tickInterval", "section", "excludes", "includes", "todayMarker", "weekday", "weekend", "inclusiveEndDates", "accTitle", "accDescr", "click", "topAxis"}

func ganttDirective(s string) bool {
	for _, w := range ganttDirectives {
		if rest, ok := cutWord(s, w); ok && !strings.HasPrefix(rest, ":") {
			return true
		}
	}
	return strings.HasPrefix(s, "%%")
}

// cutColon splits "Title :id, …" at the colon before the data.
func cutColon(s string) (title, data string, ok bool) {
	i := strings.LastIndex(s, " :")
	if i < 0 {
		i = strings.IndexByte(s, ':')
		if i < 0 {
			return s, "", false
		}
		return strings.TrimSpace(s[:i]), s[i+1:], true
	}
	return strings.TrimSpace(s[:i]), s[i+2:], true
}

type ganttChart struct {
	*Diagram
	tasks []ganttTask
	// section is the current section of the chart.
	section     string
	after       []Arc // To is a title or an id as written, until resolve
	needsStated bool
}

var ganttTags = map[string]bool{"done": true, "active": true, "crit": true, "milestone": true, "vert": true}

func (c *ganttChart) task(title, data string, off int) {
	t := ganttTask{off: off}
	var need []string
	var until []string
	fields := strings.Split(data, ",")
	for k := range fields {
		fields[k] = strings.TrimSpace(fields[k])
	}
	says := []TextField{{"section", c.section}}
	for len(fields) > 0 && ganttTags[fields[0]] {
		says, fields = append(says, TextField{"status", fields[0]}), fields[1:]
	}
	for k, f := range fields {
		day, isDate := ganttDate(f)
		days, isSpan := ganttSpan(f)
		switch rest, isAfter := cutWord(f, "after"); {
		case isAfter:
			need = strings.Fields(rest)
		case isDate && !t.fixed && t.from == 0:
			t.from, t.to, t.fixed = day, day, true
			says = append(says, TextField{"start", f})
		case isDate:
			t.to = day
			says = append(says, TextField{"end", f})
		case isSpan:
			t.to = t.from + days
			says = append(says, TextField{"duration", f})
		default:
			if rest, ok := cutWord(f, "until"); ok {
				until = strings.Fields(rest)
			} else if k == 0 && f != "" {
				t.id = f
			}
		}
	}
	hidden := t.id == ""
	if hidden {
		t.id = title
	}
	if t.id == "" {
		return
	}
	if _, twice := c.index[t.id]; twice && !hidden {
		c.Nodes = append(c.Nodes, Node{ID: t.id, Label: label(title), Off: off, End: off + len(title)})
	} else {
		c.node(t.id, label(title), off)
		c.Nodes[c.index[t.id]].Hidden = hidden
	}
	for _, x := range says {
		c.addField(t.id, x.Key, x.Text)
	}
	for _, x := range need {
		c.needsStated = true
		c.after = append(c.after, Arc{From: x, To: t.id, Off: off})
	}
	for _, x := range until {
		c.needsStated = true
		c.after = append(c.after, Arc{From: t.id, To: x, Off: off})
	}
	// A task that states only its length begins when the previous task ends.
	if n := len(c.tasks); !t.fixed && len(need) == 0 && n > 0 {
		c.after = append(c.after, Arc{From: c.tasks[n-1].id, To: t.id, Off: off})
		c.needsStated = true
	}
	c.tasks = append(c.tasks, t)
}

// resolve makes links of the stated dependencies. If the chart states only days, it derives links from them.
func (c *ganttChart) resolve() {
	c.Links = append(c.Links, c.after...)
	if !c.needsStated {
		assumeFromDays(c.Diagram, c.tasks)
	}
}

// ganttDate reads a date in one of the layouts of charts and returns it in hours.
func ganttDate(s string) (int, bool) {
	for _, layout := range [...]string{"2006-01-02", "02-01-2006", "2006/01/02", "02.01.2006", "01/02/2006", "2006-01-02 15:04", "2006-01-02T15:04"} {
		if t, err := time.Parse(layout, s); err == nil {
			return int(t.Unix() / 3600), true
		}
	}
	return 0, false
}

// ganttSpan reads a length such as 3d or 2w and returns it in hours.
func ganttSpan(s string) (int, bool) {
	n, k := 0, 0
	for k < len(s) && '0' <= s[k] && s[k] <= '9' && k < 6 {
		n = n*10 + int(s[k]-'0')
		k++
	}
	if k == 0 {
		return 0, false
	}
	switch strings.TrimSpace(s[k:]) {
	case "d", "D", "day", "days":
		return n * 24, true
	case "w", "W", "week", "weeks":
		return n * 24 * 7, true
	case "h", "H":
		return n, true
	case "m", "M", "min", "s", "ms", "y":
		return n, true
	}
	return 0, false
}

// maxAssumed bounds the number of tasks between which an order is derived from their days.
const maxAssumed = 300

// assumeFromDays links a task to the tasks that end before it begins, unless another task lies between them.
func assumeFromDays(g *Diagram, tasks []ganttTask) {
	if len(tasks) > maxAssumed {
		g.fault(true, "LIMIT_REACHED", g.Start, g.Nodes[0].ID, "there are too many bars to compare", "state what each task waits for")
		return
	}
	for _, b := range tasks {
		latest := 0
		for _, a := range tasks {
			if a.fixed && b.fixed && a.id != b.id && a.to <= b.from && a.from < b.from {
				latest = max(latest, a.from)
			}
		}
		for _, a := range tasks {
			if !a.fixed || !b.fixed || a.id == b.id || a.to > b.from || a.from >= b.from || a.to <= latest && a.from < latest {
				continue
			}
			g.link([]string{a.id}, []string{b.id}, b.off, "the chart only shows that it ends before the other begins")
		}
	}
}
