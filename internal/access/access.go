// Package access owns what a caller may do: the scopes that API keys have, the roles that are sets of
// scopes, the scope that each method asks for, and who a call comes from. It must not know how
// callers prove who they are, nor what the methods do.
package access

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// Scope is a right of an API key.
type Scope string

// The scopes.
const (
	// Read reads everything of the namespace and changes nothing.
	Read Scope = "read"
	// Run reads everything of the namespace, too, and plans, starts and steers its runs, schedules,
	// epics and tasks.
	Run Scope = "run"
	// Worker opens streams of work, and so gets the arguments of all calls of the actors that it serves.
	Worker Scope = "worker"
	// Approve answers interrupts and approvals of runs.
	Approve Scope = "approve"
	// Admin changes limits, budgets, prices and keys, and exports and forgets memories.
	Admin Scope = "admin"
	// Service is the scope of calls between services. No key has it.
	Service Scope = "service"
)

// Scopes are those that a key may have.
func Scopes() []Scope { return []Scope{Read, Run, Worker, Approve, Admin} }

// Role is a set of scopes with the name that people use.
type Role string

// The roles.
const (
	// Viewer reads.
	Viewer Role = "viewer"
	// Operator reads, plans, starts and steers.
	Operator Role = "operator"
	// Approver sees interrupts and answers them.
	Approver Role = "approver"
	// Administrator does everything that a person does. It is no worker: workers see the data of all
	// calls.
	Administrator Role = "admin"
)

// Roles are all, from the one that may do least.
func Roles() []Role { return []Role{Viewer, Operator, Approver, Administrator} }

// Scopes are those of the role; none if there is no such role.
func (r Role) Scopes() []Scope {
	switch r {
	case Viewer:
		return []Scope{Read}
	case Operator:
		return []Scope{Run}
	case Approver:
		return []Scope{Approve}
	case Administrator:
		return []Scope{Read, Run, Approve, Admin}
	}
	return nil
}

// DefaultScopes are the scopes of a key that names none. They allow neither answers to interrupts of its own
// runs nor access to the data of other calls.
func DefaultScopes() []Scope { return []Scope{Run} }

// Kinds of principals.
const (
	// Open is a caller that was admitted without a credential. It has all scopes of keys and, with the scope
	// Service, those of services: without credentials there is no difference between them.
	Open = "open"
	// Key is an API key.
	Key = "key"
	// User is a person who logged in at an OpenID provider.
	User = "user"
	// Internal is another service of the installation. It may do everything.
	Internal = "service"
)

// Principal is who calls. The zero value may do nothing.
type Principal struct {
	// Kind is Open, Key, User or Internal.
	Kind string
	// Name is the name of the API key or of the user, else empty.
	Name string
	// Scopes are those of an API key or a user, or Service.
	Scopes []Scope
	// Expires is when the API key ends. It is zero for one that does not end by itself, and for others.
	Expires time.Time
}

// String is how a principal is recorded: "key:NAME", "user:NAME", "open" or "service"; empty for the
// zero value.
func (p Principal) String() string {
	if p.Kind == Key || p.Kind == User {
		return p.Kind + ":" + p.Name
	}
	return p.Kind
}

// has reports whether the principal has one of the scopes.
func (p Principal) has(needed []Scope) bool {
	switch p.Kind {
	case Internal:
		return true
	case Open:
		return !slices.Contains(needed, Service) || slices.Contains(p.Scopes, Service)
	}
	return slices.ContainsFunc(needed, func(s Scope) bool { return s != Service && slices.Contains(p.Scopes, s) })
}

// Has reports whether the principal may do what needs the scope.
func (p Principal) Has(s Scope) bool { return p.has([]Scope{s}) }

// Reads reports whether the principal may read what belongs to the namespace.
func (p Principal) Reads() bool { return p.has(read) }

// Role is the role that has the scopes of the principal, or "" if they are those of none.
func (p Principal) Role() Role {
	for _, r := range Roles() {
		if has := r.Scopes(); len(has) == len(p.Scopes) && !slices.ContainsFunc(has, func(s Scope) bool { return !slices.Contains(p.Scopes, s) }) {
			return r
		}
	}
	return ""
}

// Grants are the scopes of keys that the principal has, and so may give to others.
func (p Principal) Grants() []Scope {
	return slices.DeleteFunc(Scopes(), func(s Scope) bool { return !p.Has(s) })
}

// IsService reports whether the caller may do what services do among themselves.
func (p Principal) IsService() bool { return p.has([]Scope{Service}) }

// ReasonScope is the reason of a call that the caller's key has no scope for.
const ReasonScope = "SCOPE_MISSING"

// Authorize refuses a call of a full method name, like /epigraph.executor.v1.ExecutorService/GetRun. Methods
// that are not known are for services alone.
func Authorize(p Principal, method string) error {
	need := Needed(method)
	if p.has(need) {
		return nil
	}
	e := errs.New(errs.PermissionDenied, ReasonScope, "%s may not call %s, which needs the scope %s", who(p), short(method), orList(need))
	if slices.Contains(need, Service) {
		return e.Hint("only services of the installation call this")
	}
	e = e.Set("scope", orList(need))
	if p.Kind == User {
		return e.Hint("ask for a role that has it, by a group in gateway.oidc.issuers.grants: docs/access.md")
	}
	return e.Hint("use an API key that has it in its scopes, or a role with it: docs/access.md")
}

func who(p Principal) string {
	switch p.Kind {
	case Key:
		return fmt.Sprintf("the API key %q", p.Name)
	case User:
		return fmt.Sprintf("the user %q", p.Name)
	}
	return "this caller"
}

func short(method string) string {
	return method[strings.LastIndexByte(method, '/')+1:]
}

func orList(scopes []Scope) string {
	var names []string
	for _, s := range scopes {
		names = append(names, string(s))
	}
	return strings.Join(names, " or ")
}

// Encode returns the form in which one service names the principal to another.
func (p Principal) Encode() string {
	v := url.Values{"kind": {p.Kind}}
	if p.Name != "" {
		v.Set("name", p.Name)
	}
	for _, s := range p.Scopes {
		v.Add("scope", string(s))
	}
	if !p.Expires.IsZero() {
		v.Set("expires", strconv.FormatInt(p.Expires.UnixMicro(), 10))
	}
	return v.Encode()
}

// Decode reads what Encode wrote. It never gives a principal of kind Internal: nobody acts on behalf of a
// service.
func Decode(s string) (Principal, error) {
	v, err := url.ParseQuery(s)
	kind := v.Get("kind")
	if err != nil || kind != Key && kind != User && kind != Open {
		return Principal{}, errs.New(errs.InvalidArgument, "PRINCIPAL_INVALID", "the principal cannot be read")
	}
	p := Principal{Kind: kind, Name: v.Get("name")}
	if at := v.Get("expires"); at != "" {
		n, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return Principal{}, errs.New(errs.InvalidArgument, "PRINCIPAL_INVALID", "the end of the principal's key cannot be read")
		}
		p.Expires = time.UnixMicro(n).UTC()
	}
	for _, one := range v["scope"] {
		if scope := Scope(one); slices.Contains(Scopes(), scope) {
			p.Scopes = append(p.Scopes, scope)
		}
	}
	return p, nil
}

type principalKey struct{}

// Of returns who made the call; the zero Principal outside of one.
func Of(ctx context.Context) Principal {
	p, _ := ctx.Value(principalKey{}).(Principal)
	return p
}

// With returns a context that says who calls.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

type runKey struct{}

// WithRun returns a context whose calls are made within a run. It gives no right: it says what a change
// comes of.
func WithRun(ctx context.Context, runID string) context.Context {
	return context.WithValue(ctx, runKey{}, runID)
}

// RunOf is the run within which the call is made, or "".
func RunOf(ctx context.Context) string {
	id, _ := ctx.Value(runKey{}).(string)
	return id
}

// Maker is who makes what a run makes: the root of the run, or of the run of which that is a retry or a
// fork, and the principal that started it. Runs of one maker go on with each other's work.
type Maker struct {
	Root, Principal string
}

// Encode returns the form in which one service names the maker to another; "" for none.
func (m Maker) Encode() string {
	if m == (Maker{}) {
		return ""
	}
	return url.Values{"root": {m.Root}, "principal": {m.Principal}}.Encode()
}

// DecodeMaker reads what Encode wrote. What cannot be read is empty.
func DecodeMaker(s string) Maker {
	v, err := url.ParseQuery(s)
	if err != nil {
		return Maker{}
	}
	return Maker{Root: v.Get("root"), Principal: v.Get("principal")}
}

type makerKey struct{}

// WithMaker returns a context whose calls are made for a maker.
func WithMaker(ctx context.Context, m Maker) context.Context {
	return context.WithValue(ctx, makerKey{}, m)
}

// MakerOf is the maker for whom the call is made; zero outside of a run.
func MakerOf(ctx context.Context) Maker {
	m, _ := ctx.Value(makerKey{}).(Maker)
	return m
}

// Origin is where a call comes from, for the audit log. It gives no right.
type Origin struct {
	// Remote is the address of the caller, without a port.
	Remote string
	// UserAgent is what the caller says it is.
	UserAgent string
}

// Encode returns the form in which one service names the origin to another.
func (o Origin) Encode() string {
	return url.Values{"remote": {o.Remote}, "agent": {o.UserAgent}}.Encode()
}

// DecodeOrigin reads what Encode wrote. What cannot be read is empty.
func DecodeOrigin(s string) Origin {
	v, err := url.ParseQuery(s)
	if err != nil {
		return Origin{}
	}
	return Origin{Remote: v.Get("remote"), UserAgent: v.Get("agent")}
}

type originKey struct{}

// WithOrigin returns a context that says where the call comes from.
func WithOrigin(ctx context.Context, o Origin) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

// OriginOf is where the call comes from; zero if nobody knows.
func OriginOf(ctx context.Context) Origin {
	o, _ := ctx.Value(originKey{}).(Origin)
	return o
}
