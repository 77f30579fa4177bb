package workgraph

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// pointAt is a message with its place in src. line counts from 1, column from 0 in characters.
func pointAt(src string, line, column int, message string) string {
	lines := strings.Split(src, "\n")
	if line < 1 || line > len(lines) {
		return message
	}
	const before, shown = 40, 72
	text := []rune(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, lines[line-1]))
	column = min(max(column, 0), len(text))
	from := max(column-before, 0)
	lead, tail := "", ""
	if from > 0 {
		lead = "…"
	}
	to := min(from+shown, len(text))
	if to < len(text) {
		tail = "…"
	}
	at := fmt.Sprintf("column %d", column+1)
	if len(lines) > 1 {
		at = fmt.Sprintf("line %d, %s", line, at)
	}
	return fmt.Sprintf("%s: %s\n%s%s%s\n%s^", at, message, lead, string(text[from:to]), tail, strings.Repeat(" ", len([]rune(lead))+column-from))
}

// exprWordings rewords messages of CEL's parser and checker. The first form that matches is used.
var exprWordings = []struct {
	form *regexp.Regexp
	say  func(m []string) string
}{
	{regexp.MustCompile(`^Syntax error: (?:mismatched input|missing .* at|no viable alternative at input|extraneous input) '(?:.*)<EOF>'`), func([]string) string {
		return "the expression ends too early: a value, a name or a closing bracket is expected here"
	}},
	{regexp.MustCompile(`^Syntax error: (?:mismatched|extraneous) input '(.*?)'`), func(m []string) string {
		return fmt.Sprintf("%q cannot stand here%s", m[1], inCEL(m[1]))
	}},
	{regexp.MustCompile(`^Syntax error: missing '(.*?)' at '(.*)'`), func(m []string) string {
		return fmt.Sprintf("%q is missing before %q", m[1], m[2])
	}},
	{regexp.MustCompile(`^Syntax error: no viable alternative at input '(.*)'`), func(m []string) string {
		return fmt.Sprintf("%q cannot be understood", m[1])
	}},
	{regexp.MustCompile(`^Syntax error: token recognition error at: '(.*)'`), func(m []string) string {
		if strings.HasPrefix(m[1], `"`) || strings.HasPrefix(m[1], "'") {
			return "this text has no closing quote"
		}
		sign := strings.TrimSpace(m[1])
		return fmt.Sprintf("%q means nothing in an expression%s", sign, inCEL(sign))
	}},
	{regexp.MustCompile(`^undeclared reference to '(.*?)'`), func(m []string) string {
		if instead := inCEL(m[1]); instead != "" {
			return fmt.Sprintf("%s%q here%s", nothingCalled, m[1], instead)
		}
		return fmt.Sprintf("%s%q here", nothingCalled, m[1])
	}},
	{regexp.MustCompile(`^found no matching overload for '_\?_:_' applied to '\((.*?), (.*)\)'`), func(m []string) string {
		if m[1] != "bool" && m[1] != "dyn" {
			return fmt.Sprintf("what stands before ? must be true or false, and is of type %s", m[1])
		}
		return fmt.Sprintf("both sides of : must have one type, and have %s; write dyn(…) around each of them", m[2])
	}},
	{regexp.MustCompile(`^found no matching overload for '(.*?)' applied to '(.+?)\.\((.*)\)'`), func(m []string) string {
		return fmt.Sprintf("a value of type %s has no function %s(%s)", m[2], m[1], m[3])
	}},
	{regexp.MustCompile(`^found no matching overload for '(.*?)' applied to '\((.*)\)'`), func(m []string) string {
		return cannotApply(m[1], strings.Split(m[2], ", "))
	}},
	{regexp.MustCompile(`^expected type '(.*)' but found '(.*)'`), func(m []string) string {
		return fmt.Sprintf("a value of type %s is expected here, and this is of type %s", m[1], m[2])
	}},
	{regexp.MustCompile(`^undefined field '(.*)'`), func(m []string) string { return fmt.Sprintf("there is no field %q", m[1]) }},
	{regexp.MustCompile(`^unexpected failed resolution of '(.*)'`), func(m []string) string { return fmt.Sprintf("%q cannot be resolved", m[1]) }},
}

// nothingCalled begins what is said of an unknown name.
const nothingCalled = "nothing is called "

// otherwise are words and signs of other languages, with their form in CEL.
var otherwise = map[string]string{
	"and": "&&", "AND": "&&", "&": "&&", "or": "||", "OR": "||", "|": "||", "not": "!", "NOT": "!", "is": "==", "=": "==",
	"True": "true", "TRUE": "true", "False": "false", "FALSE": "false", "None": "null", "nil": "null", "NULL": "null", "undefined": "null",
	"len": "size(…)", "length": "size(…)", "count": "size(…)", "str": "string(…)", "float": "double(…)", "number": "double(…)",
}

// inCEL says what to write in place of a word of another language. It is empty for any other word.
func inCEL(word string) string {
	if w := otherwise[word]; w != "" {
		return "; CEL writes " + w
	}
	return ""
}

// cannotApply says that an operator or function, given by CEL's name, does not take values of these types.
func cannotApply(name string, types []string) string {
	var hint string
	number := func(t string) bool { return t == "int" || t == "double" || t == "uint" }
	switch {
	case name == operators.In && slices.Equal(types, []string{"string", "string"}):
		hint = "; text.contains(part) looks for a part of a text"
	case len(types) == 2 && types[0] != types[1] && (number(types[0]) || number(types[1])) && (types[0] == "string" || types[1] == "string"):
		hint = "; string(…), int(…) and double(…) convert"
	case len(types) == 2 && types[0] != types[1] && number(types[0]) && number(types[1]):
		hint = "; int(…) and double(…) convert"
	}
	return fmt.Sprintf("%s cannot be applied to %s%s", operatorNames.Replace(strings.Trim(name, "_@")), strings.ReplaceAll(strings.Join(types, " and "), "null_type", "null"), hint)
}

// unsuited replaces the library's error about arguments that a function does not take.
func unsuited(v ref.Val, name string, args []ref.Val) ref.Val {
	e, isErr := v.(*types.Err)
	if !isErr || !strings.HasPrefix(e.String(), noSuchOverload) {
		return v
	}
	given := make([]string, len(args))
	for i, a := range args {
		given[i] = a.Type().TypeName()
	}
	return types.NewErr("%s", cannotApply(name, given))
}

const noSuchOverload = "no such overload"

// operatorNames rewrites CEL's names of operators that do not look like the operator.
var operatorNames = strings.NewReplacer("[_]", "[…]", "_", " ")

// exprWords is a message of the parser or checker in plain words and bounded length.
func exprWords(said string) string {
	said, _, _ = strings.Cut(said, "\n")
	if len(said) > maxIssue {
		said = strings.ToValidUTF8(said[:maxIssue], "") + "…"
	}
	for _, s := range exprWordings {
		if m := s.form.FindStringSubmatch(said); m != nil {
			return s.say(m)
		}
	}
	return strings.TrimPrefix(said, "Syntax error: ")
}

// PatternFault says in plain words why a regular expression of RE2 cannot be used, with a caret below the
// place if it is known.
func PatternFault(pattern string, err error) string {
	e, ok := errors.AsType[*syntax.Error](err)
	if !ok {
		return err.Error()
	}
	words := map[syntax.ErrorCode]string{
		syntax.ErrInvalidCharClass:      "this class of characters is not valid",
		syntax.ErrInvalidCharRange:      "this range of characters runs backward",
		syntax.ErrInvalidEscape:         "this escape means nothing; a backslash is written \\\\",
		syntax.ErrInvalidNamedCapture:   "this name of a group is not valid",
		syntax.ErrInvalidPerlOp:         "this kind of group is not supported: patterns are those of RE2, without look-ahead, look-behind and back references",
		syntax.ErrInvalidRepeatOp:       "two operators of repetition follow each other",
		syntax.ErrInvalidRepeatSize:     "a repetition may be 1000 at most",
		syntax.ErrInvalidUTF8:           "this is not UTF-8",
		syntax.ErrMissingBracket:        "a class of characters is opened with [ and never closed with ]",
		syntax.ErrMissingParen:          "a group is opened with ( and never closed with )",
		syntax.ErrMissingRepeatArgument: "nothing stands before this operator of repetition",
		syntax.ErrTrailingBackslash:     "a backslash stands at the end; one that is meant is written \\\\",
		syntax.ErrUnexpectedParen:       "a group is closed with ) and never opened with (",
		syntax.ErrNestingDepth:          "groups are nested too deeply",
		syntax.ErrLarge:                 "the pattern is too large",
	}
	what, known := words[e.Code]
	if !known {
		what = e.Code.String()
	}
	at := strings.Index(pattern, e.Expr)
	switch {
	case e.Code == syntax.ErrTrailingBackslash:
		at = len(pattern) - 1
	case e.Code == syntax.ErrUnexpectedParen:
		at = strings.LastIndexByte(pattern, ')')
	case e.Code == syntax.ErrMissingParen && e.Expr == pattern:
		at = strings.LastIndexByte(pattern, '(')
	case e.Expr == "":
		at = -1
	}
	if at < 0 {
		return what
	}
	line := strings.Count(pattern[:at], "\n") + 1
	return pointAt(pattern, line, len([]rune(pattern[strings.LastIndexByte(pattern[:at], '\n')+1:at])), what)
}
