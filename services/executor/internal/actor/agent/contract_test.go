package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// fields are the names in the agent's schema, with those of nested objects behind a dot.
func fields(t *testing.T) (out []string) {
	t.Helper()
	type object struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Additional json.RawMessage            `json:"additionalProperties"`
		Items      json.RawMessage            `json:"items"`
	}
	var walk func(before string, raw json.RawMessage)
	walk = func(before string, raw json.RawMessage) {
		var o object
		if json.Unmarshal(raw, &o) != nil {
			return // true or false
		}
		for name, of := range o.Properties {
			out = append(out, before+name)
			walk(before+name+".", of)
		}
		walk(before, o.Additional)
		walk(before, o.Items)
	}
	walk("", json.RawMessage(agent.Specs(nil, nil)[0].Schema))
	slices.Sort(out)
	return out
}

// arrival is where an argument shows its effect.
type arrival struct {
	// given states the argument, and want is a text that the reasoner, an action or the end of the run shows
	// then and not without it.
	given, want string
	// script replaces what the reasoner says, by form.
	script map[string][]string
	// refused is, by form, why it cannot be stated there.
	refused map[string]string
	// elsewhere is the test that shows it: the runner in memory has no such thing.
	elsewhere string
}

// TestContract states every argument of the schema, in every form, and looks where it arrives. What has no
// effect must be refused by name.
func TestContract(t *testing.T) {
	t.Parallel()
	const (
		plan = "<Problems><Problem><Request>a</Request><ProblemID>A</ProblemID></Problem></Problems><ProblemGraph>A</ProblemGraph>"
	)
	call := func(name, args string) string {
		return `{"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "` + name + `", "arguments": ` + args + `}]}`
	}
	forms := map[string]struct{ base, script string }{
		"prompt": {`"reasoner": "r", "user_input": "find", "actions": {"search": {"actor": "tool"}}`, acts("working", "search")},
		"tools":  {`"form": "tools", "reasoner": "r", "user_input": "find", "actions": {"search": {"actor": "tool"}}`, call("search", `{}`)},
		"plan":   {`"dispatch": "plan", "solver": {"actor": "tool"}, "reasoner": "r", "user_input": "find", "actions": {"search": {"actor": "tool"}}`, plan},
	}
	every := func(s ...string) map[string][]string {
		return map[string][]string{"prompt": s, "tools": s, "plan": append([]string{plan}, s...)}
	}
	parallel := map[string][]string{"prompt": {acts("", "search+search"), `{"result": "b1"}`, `{"result": "b2"}`, over}, "plan": {plan, acts("", "search+search"), `{"result": "b1"}`, `{"result": "b2"}`, over}}
	noSignals := map[string]string{"prompt": "signals has no effect: only the tools form calls tools", "plan": "signals has no effect"}
	noBranch := map[string]string{"tools": "the tools form does not branch"}
	sub := func(more string) string {
		return `"actions": {"search": {"actor": "agent", "named": {"reasoner": "r2", "actions": {"x": {"actor": "tool"}}}` + more + `}}`
	}
	table := map[string]arrival{
		"user_input":                   {given: `"user_input": "the input"`, want: "the input"},
		"goal":                         {given: `"user_input": null, "goal": "the goal"`, want: "the goal"},
		"request":                      {given: `"user_input": null, "request": "the request"`, want: "the request"},
		"action_results":               {given: `"action_results": "the findings"`, want: "the findings"},
		"previous_agent_results":       {given: `"previous_agent_results": "the earlier"`, want: "the earlier"},
		"previous_action_results":      {given: `"previous_action_results": ["the before"]`, want: "the before"},
		"context":                      {given: `"context": "the context"`, want: "the context"},
		"user_profile":                 {given: `"user_profile": "the profile"`, want: "the profile"},
		"attachments":                  {given: `"attachments": [{"id": "d", "content": "the text"}]`, want: "the text"},
		"attachments.id":               {given: `"attachments": [{"id": "the-id", "content": "x"}]`, want: "the-id"},
		"attachments.description":      {given: `"attachments": [{"id": "d", "description": "the note", "content": "x"}]`, want: "the note"},
		"attachments.content":          {given: `"attachments": [{"id": "d", "content": {"the": "thing"}}]`, want: `the\":\"thing`},
		"attachments.uri":              {given: `"attachments": [{"id": "d", "uri": "https://the.uri"}]`, want: "https://the.uri"},
		"tool":                         {given: `"tool": "the.tool"`, want: "the.tool"},
		"arguments":                    {given: `"arguments": [{"value": "the argument"}]`, want: "the argument"},
		"references":                   {given: `"references": [{"text": "#E1", "problem": "first"}]`, want: "#E1"},
		"upstream":                     {elsewhere: "TestInputRefused/Upstream/MayBeLeftOut"},
		"thread_id":                    {given: `"thread_id": "thr_old"`, want: "said before"},
		"shared_thread":                {elsewhere: "TestSharedThread"},
		"conversation":                 {elsewhere: "TestConversation"},
		"conversation.thread_id":       {elsewhere: "TestConversation"},
		"conversation.lifetime":        {elsewhere: "TestConversation"},
		"conversation.after":           {elsewhere: "TestConversation"},
		"conversation.name":            {elsewhere: "TestConversation"},
		"conversation.part_of":         {elsewhere: "TestConversation"},
		"conversation.key":             {elsewhere: "engine: TestMemoryOfAgents/Member"},
		"mcp_servers":                  {elsewhere: "services/executor: TestMCP_Agent"},
		"thread.name":                  {elsewhere: "engine: TestMemoryOfAgents"},
		"system":                       {given: `"system": "You are the oracle."`, want: "You are the oracle."},
		"reasoner":                     {given: `"reasoner": "r3"`, want: "r3true"},
		"reasoner_args":                {given: `"reasoner_args": {"model": "the-model"}`, want: "the-model"},
		"form":                         {given: `"form": "tools"`, want: `"messages"`, refused: map[string]string{"plan": "dispatch: the tools form has groups only"}},
		"template":                     {given: `"template": "the template {conversation}"`, want: "the template", refused: map[string]string{"tools": "template has no effect"}},
		"dispatch":                     {given: `"dispatch": "third"`, want: "thirdtrue", refused: map[string]string{"tools": "dispatch: the tools form has groups only", "plan": "solver has no effect"}},
		"dispatch_args":                {elsewhere: "TestUntrusted refuses it; examples/agent/dispatch.json runs on it"},
		"solver":                       {given: `"solver": {"actor": "other"}`, want: "othertrue", refused: map[string]string{"prompt": "solver has no effect", "tools": "solver has no effect"}},
		"actions":                      {given: `"actions": {"search": {"actor": "tool"}, "zusatz": {"actor": "tool"}}`, want: "zusatz"},
		"actions.actor":                {given: `"actions": {"search": {"actor": "other"}}`, want: "othertrue", script: every(call("search", `{}`), over)},
		"actions.description":          {given: `"actions": {"search": {"actor": "tool", "description": "the description"}}`, want: "the description"},
		"actions.named":                {given: `"actions": {"search": {"actor": "tool", "named": {"k": "the fixed"}}}`, want: "the fixed", script: every(call("search", `{}`), over)},
		"actions.schema":               {given: `"actions": {"search": {"actor": "tool", "schema": {"properties": {"theprop": {"type": "string"}}}}}`, want: "theprop"},
		"actions.timeout":              {given: `"actions": {"search": {"actor": "slow", "timeout": "1ms"}}`, want: "TIMEOUT", script: every(call("search", `{}`), over)},
		"actions.max_attempts":         {given: `"actions": {"search": {"actor": "flaky", "max_attempts": 2}}`, want: "second try", script: every(call("search", `{}`), over)},
		"actions.effect":               {elsewhere: "engine: TestAgent/*/Retry/OfTheRunAboveRepeatsNoUnsafeCallUnasked"},
		"actions.share_thread":         {elsewhere: "TestSharedThread"},
		"actions.hand_over":            {given: sub(`, "hand_over": true`), want: "handed over: result", script: every(call("search", `{}`))},
		"allow_graph":                  {given: `"allow_graph": true`, want: `"action":"search","ok"`, script: every(`{"graph": {"nodes": [{"id": "x", "actor": "search"}]}}`, over), refused: map[string]string{"tools": "allow_graph has no effect"}},
		"result_schema":                {given: `"result_schema": {"type": "string", "title": "the title"}`, want: "the title"},
		"branch":                       {given: `"branch": false`, want: "1 threads, 0 forks", script: map[string][]string{"prompt": {acts("", "search+search"), over}, "plan": {plan, acts("", "search+search"), over}}, refused: noBranch},
		"branching_agent_start_as_new": {given: `"branching_agent_start_as_new": true`, want: "3 threads, 0 forks", script: parallel, refused: noBranch},
		"summarizer":                   {given: `"summarizer": {"actor": "other"}`, want: "othertrue", script: parallel, refused: noBranch},
		"summarizer.actor":             {given: `"summarizer": {"actor": "other"}`, want: "othertrue", script: parallel, refused: noBranch},
		"summarizer.named":             {given: `"summarizer": {"actor": "other", "named": {"k": "the summarizer's"}}`, want: "the summarizer's", script: parallel, refused: noBranch},
		"summarizer.prompt":            {given: `"summarizer": {"prompt": "Join these: {action_result}"}`, want: "Join these", script: parallel, refused: noBranch},
		"max_rounds":                   {given: `"max_rounds": 1`, want: workgraph.ReasonMaxVisits},
		"max_actions":                  {given: `"max_actions": 1`, want: "at most 1 are done", script: map[string][]string{"prompt": {`["search", "search"]`, over}, "plan": {plan, `["search", "search"]`, over}, "tools": {`{"role": "assistant", "tool_calls": [{"id": "1", "name": "search"}, {"id": "2", "name": "search"}]}`, over}}},
		"max_branches":                 {given: `"max_branches": 1`, want: agent.ReasonBranches, script: parallel, refused: noBranch},
		"max_branch_depth":             {given: `"max_branch_depth": 0`, want: agent.ReasonBranchDepth, script: parallel, refused: noBranch},
		"max_no_progress":              {given: `"max_no_progress": 2`, want: agent.ReasonNoProgress, script: every(call("search", `{}`), call("search", `{}`), call("search", `{}`), over)},
		"max_result_bytes":             {elsewhere: "TestLimits/Result/IsCutWithAMarker"},
		"history":                      {given: `"history": {"messages": 1, "tokens": 4000, "summarize": {"actor": "other"}}`, want: "othertrue", script: every(call("search", `{}`), call("search", `{}`), over)},
		"history.messages":             {elsewhere: "TestHistory/Messages"},
		"history.tokens":               {elsewhere: "TestHistory/Tokens"},
		"history.summarize":            {elsewhere: "TestHistory/Summarize"},
		"history.summarize.above":      {elsewhere: "TestHistory/Summarize"},
		"history.summarize.keep":       {elsewhere: "TestHistory/Summarize"},
		"history.summarize.profile":    {elsewhere: "TestHistory/Summarize/IsTheReasonersModelUnlessToldOtherwise"},
		"history.summarize.actor":      {elsewhere: "TestHistory/Summarize"},
		"history.summarize.prompt":     {elsewhere: "TestHistory/Summarize"},
		"task_tools":                   {given: `"task_tools": []`, want: "or when you need an answer from the user", refused: map[string]string{"prompt": "task_tools has no effect", "plan": "task_tools has no effect"}},
		"step_by_step":                 {given: `"step_by_step": true`, want: agent.ReasonStep},
		"as_message":                   {given: `"as_message": true`, want: `"signals":[],"thread_id":"thr_`},
		"signals":                      {given: `"signals": {"route": {}}`, want: `"route"`, refused: noSignals},
		"signals.description":          {given: `"signals": {"route": {"description": "the description"}}`, want: "the description", refused: noSignals},
		"signals.schema":               {given: `"signals": {"route": {"schema": {"properties": {"theprop": {"type": "string"}}}}}`, want: "theprop", refused: noSignals},
		"signals.reply":                {elsewhere: "TestSignals/Reply"},
		"budget":                       {elsewhere: "engine: TestAgentLimits/*/Budget"},
		"budget.nano_usd":              {elsewhere: "engine: TestAgentLimits/*/Budget"},
		"budget.tokens":                {elsewhere: "engine: TestAgentLimits/*/Budget"},
		"timeout":                      {elsewhere: "engine: TestAgentLimits/*/Timeout"},
		"thread":                       {elsewhere: "TestKept"},
		"thread.lifetime":              {elsewhere: "TestKept"},
		"thread.key":                   {elsewhere: "TestKept"},
	}
	require.Equal(t, fields(t), slices.Sorted(maps.Keys(table)), "every field of the schema is here, and nothing else")
	for field, c := range table {
		for form, f := range forms {
			if c.elsewhere != "" {
				continue
			}
			t.Run(field+"/"+form, func(t *testing.T) {
				t.Parallel()
				shows := func(given string) string {
					named := map[string]json.RawMessage{}
					require.NoError(t, json.Unmarshal([]byte("{"+f.base+"}"), &named))
					require.NoError(t, json.Unmarshal([]byte("{"+given+"}"), &named))
					raw, err := json.Marshal(named)
					require.NoError(t, err)
					script := c.script[form]
					if script == nil {
						script = []string{f.script, over}
					}
					return shown(t, string(raw), script)
				}
				got := shows(c.given)
				if why, refused := c.refused[form]; refused {
					require.Contains(t, got, "BAD_ARGUMENT")
					require.Contains(t, got, why)
					return
				}
				require.NotContains(t, got, "BAD_ARGUMENT")
				require.Contains(t, got, c.want)
				if !strings.Contains(f.base, c.given) {
					require.NotContains(t, shows(""), c.want, "it is not there without it")
				}
			})
		}
	}
}

// shown is all that the reasoner and the actors of an agent's run are told, and how the run ends.
func shown(t *testing.T, named string, script []string) string {
	t.Helper()
	r, r2 := &reasoner{script: script}, &reasoner{script: []string{`{"result": "handed over: result"}`}}
	a, llm := says(`"found"`), says(`"joined"`)
	flaky := &tool{}
	slow := workgraph.ActorFunc(func(ctx context.Context, _ *workgraph.Call) (workgraph.Outcome, error) {
		<-ctx.Done()
		return workgraph.Outcome{}, ctx.Err()
	})
	tries := 0
	flaky.upon = func(map[string]json.RawMessage) (workgraph.Outcome, error) {
		if tries++; tries == 1 {
			return workgraph.Outcome{}, workgraph.Errorf(workgraph.Retryable, "TRY_AGAIN", "first try")
		}
		return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`"second try"`)}}, nil
	}
	e := newEnv(t, workgraph.Actors{"r": r, "r2": r2, "r3": says(`{"result": "r3 says so"}`), "tool": a, "llm": llm, "slow": slow, "flaky": flaky,
		"other": says(`"other was called"`), "third": says(`{"result": "third was asked"}`)})
	old := ids.New(thread.IDPrefix)
	e.threads.put(t, thread.Thread{ID: old}, workgraph.ThreadItem{Kind: workgraph.ThreadMessage, Body: []byte(`{"role": "user", "content": "said before"}`)},
		workgraph.ThreadItem{Kind: workgraph.ThreadState, Brief: []byte(`{"user_input": "said before", "task_status": "Ongoing"}`), Body: []byte(`{}`)})
	var b strings.Builder
	res, err := e.try(t, strings.ReplaceAll(named, "thr_old", old))
	if err != nil {
		b.WriteString(err.Error())
	}
	for _, asked := range [][]map[string]json.RawMessage{r.asked, r2.asked} {
		for _, m := range asked {
			b.WriteString(encoded(t, m))
		}
	}
	forks := 0
	for _, row := range e.threads.rows {
		if row.ParentID != "" {
			forks++
		}
	}
	fmt.Fprint(&b, a.calls, llm.calls, string(res.Result), res.Reason, res.Error, len(e.threads.rows)-1, " threads, ", forks, " forks")
	for _, name := range []string{"other", "third", "r3"} {
		if a, ok := e.all[name].(*tool); ok {
			fmt.Fprint(&b, " ", name, len(a.calls) > 0, a.calls)
		}
	}
	return b.String()
}

func TestInputRefused(t *testing.T) {
	t.Parallel()
	const rest = `"reasoner": "r", "actions": {"x": {"actor": "tool"}}`
	for name, c := range map[string]struct{ args, named, want string }{
		"Misspelled":     {`{"user_input": "a", "contxt": "b"}`, ``, `args[0]: "contxt" is no field of a task`},
		"Definition":     {`{"user_input": "a", "actions": {"evil": {}}}`, ``, `args[0]: "actions" is no field of a task`},
		"TwoInMapping":   {`{"goal": "a", "request": "b"}`, ``, "goal and request are both given"},
		"TwoStated":      {``, `"user_input": "a", "goal": "b",`, "user_input and goal are both given"},
		"TextAndStated":  {`"a text"`, `"user_input": "a",`, "args[0] and user_input are both given"},
		"MorePositional": {`"a text", "another"`, ``, "args[1]: an agent takes one positional argument"},
		"Attachment":     {`{"user_input": "a", "attachments": [{"id": "d", "content": "x"}, {"id": "e", "text": "y"}]}`, ``, `attachments[1]: unknown field "text"`},
		"NoContent":      {`{"user_input": "a", "attachments": [{"id": "d"}]}`, ``, "attachments[0]: it has no content"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &reasoner{script: []string{over}}
			e := newEnv(t, workgraph.Actors{"r": r, "tool": &tool{}})
			require.NoError(t, json.Unmarshal([]byte("["+c.args+"]"), &e.input.Args))
			res := e.run(t, `{`+c.named+rest+`}`)
			require.Equal(t, workgraph.StatusFailed, res.Status)
			require.Contains(t, res.Error.Message, c.want)
			require.Empty(t, r.asked)
		})
	}
	before := func(pass workgraph.PassDown) func(*workgraph.Graph) {
		return func(g *workgraph.Graph) {
			g.Nodes = append(g.Nodes, workgraph.Node{ID: "before", Actor: "tool", PassDown: pass})
			g.Edges = []workgraph.Edge{{From: "before", To: "agent"}}
		}
	}
	t.Run("ThreadOfTheMapping/IsTaken", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{over, over}}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": &tool{}})
		done(t, e.run(t, `{"user_input": "first", `+rest+`}`), `"done"`)
		e.input.Args = []json.RawMessage{json.RawMessage(`{"user_input": "second", "thread_id": "` + e.threads.root(t) + `"}`)}
		done(t, e.run(t, `{`+rest+`}`), `"done"`)
		require.Contains(t, r.prompt(t, 2), "Conversation:\nUser: first\nAgent: done\nUser: second")
		require.Len(t, e.threads.rows, 1)
	})
	t.Run("ResultBesideAnInput/IsAttached", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{over}}
		done(t, work(t, workgraph.Actors{"r": r, "tool": says(`"the result"`)}, `{"user_input": "sum up", `+rest+`}`, before(workgraph.FirstArg())), `"done"`)
		require.Contains(t, r.prompt(t, 1), "<Attachment id=\"before\" description=\"The result of the 'before' agent\">\nthe result\n</Attachment>")
		require.Contains(t, r.prompt(t, 1), "User: sum up")
	})
	t.Run("Upstream/MayBeLeftOut", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{over}}
		done(t, work(t, workgraph.Actors{"r": r, "tool": says(`"the result"`)}, `{"user_input": "x", "upstream": false, `+rest+`}`, before(workgraph.PassDown{})), `"done"`)
		require.NotContains(t, r.prompt(t, 1), "the result")
	})
	t.Run("EarlierResults/AreToldBesideThoseBefore", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{over}}
		done(t, work(t, workgraph.Actors{"r": r, "tool": says(`"the result"`)}, `{"user_input": "x", "previous_agent_results": ["an older one"], `+rest+`}`, before(workgraph.PassDown{})), `"done"`)
		require.Contains(t, r.prompt(t, 1), "the result")
		require.Contains(t, r.prompt(t, 1), "an older one")
	})
	t.Run("EarlierResults/AreNotToldTwice", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{over}}
		done(t, work(t, workgraph.Actors{"r": r, "tool": says(`"the result"`)}, `{"user_input": "x", `+rest+`}`, before(workgraph.Key("previous_agent_results"))), `"done"`)
		require.Equal(t, 1, strings.Count(r.prompt(t, 1), "the result\n"))
	})
	t.Run("Null/GoesOnWithTheTask", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{over, over}}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": &tool{}})
		done(t, e.run(t, `{"user_input": "first", `+rest+`}`), `"done"`)
		e.input = workgraph.Input{Named: map[string]json.RawMessage{"user_input": json.RawMessage(`"of the run"`)},
			Args: []json.RawMessage{json.RawMessage(`{"user_input": null, "thread_id": "` + e.threads.root(t) + `"}`)}}
		done(t, e.run(t, `{`+rest+`}`), `"done"`)
		require.NotContains(t, r.prompt(t, 2), "of the run", "the nearest place that states a user input says that there is none")
	})
}
