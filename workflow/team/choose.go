package team

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/workflow/internal/text"
	"github.com/epigraph-run/epigraph/workgraph"
)

// choice is the move in which a model is asked who speaks, or the only one who can speak does.
func (r *Rules) choice(x *workgraph.Account, st *State, m *Message) (Move, error) {
	if len(st.Ready) > 0 {
		return r.called(st, st.Ready), nil
	}
	if r.Member(m.To) != nil {
		return r.called(st, []string{m.To}), nil
	}
	among := make([]string, 0, len(r.team.Members))
	for i := range r.team.Members {
		among = append(among, r.team.Members[i].Name)
	}
	if src := r.team.Choose.Candidates; src != "" {
		raw, err := r.eval(x, st, src, m, Used{})
		if err != nil {
			return Move{}, fmt.Errorf("candidates: %w", err)
		}
		var given []string
		if json.Unmarshal(raw, &given) != nil {
			return Move{}, fmt.Errorf("candidates are a list of names, not %s", clip(string(raw)))
		}
		if given != nil {
			among = among[:0]
		}
		for _, name := range given {
			if r.Member(name) == nil {
				return Move{}, fmt.Errorf("candidates: there is no member %q", clip(name))
			}
			if !slices.Contains(among, name) {
				among = append(among, name)
			}
		}
		if len(among) == 0 {
			return r.move(st), nil // nobody can speak
		}
	}
	if !r.team.Choose.Repeat && len(among) > 1 {
		among = slices.DeleteFunc(among, func(name string) bool { return name == st.Last })
	}
	if len(among) == 1 {
		return r.called(st, among), nil
	}
	st.Choosing = &Question{Among: among}
	return Move{Ask: st.Choosing}, nil
}

// Chosen is what comes of the answer of the model that chooses: somebody speaks, or it is asked again.
// After too many bad answers the last speaker speaks again, or the first candidate. external says that
// somebody asked the team to end.
func (r *Rules) Chosen(st *State, answer string, external bool) (*State, Move, error) {
	if st.Choosing == nil {
		return nil, Move{}, fmt.Errorf("nobody was asked who speaks next")
	}
	st = st.clone()
	if external {
		st.Choosing, st.Over = nil, asked()
		return st, Move{Over: st.Over}, nil
	}
	q := *st.Choosing
	name, fault := r.named(st, &q, answer)
	if fault == "" {
		st.Choosing = nil
		return st, r.chosen(st, name), nil
	}
	q.Feedback = append(slices.Clone(q.Feedback), Feedback{Answer: text.Clip(answer, maxFeedback), Fault: fault})
	if len(q.Feedback) >= cmp.Or(r.team.Choose.Attempts, 3) {
		st.Choosing = nil
		name := cmp.Or(st.Last, q.Among[0])
		if r.team.Choose.Candidates != "" && !slices.Contains(q.Among, name) {
			name = q.Among[0]
		}
		return st, r.chosen(st, name), nil
	}
	st.Choosing = &q
	return st, Move{Ask: st.Choosing}, nil
}

// chosen is the move in which somebody speaks whom the model chose.
func (r *Rules) chosen(st *State, name string) Move {
	move := r.called(st, []string{name})
	for _, to := range move.Speak {
		move.Routed = append(move.Routed, workgraph.Routed{From: st.Last, To: to, How: workgraph.RoutedBySelector})
	}
	return move
}

// maxFeedback bounds what is told of an answer, in bytes.
const maxFeedback = 500

// named is the one candidate that an answer names, or what is wrong with it.
func (r *Rules) named(st *State, q *Question, answer string) (name, fault string) {
	if exact := strings.TrimSpace(answer); slices.Contains(q.Among, exact) {
		return exact, ""
	}
	var found []string
	for i := range r.team.Members {
		if name := r.team.Members[i].Name; mentions(answer, name) {
			found = append(found, name)
		}
	}
	can := slices.DeleteFunc(slices.Clone(found), func(name string) bool { return !slices.Contains(q.Among, name) })
	among := strings.Join(q.Among, ", ")
	switch {
	case len(found) == 1 && len(can) == 1:
		return can[0], ""
	case len(found) > 1:
		return "", "Several names were given: choose one of " + among + "."
	case len(found) == 1 && found[0] == st.Last:
		return "", found[0] + " has just spoken: choose one of " + among + "."
	}
	return "", "No valid name was given: choose one of " + among + "."
}

// mentions reports whether a text has a name as a word of its own, as it is or with _ written as a
// space or escaped.
func mentions(s, name string) bool {
	for _, form := range []string{name, strings.ReplaceAll(name, "_", " "), strings.ReplaceAll(name, "_", `\_`)} {
		for at, rest := 0, s; ; {
			k := strings.Index(rest, form)
			if k < 0 {
				break
			}
			from, to := at+k, at+k+len(form)
			if (from == 0 || !word(s[from-1])) && (to == len(s) || !word(s[to])) {
				return true
			}
			at, rest = to, s[to:]
		}
	}
	return false
}

func word(b byte) bool {
	return b == '_' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || b >= 0x80
}

// Prompt is what the model that chooses is asked, with the newest messages of the log.
func (r *Rules) Prompt(q *Question, history []Message) string {
	var roles, said strings.Builder
	for _, name := range q.Among {
		roles.WriteString(strings.TrimRight(name+": "+r.Member(name).Description, ": ") + "\n")
	}
	for i := range history {
		m := &history[i]
		said.WriteString(m.From + ": " + m.Text + "\n")
	}
	text := cmp.Or(r.team.Choose.Prompt, DefaultPrompt)
	text = strings.NewReplacer("{roles}", strings.TrimSpace(roles.String()), "{participants}", "["+strings.Join(q.Among, ", ")+"]", "{history}", strings.TrimSpace(said.String())).Replace(text)
	for _, f := range q.Feedback {
		text += "\n\nYou answered: " + f.Answer + "\n" + f.Fault
	}
	return text
}

var argument = regexp.MustCompile(`\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}`)

// filled is a text with arguments of a signal filled in.
func filled(s string, arguments json.RawMessage) string {
	if !strings.Contains(s, "{{") {
		return s
	}
	var args map[string]json.RawMessage
	_ = json.Unmarshal(arguments, &args) // without arguments nothing is filled in
	return argument.ReplaceAllStringFunc(s, func(mark string) string {
		raw := args[argument.FindStringSubmatch(mark)[1]]
		var text string
		if json.Unmarshal(raw, &text) == nil {
			return text
		}
		return string(raw)
	})
}

// filledValue is a value with arguments filled in. A text that is one reference becomes the argument
// itself, and null if it is not given.
func filledValue(v, arguments json.RawMessage) json.RawMessage {
	var s string
	if json.Unmarshal(v, &s) != nil || !strings.Contains(s, "{{") {
		return v
	}
	if m := argument.FindStringSubmatch(s); m != nil && m[0] == strings.TrimSpace(s) {
		var args map[string]json.RawMessage
		_ = json.Unmarshal(arguments, &args)
		if raw, ok := args[m[1]]; ok {
			return raw
		}
		return json.RawMessage("null")
	}
	raw, err := json.Marshal(filled(s, arguments))
	if err != nil {
		return json.RawMessage("null") // texts always marshal
	}
	return raw
}
