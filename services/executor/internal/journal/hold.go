package journal

import (
	"context"
	"time"
)

// maxStoring is how many writes store large values at once.
const maxStoring = 8

// held is a write that waits until its large values are stored, or stands behind one of its run that does.
type held struct {
	item
	store func(context.Context) Write
	ready bool
}

// hold keeps it back if it has something to store or stands behind a write that has; it reports whether it did.
func (w *Writer) hold(it item, store func(context.Context) Write) bool {
	id := it.write.RunID()
	before, behind := w.held[id]
	if store == nil && !behind {
		return false
	}
	h := &held{item: it, store: store, ready: store == nil}
	w.held[id] = append(before, h)
	w.bytes += it.size
	w.count++
	if store != nil && w.hard != nil {
		w.storing.Go(func() { w.keep(w.hard, id, h) })
	}
	return true
}

// beginStoring lets what was held back before the writer ran be stored.
func (w *Writer) beginStoring(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hard = ctx
	for id, hs := range w.held {
		for _, h := range hs {
			if h.store != nil {
				w.storing.Go(func() { w.keep(ctx, id, h) })
			}
		}
	}
}

// keep stores what h has to store and lets go of all of its run that is ready then.
func (w *Writer) keep(ctx context.Context, id string, h *held) {
	w.slots <- struct{}{}
	write := h.store(ctx)
	<-w.slots
	w.mu.Lock()
	defer w.mu.Unlock()
	h.ready = true
	hs, ok := w.held[id]
	if !ok {
		return // the writer has given up and has answered it
	}
	h.item.write = write
	for len(hs) > 0 && hs[0].ready {
		it := hs[0].item
		w.bytes -= it.size
		w.count--
		it.rows, it.size, it.since = it.write.Rows(), it.write.Size(), time.Now()
		w.push(it)
		hs = hs[1:]
	}
	if w.held[id] = hs; len(hs) == 0 {
		delete(w.held, id)
	}
	w.poke()
}
