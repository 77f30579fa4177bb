package journal

import (
	"context"
	"time"
)

// maxStoring is how many writes store large values at once, half of them of one namespace.
const maxStoring = 8

// held is a write that waits until its large values are stored, or stands behind one of its run that does, or
// has commands for a run whose start does.
type held struct {
	item
	store func(context.Context) Write
	ready bool
	// awaits counts the starts to which the write has commands. behind are the writes with commands to this
	// one.
	awaits int
	behind []*held
}

// hold keeps it back if it has something to store or stands behind a write that has; it reports whether it
// did.
func (w *Writer) hold(it item, store func(context.Context) Write) bool {
	id := it.write.RunID()
	before, behind := w.held[id]
	starts := w.addressed(it.write)
	if store == nil && !behind && len(starts) == 0 {
		return false
	}
	h := &held{item: it, store: store, ready: store == nil, awaits: len(starts)}
	for _, s := range starts {
		s.behind = append(s.behind, h)
	}
	w.held[id] = append(before, h)
	w.waits(it.write.Namespace(), it.size)
	w.count++
	if store != nil && w.hard != nil {
		w.storing.Go(func() { w.storeHeld(w.hard, id, h) })
	}
	return true
}

// addressed are the held starts to which a write has commands. Commands that came first would find no run,
// and be dropped.
func (w *Writer) addressed(wr Write) (starts []*held) {
	if wr.Append == nil {
		return nil
	}
	for i := range wr.Append.Command {
		if hs := w.held[wr.Append.Command[i].RunID]; len(hs) > 0 && hs[0].write.Start != nil {
			starts = append(starts, hs[0])
		}
	}
	return starts
}

// beginStoring lets what was held back before the writer ran be stored.
func (w *Writer) beginStoring(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hard = ctx
	for id, hs := range w.held {
		for _, h := range hs {
			if h.store != nil {
				w.storing.Go(func() { w.storeHeld(ctx, id, h) })
			}
		}
	}
}

// storeHeld stores what h has to store and lets go of all of its run that is ready then.
func (w *Writer) storeHeld(ctx context.Context, id string, h *held) {
	leave, _ := w.lanes.Enter(context.WithoutCancel(ctx), h.write.Namespace()) // that context does not end
	w.slots <- struct{}{}
	write := h.store(ctx)
	<-w.slots
	leave()
	w.mu.Lock()
	defer w.mu.Unlock()
	h.ready = true
	if _, ok := w.held[id]; !ok {
		return // the writer has given up and has answered it
	}
	h.item.write = write
	w.letGo(id)
	w.notify()
}

// letGo gives what is ready of a run to the next batch, and then what had commands for it.
func (w *Writer) letGo(id string) {
	hs := w.held[id]
	var behind []*held
	for len(hs) > 0 && hs[0].ready && hs[0].awaits == 0 {
		it := hs[0].item
		w.waits(it.write.Namespace(), -it.size)
		w.count--
		it.rows, it.size, it.since = it.write.Rows(), it.write.Size(), time.Now()
		w.push(it)
		behind = append(behind, hs[0].behind...)
		hs = hs[1:]
	}
	if w.held[id] = hs; len(hs) == 0 {
		delete(w.held, id)
	}
	for _, h := range behind {
		if h.awaits--; h.awaits == 0 {
			w.letGo(h.write.RunID())
		}
	}
}
