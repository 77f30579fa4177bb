package workgraph

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// stateVar is one key of a run's state. Lists are kept split, so that the cost of appending depends on the
// new elements only.
type stateVar struct {
	reducer Reducer
	scalar  json.RawMessage
	list    []json.RawMessage
	byID    map[string]int
	// sum is the digest of scalar, once computed. chain is that of the first summed elements of list.
	sum    string
	summed int
	chain  [sha256.Size]byte
}

func newStateVar(k StateKey) (*stateVar, error) {
	v := &stateVar{reducer: k.Reducer, byID: nil}
	switch k.Reducer {
	case Append, AppendByID:
		v.byID = map[string]int{}
		if len(k.Initial) == 0 {
			return v, nil
		}
		if _, ok := splitList(k.Initial); !ok {
			return nil, errors.New("the initial value is no list")
		}
		if err := v.check(k.Initial); err != nil {
			return nil, err
		}
		v.update(k.Initial)
	case Add:
		v.scalar = rawZero
		if len(k.Initial) > 0 {
			if err := v.check(k.Initial); err != nil {
				return nil, err
			}
			v.scalar = k.Initial
		}
	default:
		v.scalar = rawNull
		if len(k.Initial) > 0 {
			if fault := ValueFault(k.Initial); fault != "" {
				return nil, errors.New("the initial value " + fault)
			}
			v.scalar = k.Initial
		}
	}
	return v, nil
}

// Combine is the value of the key after an update, by its reducer. An absent value stands for the
// initial one. The cost is that of the whole value: a run itself adds to its lists without copying
// them.
func (k StateKey) Combine(value, update json.RawMessage) (json.RawMessage, error) {
	if len(value) > 0 {
		k.Initial = value
	}
	v, err := newStateVar(k)
	if err != nil {
		return nil, err
	}
	if len(update) > 0 {
		if err := v.check(update); err != nil {
			return nil, err
		}
		v.update(update)
	}
	return v.value(), nil
}

// check is an error if update cannot take the value.
func (v *stateVar) check(raw json.RawMessage) error {
	if fault := ValueFault(raw); fault != "" {
		return errors.New("the update " + fault)
	}
	switch v.reducer {
	case Add:
		if _, _, ok := number(raw); !ok {
			return fmt.Errorf("ADD needs a number, not %.40s", raw)
		}
	case AppendByID:
		for _, el := range elements(raw) {
			if _, ok := elementID(el); !ok {
				return fmt.Errorf("APPEND_BY_ID needs objects with a text \"id\", not %.40s", el)
			}
		}
	}
	return nil
}

// update combines a checked value with the current one.
func (v *stateVar) update(raw json.RawMessage) {
	v.sum = ""
	switch v.reducer {
	case Append:
		v.list = append(v.list, elements(raw)...)
	case AppendByID:
		for _, el := range elements(raw) {
			id, _ := elementID(el)
			if at, ok := v.byID[id]; ok {
				v.list[at] = el
				if at < v.summed {
					v.summed, v.chain = 0, [sha256.Size]byte{}
				}
				continue
			}
			v.byID[id] = len(v.list)
			v.list = append(v.list, el)
		}
	case Add:
		v.scalar = addNumbers(v.scalar, raw)
	default:
		v.scalar = raw
	}
}

func (v *stateVar) value() json.RawMessage {
	if v.reducer == Append || v.reducer == AppendByID {
		return joinList(v.list)
	}
	return v.scalar
}

func elements(raw json.RawMessage) []json.RawMessage {
	if list, ok := splitList(raw); ok {
		return list
	}
	return []json.RawMessage{raw}
}

func elementID(raw json.RawMessage) (string, bool) {
	var el struct {
		ID *string `json:"id"`
	}
	if json.Unmarshal(raw, &el) != nil || el.ID == nil {
		return "", false
	}
	return *el.ID, true
}

// number reads a JSON number. Integers are exact and in i, others in f.
func number(raw json.RawMessage) (i *big.Int, f float64, ok bool) {
	s := strings.TrimSpace(string(raw))
	if s == "" || s[0] != '-' && (s[0] < '0' || s[0] > '9') {
		return nil, 0, false
	}
	if !strings.ContainsAny(s, ".eE") {
		i, ok = new(big.Int).SetString(s, 10)
		return i, 0, ok
	}
	return nil, f, json.Unmarshal(raw, &f) == nil
}

// addNumbers adds exactly if both are integers.
func addNumbers(a, b json.RawMessage) json.RawMessage {
	ai, _, _ := number(a)
	bi, _, _ := number(b)
	if ai != nil && bi != nil {
		return json.RawMessage(ai.Add(ai, bi).String())
	}
	var x, y float64
	_ = json.Unmarshal(a, &x) // both were checked to be numbers
	_ = json.Unmarshal(b, &y)
	sum, err := appendFloat(nil, x+y)
	if err != nil {
		return rawNull // the sum of two finite doubles overflowed
	}
	return sum
}
