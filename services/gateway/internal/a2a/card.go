package a2a

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/exposed"
)

const (
	// maxSkills bounds the skills of a card, maxText a text of it in bytes, and maxTags the tags of a skill.
	maxSkills, maxText, maxTags = 200, 1 << 10, 20
	// keyScheme names the one way to show who calls.
	keyScheme = "key"
)

// Card answers a request for a card. Whoever shows no key gets it without what the namespace has.
func (s *Server) Card(w http.ResponseWriter, r *http.Request, stranger bool) error {
	agent, _ := address(strings.TrimSuffix(r.URL.Path, CardPath))
	if len(agent) > maxName {
		return errs.New(errs.InvalidArgument, "AGENT_INVALID", "the name of the agent has more than %d bytes", maxName)
	}
	of := request{agent: agent, base: s.base(r)}
	card := s.plain(of)
	if !stranger {
		var err error
		if card, err = s.card(r.Context(), of); err != nil {
			return err
		}
	}
	out, err := both(card)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(out) // the client is gone if this fails
	return nil
}

// both is a card in one form for the clients of version 1.0 of the protocol and of 0.3, whose fields
// have other names.
func both(card *spec.AgentCard) ([]byte, error) {
	raw, err := json.Marshal(card)
	if err != nil {
		return nil, err
	}
	var all map[string]any
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	all["protocolVersion"], all["url"], all["preferredTransport"] = "0.3.0", card.SupportedInterfaces[0].URL, spec.TransportProtocolJSONRPC
	all["supportsAuthenticatedExtendedCard"] = card.Capabilities.ExtendedAgentCard
	all["security"] = []any{map[string]any{keyScheme: []string{}}}
	if schemes, ok := all["securitySchemes"].(map[string]any); ok {
		if key, ok := schemes[keyScheme].(map[string]any); ok {
			key["type"], key["scheme"] = "http", "bearer"
		}
	}
	return json.Marshal(all)
}

// plain is a card without skills.
func (s *Server) plain(of request) *spec.AgentCard {
	at, name := of.base+Root, "Epigraph"
	if of.agent != "" {
		at, name = at+"/"+of.agent, of.agent
	}
	earlier := spec.NewAgentInterface(at, spec.TransportProtocolJSONRPC)
	earlier.ProtocolVersion = a2av0.Version
	return &spec.AgentCard{
		Name: name, Description: "Agents and workflows that run durably: a task is a run, and a context a thread.",
		Version: cmp.Or(s.Version, "dev"),
		SupportedInterfaces: []*spec.AgentInterface{
			spec.NewAgentInterface(at, spec.TransportProtocolJSONRPC), spec.NewAgentInterface(at, spec.TransportProtocolHTTPJSON), earlier,
		},
		Capabilities:      spec.AgentCapabilities{Streaming: true, ExtendedAgentCard: true},
		DefaultInputModes: []string{"text/plain", "application/json"}, DefaultOutputModes: []string{"text/plain", "application/json"},
		Skills:               []spec.AgentSkill{},
		SecuritySchemes:      spec.NamedSecuritySchemes{keyScheme: spec.HTTPAuthSecurityScheme{Scheme: "Bearer", Description: "An API key of the namespace."}},
		SecurityRequirements: spec.SecurityRequirementsOptions{{keyScheme: {}}},
	}
}

// card is the card of an agent, or that of all.
func (s *Server) card(ctx context.Context, of request) (*spec.AgentCard, error) {
	skills, err := s.skills(ctx)
	if err != nil {
		return nil, err
	}
	card := s.plain(of)
	if of.agent == "" {
		card.Skills = skills[:min(len(skills), maxSkills)]
		return card, nil
	}
	for _, name := range names(of.agent) {
		i := slices.IndexFunc(skills, func(k spec.AgentSkill) bool { return k.ID == name })
		if i < 0 {
			continue
		}
		of.agent = name
		card = s.plain(of)
		card.Name, card.Skills = skills[i].Name, skills[i:i+1]
		if skills[i].Description != "" {
			card.Description = skills[i].Description
		}
		return card, nil
	}
	return nil, errs.New(errs.NotFound, "AGENT_NOT_FOUND", "there is no agent %q, and no exposed workflow of that name that a chat starts", of.agent).
		Hint("the card at " + CardPath + " lists agents, and exposed workflows that a chat starts")
}

// skills are the agents, and the exposed workflows that a chat starts.
func (s *Server) skills(ctx context.Context) ([]spec.AgentSkill, error) {
	actors, err := s.Executor.ListActors(ctx, &executorv1.ListActorsRequest{})
	if err != nil {
		return nil, err
	}
	var out []spec.AgentSkill
	for _, a := range actors.GetActors() {
		if strings.HasPrefix(a.GetName(), agentPrefix) {
			out = append(out, spec.AgentSkill{ID: a.GetName(), Name: strings.TrimPrefix(a.GetName(), agentPrefix), Description: text(a.GetDescription(), "An agent."), Tags: []string{"agent"}})
		}
	}
	workflows, err := s.Workflows.Chats(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range workflows {
		tags := append([]string{"workflow"}, f.GetTags()...)
		out = append(out, spec.AgentSkill{ID: exposed.Ref(f), Name: text(f.GetName(), f.GetSlug()), Description: text(f.GetDescription(), "A workflow."), Tags: tags[:min(len(tags), maxTags)]})
	}
	slices.SortFunc(out, func(a, b spec.AgentSkill) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

func text(s, otherwise string) string { return errs.Clip(cmp.Or(s, otherwise), maxText) }
