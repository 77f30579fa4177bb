package actor

import "context"

type roomKey struct{}

// WithRoom returns a context whose call asks room before it takes in what may be large.
func WithRoom(ctx context.Context, room func(ctx context.Context, bytes int64) error) context.Context {
	return context.WithValue(ctx, roomKey{}, room)
}

// Room waits until there is memory for so many bytes, which the call of ctx has until it ends. An actor asks
// once for each large thing that it reads into memory, and asks for what that may come to at most. An error
// is that of ctx.
func Room(ctx context.Context, bytes int64) error {
	room, _ := ctx.Value(roomKey{}).(func(context.Context, int64) error)
	if room == nil {
		return nil
	}
	return room(ctx, bytes)
}
