package actor

import "context"

type roomKey struct{}

// WithRoom returns a context whose call asks room before it reads anything large.
func WithRoom(ctx context.Context, room func(ctx context.Context, bytes int64) error) context.Context {
	return context.WithValue(ctx, roomKey{}, room)
}

// Room waits until there is memory for that many bytes, which the call of ctx holds until it ends. An actor
// asks once for each large thing that it reads into memory, with the most that it may take. An error is that
// of ctx.
func Room(ctx context.Context, bytes int64) error {
	room, _ := ctx.Value(roomKey{}).(func(context.Context, int64) error)
	if room == nil {
		return nil
	}
	return room(ctx, bytes)
}
