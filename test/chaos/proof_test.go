package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/internal/testkit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

const (
	// proofCallers try to make proofTries calls together, in requests of up to proofBatch.
	proofCallers, proofTries, proofBatch = 64, 10_000, 24
	// proofKills is how often the registry is killed meanwhile.
	proofKills = 6
	// proofAsk is the most that a call may cost, in nano-USD. It is odd, so that no sum is round.
	proofAsk = 999_983
	// proofRaise is what the cap is raised by after so many refusals: the callers stand at the cap all
	// the time.
	proofRaise, proofRefusals = 150 * proofAsk, 30
	// proofLease is how long a reservation is kept of which nothing is heard.
	proofLease = 2 * time.Second
)

// The sources of an entry that books a forgotten reservation, and of one that takes such an entry back.
const sourceEstimate, sourceReversal registryv1.UsageSource = 3, 4

// fate is what a caller does with a call that it has reserved for.
type fate int

const (
	// refused: nothing was reserved.
	refused fate = iota
	// settled: the call was made, and its usage is told at once, or long after the lease.
	settled
	// released: the call was not made, which is told at once, or long after the lease.
	released
	// forgotten: nothing is heard of the call any more.
	forgotten
	// unheard: the caller has died before it heard whether its call was reserved for.
	unheard
)

// tried is one call of a caller. asked and used are nano-USD.
type tried struct {
	fate        fate
	asked, used int64
}

// prover makes calls of one run after another process has reserved for them, and keeps what it was
// told.
type prover struct {
	*proof
	client registryv1.RegistryServiceClient
	run    string
	// budgeted says that the run has a budget, and so has the run above it, which all of them share.
	budgeted bool
	calls    []tried
	// late are calls that are settled or released when their leases have ended.
	late []int
}

// proof is one registry with one cap, and those who call it.
type proof struct {
	*cluster
	ctx context.Context
	// done counts tries; noes counts those that were refused.
	done, noes atomic.Int64
	samples    atomic.Int64
}

// entry is a call as it is reserved, settled and released.
func (p *prover) entry(call int, cost int64) *registryv1.UsageEntry {
	return &registryv1.UsageEntry{RunId: p.run, NodeId: "n", Visit: 1, Attempt: 1, Call: int32(call), Kind: registryv1.UsageKind_USAGE_KIND_MODEL, //nolint:gosec // a few hundred
		Provider: "p", Model: "m", InputTokens: cost/1000 + 1, CostNanoUsd: &cost}
}

// reserve asks for n further calls.
func (p *prover) reserve(n int) *registryv1.ReserveUsageRequest {
	req := &registryv1.ReserveUsageRequest{Lease: durationpb.New(proofLease)}
	var of []int32
	for i := range n {
		p.calls = append(p.calls, tried{asked: 1 + rand.Int64N(proofAsk)})
		at := len(p.calls) - 1
		req.Calls = append(req.Calls, p.entry(at, p.calls[at].asked))
		of = append(of, int32(i)) //nolint:gosec // up to proofBatch
	}
	if p.budgeted {
		much := int64(1 << 40)
		for _, run := range []string{p.run, "above"} {
			req.Runs = append(req.Runs, &registryv1.RunBudget{RunId: run, Hard: &registryv1.Caps{Tokens: &much}, Calls: of})
		}
	}
	return req
}

// try reserves for some calls, and does with each what chance says.
func (p *prover) try(n int) error {
	first := len(p.calls)
	req := p.reserve(n)
	p.done.Add(int64(n))
	if rand.IntN(20) == 0 {
		for i := range n {
			p.calls[first+i].fate = unheard
		}
		ctx, cancel := context.WithTimeout(p.ctx, time.Duration(rand.Int64N(int64(20*time.Millisecond))))
		defer cancel()
		_, _ = p.client.ReserveUsage(ctx, req)
		return nil
	}
	got, err := persist(p.ctx, func(ctx context.Context) (*registryv1.ReserveUsageResponse, error) {
		return p.client.ReserveUsage(ctx, req)
	})
	if err != nil {
		return err
	}
	var now []int
	for i, r := range got.GetReservations() {
		c := &p.calls[first+i]
		if r.GetRefusal() != nil {
			p.noes.Add(1)
			continue
		}
		c.used = 1 + rand.Int64N(c.asked)
		switch chance := rand.IntN(100); {
		case chance < 10:
			c.fate = forgotten
			continue
		case chance < 35:
			c.fate = released
		default:
			c.fate = settled
		}
		if rand.IntN(12) == 0 {
			p.late = append(p.late, first+i)
		} else {
			now = append(now, first+i)
		}
	}
	return p.tell(now)
}

// tell settles or releases calls, and checks what it is told of those that it settles.
func (p *prover) tell(calls []int) error {
	var made, not []*registryv1.UsageEntry
	for _, i := range calls {
		if c := p.calls[i]; c.fate == settled {
			made = append(made, p.entry(i, c.used))
		} else {
			not = append(not, p.entry(i, c.asked))
		}
	}
	if len(not) > 0 {
		if _, err := persist(p.ctx, func(ctx context.Context) (*registryv1.ReleaseUsageResponse, error) {
			return p.client.ReleaseUsage(ctx, &registryv1.ReleaseUsageRequest{Calls: not})
		}); err != nil {
			return err
		}
	}
	if len(made) == 0 {
		return nil
	}
	got, err := persist(p.ctx, func(ctx context.Context) (*registryv1.RecordUsageResponse, error) {
		return p.client.RecordUsage(ctx, &registryv1.RecordUsageRequest{Entries: made})
	})
	for i, e := range got.GetEntries() {
		if e.GetCostNanoUsd() != made[i].GetCostNanoUsd() || e.GetSource() != registryv1.UsageSource_USAGE_SOURCE_EXECUTOR {
			return fmt.Errorf("call %d of %s is booked as %v", made[i].GetCall(), p.run, e)
		}
	}
	return err
}

// spend makes all tries of the caller. What it is late with it tells when the leases have ended.
func (p *prover) spend(tries int) error {
	for len(p.calls) < tries {
		if err := p.try(min(1+rand.IntN(proofBatch), tries-len(p.calls))); err != nil {
			return err
		}
	}
	sleep.For(p.ctx, proofLease+proofLease/2)
	for len(p.late) > 0 {
		n := min(len(p.late), proofBatch)
		if err := p.tell(p.late[:n]); err != nil {
			return err
		}
		p.late = p.late[n:]
	}
	return nil
}

func (p *proof) budget() (*registryv1.Budget, error) {
	return persist(p.ctx, func(ctx context.Context) (*registryv1.Budget, error) {
		return p.reg.GetBudget(ctx, &registryv1.GetBudgetRequest{Name: "namespace"})
	})
}

func (p *proof) limit(most int64) error {
	_, err := persist(p.ctx, func(ctx context.Context) (*registryv1.Budget, error) {
		return p.reg.SetBudget(ctx, &registryv1.SetBudgetRequest{Budget: &registryv1.Budget{Name: "namespace", Hard: &registryv1.Caps{NanoUsd: &most}}})
	})
	return err
}

// watch looks at the account until done is closed, and raises the cap when callers were refused. It
// returns the last cap.
func (p *proof) watch(done <-chan struct{}) (limit int64, err error) {
	var seen int64
	for limit = proofRaise; ; {
		b, err := p.budget()
		if err != nil {
			return limit, err
		}
		p.samples.Add(1)
		if spent, reserved := b.GetSpentNanoUsd(), b.GetReservedNanoUsd(); spent < 0 || reserved < 0 || spent+reserved > b.GetHard().GetNanoUsd() {
			return limit, fmt.Errorf("%d nano-USD are spent and %d reserved of %d", spent, reserved, b.GetHard().GetNanoUsd())
		}
		select {
		case <-done:
			return limit, nil
		default:
		}
		if n := p.noes.Load(); n-seen >= proofRefusals {
			seen, limit = n, limit+proofRaise
			if err := p.limit(limit); err != nil {
				return limit, err
			}
		}
		sleep.For(p.ctx, 20*time.Millisecond)
	}
}

// kill kills the registry each time that a part of the tries was made, and starts it again.
func (p *proof) kill(done <-chan struct{}) error {
	for n := range int64(proofKills) {
		for p.done.Load() < (n+1)*proofTries/(proofKills+1) {
			select {
			case <-done:
				return nil
			default:
			}
			sleep.For(p.ctx, time.Millisecond)
		}
		p.registry.kill()
		if err := p.registry.start(nil); err != nil {
			return err
		}
	}
	return nil
}

// booked are the entries of a run, by call.
func (p *proof) booked(run string) map[int][]*registryv1.UsageEntry {
	out := map[int][]*registryv1.UsageEntry{}
	for token := ""; ; {
		got, err := persist(p.ctx, func(ctx context.Context) (*registryv1.ListUsageResponse, error) {
			return p.reg.ListUsage(ctx, &registryv1.ListUsageRequest{RunId: run, PageSize: 1000, PageToken: token})
		})
		require.NoError(p.t, err)
		for _, e := range got.GetEntries() {
			out[int(e.GetCall())] = append(out[int(e.GetCall())], e)
		}
		if token = got.GetNextPageToken(); token == "" {
			return out
		}
	}
}

// ended returns what a call has cost by its entries, and why they are not those of its fate.
func (c tried) ended(entries []*registryv1.UsageEntry) (cost, tokens int64, fault string) {
	n := map[registryv1.UsageSource]int{}
	for _, e := range entries {
		n[e.GetSource()]++
		cost, tokens = cost+e.GetCostNanoUsd(), tokens+e.GetInputTokens()
	}
	made, guessed, back := n[registryv1.UsageSource_USAGE_SOURCE_EXECUTOR], n[sourceEstimate], n[sourceReversal]
	ok := guessed <= 1 && made <= 1 && made+guessed+back == len(entries)
	switch c.fate {
	case refused:
		ok = ok && len(entries) == 0
	case settled:
		ok = ok && made == 1 && guessed == back && cost == c.used
	case released:
		ok = ok && made == 0 && guessed == back && cost == 0
	case forgotten:
		ok = ok && made == 0 && guessed == 1 && back == 0 && cost == c.asked
	case unheard:
		ok = ok && made == 0 && back == 0 && cost == int64(guessed)*c.asked
	}
	if !ok {
		fault = fmt.Sprintf("%d calls, %d estimates and %d reversals cost %d", made, guessed, back, cost)
	}
	return cost, tokens, fault
}

// TestLedgerProof has 64 callers reserve under one cap, which they reach again and again, and settle,
// release or forget what they have reserved, while the registry is killed. Nothing is ever over the
// cap, each reservation ends once, and the account is the sum of the entries, which are what the
// callers were told.
func TestLedgerProof(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"postgres", "sqlite"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			proveLedger(t, store)
		})
	}
}

func proveLedger(t *testing.T, store string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	p := &proof{ctx: ctx, cluster: newCluster(t, clusterOptions{store: store, settings: []string{"registry.sweep_interval=200ms"}})}
	require.NoError(t, p.limit(proofRaise))
	var conns []*grpc.ClientConn
	for range proofCallers / 8 {
		conn, err := grpckit.Dial(p.addr("registry"), grpckit.DialOptions{Namespace: namespace})
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		conns = append(conns, conn)
	}
	begin := time.Now()
	var callers, others sync.WaitGroup
	faults, done := make(chan error, proofCallers+2), make(chan struct{})
	provers := make([]*prover, proofCallers)
	for i := range provers {
		provers[i] = &prover{proof: p, client: registryv1.NewRegistryServiceClient(conns[i%len(conns)]), run: fmt.Sprint("caller-", i), budgeted: i%2 == 0}
		callers.Go(func() { faults <- provers[i].spend(proofTries*(i+1)/proofCallers - proofTries*i/proofCallers) })
	}
	var limit int64
	others.Go(func() {
		var err error
		limit, err = p.watch(done)
		faults <- err
	})
	others.Go(func() { faults <- p.kill(done) })
	callers.Wait()
	close(done)
	others.Wait()
	close(faults)
	for err := range faults {
		require.NoError(t, err, "after %d tries, %d of them refused, %d kills and %d looks at the account", p.done.Load(), p.noes.Load(), p.kills.Load(), p.samples.Load())
	}
	testkit.Within(t, timeout, 10*time.Millisecond, p.registry.serves, "the registry does not serve")
	var b *registryv1.Budget
	testkit.Within(t, timeout, 50*time.Millisecond, func() bool {
		var err error
		b, err = p.budget()
		require.NoError(t, err)
		return b.GetReservedNanoUsd() == 0
	}, "something stays reserved")

	var cost, tokens int64
	of := map[fate]int{}
	for _, v := range provers {
		booked := p.booked(v.run)
		for i, c := range v.calls {
			money, n, fault := c.ended(booked[i])
			require.Empty(t, fault, "call %d of %s: %+v: %v", i, v.run, c, booked[i])
			cost, tokens = cost+money, tokens+n
			of[c.fate]++
		}
	}
	t.Logf("%d tries in %s: %d refused, %d settled, %d released, %d forgotten, %d unheard; %d kills, %d looks at the account; %d nano-USD spent of %d",
		p.done.Load(), time.Since(begin).Round(time.Second), of[refused], of[settled], of[released], of[forgotten], of[unheard], p.kills.Load(), p.samples.Load(), cost, limit)
	require.Equal(t, []int64{cost, tokens, 0}, []int64{b.GetSpentNanoUsd(), b.GetSpentTokens(), b.GetReservedTokens()}, "the account is the sum of the entries")
	whole, err := p.reg.GetNamespaceUsage(ctx, &registryv1.GetNamespaceUsageRequest{})
	require.NoError(t, err)
	require.Equal(t, cost, whole.GetSpentNanoUsd())
	require.LessOrEqual(t, cost, limit)
	require.EqualValues(t, proofTries, p.done.Load())
	require.EqualValues(t, proofKills, p.kills.Load())
	require.Greater(t, of[refused], proofTries/100, "the cap was reached")
	require.Greater(t, of[settled], proofTries/8, "there was room")
	require.Empty(t, p.examined(ctx))
}
