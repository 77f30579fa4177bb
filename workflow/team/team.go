// Package team decides who of a team speaks next, who hears what was said, and when it is over.
//
//	Begin(messages) --> Move{Speak: [writer]}      the members of the move are called, side by side
//	Hear(answers)   --> Move{Speak: [critic]}      what they said is heard by the others
//	Hear(answers)   --> Move{Over: TEXT}           a condition ended it
//
// A team is plain data, and so is its State: whoever runs it keeps both, and may go on with them after
// a crash or a year later. What was said is in a log that the caller keeps; the state knows it by
// sequences alone, so that a turn costs the same in a long conversation as in a short one.
//
// The package is pure: it calls no member and knows no clock. Its rules follow those of AutoGen's group
// chats and GraphFlow where they are sound.
package team

import (
	"encoding/json"
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// Bounds of a team. Check refuses what is beyond them.
const (
	MaxMembers     = 64
	MaxTransitions = 4_096
	MaxRoutes      = 1_000
	MaxBatchSize   = 1_000
	maxConditions  = 1_000
	maxDepth       = 16
	maxName        = 64
)

// DefaultMaxTurns pauses a team that states no bound of its own.
const DefaultMaxTurns = 100

// Team says who belongs to it, who speaks after whom, who hears whom, and when it is over.
type Team struct {
	Members []Member `json:"members"`
	// Start are those who speak first. Empty stands for the members to which no transition leads, or if
	// there are none, for the first member.
	Start []string `json:"start,omitempty"`
	// Transitions say who speaks after whom. Without transitions and without Choose members speak as
	// messages come to them, by Routes.
	Transitions []Transition `json:"transitions,omitempty"`
	// Choose lets a model choose the next speaker. Nil without it.
	Choose *Choose `json:"choose,omitempty"`
	// Routes say who hears whom. Without any everybody hears everybody else.
	Routes []Route `json:"routes,omitempty"`
	// Stop ends the team. Nil never does.
	Stop *Stop `json:"stop,omitempty"`
	// MaxTurns pauses the team after so many turns; it goes on with as many again. 0 is
	// DefaultMaxTurns.
	MaxTurns int `json:"max_turns,omitempty"`
	// State are the keys that members set, with the reducer of each.
	State map[string]workgraph.StateKey `json:"state,omitempty"`
}

// Member is one of a team.
type Member struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Kind says what its actor is given. See the kinds.
	Kind Kind `json:"kind,omitempty"`
	// Actor is called when the member speaks, with Named as its own arguments.
	Actor string                     `json:"actor"`
	Named map[string]json.RawMessage `json:"named,omitempty"`
	// Thread names the thread that it works on. Members with equal names share one. Empty is one of its
	// own.
	Thread string `json:"thread,omitempty"`
	// Hears are those whose messages it hears, and how many of each in a turn. Nil hears all; empty
	// hears none.
	Hears []Hearing `json:"hears,omitzero"`
	// Memory is the name by which its thread is found again in later runs of the same user and chat. Empty is
	// a thread of the team alone. Members that share a thread state the same.
	Memory string `json:"memory,omitempty"`
	// Any lets the first of the transitions into it call it. Else it waits for all that can still come.
	Any bool `json:"any,omitempty"`
	// Signals say what becomes of those of its agent, by name.
	Signals map[string]Signal `json:"signals,omitempty"`
	// Task is a CEL expression over result, the last message that it hears, and state. Its text is what
	// the member is told in place of what it hears.
	Task string `json:"task,omitempty"`
	// Sets are updates of the team's state that are made when the member has answered.
	Sets map[string]json.RawMessage `json:"sets,omitempty"`
	// Cache keeps the results of a workflow for equal tasks; nil keeps none.
	Cache *workgraph.Cache `json:"cache,omitempty"`
	// Keeps says that a workflow goes on with its conversation when it is called again.
	Keeps bool `json:"keeps,omitempty"`
	// Told are the inputs that a workflow is given besides its task. See the names.
	Told []string `json:"told,omitempty"`
	// Tells says that a failure of the member is told as its answer and does not end the team.
	Tells bool `json:"tells,omitempty"`
}

// Hearing narrows what a member hears of somebody in a turn.
type Hearing struct {
	// From is a member, or Input.
	From string `json:"from"`
	// First or Last is how many of the messages it hears; 0 for both hears all.
	First int `json:"first,omitempty"`
	Last  int `json:"last,omitempty"`
}

// Kind says what a member is, and so what its actor is given.
type Kind string

// An Agent is given the messages as its user input and works on a thread. A Human is asked. A Workflow
// is run on them. An Actor is given `messages` and `text`.
const (
	Agent    Kind = "AGENT"
	Human    Kind = "HUMAN"
	Workflow Kind = "WORKFLOW"
	Actor    Kind = "ACTOR"
)

// The names of what a workflow may be told besides its task: the last messages of the team, as a list of
// {from, text}, the thread of the team, and the user and the task of the run, which are empty texts where
// there is none.
const (
	ToldMessages = "messages"
	ToldThread   = "parent_thread_id"
	ToldUser     = "user_id"
	ToldTask     = "task_id"
)

// Tellable are these names.
func Tellable() []string { return []string{ToldMessages, ToldThread, ToldUser, ToldTask} }

// Signal is what a signal of a member means.
type Signal struct {
	// Handoff is who goes on.
	Handoff string `json:"handoff,omitempty"`
	// Ask says who goes on by an argument of the signal.
	Ask *Ask `json:"ask,omitempty"`
	// Set are updates of the team's state. A text {{ NAME }} in them is an argument of the signal.
	Set map[string]json.RawMessage `json:"set,omitempty"`
	// Say is what is said if the member says nothing with the signal.
	Say string `json:"say,omitempty"`
}

// Ask finds who goes on.
type Ask struct {
	// Argument is that of the signal that names somebody.
	Argument string `json:"argument"`
	// To are the members by their names, and by what they can do.
	To map[string]string `json:"to"`
}

// Previous is who spoke before the speaker, as the target of a transition.
const Previous = "previous"

// Transition lets To speak after From.
type Transition struct {
	From string `json:"from"`
	To   string `json:"to"`
	// When must hold for what From said. Nil always holds.
	When *When `json:"when,omitempty"`
	// Group joins transitions into To: it speaks when all of one group came, or any if Any is set.
	Group string `json:"group,omitempty"`
	Any   bool   `json:"any,omitempty"`
}

// When is a condition on a message. Exactly one of its fields is set.
type When struct {
	Any []When `json:"any,omitempty"`
	All []When `json:"all,omitempty"`
	Not *When  `json:"not,omitempty"`
	// Text is a part of the message.
	Text string `json:"text,omitempty"`
	// Handoff is whom the message hands over to; AnyOne is any.
	Handoff string `json:"handoff,omitempty"`
	// Expr is a CEL condition over result, the message, and state, that of the team.
	Expr string `json:"expr,omitempty"`
	// Else holds if no other transition of the speaker does.
	Else bool `json:"else,omitempty"`
}

// AnyOne stands for everybody, in routes and handoffs.
const AnyOne = "any"

// Input is the sender of what the team is given.
const Input = "input"

// Route lets To hear From.
type Route struct {
	// From are members, Input or AnyOne.
	From []string `json:"from"`
	To   string   `json:"to"`
	// BatchSize is how many messages at least call To, 1 when 0. Fewer do when nobody else can speak.
	// It has no meaning where transitions say who speaks.
	BatchSize int `json:"batch_size,omitempty"`
	// TTL drops messages that To has not heard within this time. 0 never does.
	TTL workgraph.Duration `json:"ttl,omitempty"`
}

// Choose lets a model choose who speaks.
type Choose struct {
	// Prompt has the placeholders {roles}, {participants} and {history}. Empty stands for
	// DefaultPrompt.
	Prompt string `json:"prompt,omitempty"`
	// Actor is asked, with Named as its own arguments and the prompt as request.
	Actor string                     `json:"actor"`
	Named map[string]json.RawMessage `json:"named,omitempty"`
	// Repeat lets somebody speak twice in a row.
	Repeat bool `json:"repeat,omitempty"`
	// Attempts is how often it is asked for one choice at most; 3 when 0.
	Attempts int `json:"attempts,omitempty"`
	// Candidates is a CEL expression over result, the last message, and state, that gives the names
	// among which it chooses. Empty means all, and so does null.
	Candidates string `json:"candidates,omitempty"`
}

// DefaultPrompt asks for the next speaker.
const DefaultPrompt = `These take part in a conversation:
{roles}

Read the conversation, and choose who of {participants} speaks next. Answer with the name alone.

{history}`

// Message is one message of the log.
type Message struct {
	// Seq is the place in the log, from 1 on, which Begin and Hear set.
	Seq int64 `json:"seq,omitempty"`
	// From is a member, or Input.
	From string `json:"from"`
	Text string `json:"text"`
	// To is whom the message hands over to.
	To string `json:"to,omitempty"`
	// Signals ended the speaker's turn.
	Signals []Call `json:"signals,omitempty"`
	// Calls are the tools that the speaker called.
	Calls []string `json:"calls,omitempty"`
	// Data is what the speaker gave if that is no text.
	Data json.RawMessage `json:"data,omitempty"`
	At   time.Time       `json:"at"`
}

// Call is a signal that a member gave.
type Call struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// Used is what a team has consumed in this run, its members included.
type Used struct {
	// Tokens are those that models were given, InputTokens, and those that they gave, OutputTokens.
	Tokens       int64 `json:"tokens"`
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	NanoUSD      int64 `json:"nano_usd"`
}

// Move is what is to be done next. Exactly one of Speak, Ask and Over is set.
type Move struct {
	// Speak are those who are called now, side by side.
	Speak []string `json:"speak,omitempty"`
	// Ask is a question to the model that chooses. Its answer goes to Chosen.
	Ask *Question `json:"ask,omitempty"`
	// Over says why the team has ended.
	Over *Stopped `json:"over,omitempty"`
	// Pause is the reason for which the caller is to pause before it goes on with the move.
	Pause string `json:"pause,omitempty"`
	// Routed says how those were found who speak, where something was decided: transitions that always
	// hold choose nobody.
	Routed []workgraph.Routed `json:"-"`
}

// Question is what the model that chooses is asked.
type Question struct {
	// Among are the candidates.
	Among []string `json:"among"`
	// Feedback are its earlier answers to this question, with what was wrong with each.
	Feedback []Feedback `json:"feedback,omitempty"`
}

// Feedback is an answer that named nobody who can speak.
type Feedback struct {
	Answer string `json:"answer"`
	Fault  string `json:"fault"`
}

// Stopped is an orderly end.
type Stopped struct {
	// Reason is the stable word of the condition; see the reasons. Several are joined by +.
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

// The reasons of ends.
const (
	Complete    = "COMPLETE" // nobody is left to speak
	MaxMessages = "MAX_MESSAGES"
	MaxTurns    = "MAX_TURNS"
	TextSaid    = "TEXT"
	HandedOff   = "HANDOFF"
	Timeout     = "TIMEOUT"
	Tokens      = "TOKENS"
	Cost        = "COST"
	Called      = "CALL"
	Expression  = "EXPRESSION"
	External    = "EXTERNAL" // somebody asked for it
	Answered    = "ANSWERED"
)

// Reasons for which a team pauses.
const (
	// PauseTurns is the reason when a team has had its turns.
	PauseTurns = "TEAM_MAX_TURNS"
	// PauseLimit is the reason when a stop condition holds that is a limit.
	PauseLimit = "TEAM_LIMIT"
)
