package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

type threadsLsCmd struct {
	page
	Agent  string `help:"Threads of this agent." placeholder:"NAME"`
	Key    string `help:"Threads whose keys begin so." placeholder:"PREFIX"`
	Parent string `help:"Forks of this thread." placeholder:"ID"`

	Lifetime string `help:"Threads that are kept so: ${enum}." enum:"any,conversation,ephemeral,run" default:"any"`
}

// lifetime is the one that is asked for.
func (c *threadsLsCmd) lifetime() executorv1.ThreadLifetime {
	return executorv1.ThreadLifetime(executorv1.ThreadLifetime_value["THREAD_LIFETIME_"+strings.ToUpper(c.Lifetime)])
}

// Run lists.
func (c *threadsLsCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.threads.ListThreads(ctx, &executorv1.ListThreadsRequest{PageSize: c.Limit, PageToken: c.Token, Agent: c.Agent, KeyPrefix: c.Key, ParentId: c.Parent, Lifetime: c.lifetime()})
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string {
			if len(r.GetThreads()) == 0 {
				return "no threads\n"
			}
			var rows [][]string
			for _, t := range r.GetThreads() {
				rows = append(rows, []string{t.GetId(), view.OneLine(t.GetAgent(), 30), fmt.Sprint(t.GetLastSequence()), view.When(t.GetUseTime()),
					view.OneLine(t.GetKey(), 40), view.OneLine(t.GetTitle(), 40), t.GetRunId(), t.GetParentId()})
			}
			return view.Table(e.io.style(), []string{"THREAD", "AGENT", "ITEMS", "USED", "KEY", "TITLE", "RUN", "FORK OF"}, rows)
		})
	})
}

type threadsShowCmd struct {
	ID        string `arg:"" help:"The thread."`
	Limit     int32  `help:"Show this many items, the newest." default:"20" short:"l"`
	Token     string `help:"Token of the wanted page, as the page before printed it." name:"page-token" placeholder:"TOKEN"`
	States    bool   `help:"Show the states of its agents in place of messages." xor:"items"`
	Learnings bool   `help:"Show what its agents learned in place of messages." xor:"items"`
	Summaries bool   `help:"Show what stands for older items in place of messages." xor:"items"`
}

// Help says what the lines are.
func (threadsShowCmd) Help() string {
	return `A line is a message, or the state at the end of a round of the agent, with its sequence and its time. A fork
at the state shares the whole round. --limit counts messages, and their states come with them. --page-token goes back
to older items. --json prints the items as they are.`
}

// list reads a page of what is asked for.
func (c *threadsShowCmd) list(ctx context.Context, s *services) (m proto.Message, items []*executorv1.ThreadItem, next string, err error) {
	switch {
	case c.States:
		r, err := s.threads.ListStates(ctx, &executorv1.ListStatesRequest{ThreadId: c.ID, PageSize: c.Limit, PageToken: c.Token, Full: true})
		return r, r.GetStates(), r.GetNextPageToken(), err
	case c.Learnings:
		r, err := s.threads.ListLearnings(ctx, &executorv1.ListLearningsRequest{ThreadId: c.ID, PageSize: c.Limit, PageToken: c.Token})
		return r, r.GetLearnings(), r.GetNextPageToken(), err
	case c.Summaries:
		r, err := s.threads.ListSummaries(ctx, &executorv1.ListSummariesRequest{ThreadId: c.ID, PageSize: c.Limit, PageToken: c.Token})
		return r, r.GetSummaries(), r.GetNextPageToken(), err
	}
	r, err := s.threads.ListMessages(ctx, &executorv1.ListMessagesRequest{ThreadId: c.ID, PageSize: c.Limit, PageToken: c.Token})
	return r, r.GetMessages(), r.GetNextPageToken(), err
}

// Run shows.
func (c *threadsShowCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		t, err := s.threads.GetThread(ctx, &executorv1.GetThreadRequest{ThreadId: c.ID})
		if err != nil {
			return err
		}
		list, items, next, err := c.list(ctx, s)
		if err != nil {
			return err
		}
		if e.json {
			return printWith(e, "thread", t, list)
		}
		if c.Token == "" && !c.States && !c.Learnings && !c.Summaries {
			st, err := s.threads.ListStates(ctx, &executorv1.ListStatesRequest{ThreadId: c.ID, PageSize: c.Limit})
			if err != nil {
				return err
			}
			items = itemsOf(items, st.GetStates())
		}
		defer e.more(next)
		return e.say(threadText(e, t, items))
	})
}

// printWith writes a list as one JSON object with one more field.
func printWith(e *env, name string, field, list proto.Message) error {
	var one, all bytes.Buffer
	if err := errors.Join(printJSON(&one, field), printJSON(&all, list)); err != nil {
		return err
	}
	out := map[string]json.RawMessage{}
	if err := json.Unmarshal(all.Bytes(), &out); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	out[name] = one.Bytes()
	return printValue(e.io.Out, out)
}

// itemsOf are messages and states as far back as both go, the newest first.
func itemsOf(messages, states []*executorv1.ThreadItem) []*executorv1.ThreadItem {
	all := slices.Concat(messages, states)
	slices.SortFunc(all, func(a, b *executorv1.ThreadItem) int { return cmp.Compare(b.GetSequence(), a.GetSequence()) })
	if len(messages) > 0 {
		first := messages[len(messages)-1].GetSequence()
		all = slices.DeleteFunc(all, func(it *executorv1.ThreadItem) bool { return it.GetSequence() < first })
	}
	return all
}

// itemText is an item in words: who said what, and of a state where the task stood.
func itemText(it *executorv1.ThreadItem) string {
	switch it.GetKind() {
	case executorv1.ThreadItemKind_THREAD_ITEM_KIND_STATE:
	case executorv1.ThreadItemKind_THREAD_ITEM_KIND_MESSAGE:
		return messageText(it.GetBody().GetJson())
	default:
		return string(it.GetBody().GetJson())
	}
	var brief struct {
		Status      string `json:"task_status"`
		Description string `json:"task_status_description"`
	}
	if json.Unmarshal(it.GetBrief().GetJson(), &brief) != nil {
		return "state"
	}
	return strings.TrimSpace("state: " + brief.Status + " " + brief.Description)
}

// messageText is a message with the calls of tools in it. One of no known form is shown as it is.
func messageText(raw json.RawMessage) string {
	var m struct {
		Role    string `json:"role"`
		Name    string `json:"name"` // who of a team says it
		Content string `json:"content"`
		Calls   []struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"tool_calls"`
		Failed bool `json:"is_error"`
	}
	if json.Unmarshal(raw, &m) != nil || m.Role == "" {
		return string(raw)
	}
	who := map[string]string{"assistant": cmp.Or(m.Name, "agent"), "tool": "result"}[m.Role]
	if m.Failed {
		who = "error"
	}
	out := cmp.Or(who, m.Role) + ": " + m.Content
	for _, c := range m.Calls {
		out += fmt.Sprintf(" → %s %s", c.Name, plain(c.Arguments))
	}
	return out
}

// threadText shows a thread with items that are newest first.
func threadText(e *env, t *executorv1.Thread, items []*executorv1.ThreadItem) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s\n", e.io.style().Bold(t.GetId()), view.OneLine(t.GetAgent(), 60), view.OneLine(t.GetTitle(), 60))
	if t.GetKey() != "" {
		fmt.Fprintf(&b, "key: %s\n", view.OneLine(t.GetKey(), 120))
	}
	if t.GetParentId() != "" {
		fmt.Fprintf(&b, "fork of: %s after item %d\n", t.GetParentId(), t.GetParentSequence())
	}
	if t.GetRunId() != "" {
		fmt.Fprintf(&b, "run: %s\n", t.GetRunId())
	}
	for _, it := range slices.Backward(items) {
		fmt.Fprintf(&b, "%6d  %s  %s\n", it.GetSequence(), view.When(it.GetTime()), view.OneLine(itemText(it), 160))
	}
	return b.String()
}

type threadsForkCmd struct {
	ID        string `arg:"" help:"The thread to fork."`
	At        int64  `help:"The last item that both share; default the last one there is." placeholder:"N"`
	Title     string `help:"Title of the fork." placeholder:"TEXT"`
	Agent     string `help:"Agent of the fork; default that of the thread." placeholder:"NAME"`
	RequestID string `help:"Make the command repeatable: the same id makes one fork." placeholder:"ID"`
}

// Help gives an example.
func (threadsForkCmd) Help() string {
	return `Nothing is copied, and the thread itself stays as it is. A fork at the state of a round shares the whole round:
"epigraph threads show" lists the sequences.

    epigraph threads fork thr_01h455vb4pex5vsknk084sn02q --at 10`
}

// Run forks.
func (c *threadsForkCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		t, err := s.threads.ForkThread(ctx, &executorv1.ForkThreadRequest{ThreadId: c.ID, Sequence: c.At, RequestId: c.RequestID,
			Thread: &executorv1.Thread{Title: c.Title, Agent: c.Agent}})
		if err != nil {
			return err
		}
		return e.print(t, func() string { return threadText(e, t, nil) })
	})
}

type threadsRmCmd struct {
	ID string `arg:"" help:"The thread."`
}

// Help says what stays.
func (threadsRmCmd) Help() string { return `Its forks and its runs stay.` }

// Run deletes.
func (c *threadsRmCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.threads.DeleteThread(ctx, &executorv1.DeleteThreadRequest{ThreadId: c.ID})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return "deleted\n" })
	})
}

type threadsTurnsCmd struct {
	page
	ID string `arg:"" help:"The thread."`
}

// Run lists.
func (c *threadsTurnsCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.threads.ListTurns(ctx, &executorv1.ListTurnsRequest{ThreadId: c.ID, PageSize: c.Limit, PageToken: c.Token})
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string {
			if len(r.GetTurns()) == 0 {
				return "no turns\n"
			}
			var rows [][]string
			for _, t := range r.GetTurns() {
				rows = append(rows, []string{fmt.Sprint(t.GetNumber()), e.io.style().State(strings.TrimPrefix(t.GetState().String(), "TURN_STATE_")), t.GetRunId(),
					view.When(t.GetCreateTime()), view.OneLine(string(t.GetContent().GetJson()), 60), view.OneLine(t.GetError(), 60)})
			}
			return view.Table(e.io.style(), []string{"TURN", "STATE", "RUN", "SENT", "MESSAGE", "WHY"}, rows)
		})
	})
}
