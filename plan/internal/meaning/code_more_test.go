package meaning

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// linksOf returns the links of the most likely reading of a text, as "a>b".
func linksOf(t *testing.T, text string) string {
	t.Helper()
	all := Read(form.NewSource(text))
	require.NotEmpty(t, all, text)
	var out []string
	for _, l := range all[0].Links {
		out = append(out, l.From+">"+l.To)
	}
	return strings.Join(out, " ")
}

func TestMoreCode(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"Background":   {"#!/bin/sh\na\nb &\nc &\nwait\nd\n", "a>b a>c b>d c>d"},
		"Subshells":    {"( a && b ) &\n( c ) &\nwait\nd\n", "a>b b>d c>d"},
		"Jobs":         {"```sh\nl1 &\nP=$!\nl2 &\nwait $P\nx1\nwait\ny1\n```", "l1>x1 x1>y1 l1>y1 l2>y1"},
		"Gradle":       {"tasks.register(\"one\")\ntasks.register(\"two\") { dependsOn(\"one\") }\n", "one>two"},
		"Rake":         {"task :one do\nend\ntask :two => [:one] do\nend\n", "one>two"},
		"Ninja":        {"build x.o: cc x.c\nbuild y.o: cc y.c\nbuild app: link x.o y.o\n", "x.o>app y.o>app"},
		"NetworkX":     {"G = nx.DiGraph()\nG.add_edges_from([(\"a\", \"b\"), (\"b\", \"c\")])\n", "a>b b>c"},
		"Dask":         {"dsk = {\n    \"a\": (load, \"x.csv\"),\n    \"b\": (clean, \"a\"),\n    \"c\": (draw, \"a\", \"b\"),\n}\n", "a>b a>c b>c"},
		"Structs":      {"var plan = []Task{\n\t{ID: \"a\", Cmd: \"dig\"},\n\t{ID: \"b\", Cmd: \"sow\", DependsOn: []string{\"a\"}},\n}\n", "a>b"},
		"SpawnTo":      {"P = load(\"x\")\nspawn Q = left(P)\nspawn R = right(P)\nwait Q, R\nZ = export(Q, R)\n", "P>Q P>R Q>Z R>Z"},
		"LabelOfNest":  {"Plan: Compare(Size(Find(\"a\")), Size2(Find2(\"b\")))\n", "Find>Size Find2>Size2 Size>Compare Size2>Compare"},
		"TaskBlocks":   {"aufgabe graben {\n  wer: zwei\n}\naufgabe pflanzen {\n  wartet auf: graben\n}\n", "graben>pflanzen"},
		"TwoWords":     {"AUFGABE a1:  Teig kneten\nAUFGABE b1:  Ofen heizen\nAUFGABE c1:  Brot backen   WARTET AUF a1, b1\nAUFGABE d1:  abkühlen  WARTET AUF c1\n", "a1>c1 b1>c1 c1>d1"},
		"Sorter":       {"ts = TopologicalSorter()\nts.add(\"b\", \"a\")\nts.add(\"c\", \"b\")\n", "a>b b>c"},
		"Topology":     {"d = {\"a\": set(), \"b\": {\"a\"}}\nlist(TopologicalSorter(d).static_order())\n", "a>b"},
		"Group":        {"with TaskGroup(\"m\") as m:\n    a = Op(task_id=\"a\")\n    b = Op(task_id=\"b\")\n    a >> b\nc = Op(task_id=\"c\")\nm >> c\n", "a>b b>c"},
		"Loop":         {"a = Op(task_id=\"a\")\nz = Op(task_id=\"z\")\nfor t in [b, c]:\n    a >> t >> z\n", "a>b b>z a>c c>z"},
		"Chord":        {"chord([a.s(), b.s()])(c.s())\n", "a>c b>c"},
		"Spawn":        {"load\nspawn left\nspawn right\nwait for all\nmerge\n", "load>left load>right left>merge right>merge"},
		"Branches":     {"PARALLEL {\n  LANE 1: a1; a2\n  LANE 2: b1\n}\nTHEN c1\n", "a1>a2 a2>c1 b1>c1"},
		"Rules":        {"START aa\nWHEN aa DONE: START bb\nWHEN bb DONE: START cc\n", "aa>bb bb>cc"},
		"Numbered":     {"1. a\nPARALLEL\n  2. b\n  3. c\nEND PARALLEL\n4. d\n", "1>2 1>3 2>4 3>4"},
		"Words":        {"nacheinander(waschen, gleichzeitig(kochen, braten), essen)", "waschen>kochen waschen>braten kochen>essen braten>essen"},
		"Flat":         {"BEGIN\nwash\nPARALLEL\ncook\nfry\nEND PARALLEL\neat\nEND\n", "wash>cook wash>fry cook>eat fry>eat"},
		"AnyOrder":     {"open_shop\nin beliebiger Reihenfolge:\n    sweep\n    dust\nclose_shop\n", "open_shop>sweep open_shop>dust sweep>close_shop dust>close_shop"},
		"ForkAnd":      {"inizio\n  a1\n  fork\n    b1\n    b2\n  and\n    c1\n  join\n  d1\nfine\n", "a1>b1 b1>b2 a1>c1 b2>d1 c1>d1"},
		"Otherwise":    {"check_form\nWENN gut DANN\n    sign_form\nSONST\n    send_back\nENDE WENN\nfile_form\n", "check_form>sign_form check_form>send_back sign_form>file_form send_back>file_form"},
		"Each":         {"ein_lesen\nFOR EACH row DO\n    fix_row\nEND FOR\nsave_all\n", "ein_lesen>fix_row fix_row>save_all"},
		"LastIsEnd":    {"開始\n  並列\n    a1()\n    b1()\n  並列終わり\n  c1()\n終了\n", "a1>c1 b1>c1"},
		"AllDone":      {"函数 主流程():\n    并行执行:\n        a1()\n        b1()\n    等待全部完成\n    c1()\n", "a1>c1 b1>c1"},
		"Arguments":    {"begin\n  a1();\n  cobegin\n    b1(n := 18);\n    c1(n := 9);\n  coend;\nend\n", "a1>b1 a1>c1"},
		"Errgroup":     {"func Run(ctx context.Context) error {\n\ta, err := Load(ctx)\n\tif err != nil {\n\t\treturn fmt.Errorf(\"x: %w\", err)\n\t}\n\tg, ctx := errgroup.WithContext(ctx)\n\tg.Go(func() error {\n\t\tvar err error\n\t\tb, err = Fetch(a)\n\t\treturn err\n\t})\n\tif err := g.Wait(); err != nil {\n\t\treturn err\n\t}\n\treturn Send(ctx, b)\n}\n", "a>b b>Send"},
		"Compiled":     {"g.add_node(\"a\", f)\ng.add_node(\"b\", f)\ng.add_edge(\"a\", \"b\")\napp = g.compile()\n", "a>b"},
		"Proxies":      {"import * as x from './activities';\nconst { load, send } = proxyActivities({ t: '1m' });\nexport async function flow() {\n  const a = await load(1);\n  await send(a);\n}\n", "a>send"},
		"Symbols":      {"plan.add(:a)\nplan.add(:b, after: [:a])\n", "a>b"},
		"Barrier":      {"let a = first()\nlet b = spawn left(a)\nlet c = spawn right(a)\nawait all(b, c)\nlast()\n", "a>b a>c b>last c>last"},
		"Accumulated":  {"xs = load()\nfor each x in xs:\n    rows += check(x)\nsave(rows)\n", "xs>rows rows>save"},
		"Composed":     {"const p = compose(c1, b1, a1);\n", "a1>b1 b1>c1"},
		"ComposedText": {"x = compose(translate(record(\"v\")), tone(\"v\"))\n", "record>translate translate>compose tone>compose"},
		"Goal":         {".DEFAULT_GOAL := all\nall: b1\nb1: a1\n\techo\na1:\n\techo\n", "b1>all a1>b1"},
		"Activities":   {"func FlowX(ctx workflow.Context) error {\n\tif err := workflow.ExecuteActivity(ctx, Reserve, b).Get(ctx, nil); err != nil {\n\t\treturn err\n\t}\n\treturn workflow.ExecuteActivity(ctx, Send, b).Get(ctx, nil)\n}\n", "Reserve>Send"},
		"StepRun":      {"export const p = inngest.createFunction({ id: 'p' }, { event: 'e' }, async ({ step }) => {\n  const a = await step.run('load', async () => {\n    return db.get(1);\n  });\n  await step.run('send', () => mail(a));\n});\n", "a>send"},
		"TypedMethod":  {"public async Task RunAsync(string id)\n{\n    var a = await LoadAsync(id);\n    var b = CheckAsync(a);\n    var c = PickAsync(a);\n    await Task.WhenAll(b, c);\n    await SendAsync(b.Result, c.Result);\n}\n", "a>b a>c b>SendAsync c>SendAsync"},
		"Awaited":      {"let a = load(1)?;\nlet b = plan(&a).await?;\nOk(())\n", "a>b"},
		"PipeOfX":      {"pipe(a1, b1, c1)(\"x\")\n", "a1>b1 b1>c1"},
		"Applied":      {"main = publish (review (draft \"peat\"))\n", "draft>review review>publish"},
		"Backticks":    {"Kurz:\n\n`send(print(load(\"x\")), frank(\"y\"))`\n", "load>print print>send frank>send"},
		"AwaitThen":    {"start A: \"collect\"\nstart B: \"count\"\nawait A, B  then start C: \"link\"\nawait C then start D: \"draw\"\n", "A>C B>C C>D"},
		"WhenDone":     {"TASK ONCE: zero\nTASK SAMPLE WHEN DONE(ONCE): run the soil sample\nTASK FIT WHEN DONE(SAMPLE) AND DONE(ONCE): subtract, fit\n", "ONCE>SAMPLE SAMPLE>FIT ONCE>FIT"},
		"Next":         {"const a = new T(this, 'A', {});\nconst b = new T(this, 'B', {});\nconst c = new T(this, 'C', {});\nconst d = a.next(b).next(c);\n", "A>B B>C"},
		"NotCalls":     {"1. 调研价格\n2. 确定首批(依赖:1)\n3. 联系工厂(依赖:1)\n", "1>2 1>3"},
		"Destructured": {"const { series, parallel } = require('gulp');\nexports.default = series(wash, parallel(cook, fry), eat);\n", "wash>cook wash>fry cook>eat fry>eat"},
		"SelfNext":     {"class F(FlowSpec):\n    @step\n    def start(self):\n        self.next(self.a, self.b)\n    @step\n    def a(self):\n        self.next(self.end)\n    @step\n    def b(self):\n        self.next(self.end)\n    @step\n    def end(self):\n        pass\n", "start>a start>b a>end b>end"},
		"Operations":   {"{\"op\": \"export\", \"input\": {\"op\": \"join\", \"inputs\": [{\"op\": \"left\"}, {\"op\": \"right\"}]}}", "join>export left>join right>join"},
		"StopIsAStep":  {"IN PARALLEL\n  LANE in\n    close_doors\n    stop the lifts\n  LANE out\n    call_brigade\nEND IN PARALLEL\nDO all_clear\n", "close_doors>2 2>4 call_brigade>4"},
		"WhenFinishes": {"start aa\nstart bb\nwhen aa finishes: start cc\nwhen bb and cc finish: start dd\n", "aa>cc bb>dd cc>dd"},
		"NeedsInMarks": {"step aa : dig\nstep bb : [needs aa]\nstep cc : [needs aa, bb] sow\n", "aa>bb aa>cc bb>cc"},
		"NeedsInHan":   {"任务 读取：无依赖\n任务 连接：依赖 读取\n任务 启动：依赖 连接\n", "读取>连接 连接>启动"},
		"AsyncLet":     {"func open(id: Int) async throws -> Page {\n    let a = try await load(id)\n    async let b = left(a)\n    async let c = right(a)\n    return try await show(b, c)\n}\n", "a>b a>c b>show c>show"},
		"WaitsFor":     {"PROCEDURE prep\n  TASK seal\n  TASK draw   WAITS_FOR seal\n  TASK test   WAITS_FOR draw\nEND\n", "seal>draw draw>test"},
		"DependeDe":    {"abrir    depois_de: nada\nligar    depois_de: abrir\nassar    depois_de: ligar, abrir\n", "abrir>ligar ligar>assar abrir>assar"},
		"Requiere":     {"p0 := pedir el número\np1 := cargar expediente   requiere p0\np2 := cruzar datos   requiere p0, p1\n", "p0>p1 p0>p2 p1>p2"},
		"Objects":      {"const plan = [\n  { id: 'lint', run: () => css('src'), after: [] },\n  { id: 'pack', run: () => zip('dist'), after: ['lint'] },\n];\n", "lint>pack"},
		"Invoked":      {"g = StateGraph(S)\ng.add_edge(\"a\", \"b\")\napp = g.compile()\nout = app.invoke({\"x\": 1})\n", "a>b"},
		"AsyncBlock":   {"suspend fun quote(f: String) = coroutineScope {\n    val a = plan(f)\n    val b = async { tolls(a) }\n    val c = send(b.await())\n}\n", "a>b b>c"},
		"Outputs":      {"workflow {\n    TRIM(reads)\n    ALIGN(TRIM.out)\n    COUNT(ALIGN.out)\n}\n", "TRIM>ALIGN ALIGN>COUNT"},
		"Fluent":       {"result = (\n    load(\"x\")\n    .screen()\n    .embed(model=\"s\")\n    .cluster(k=8)\n)\n", "load>screen screen>embed embed>cluster"},
		"ArrowsOfNeed": {"A → B means A depends on B:\n\nA → B\nB → C\n", "B>A C>B"},
		"ArrowsOn":     {"A → B means B depends on A:\n\nA → B\nB → C\n", "A>B B>C"},
		"LabelOfNeed":  {"graph TD\n  A -->|depends on| B\n  B -->|depends on| C\n", "B>A C>B"},
		"TreeOfNeed":   {"Each task needs the ones below it:\n\na\n├── b\n│   └── c\n└── d\n", "b>a c>b d>a"},
		"MarkAndTitle": {"[1] dig\n   |\n   +---> [2] sow ----+\n   |                 |\n   +---> [3] hoe ----+\n                     |\n                     v\n                  [4] reap\n", "1>2 1>3 2>4 3>4"},
	} {
		require.Equal(t, c.want, linksOf(t, c.text), name)
	}
}
