package conf

import (
	"encoding"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Setting is one key of a configuration with its present value as text, secrets masked.
type Setting struct {
	Key   string
	Value string
	Help  string
}

// Effective lists every setting of cfg, a struct or a pointer to one, in declared order. A service logs it
// once at its start; of the defaults it is the reference of all settings.
func Effective(cfg any) []Setting {
	v := reflect.ValueOf(cfg)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	var out []Setting
	for _, f := range leaves(v, "") {
		if f.parts {
			continue
		}
		out = append(out, Setting{Key: f.key, Value: show(f.value), Help: f.help})
	}
	return out
}

// Attr returns the effective configuration as one group for slog.
func Attr(name string, cfg any) slog.Attr {
	var attrs []any
	for _, s := range Effective(cfg) {
		attrs = append(attrs, slog.String(s.Key, s.Value))
	}
	return slog.Group(name, attrs...)
}

// Table writes the settings of defaults as a Markdown table, for the documentation.
func Table(defaults any, envPrefix string) string {
	var b strings.Builder
	b.WriteString("| key | environment | default | meaning |\n|---|---|---|---|\n")
	cell := strings.NewReplacer("|", "\\|", "\n", " ")
	for _, s := range Effective(defaults) {
		def := ""
		if s.Value != "" {
			def = "`" + s.Value + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n", s.Key, EnvName(envPrefix, s.Key), cell.Replace(def), cell.Replace(s.Help))
	}
	return b.String()
}

func show(v reflect.Value) string {
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		if b, err := m.MarshalText(); err == nil {
			return string(b)
		}
	}
	if d, ok := v.Interface().(time.Duration); ok {
		return d.String()
	}
	switch v.Kind() {
	case reflect.Slice:
		var parts []string
		for i := range v.Len() {
			parts = append(parts, show(v.Index(i)))
		}
		return strings.Join(parts, ",")
	case reflect.Map:
		var parts []string
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			parts = append(parts, k.String()+"="+show(v.MapIndex(k)))
		}
		return strings.Join(parts, ",")
	case reflect.Struct:
		var parts []string
		for _, f := range fields(v) {
			parts = append(parts, f.name+"="+show(f.value))
		}
		return "{" + strings.Join(parts, " ") + "}"
	}
	return fmt.Sprint(v.Interface())
}
