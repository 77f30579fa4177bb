package response

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
)

// The tools by which a model that calls tools says of its task what the other forms write into tags.
const (
	AskUser    = "ask_user"
	NewTask    = "new_task"
	Learn      = "learn"
	TaskStatus = "task_status"
)

// TaskTools are the names of these tools, in order.
func TaskTools() []string { return []string{AskUser, Learn, NewTask, TaskStatus} }

// TaskTool describes one of these tools to a model.
func TaskTool(name string) (description string, schema json.RawMessage) {
	object := func(properties string, required string) json.RawMessage {
		return json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{` + properties + `},"required":[` + required + `]}`)
	}
	switch name {
	case AskUser:
		return "Asks the user and waits for the answer. Other calls of the same message are not done.", object(`"question":{"type":"string"}`, `"question"`)
	case Learn:
		return "Keeps a fact that is worth knowing later.", object(`"id":{"type":"string","description":"A short name of the fact."},"content":{"type":"string"}`, `"content"`)
	case NewTask:
		return "Says that the user has begun another task than before.", object(``, ``)
	}
	return "Says how far the task is.", object(`"description":{"type":"string","description":"In a few words."},"details":{"type":"string","description":"In full, for yourself in later rounds."}`, `"description"`)
}

// TaskCall is a call of one of these tools, or of a signal. Answer is what the model is told; it is empty for
// a question, which a person answers.
type TaskCall struct {
	// Call is the id of the call, and Index its place in the message.
	Call   string
	Index  int
	Answer string
	Failed bool
	// Signal says that the call is one of Response.Signals.
	Signal bool
}

// Asks reports whether the call is a question to the user.
func (c TaskCall) Asks() bool { return c.Answer == "" && !c.Signal }

// TakeTaskCalls takes the calls of these tools out of the groups, and what they say into the response.
func (r *Response) TakeTaskCalls(tools []string) {
	if !r.Calls || len(r.Groups) == 0 {
		return
	}
	var rest []Action
	var questions []string
	for i := range r.Groups[0] {
		a := &r.Groups[0][i]
		if !slices.Contains(tools, a.Type) {
			rest = append(rest, *a)
			continue
		}
		c := TaskCall{Call: a.Call, Index: a.index}
		asked, err := r.takeTaskCall(a, &c)
		if err != nil {
			c.Answer, c.Failed = err.Error(), true
		}
		questions = append(questions, asked)
		r.TaskCalls = append(r.TaskCalls, c)
	}
	question := lines(questions...)
	switch {
	case question != "":
		// The question comes first. What was to be done besides is decided again when it is answered.
		r.Status, r.Groups, r.InstantResponse = Pending, nil, lines(r.InstantResponse, question)
	case len(rest) == 0:
		r.Groups = nil
	default:
		r.Groups[0] = rest
	}
}

// takeTaskCall takes one call into the response. The error is for the model.
func (r *Response) takeTaskCall(a *Action, c *TaskCall) (question string, err error) {
	take := func(name string, needed bool) string {
		v := strings.TrimSpace(actor.AsText(a.Arguments[name]))
		if v == "" && needed && err == nil {
			err = fmt.Errorf("%s is missing: call %s with it", name, a.Type)
		}
		delete(a.Arguments, name)
		return v
	}
	switch a.Type {
	case AskUser:
		question = take("question", true)
	case NewTask:
		r.NewTask, c.Answer = true, "noted"
	case Learn:
		l := Learning{ID: take("id", false), Content: take("content", true)}
		switch {
		case err != nil:
		case len(r.Learnings) == maxLearnings:
			err = errors.New("this is one too many for one message: keep it in a later one")
		case l != l.bounded():
			err = fmt.Errorf("the fact is too long: keep one of at most %d bytes, under an id of at most %d", maxLearning, maxLearning/32)
		default:
			r.Learnings, c.Answer = append(r.Learnings, l), "kept"
		}
	case TaskStatus:
		d, full := take("description", true), take("details", false)
		if err == nil {
			r.Description, r.DescriptionExtended, c.Answer = d, full, "noted"
		}
	}
	if more := slices.Sorted(maps.Keys(a.Arguments)); len(more) > 0 {
		return "", fmt.Errorf("%.80q is no argument of %s", more[0], a.Type)
	}
	return question, err
}
