package team

import (
	"slices"
	"time"
)

// This file says what a speaker hears, and what is in a thread that several share: each message once.

// Inbox is what a speaker hears, in order, out of the log. What is in its thread already is left out. cut
// says that the log begins later than what the speaker is to hear. What it is to hear and is not given is
// noted in the speaker: call it on one of the state that goes to Hear.
func (r *Rules) Inbox(st *State, s *Speaker, log []Message, cut bool, now time.Time) []Message {
	m, ttl := r.Member(s.Name), r.ttl(s.Name)
	s.Missed = 0
	if cut && len(log) > 0 {
		r.misses(s, log[0].Seq-1)
	}
	old := int64(0) // no message up to this one is heard: its time is over
	for i := range log {
		if ttl > 0 && !r.team.driven() && log[i].Seq <= s.Last && now.Sub(log[i].At) >= ttl {
			old = log[i].Seq
		}
	}
	r.misses(s, old)
	var out []Message
	for i := range log {
		one := &log[i]
		switch {
		case r.team.driven():
			if !slices.ContainsFunc(s.Took, func(q Queued) bool { return q.Seq == one.Seq && !q.Known }) {
				continue
			}
		case one.Seq <= max(s.After, old) || one.Seq > s.Last || !r.hears(s.Name, one.From) || r.known(st, m, one):
			continue
		}
		out = append(out, *one)
	}
	return m.heard(out)
}

// misses notes that a speaker is not given the messages up to one, for those who share its thread.
func (r *Rules) misses(s *Speaker, upTo int64) {
	if len(r.siblings[r.Member(s.Name).ThreadName()]) > 1 {
		s.Missed = max(s.Missed, upTo)
	}
}

// known reports whether a message is in the thread of a member by somebody who shares it.
func (r *Rules) known(st *State, m *Member, one *Message) bool {
	return slices.ContainsFunc(r.siblings[m.ThreadName()], func(name string) bool {
		if name == m.Name || name == one.From {
			return name != m.Name
		}
		missed := slices.ContainsFunc(st.Missed[name], func(p Span) bool { return p.After < one.Seq && one.Seq <= p.Last })
		return st.Heard[name] >= one.Seq && !missed && r.hears(name, one.From)
	})
}

// given notes what is in the threads of those who have answered, for those who share them. Of what is told
// in a turn that breaks off nothing is in the thread, so that nothing is noted before.
func (r *Rules) given(st *State, answers []Message) {
	for i := range st.Speaking {
		s := &st.Speaking[i]
		m := r.Member(s.Name)
		if m == nil || len(r.siblings[m.ThreadName()]) < 2 || !slices.ContainsFunc(answers, func(a Message) bool { return a.From == s.Name }) {
			continue
		}
		if r.team.driven() {
			r.shared(st, m, s)
			continue
		}
		if s.Missed > s.After {
			st.Missed[s.Name] = joined(st.Missed[s.Name], Span{s.After, min(s.Missed, s.Last)})
		}
		r.forget(st, m.ThreadName())
	}
}

// shared notes that messages are in the thread of a member, for those who work there as well.
func (r *Rules) shared(st *State, m *Member, s *Speaker) {
	for _, name := range r.siblings[m.ThreadName()] {
		if name == m.Name {
			continue
		}
		for i := range st.Queues[name] {
			q := &st.Queues[name][i]
			q.Known = q.Known || q.Seq > s.Missed && slices.ContainsFunc(s.Took, func(t Queued) bool { return t.Seq == q.Seq })
		}
	}
}

// maxMissed bounds the spans that are kept of a member. Of more the oldest become one, so that those who
// share its thread may hear a message again, and lose none.
const maxMissed = 64

// joined are spans with a later one. The given ones are not changed.
func joined(list []Span, p Span) []Span {
	list = slices.Clone(list)
	if n := len(list); n > 0 && list[n-1].Last >= p.After {
		list[n-1].Last = max(list[n-1].Last, p.Last)
		return list
	}
	if list = append(list, p); len(list) > maxMissed {
		list[1].After = list[0].After
		list = list[1:]
	}
	return list
}

// forget drops what all have been called since who share a thread.
func (r *Rules) forget(st *State, thread string) {
	names := r.siblings[thread]
	for _, name := range names {
		since := int64(-1)
		for _, other := range names {
			if heard := st.Heard[other]; other != name && (since < 0 || heard < since) {
				since = heard
			}
		}
		list := slices.DeleteFunc(slices.Clone(st.Missed[name]), func(p Span) bool { return p.Last <= since })
		if st.Missed[name] = list; len(list) == 0 {
			delete(st.Missed, name)
		}
	}
}
