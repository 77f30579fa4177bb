package graphpb

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

type writer struct{ faultList }

type reader struct{ faultList }

func (w *writer) node(n *workgraph.Node) *graphv1.Node {
	out := &graphv1.Node{
		Id: n.ID, Name: n.Name, Kind: encode(w, "kind", kinds, n.Kind), Actor: n.Actor,
		Args: Payloads(n.Args), Named: PayloadMap(n.Named),
		Transform: n.Transform, ResultPassDownMode: w.passDown(n.PassDown), When: n.When,
		Timeout: duration(n.Timeout), IdleTimeout: duration(n.IdleTimeout),
		MaxVisits: w.int32("max_visits", n.MaxVisits), ConcurrencyKey: n.ConcurrencyKey, Thread: n.Thread,
		Effect: encode(w, "effect", effects, n.Effect),
	}
	for arg, b := range n.Bind {
		if out.Bind == nil {
			out.Bind = make(map[string]*graphv1.Binding, len(n.Bind))
		}
		wire := &graphv1.Binding{Value: Payload(b.Value)}
		for _, u := range b.Uses {
			wire.Uses = append(wire.Uses, &graphv1.ResultUse{Mark: u.Mark, Node: u.Node, Field: u.Field, OrWhole: u.OrWhole})
		}
		out.Bind[arg] = wire
	}
	if n.Join != (workgraph.Join{}) {
		out.Join = &graphv1.Join{Kind: encode(w, "join.kind", joins, n.Join.Mode), Quorum: w.int32("join.quorum", n.Join.N),
			Losers: encode(w, "join.losers", losers, n.Join.Losers)}
	}
	if n.On != nil {
		out.On = &graphv1.Activation{}
		if in := n.On.Inbox; in != nil {
			out.On.Inbox = &graphv1.Inbox{From: in.From, BatchSize: w.int32("on.inbox.batch_size", in.BatchSize), Ttl: duration(in.TTL)}
		}
	}
	if r := n.Retry; r != (workgraph.Retry{}) {
		out.Retry = &graphv1.Retry{MaxAttempts: w.int32("retry.max_attempts", r.MaxAttempts), InitialInterval: duration(r.InitialBackoff),
			BackoffFactor: r.Multiplier, MaxInterval: duration(r.MaxBackoff), Jitter: r.Jitter}
	}
	if n.Check != nil {
		out.Check = &graphv1.Check{JsonSchema: Payload(n.Check.Schema), Cel: n.Check.CEL}
	}
	if n.OnError.Action != "" || n.OnError.Value != nil {
		out.OnError = &graphv1.OnError{Kind: encode(w, "on_error.kind", onErrors, n.OnError.Action), Fallback: Payload(n.OnError.Value)}
	}
	if m := n.Map; m != nil {
		out.Map = &graphv1.Map{Over: m.Over, As: m.As, MaxParallel: w.int32("map.max_parallel", m.MaxParallel),
			OnItemError: encode(w, "map.on_item_error", itemErrors, m.OnItemError), Quorum: w.int32("map.quorum", m.Quorum), Until: m.Until}
	}
	if n.Cache != nil {
		out.Cache = &graphv1.Cache{Ttl: duration(n.Cache.TTL), Scope: encode(w, "cache.scope", cacheScopes, n.Cache.Scope), Key: n.Cache.Key}
	}
	return out
}

func (r *reader) node(n *graphv1.Node) workgraph.Node {
	out := workgraph.Node{
		ID: n.GetId(), Name: n.GetName(), Kind: decode(r, "kind", kinds, n.GetKind()), Actor: n.GetActor(),
		Args: r.list("args", n.GetArgs()), Named: r.named("named", n.GetNamed()),
		Transform: n.GetTransform(), PassDown: r.passDown(n.GetResultPassDownMode()), When: n.GetWhen(),
		Timeout: r.duration("timeout", n.GetTimeout()), IdleTimeout: r.duration("idle_timeout", n.GetIdleTimeout()),
		MaxVisits: int(n.GetMaxVisits()), ConcurrencyKey: n.GetConcurrencyKey(), Thread: n.GetThread(),
		Effect: decode(r, "effect", effects, n.GetEffect()),
	}
	for _, arg := range slices.Sorted(maps.Keys(n.GetBind())) {
		if out.Bind == nil {
			out.Bind = make(map[string]workgraph.Binding, len(n.GetBind()))
		}
		wire := n.GetBind()[arg]
		b := workgraph.Binding{Value: r.optional("bind."+arg+".value", wire.GetValue())}
		for _, u := range wire.GetUses() {
			b.Uses = append(b.Uses, workgraph.ResultUse{Mark: u.GetMark(), Node: u.GetNode(), Field: u.GetField(), OrWhole: u.GetOrWhole()})
		}
		out.Bind[arg] = b
	}
	if j := n.GetJoin(); j != nil {
		out.Join = workgraph.Join{Mode: decode(r, "join.kind", joins, j.GetKind()), N: int(j.GetQuorum()),
			Losers: decode(r, "join.losers", losers, j.GetLosers())}
	}
	if on := n.GetOn(); on != nil {
		out.On = &workgraph.Trigger{}
		if in := on.GetInbox(); in != nil {
			out.On.Inbox = &workgraph.Inbox{From: in.GetFrom(), BatchSize: int(in.GetBatchSize()), TTL: r.duration("on.inbox.ttl", in.GetTtl())}
		}
	}
	if t := n.GetRetry(); t != nil {
		out.Retry = workgraph.Retry{MaxAttempts: int(t.GetMaxAttempts()), InitialBackoff: r.duration("retry.initial_interval", t.GetInitialInterval()),
			Multiplier: t.GetBackoffFactor(), MaxBackoff: r.duration("retry.max_interval", t.GetMaxInterval()), Jitter: t.GetJitter()}
	}
	if c := n.GetCheck(); c != nil {
		out.Check = &workgraph.Check{Schema: r.optional("check.json_schema", c.GetJsonSchema()), CEL: c.GetCel()}
	}
	if e := n.GetOnError(); e != nil {
		out.OnError = workgraph.OnError{Action: decode(r, "on_error.kind", onErrors, e.GetKind()), Value: r.optional("on_error.fallback", e.GetFallback())}
	}
	if m := n.GetMap(); m != nil {
		out.Map = &workgraph.Map{Over: m.GetOver(), As: m.GetAs(), MaxParallel: int(m.GetMaxParallel()),
			OnItemError: decode(r, "map.on_item_error", itemErrors, m.GetOnItemError()), Quorum: int(m.GetQuorum()), Until: m.GetUntil()}
	}
	if c := n.GetCache(); c != nil {
		out.Cache = &workgraph.Cache{TTL: r.duration("cache.ttl", c.GetTtl()), Scope: decode(r, "cache.scope", cacheScopes, c.GetScope()), Key: c.GetKey()}
	}
	return out
}

func (w *writer) passDown(p workgraph.PassDown) *graphv1.PassDown {
	switch p.Mode {
	case "":
		return nil
	case workgraph.NoPassDown:
		return &graphv1.PassDown{Mode: &graphv1.PassDown_NoPassDown{NoPassDown: &graphv1.NoPassDown{}}}
	case workgraph.ResultAsFirstArg:
		return &graphv1.PassDown{Mode: &graphv1.PassDown_ResultAsFirstArg{ResultAsFirstArg: &graphv1.ResultAsFirstArg{}}}
	case workgraph.ResultAsLeadingArgs:
		return &graphv1.PassDown{Mode: &graphv1.PassDown_ResultAsLeadingArgs{ResultAsLeadingArgs: &graphv1.ResultAsLeadingArgs{}}}
	case workgraph.KeyPassDown:
		return &graphv1.PassDown{Mode: &graphv1.PassDown_Key{Key: p.Key}}
	case workgraph.MergePassDown:
		return &graphv1.PassDown{Mode: &graphv1.PassDown_Merge{Merge: p.Expr}}
	}
	w.add(CodeEnum, "result_pass_down_mode", fmt.Sprintf("%q is not a result_pass_down_mode", p.Mode),
		"use NO_PASS_DOWN, RESULT_AS_FIRST_ARG, RESULT_AS_LEADING_ARGS, KEY or MERGE")
	return nil
}

func (r *reader) passDown(p *graphv1.PassDown) workgraph.PassDown {
	switch m := p.GetMode().(type) {
	case *graphv1.PassDown_NoPassDown:
		return workgraph.PassDown{Mode: workgraph.NoPassDown}
	case *graphv1.PassDown_ResultAsFirstArg:
		return workgraph.PassDown{Mode: workgraph.ResultAsFirstArg}
	case *graphv1.PassDown_ResultAsLeadingArgs:
		return workgraph.PassDown{Mode: workgraph.ResultAsLeadingArgs}
	case *graphv1.PassDown_Key:
		return workgraph.Key(m.Key)
	case *graphv1.PassDown_Merge:
		return workgraph.Merge(m.Merge)
	}
	return workgraph.PassDown{}
}

func (w *writer) int32(field string, n int) int32 {
	if n < math.MinInt32 || n > math.MaxInt32 {
		w.add(CodeEnum, field, fmt.Sprintf("%d is out of range", n), "stay within 32 bits")
		return 0
	}
	return int32(n)
}

func (r *reader) optional(field string, p *graphv1.Payload) json.RawMessage {
	raw, _ := r.payload(field, p)
	return raw
}

func (r *reader) required(field string, p *graphv1.Payload) json.RawMessage {
	raw, ok := r.payload(field, p)
	if ok && raw == nil {
		return json.RawMessage("null")
	}
	return raw
}

func (r *reader) list(field string, ps []*graphv1.Payload) []json.RawMessage {
	if len(ps) == 0 {
		return nil
	}
	out := make([]json.RawMessage, len(ps))
	for i, p := range ps {
		out[i] = r.required(fmt.Sprintf("%s[%d]", field, i), p)
	}
	return out
}

func (r *reader) named(field string, ps map[string]*graphv1.Payload) map[string]json.RawMessage {
	if len(ps) == 0 {
		return nil
	}
	out := make(map[string]json.RawMessage, len(ps))
	for _, k := range slices.Sorted(maps.Keys(ps)) {
		out[k] = r.required(field+"."+k, ps[k])
	}
	return out
}
