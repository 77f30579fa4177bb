package journal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func TestSortOut(t *testing.T) {
	dead, self := journal.Owner{ID: "a", Incarnation: 1}, journal.Owner{ID: "b", Incarnation: 2}
	outlived := func(o journal.Owner) bool { return o == self }
	found := func(from journal.Owner) []journal.RunRef {
		return []journal.RunRef{{RunID: "run_1", State: journal.StateRunning, Takeovers: 2, From: from}}
	}
	t.Run("RunsOfTheDead/Count", func(t *testing.T) {
		res, _ := journal.SortOut(found(dead), journal.TakeOverOptions{Limit: 10, Patience: journal.Patience{Outlived: outlived}})
		require.Len(t, res.Quarantined, 1)
	})
	t.Run("RunsOfAProcessThatOnlyLostItsLease/CountNothing", func(t *testing.T) {
		res, _ := journal.SortOut(found(self), journal.TakeOverOptions{Limit: 10, Patience: journal.Patience{Outlived: outlived}})
		require.Empty(t, res.Quarantined)
		require.Len(t, res.Claimed, 1)
		require.Equal(t, 2, res.Claimed[0].Takeovers)
	})
}

func TestClaim(t *testing.T) {
	dead, self := journal.Owner{ID: "a", Incarnation: 1}, journal.Owner{ID: "b", Incarnation: 3}
	former := journal.Owner{ID: "b", Incarnation: 2}
	p := journal.Patience{MaxTakeovers: 5, Outlived: func(o journal.Owner) bool { return o == former }}
	for name, c := range map[string]struct {
		run       journal.Claimable
		now       journal.Owner
		takeovers int
		claimed   bool
	}{
		"Free":                     {journal.Claimable{State: journal.StateWaiting, Takeovers: 4}, self, 4, true},
		"OfTheDead":                {journal.Claimable{State: journal.StateWaiting, Owner: dead, Takeovers: 3}, self, 4, true},
		"OfOneDeadTooMany":         {journal.Claimable{State: journal.StateWaiting, Owner: dead, Takeovers: 4}, journal.Owner{}, 0, false},
		"OfAFormerLifeOfItsOwn":    {journal.Claimable{State: journal.StateWaiting, Owner: former, Takeovers: 4}, self, 4, true},
		"OfTheLiving":              {journal.Claimable{State: journal.StateWaiting, Owner: dead, OwnerLive: true}, dead, 0, false},
		"Ended":                    {journal.Claimable{State: journal.StateFailed}, journal.Owner{}, 0, false},
		"Quarantined":              {journal.Claimable{State: journal.StateQuarantined, Takeovers: 5}, journal.Owner{}, 0, false},
		"QuarantinedAndSummoned":   {journal.Claimable{State: journal.StateQuarantined, Takeovers: 5, Summoned: true}, self, 5, true},
		"SummonedAndKilledAnOwner": {journal.Claimable{State: journal.StateQuarantined, Owner: dead, Takeovers: 5, Summoned: true}, journal.Owner{}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			now, takeovers, claimed := c.run.Claim(self, p)
			require.Equal(t, c.now, now)
			require.Equal(t, c.takeovers, takeovers)
			require.Equal(t, c.claimed, claimed)
		})
	}
}

func TestFound(t *testing.T) {
	t.Parallel()
	signal := journal.Post{Mail: journal.Mail{RunID: "run_1", Kind: journal.MailSignal, Body: make([]byte, 100)}}
	for name, c := range map[string]struct {
		f      journal.Found
		refuse bool
	}{
		"Room":       {f: journal.Found{Waiting: journal.MaxWaiting - 1, WaitingBytes: journal.MaxWaitingBytes - 100}},
		"TooMany":    {f: journal.Found{Waiting: journal.MaxWaiting}, refuse: true},
		"TooLarge":   {f: journal.Found{Waiting: 1, WaitingBytes: journal.MaxWaitingBytes - 99}, refuse: true},
		"OneAlways":  {f: journal.Found{WaitingBytes: journal.MaxWaitingBytes}},
		"EndedFirst": {f: journal.Found{State: journal.StateCompleted, Waiting: journal.MaxWaiting}, refuse: true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.f.State == 0 {
				c.f.State = journal.StateRunning
			}
			takes, err := c.f.Takes(signal)
			require.Equal(t, c.refuse, err != nil, "got %v", err)
			require.Equal(t, !c.refuse, takes)
		})
	}
}
