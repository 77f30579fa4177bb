package starlark

import (
	"fmt"
	"math"
	"sync/atomic"

	star "go.starlark.net/starlark"
)

// What operations cost. Sizes are those of a 64-bit machine, rounded up.
const (
	// nodesPerStep and bytesPerStep are how much of their operands operations go through for one step.
	nodesPerStep = 8
	bytesPerStep = 256
	// sizeSlot is one place in a list or tuple, sizeEntry an entry of a dict or set, sizeTable an empty one.
	sizeSlot  = 16
	sizeEntry = 112
	sizeTable = 512
	// sizeElement is a place in a list that grows.
	sizeElement = 2 * sizeSlot
	// maxIntBits bounds integers: arithmetic with them costs more than their length.
	maxIntBits = 1 << 16
	// maxDepth bounds how deeply values are nested where they are walked, and maxCalls how deeply functions
	// call each other.
	maxDepth = 1000
	maxCalls = 100
	// smallCall is the memory that a script may use without asking for room.
	smallCall = 1 << 20
	// armed is after how many steps the depth of calls is looked at again.
	armed = 64
)

// stop is the error that ends a script whatever it does: it used up what it may.
type stop struct{ reason, message string }

// Error says what was used up.
func (s *stop) Error() string { return s.message }

// meter counts what one script uses. It belongs to the goroutine of the script.
type meter struct {
	// ended is why the call was ended, nil as long as it was not.
	ended    func() error
	thread   *star.Thread
	maxSteps uint64
	// most is how many bytes the values of the script may have together, used what those made so far have.
	most, used int64
	// nodes and bytes were gone through and not counted as steps yet.
	nodes, bytes int64
	// room waits for memory once, before more than smallCall is used.
	room  func(bytes int64) error
	asked bool
	// over is why the script was ended between two operations.
	over atomic.Pointer[stop]
}

// arm has the thread stop at the limit of steps, and look at the depth of calls now and then.
func (m *meter) arm() {
	m.thread.OnMaxSteps = func(t *star.Thread) {
		switch {
		case t.Steps >= m.maxSteps:
			m.end(m.tooManySteps())
		case t.CallStackDepth() > maxCalls:
			m.end(&stop{ReasonFailed, fmt.Sprintf("functions call each other deeper than %d", maxCalls)})
		default:
			t.SetMaxExecutionSteps(min(m.maxSteps, t.Steps+armed))
		}
	}
	m.thread.SetMaxExecutionSteps(min(m.maxSteps, armed))
}

func (m *meter) end(s *stop) {
	m.over.CompareAndSwap(nil, s)
	m.thread.Cancel(s.message)
}

func (m *meter) tooManySteps() *stop {
	return &stop{ReasonSteps, fmt.Sprintf("the script takes more than %d steps", m.maxSteps)}
}

// work counts an operation that goes through so much of its operands. It is called before.
func (m *meter) work(nodes, bytes int64) error {
	if err := m.ended(); err != nil {
		return err
	}
	m.nodes, m.bytes = m.nodes+nodes, m.bytes+bytes
	n := uint64(m.nodes/nodesPerStep + m.bytes/bytesPerStep)
	m.nodes, m.bytes = m.nodes%nodesPerStep, m.bytes%bytesPerStep
	if n > m.maxSteps || m.thread.Steps+n > m.maxSteps {
		return m.tooManySteps()
	}
	m.thread.Steps += n
	return nil
}

// fits says whether a value of so many bytes may be made.
func (m *meter) fits(bytes int64) error {
	if bytes > m.most-m.used {
		return &stop{ReasonMemory, fmt.Sprintf("the values that the script makes have more than %d bytes together", m.most)}
	}
	if m.used+bytes > smallCall && !m.asked {
		m.asked = true
		if err := m.room(m.most); err != nil {
			return err
		}
	}
	return nil
}

// made counts a value that is about to be made or was just made.
func (m *meter) made(bytes int64) error {
	if err := m.fits(bytes); err != nil {
		return err
	}
	m.used += bytes
	return nil
}

// times is a*b, at most the largest number.
func times(a, b int64) int64 {
	if a > 0 && b > math.MaxInt64/a {
		return math.MaxInt64
	}
	return a * b
}

// extent is how much of a value hashing, comparing or printing goes through. What is shared counts as often
// as it is reached.
type extent struct {
	nodes int64
	// bytes are those of the texts and numbers.
	bytes int64
}

// printed is a bound of the length of the text of a value.
func (e extent) printed() int64 { return times(4, e.bytes) + times(24, e.nodes) }

// walk measures values and counts that as work. It ends as soon as the steps are used up.
func (m *meter) walk(values ...star.Value) (extent, error) {
	w := walker{m: m, left: int64(min(m.maxSteps-min(m.maxSteps, m.thread.Steps), math.MaxInt64/nodesPerStep)) * nodesPerStep}
	for _, v := range values {
		if err := w.add(v, maxDepth); err != nil {
			return w.extent, err
		}
	}
	return w.extent, m.work(w.nodes, w.bytes)
}

// walker measures values.
type walker struct {
	extent
	m *meter
	// left is how many nodes there may be.
	left int64
}

func (w *walker) add(v star.Value, depth int) error {
	w.nodes++
	switch {
	case w.nodes > w.left:
		return w.m.tooManySteps()
	case depth == 0:
		return fmt.Errorf("a value is nested deeper than %d", maxDepth)
	case w.nodes%(1<<16) == 0:
		if err := w.m.ended(); err != nil {
			return err
		}
	}
	switch v := v.(type) {
	case star.String:
		w.bytes += int64(len(v))
	case star.Bytes:
		w.bytes += int64(len(v))
	case star.Int:
		w.bytes += intBytes(v)
	case star.Tuple:
		for _, x := range v {
			if err := w.add(x, depth-1); err != nil {
				return err
			}
		}
	case *star.List:
		for i := range v.Len() {
			if err := w.add(v.Index(i), depth-1); err != nil {
				return err
			}
		}
	case *star.Dict:
		for k, x := range v.Entries() {
			if err := w.add(k, depth-1); err != nil {
				return err
			}
			if err := w.add(x, depth-1); err != nil {
				return err
			}
		}
	case *star.Set:
		for x := range v.Elements() {
			if err := w.add(x, depth-1); err != nil {
				return err
			}
		}
	}
	return nil
}

// intBytes is a bound of an integer's digits.
func intBytes(v star.Int) int64 {
	if _, small := v.Int64(); small {
		return 20
	}
	return int64(v.BigInt().BitLen())/3 + 2
}

// bitLen is the length of an integer.
func bitLen(v star.Int) int64 {
	if n, small := v.Int64(); small {
		if n > -1<<31 && n < 1<<31 {
			return 32
		}
		return 64
	}
	return int64(v.BigInt().BitLen())
}

// gathered is an iterable as one whose length is that of a value in memory: a range has a length of its own.
func (m *meter) gathered(v star.Value) (star.Value, int64, error) {
	switch x := v.(type) {
	case star.Tuple, *star.List, *star.Dict, *star.Set:
		return v, int64(star.Len(x)), nil
	case star.Iterable:
		n := star.Len(x)
		if n < 0 { // a view of a text in memory
			n = 0
			for range star.Elements(x) {
				n++
			}
		}
		if err := m.work(int64(n), 0); err != nil {
			return nil, 0, err
		}
		if err := m.made(times(int64(n), 2*sizeSlot)); err != nil {
			return nil, 0, err
		}
		out := make([]star.Value, 0, n)
		for e := range star.Elements(x) {
			out = append(out, e)
		}
		return star.NewList(out), int64(n), nil
	}
	return v, 0, nil
}
