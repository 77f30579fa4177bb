package executor

import (
	"context"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/builtin"
	"github.com/epigraph-run/epigraph/workgraph"
)

// catalog is the built-in actors with those that the host adds.
type catalog struct {
	builtin *builtin.Set
	more    workgraph.Actors
}

func (c catalog) ActorInfo(name string) (workgraph.ActorInfo, bool) {
	if info, ok := c.more.ActorInfo(name); ok {
		return info, true
	}
	return c.builtin.ActorInfo(name)
}

// Learn, Absent and Changes are those of builtin.Set.
func (c catalog) Learn(ctx context.Context, name string) {
	if c.more[name] == nil {
		c.builtin.Learn(ctx, name)
	}
}

func (c catalog) Absent(name string) bool { return c.more[name] == nil && c.builtin.Absent(name) }

func (c catalog) Changes(name string) bool { return c.more[name] == nil && c.builtin.Changes(name) }

func (c catalog) Actor(name string) (workgraph.Actor, bool) {
	if a, ok := c.more[name]; ok {
		return a, true
	}
	return c.builtin.Actor(name)
}

func (c catalog) Names() []string {
	out := make([]string, 0, len(c.more))
	for _, s := range c.specs() {
		if s.Actor != nil && !s.Internal { // those without an actor stand for many
			out = append(out, s.Name)
		}
	}
	return out
}

func (c catalog) specs() []actor.Spec {
	var out []actor.Spec
	for _, s := range c.builtin.Specs() {
		if _, replaced := c.more[s.Name]; !replaced {
			out = append(out, s)
		}
	}
	for name, a := range c.more {
		info, _ := c.more.ActorInfo(name)
		out = append(out, actor.Spec{Name: name, Version: info.Version, Effect: info.Effect, EffectOf: info.EffectOf, SeesPlace: info.SeesPlace, Computes: info.Computes,
			Elsewhere: info.Elsewhere, Schema: string(info.Schema), Examine: info.Examine, Expands: !info.NeverExpands, Actor: a})
	}
	slices.SortFunc(out, func(a, b actor.Spec) int { return strings.Compare(a.Name, b.Name) })
	return out
}
