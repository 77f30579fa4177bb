package contract_test

import (
	"fmt"
	"go/constant"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// figure is a piece of a row and the constant in it, as in internal/conns.maxStrangers.
type figure struct{ text, of string }

// words is a number of a row that stems from no constant of ours, with the reason.
func words(text, _ string) figure { return figure{text, ""} }

const (
	wg, reg, gw = "workgraph.", "services/registry/internal/store.", "services/gateway/internal/"
	actors      = "services/executor/internal/actor."
	tools       = "services/executor/internal/actor/mcp."
	script      = "services/executor/internal/actor/starlark."
	fixed       = "services/executor/internal/actor/tool."
	door        = "services/gateway/mcpserver."
	agents      = "services/gateway/internal/a2a."
	remote      = "services/executor/internal/actor/a2a."
	engine      = "services/executor/internal/engine."
	author      = "services/planner/internal/author."
	agent       = "services/executor/internal/actor/agent"
	status      = "statuses of HTTP"
)

// figures are the rows of docs/limits.md in which there are numbers, by their first cell.
var figures = map[string][]figure{
	"a call without valid credentials":                                                                {{"64 KiB", "internal/grpckit.streamWindow"}},
	"connections on which no call has shown valid credentials":                                        {{"512", "internal/conns.maxStrangers"}, {"10 seconds", "internal/grpckit.connectionTimeout"}},
	"connections of one namespace, by the last valid key shown on them":                               {{"2,000", "internal/conns.maxOfNamespace"}},
	"a connection without a call under way":                                                           {{"5 minutes", "internal/grpckit.maxConnectionIdle"}},
	"headers of a call":                                                                               {{"32 KiB", "internal/grpckit.maxHeaderBytes"}},
	"calls of one namespace under way at one server, streams among them, on however many connections": {{"2,000", "internal/grpckit.DefaultMaxCalls"}},
	"headers that the gateway passes on with a gRPC call":                                             {{"64", gw + "grpcproxy.maxMetadata"}, {"8 KiB", gw + "grpcproxy.maxMetadataBytes"}},
	"lists, maps and texts":                                                                           {words("64 labels", "a rule of the proto")},
	"elements of a message: messages, list elements, map entries, unknown fields":                     {{"500,000", "internal/extent.MaxElements"}},
	"messages within each other":                                                                      {{"100", "internal/extent.maxDepth"}},
	"health checks, which need no credentials":                                                        {{"4 KiB", "internal/grpckit.maxExempt"}, {"5 seconds", "internal/grpckit.exemptTimeout"}, words("8 at once", "chosen in a call")},

	"connections on which no request has shown a valid key, TLS handshakes under way among them": {{"512", "internal/conns.maxStrangers"}},
	"connections of one namespace":                                                                            {words("429", status)},
	"a connection without a request under way, event streams among them":                                      {{"2 minutes", "internal/host.idleTimeout"}},
	"a request without a valid key, or to an unknown path":                                                    {{"half a second", gw + "rest.strangerDrain"}, words("401, 403, 404", status)},
	"requests of one namespace under way at one gateway, event streams, WebSockets and gRPC calls among them": {{"2,000", "internal/grpckit.DefaultMaxCalls"}, words("429", status)},
	"a WebSocket of [the live door](live.md#bounds)":                                                          {{"4 KiB", gw + "socket.maxMessage"}, {"20 a second", gw + "socket.perSecond"}, {"100 channels", gw + "socket.maxSubscriptions"}, {"256 KiB", gw + "socket.queueBytes"}, {"1,000 different runs", gw + "socket.maxRuns"}, words("1008 or 1009", "codes of the protocol")},
	"headers":                  {{"64 KiB", "internal/host.maxHeaderBytes"}, {"5 seconds", "internal/host.headerTimeout"}, words("431", status)},
	"`Content-Encoding`":       {words("415", status)},
	"a body":                   {words("413", status), words("408", status)},
	"values within each other": {{"200", gw + "jsonview.MaxDepth"}, words("400", status)},
	"lists, maps, elements":    {words("400", status)},
	"faults that are told":     {{"50", gw + "jsonview.maxFaults"}},

	"watches of runs at one executor, channels of [the live door](live.md#bounds) and requests that [wait](rest.md#answers-at-once) among them": {words("64", "a default of the configuration")},

	"watches of the feed at one replica":                      {words("1,000", "a field of accounting.DefaultBounds")},
	"events of the feed that are kept":                        {words("1,000,000", "a default of the configuration"), words("1 GiB", "a default of the configuration")},
	"entries of the [memory](memory.md#limits) in all scopes": {words("1,000,000", "a default of the configuration"), words("1 GiB", "a default of the configuration")},
	"schedules":                                      {{"1,000", "services/executor/internal/schedule.DefaultMax"}},
	"threads, ephemeral ones among them":             {{"1,000,000", "services/executor/internal/thread.DefaultMaxThreads"}},
	"items and messages of all its threads together": {{"16 GiB", "services/executor/internal/thread.DefaultMaxBytes"}},

	"a thread [as a value](threads.md#a-thread-as-a-value)": {{"256", "services/executor/internal/thread.MaxValueThreads"}, {"32", "services/executor/internal/thread.MaxValueDepth"},
		{"10,000", "services/executor/internal/thread.MaxValueItems"}, {"8 MiB", "services/executor/internal/thread.MaxValueBytes"}},

	"limits":           {{"10,000", "services/executor/internal/limit.MaxLimits"}},
	"epics":            {words("100,000", "a field of accounting.DefaultBounds")},
	"tasks of an epic": {words("10,000", "a field of accounting.DefaultBounds")},
	"tasks at work at once of an epic that runs by itself": {words("64", "a rule of the proto"), {"4", "services/registry/internal/epic.DefaultParallel"}},
	"inputs of the workflow of a task":                     {{"256 KiB", "services/registry/internal/rpc.maxInput"}},

	"prices of its own": {words("10,000", "a field of accounting.DefaultBounds")},
	"tasks that a task depends on; dependencies of all tasks of an epic": {words("1,000", "a rule of the proto"), words("100,000", "a field of accounting.DefaultBounds")},

	"connections that one namespace's clients use at once, at one process":                                {words("at least 4", "chosen where the pool is opened")},
	"calls of one namespace's clients that wait for a connection, at one process":                         {{"1,000", "internal/dbkit.MaxWaiting"}},
	"one read that a client asked for":                                                                    {{"10 seconds", "internal/dbkit.MaxRead"}},
	"one statement on PostgreSQL, whoever asked for it":                                                   {{"30 seconds", "internal/dbkit.statementTimeout"}, {"5 of them", "internal/dbkit.lockTimeout"}},
	"epics or tasks that are looked at for one page of a list with a filter (states, tags, text, labels)": {{"10,000", reg + "MaxLook"}, {"a quarter of a second", reg + "maxLookTime"}, {"64 at least", reg + "lookStep"}},

	"text of one expression":                                             {{"16 KiB", wg + "maxExprLen"}, {"4,000", wg + "maxExprTokens"}, {"250", wg + "maxExprDepth"}},
	"lists, maps and macros in each other":                               {{"32", wg + "maxExprNesting"}, {"30,000", wg + "maxExprTypes"}},
	"constants of one expression (patterns, times)":                      {{"200,000", wg + "compileCostLimit"}},
	"one evaluation":                                                     {{"1,000,000", wg + "exprCostLimit"}, {"16 bytes", wg + "textUnit"}, {"8 comparisons", wg + "stepsPerUnit"}},
	"all expressions of one step of a run (one outcome, signal, answer)": {{"10,000,000", wg + "commandCostLimit"}, {"10 seconds", engine + "maxEvaluation"}},
	"all expressions of one call of `cel` or `template`": {{"10 seconds", actors + "maxExpressionTime"}, {"1,000", "services/executor/internal/actor/template.maxHoles"},
		{"4 MiB", "services/executor/internal/actor/template.maxOutput"}},
	"one value that an expression makes":                                {{"1,048,576", wg + "maxValueParts"}, {"16-byte", wg + "textUnit"}},
	"result of one expression, as JSON":                                 {{"16 MiB", wg + "maxExprResult"}},
	"text of one script of `starlark`":                                  {{"64 KiB", script + "maxScript"}, {"500", script + "maxNesting"}},
	"integers of a script":                                              {{"65,536", script + "maxIntBits"}},
	"values and functions of a script within each other":                {{"1,000", script + "maxDepth"}, {"100", script + "maxCalls"}},
	"what a script prints":                                              {{"100 lines", script + "maxPrints"}, {"1 KiB", script + "maxPrinted"}},
	"result of one script, as JSON":                                     {{"16 MiB", script + "maxResult"}},
	"tools of one executor":                                             {{"1,000", fixed + "maxTools"}},
	"fixed arguments, and schema, of one tool":                          {{"1 MiB", fixed + "maxText"}},
	"servers of one executor":                                           {{"100", tools + "maxServers"}},
	"tools of one server":                                               {{"1,000", tools + "maxTools"}, {"4 MiB", tools + "maxToolBytes"}, {"100 pages", tools + "maxPages"}},
	"one tool":                                                          {{"64 KiB", tools + "maxSchema"}, {"1 KiB", tools + "maxDescription"}},
	"reports of progress of one call":                                   {{"100 milliseconds", tools + "progressEvery"}},
	"a server that does not read":                                       {{"10 seconds", tools + "writeWithin"}},
	"remote agents of one executor":                                     {{"100", remote + "maxAgents"}, {"20 `hosts`", remote + "maxHosts"}},
	"the card of a remote agent":                                        {{"256 KiB", remote + "maxCard"}, {"4 KiB", remote + "maxDescription"}},
	"parts of a message to a remote agent":                              {{"100", remote + "maxParts"}},
	"ids of tasks and contexts":                                         {{"256 bytes", remote + "maxContext"}},
	"words of an agent in an error":                                     {{"2,000 bytes", remote + "maxWords"}},
	"reports of the status of one task":                                 {{"100 milliseconds", remote + "progressEvery"}},
	"tasks that are looked through for a message whose answer was lost": {{"20 newest", remote + "maxListed"}},
	"pause between two looks at a task":                                 {{"250 milliseconds", remote + "firstPoll"}, {"1 minute", remote + "longestPoll"}},
	"a request over A2A":                                                {{"1 MiB", agents + "MaxBody"}, {"20,000 values", agents + "maxValues"}, {"64 deep", agents + "maxDepth"}},
	"a message of A2A":                                                  {{"100 parts", agents + "maxParts"}, {"256 bytes", agents + "maxMessageID"}, {"256 bytes", agents + "maxContext"}},
	"a card of ours":                                                    {{"200 skills", agents + "maxSkills"}, {"1 KiB", agents + "maxText"}, {"20 tags", agents + "maxTags"}},
	"the history of a task":                                             {{"100 messages", agents + "maxHistory"}, {"100 questions", agents + "maxQuestions"}},
	"a page of tasks":                                                   {{"100", agents + "maxPage"}, {"8 MiB", "internal/page.MaxBytes"}},
	"the wait of `message/send`":                                        {{"10 minutes", agents + "maxWait"}},

	"one answer of a tool": {{"256 KiB", door + "maxAnswer"}, {"64 KiB", door + "maxPart"}},
	"one list of a tool":   {{"100", door + "maxList"}, {"20", door + "maxFaults"}},
	"newest runs, epics and workflows among the resources": {{"20", door + "maxNewest"}},
	"the wait of one call of a tool":                       {{"10 minutes", door + "maxWait"}},
	"questions that one call asks the client":              {{"20", door + "maxQuestions"}, {"16 KiB", door + "maxForm"}, {"50", door + "maxFields"}},
	"runs of one `spawn_and_await`":                        {{"50", door + "maxAsked"}},
	"a definition for `workflow_create`":                   {{"256 KiB", door + "maxText"}},
	"tools that are workflows":                             {{"64", door + "maxToolName"}, {"16 KiB", door + "maxSchema"}, {"4 MiB", door + "maxSources"}, {"8 MiB", door + "maxSchemas"}},
	"notifications that a list has changed":                {{"5 seconds", door + "changePause"}, {"100 milliseconds", door + "firstPause"}},
	"a regular expression":                                 {{"1,000 bytes", wg + "maxPattern"}, {"2,000", wg + "maxPatternSteps"}, {"four ranges", wg + "maxFoldedRanges"}, {"/ 16", wg + "textUnit"}},
	"in work at once":                                      {{"5 milliseconds", "internal/turns.restFrom"}, {"a second", "internal/turns.restMost"}, {"100 nodes", "services/executor/internal/engine/program.lightSize"}},

	"faults of one graph or patch":       {{"100 are", wg + "MaxFaults"}, words("2,000 bytes", "twice maxFaultText"), words("20 nodes", "chosen where a cycle is told")},
	"workflows that one approval covers": {{"256", engine + "maxCovered"}},
	"`map.max_parallel`":                 {{"1,000", wg + "MaxParallelItems"}},
	"loops of one graph":                 {{"20,000,000", wg + "maxLoopWork"}, {"64", wg + "maxLoopDepth"}},
	"one JSON Schema": {{"256 KiB", wg + "maxSchemaBytes"}, {"64 deep", wg + "maxSchemaDepth"}, {"5,000", wg + "maxSubschemas"}, {"2 MiB", wg + "maxSchemaNames"},
		{"8 KiB", wg + "maxPatternBytes"}, {"50,000", wg + "maxPatterns"}, words("800", "of the parser of numbers"), {"400", wg + "maxExponent"}},
	"all different schemas of one graph":              {{"2,000", wg + "maxGraphSchemas"}, {"4 MiB", wg + "maxGraphSchemaBytes"}, {"20,000", wg + "maxGraphSubschemas"}},
	"the patterns in all its schemas and expressions": {{"200,000", wg + "maxGraphPatterns"}},
	"a value against a schema":                        {{"50,000,000", wg + "maxSchemaSteps"}, words("10 ns", "measured")},
	"faults of one value":                             {{"50", wg + "maxPlaces"}},
	"text of a plan":                                  {{"1,000", "plan.maxGraphDiagnostics"}},
	"a request to a model": {
		{"100,000", "internal/llm.maxMessages"}, {"1,000", "internal/llm.maxTools"}, {"64 MiB", "internal/llm.maxRequestBytes"},
	},
	"an answer of a model": {{"1,000", "internal/llm.maxCalls"}, {"100", agent + ".maxKeptCalls"}},
	"a response that an agent reads": {{"1 MiB", agent + "/response.MaxBytes"}, {"1,000", agent + "/response.maxGroups"}, {"20,000", agent + "/response.maxTags"},
		{"100", agent + "/response.maxLearnings"}, {"8 KiB", agent + "/response.maxLearning"}},
	"what an agent is given":                      {{"1 MiB", agent + ".maxMessage"}, {"1,000 attachments", agent + ".maxAttachments"}, {"1,000 results", agent + "/state.MaxMembers"}},
	"what a round of an agent adds to its thread": {{"3 MiB", agent + ".maxAppend"}},
	"a text that a model restates": {
		{"32 KiB", "plan.MaxRestateBytes"}, {"256 KiB", "plan.maxAnswerBytes"}, {"500", "plan.maxRestateSteps"}, {"2,000", "plan.maxRestateNeeds"},
		words("4 at once", "a share of admission"), words("16", "four namespaces' share"), {"256", "internal/admission.Waiting"},
	},
	"a plan that a model writes": {
		{"64 KiB", author + "maxAnswer"}, {"25", author + "maxTold"}, {"400 bytes", author + "maxFaultText"}, {"160", author + "maxLine"},
		{"4 KiB", author + "maxResult"}, {"64 KiB", author + "maxResults"}, {"80 bytes", author + "minResult"}, {"300 bytes", author + "maxRequest"},
		{"32 KiB", author + "maxFixed"},
		words("4 at once", "a share of admission"), words("16", "four namespaces' share"),
	},
	"a compiled plan": {{"4,000,000", "plan/compile.maxSteps"}, {"1,000,000", "plan/compile.MaxEdges"}, {"32 MiB", "plan/compile.maxNamed"}},
	"the actors that workers of a namespace serve":        {words("10,000", "a default of the configuration"), {"16 MiB", "services/executor/internal/journal.MaxActorBytes"}, words("64 MiB", "chosen where what is remembered is made")},
	"names that are looked through for misspelled actors": {words("20,000,000", "chosen where names are held against each other")},
	"programs that an executor remembers":                 {{"64 MiB", "services/executor/internal/engine/program.maxKeptBytes"}},
	"an actor's schema of arguments":                      {{"100", wg + "maxDemanded"}, words("16 MiB", "two Mi words of 64 names: maxNameWords"), {"200", wg + "maxLikeNames"}},
}

// value is what the text of a figure comes to: a number, bytes, or nanoseconds.
func value(t *testing.T, text string) int64 {
	t.Helper()
	switch text {
	case "half a second":
		return int64(time.Second / 2)
	case "a quarter of a second":
		return int64(time.Second / 4)
	case "a second":
		return int64(time.Second)
	case "four ranges":
		return 4
	case "5 of them":
		return int64(5 * time.Second)
	}
	m := regexp.MustCompile(`([0-9][0-9,]*)[ -]?(\w*)`).FindStringSubmatch(text)
	require.NotNil(t, m, text)
	n, err := strconv.ParseInt(strings.ReplaceAll(m[1], ",", ""), 10, 64)
	require.NoError(t, err, text)
	unit := map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "milliseconds": int64(time.Millisecond), "seconds": int64(time.Second), "minute": int64(time.Minute), "minutes": int64(time.Minute)}[m[2]]
	return n * max(unit, 1)
}

// TestLimits holds the figures in the tables of docs/limits.md against the constants of the code. A row with
// a number that no figure accounts for fails, and so does a figure that is in no row.
func TestLimits(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	var packages []string
	for _, list := range figures {
		for _, f := range list {
			if pkg := strings.TrimSuffix(f.of, path.Ext(f.of)); f.of != "" && !seen[pkg] {
				seen[pkg] = true
				packages = append(packages, pkg)
			}
		}
	}
	sources := load(t, packages...)
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "limits.md"))
	require.NoError(t, err)
	digit := regexp.MustCompile(`[0-9]`)
	head, met := "", map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "|") {
			head = ""
			continue
		}
		name := strings.TrimSpace(cells[0])
		if head == "" {
			head = name + strings.Join(cells[1:], "|")
			continue
		}
		if strings.Contains(head, "before") { // the measured value
			continue
		}
		rest := strings.Join(cells[1:], " | ")
		for _, f := range figures[name] {
			met[name] = true
			if !strings.Contains(rest, f.text) {
				t.Errorf("%q: there is no %q in it", name, f.text)
				continue
			}
			rest = strings.Replace(rest, f.text, "", 1)
			if f.of == "" {
				continue
			}
			pkg := strings.TrimSuffix(f.of, path.Ext(f.of))
			c, ok := sources[pkg].types.Scope().Lookup(path.Ext(f.of)[1:]).(*types.Const)
			if !ok {
				t.Errorf("%q: %s is no constant", name, f.of)
				continue
			}
			if is, _ := constant.Int64Val(constant.ToInt(c.Val())); is != value(t, f.text) {
				t.Errorf("%q: the page says %q, %s is %s", name, f.text, f.of, shown(c, is))
			}
		}
		if digit.MatchString(rest) {
			t.Errorf("%q: no constant, and no word, accounts for the numbers in %q", name, rest)
		}
	}
	for name := range figures {
		if !met[name] {
			t.Errorf("the page has no row %q", name)
		}
	}
}

func shown(c *types.Const, is int64) string {
	if types.TypeString(c.Type(), nil) == "time.Duration" {
		return time.Duration(is).String()
	}
	return fmt.Sprint(is)
}
