package storetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/cataloging"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// Meter tells what the operations of a store read.
type Meter struct {
	// Again opens one more store of the database that was opened last.
	Again func(testing.TB) store.Store
	// Read is how much was read so far, by stores that are closed.
	Read func(testing.TB) int64
	// Slack is by how much a flat operation may differ.
	Slack int64
}

// RunFlat compares what operations read among some data with what they read among ten times as much.
// Searches are left out: they read more up to a bound. Counts do not depend on how busy the machine is,
// as times do.
func RunFlat(t *testing.T, filler Filler, m Meter) {
	t.Helper()
	few, many := m.reads(t, filler, Scale{Tasks: 2000, Entries: 4000, Big: 1}), m.reads(t, filler, Scale{Tasks: 20_000, Entries: 40_000, Big: 1})
	for name, n := range many {
		t.Logf("%-28s %6d %6d", name, few[name], n)
		t.Run(name, func(t *testing.T) {
			require.LessOrEqual(t, n, few[name]+m.Slack, "reads %d among 2,000 tasks, and %d among 20,000", few[name], n)
		})
	}
}

func (m Meter) reads(t *testing.T, filler Filler, s Scale) map[string]int64 {
	t.Helper()
	f := newFixture(t, filler.Open)
	filler.fill(t, s)
	require.NoError(t, f.store.Close())
	out := map[string]int64{}
	var names []string
	for _, op := range (&fixture{}).scaleOps(s) {
		names = append(names, op.name)
	}
	for i, name := range names {
		if strings.Contains(name, "search") {
			continue
		}
		before := m.Read(t)
		opened := m.Again(t)
		f := &fixture{
			Accounts: accounting.New(opened), store: opened, catalog: cataloging.New(opened),
			ctx: access.With(t.Context(), access.Principal{Kind: access.Internal}),
		}
		require.NoError(t, f.scaleOps(s)[i].run(i), name)
		require.NoError(t, opened.Close())
		out[name] = m.Read(t) - before
	}
	return out
}
