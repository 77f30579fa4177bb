package worker

import (
	"context"
	"errors"
	"fmt"
)

// errNotAccepted is what Ready says of a worker that nobody knows.
var errNotAccepted = errors.New("no executor has accepted the worker")

// Ready waits until an executor has accepted the worker, while Run runs in another goroutine. From then on
// every executor accepts graphs that name its actors, also when the worker is away. Ready returns at once if
// that was so before. It returns an error when Run ends first (the error of Run if there is one), or when ctx
// does, together with the last obstacle.
func (w *Worker) Ready(ctx context.Context) error {
	w.mu.Lock()
	accepted, ended := w.accepted, w.ended
	w.mu.Unlock()
	var over error
	select {
	case <-accepted:
		return nil
	case <-ended:
	case <-ctx.Done():
		over = ctx.Err()
	}
	select {
	case <-accepted: // both may have happened
		return nil
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case over == nil:
		return w.failed
	case w.failed == nil:
		return fmt.Errorf("%w: %w", errNotAccepted, over)
	}
	return fmt.Errorf("%w: %w: %w", errNotAccepted, over, w.failed)
}

// begins notes that Run has been called, perhaps once more.
func (w *Worker) begins() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.ended:
		w.ended, w.failed = make(chan struct{}), nil
	default:
	}
}

// answered notes what an executor said to the hello.
func (w *Worker) answered(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = err
	if err != nil {
		return
	}
	select {
	case <-w.accepted:
	default:
		close(w.accepted)
	}
}

// ends notes that Run returns.
func (w *Worker) ends(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.ended:
		return
	default:
	}
	if w.failed = err; err == nil {
		w.failed = fmt.Errorf("%w: it was stopped before", errNotAccepted)
	}
	close(w.ended)
}
