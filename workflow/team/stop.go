package team

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// Stop is a condition that ends a team in good order. Exactly one of its conditions is set; Of narrows
// Text, and Pause makes a limit pause the team in place of ending it.
type Stop struct {
	Any []Stop `json:"any,omitempty"`
	// All holds when each part has held, not necessarily at the same time.
	All []Stop `json:"all,omitempty"`
	// MaxMessages counts messages of the run, what the team is told included.
	MaxMessages int `json:"max_messages,omitempty"`
	// MaxTurns counts turns. Those who speak side by side speak in one.
	MaxTurns int    `json:"max_turns,omitempty"`
	Text     string `json:"text,omitempty"`
	// Of are those whose messages count; none means all.
	Of []string `json:"of,omitempty"`
	// Handoff is to whom, or AnyOne.
	Handoff string `json:"handoff,omitempty"`
	// Timeout is counted from the beginning of the run, and looked at after each turn.
	Timeout workgraph.Duration `json:"timeout,omitempty"`
	// Tokens bounds all tokens, InputTokens those that models were given, OutputTokens those that they
	// gave.
	Tokens       int64 `json:"tokens,omitempty"`
	InputTokens  int64 `json:"input_tokens,omitempty"`
	OutputTokens int64 `json:"output_tokens,omitempty"`
	NanoUSD      int64 `json:"nano_usd,omitempty"`
	// Call is the tool that somebody called.
	Call string `json:"call,omitempty"`
	// Expr is a CEL condition over result, the message, state, and the named turns, messages, tokens
	// and nano_usd.
	Expr string `json:"expr,omitempty"`
	// Answered are those of whom one has spoken.
	Answered []string `json:"answered,omitempty"`
	Pause    bool     `json:"pause,omitempty"`
}

// HandsTo reports whether the team ends when somebody hands over to a name.
func (s *Stop) HandsTo(name string) bool {
	if s == nil {
		return false
	}
	in := func(list []Stop) bool {
		return slices.ContainsFunc(list, func(x Stop) bool { return x.HandsTo(name) })
	}
	return s.Handoff == name || s.Handoff == AnyOne || in(s.Any) || in(s.All)
}

// Costs reports whether the condition looks at costs, so that they must be known as they come.
func (s *Stop) Costs() bool {
	costs := func(x Stop) bool { return x.Costs() }
	return s.NanoUSD > 0 || slices.ContainsFunc(s.Any, costs) || slices.ContainsFunc(s.All, costs)
}

// conditions are how many of the conditions are set.
func (s *Stop) conditions() (n int) {
	for _, is := range []bool{s.Any != nil, s.All != nil, s.MaxMessages != 0, s.MaxTurns != 0, s.Text != "", s.Handoff != "", s.Timeout != 0, s.Tokens != 0, s.InputTokens != 0, s.OutputTokens != 0,
		s.NanoUSD != 0, s.Call != "", s.Expr != "", s.Answered != nil} {
		if is {
			n++
		}
	}
	return n
}

func (c *checker) stop(s *Stop, where string, deep int, inAll bool) {
	if c.conds++; c.conds > maxConditions || deep > maxDepth {
		if c.conds == maxConditions+1 || deep == maxDepth+1 {
			c.fault("TOO_LARGE", where, "", "a team may have %d conditions, %d within each other", maxConditions, maxDepth)
		}
		return
	}
	limit := s.limit()
	switch {
	case s.conditions() != 1:
		c.fault("BAD_CONDITION", where, "list several by `any` or `all`", "a condition is exactly one")
	case s.MaxMessages < 0 || s.MaxTurns < 0 || s.Timeout < 0 || s.Tokens < 0 || s.InputTokens < 0 || s.OutputTokens < 0 || s.NanoUSD < 0:
		c.fault("OUT_OF_RANGE", where, "", "a limit is above 0")
	case s.Any != nil && len(s.Any) == 0 || s.All != nil && len(s.All) == 0 || s.Answered != nil && len(s.Answered) == 0:
		c.fault("EMPTY", where, "", "the condition has no parts")
	case len(s.Of) > 0 && s.Text == "":
		c.fault("NO_EFFECT", where, "leave it out", "`of` narrows `text` alone")
	case s.Pause && (!limit || inAll):
		c.fault("NO_EFFECT", where, "let the condition stand alone, or in `any`", "only a limit can pause the team")
	}
	for _, name := range slices.Concat(s.Of, s.Answered) {
		c.known(name, where)
	}
	c.expr(s.Expr, where)
	for i := range s.Any {
		c.stop(&s.Any[i], fmt.Sprintf("%s.any[%d]", where, i), deep+1, inAll)
	}
	for i := range s.All {
		c.stop(&s.All[i], fmt.Sprintf("%s.all[%d]", where, i), deep+1, true)
	}
}

// watch is what stop conditions look at.
type watch struct {
	st    *State
	delta []Message
	used  Used
	now   time.Time
	pause string
}

// stopped is the end to which the messages lead, if they do. Else watch.pause may say why to pause.
func (r *Rules) stopped(x *workgraph.Account, w *watch) *Stopped {
	if r.team.Stop == nil {
		return nil
	}
	return r.ends(x, w, r.team.Stop, "")
}

// limit reports whether the condition itself is a limit.
func (s *Stop) limit() bool {
	return s.MaxMessages != 0 || s.MaxTurns != 0 || s.Timeout != 0 || s.Tokens != 0 || s.InputTokens != 0 || s.OutputTokens != 0 || s.NanoUSD != 0
}

// limits reports whether a limit ends the team whatever is said.
func (s *Stop) limits() bool {
	return s != nil && (s.limit() ||
		slices.ContainsFunc(s.Any, func(x Stop) bool { return x.limits() }) ||
		len(s.All) > 0 && !slices.ContainsFunc(s.All, func(x Stop) bool { return !x.limits() }))
}

// ends is the end that a condition makes, or nil.
func (r *Rules) ends(x *workgraph.Account, w *watch, s *Stop, path string) *Stopped {
	part := func(i int) string { return path + "." + strconv.Itoa(i) }
	for i := range s.Any {
		if over := r.ends(x, w, &s.Any[i], part(i)); over != nil {
			return over
		}
	}
	switch {
	case len(s.All) > 0:
		return r.endsAll(x, w, s, part)
	case len(s.Any) > 0:
		return nil
	}
	over := r.leaf(x, w, s, 1+w.st.Raised[path])
	if over != nil && s.Pause {
		w.st.Raised[path] = w.passed(s)
		w.pause = PauseLimit
		return nil
	}
	return over
}

// passed is how often a limit has been passed by now. It counts as many times more from now on.
func (w *watch) passed(s *Stop) int {
	switch {
	case s.MaxMessages > 0:
		return w.st.Messages / s.MaxMessages
	case s.MaxTurns > 0:
		return w.st.Turns / s.MaxTurns
	case s.Timeout > 0:
		return int(w.now.Sub(w.st.Began) / time.Duration(s.Timeout))
	case s.Tokens > 0:
		return int(w.used.Tokens / s.Tokens)
	case s.InputTokens > 0:
		return int(w.used.InputTokens / s.InputTokens)
	case s.OutputTokens > 0:
		return int(w.used.OutputTokens / s.OutputTokens)
	}
	return int(w.used.NanoUSD / max(1, s.NanoUSD))
}

// endsAll is the end when each part has held at some time.
func (r *Rules) endsAll(x *workgraph.Account, w *watch, s *Stop, part func(int) string) *Stopped {
	var reasons, texts []string
	for i := range s.All {
		path := part(i)
		fired, ok := w.st.Fired[path]
		if !ok {
			over := r.ends(x, w, &s.All[i], path)
			if over == nil {
				continue
			}
			fired = *over
			w.st.Fired[path] = fired
		}
		reasons, texts = append(reasons, fired.Reason), append(texts, fired.Text)
	}
	if len(reasons) < len(s.All) {
		return nil
	}
	return &Stopped{Reason: strings.Join(reasons, "+"), Text: strings.Join(texts, ", ")}
}

// leaf is the end that a single condition makes. times is how often its limit counts.
func (r *Rules) leaf(x *workgraph.Account, w *watch, s *Stop, times int) *Stopped {
	end := func(reason, format string, args ...any) *Stopped {
		return &Stopped{Reason: reason, Text: fmt.Sprintf(format, args...)}
	}
	st := w.st
	switch {
	case s.MaxMessages > 0:
		if n := s.MaxMessages * times; st.Messages >= n {
			return end(MaxMessages, "Maximum number of messages %d reached, current message count: %d", n, st.Messages)
		}
	case s.MaxTurns > 0:
		if n := s.MaxTurns * times; st.Turns >= n {
			return end(MaxTurns, "Maximum number of turns %d reached.", n)
		}
	case s.Timeout > 0:
		if most := time.Duration(s.Timeout) * time.Duration(times); w.now.Sub(st.Began) >= most {
			return end(Timeout, "The time of %s is over.", most)
		}
	case s.Tokens > 0:
		if n := s.Tokens * int64(times); w.used.Tokens >= n {
			return end(Tokens, "%d tokens were used, the limit is %d.", w.used.Tokens, n)
		}
	case s.InputTokens > 0:
		if n := s.InputTokens * int64(times); w.used.InputTokens >= n {
			return end(Tokens, "%d input tokens were used, the limit is %d.", w.used.InputTokens, n)
		}
	case s.OutputTokens > 0:
		if n := s.OutputTokens * int64(times); w.used.OutputTokens >= n {
			return end(Tokens, "%d output tokens were used, the limit is %d.", w.used.OutputTokens, n)
		}
	case s.NanoUSD > 0:
		if n := s.NanoUSD * int64(times); w.used.NanoUSD >= n {
			return end(Cost, "%.6f USD were spent, the limit is %.6f.", float64(w.used.NanoUSD)/1e9, float64(n)/1e9)
		}
	}
	for i := range w.delta {
		if over := r.saidBy(x, w, s, &w.delta[i], end); over != nil {
			return over
		}
	}
	return nil
}

// saidBy is the end that a message makes.
func (r *Rules) saidBy(x *workgraph.Account, w *watch, s *Stop, m *Message, end func(reason, format string, args ...any) *Stopped) *Stopped {
	switch {
	case s.Text != "" && (len(s.Of) == 0 || slices.Contains(s.Of, m.From)) && has(x, m.Text, s.Text):
		return end(TextSaid, "Text '%s' mentioned", s.Text)
	case s.Handoff != "" && m.To != "" && (s.Handoff == AnyOne || s.Handoff == m.To):
		return end(HandedOff, "Handoff to %s from %s detected.", m.To, m.From)
	case s.Call != "" && (slices.Contains(m.Calls, s.Call) || slices.ContainsFunc(m.Signals, func(c Call) bool { return c.Name == s.Call })):
		return end(Called, "Function '%s' was called.", s.Call)
	case slices.Contains(s.Answered, m.From):
		return end(Answered, "'%s' answered", m.From)
	case s.Expr != "" && r.truth(x, w.st, s.Expr, m, w.used):
		return end(Expression, "%s", s.Expr)
	}
	return nil
}
