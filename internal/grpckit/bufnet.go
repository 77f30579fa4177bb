package grpckit

import (
	"context"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc/test/bufconn"
)

// BufNet is a network inside this process: services listen on names and dial names, and everything
// still goes through the wire format. The zero value is ready; it is safe for concurrent use.
type BufNet struct {
	mu        sync.Mutex
	listeners map[string]*bufListener
}

type bufListener struct {
	*bufconn.Listener
	net  *BufNet
	name string
}

// Listen takes a name until the listener is closed.
func (b *BufNet) Listen(name string) (net.Listener, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, taken := b.listeners[name]; taken {
		return nil, fmt.Errorf("listen on buf:%s: name is taken", name)
	}
	if b.listeners == nil {
		b.listeners = map[string]*bufListener{}
	}
	l := &bufListener{Listener: bufconn.Listen(1 << 20), net: b, name: name}
	b.listeners[name] = l
	return l, nil
}

// DialContext connects to whoever listens on name, and fails at once if nobody does.
func (b *BufNet) DialContext(ctx context.Context, name string) (net.Conn, error) {
	b.mu.Lock()
	l := b.listeners[name]
	b.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial buf:%s: nobody listens", name)
	}
	return l.DialContext(ctx)
}

// Close frees the name.
func (l *bufListener) Close() error {
	l.net.mu.Lock()
	if l.net.listeners[l.name] == l {
		delete(l.net.listeners, l.name)
	}
	l.net.mu.Unlock()
	return l.Listener.Close()
}
