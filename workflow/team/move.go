package team

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// ErrNoSpeaker is the error of Begin when the last speaker handed over to somebody who is no member.
var ErrNoSpeaker = errors.New("nobody can speak")

// MaxState bounds the values of the team's state, in bytes.
const MaxState = 256 << 10

// Begin starts a team, or goes on with one whose run is over, with what it is told. A team that has ended
// goes on where it is. After a run that broke off those speak again who spoke then, if nothing is told;
// else it is a new request, and those begin who hear the input. So it is after a run that somebody has
// stopped: those who were to speak next would go on with what was stopped. The messages get their
// sequences. The state is not changed; the new one is returned.
func (r *Rules) Begin(ctx context.Context, before *State, input []Message, now time.Time) (logged []Message, st *State, move Move, err error) {
	st, x := before.clone(), workgraph.NewAccount(ctx)
	brokeOff := st.Over == nil && (len(st.Speaking) > 0 || st.Choosing != nil)
	r.adopt(st)
	r.again(st)
	stopped := st.Over != nil && st.Over.Reason == External
	if (brokeOff || stopped) && len(input) > 0 {
		r.anew(st)
	}
	st.Over, st.Choosing = nil, nil
	st.Began, st.Turns, st.Messages, st.Fired, st.Raised = now, 0, 0, map[string]Stopped{}, map[string]int{}
	to := ""
	input = slices.Clone(input)
	for i := range input {
		m := &input[i]
		m.From = cmp.Or(m.From, Input)
		r.log(st, m, now)
		to = cmp.Or(m.To, to)
	}
	switch {
	case to != "" && r.Member(to) == nil:
		return nil, nil, Move{}, fmt.Errorf("%w: the message hands over to %q, who is no member", ErrNoSpeaker, clip(to))
	case to != "":
		st.Ready, st.Lost = []string{to}, ""
	case st.Lost != "":
		return nil, nil, Move{}, fmt.Errorf("%w: %q handed over to %q, who is no member: send a message that hands over to a member", ErrNoSpeaker, st.Last, clip(st.Lost))
	case len(st.Ready) == 0 && !r.team.driven():
		st.Ready, st.Arrived = slices.Clone(r.starts), map[string][]int{}
	}
	w := &watch{st: st, delta: input, now: now}
	if st.Over = r.stopped(x, w); st.Over != nil {
		return input, st, Move{Over: st.Over}, fault(x, st)
	}
	if move, err = r.next(x, st, now, last(input)); move.Over == nil {
		move.Pause = w.pause
	}
	return input, st, move, errors.Join(err, fault(x, st))
}

// fault is what keeps a move from being made: expressions that cost too much, so that conditions would
// not hold that do, or inboxes that hold too much.
func fault(x *workgraph.Account, st *State) error {
	if err := x.Err(); err != nil {
		return fmt.Errorf("the conditions of a turn are %w: simplify the expressions of the team, or let them look at shorter texts", err)
	}
	n := 0
	for _, q := range st.Queues {
		n += len(q)
	}
	for i := range st.Speaking {
		n += len(st.Speaking[i].Took)
	}
	if n > maxQueued {
		return fmt.Errorf("the inboxes of the team hold %d messages of %d bytes, the limit is %d of %d: give its routes a smaller `batch_size`, or a `ttl`", n, n*queuedBytes, maxQueued, maxQueued*queuedBytes)
	}
	return nil
}

// adopt fits a state to the team, which may have changed since: what it says of others is dropped.
func (r *Rules) adopt(st *State) {
	stranger := func(name string) bool { return r.Member(name) == nil }
	st.Ready = slices.DeleteFunc(st.Ready, stranger)
	st.Speaking = slices.DeleteFunc(st.Speaking, func(s Speaker) bool { return stranger(s.Name) })
	maps.DeleteFunc(st.Queues, func(name string, _ []Queued) bool { return stranger(name) })
	maps.DeleteFunc(st.Missed, func(name string, _ []Span) bool { return stranger(name) })
	for key, parts := range st.Arrived {
		if st.Arrived[key] = slices.DeleteFunc(slices.Clone(parts), func(i int) bool { return !slices.Contains(r.groups[key].parts, i) }); len(st.Arrived[key]) == 0 {
			delete(st.Arrived, key)
		}
	}
	for key, v := range r.initial() {
		if _, ok := st.Values[key]; !ok {
			st.Values[key] = v
		}
	}
	maps.DeleteFunc(st.Values, func(key string, _ json.RawMessage) bool { _, ok := r.team.State[key]; return !ok })
	if stranger(st.Last) {
		st.Last = ""
	}
}

// again takes back those who spoke when the run broke off, and what they were told.
func (r *Rules) again(st *State) {
	names := make([]string, 0, len(st.Speaking)+len(st.Ready))
	for i := range st.Speaking {
		s := &st.Speaking[i]
		st.Heard[s.Name] = s.After
		if names = append(names, s.Name); len(s.Took) > 0 {
			st.Queues[s.Name] = slices.Concat(s.Took, st.Queues[s.Name])
		}
	}
	if st.Speaking = nil; !r.team.driven() {
		st.Ready = append(names, slices.DeleteFunc(st.Ready, func(name string) bool { return slices.Contains(names, name) })...)
	}
	if r.team.Choose != nil {
		st.Ready = nil // it is chosen again
	}
}

// Hear is what comes of the answers of those who spoke, in the order of the move. used is what the run
// has consumed so far, and external says that somebody asked the team to end.
func (r *Rules) Hear(ctx context.Context, spoke *State, answers []Message, used Used, external bool, now time.Time) (logged []Message, st *State, move Move, err error) {
	st, x := spoke.clone(), workgraph.NewAccount(ctx)
	answers = slices.Clone(answers)
	before := st.Last
	for i := range answers {
		m := &answers[i]
		if r.Member(m.From) == nil || !slices.ContainsFunc(st.Speaking, func(s Speaker) bool { return s.Name == m.From }) {
			return nil, nil, Move{}, notSpeaking(m.From)
		}
		if err := r.signaled(st, m); err != nil {
			return nil, nil, Move{}, err
		}
		r.log(st, m, now)
	}
	r.given(st, answers)
	var decided []workgraph.Routed
	for i := range answers {
		decided = append(decided, r.follow(x, st, &answers[i], before)...)
	}
	if len(st.Ready) > 0 || r.team.driven() || r.team.Choose != nil {
		st.Lost = "" // others go on
	}
	if len(answers) > 0 {
		st.Before, st.Last = before, answers[len(answers)-1].From
	}
	st.Speaking = nil
	st.Turns++
	w := &watch{st: st, delta: answers, used: used, now: now}
	if st.Over = r.stopped(x, w); st.Over == nil && external {
		st.Over = asked()
	}
	if st.Over != nil {
		return answers, st, Move{Over: st.Over}, fault(x, st)
	}
	move, err = r.next(x, st, now, last(answers))
	move.Pause, move.Routed = r.paused(st, move, w), r.routedTo(move.Speak, last(answers).From, decided)
	return answers, st, move, errors.Join(err, fault(x, st))
}

func notSpeaking(name string) error { return fmt.Errorf("%q does not speak now", clip(name)) }

// paused is the limit at which a team pauses after a turn; empty if it goes on.
func (r *Rules) paused(st *State, move Move, w *watch) string {
	if move.Over != nil {
		return ""
	}
	if most := r.maxTurns(); most > 0 && st.Turns >= most*(1+st.Raised["turns"]) {
		st.Raised["turns"]++
		w.pause = cmp.Or(w.pause, PauseTurns)
	}
	return w.pause
}

// asked is the end of a team that was asked to end.
func asked() *Stopped { return &Stopped{Reason: External, Text: "The team was asked to end."} }

// maxTurns is after how many turns the team pauses, 0 for never: where a limit ends it, that is enough.
func (r *Rules) maxTurns() int {
	if r.team.MaxTurns == 0 && r.team.Stop.limits() {
		return 0
	}
	return cmp.Or(r.team.MaxTurns, DefaultMaxTurns)
}

func last(list []Message) *Message {
	if len(list) == 0 {
		return &Message{}
	}
	return &list[len(list)-1]
}

// log gives a message its place in the log, and puts it into inboxes.
func (r *Rules) log(st *State, m *Message, now time.Time) {
	st.Seq++
	st.Messages++
	m.Seq, m.At = st.Seq, now
	if !r.team.driven() {
		return
	}
	for i := range r.team.Members {
		to := &r.team.Members[i]
		if r.hears(to.Name, m.From) {
			st.Queues[to.Name] = append(st.Queues[to.Name], Queued{Seq: m.Seq, At: now, Known: slices.Contains(r.siblings[to.ThreadName()], m.From)})
		}
	}
}

// Bounds of inboxes, so that the state of a team has room in its thread: maxQueued messages wait in all
// of them, each of which takes queuedBytes at most. Those for which inboxes wait before they call
// somebody are maxWaiting, so that there is room for what is said at once.
const maxQueued, queuedBytes, maxWaiting = 10_000, 100, 8_000

// signaled makes of the signals of a member what they mean: a handoff, updates of the state, or words.
// Of several the last one counts.
func (r *Rules) signaled(st *State, m *Message) error {
	st.Lost = ""
	for _, call := range m.Signals {
		s, ok := r.Member(m.From).Signals[call.Name]
		if !ok {
			return fmt.Errorf("%q has no signal %q", m.From, clip(call.Name))
		}
		to, asked := s.Ask.whom(call.Arguments)
		if asked && to == "" {
			// The schema of the signal lets no agent say so.
			m.Text = strings.TrimSpace(m.Text + "\n(Nobody is asked: there is no such agent.)")
		}
		m.To, m.Text = cmp.Or(s.Handoff, to, m.To), cmp.Or(m.Text, filled(s.Say, call.Arguments))
		for _, key := range slices.Sorted(maps.Keys(s.Set)) {
			// What a model gives may not fit; the team goes on, and everybody is told.
			if err := r.set(st, key, filledValue(s.Set[key], call.Arguments)); err != nil {
				m.Text = strings.TrimSpace(m.Text + "\n(Not set: " + err.Error() + ".)")
			}
		}
	}
	of := r.Member(m.From)
	for _, key := range slices.Sorted(maps.Keys(of.Sets)) {
		if err := r.set(st, key, of.Sets[key]); err != nil {
			return err
		}
	}
	if m.To != "" && m.To != AnyOne && r.Member(m.To) == nil {
		st.Lost = m.To
	}
	return nil
}

// Set updates a key of the team's state, by its reducer.
func (r *Rules) set(st *State, key string, update json.RawMessage) error {
	k, ok := r.team.State[key]
	if !ok {
		return fmt.Errorf("the state has no key %q", clip(key))
	}
	v, err := k.Combine(st.Values[key], update)
	if err != nil {
		return fmt.Errorf("the key %q of the state: %w", key, err)
	}
	size := len(v)
	for other, value := range st.Values {
		if other != key {
			size += len(value)
		}
	}
	if size > MaxState {
		return fmt.Errorf("the state would have %d bytes, the limit is %d: keep large values outside and set references", size, MaxState)
	}
	st.Values[key] = v
	return nil
}

// follow finds those who speak after a speaker, and says how it was decided that they do.
func (r *Rules) follow(x *workgraph.Account, st *State, m *Message, before string) (out []workgraph.Routed) {
	// Nobody else goes on in the place of a stranger.
	held := m.To != "" && m.To != AnyOne && r.Member(m.To) == nil
	var otherwise []int
	for _, i := range r.out[m.From] {
		switch e := &r.team.Transitions[i]; {
		case e.When == nil:
			r.arrive(st, i, before)
		case e.When.Else:
			otherwise = append(otherwise, i)
		case r.holds(x, st, e.When, m):
			held = true
			out = decision(out, m, e.When, r.arrive(st, i, before))
		}
	}
	if !held {
		for _, i := range otherwise {
			out = append(out, workgraph.Routed{From: m.From, To: r.arrive(st, i, before), How: workgraph.RoutedElse})
		}
	}
	return out
}

// arrive notes that a transition was taken, and gives its target, which is ready if it waits for no
// other one. Empty is nobody.
func (r *Rules) arrive(st *State, i int, before string) string {
	to := r.team.Transitions[i].To
	if to == Previous {
		if to = before; to == "" {
			return ""
		}
	} else if key := r.groupOf(i); !r.groups[key].any {
		if !slices.Contains(st.Arrived[key], i) {
			st.Arrived[key] = append(slices.Clone(st.Arrived[key]), i)
		}
		if len(st.Arrived[key]) < len(r.groups[key].parts) {
			return to
		}
		delete(st.Arrived, key)
	}
	if !slices.Contains(st.Ready, to) {
		st.Ready = append(st.Ready, to)
	}
	return to
}

// bytesOfUnit is how long a text may be that is searched for the cost of one unit of an expression.
const bytesOfUnit = 64

// has reports whether a text has a part. The search is charged before it is done.
func has(x *workgraph.Account, s, part string) bool {
	return x.Charge(1+uint64(len(s)/bytesOfUnit)) && strings.Contains(s, part)
}

// holds reports whether a condition holds for a message.
func (r *Rules) holds(x *workgraph.Account, st *State, w *When, m *Message) bool {
	switch {
	case w.Not != nil:
		return !r.holds(x, st, w.Not, m)
	case w.Text != "":
		return has(x, m.Text, w.Text)
	case w.Handoff != "":
		return m.To != "" && (w.Handoff == AnyOne || w.Handoff == m.To)
	case w.Expr != "":
		return r.truth(x, st, w.Expr, m, Used{})
	}
	one := func(w When) bool { return r.holds(x, st, &w, m) }
	if len(w.Any) > 0 {
		return slices.ContainsFunc(w.Any, one)
	}
	return len(w.All) > 0 && !slices.ContainsFunc(w.All, func(w When) bool { return !one(w) })
}

// eval evaluates an expression over a message and the state of the team.
func (r *Rules) eval(x *workgraph.Account, st *State, src string, m *Message, used Used) (json.RawMessage, error) {
	return r.exprs[src].EvalOn(x, func(name string) (json.RawMessage, bool) {
		var v any
		switch name {
		case "result":
			v = said(m)
		case "state":
			v = st.Values
		case "named":
			v = map[string]any{"turns": st.Turns, "messages": st.Messages, "tokens": used.Tokens, "nano_usd": used.NanoUSD}
		default:
			return nil, false
		}
		raw, err := json.Marshal(v)
		return raw, err == nil
	})
}

// said is a message as expressions see it: every field is there.
func said(m *Message) map[string]any {
	null := json.RawMessage("null")
	var call Call
	if n := len(m.Signals); n > 0 {
		call = m.Signals[n-1]
	}
	out := map[string]any{"from": m.From, "text": m.Text, "to": m.To, "signal": call.Name, "arguments": call.Arguments, "data": m.Data, "calls": append([]string{}, m.Calls...)}
	for _, key := range []string{"arguments", "data"} {
		if raw, ok := out[key].(json.RawMessage); ok && len(raw) == 0 {
			out[key] = null
		}
	}
	return out
}

// truth is the value of a condition. One that cannot be evaluated does not hold: what members say must
// not break the team.
func (r *Rules) truth(x *workgraph.Account, st *State, src string, m *Message, used Used) bool {
	raw, err := r.eval(x, st, src, m, used)
	var ok bool
	return err == nil && json.Unmarshal(raw, &ok) == nil && ok
}

// next is the move that follows, with those who speak taken off what is ready.
func (r *Rules) next(x *workgraph.Account, st *State, now time.Time, m *Message) (Move, error) {
	switch {
	case r.team.Choose != nil:
		return r.choice(x, st, m)
	case r.team.driven():
		return r.woken(st, now), nil
	}
	if len(st.Ready) == 0 {
		r.flush(st)
	}
	return r.called(st, st.Ready), nil
}

// flush calls those who wait for transitions that cannot come any more, since nobody else speaks. Of
// those of whom one leads to the other, the first one is called.
func (r *Rules) flush(st *State) {
	var waiting []string
	for i := range r.team.Transitions {
		if to := r.team.Transitions[i].To; len(st.Arrived[r.groupOf(i)]) > 0 && !slices.Contains(waiting, to) {
			waiting = append(waiting, to)
		}
	}
	for _, to := range waiting {
		later := slices.ContainsFunc(waiting, func(from string) bool { return from != to && r.leads(from, to) && !r.leads(to, from) })
		if later {
			continue
		}
		st.Ready = append(st.Ready, to)
		for i := range r.team.Transitions {
			if r.team.Transitions[i].To == to {
				delete(st.Arrived, r.groupOf(i))
			}
		}
	}
}

// leads reports whether transitions lead from a member to another one.
func (r *Rules) leads(from, to string) bool {
	seen := map[string]bool{}
	todo := []string{from}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		if todo = todo[:len(todo)-1]; seen[at] {
			continue
		}
		seen[at] = true
		for _, i := range r.out[at] {
			next := r.team.Transitions[i].To
			if next == to {
				return true
			}
			todo = append(todo, next)
		}
	}
	return false
}

// called is the move in which those speak who are ready. Of those who share a thread one speaks at a
// time.
func (r *Rules) called(st *State, names []string) Move {
	busy := map[string]bool{}
	st.Ready = nil
	for _, name := range names {
		if key := r.Member(name).ThreadName(); busy[key] {
			st.Ready = append(st.Ready, name)
			continue
		} else {
			busy[key] = true
		}
		st.Speaking = append(st.Speaking, Speaker{Name: name, After: st.Heard[name], Last: st.Seq})
	}
	return r.move(st)
}

// move is the move of those who speak now.
func (r *Rules) move(st *State) Move {
	if len(st.Speaking) == 0 {
		st.Over = &Stopped{Reason: Complete, Text: "Nobody is left to speak."}
		return Move{Over: st.Over}
	}
	var m Move
	for i := range st.Speaking {
		s := &st.Speaking[i]
		st.Heard[s.Name] = s.Last
		m.Speak = append(m.Speak, s.Name)
	}
	return m
}

// woken is the move in which those speak whose inboxes are full. Where none is, those speak that have
// any message.
func (r *Rules) woken(st *State, now time.Time) Move {
	busy := map[string]bool{}
	wake := func(least func(*Member) int) {
		for i := range r.team.Members {
			to := &r.team.Members[i]
			q := r.fresh(st, to.Name, now)
			if n := calling(q); n == 0 || n < least(to) || busy[to.ThreadName()] {
				continue
			}
			busy[to.ThreadName()] = true
			st.Speaking = append(st.Speaking, Speaker{Name: to.Name, After: st.Heard[to.Name], Last: st.Seq, Took: slices.Clone(q)})
			delete(st.Queues, to.Name)
		}
	}
	if wake(r.batch); len(st.Speaking) == 0 {
		wake(func(*Member) int { return 1 })
	}
	return r.move(st)
}

// calling is how many messages of an inbox call its member.
func calling(q []Queued) (n int) {
	for i := range q {
		if !q[i].Past {
			n++
		}
	}
	return n
}

// batch is how many messages call a member.
func (r *Rules) batch(m *Member) int {
	if routes := r.routed[m.Name]; len(routes) > 0 {
		return max(1, routes[0].BatchSize)
	}
	return 1
}

// fresh is the inbox of a member without the messages whose time is over.
func (r *Rules) fresh(st *State, name string, now time.Time) []Queued {
	q := st.Queues[name]
	ttl := r.ttl(name)
	for ttl > 0 && len(q) > 0 && now.Sub(q[0].At) >= ttl {
		q = q[1:]
	}
	st.Queues[name] = q
	return q
}

func (r *Rules) ttl(name string) time.Duration {
	if routes := r.routed[name]; len(routes) > 0 {
		return time.Duration(routes[0].TTL)
	}
	return 0
}

// From is the last message before those that the speakers of the state hear: what is after it is to be
// read.
func (st *State) From() int64 {
	from := st.Seq
	for i := range st.Speaking {
		s := &st.Speaking[i]
		if from = min(from, s.After); len(s.Took) > 0 {
			from = min(from, s.Took[0].Seq-1)
		}
	}
	return from
}

// heard are those of some messages that the member hears.
func (m *Member) heard(list []Message) []Message {
	if m.Hears == nil {
		return list
	}
	var out []Message
	of := map[string]int{} // how many there are of each
	for i := range list {
		of[list[i].From]++
	}
	at := map[string]int{}
	for i := range list {
		from := list[i].From
		k := slices.IndexFunc(m.Hears, func(h Hearing) bool { return h.From == from })
		if at[from]++; k >= 0 && m.Hears[k].takes(at[from], of[from]) {
			out = append(out, list[i])
		}
	}
	return out
}

// takes reports whether the message is heard that is the nth of so many.
func (h *Hearing) takes(n, of int) bool {
	switch {
	case h.First > 0:
		return n <= h.First
	case h.Last > 0:
		return n > of-h.Last
	}
	return true
}

// Task is what a speaker is told in place of what it hears, and notes in it that it does not hear that. ok
// is false if that is what it hears.
func (r *Rules) Task(x *workgraph.Account, st *State, s *Speaker, inbox []Message) (text string, ok bool, err error) {
	m := r.Member(s.Name)
	if m == nil || m.Task == "" {
		return "", false, nil
	}
	raw, err := r.eval(x, st, m.Task, last(inbox), Used{})
	if err != nil {
		return "", false, fmt.Errorf("the task of %q: %w", s.Name, err)
	}
	if json.Unmarshal(raw, &text) != nil {
		return "", false, fmt.Errorf("the task of %q is no text: %s", s.Name, clip(string(raw)))
	}
	r.misses(s, s.Last)
	return text, true, nil
}
