package engine

import (
	"context"
	"sync"
	"time"
)

const (
	// orderPoll is how often the registry is asked for orders.
	orderPoll = time.Second
	// orderBatch is how many orders are leased at once, and how many of a namespace are in hand at
	// most. orderParallel is how many of those are carried out at the same time.
	orderBatch, orderParallel = 200, 8
	// orderHold is how long the lease hides orders from other executors, also if this one dies.
	orderHold = 5 * time.Second
	// slowestStart is how long after an order a run may still be recorded whose start was under way. If
	// a start takes longer, the run confirms its claim, and the registry gives the order again.
	slowestStart = 10 * time.Minute
)

// watchOrders carries out the orders of the registry to runs of this database, whichever executor owns
// them.
func (t *session) watchOrders(ctx context.Context) {
	if t.e.orders == nil {
		return
	}
	c := &carrier{e: t.e, lines: map[string]*orderLine{}}
	defer c.workers.Wait()
	tick := time.NewTicker(orderPoll)
	defer tick.Stop()
	away := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var err error
		for more := true; more && err == nil; {
			more, err = c.lease(ctx)
		}
		if err == nil {
			err = c.takeFault()
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !away:
			// One line for each outage: the outbox logs the rest.
			t.e.log.WarnContext(ctx, "orders to runs cannot be read from the registry; trying again", "err", err)
		}
		away = err != nil
	}
}

// carrier carries out the orders that the registry hands out. Each namespace has a line of its own, and
// leases go on meanwhile, so that a slow run delays nothing else.
type carrier struct {
	e       *Engine
	workers sync.WaitGroup

	mu    sync.Mutex
	lines map[string]*orderLine
	fault error // of the last failed acknowledgement
}

// orderLine is the work of one namespace.
type orderLine struct {
	waiting []leased
	// inHand are the runs, and the tasks to start, whose orders wait or are being carried out.
	inHand map[string]bool
	busy   int
	// done and refused are orders to acknowledge. acknowledging is set while a goroutine does so.
	done          []Order
	refused       []RefusedStart
	acknowledging bool
}

// leased is an order that no other executor gets before until.
type leased struct {
	Order
	until time.Time
}

// lease takes orders from the registry. It reports whether there may be more that can be taken now.
func (c *carrier) lease(ctx context.Context) (bool, error) {
	until := time.Now().Add(orderHold)
	asking, stop := context.WithDeadline(ctx, until)
	defer stop()
	list, err := c.e.orders.Lease(asking, orderBatch, orderHold)
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := 0
	for _, x := range list {
		l := c.lines[x.Namespace]
		if l == nil {
			l = &orderLine{inHand: map[string]bool{}}
			c.lines[x.Namespace] = l
		}
		// The registry hands out the others again after the hold.
		if l.inHand[x.subject()] || len(l.inHand) >= orderBatch {
			continue
		}
		taken++
		l.inHand[x.subject()] = true
		l.waiting = append(l.waiting, leased{x, until})
		if l.busy < orderParallel {
			l.busy++
			c.workers.Go(func() { c.work(ctx, x.Namespace, l) })
		}
	}
	return taken == orderBatch, nil
}

// work carries out the orders of a line, one after the other, until none waits.
func (c *carrier) work(ctx context.Context, namespace string, l *orderLine) {
	for {
		c.mu.Lock()
		if len(l.waiting) == 0 {
			l.busy--
			c.forget(namespace, l)
			c.mu.Unlock()
			return
		}
		x := l.waiting[0]
		l.waiting = l.waiting[1:]
		c.mu.Unlock()
		try, stop := context.WithDeadline(ctx, x.until)
		var certain bool
		var refused error
		if try.Err() == nil {
			certain, refused = c.e.carryOut(try, x.Order)
		}
		stop()
		c.mu.Lock()
		delete(l.inHand, x.subject())
		if !certain {
			c.mu.Unlock()
			continue
		}
		if refused != nil {
			l.refused = append(l.refused, RefusedStart{x.Order, refused})
		} else {
			l.done = append(l.done, x.Order)
		}
		tells := !l.acknowledging
		l.acknowledging = true
		c.mu.Unlock()
		if tells {
			c.workers.Go(func() { c.acknowledge(ctx, namespace, l) })
		}
	}
}

// acknowledge acknowledges what is done in a line, all of it at once, until nothing is left. After a
// failure the registry hands the orders out again.
func (c *carrier) acknowledge(ctx context.Context, namespace string, l *orderLine) {
	for {
		c.mu.Lock()
		done, refused := l.done, l.refused
		if l.done, l.refused = nil, nil; len(done)+len(refused) == 0 {
			l.acknowledging = false
			c.forget(namespace, l)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		telling, stop := context.WithTimeout(ctx, orderHold)
		err := c.e.orders.Acknowledge(telling, done, refused)
		stop()
		if err != nil {
			c.mu.Lock()
			c.fault = err
			c.mu.Unlock()
		}
	}
}

// forget drops an idle line. The caller holds c.mu.
func (c *carrier) forget(namespace string, l *orderLine) {
	if l.busy == 0 && !l.acknowledging {
		delete(c.lines, namespace)
	}
}

// takeFault returns why an acknowledgement failed since the last call, or nil.
func (c *carrier) takeFault() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.fault
	c.fault = nil
	return err
}
