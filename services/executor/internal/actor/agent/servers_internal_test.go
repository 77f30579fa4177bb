package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
)

// heard keeps the progress that is reported.
type heard struct {
	actor.Reporter
	told []string
}

func (h *heard) Progress(at json.RawMessage) { h.told = append(h.told, string(at)) }

func TestToolsOfServers(t *testing.T) {
	t.Parallel()
	// actions are the names and the actors of an agent that has all tools of the servers.
	actions := func(t *testing.T, d *definition, names ...string) (map[string]string, []string) {
		t.Helper()
		out := d.tooled(names)
		got := map[string]string{}
		for called, a := range d.Actions {
			require.Regexp(t, actionName, called)
			got[called] = a.Actor
		}
		return got, out
	}
	t.Run("NamesThatWouldBeAlikeAreToldApart", func(t *testing.T) {
		t.Parallel()
		long := "mcp/s/" + strings.Repeat("x", 80)
		got, out := actions(t, &definition{}, "mcp/s/a b", "mcp/s/a/b", long+"1", long+"2", "mcp/s/plain")
		require.Empty(t, out)
		require.Len(t, got, 5)
		require.Equal(t, "mcp/s/plain", got["s_plain"], "one that is alone keeps its name")
		require.ElementsMatch(t, []string{"mcp/s/a b", "mcp/s/a/b", long + "1", long + "2", "mcp/s/plain"}, slices.Collect(maps.Values(got)))
	})
	t.Run("ANameIsTheSameWhicheverOthersThereAre", func(t *testing.T) {
		t.Parallel()
		two, _ := actions(t, &definition{}, "mcp/s/a b", "mcp/s/a/b")
		three, _ := actions(t, &definition{}, "mcp/s/a:b", "mcp/s/a b", "mcp/s/a/b")
		for called, name := range two {
			require.Equal(t, name, three[called])
		}
	})
	t.Run("AnActionOfTheAuthorKeepsItsName", func(t *testing.T) {
		t.Parallel()
		got, _ := actions(t, &definition{policy: policy{Actions: map[string]*action{"s_a": {Actor: "cel"}}}}, "mcp/s/a")
		require.Len(t, got, 2)
		require.Equal(t, "cel", got["s_a"])
	})
	t.Run("BeyondTheLimitTheLastAreLeftOut", func(t *testing.T) {
		t.Parallel()
		var names []string
		for n := range 70 {
			names = append(names, fmt.Sprintf("mcp/s/t%02d", 69-n))
		}
		got, out := actions(t, &definition{}, names...)
		require.Len(t, got, maxActionNames)
		require.Contains(t, got, "s_t63")
		require.Equal(t, []string{"mcp/s/t64", "mcp/s/t65", "mcp/s/t66", "mcp/s/t67", "mcp/s/t68", "mcp/s/t69"}, out)
	})
	t.Run("WhatIsLeftOutIsTold", func(t *testing.T) {
		t.Parallel()
		var names []string
		for n := range maxActionNames + 1 {
			names = append(names, fmt.Sprintf("mcp/s/t%02d", n))
		}
		h := &heard{}
		ctx := actor.WithReporter(t.Context(), h)
		var out leftOut
		out.add((&definition{}).tooled(names))
		out.tell(ctx)
		require.Len(t, h.told, 1)
		require.Contains(t, h.told[0], "mcp/s/t64")
	})
}
