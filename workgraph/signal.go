package workgraph

import (
	"encoding/json"
	"fmt"
)

// Bounds of the signals that a run keeps while no visit waits for them.
const (
	MaxSignals     = 10_000
	MaxSignalBytes = 4 << 20
)

// listener is a unit that waits for a signal. It is void once the unit waits for something else.
type listener struct {
	unit
	w *waitState
}

func (l listener) valid() bool { return l.try().wait == l.w }

// listening drops void listeners and reports whether some unit waits for the name.
func (s *State) listening(name string) bool {
	ls := s.listeners[name]
	for len(ls) > 0 && !ls[0].valid() {
		ls = ls[1:]
	}
	if len(ls) == 0 {
		delete(s.listeners, name)
		return false
	}
	s.listeners[name] = ls
	return true
}

// RoomForSignal reports whether a signal with this name and a payload of size bytes would be accepted: a
// visit waits for it, or there is room to keep it.
func (s *State) RoomForSignal(name string, size int) bool {
	return s.listening(name) || s.signalCount < MaxSignals && s.signalBytes+len(name)+size <= MaxSignalBytes
}

func (s *State) signaled(c Signaled) error {
	payload := c.Payload
	if len(payload) == 0 {
		payload = rawNull
	}
	switch {
	case s.drain != "":
		return fmt.Errorf("%w: the run is ending", ErrState)
	case c.Name == "" || len(c.Name) > maxSignalName:
		return fmt.Errorf("%w: the signal's name has %d bytes, 1 to %d are allowed", ErrState, len(c.Name), maxSignalName)
	case !validJSON(payload):
		return fmt.Errorf("%w: the signal's payload is not JSON", ErrState)
	}
	heard := s.listening(c.Name)
	if !s.RoomForSignal(c.Name, len(payload)) {
		return fmt.Errorf("%w: %d signals of %d bytes wait to be taken; a run keeps %d and %d bytes", ErrState, s.signalCount, s.signalBytes,
			MaxSignals, MaxSignalBytes)
	}
	now := instant(c.Now)
	ev := s.openEvent(SignalReceived, now)
	ev.Signal, ev.Payload = c.Name, payload
	s.applySignal(c.Name, payload)
	if heard {
		u := s.listeners[c.Name][0].unit
		o := u.try().wait.out
		s.waited(u, o, []json.RawMessage{s.takeSignal(u)}, now)
	}
	s.conclude(now)
	return nil
}

// takeSignal records that the unit's wait has got its signal, and returns the payload.
func (s *State) takeSignal(u unit) json.RawMessage {
	first := s.signals[u.try().wait.out.Wait.Signal.Name][0]
	s.endWait(u)
	return first
}

// applySignal keeps a signal.
func (s *State) applySignal(name string, payload json.RawMessage) {
	if s.signals == nil {
		s.signals = map[string][]json.RawMessage{}
	}
	s.signals[name] = append(s.signals[name], payload)
	s.signalCount++
	s.signalBytes += len(name) + len(payload)
}

// dropSignal removes the oldest signal of a name.
func (s *State) dropSignal(name string) {
	list := s.signals[name]
	if len(list) == 0 {
		return
	}
	s.signalCount--
	s.signalBytes -= len(name) + len(list[0])
	list[0] = nil
	if list = list[1:]; len(list) == 0 {
		delete(s.signals, name)
		return
	}
	s.signals[name] = list
}
