package starlark_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/actortest"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/starlark"
	"github.com/epigraph-run/epigraph/workgraph"
)

// arguments is the JSON of a call with a script.
func arguments(t testing.TB, script string, more ...any) string {
	t.Helper()
	m := map[string]any{"script": script}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	raw, err := json.Marshal(m)
	require.NoError(t, err)
	return string(raw)
}

func spec() actor.Spec { return starlark.Spec(starlark.DefaultConfig()) }

func TestResult(t *testing.T) {
	t.Parallel()
	order := json.RawMessage(`{"lines": [{"sum": 9007199254740993, "n": 2}, {"sum": 1.5, "n": 1}], "zone": "eu", "alpha": null}`)
	for name, c := range map[string]struct{ script, want string }{
		"Bound":              {`result = 1 + 2`, `3`},
		"Main":               {"def main(order):\n  return [l['n'] for l in order['lines']]", `[2,1]`},
		"MainTakesAll":       {"def main(*a, **kw):\n  return [len(a), sorted(kw.keys())]", `[2,["order"]]`},
		"MainTakesArgs":      {"def main(first, second, order=None):\n  return [first, second, order['zone']]", `["x",7,"eu"]`},
		"MainMixes":          {"def main(first, order, *rest):\n  return [first, order['zone'], rest]", `["x","eu",[7]]`},
		"MainKeywordOnly":    {"def main(*, order):\n  return order['zone']", `"eu"`},
		"Args":               {`result = args`, `["x",7]`},
		"Named":              {`result = named["order"]["zone"]`, `"eu"`},
		"KeyOrder":           {`result = list(named["order"])`, `["lines","zone","alpha"]`},
		"BigIntegers":        {`result = named["order"]["lines"][0]["sum"] * 10000000000`, `90071992547409930000000000`},
		"Floats":             {`result = [named["order"]["lines"][1]["sum"], 2.0, 1e300, 7 / 2]`, `[1.5,2.0,1e+300,3.5]`},
		"Types":              {`result = {"n": None, "b": True, "t": (1, "x"), "r": range(3), "s": set([1])}`, `{"n":null,"b":true,"t":[1,"x"],"r":[0,1,2],"s":[1]}`},
		"Text":               {`result = "a<b" + ", ".join(["ü", "\n"])`, `"a<bü, \n"`},
		"Slices":             {`x = [0,1,2,3,4,5]; result = [x[1:3], x[::-1], x[-2:], x[4:1:-2], x[9:], "abc"[::-1], x[5:2], (1,2,3)[:2]]`, `[[1,2],[5,4,3,2,1,0],[4,5],[4,2],[],"cba",[],[1,2]]`},
		"Augment":            {"x = [1]; y = x; x += [2]; d = {'k': [1]}; d['k'] += [2]; n = 1; n <<= 3; d |= {'m': 1}; l = [5]; l[0] -= 1; result = [y, d, n, l]", `[[1,2],{"k":[1,2],"m":1},8,[4]]`},
		"AugmentOnce":        {"calls = []\ndef at():\n  calls.append(1)\n  return 0\nl = [1]\nl[at()] += 1\nresult = [l, len(calls)]", `[[2],1]`},
		"AugmentItself":      {"x = [1, 2]\nx += x\nresult = x", `[1,2,1,2]`},
		"Recursion":          {"def main():\n  def f(n):\n    return 1 if n == 0 else n * f(n - 1)\n  return f(30)", `265252859812191058636308480000000`},
		"While":              {"n = 0\nwhile n < 5:\n  n += 1\nresult = n", `5`},
		"JSON":               {`result = json.decode(json.encode({"a": [1, 2.5, "x"]}))`, `{"a":[1,2.5,"x"]}`},
		"Math":               {`result = math.floor(2.7)`, `2`},
		"Format":             {`result = ["%s=%d" % ("a", 3), "%(k)s" % {"k": "v"}, "{}-{x}".format(1, x=2), "a-b".replace("-", "+")]`, `["a=3","v","1-2","a+b"]`},
		"Sorted":             {`result = sorted([3, 1, 2], key=lambda x: -x, reverse=True)`, `[1,2,3]`},
		"Dicts":              {`d = dict([("a", 1)], b=2); d.update({"c": 3}); result = [d.get("a"), d.pop("b"), d.items(), "c" in d, d == {"a": 1, "c": 3}, [k for k in d]]`, `[1,2,[["a",1],["c",3]],true,true,["a","c"]]`},
		"Sets":               {`result = sorted(list(set([1, 2]) | set([3])))`, `[1,2,3]`},
		"ShadowedNone":       {`None = 3; result = [1, 2][:]`, `[1,2]`},
		"Getattr":            {`result = [getattr("ab", "upper")(), getattr("ab", "nothing", 7), hasattr([], "append")]`, `["AB",7,true]`},
		"Unpacking":          {"(a, [b, c]), d = (1, [2, 3]), 4\nx = [0, 0]\nx[1], y = 5, 6\nresult = [a, b, c, d, x, y]", `[1,2,3,4,[0,5],6]`},
		"Spread":             {"def f(*a, **k):\n  return [a, k]\nresult = f(*range(3), **{'x': 1})", `[[0,1,2],{"x":1}]`},
		"CommentsAndLiteral": {"# ((((\nx = '''(\n((''' + r\"\\\"((\"  # [[\nresult = len(x)", `8`},
		"Comprehensions":     {`result = [{x: y for x, y in [("a", 1)] if y}, [x for l in [[1], [2]] for x in l]]`, `[{"a":1},[1,2]]`},
		"Conditional":        {`result = ("y" if not False and True or False else "n") * 2`, `"yy"`},
		"Negative":           {`result = [-3, ~5, +2, -7 // 2, -7 % 3]`, `[-3,-6,2,-4,2]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := actortest.Value(t, spec(), arguments(t, c.script, "order", order), func(s *workgraph.Start) {
				s.Args = []json.RawMessage{json.RawMessage(`"x"`), json.RawMessage(`7`)}
			})
			require.Equal(t, c.want, got)
		})
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, reason, says string }{
		"Syntax":           {"x = 1\nresult = (", "ARGUMENTS_INVALID", "line 2, column"},
		"UndefinedName":    {"result = 1\ny = nothing + 1", "ARGUMENTS_INVALID", "line 2, column 5: undefined: nothing"},
		"Load":             {`load("x.star", "y")`, "ARGUMENTS_INVALID", "line 1, column 1: a script cannot load"},
		"NoResult":         {`x = 1`, starlark.ReasonFailed, "gives no result"},
		"TwoResults":       {"result = 1\ndef main():\n  return 1", starlark.ReasonFailed, "both result and main"},
		"DivisionByZero":   {"x = 0\nresult = 1 // x", starlark.ReasonFailed, "line 2, column 12: floored division by zero"},
		"MissingKey":       {"def f():\n  return named['y']\nresult = f()", starlark.ReasonFailed, `line 2, column 15: key "y" not in dict`},
		"Fail":             {`fail("no", "way")`, starlark.ReasonFailed, "line 1, column 5: fail: no way"},
		"NoMethod":         {`result = "a".uper()`, starlark.ReasonFailed, `a string has no attribute "uper"; did you mean "upper"?`},
		"MissingParameter": {"def main(a, b):\n  return a", starlark.ReasonFailed, "missing 2 arguments (a, b)"},
		"Function":         {`result = len`, starlark.ReasonFailed, "cannot be written as JSON"},
		"NaN":              {`result = float("nan")`, starlark.ReasonFailed, "NaN"},
		"KeyNoText":        {`result = {1: 2}`, starlark.ReasonFailed, "use str(key)"},
		"Cycle":            {`x = []; x.append(x); result = x`, starlark.ReasonFailed, "contains itself"},
		"KeywordArgument":  {`result = sorted(iterable=[1])`, starlark.ReasonFailed, `takes no argument named "iterable"`},
		"FrozenIteration":  {"x = [1]\nfor i in x:\n  x += [i]", starlark.ReasonFailed, "line 3, column 5"},
		"OpenOnly":         {`result = open("/etc/passwd")`, "ARGUMENTS_INVALID", "undefined: open"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := actortest.Fails(t, spec(), arguments(t, c.script))
			require.Equal(t, c.reason, e.Reason, e.Message)
			require.Equal(t, workgraph.Permanent, e.Type)
			require.Contains(t, e.Message, c.says)
		})
	}
	t.Run("NoScript", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, actor.ReasonArguments, actortest.Fails(t, spec(), `{}`).Reason)
	})
	t.Run("TooManyStepsAsked", func(t *testing.T) {
		t.Parallel()
		e := actortest.Fails(t, spec(), arguments(t, "result = 1", "max_steps", 2_000_000))
		require.Contains(t, e.Message, "max_steps must be from 1 to 1000000")
	})
	t.Run("DeepInput", func(t *testing.T) {
		t.Parallel()
		e := actortest.Fails(t, spec(), arguments(t, "result = 1", "x", json.RawMessage(strings.Repeat("[", 2000)+strings.Repeat("]", 2000))))
		require.Contains(t, e.Message, "named.x: JSON nested deeper than")
	})
}

// attacks are scripts that would take memory or time without bounds.
var attacks = map[string]string{
	"EndlessLoop":          "while True:\n  pass",
	"StringRepeat":         "result = 'a' * 1000000000",
	"StringDoubling":       "s = 'a' * 1000\nwhile True:\n  s = s + s",
	"StringAugment":        "s = 'a' * 1000\nwhile True:\n  s += s",
	"ListRepeat":           "result = [0] * 1000000000",
	"ListDoubling":         "x = [1] * 100\nwhile True:\n  x = x + x",
	"ListExtendItself":     "x = [1] * 100\nwhile True:\n  x += x",
	"ListExtend":           "x = [1] * 100\nwhile True:\n  x.extend(x)",
	"ListSlices":           "x = [1] * 100000\ny = []\nwhile True:\n  y.append(x[:])",
	"TupleDoubling":        "x = (1,) * 100\nwhile True:\n  x = x + x",
	"ListOfRange":          "result = list(range(1000000000000))",
	"SortedRange":          "result = sorted(range(1000000000))",
	"MaxOfRange":           "result = max(range(1000000000000))",
	"AllOfRange":           "result = all(range(1, 1000000000000))",
	"ZipOfRange":           "result = zip(range(1000000000), range(1000000000))",
	"EnumerateRange":       "result = enumerate(range(1000000000))",
	"SpreadOfRange":        "def f(*a):\n  return 1\nresult = f(*range(1000000000))",
	"ExtendByRange":        "x = []\nx.extend(range(1000000000))",
	"AugmentByRange":       "x = []\nx += range(1000000000)",
	"SetOfRange":           "result = set(range(1000000000))",
	"DictOfRange":          "result = dict([range(1000000000)] * 2)",
	"BytesOfRange":         "result = bytes(range(1000000000))",
	"UnionOfRange":         "result = set().union(range(1000000000))",
	"ResultRange":          "result = range(1000000000)",
	"IntSquaring":          "x = 3\nwhile True:\n  x = x * x",
	"IntShift":             "x = 1\nwhile True:\n  x = x << 500",
	"IntAugmentedShift":    "x = 1\nwhile True:\n  x <<= 500",
	"IntParse":             "result = int('9' * 10000000)",
	"IntNegations":         "x = 1 << 500\nfor i in range(100):\n  x = x << 500\ny = []\nwhile True:\n  y.append(-x)",
	"DeepRecursion":        "def f(n):\n  return f(n + 1)\nresult = f(0)",
	"MutualRecursion":      "def f(n):\n  return sorted([1], key=g)\ndef g(n):\n  return f(n)\nresult = f(0)",
	"DictGrowth":           "d = {}\ni = 0\nwhile True:\n  d[i] = i\n  i += 1",
	"SetGrowth":            "d = set()\ni = 0\nwhile True:\n  d.add(i)\n  i += 1",
	"ListOfDicts":          "d = []\nwhile True:\n  d.append({})",
	"NestedLists":          "x = []\nwhile True:\n  x = [x]",
	"Comprehension":        "result = [0 for i in range(1000000000)]",
	"DictComprehension":    "result = {i: 0 for i in range(1000000000)}",
	"Join":                 "s = 'a' * 1000000\nresult = s.join(['x'] * 100000)",
	"Replace":              "s = 'a' * 100000\nresult = s.replace('', s)",
	"FormatMethod":         "s = 'a' * 1000000\nresult = ('{0}' * 10000).format(s)",
	"FormatOperator":       "s = 'a' * 1000000\nresult = ('%(k)s' * 10000) % {'k': s}",
	"FormatTuple":          "s = 'a' * 1000000\nresult = ('%s' * 1000) % tuple([s] * 1000)",
	"StrOfShared":          "x = [1]\nfor i in range(60):\n  x = [x, x]\nresult = str(x)",
	"JSONOfShared":         "x = [1]\nfor i in range(60):\n  x = [x, x]\nresult = json.encode(x)",
	"ResultShared":         "x = [1]\nfor i in range(60):\n  x = [x, x]\nresult = x",
	"CompareShared":        "x = [0] * 1000\nx = [x] * 1000\nx = [x] * 1000\ny = [0] * 1000\ny = [y] * 1000\ny = [y] * 1000\nresult = x == y",
	"CompareDeep":          "x = [1]\nfor i in range(60):\n  x = [x, x]\ny = [1]\nfor i in range(60):\n  y = [y, y]\nresult = x == y",
	"HashShared":           "x = (1,)\nfor i in range(60):\n  x = (x, x)\nd = {}\nd[x] = 1",
	"HashSharedLookup":     "x = (1,)\nfor i in range(60):\n  x = (x, x)\nresult = {1: 2}[x]",
	"HashSharedIn":         "x = (1,)\nfor i in range(60):\n  x = (x, x)\nresult = x in {1: 2}",
	"HashSharedLiteral":    "x = (1,)\nfor i in range(60):\n  x = (x, x)\nresult = {x: 2}",
	"HashSharedGet":        "x = (1,)\nfor i in range(60):\n  x = (x, x)\nresult = {1: 2}.get(x)",
	"HashSharedSet":        "x = (1,)\nfor i in range(60):\n  x = (x, x)\nresult = set([x])",
	"HashSharedAdd":        "x = (1,)\nfor i in range(60):\n  x = (x, x)\ns = set()\ns.add(x)",
	"HashSharedVarargs":    "def f(*a):\n  return a\nx = f(1)\nfor i in range(60):\n  x = f(x, x)\nresult = {x: 1}",
	"HashSharedSetdefault": "x = (1,)\nfor i in range(60):\n  x = (x, x)\nresult = {}.setdefault(x, 1)",
	"SortShared":           "x = [1]\nfor i in range(8):\n  x = [x] * 10\nresult = sorted([x, x, x])",
	"IndexShared":          "x = [1]\nfor i in range(9):\n  x = [x] * 10\nresult = [x].index([x])",
	"StrDeep":              "x = []\nfor i in range(100000):\n  x = [x]\nresult = str(x)",
	"HashDeep":             "x = ()\nfor i in range(100000):\n  x = (x,)\nresult = {x: 1}",
	"FailMessage":          "x = [1]\nfor i in range(60):\n  x = [x, x]\nfail(x)",
	"PrintShared":          "x = [1]\nfor i in range(60):\n  x = [x, x]\nprint(x)",
	"PrintSeparator":       "print(sep='a' * 1000000, *([''] * 10000))",
	"SplitMany":            "s = 'a ' * 10000000\nx = []\nwhile True:\n  x.append(s.split())",
	"Codepoints":           "s = 'a' * 10000000\nx = []\nwhile True:\n  x.append(list(s.codepoints()))",
	"Upper":                "s = 'a' * 10000000\nx = []\nwhile True:\n  x.append(s.upper())",
	"JSONDecode":           "s = '[' + '{},' * 1000000 + '{}]'\nresult = json.decode(s)",
	"JSONNumber":           "result = json.decode('9' * 1000000)",
	"Insertions":           "x = [0] * 1000000\nwhile True:\n  x.insert(0, 1)",
	"Finds":                "s = 'a' * 10000000\nwhile True:\n  s.find('b')",
	"Calls":                "def f():\n  f()\n  return [" + strings.Repeat("0,", 30000) + "]\nf()",
	"NestedBrackets":       "result = " + strings.Repeat("(", 60000),
	"NestedBracketsInText": "result = " + strings.Repeat(`(")",`, 12000),
	"NestedLambdas":        "result = " + strings.Repeat("lambda:", 9000) + "1",
	"NestedNot":            "result = " + strings.Repeat("not ", 16000) + "1",
	"NestedMinus":          "result = " + strings.Repeat("-", 65000) + "1",
	"NestedSum":            "result = 1" + strings.Repeat("+1", 32000),
	"NestedConditions":     "result = " + strings.Repeat("1 if 0 else ", 5000) + "1",
	"LongScript":           "result = '" + strings.Repeat("a", 70000) + "'",
}

// TestAttacks holds scripts that want everything to what they may have: an error soon, and little memory.
func TestAttacks(t *testing.T) {
	for name, script := range attacks {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			begun := time.Now()
			e := actortest.Fails(t, spec(), arguments(t, script))
			took := time.Since(begun)
			runtime.ReadMemStats(&after)
			t.Logf("%s in %s, %d MiB: %s", e.Reason, took.Round(time.Millisecond), (after.TotalAlloc-before.TotalAlloc)>>20, e.Message)
			require.Contains(t, []string{starlark.ReasonSteps, starlark.ReasonMemory, starlark.ReasonFailed, actor.ReasonArguments}, e.Reason)
			require.Less(t, took, 5*time.Second)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(400<<20), "all that was ever allocated, garbage included")
		})
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	t.Run("Steps/SayTheLine", func(t *testing.T) {
		t.Parallel()
		e := actortest.Fails(t, spec(), arguments(t, "x = 1\nwhile True:\n  x = 2", "max_steps", 1000))
		require.Equal(t, starlark.ReasonSteps, e.Reason)
		require.Regexp(t, `^line [23], column \d+: the script takes more than 1000 steps$`, e.Message)
	})
	t.Run("Memory/SaysTheLine", func(t *testing.T) {
		t.Parallel()
		e := actortest.Fails(t, spec(), arguments(t, "x = 1\ny = 'a' * 100000000"))
		require.Equal(t, starlark.ReasonMemory, e.Reason)
		require.Contains(t, e.Message, "line 2, column 9: ")
	})
	t.Run("Ordinary/IsFarFromThem", func(t *testing.T) {
		t.Parallel()
		script := `
def main(rows):
    by = {}
    for r in rows:
        by.setdefault(r["k"], []).append(r["v"])
    return {k: sum(v) for k, v in by.items()}

def sum(list):
    n = 0
    for x in list:
        n += x
    return n
`
		rows := make([]map[string]any, 5000)
		for i := range rows {
			rows[i] = map[string]any{"k": fmt.Sprint("key", i%7), "v": i}
		}
		var got map[string]int
		require.NoError(t, json.Unmarshal([]byte(actortest.Value(t, spec(), arguments(t, script, "rows", rows))), &got))
		require.Len(t, got, 7)
	})
	t.Run("Cancel/EndsAScript", func(t *testing.T) {
		t.Parallel()
		over := fmt.Errorf("somebody ended it")
		ctx, cancel := context.WithCancelCause(t.Context())
		printed := make(chan struct{})
		s := starlark.Spec(starlark.Config{MaxSteps: 100_000_000, Timeout: time.Minute})
		go func() {
			<-printed
			cancel(over)
		}()
		var named map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(arguments(t, "print('on')\nwhile True:\n  pass")), &named))
		ctx = actor.WithReporter(ctx, once{printed})
		_, err := s.Actor.Call(ctx, workgraph.NewCall(workgraph.Start{Named: named}, workgraph.CallOptions{}))
		require.ErrorIs(t, err, over)
	})
	t.Run("Timeout/IsPermanent", func(t *testing.T) {
		t.Parallel()
		s := starlark.Spec(starlark.Config{MaxSteps: 100_000_000, Timeout: time.Millisecond})
		e := actortest.Fails(t, s, arguments(t, "while True:\n  pass"))
		require.Equal(t, workgraph.ReasonTimeout, e.Reason)
		require.Equal(t, workgraph.Permanent, e.Type)
	})
	t.Run("Room/IsAskedOnceForLargeScripts", func(t *testing.T) {
		t.Parallel()
		for script, want := range map[string]int{"result = 1": 0, "x = 'a' * 2000000\ny = x + 'b'\nresult = 1": 1} {
			asked := 0
			var named map[string]json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(arguments(t, script)), &named))
			ctx := actor.WithRoom(t.Context(), func(_ context.Context, n int64) error {
				require.Equal(t, int64(64<<20), n)
				asked++
				return nil
			})
			_, err := spec().Actor.Call(ctx, workgraph.NewCall(workgraph.Start{Named: named}, workgraph.CallOptions{}))
			require.NoError(t, err)
			require.Equal(t, want, asked)
		}
	})
}

type once struct{ printed chan struct{} }

func (o once) Text(string)              {}
func (o once) Raw(string)               {}
func (o once) Watched() bool            { return false }
func (o once) Progress(json.RawMessage) { close(o.printed) }

func FuzzScript(f *testing.F) {
	for _, script := range attacks {
		if len(script) < 1000 {
			f.Add(script)
		}
	}
	f.Add("def main(a, *b, **c):\n  return [x for x in a if x] + {1: 2}.items()[0:1]")
	s := starlark.Spec(starlark.Config{MaxSteps: 20_000, MaxMemory: 4 << 20})
	f.Fuzz(func(t *testing.T, script string) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		out, err := actortest.Call(t, s, arguments(t, script, "a", []any{1, "x", nil}))
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(200<<20))
		if err == nil {
			require.True(t, json.Valid(out.Values[0]), "%s", out.Values[0])
		}
	})
}

func TestPrint(t *testing.T) {
	t.Parallel()
	var got reports
	var named map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(arguments(t, "for i in range(200):\n  print('line', i)\nresult = 1")), &named))
	_, err := spec().Actor.Call(actor.WithReporter(t.Context(), &got), workgraph.NewCall(workgraph.Start{Named: named}, workgraph.CallOptions{}))
	require.NoError(t, err)
	require.Len(t, got, 100)
	require.JSONEq(t, `{"print": "line 0"}`, got[0])
}

type reports []string

func (r *reports) Text(string)                {}
func (r *reports) Raw(string)                 {}
func (r *reports) Watched() bool              { return false }
func (r *reports) Progress(s json.RawMessage) { *r = append(*r, string(s)) }

func TestExamine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ named, arg, says string }{
		"Good":   {arguments(t, "result = args"), "", ""},
		"Syntax": {arguments(t, "x ="), "script", "line 1, column 4: "},
		"Name":   {arguments(t, "x = y"), "script", "undefined: y"},
		"Steps":  {arguments(t, "result = 1", "max_steps", 0), "max_steps", "from 1 to 1000000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &workgraph.Node{ID: "n", Actor: "starlark"}
			require.NoError(t, json.Unmarshal([]byte(c.named), &n.Named))
			found := spec().Examine(t.Context(), n)
			if c.says == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Equal(t, c.arg, found[0].Arg)
			require.Contains(t, found[0].Fault, c.says)
		})
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	require.NoError(t, starlark.DefaultConfig().Validate())
	err := starlark.Config{MaxSteps: -1, MaxMemory: -1, Timeout: -1}.Validate()
	for _, name := range []string{"max_steps", "max_memory", "timeout"} {
		require.ErrorContains(t, err, name)
	}
}
