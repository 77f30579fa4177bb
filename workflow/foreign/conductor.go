package foreign

import (
	"regexp"
	"slices"
	"strings"
)

// conductor adds the tasks of a workflow of Conductor.
func (b *builder) conductor(v *value) {
	b.name, b.about = v.get("name").str(), v.get("description").str()
	for _, key := range []string{"failureWorkflow", "timeoutSeconds", "outputParameters", "inputParameters"} {
		if x := v.get(key); x != nil && (len(x.keys) > 0 || len(x.items) > 0 || x.str() != "") {
			b.report("setting", key, "it is not carried over")
		}
	}
	b.conductorTasks(v.get("tasks").list(), nil, map[string][]string{})
}

// conductorTasks adds tasks that follow each other. ends are those of each task by its reference name.
// ended says that nothing goes on behind them.
func (b *builder) conductorTasks(tasks []*value, needs []string, ends map[string][]string) (out []string, ended bool) {
	for i, t := range tasks {
		name := t.get("taskReferenceName").str()
		if ended {
			b.report("task", name, "nothing leads to it")
			continue
		}
		joins := i+1 < len(tasks) && isJoin(tasks[i+1])
		needs, ended = b.conductorTask(t, name, needs, ends, joins)
		ends[name] = needs
		if b.tooLarge {
			break
		}
	}
	return needs, ended
}

func kindOf(t *value) string {
	if kind := strings.ToUpper(t.get("type").str()); kind != "" {
		return kind
	}
	return "SIMPLE"
}

func isJoin(t *value) bool { kind := kindOf(t); return kind == "JOIN" || kind == "EXCLUSIVE_JOIN" }

func (b *builder) conductorTask(t *value, name string, needs []string, ends map[string][]string, joins bool) (out []string, ended bool) {
	for _, key := range []string{"optional", "retryCount", "startDelay", "asyncComplete", "cacheConfig", "onStateChange"} {
		if s := t.get(key).str(); t.get(key) != nil && s != "" && s != "0" && s != "false" {
			b.report("setting", name, "`"+key+"` is not carried over")
		}
	}
	in := t.get("inputParameters")
	switch kind := kindOf(t); kind {
	case "FORK_JOIN":
		return b.conductorFork(t, name, needs, ends, joins)
	case "JOIN", "EXCLUSIVE_JOIN":
		var follows []string
		for _, of := range t.get("joinOn").texts() {
			follows = append(follows, ends[of]...)
		}
		if len(follows) == 0 {
			follows = needs
		}
		return []string{b.add(name, name, "merge", orStart(follows))}, false
	case "SWITCH", "DECISION":
		return b.conductorSwitch(t, name, needs, ends)
	case "DO_WHILE":
		b.report("loop", name, "what it repeats runs once")
		return b.conductorTasks(t.get("loopOver").list(), []string{b.pass(name, name, orStart(needs))}, ends)
	case "TERMINATE":
		b.report("end", name, "other parts of the workflow go on")
		b.call(name, name, kind, needs, in)
		return nil, true
	default:
		return []string{b.conductorPlain(t, kind, name, needs, in)}, false
	}
}

// conductorFork adds branches side by side. What follows waits for all, unless a join says for which.
func (b *builder) conductorFork(t *value, name string, needs []string, ends map[string][]string, joins bool) (out []string, ended bool) {
	fork := []string{b.pass(name, name, orStart(needs))}
	ended = true
	for _, branch := range t.get("forkTasks").list() {
		of, over := b.conductorTasks(branch.list(), fork, ends)
		if !over {
			out, ended = append(out, of...), false
		}
	}
	if len(t.get("forkTasks").list()) == 0 {
		return fork, false
	}
	if ended && joins {
		b.report("task", name, "all of its branches end the workflow")
	}
	return unique(out), ended
}

var (
	conductorRef  = regexp.MustCompile(`^\$\{([A-Za-z0-9_-]+)\.output(?:\.([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*){0,5}))?\}$`)
	conductorWait = regexp.MustCompile(`^([0-9]{1,9})\s*(seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)$`)
	versionedName = regexp.MustCompile(`^[^@{}\s]+$`)
)

func (b *builder) conductorSwitch(t *value, name string, needs []string, ends map[string][]string) (out []string, ended bool) {
	cases := t.get("decisionCases")
	names := slices.Clone(keysOf(cases))
	if len(names) > maxPorts {
		b.report("condition", name, "only 100 of its cases are carried over")
		names = names[:maxPorts]
	}
	var ways []string
	if field := b.conductorField(t, needs, ends); field != "" {
		var choices []choice
		for _, key := range names {
			choices = append(choices, choice{field: field, value: key, name: name + "_" + key})
		}
		if len(choices) == 0 {
			ways = []string{b.pass(name, name, orStart(needs))}
		} else {
			ways = b.choose(name, name, needs, choices, name+"_default")
		}
	} else {
		b.report("condition", name, "the actor must say which case it is, as `route`")
		arguments := newMapping()
		if e := t.get("expression"); e != nil {
			arguments.put("expression", e)
		}
		if len(names) == 0 {
			ways = []string{b.call(name, name, kindOf(t), needs, arguments)}
		} else {
			ways = b.decide(name, name, kindOf(t), needs, names, "default", arguments)
		}
	}
	ended = true
	for i, way := range ways {
		branch := t.get("defaultCase")
		if i < len(names) {
			branch = cases.values[names[i]]
		}
		of, over := b.conductorTasks(branch.list(), []string{way}, ends)
		if !over {
			out, ended = append(out, of...), false
		}
	}
	return unique(out), ended
}

// conductorField is the result that a switch compares, if it is that of a step before it.
func (b *builder) conductorField(t *value, needs []string, ends map[string][]string) string {
	key := t.get("caseValueParam").str()
	if t.get("evaluatorType").str() == "value-param" {
		key = t.get("expression").str()
	}
	m := conductorRef.FindStringSubmatch(t.get("inputParameters", key).str())
	if key == "" || m == nil {
		return ""
	}
	of := ends[m[1]]
	steps := b.steps[m[1]]
	if len(of) != 1 || len(steps) != 1 || of[0] != steps[0] {
		return ""
	}
	for _, id := range b.before(needs) {
		if id != of[0] {
			continue
		}
		if m[2] == "" {
			return id
		}
		return id + "." + m[2]
	}
	return ""
}

func (b *builder) conductorPlain(t *value, kind, name string, needs []string, in *value) string {
	switch kind {
	case "HTTP":
		request := in.get("http_request")
		if request == nil {
			request = in
		}
		if uri := request.get("uri"); uri.str() != "" && !hasExpression(uri) {
			method := request.get("method")
			if hasExpression(method) || method.str() == "" {
				method = nil
			}
			for _, key := range []string{"headers", "body"} {
				if request.get(key) != nil {
					b.report("setting", name, "`"+key+"` of its request is not carried over")
				}
			}
			return b.add(name, name, "http", orStart(needs), field{"url", uri}, field{"method", method})
		}
	case "WAIT":
		if m := conductorWait.FindStringSubmatch(strings.ToLower(in.get("duration").str())); m != nil {
			unit := map[byte]string{'s': "seconds", 'm': "minutes", 'h': "hours", 'd': "days"}[m[2][0]]
			return b.add(name, name, "wait", orStart(needs), field{"delay", &value{kind: scalar, text: trimZeros(m[1])}}, field{"delay_unit", str(unit)})
		}
	case "HUMAN", "USER_TASK":
		return b.add(name, name, "human", orStart(needs), field{"message", str(strings.NewReplacer("{{", "{ {", "}}", "} }").Replace("Go on with " + name + "?"))})
	case "SUB_WORKFLOW":
		of, version := t.get("subWorkflowParam", "name").str(), t.get("subWorkflowParam", "version").str()
		if version == "" {
			version = "1"
		}
		if versionedName.MatchString(of) && versionedName.MatchString(version) && !hasExpression(str(of+version)) && len(of+version) < 190 {
			if in != nil && len(in.keys) > 0 {
				b.report("expression", name, "what it gives the other workflow is left out")
			}
			return b.add(name, name, "workflow", orStart(needs), field{"workflow", str(of + "@" + version)})
		}
	case "SIMPLE":
		kind = t.get("name").str()
	}
	return b.call(name, name, kind, needs, in)
}

// trimZeros takes leading zeros from a number, which JSON does not allow.
func trimZeros(s string) string {
	if s = strings.TrimLeft(s, "0"); s == "" {
		return "0"
	}
	return s
}
