package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFlowTestsSeeInside looks at steps within others: items, attempts, workflows that are called, and
// members of teams.
func TestFlowTestsSeeInside(t *testing.T) {
	t.Parallel()
	file := filesIn(t)
	file("called.yaml", `name: Called
inputs: {word: {type: string}}
steps: [{id: loud, type: transform, template: "{{ inputs.word }}!"}]
`)
	file("w.yaml", `name: W
inputs: {words: {type: array, items: {type: string}}}
agents:
  ada: {instructions: You are Ada.}
  bob: {instructions: You are Bob.}
  eve: {workflow: {name: Eve, inputs: {task: {type: string}}, steps: [{id: heard, type: transform, template: "Eve is done."}]}}
steps:
  - id: each
    type: map
    over: inputs.words
    as: word
    body:
      - {id: page, type: http, url: "https://example.org/{{ word }}"}
      - {id: kept, type: transform, template: "{{ word }} is {{ page.body }}"}
      - {id: call, type: workflow, workflow: called@1, payload: {word: "{{ word }}"}}
      - id: deep
        type: map
        over: ["x", "y"]
        body: [{id: twice, type: transform, template: "{{ deep.item }}{{ word }}"}]
  - id: best
    type: best_of
    n: 2
    body: {id: draft, type: transform, template: "draft {{ item }}"}
    score: "{{ best.item }}"
  - {id: talk, type: team, task: Talk, graph: {transitions: ["ada -> bob", "ada -> eve"]}}
outputs: {best: "{{ best.best }}"}
`)
	const head = `workflow: w.yaml
workflows: {called@1: called.yaml}
cases:
  - name: inside
    inputs: {words: [tea, milk]}
    actors: {http: {status: 200, body: warm}}
    model: [{match: You are Ada, text: Hello}, {match: You are Bob, text: Bye}]
    expect:
`
	t.Run("WhatIsSoPasses", func(t *testing.T) {
		t.Parallel()
		flowTests(t, 0, file("so.test.yaml", head+`      route: {ran: [each/kept, talk/bob]}
      steps:
        each/kept: {calls: 2, result: milk is warm, expr: visit == 2}
        each[0]/kept: {calls: 1, result: tea is warm}
        each[0]/page: {arguments: {url: "https://example.org/tea"}}
        each[1]/page: {arguments: {url: "https://example.org/milk"}}
        each[1]/call/loud: {calls: 1, result: milk!}
        each/deep/twice: {calls: 4, result: ymilk}
        each[0]/deep[1]/twice: {calls: 1, result: ytea}
        each[7]/kept: {calls: 0}
        best/draft: {calls: 2}
        best[1]/draft: {result: draft 2}
        talk: {spoke: [ada, bob, eve]}
        talk/ada: {calls: 1, expr: "result.text == 'Hello'"}
        talk/eve/heard: {calls: 1, result: Eve is done.}
`))
	})
	t.Run("WhatIsNotSoIsTold", func(t *testing.T) {
		t.Parallel()
		out, _ := flowTests(t, 1, file("other.test.yaml", head+`      route: {ran: ["each[7]/kept"], not_ran: [talk/bob]}
      steps:
        each/kept: {calls: 3}
        each[0]/kept: {result: milk is warm}
        each[0]/page: {arguments: {url: "https://example.org/milk"}}
        talk: {spoke: [bob, ada]}
        each[7]/page: {result: {}}
`))
		for _, want := range []string{
			`the step "each[7]/kept" did not run`, `the step "talk/bob" ran`, "steps.each/kept.calls: expected 3, got 2",
			`steps.each[0]/kept.result: expected "milk is warm", got "tea is warm"`, `steps.each[0]/page.arguments.url: expected "https://example.org/milk", got "https://example.org/tea"`,
			"steps.talk.spoke: expected bob → ada\n", "got ada → bob → eve", "steps.each[7]/page: the step did not run",
		} {
			require.Contains(t, out, want)
		}
	})
	t.Run("UnknownOnesAreRefused", func(t *testing.T) {
		t.Parallel()
		_, notes := flowTests(t, 1, file("bad.test.yaml", head+"      steps: {each/kpet: {calls: 1}, talk: {spoke: [ada, bbo]}, each/call/lout: {calls: 1}}\n"))
		for _, want := range []string{"bad.test.yaml:9:", "did you mean `each/kept`?", "did you mean `talk/bob`?", "did you mean `each/call/loud`?", "^"} {
			require.Contains(t, notes, want)
		}
	})
}
