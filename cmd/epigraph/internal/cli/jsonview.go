package cli

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// printJSON writes m on one line. Values of users are printed as JSON, as in the REST API, and their numbers
// keep every digit; empty lists are printed.
func printJSON(w io.Writer, m proto.Message) error {
	m = proto.Clone(m)
	nonce := rand.Text()
	var swap []string // pairs of what stands for a value and the value
	var held []*graphv1.Payload
	err := protorange.Range(m.ProtoReflect(), func(at protopath.Values) error {
		if sub, ok := at.Index(-1).Value.Interface().(protoreflect.Message); ok {
			if p, ok := sub.Interface().(*graphv1.Payload); ok {
				held = append(held, p) // changed only after the walk, which looks into it
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	for i, p := range held {
		raw := []byte("null")
		if json.Valid(p.GetJson()) {
			raw = p.GetJson()
		}
		p.Json = fmt.Append(nil, nonce, i, ".")
		swap = append(swap, `{"json":"`+base64.StdEncoding.EncodeToString(p.GetJson())+`"}`, string(raw))
	}
	b, err := marshal(m)
	if err != nil {
		return err
	}
	if len(swap) > 0 {
		if b, err = compact([]byte(strings.NewReplacer(swap...).Replace(string(b)))); err != nil {
			return err
		}
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// printProtoJSON writes m on one line in the protobuf JSON mapping, so that any protobuf library can read it.
func printProtoJSON(w io.Writer, m proto.Message) error {
	b, err := marshal(m)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

func marshal(m proto.Message) ([]byte, error) {
	b, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return compact(b)
}

// printValue writes a value of ours on one line.
func printValue(w io.Writer, v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	b, err := compact(text.Bytes())
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// compact removes insignificant space, which protojson varies on purpose, and escapes characters that JSON
// allows but a terminal obeys.
func compact(b []byte) ([]byte, error) {
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	harmful := func(r rune) bool {
		return r >= 0x7f && r < 0x10000 && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
	}
	if !bytes.ContainsFunc(out.Bytes(), harmful) {
		return out.Bytes(), nil
	}
	var safe bytes.Buffer
	for _, r := range out.String() {
		if harmful(r) {
			fmt.Fprintf(&safe, `\u%04x`, r)
		} else {
			safe.WriteRune(r)
		}
	}
	return safe.Bytes(), nil
}

// finalValue is value for input that cannot be taken back once it is sent: a text that resembles an object or
// a list and is no JSON is refused.
func finalValue(s string) (*graphv1.Payload, error) {
	trimmed := strings.TrimSpace(s)
	var doc any
	err := json.Unmarshal([]byte(trimmed), &doc)
	if err == nil || !strings.HasPrefix(trimmed, "{") && !strings.HasPrefix(trimmed, "[") {
		return &graphv1.Payload{Json: value(s)}, nil
	}
	offset, what, _ := jsonFault(trimmed, err)
	return nil, usage(errs.New(errs.InvalidArgument, "VALUE_INVALID", "%q looks like JSON and is none: at character %d, %s", view.OneLine(s, 80),
		utf8.RuneCountInString(trimmed[:offset])+1, what).Hint("mend it, or give it as a text: '" + string(value(s)) + "'"))
}

// value reads a value given on the command line: JSON if it is JSON, else a text.
func value(s string) json.RawMessage {
	if json.Valid([]byte(s)) {
		return json.RawMessage(s)
	}
	b, _ := json.Marshal(s) // a string always marshals
	return b
}
