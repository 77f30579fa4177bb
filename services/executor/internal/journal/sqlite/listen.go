package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riversqlite"
)

const (
	// insertTopic is where River's workers hear of new jobs.
	insertTopic = "river_insert"
	// pollNotices is how often the notices of other processes on the same file are looked for. lookNotices
	// bounds one look.
	pollNotices = 500 * time.Millisecond
	lookNotices = 30 * time.Millisecond
)

// JobDriver is what the workers of the queue reach the jobs by. It serves for as long as the store is open.
func (s *Store) JobDriver() riverdriver.Driver[*sql.Tx] {
	return &jobDriver{riversqlite.New(s.db.Write), s}
}

// jobDriver is River's driver, except that it hears of jobs of this process from memory at their commit
// instead of by polling.
type jobDriver struct {
	*riversqlite.Driver
	s *Store
}

// GetListener implements riverdriver.Driver.
func (d *jobDriver) GetListener(p *riverdriver.GetListenenerParams) riverdriver.Listener {
	return &listener{Listener: d.Driver.GetListener(p), s: d.s}
}

type listener struct {
	riverdriver.Listener
	s    *Store
	mu   sync.Mutex
	feed chan string
	tick *time.Ticker
}

// Connect implements riverdriver.Listener.
func (l *listener) Connect(ctx context.Context) error {
	if err := l.Listener.Connect(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.feed, l.tick = make(chan string, 64), time.NewTicker(pollNotices)
	l.s.mu.Lock()
	l.s.feeds[l.feed] = true
	l.s.mu.Unlock()
	return nil
}

// Close implements riverdriver.Listener.
func (l *listener) Close(ctx context.Context) error {
	l.mu.Lock()
	if l.feed != nil {
		l.s.mu.Lock()
		delete(l.s.feeds, l.feed)
		l.s.mu.Unlock()
		l.tick.Stop()
		l.feed = nil
	}
	l.mu.Unlock()
	return l.Listener.Close(ctx)
}

// WaitForNotification implements riverdriver.Listener.
func (l *listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	l.mu.Lock()
	feed, tick := l.feed, l.tick
	l.mu.Unlock()
	if feed == nil {
		return nil, errors.New("the listener is not connected")
	}
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case queue := <-feed:
			payload, err := json.Marshal(struct {
				Queue string `json:"queue"`
			}{queue})
			return &riverdriver.Notification{Topic: insertTopic, Payload: string(payload)}, err
		case <-tick.C:
			n, err := l.look(ctx)
			if n != nil || err != nil {
				return n, err
			}
		}
	}
}

// look asks the table once.
func (l *listener) look(ctx context.Context) (*riverdriver.Notification, error) {
	once, cancel := context.WithTimeout(ctx, lookNotices)
	defer cancel()
	n, err := l.Listener.WaitForNotification(once)
	if err != nil && ctx.Err() == nil && (once.Err() != nil || errors.Is(err, context.DeadlineExceeded)) {
		return nil, nil
	}
	return n, err
}
