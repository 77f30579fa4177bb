package dbkit

import (
	"context"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/sleep"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Listen sends the notifications of a Postgres channel, as decoded by read, until ctx ends and the returned
// channel is closed. That channel holds size values; notifications that find it full are dropped. After a
// lost connection it sends once more, since notifications may have been lost with it. It listens by the time
// it returns. Its connection is like the pool's but not from it: a connection that is held for long must not
// count there, nor keep Close waiting.
func Listen[T any](ctx context.Context, pool *pgxpool.Pool, channel string, size int, again T, read func(payload string) (T, bool)) (<-chan T, error) {
	conn, err := listen(ctx, pool, channel)
	if err != nil {
		return nil, err
	}
	out := make(chan T, size)
	send := func(v T) {
		select {
		case out <- v:
		default:
		}
	}
	go func() {
		defer close(out)
		for {
			for {
				n, err := conn.WaitForNotification(ctx)
				if err != nil {
					break
				}
				if v, ok := read(n.Payload); ok {
					send(v)
				}
			}
			giveUp(conn)
			for conn, err = listen(ctx, pool, channel); err != nil; conn, err = listen(ctx, pool, channel) {
				if !sleep.For(ctx, time.Second) {
					return
				}
			}
			send(again)
		}
	}()
	return out, nil
}

func listen(ctx context.Context, pool *pgxpool.Pool, channel string) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		giveUp(conn)
		return nil, fmt.Errorf("listen: %w", err)
	}
	return conn, nil
}

func giveUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	// It is given up either way.
	_ = conn.Close(ctx)
}
