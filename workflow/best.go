package workflow

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/workflow/flow"
	"github.com/epigraph-run/epigraph/workflow/internal/typing"
	"github.com/epigraph-run/epigraph/workgraph"
)

// This file has the step that makes several attempts side by side and goes on with the best one.
//
//	before -> ID.items -> ID.attempts [-> ID.ballot -> ID.judge] -> ID -> after
//
// The attempts are those of a map over their numbers. A score is the last step of each; ID.ballot and
// ID.judge are there only where a model chooses.

// bestBody is such a step.
type bestBody struct {
	mapBody
	n     int
	judge *judge // nil if the attempts have scores
	// enough is the score that ends the step, nil for none.
	enough *float64
}

// judge is a model that chooses.
type judge struct {
	prompt *value
	model  Model
}

// maxAttempts bounds the attempts of a step.
const maxAttempts = 64

func readBest(t *teller, o *object) body {
	b := &bestBody{n: o.whole("n", 1, maxAttempts, 0)}
	b.as = t.as(o)
	if o.v.get("n") == nil {
		o.missing("n", "how many attempts are made")
	}
	b.most, b.parallel = b.n, o.whole("max_parallel", 1, maxAttempts, max(1, b.n))
	b.failed = o.word("on_item_error", itemsContinue, itemsFail, itemsContinue)
	if b.inline = o.value("body"); b.inline == nil {
		o.missing("body", "a step, or a list of steps")
	} else if b.inline.kind != list {
		b.inline = &value{kind: list, items: []*value{b.inline}, at: b.inline.at, under: b.inline.under, key: b.inline.key}
	} else if len(b.inline.items) == 0 {
		t.at(b.inline, "EMPTY", "give it a step", "the body of a step of the type best_of is empty")
	}
	b.readChoice(t, o)
	return b
}

// readChoice reads how the best attempt is found.
func (b *bestBody) readChoice(t *teller, o *object) {
	v, key := o.one("score", "judge")
	switch {
	case v == nil:
		o.missing("score", "an expression that gives a number, such as `{{ STEP.points }}`, or `judge` with a prompt")
	case key == "judge":
		b.judge = t.judge(v)
	case t.is(v, text):
		b.score = v
	}
	enough := o.value("enough")
	switch {
	case enough == nil:
	case b.judge != nil:
		t.at(enough, "FIELD_NOT_USED", "give a `score`: a step of the body may have a model rate the attempt", "a judge sees all attempts, and gives no score")
	case t.is(enough, number):
		n, err := strconv.ParseFloat(enough.text, 64)
		if err != nil {
			t.at(enough, "OUT_OF_RANGE", "", "`enough` is no number that can be compared")
		}
		b.enough = &n
	}
}

// judge reads `judge`: a prompt, or {prompt, model}.
func (t *teller) judge(v *value) *judge {
	if v.kind == text {
		return &judge{prompt: v}
	}
	o := t.object(v, "a judge")
	j := &judge{prompt: o.mustText("prompt"), model: o.model()}
	o.done()
	return j
}

// Parts of the ids of the nodes of such a step.
const attemptsPart, scorePart, ballotPart, judgePart = ".attempts", ".score", ".ballot", ".judge"

// attempts compiles such a step, and returns the way on from it.
func (c *compiler) attempts(s *Step, b *bestBody, in []end) []end {
	numbers := &value{kind: list, at: s.at.at, under: s.at, key: "n"}
	for i := range b.n {
		numbers.items = append(numbers.items, &value{kind: number, text: strconv.Itoa(i + 1), at: s.at.at, under: numbers, index: i})
	}
	over := b.mapBody
	over.over = numbers
	id := s.ID + attemptsPart
	n, ways := c.perItem(s, &over, id, in)
	if b.enough != nil {
		n.Map.Until = "result.score >= " + scoreText(*b.enough)
	}
	n.OnError = b.stepping(s)
	c.put(n, ways)
	c.weigh(s, &n)
	ways = []end{{from: id}}
	c.stepsAre[s.ID] = b.resultType(c.stepsAre[s.ID])
	best := workgraph.Node{ID: s.ID, Actor: flow.BestActor, OnError: s.OnError, Retry: workgraph.Retry{MaxAttempts: 1},
		Named: map[string]json.RawMessage{"attempts": jsonText(id), "scored": boolJSON(b.judge == nil)}}
	if b.judge != nil {
		ways = c.judged(s, b, ways)
		best.Named["judge"] = jsonText(s.ID + judgePart)
	}
	c.put(best, ways)
	return []end{{from: s.ID}}
}

// resultType is the type of the result of such a step, by that of an attempt.
func (b *bestBody) resultType(attempt typing.Type) typing.Type {
	of := map[string]typing.Type{"best": attempt, "number": typing.Of(typing.Integer)}
	if b.judge != nil {
		of["reason"] = typing.Type{}
	} else {
		of["scores"] = typing.Of(typing.Array)
	}
	return typing.Record(of)
}

// stepping is what a failure before the last node of the step means. If the step goes on, the last node
// finds nothing to choose from, and goes on with the value of the step.
func (b *bestBody) stepping(s *Step) workgraph.OnError {
	if s.OnError.Action == "" {
		return workgraph.OnError{}
	}
	return workgraph.OnError{Action: workgraph.Fallback, Value: json.RawMessage("null")}
}

// scoreText is a score as an expression.
func scoreText(n float64) string {
	s := strconv.FormatFloat(n, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// scored puts the node that gives the score of an attempt behind the last one of a body.
func (c *compiler) scored(s *Step, v *value, last, result string) {
	n := workgraph.Node{ID: s.ID + scorePart, Actor: "cel", Retry: workgraph.Retry{MaxAttempts: 1}, Check: &workgraph.Check{CEL: "type(result.score) in [int, uint, double]"}}
	c.put(n, []end{{from: last}})
	k := len(c.g.Nodes) - 1
	pseudo := c.stands(n.ID, s)
	if src, refs, ok := c.filled(v, func(r *ref) bool { return c.known(pseudo, r, v, true) }); ok {
		c.compiles(v, src)
		if _, alone := wholeMark(v); alone {
			c.filledFits(v, refs, want{typing.Number, "a number", "`score`"})
		}
		n.Named = map[string]json.RawMessage{"expr": jsonText("{'output': nodes" + at(result) + ".result, 'score': " + src + "}")}
	}
	c.g.Nodes[k] = n
}

const (
	// howToJudge is what a judge is told of its task.
	howToJudge = "Several attempts were made at one thing. Say which one is the best by its number as `best`, and in a short sentence why as `reason`."
	// ballotMark stands for the attempts in the prompt of a judge. It is no reference that a text may have.
	ballotMark = "{{.attempts}}"
)

// judged puts the nodes with which a model chooses, and returns the ways on from them. A single attempt is
// not judged.
func (c *compiler) judged(s *Step, b *bestBody, in []end) []end {
	ballot := workgraph.Node{ID: s.ID + ballotPart, Actor: flow.BallotActor, OnError: b.stepping(s), Retry: workgraph.Retry{MaxAttempts: 1},
		Named: map[string]json.RawMessage{"attempts": jsonText(s.ID + attemptsPart)}}
	c.put(ballot, in)
	n := workgraph.Node{ID: s.ID + judgePart, Actor: "llm", OnError: b.stepping(s),
		Check: &workgraph.Check{CEL: "result.best in nodes" + at(ballot.ID) + ".result.numbers"},
		Named: map[string]json.RawMessage{"system": jsonText(howToJudge), "upstream": json.RawMessage("false"), "response_schema": json.RawMessage(
			`{"type":"object","required":["best"],"additionalProperties":false,"properties":{"best":{"type":"integer","minimum":1,"maximum":` + strconv.Itoa(b.n) + `},"reason":{"type":"string"}}}`)}}
	maps.Copy(n.Named, c.model(b.judge.model).arguments())
	ways := c.putWith(s, n, []end{{from: ballot.ID, when: "result.count > 1", route: "judge"}}, func(n *workgraph.Node, pseudo *Step) { c.ask(n, pseudo, b.judge.prompt, ballot.ID) })
	return append(ways, end{from: ballot.ID})
}

// ask gives a judge its prompt, with the attempts behind it.
func (c *compiler) ask(n *workgraph.Node, pseudo *Step, prompt *value, ballot string) {
	if prompt == nil {
		return // that is told
	}
	refs := c.refs(prompt)
	for i := range refs {
		if !c.known(pseudo, &refs[i], prompt, true) {
			return
		}
		c.bindable(n, &refs[i])
	}
	refs = append(refs, ref{mark: ballotMark, node: ballot, path: []part{{"text", fieldOnly}}})
	argument(n, "request", jsonText(prompt.text+"\n\n"+ballotMark), refs)
}
