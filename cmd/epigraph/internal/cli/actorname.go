package cli

import (
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/near"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// actorNamed finds an actor that the command line names. where is the flag or the argument.
func actorNamed(actors []*executorv1.ActorInfo, where, name string) (*executorv1.ActorInfo, error) {
	if at := slices.IndexFunc(actors, func(a *executorv1.ActorInfo) bool { return a.GetName() == name }); at >= 0 {
		return actors[at], nil
	}
	hint := "`epigraph actors` lists them"
	if other := nearActor(actors, name); other != "" {
		hint = "did you mean " + other + "? " + hint
	}
	return nil, usage(errs.New(errs.InvalidArgument, "ACTOR_UNKNOWN", "%s: there is no actor %q", where, name).Hint(hint))
}

// nearActor is the actor that was probably meant: one whose name ends with the given one behind a slash, or
// else the one that differs least.
func nearActor(actors []*executorv1.ActorInfo, name string) (found string) {
	least := len(name)/3 + 1
	for _, a := range actors {
		if strings.HasSuffix(a.GetName(), "/"+name) {
			return a.GetName()
		}
		if n, ok := near.Within(name, a.GetName(), least); ok {
			found, least = a.GetName(), n-1
		}
	}
	return found
}
