package response

import (
	"encoding/json"
	"fmt"
)

// Signal is a call that ends the agent's turn, in place of an action.
type Signal struct {
	Name string `json:"name"`
	// Arguments is never nil.
	Arguments map[string]json.RawMessage `json:"arguments"`
}

// MaxSignals bounds the signals of one message.
const MaxSignals = 100

// TakeSignals takes the calls that are signals out of the groups, after those that TakeTaskCalls takes. Of a
// call of that name, signal says whether it is one, and what the model is told then; an error is told to the
// model, and the call ends nothing.
func (r *Response) TakeSignals(signal func(name string, arguments map[string]json.RawMessage) (answer string, is bool, err error)) {
	if !r.Calls || len(r.Groups) == 0 {
		return
	}
	var rest []Action
	for i := range r.Groups[0] {
		a := &r.Groups[0][i]
		answer, is, err := signal(a.Type, a.Arguments)
		if !is {
			rest = append(rest, *a)
			continue
		}
		if err == nil && len(r.Signals) == MaxSignals {
			err = fmt.Errorf("there are more than %d signals in one message", MaxSignals)
		}
		c := TaskCall{Call: a.Call, Index: a.index}
		if err != nil {
			c.Answer, c.Failed = err.Error(), true
		} else {
			c.Answer, c.Signal = answer, true
			r.Signals = append(r.Signals, Signal{a.Type, a.Arguments})
		}
		r.TaskCalls = append(r.TaskCalls, c)
	}
	if r.Groups[0] = rest; len(rest) == 0 {
		r.Groups = nil
	}
}
