package executor

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/epigraph-run/epigraph/services/executor/internal/bots"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/rpc"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
)

// assembleChats makes what brings messages of people to workflows, and calls of webhooks to triggers.
func (s *Service) assembleChats(cfg Config, st stores) (err error) {
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return fmt.Errorf("the transport of HTTP is a %T", http.DefaultTransport)
	}
	transport = transport.Clone()
	s.opened(idle{transport})
	s.bots, err = bots.New(cfg.Telegram, bots.Deps{
		Triggers: s.triggers, Transport: transport, Logger: s.log, CarryOut: s.carryOut,
		Asked: func(ctx context.Context, t *trigger.Trigger, chat int64) (bool, error) {
			return s.server.Asked(ctx, t, strconv.FormatInt(chat, 10))
		},
		Mine: func(ctx context.Context) (bool, error) { return s.first(ctx, cfg) },
	})
	if err != nil {
		return err
	}
	s.server.Converse(&rpc.Chats{Threads: st.plain, Conductor: s.threads, Bounds: cfg.Threads.Bounds(), Triggers: s.triggers, Say: s.bots.Say})
	s.hookServer = rpc.NewHookServer(s.triggers, s.bots)
	return nil
}

// idle closes the idle connections of a transport.
type idle struct{ *http.Transport }

// Close never fails.
func (i idle) Close() error {
	i.CloseIdleConnections()
	return nil
}

// carryOut carries a delivery out at once. Its job does it otherwise.
func (s *Service) carryOut(ctx context.Context, d trigger.Delivery) {
	if _, err := s.triggers.Work(ctx, journal.TriggerArgs{Namespace: d.Namespace, DeliveryID: d.ID}); err != nil {
		s.log.InfoContext(ctx, "delivery of a trigger put off", "err", err, "delivery_id", d.ID)
	}
}

// first reports whether this executor is the first by id among those of the database that are alive.
// When it dies another one is, as soon as its lease is over.
func (s *Service) first(ctx context.Context, cfg Config) (bool, error) {
	list, err := s.journal.Executors(ctx)
	if err != nil {
		return false, err
	}
	least := cfg.ID
	for _, x := range list {
		if x.SinceHeartbeat < cfg.lease() {
			least = min(least, x.ID)
		}
	}
	return least == cfg.ID, nil
}
