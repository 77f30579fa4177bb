package team

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workflow/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Kept is the state that a team leaves in its thread, so that a later run goes on with it.
type Kept struct {
	Team *team.State `json:"team"`
	// Members are the names of those who belonged to the team, by which another team is told apart.
	Members []string `json:"members,omitempty"`
	// Threads are those of the members, by name.
	Threads map[string]string `json:"threads,omitempty"`
	// Ends are the last items of these threads that are the team's. What comes after them is of a turn
	// that failed, or of a run that was forked from this one or from which this one was forked.
	Ends map[string]int64 `json:"ends,omitempty"`
}

// Keeps reports whether the state of a thread is that of a team. It is no proof that the rest can be
// read.
func Keeps(state json.RawMessage) bool {
	var k struct {
		Team *struct{} `json:"team"`
	}
	return json.Unmarshal(state, &k) == nil && k.Team != nil
}

// ReadKept reads a state from elsewhere that was kept at a sequence of its thread. Fields that it does
// not know are refused by name.
func ReadKept(state json.RawMessage, seq int64) (*Kept, error) {
	k := &Kept{}
	dec := json.NewDecoder(bytes.NewReader(state))
	dec.DisallowUnknownFields()
	if err := dec.Decode(k); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows it")
	}
	if k.Team == nil {
		return nil, errors.New("it has no team")
	}
	if err := k.Team.Check(seq); err != nil {
		return nil, fmt.Errorf("team: %w", err)
	}
	for name, end := range k.Ends {
		if _, ok := k.Threads[name]; !ok || end < 0 {
			return nil, fmt.Errorf("ends of %.80q is %d, and threads names none, or it is negative", name, end)
		}
	}
	return k, nil
}

// Mapped is the state with other ids of threads. Those for which to returns nothing are left out, and
// the team gives such a member a new thread. It is written anew, so that no key is in it that another
// reader takes for one of these.
func (k *Kept) Mapped(to func(id string) string) (json.RawMessage, error) {
	own := *k
	own.Threads, own.Ends = map[string]string{}, map[string]int64{}
	for name, id := range k.Threads {
		next := to(id)
		if next == "" {
			continue
		}
		own.Threads[name] = next
		if end, ok := k.Ends[name]; ok {
			own.Ends[name] = end
		}
	}
	return actor.Encode(own)
}

// ReasonOtherTeam is the reason of a team that is to go on with the thread of another one.
const ReasonOtherTeam = "TEAM_IS_ANOTHER"

// of reports that the state is that of another team: one that has no member in common. A team that lost
// or got members goes on.
func (k *Kept) of(t *team.Team, threadID string) error {
	names := make([]string, len(t.Members))
	for i := range t.Members {
		names[i] = t.Members[i].Name
	}
	if len(k.Members) > 0 && !slices.ContainsFunc(k.Members, func(name string) bool { return slices.Contains(names, name) }) {
		return workgraph.Errorf(workgraph.Permanent, ReasonOtherTeam, "the thread %s is that of a team of %s, and this is one of %s: go on with the workflow that made the thread, or give the team a new one",
			threadID, some(k.Members), some(names))
	}
	k.Members = names
	return nil
}

// some are the first few names of a list.
func some(names []string) string {
	if len(names) > 5 {
		names = append(slices.Clone(names[:5]), fmt.Sprintf("%d more", len(names)-5))
	}
	return fmt.Sprintf("%.200q", names)
}
