package journal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func TestSortOut(t *testing.T) {
	dead, self := journal.Owner{ID: "a", Incarnation: 1}, journal.Owner{ID: "b", Incarnation: 2}
	outlived := func(o journal.Owner) bool { return o == self }
	run := func(id string, takeovers int, doing string) journal.RunRef {
		return journal.RunRef{RunID: id, State: journal.StateRunning, Takeovers: takeovers, From: dead, Doing: doing}
	}
	ids := func(list []journal.RunRef) (out []string) {
		for _, f := range list {
			out = append(out, f.RunID)
		}
		return out
	}
	opts := journal.TakeOverOptions{Limit: 10, TakeOverPolicy: journal.TakeOverPolicy{Outlived: outlived}}
	t.Run("RunsOfTheDead/CountUntilTheyAreSuspects", func(t *testing.T) {
		res, _ := journal.SortOut([]journal.RunRef{run("run_1", 0, ""), run("run_2", 1, "")}, opts)
		require.Equal(t, []string{"run_1", "run_2"}, ids(res.Claimed))
		require.Equal(t, 1, res.Claimed[0].Takeovers)
		require.Empty(t, res.Claimed[0].Doing)
		require.Equal(t, 2, res.Claimed[1].Takeovers)
		require.Equal(t, journal.DoingReading, res.Claimed[1].Doing, "what a suspect does is recorded from its claim on")
	})
	t.Run("Suspect/ThatDidNothingCountsNoMore", func(t *testing.T) {
		f := run("run_1", 2, "")
		for range 20 {
			res, _ := journal.SortOut([]journal.RunRef{f}, opts)
			require.Len(t, res.Claimed, 1)
			require.Equal(t, 2, res.Claimed[0].Takeovers)
		}
	})
	t.Run("Suspect/ThatWasAtWorkIsQuarantinedAndTheOthersAreInnocent", func(t *testing.T) {
		res, _ := journal.SortOut([]journal.RunRef{run("run_1", 0, ""), run("run_2", 2, ""), run("run_3", 2, "cel at n1")}, opts)
		require.Equal(t, []string{"run_3"}, ids(res.Quarantined))
		require.Equal(t, "cel at n1", res.Quarantined[0].DiedDoing)
		require.Equal(t, 3, res.Quarantined[0].Takeovers)
		require.Equal(t, []journal.Owner{dead}, res.AtWork)
		require.Equal(t, []string{"run_1", "run_2"}, ids(res.Claimed))
		require.Zero(t, res.Claimed[0].Takeovers)
		later := opts
		later.Explained = func(o journal.Owner) bool { return o == dead }
		res, _ = journal.SortOut([]journal.RunRef{run("run_4", 1, "")}, later)
		require.Equal(t, 1, res.Claimed[0].Takeovers)
	})
	t.Run("Suspect/ThatWasReadIsReadOnceMore", func(t *testing.T) {
		res, _ := journal.SortOut([]journal.RunRef{run("run_1", 2, journal.DoingReading)}, opts)
		require.Len(t, res.Claimed, 1)
		again := res.Claimed[0]
		require.Equal(t, []string{journal.DoingReading, journal.DoingReading}, []string{again.Doing, again.DiedDoing})
		res, _ = journal.SortOut([]journal.RunRef{again}, opts)
		require.Len(t, res.Quarantined, 1)
	})
	t.Run("Suspects/OneAtATime", func(t *testing.T) {
		found := []journal.RunRef{run("run_1", 2, ""), run("run_2", 2, ""), run("run_3", 2, journal.DoingReading), run("run_4", 0, "")}
		res, _ := journal.SortOut(found, opts)
		require.Equal(t, []string{"run_3", "run_4"}, ids(res.Claimed), "that which was at work comes first")
		require.True(t, res.More)
		none := opts
		none.NoSuspects = true
		res, _ = journal.SortOut(found, none)
		require.Equal(t, []string{"run_4"}, ids(res.Claimed))
		require.False(t, res.More)
	})
	t.Run("RunsOfAProcessThatOnlyLostItsLease/CountNothing", func(t *testing.T) {
		f := run("run_1", 1, "")
		f.From = self
		res, _ := journal.SortOut([]journal.RunRef{f}, opts)
		require.Empty(t, res.Quarantined)
		require.Equal(t, 1, res.Claimed[0].Takeovers)
	})
}

func TestClaim(t *testing.T) {
	dead, self := journal.Owner{ID: "a", Incarnation: 1}, journal.Owner{ID: "b", Incarnation: 3}
	former := journal.Owner{ID: "b", Incarnation: 2}
	p := journal.TakeOverPolicy{MaxTakeovers: 5, Outlived: func(o journal.Owner) bool { return o == former }}
	const waiting, quarantined, reading = journal.StateWaiting, journal.StateQuarantined, journal.DoingReading
	for name, c := range map[string]struct {
		run, now journal.Claimable
		claimed  bool
	}{
		"Free":                     {journal.Claimable{State: waiting, Takeovers: 3}, journal.Claimable{State: waiting, Owner: self, Takeovers: 3}, true},
		"OfTheDead":                {journal.Claimable{State: waiting, Owner: dead, Takeovers: 2}, journal.Claimable{State: waiting, Owner: self, Takeovers: 3}, true},
		"OfTheDeadOnceTooOften":    {journal.Claimable{State: waiting, Owner: dead, Takeovers: 3}, journal.Claimable{State: waiting, Owner: self, Takeovers: 4, Doing: reading}, true},
		"SuspectThatDidNothing":    {journal.Claimable{State: waiting, Owner: dead, Takeovers: 4}, journal.Claimable{State: waiting, Owner: self, Takeovers: 4, Doing: reading}, true},
		"SuspectThatWasAtWork":     {journal.Claimable{State: waiting, Owner: dead, Takeovers: 4, Doing: "cel at a"}, journal.Claimable{}, false},
		"SuspectThatWasRead":       {journal.Claimable{State: waiting, Owner: dead, Takeovers: 4, Doing: reading}, journal.Claimable{State: waiting, Owner: self, Takeovers: 4, Doing: reading, DiedDoing: reading}, true},
		"SuspectThatWasReadTwice":  {journal.Claimable{State: waiting, Owner: dead, Takeovers: 4, Doing: reading, DiedDoing: reading}, journal.Claimable{}, false},
		"OfAFormerLifeOfItsOwn":    {journal.Claimable{State: waiting, Owner: former, Takeovers: 3}, journal.Claimable{State: waiting, Owner: self, Takeovers: 3}, true},
		"OfTheLiving":              {journal.Claimable{State: waiting, Owner: dead, OwnerLive: true}, journal.Claimable{Owner: dead}, false},
		"Ended":                    {journal.Claimable{State: journal.StateFailed}, journal.Claimable{}, false},
		"Quarantined":              {journal.Claimable{State: quarantined, Takeovers: 5}, journal.Claimable{}, false},
		"QuarantinedAndSummoned":   {journal.Claimable{State: quarantined, Takeovers: 5, Summoned: true}, journal.Claimable{State: quarantined, Owner: self, Takeovers: 5, Doing: reading}, true},
		"SummonedAndKilledAnOwner": {journal.Claimable{State: quarantined, Owner: dead, Takeovers: 5, Doing: "cel at a", Summoned: true}, journal.Claimable{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			now, claimed := c.run.Claim(self, p)
			require.Equal(t, c.now, now)
			require.Equal(t, c.claimed, claimed)
		})
	}
}

func TestFound(t *testing.T) {
	t.Parallel()
	signal := journal.EnqueueRequest{Command: journal.Command{RunID: "run_1", Kind: journal.CommandSignal, Body: make([]byte, 100)}}
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
