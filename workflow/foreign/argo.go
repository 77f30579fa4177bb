package foreign

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// argoTask is a task of a template: of a `dag`, or of `steps`.
type argoTask struct {
	*value
	name  string
	needs []string
}

// maxNesting is how deep templates may call each other.
const maxNesting = 20

func (b *builder) argo(v *value) {
	b.name = v.get("metadata", "name").str()
	if b.name == "" {
		b.name = strings.TrimRight(v.get("metadata", "generateName").str(), "-")
	}
	b.about = v.get("metadata", "annotations", "workflows.argoproj.io/description").str()
	spec := v.get("spec")
	if inner := spec.get("workflowSpec"); inner != nil {
		b.report("trigger", "schedule", "start its graph by a schedule")
		spec = inner
	}
	for _, key := range []string{"onExit", "hooks", "synchronization", "volumeClaimTemplates", "podGC", "parallelism"} {
		if spec.get(key) != nil {
			b.report("setting", key, "it has no counterpart")
		}
	}
	templates := map[string]*value{}
	for _, t := range spec.get("templates").list() {
		templates[t.get("name").str()] = t
	}
	entry := spec.get("entrypoint").str()
	if entry == "" && len(spec.get("templates").list()) == 1 {
		entry = spec.get("templates").items[0].get("name").str()
	}
	b.argoTemplate(templates, entry, entry, nil, 0)
}

// argoTemplate adds what a template does behind some steps, and returns its ends. path names it in the
// result.
func (b *builder) argoTemplate(templates map[string]*value, name, path string, needs []string, depth int) []string {
	t := templates[name]
	tasks := argoTasks(t)
	if depth > maxNesting || b.calling[name] {
		b.report("loop", path, "its template calls itself; it is not looked into")
		tasks = nil
	}
	if tasks == nil {
		if t.get("suspend") != nil {
			if seconds := t.get("suspend", "duration"); seconds.is(scalar) || seconds.is(text) && durations.MatchString(seconds.text) {
				return []string{b.add(path, last(path), "wait", orStart(needs), field{"delay", seconds})}
			}
			return []string{b.add(path, last(path), "human", orStart(needs), field{"message", str("Go on with " + last(path) + "?")})}
		}
		arguments := newMapping()
		for _, kind := range []string{"container", "script", "http", "resource"} {
			if v := t.get(kind); v != nil {
				arguments.put(kind, v)
			}
		}
		if t == nil {
			b.report("template", path, "its template stands elsewhere")
		}
		return []string{b.call(path, last(path), name, needs, arguments)}
	}
	b.calling[name] = true
	defer delete(b.calling, name)
	return b.argoGraph(templates, tasks, path, needs, depth)
}

var durations = regexp.MustCompile(`^([0-9]{1,4}d|[0-9]{1,9}(ms|s|m|h))$`)

func last(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// argoTasks are the tasks of a template, each behind those that it needs. They are nil if it is no
// graph.
func argoTasks(t *value) []*argoTask {
	var out []*argoTask
	if tasks := t.get("dag", "tasks"); tasks != nil {
		for _, v := range tasks.list() {
			needs := v.get("dependencies").texts()
			for _, name := range dependsNames.FindAllString(v.get("depends").str(), -1) {
				needs = append(needs, strings.SplitN(name, ".", 2)[0])
			}
			out = append(out, &argoTask{v, v.get("name").str(), unique(needs)})
		}
		return out
	}
	var before []string
	for _, group := range t.get("steps").list() {
		var names []string
		for _, v := range append(group.list(), alone(group)...) {
			name := v.get("name").str()
			names = append(names, name)
			out = append(out, &argoTask{v, name, before})
		}
		if len(names) > 0 {
			before = names
		}
	}
	return out
}

// alone is a mapping as a list of one.
func alone(v *value) []*value {
	if v.is(mapping) {
		return []*value{v}
	}
	return nil
}

var dependsNames = regexp.MustCompile(`[A-Za-z0-9_][A-Za-z0-9_.-]*`)

// argoGraph adds tasks in an order in which none stands before what it needs.
func (b *builder) argoGraph(templates map[string]*value, tasks []*argoTask, path string, needs []string, depth int) []string {
	byName, ends, needed := map[string]*argoTask{}, map[string][]string{}, map[string]bool{}
	for _, t := range tasks {
		if byName[t.name] != nil {
			b.report("task", path+"/"+t.name, "there are two tasks of the name; one is left out")
		}
		byName[t.name] = t
	}
	open := map[string]bool{}
	var order []*argoTask
	var visit func(t *argoTask)
	visit = func(t *argoTask) {
		open[t.name] = true
		for _, name := range t.needs {
			switch other := byName[name]; {
			case other == nil:
				b.report("dependency", path+"/"+t.name, "there is no task "+clip(name))
			case ends[name] != nil: // it is in order
			case open[name]:
				b.report("dependency", path+"/"+t.name, "it leads back to "+clip(name)+", and is left out")
			default:
				visit(other)
			}
		}
		open[t.name] = false
		ends[t.name] = []string{}
		order = append(order, t)
	}
	for _, t := range tasks {
		if ends[t.name] == nil {
			visit(byName[t.name])
		}
	}
	done := map[string]bool{}
	for _, t := range order {
		if b.tooLarge {
			return nil
		}
		var follows []string
		for _, name := range t.needs {
			if done[name] {
				needed[name] = true
				follows = append(follows, ends[name]...)
			}
		}
		if len(follows) == 0 {
			follows = needs
		}
		ends[t.name] = b.argoTask(templates, t, path+"/"+t.name, follows, depth)
		done[t.name] = true
	}
	var out []string
	for _, t := range tasks {
		if !needed[t.name] {
			out = append(out, ends[t.name]...)
		}
	}
	return unique(out)
}

var argoEquals = regexp.MustCompile(`^\s*"?\{\{\s*(?:steps|tasks)\.([A-Za-z0-9_-]+)\.outputs\.result\s*\}\}"?\s*==\s*"?'?([A-Za-z0-9_ -]+?)'?"?\s*$`)

// argoTask adds a task. What follows one with a condition follows it, or the way around it.
func (b *builder) argoTask(templates map[string]*value, t *argoTask, path string, needs []string, depth int) []string {
	for _, key := range []string{"withItems", "withParam", "withSequence"} {
		if t.get(key) != nil {
			b.report("loop", path, "it runs once, not for each item of `"+key+"`")
		}
	}
	for _, key := range []string{"arguments", "hooks", "onExit", "continueOn"} {
		if t.get(key) != nil {
			b.report("setting", path, "`"+key+"` is not carried over")
		}
	}
	if d := t.get("depends").str(); strings.ContainsAny(d, "|!.") {
		b.report("condition", path, "it follows all tasks of `depends`, whatever became of them: "+d)
	}
	name := t.get("template").str()
	if ref := t.get("templateRef"); ref != nil {
		name = ref.get("name").str() + "-" + ref.get("template").str()
	}
	var around []string
	if when := t.get("when").str(); when != "" {
		ways := b.when(path, when, needs)
		needs, around = ways[:1], ways[1:]
	}
	inner := path
	if argoTasks(templates[name]) == nil {
		return append(b.argoTemplate(templates, name, inner, needs, depth), around...)
	}
	first := len(b.out)
	ends := b.argoTemplate(templates, name, inner, needs, depth+1)
	for _, step := range b.out[min(first, len(b.out)):] { // all of them stand for the task
		b.steps[path] = append(b.steps[path], step.get("id").text)
	}
	return append(ends, around...)
}

// when adds the choice whether a task runs: its ways are yes and no.
func (b *builder) when(path, when string, needs []string) []string {
	name := last(path)
	if m := argoEquals.FindStringSubmatch(when); m != nil {
		source := b.steps[path[:strings.LastIndexByte(path, '/')+1]+m[1]]
		if len(source) == 1 && slices.Contains(b.before(needs), source[0]) {
			return b.choose("", name+"_when", needs, []choice{{field: source[0], value: m[2], name: name + "_yes"}}, name+"_no")
		}
	}
	b.report("condition", path, "the actor must say `route: yes` if it holds: "+when)
	arguments := newMapping()
	arguments.put("condition", str(strings.NewReplacer("{{", "", "}}", "").Replace(when)))
	return b.decide("", name+"_when", "when", needs, []string{"yes"}, "no", arguments)
}

// maxLooked bounds how many conditions are looked into: each takes as long as there are steps.
const maxLooked = 200

// before are the steps from which some steps can be reached, and those themselves.
func (b *builder) before(ids []string) []string {
	if b.looked++; b.looked > maxLooked {
		return nil
	}
	out := unique(ids)
	by := map[string]*value{}
	for _, step := range b.out {
		by[step.get("id").text] = step
		for _, rule := range step.get("rules").list() { // a way follows its switch
			by[" "+rule.get("route").text] = step
		}
		if step.get("type").text == "switch" {
			by[" "+step.get("default").text] = step
		}
	}
	seen := map[string]bool{}
	for i := 0; i < len(out); i++ {
		if seen[out[i]] {
			continue
		}
		seen[out[i]] = true
		if step := by[out[i]]; step != nil {
			out = append(out, step.get("needs").texts()...)
		}
		if sw := by[" "+out[i]]; sw != nil {
			out = append(out, sw.get("id").text)
		}
	}
	return out
}

// github adds the jobs of a workflow of GitHub Actions, each as a chain of its steps.
func (b *builder) github(v *value) {
	if b.name = v.get("name").str(); hasExpression(v.get("name")) {
		b.name = ""
	}
	if on := v.get("on"); on != nil {
		b.report("trigger", "on", "the workflow is started by a call")
	}
	for _, key := range []string{"permissions", "concurrency", "env", "defaults"} {
		if v.get(key) != nil {
			b.report("setting", key, "it has no counterpart")
		}
	}
	jobs := v.get("jobs")
	ends, open := map[string][]string{}, map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		open[name] = true
		job := jobs.values[name]
		var follows []string
		for _, other := range job.get("needs").texts() {
			switch {
			case jobs.values[other] == nil:
				b.report("dependency", name, "there is no job "+clip(other))
				continue
			case open[other]:
				b.report("dependency", name, "it leads back to "+clip(other)+", and is left out")
				continue
			case ends[other] == nil:
				visit(other)
			}
			follows = append(follows, ends[other]...)
		}
		open[name] = false
		ends[name] = b.githubJob(name, job, follows)
	}
	for _, name := range jobs.keys {
		if ends[name] == nil {
			visit(name)
		}
	}
}

func (b *builder) githubJob(name string, job *value, needs []string) []string {
	for _, key := range []string{"strategy", "services", "container", "environment", "env", "outputs", "permissions", "continue-on-error"} {
		if job.get(key) != nil {
			what := "setting"
			if key == "strategy" {
				what = "loop"
			}
			b.report(what, name, "`"+key+"` is not carried over")
		}
	}
	if when := job.get("if").str(); when != "" {
		needs = b.githubIf(name, when, needs)[:1] // what needs a job that is skipped is skipped, too
	}
	if uses := job.get("uses").str(); uses != "" {
		return []string{b.call(name, name, uses, needs, job.get("with"))}
	}
	first := len(b.out)
	ends := needs
	for i, step := range job.get("steps").list() {
		ends = b.githubStep(name, i, step, ends)
	}
	if len(b.out) == first {
		ends = []string{b.pass(name, name, orStart(needs))}
	}
	for _, step := range b.out[min(first, len(b.out)):] {
		if id := step.get("id").text; !slices.Contains(b.steps[name], id) {
			b.steps[name] = append(b.steps[name], id)
		}
	}
	return ends
}

func (b *builder) githubStep(job string, i int, step *value, needs []string) []string {
	path := job + "/" + strconv.Itoa(i+1)
	name := job
	for _, key := range []string{"id", "name", "uses"} {
		if s := step.get(key).str(); s != "" {
			name = job + "_" + strings.SplitN(s, "@", 2)[0]
			break
		}
	}
	var around []string
	if when := step.get("if").str(); when != "" {
		ways := b.githubIf(name, when, needs)
		needs, around = ways[:1], ways[1:]
	}
	if step.get("env") != nil {
		b.report("setting", path, "`env` is not carried over")
	}
	kind, arguments := "run", step.get("with")
	if uses := step.get("uses").str(); uses != "" {
		kind = strings.SplitN(uses, "@", 2)[0]
	} else {
		arguments = newMapping()
		for _, key := range []string{"run", "shell", "working-directory"} {
			if v := step.get(key); v != nil {
				arguments.put(key, v)
			}
		}
	}
	return append([]string{b.call(path, name, kind, needs, arguments)}, around...)
}

func (b *builder) githubIf(name, when string, needs []string) []string {
	b.report("condition", name, "the actor must say `route: yes` if it holds: "+when)
	arguments := newMapping()
	arguments.put("condition", str(strings.NewReplacer("${{", "", "{{", "", "}}", "").Replace(when)))
	return b.decide("", name+"_if", "if", needs, []string{"yes"}, "no", arguments)
}
