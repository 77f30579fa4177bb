package command

import (
	"context"
	"time"
)

const (
	// purgeRows is how many rows of deleted runs are removed at a time.
	purgeRows = 1000
	// purgeTime bounds how long Delete waits for the removal of rows. The rest is removed in the
	// background. The deleted runs are invisible from the start.
	purgeTime = 2 * time.Second
)

// Delete deletes an ended run and its ended descendants. It returns how many runs it deleted.
func (h *Handler) Delete(ctx context.Context, namespace, runID string, revision int64) (int, error) {
	n, err := h.journal.DeleteRun(ctx, namespace, runID, revision, h.tellDeleted)
	if err != nil {
		return 0, err
	}
	purging, cancel := context.WithTimeout(context.WithoutCancel(ctx), purgeTime)
	defer cancel()
	if err := h.Purge(purging); err != nil && purging.Err() == nil {
		h.log.WarnContext(ctx, "rows of deleted runs not removed yet", "err", err)
	}
	return n, nil
}

// Purge removes the rows of deleted runs until none is left or ctx ends. It continues where an earlier call
// was interrupted.
func (h *Handler) Purge(ctx context.Context) error {
	for more := true; more; {
		if ctx.Err() != nil {
			return nil
		}
		var err error
		if more, err = h.journal.PurgeRuns(ctx, purgeRows); err != nil {
			return err
		}
	}
	return nil
}
