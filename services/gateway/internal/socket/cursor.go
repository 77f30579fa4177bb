package socket

import (
	"slices"
	"strconv"
	"strings"
)

// A cursor is a position as clients know it. That of the feed is a sequence. That of a run is its
// sequence, and behind it ;ID:SEQUENCE for each descendant of which events were told, in the order of
// their ids. At most maxNamed of them are named, since messages of clients are bounded; then the cursor
// ends with a plus sign, and whoever goes on from it is told the events of the others again.
const maxNamed, notNamed = 100, "+"

// maxRunID bounds the ids of descendants in cursors, in bytes.
const maxRunID = 64

// parseCursor is the position of a cursor of a run, or of the feed if run is empty.
func parseCursor(run, text string) (at position, ok bool) {
	first, rest, more := strings.Cut(text, ";")
	n, err := strconv.ParseInt(first, 10, 64)
	if err != nil || n < 0 {
		return nil, false
	}
	at = position{run: n}
	for more {
		var name string
		name, rest, more = strings.Cut(rest, ";")
		if name == notNamed && !more {
			break
		}
		id, seq, _ := strings.Cut(name, ":")
		n, err := strconv.ParseInt(seq, 10, 64)
		if _, twice := at[id]; run == "" || id == "" || len(id) > maxRunID || err != nil || n <= 0 || twice || len(at) > maxNamed {
			return nil, false
		}
		at[id] = n
	}
	return at, true
}

// trail is the position of a reader of a run, and its cursor.
type trail struct {
	run string
	at  position
	// named are the descendants in the cursor, sorted.
	named []string
	text  string
}

func newTrail(run string, at position) *trail {
	t := &trail{run: run, at: at.clone()}
	for id := range t.at {
		t.name(id)
	}
	t.write()
	return t
}

// name adds a descendant to those that are named, if it is one of the first.
func (t *trail) name(id string) {
	if id == t.run {
		return
	}
	i, _ := slices.BinarySearch(t.named, id)
	if t.named = slices.Insert(t.named, i, id); len(t.named) > maxNamed {
		t.named = t.named[:maxNamed]
	}
}

// move notes that an event was told.
func (t *trail) move(series string, seq int64) {
	was, known := t.at[series]
	if seq <= was {
		return
	}
	t.at[series] = seq
	if !known {
		t.name(series)
	}
	t.write()
}

func (t *trail) write() {
	b := strconv.AppendInt(make([]byte, 0, 20+36*len(t.named)), t.at[t.run], 10)
	for _, id := range t.named {
		b = append(append(append(b, ';'), id...), ':')
		b = strconv.AppendInt(b, t.at[id], 10)
	}
	others := len(t.at)
	if _, has := t.at[t.run]; has {
		others--
	}
	if others > len(t.named) {
		b = append(b, ";"+notNamed...)
	}
	t.text = string(b)
}

// behind returns the cursor of a run that has, for each run in it, the later place of a cursor and a
// position.
func behind(run, cursor string, seen position) string {
	at, ok := parseCursor(run, cursor)
	if !ok {
		return cursor
	}
	for series, seq := range seen {
		at[series] = max(at[series], seq)
	}
	t := newTrail(run, at)
	if strings.HasSuffix(cursor, notNamed) && !strings.HasSuffix(t.text, notNamed) {
		t.text += ";" + notNamed
	}
	return t.text
}
