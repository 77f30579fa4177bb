package team

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// Turned is what comes of a turn in which the user asked for something else in place of an answer. The
// answers are those of the turn, with that of the member whose question it was, and none while a model
// chooses who speaks; requests are what the user wants. The team goes on with them as with a new task:
// those begin who hear the input.
func (r *Rules) Turned(ctx context.Context, spoke *State, answers []Message, requests []string, used Used, external bool, now time.Time) (logged []Message, st *State, move Move, err error) {
	st, x := spoke.clone(), workgraph.NewAccount(ctx)
	logged = slices.Clone(answers)
	before := st.Last
	for i := range logged {
		m := &logged[i]
		if !slices.ContainsFunc(st.Speaking, func(s Speaker) bool { return s.Name == m.From }) {
			return nil, nil, Move{}, notSpeaking(m.From)
		}
		if err := r.signaled(st, m); err != nil {
			return nil, nil, Move{}, err
		}
		r.log(st, m, now)
	}
	if len(logged) > 0 {
		st.Before, st.Last = before, logged[len(logged)-1].From
	}
	r.given(st, answers)
	r.anew(st)
	for _, text := range requests {
		m := Message{From: Input, Text: text}
		r.log(st, &m, now)
		logged = append(logged, m)
	}
	st.Turns++
	w := &watch{st: st, delta: logged, used: used, now: now}
	if st.Over = r.stopped(x, w); st.Over == nil && external {
		st.Over = asked()
	}
	if st.Over != nil {
		return logged, st, Move{Over: st.Over}, fault(x, st)
	}
	move, err = r.next(x, st, now, last(logged))
	move.Pause, move.Routed = r.paused(st, move, w), r.routedTo(move.Speak, last(logged).From, nil)
	return logged, st, move, errors.Join(err, fault(x, st))
}
