// Package conf owns configuration: it fills a plain struct from flags, environment, a YAML file and
// the defaults already in the struct, in that order of precedence, and reports every fault at once,
// unknown keys included. It must not know any setting of any service, and only commands call it.
//
// A key is the path of field names in snake case, joined by dots: field Executor.Journal.URL is
// executor.journal.url in a file or flag and EPIGRAPH_EXECUTOR_JOURNAL_URL in the environment. Tag
// `conf:"name"` renames a field, `conf:"-"` hides it, `help:"…"` documents it; embedded structs are
// inlined. Values are strings, bools, numbers, durations, anything with UnmarshalText, slices of
// these or of structs, and maps with string keys. Outside the file, slices of plain values are written
// a,b,c and everything else as YAML. The items of a map of structs have keys of their own: models.small.url,
// and in the environment EPIGRAPH_MODELS_SMALL_URL, adds or changes the item small. A name that is new there
// has small letters.
package conf

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/near"
)

const (
	// ReasonInvalid is the reason of every error of Load; the violations name the keys.
	ReasonInvalid = "CONFIG_INVALID"
	// ReasonUnknownKey marks a violation by a key that no setting has.
	ReasonUnknownKey = "CONFIG_KEY_UNKNOWN"
	// ReasonBadValue marks a violation by a value that does not fit its setting.
	ReasonBadValue = "CONFIG_VALUE_INVALID"
)

// Sources say where values come from, weakest first: the struct itself, File, the environment, Flags.
type Sources struct {
	// File is a YAML file; empty means none. A file that is named must exist.
	File string
	// EnvPrefix marks our variables, usually "EPIGRAPH_"; empty means the environment is not read.
	EnvPrefix string
	// Env is the environment as of os.Environ, which is used if Env is nil.
	Env []string
	// IgnoreEnv lists variables with the prefix that are not settings.
	IgnoreEnv []string
	// Flags are values by key.
	Flags map[string]string
}

// serviceLinks are the variables that Kubernetes sets for every Service of a namespace.
var serviceLinks = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)$`)

// Load fills dst, a pointer to a struct that holds the defaults. If dst has Validate() error, that is
// called last. On error dst may be partly filled.
func Load(dst any, src Sources) error {
	root := reflect.ValueOf(dst)
	if root.Kind() != reflect.Pointer || root.Elem().Kind() != reflect.Struct {
		return errs.New(errs.Internal, ReasonInvalid, "conf.Load needs a pointer to a struct, got %T", dst)
	}
	l := &loader{root: root.Elem(), leaves: leaves(root.Elem(), "")}
	if src.File != "" {
		l.file(src.File)
		l.leaves = leaves(root.Elem(), "") // the file may have named new items
	}
	if src.EnvPrefix != "" {
		env := src.Env
		if env == nil {
			env = os.Environ()
		}
		l.env(src.EnvPrefix, env, src.IgnoreEnv)
	}
	l.flags(src.Flags)
	if len(l.violations) == 0 {
		if v, ok := dst.(interface{ Validate() error }); ok {
			if err := v.Validate(); err != nil {
				if e, ok := errors.AsType[*errs.Error](err); ok {
					return e
				}
				return errs.New(errs.InvalidArgument, ReasonInvalid, "the configuration is not valid: %v", err)
			}
		}
		return nil
	}
	e := errs.New(errs.InvalidArgument, ReasonInvalid, "the configuration is not valid")
	e.Violations = l.violations
	return e
}

type loader struct {
	root       reflect.Value
	leaves     []leaf
	violations []errs.Violation
}

func (l *loader) fault(key, reason, format string, args ...any) {
	l.violations = append(l.violations, errs.Violation{Field: key, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

func (l *loader) find(key string) (leaf, bool) {
	i := slices.IndexFunc(l.leaves, func(f leaf) bool { return f.key == key })
	if i < 0 {
		return leaf{}, false
	}
	return l.leaves[i], true
}

// add makes the item of a map that a key speaks of, such as models.small.url, and returns the setting.
func (l *loader) add(key string) (leaf, bool) {
	for _, f := range l.leaves {
		rest, ok := strings.CutPrefix(key, f.key+".")
		if !ok || !named(f.value.Type()) {
			continue
		}
		name, part, _ := strings.Cut(rest, ".")
		if !f.holds(part) {
			return leaf{}, false
		}
		l.store(f, name)
		return l.find(key)
	}
	return leaf{}, false
}

// addEnv is add for the name of a variable.
func (l *loader) addEnv(prefix, variable string) (leaf, bool) {
	for _, f := range l.leaves {
		rest, ok := strings.CutPrefix(variable, EnvName(prefix, f.key)+"_")
		if !ok || !named(f.value.Type()) {
			continue
		}
		best := leaf{} // the longest part that fits leaves the shortest name
		for _, part := range leaves(newItem(f.value.Type().Elem()), "") {
			if name, ok := strings.CutSuffix(rest, "_"+EnvName("", part.key)); ok && name != "" && len(part.key) > len(best.key) {
				best = part
			}
		}
		if best.key == "" {
			continue
		}
		name := strings.ToLower(strings.TrimSuffix(rest, "_"+EnvName("", best.key)))
		l.store(f, name)
		return l.find(join(join(f.key, name), best.key))
	}
	return leaf{}, false
}

// holds reports whether the items of a map have that setting.
func (f leaf) holds(part string) bool {
	return slices.ContainsFunc(leaves(newItem(f.value.Type().Elem()), ""), func(p leaf) bool { return p.key == part })
}

// store adds an item to a map.
func (l *loader) store(f leaf, name string) {
	if f.value.IsNil() {
		f.value.Set(reflect.MakeMap(f.value.Type()))
	}
	f.value.SetMapIndex(reflect.ValueOf(name).Convert(f.value.Type().Key()), newItem(f.value.Type().Elem()))
	if f.stored != nil {
		f.stored()
	}
	l.leaves = leaves(l.root, "")
}

func (l *loader) file(name string) {
	text, err := os.ReadFile(name)
	if err != nil {
		l.fault(name, ReasonBadValue, "cannot read the configuration file: %v", err)
		return
	}
	f, err := parser.ParseBytes(text, 0)
	if err != nil {
		l.fault(name, ReasonBadValue, "not valid YAML: %v", err)
		return
	}
	for _, doc := range f.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.NullType || doc.Body.Type() == ast.CommentType {
			continue
		}
		d := decoder{fault: func(n ast.Node, key, reason, format string, args ...any) {
			l.fault(key, reason, "%s:%d: %s", name, n.GetToken().Position.Line, fmt.Sprintf(format, args...))
		}}
		d.value(l.root, doc.Body, "")
	}
}

func (l *loader) env(prefix string, env, ignore []string) {
	var names []string
	for _, f := range l.leaves {
		names = append(names, EnvName(prefix, f.key))
	}
	// Variables of whole maps come before those of their items.
	for _, kv := range slices.Sorted(slices.Values(env)) {
		name, text, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, prefix) || slices.Contains(ignore, name) {
			continue
		}
		var f leaf
		var ok bool
		if i := slices.IndexFunc(l.leaves, func(f leaf) bool { return EnvName(prefix, f.key) == name }); i >= 0 {
			f, ok = l.leaves[i], true
		} else {
			f, ok = l.addEnv(prefix, name)
		}
		switch {
		case ok && !strings.HasPrefix(text, "tcp://"):
			l.set(f, name, text)
		case serviceLinks.MatchString(name), strings.HasSuffix(name, "_PORT") && strings.HasPrefix(text, "tcp://"):
		case ok:
			l.set(f, name, text)
		default:
			l.fault(name, ReasonUnknownKey, "unknown environment variable%s", suggest(name, names))
		}
	}
}

func (l *loader) flags(flags map[string]string) {
	var keys []string
	for _, f := range l.leaves {
		keys = append(keys, f.key)
	}
	names := make([]string, 0, len(flags))
	for k := range flags {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		f, ok := l.find(k)
		if !ok {
			f, ok = l.add(k)
		}
		if !ok {
			l.fault(k, ReasonUnknownKey, "unknown setting%s", suggest(k, keys))
			continue
		}
		l.set(f, k, flags[k])
	}
}

func (l *loader) set(f leaf, name, text string) {
	defer func() {
		if f.stored != nil {
			f.stored()
		}
		if named(f.value.Type()) {
			l.leaves = leaves(l.root, "") // of other items
		}
	}()
	if isScalar(f.value.Type()) {
		if err := setScalar(f.value, text); err != nil {
			l.fault(name, ReasonBadValue, "%v", err)
		}
		return
	}
	if f.value.Kind() == reflect.Slice && isScalar(f.value.Type().Elem()) && !strings.HasPrefix(strings.TrimSpace(text), "[") {
		parts := strings.Split(text, ",")
		if strings.TrimSpace(text) == "" {
			parts = nil
		}
		out := reflect.MakeSlice(f.value.Type(), len(parts), len(parts))
		for i, p := range parts {
			if err := setScalar(out.Index(i), strings.TrimSpace(p)); err != nil {
				l.fault(name, ReasonBadValue, "item %d: %v", i+1, err)
				return
			}
		}
		f.value.Set(out)
		return
	}
	doc, err := parser.ParseBytes([]byte(text), 0)
	if err != nil || len(doc.Docs) != 1 || doc.Docs[0].Body == nil {
		// The parser's text quotes its input, which may be a secret.
		l.fault(name, ReasonBadValue, "the value is not valid YAML")
		return
	}
	d := decoder{fault: func(_ ast.Node, key, reason, format string, args ...any) {
		l.fault(name, reason, "%s: %s", key, fmt.Sprintf(format, args...))
	}}
	d.value(f.value, doc.Docs[0].Body, f.key)
}

// EnvName returns the environment variable of a key.
func EnvName(prefix, key string) string {
	return prefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

func suggest(name string, known []string) string {
	best, dist := "", len(name)/3+2
	for _, k := range known {
		if d := near.Distance(name, k); d < dist {
			best, dist = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %s?", best)
}
