package grpckit

import "context"

// Events hands out what a stream gives, for a select beside other channels. After the last message events is
// closed, and failed has the error that ended the stream: io.EOF if its server did. Once ctx has ended
// messages may be dropped; the stream must end with ctx.
func Events[T any](ctx context.Context, stream interface{ Recv() (T, error) }) (events <-chan T, failed <-chan error) {
	out, why := make(chan T), make(chan error, 1)
	go func() {
		defer close(out)
		for {
			ev, err := stream.Recv()
			if err != nil {
				why <- err
				return
			}
			select {
			case out <- ev:
			case <-ctx.Done():
				why <- ctx.Err()
				return
			}
		}
	}()
	return out, why
}
