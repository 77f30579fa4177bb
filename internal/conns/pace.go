package conns

import (
	"net"
	"sync"
	"time"
)

const (
	// connRate is how many frames without work one connection may send in a second, and connBurst how many at
	// once: settings, keep-alives, resets.
	connRate, connBurst = 50, 500
	// perAnswer is how many more it may send for each frame of an answer: a window update for the stream and
	// one for the connection, a ping that measures the round trip, and a reset of the call.
	perAnswer = 4
	// maxEarned bounds what a connection has earned by answers and not used.
	maxEarned = 20_000
	// smallRead is the size of one read, beyond the frame under way, on a connection that has had no answer
	// yet or has used up half of its allowance. The frames of a read are processed before their cost is
	// charged, so a read must be small.
	smallRead = 2 << 10
	// groupRate and groupBurst are what the connections of one namespace may send together beyond that.
	groupRate, groupBurst = 2000, 4000
)

// allowance is a token bucket. The zero value is full.
type allowance struct {
	used float64
	at   time.Time
}

// spend takes n from an allowance that gets rate a second and holds burst at most, and returns how much was
// not there, which is owed then.
func (a *allowance) spend(now time.Time, n, rate, burst float64) (owed float64) {
	if !a.at.IsZero() {
		a.used = max(a.used-now.Sub(a.at).Seconds()*rate, 0)
	}
	a.at = now
	a.used += n
	return max(a.used-burst, 0)
}

// pace delays a connection that sends more frames without work than it may: reading them takes a thread from
// all others, and there is no call to refuse. The lock of the pool guards debts of groups. It is written here
// because the tokens of x/time/rate are taken one bucket at a time, and these overflow from a connection to
// its namespace.
type pace struct {
	closed chan struct{}
	once   sync.Once

	mu     sync.Mutex
	own    allowance
	earned float64
	// answered is set once something was earned.
	answered bool
	until    time.Time // nothing is read before
}

// wait waits until the connection may be read again, and returns how much of b may be read; frames knows the
// frame under way. It returns false when the connection was closed meanwhile.
func (p *pace) wait(b []byte, frames *incoming) ([]byte, bool) {
	p.mu.Lock()
	until := p.until
	if !p.answered && !frames.other || p.own.used > connBurst/2 {
		b = b[:min(int64(len(b)), smallRead+int64(frames.skip))]
	}
	p.mu.Unlock()
	if until.IsZero() {
		return b, true
	}
	d := time.Until(until)
	if d <= 0 {
		return b, true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return b, true
	case <-p.closed:
		return nil, false
	}
}

// earn counts frames of answers.
func (p *pace) earn(n int) {
	if n == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.earned, p.answered = min(p.earned+float64(n*perAnswer), maxEarned), true
}

// brought counts frames that did no work. What exceeds the connection's own allowance is taken from that of
// its namespace. An unauthenticated connection has no namespace, so that it cannot use up another's.
func (c *Conn) brought(n int) {
	if n == 0 {
		return
	}
	now, p := time.Now(), &c.pace
	p.mu.Lock()
	defer p.mu.Unlock()
	free := min(float64(n), p.earned)
	p.earned -= free
	owed := p.own.spend(now, float64(n)-free, connRate, connBurst)
	if owed == 0 {
		return
	}
	pool := c.list.pool
	pool.mu.Lock()
	defer pool.mu.Unlock()
	switch {
	case c.trusted:
		p.own.used = 0
	case c.in == nil || c.in == &c.list.strangers:
		p.until = now.Add(seconds(owed / connRate))
	default:
		p.own.used -= owed
		p.until = now.Add(seconds(c.in.frames.spend(now, owed, groupRate, groupBurst) / groupRate))
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// read reads from the connection's plain text, and counts its frames.
func (c *Conn) read(from net.Conn, frames *incoming, b []byte) (int, error) {
	b, ok := c.pace.wait(b, frames)
	if !ok {
		return 0, net.ErrClosed
	}
	n, err := from.Read(b)
	c.brought(frames.count(b[:n]))
	return n, err
}

// write is read's counterpart.
func (c *Conn) write(to net.Conn, frames *outgoing, b []byte) (int, error) {
	n, err := to.Write(b)
	c.pace.earn(frames.count(b[:n]))
	return n, err
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) { return c.read(c.Conn, &c.reads, b) }

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) { return c.write(c.Conn, &c.writes, b) }

// Secured registers the plain text of an encrypted connection, and returns the connection to use from then
// on. A connection that is not of a List is returned as it is.
func Secured(raw, plain net.Conn) net.Conn {
	c, ok := raw.(*Conn)
	if !ok {
		return plain
	}
	return &secured{Conn: plain, under: c}
}

// secured is a connection whose frames are visible in its plain text only. The connection under it does not
// begin with a preface and is not counted.
type secured struct {
	net.Conn
	under  *Conn
	reads  incoming
	writes outgoing
}

// Read implements net.Conn.
func (s *secured) Read(b []byte) (int, error) { return s.under.read(s.Conn, &s.reads, b) }

// Write implements net.Conn.
func (s *secured) Write(b []byte) (int, error) { return s.under.write(s.Conn, &s.writes, b) }
