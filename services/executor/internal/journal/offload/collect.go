package offload

import (
	"context"
	"errors"
	"time"
)

const (
	// sweepBatch is how many blobs are removed in one go. again is when a removal that got stuck is tried
	// anew. removeTime bounds one removal: it is far less than again, so that no two try the same one.
	sweepBatch = 200
	again      = 30 * time.Minute
	removeTime = 10 * time.Second
	sweepTime  = 10 * time.Minute
)

// Collect removes blobs to which nothing refers and that were not written within grace, and returns how
// many. It may be ended at any point, and run by several at once. Grace must be longer than a write can be
// under way.
func (s *Offload) Collect(ctx context.Context, grace time.Duration) (n int, err error) {
	if s.o.Store == nil {
		return 0, nil
	}
	for {
		// What is doomed now is this call's alone for as long as again.
		claim, cancel := context.WithTimeout(ctx, sweepTime)
		names, err := s.blobs.OrphanBlobs(claim, grace, again, sweepBatch)
		if err != nil || len(names) == 0 {
			cancel()
			return n, err
		}
		gone := names[:0]
		var faults []error
		for _, name := range names {
			one, cancelOne := context.WithTimeout(claim, removeTime)
			err := s.o.Store.Remove(one, objectName(name.Namespace, name.Hash))
			cancelOne()
			if err != nil {
				faults = append(faults, err)
				continue
			}
			gone = append(gone, name)
		}
		if len(gone) > 0 {
			err = s.blobs.ForgetBlobs(claim, gone)
		}
		cancel()
		n += len(gone)
		if err != nil || len(faults) > 0 {
			return n, errors.Join(append(faults, err)...)
		}
	}
}
