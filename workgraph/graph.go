package workgraph

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Graph is the work of one run: nodes that call actors, and edges that order the nodes and carry values. The
// declared order matters: it decides the order of join inputs, of results and of upstream lists. A Graph is
// plain data. Validate says whether it can run; Compile makes it runnable.
type Graph struct {
	Name  string `json:"name,omitempty"`
	Nodes []Node `json:"nodes"`
	Edges []Edge `json:"edges,omitempty"`
	// State declares the keys that outcomes may update and how concurrent updates combine.
	State map[string]StateKey `json:"state,omitempty"`
}

// Node is one step of a graph. Only ID and Actor are required. The zero value of every other field is its
// default.
type Node struct {
	ID    string `json:"id"`
	Name  string `json:"name,omitempty"`
	Kind  Kind   `json:"kind,omitempty"`
	Actor string `json:"actor"`
	// Args and Named are the node's own arguments, bound as in a partial application. The actor is called
	// with Args followed by the propagated positional arguments, and with Named overlaid by the propagated
	// named ones.
	Args  []json.RawMessage          `json:"args,omitempty"`
	Named map[string]json.RawMessage `json:"named,omitempty"`
	// Bind are named arguments that are made of the results of nodes before. They win over all others of
	// their names, and are not propagated.
	Bind map[string]Binding `json:"bind,omitempty"`
	// Transform is a CEL expression over the outcome; its value becomes the visit's single value.
	Transform string   `json:"transform,omitempty"`
	PassDown  PassDown `json:"result_pass_down_mode,omitzero"`
	Join      Join     `json:"join,omitzero"`
	// When is a CEL condition that is evaluated once the join is met. False skips the visit.
	When string `json:"when,omitempty"`
	// On says what activates the node. Nil stands for its edges.
	On      *Trigger `json:"on,omitempty"`
	Retry   Retry    `json:"retry,omitzero"`
	Check   *Check   `json:"check,omitempty"`
	Timeout Duration `json:"timeout,omitempty"`
	// IdleTimeout bounds the time between two heartbeats of one attempt.
	IdleTimeout Duration `json:"idle_timeout,omitempty"`
	OnError     OnError  `json:"on_error,omitzero"`
	Map         *Map     `json:"map,omitempty"`
	// MaxVisits bounds how often a run may reach the node. 0 is DefaultMaxVisits; Unlimited turns the bound
	// off. A run that reaches the bound is paused and keeps its work.
	MaxVisits int    `json:"max_visits,omitempty"`
	Cache     *Cache `json:"cache,omitempty"`
	// ConcurrencyKey is a CEL expression that gives a string. Attempts with equal keys never overlap; the
	// caller that starts the attempts enforces this.
	ConcurrencyKey string `json:"concurrency_key,omitempty"`
	// Thread is reserved: Validate refuses a graph that sets it, because no actor works on a thread.
	Thread string `json:"thread,omitempty"`
	// Effect overrides the effect that the actor declares. Compile fills it in, so every node of a compiled
	// graph has one.
	Effect Effect `json:"effect,omitempty"`
}

// Edge orders To after From and carries From's values.
type Edge struct {
	From string   `json:"from"`
	To   string   `json:"to"`
	Kind EdgeKind `json:"kind,omitempty"`
	// When is a CEL condition that is evaluated when From ends. False makes the edge dead.
	When string `json:"when,omitempty"`
	// PassDown overrides From's mode for this edge if its Mode is set.
	PassDown PassDown `json:"result_pass_down_mode,omitzero"`
}

// DefaultMaxVisits bounds a loop that states no bound of its own. Unlimited turns the bound off.
const (
	DefaultMaxVisits = 100
	Unlimited        = -1
)

// MaxParallelItems bounds how many items of one map may be under way at once. Each of them is held in memory
// from the time when it may begin.
const MaxParallelItems = 1_000

// DefaultMapParallel is how many items of a map run at once if the map does not say.
const DefaultMapParallel = 16

// Kind tells readers what a node stands for. The machine treats all kinds alike.
type Kind string

// The kinds that this project knows. The empty kind counts as ActionKind.
const (
	ActionKind     Kind = "ACTION"
	AgentKind      Kind = "AGENT"
	SummarizerKind Kind = "SUMMARIZER"
	ProblemKind    Kind = "PROBLEM"
	// ToolKind is a node that carries out what an agent's reasoner asked for. The node's name is the tool's.
	ToolKind Kind = "TOOL"
)

// EdgeKind tells DATA, ERROR and BACK edges apart. The empty kind is DataEdge.
type EdgeKind string

// ErrorEdge is live only when From failed under the Route policy; BackEdge closes a declared loop.
const (
	DataEdge  EdgeKind = "DATA"
	ErrorEdge EdgeKind = "ERROR"
	BackEdge  EdgeKind = "BACK"
)

// Effect says what repeating an attempt would do to the world.
type Effect string

// Pure and Idempotent attempts may be repeated when their outcome is unknown. Unsafe ones never are.
const (
	Pure       Effect = "PURE"
	Idempotent Effect = "IDEMPOTENT"
	Unsafe     Effect = "UNSAFE"
)

// PassDownMode names a way in which a result is passed on to the next nodes.
type PassDownMode string

// The modes. The empty mode is NoPassDown on a node, and the mode of the node on an edge.
const (
	NoPassDown          PassDownMode = "NO_PASS_DOWN"
	ResultAsFirstArg    PassDownMode = "RESULT_AS_FIRST_ARG"
	ResultAsLeadingArgs PassDownMode = "RESULT_AS_LEADING_ARGS"
	KeyPassDown         PassDownMode = "KEY"
	MergePassDown       PassDownMode = "MERGE"
)

// PassDown is a mode with its parameter.
type PassDown struct {
	Mode PassDownMode `json:"mode,omitempty"`
	// Key is the named argument of KEY.
	Key string `json:"key,omitempty"`
	// Expr is the CEL map {args, named} of MERGE. A part that is absent or null stays as it was.
	Expr string `json:"expr,omitempty"`
}

// Key passes the result on as the named argument name.
func Key(name string) PassDown { return PassDown{Mode: KeyPassDown, Key: name} }

// Merge passes on the value of expr, which is a CEL map {args, named}.
func Merge(expr string) PassDown { return PassDown{Mode: MergePassDown, Expr: expr} }

// FirstArg replaces the first propagated positional argument by the result.
func FirstArg() PassDown { return PassDown{Mode: ResultAsFirstArg} }

// LeadingArgs puts every element of the result before the propagated positional arguments.
func LeadingArgs() PassDown { return PassDown{Mode: ResultAsLeadingArgs} }

// JoinMode says when a node with several incoming edges runs. The empty mode is All.
type JoinMode string

// All waits for every incoming edge, Any for the first live one, Quorum for N live ones.
const (
	All    JoinMode = "ALL"
	Any    JoinMode = "ANY"
	Quorum JoinMode = "QUORUM"
)

// Losers says what happens to work that an ANY or QUORUM join no longer needs. The empty value is
// FinishLosers.
type Losers string

// CancelLosers stops attempts that serve nothing but the join. FinishLosers lets them end and ignores what
// they deliver.
const (
	CancelLosers Losers = "CANCEL"
	FinishLosers Losers = "FINISH"
)

// Join is a node's join rule.
type Join struct {
	Mode   JoinMode `json:"mode,omitempty"`
	N      int      `json:"n,omitempty"`
	Losers Losers   `json:"losers,omitempty"`
}

// Retry bounds repeated attempts. MaxAttempts counts all calls; 0 stands for 3, or for 1 on an UNSAFE node.
// An UNSAFE node is retried only after an attempt that was not performed. A lost attempt (Error.Lost) is
// repeated and does not count.
type Retry struct {
	MaxAttempts int `json:"max_attempts,omitempty"`
	// InitialBackoff (1s unless set) grows by Multiplier (2 unless set) up to MaxBackoff (1m unless set).
	// Jitter is the largest share that is taken off a back-off (0.2 unless set; -1 for none). A hash of the
	// attempt decides how much, so that replays agree.
	InitialBackoff Duration `json:"initial_backoff,omitempty"`
	MaxBackoff     Duration `json:"max_backoff,omitempty"`
	Multiplier     float64  `json:"multiplier,omitempty"`
	Jitter         float64  `json:"jitter,omitempty"`
}

// Check is a condition on an attempt's result. A result that does not satisfy it is a retryable CHECK_FAILED.
type Check struct {
	// Schema is a JSON Schema without remote references.
	Schema json.RawMessage `json:"schema,omitempty"`
	CEL    string          `json:"cel,omitempty"`
}

// ErrorAction says what the failure of a visit means for the run. The empty action is Fail.
type ErrorAction string

// Fail ends the run. Continue makes the outgoing edges dead. Fallback goes on with a value, or with the error
// as {"error": {"type", "reason", "message"}} if it has none. Route fires the
// ERROR edges. What the user asks for in place of an answer is no failure that Continue or Fallback may hide:
// it ends the run with ReasonAnotherRequest, so that whoever is above hears it.
const (
	Fail     ErrorAction = "FAIL"
	Continue ErrorAction = "CONTINUE"
	Fallback ErrorAction = "FALLBACK"
	Route    ErrorAction = "ROUTE"
)

// OnError is an action with the value of Fallback.
type OnError struct {
	Action ErrorAction     `json:"action,omitempty"`
	Value  json.RawMessage `json:"value,omitempty"`
}

// ItemErrors says what a failed item means for its map. The empty value is FailFast.
type ItemErrors string

// FailFast fails the visit at the first failed item. ContinueItems records the failure and goes on.
// QuorumItems needs Map.Quorum items that succeed.
const (
	FailFast      ItemErrors = "FAIL_FAST"
	ContinueItems ItemErrors = "CONTINUE"
	QuorumItems   ItemErrors = "QUORUM"
)

// Map calls the node's actor once for each item of a list. The visit's value is a list of objects in item
// order: {"ok": value}, {"error": {...}} or {"abstained": true}.
type Map struct {
	// Over is the CEL expression of the list.
	Over string `json:"over"`
	// As names the named argument that carries the item. If it is empty, the item is the first positional
	// argument.
	As          string     `json:"as,omitempty"`
	MaxParallel int        `json:"max_parallel,omitempty"`
	OnItemError ItemErrors `json:"on_item_error,omitempty"`
	Quorum      int        `json:"quorum,omitempty"`
	// Until is a CEL condition on an item's result. The first item for which it holds ends the map: items
	// that are still under way are canceled, and others do not begin. Canceled items count as errors in the
	// list, and not as failures.
	Until string `json:"until,omitempty"`
}

// Cache allows a first attempt of a PURE or IDEMPOTENT node to be answered with the outcome of an equal call,
// of this run or another one, that is at most TTL old. It is a hint: saved outcomes may be forgotten at any
// time.
type Cache struct {
	TTL Duration `json:"ttl"`
	// Scope says for whom runs may share an outcome. The empty scope is CacheForChat.
	Scope CacheScope `json:"scope,omitempty"`
	// Key is a CEL expression whose value takes the place of what the call is given: calls of this node, in
	// this version of the graph, are equal if the value is. Empty compares arguments, sources and messages.
	Key string `json:"key,omitempty"`
}

// CacheScope says who shares the outcomes of a node with a cache. Namespaces never share any.
type CacheScope string

// CacheForChat shares them among runs of one user, chat and thread: whoever an actor can tell apart.
// CacheForUser shares them among all runs of a user, and CacheForNamespace among all users of the namespace.
// Under these an actor that answers by chat, or by user, gives one the answer of another.
const (
	CacheForChat      CacheScope = "CHAT"
	CacheForUser      CacheScope = "USER"
	CacheForNamespace CacheScope = "NAMESPACE"
)

// Trigger says what activates a node other than its edges.
type Trigger struct {
	Inbox *Inbox `json:"inbox,omitempty"`
}

// Inbox activates a node by messages, one visit at a time. An edge into the node delivers the value of its
// source as a message. Edges from the node to nodes without inboxes deliver once, when no message can come
// any more.
type Inbox struct {
	// From names the senders whose messages are taken: nodes, InputSender, or outside senders. Empty takes
	// all.
	From []string `json:"from,omitempty"`
	// BatchSize messages (1 when 0) start a visit. Fewer start one when nothing else in the run can move.
	BatchSize int `json:"batch_size,omitempty"`
	// TTL above 0 drops a message that has not started a visit within this time after its delivery.
	TTL Duration `json:"ttl,omitempty"`
}

// Reducer combines an update with the current value of a state key, in journal order.
type Reducer string

// Append adds a value, or the elements of a list. AppendByID replaces elements with the same "id". Add sums
// numbers.
const (
	Replace    Reducer = "REPLACE"
	Append     Reducer = "APPEND"
	AppendByID Reducer = "APPEND_BY_ID"
	Add        Reducer = "ADD"
)

// StateKey declares one key of a run's state. An absent Initial is null for Replace, [] for Append and
// AppendByID, and 0 for Add.
type StateKey struct {
	Reducer Reducer         `json:"reducer,omitempty"`
	Initial json.RawMessage `json:"initial,omitempty"`
}

// Duration is a time.Duration whose JSON form is Go's duration text, such as "1m30s".
type Duration time.Duration

// MarshalText writes Go's duration text.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads Go's duration text.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("duration %q: write it like 1m30s", b)
	}
	*d = Duration(v)
	return nil
}

// Decode reads one graph from JSON. Unknown fields and data after the graph are errors.
func Decode(b []byte) (*Graph, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var g Graph
	if err := dec.Decode(&g); err != nil {
		return nil, fmt.Errorf("decode graph: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("decode graph: data after the graph")
	}
	return &g, nil
}

// Canonical is the graph as JSON with defaults written out, object keys sorted and insignificant space
// removed. Graphs that differ only in these points have equal canonical forms. Declared order stays, because
// it has a meaning.
func (g *Graph) Canonical() ([]byte, error) {
	c := g.Clone()
	c.fillDefaults()
	return canonicalJSON(c)
}

// Hash is the hex SHA-256 of the canonical form.
func (g *Graph) Hash() (string, error) {
	b, err := g.Canonical()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}
