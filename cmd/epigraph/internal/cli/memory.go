package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// memoryScope reads a scope: namespace, or user, epic or workflow with a name behind a slash.
func memoryScope(s string) (*registryv1.MemoryScope, error) {
	level, subject, _ := strings.Cut(s, "/")
	n, known := registryv1.MemoryLevel_value["MEMORY_LEVEL_"+strings.ToUpper(level)]
	if !known || n == 0 {
		return nil, errs.New(errs.InvalidArgument, "MEMORY_SCOPE_INVALID", "%q is no scope", s).Hint("write namespace, user/NAME, epic/ID or workflow/SLUG")
	}
	return &registryv1.MemoryScope{Level: registryv1.MemoryLevel(n), Subject: subject}, nil
}

func scopeWord(s *registryv1.MemoryScope) string {
	word := view.Word(s.GetLevel().String(), "MEMORY_LEVEL_")
	if s.GetSubject() != "" {
		word += "/" + s.GetSubject()
	}
	return word
}

func memoryKinds(words []string) (out []registryv1.MemoryKind, err error) {
	for _, w := range words {
		n, known := registryv1.MemoryKind_value["MEMORY_KIND_"+strings.ToUpper(w)]
		if !known {
			return nil, errs.New(errs.InvalidArgument, "MEMORY_KIND_UNKNOWN", "%q is no kind", w).Hint("write fact, procedure or preference")
		}
		out = append(out, registryv1.MemoryKind(n))
	}
	return out, nil
}

func memoryTable(e *env, list []*registryv1.Memory) string {
	if len(list) == 0 {
		return "nothing is remembered\n"
	}
	var rows [][]string
	for _, m := range list {
		text := m.GetText()
		if text == "" {
			text = string(m.GetValue().GetJson())
		}
		rows = append(rows, []string{m.GetId(), view.OneLine(scopeWord(m.GetScope()), 30), view.Word(m.GetKind().String(), "MEMORY_KIND_"), view.OneLine(m.GetKey(), 40),
			fmt.Sprintf("%.2f", m.GetConfidence()), view.When(m.GetUpdateTime()), view.OneLine(text, 60)})
	}
	return view.Table(e.io.style(), []string{"MEMORY", "SCOPE", "KIND", "KEY", "SURE", "WRITTEN", "TEXT"}, rows)
}

type memoryLsCmd struct {
	page
	Scope string   `help:"Entries of this scope: namespace, user/NAME, epic/ID or workflow/SLUG." placeholder:"SCOPE"`
	Kinds []string `help:"Entries of these kinds: fact, procedure, preference." name:"kind" placeholder:"KIND"`
	User  string   `help:"Entries that runs and epics of this user wrote." placeholder:"ID"`
	Agent string   `help:"What this agent has learned." placeholder:"NAME"`
}

// Run lists.
func (c *memoryLsCmd) Run(e *env) error {
	req := &registryv1.ListMemoryRequest{PageSize: c.Limit, PageToken: c.Token, UserId: c.User, Agent: c.Agent}
	var err error
	if c.Scope != "" {
		if req.Scope, err = memoryScope(c.Scope); err != nil {
			return err
		}
	}
	if req.Kinds, err = memoryKinds(c.Kinds); err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.memory.ListMemory(ctx, req)
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string { return memoryTable(e, r.GetMemories()) })
	})
}

type memorySearchCmd struct {
	Query  string   `arg:"" optional:"" help:"Words to look for; without any the latest entries."`
	Scopes []string `help:"The scopes that are searched; without one that of the namespace." name:"scope" placeholder:"SCOPE"`
	Kinds  []string `help:"Entries of these kinds: fact, procedure, preference." name:"kind" placeholder:"KIND"`
	Key    string   `help:"Entries of this key." placeholder:"KEY"`
	Agent  string   `help:"What this agent has learned." placeholder:"NAME"`
	Limit  int32    `help:"How many at most." default:"10"`
}

// Run searches.
func (c *memorySearchCmd) Run(e *env) error {
	req := &registryv1.SearchMemoryRequest{Query: c.Query, Key: c.Key, Agent: c.Agent, Limit: c.Limit}
	for _, s := range c.Scopes {
		scope, err := memoryScope(s)
		if err != nil {
			return err
		}
		req.Scopes = append(req.Scopes, scope)
	}
	var err error
	if req.Kinds, err = memoryKinds(c.Kinds); err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.memory.SearchMemory(ctx, req)
		if err != nil {
			return err
		}
		return e.print(r, func() string {
			var list []*registryv1.Memory
			for _, m := range r.GetMatches() {
				list = append(list, m.GetMemory())
			}
			return memoryTable(e, list)
		})
	})
}

type memoryShowCmd struct {
	ID string `arg:"" name:"id" help:"The entry."`
}

// Run shows.
func (c *memoryShowCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		m, err := s.memory.GetMemory(ctx, &registryv1.GetMemoryRequest{MemoryId: c.ID})
		if err != nil {
			return err
		}
		return e.print(m, func() string {
			out := memoryTable(e, []*registryv1.Memory{m})
			if m.GetText() != "" {
				out += "\n" + m.GetText() + "\n"
			}
			if raw := m.GetValue().GetJson(); len(raw) > 0 {
				out += "\n" + string(raw) + "\n"
			}
			if why := m.GetVectorFault(); why != "" {
				out += "\nNot found by its meaning: " + why + "\n"
			}
			return out
		})
	})
}

type memoryWriteCmd struct {
	Key        string        `arg:"" help:"Its name in the scope; what it stood for is replaced."`
	Text       string        `arg:"" help:"What is remembered."`
	Scope      string        `help:"Whose memory it is: namespace, user/NAME, epic/ID or workflow/SLUG." default:"namespace" placeholder:"SCOPE"`
	Kind       string        `help:"fact, procedure or preference." default:"fact" placeholder:"KIND"`
	Value      string        `help:"JSON for programs." placeholder:"JSON"`
	Tags       []string      `help:"Words to find it by." name:"tag" placeholder:"WORD"`
	Confidence float64       `help:"How sure it is, from 0 to 1." default:"1"`
	TTL        time.Duration `help:"How long it is remembered; without it for ever." name:"ttl" placeholder:"DURATION"`
}

// Run writes.
func (c *memoryWriteCmd) Run(e *env) error {
	m := &registryv1.Memory{Key: c.Key, Text: c.Text, Tags: c.Tags, Confidence: &c.Confidence}
	var err error
	if m.Scope, err = memoryScope(c.Scope); err != nil {
		return err
	}
	kinds, err := memoryKinds([]string{c.Kind})
	if err != nil {
		return err
	}
	m.Kind = kinds[0]
	if c.Value != "" {
		if !json.Valid([]byte(c.Value)) {
			return errs.New(errs.InvalidArgument, "MEMORY_INVALID", "--value is no JSON").Hint("quote a text: '\"tea\"'")
		}
		m.Value = &graphv1.Payload{Json: []byte(c.Value)}
	}
	req := &registryv1.WriteMemoryRequest{Memory: m}
	if c.TTL > 0 {
		req.Ttl = durationpb.New(c.TTL)
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.memory.WriteMemory(ctx, req)
		if err != nil {
			return err
		}
		return e.print(r, func() string {
			out := fmt.Sprintf("%s is remembered\n", r.GetMemory().GetId())
			if gone := r.GetGaveWay(); len(gone) > 0 {
				out += "these gave way: " + strings.Join(gone, ", ") + "\n"
			}
			return out
		})
	})
}

type memoryRmCmd struct {
	IDs []string `arg:"" name:"id" help:"The entries."`
}

// Run deletes.
func (c *memoryRmCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		for _, id := range c.IDs {
			r, err := s.memory.DeleteMemory(ctx, &registryv1.DeleteMemoryRequest{MemoryId: id})
			if err != nil {
				return err
			}
			if err := e.print(r, func() string { return fmt.Sprintf("%s is deleted\n", id) }); err != nil {
				return err
			}
		}
		return nil
	})
}

type memoryExportCmd struct{}

// Help says in which form.
func (memoryExportCmd) Help() string { return `Each line is an entry as JSON, the oldest first.` }

// Run writes all entries.
func (c *memoryExportCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		stream, err := s.memory.ExportMemory(ctx, &registryv1.ExportMemoryRequest{})
		if err != nil {
			return err
		}
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := printJSON(e.io.Out, m); err != nil {
				return err
			}
		}
	})
}

type memoryForgetCmd struct {
	Scope      string `help:"Forget all of this scope." xor:"what" required:"" placeholder:"SCOPE"`
	User       string `help:"Forget all of this user, in every scope." xor:"what" required:"" placeholder:"ID"`
	Everything bool   `help:"Forget all that the namespace remembers." xor:"what" required:""`
}

// Run forgets.
func (c *memoryForgetCmd) Run(e *env) error {
	req := &registryv1.ForgetMemoryRequest{UserId: c.User, Everything: c.Everything}
	if c.Scope != "" {
		scope, err := memoryScope(c.Scope)
		if err != nil {
			return err
		}
		req.Scope = scope
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.memory.ForgetMemory(ctx, req)
		if err != nil {
			return err
		}
		return e.print(r, func() string {
			return fmt.Sprintf("%d entries and %d records of reads are forgotten\n", r.GetForgotten(), r.GetForgottenReads())
		})
	})
}

type memoryReadsCmd struct {
	page
}

// Run lists who has read.
func (c *memoryReadsCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.memory.ListMemoryReads(ctx, &registryv1.ListMemoryReadsRequest{PageSize: c.Limit, PageToken: c.Token})
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string {
			if len(r.GetReads()) == 0 {
				return "nobody has read\n"
			}
			var rows [][]string
			for _, x := range r.GetReads() {
				who := x.GetRunId()
				if who == "" {
					who = x.GetPrincipal()
				}
				rows = append(rows, []string{view.When(x.GetTime()), view.OneLine(who, 40), view.OneLine(x.GetUserId(), 30), view.OneLine(strings.Join(x.GetScopes(), " "), 50),
					strings.TrimSuffix(x.GetMethod(), "Memory"), fmt.Sprint(x.GetTold()), view.OneLine(x.GetQuery(), 50)})
			}
			return view.Table(e.io.style(), []string{"TIME", "WHO", "USER", "SCOPES", "BY", "TOLD", "QUERY"}, rows)
		})
	})
}
