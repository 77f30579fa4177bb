package cassette

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
)

// Drift says that a request was answered by a recorded one that is not equal.
type Drift struct {
	// Similarity is from 0 to 1.
	Similarity float64 `json:"similarity"`
	// Reused says that the recorded answer had been given before.
	Reused  bool     `json:"reused,omitempty"`
	Changes []Change `json:"changes"`
}

// Change is a field that differs.
type Change struct {
	// Field is the path, such as messages[2].content.
	Field string `json:"field"`
	// Recorded and Asked are JSON, cut around the first difference; empty if the field was not there.
	Recorded string `json:"recorded,omitempty"`
	Asked    string `json:"asked,omitempty"`
}

// String is for a message.
func (c Change) String() string {
	return fmt.Sprintf("%s: recorded %s, asked %s", c.Field, orNothing(c.Recorded), orNothing(c.Asked))
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

// document is a request as JSON with sorted keys, without secrets.
type document struct {
	text  []byte
	value any
}

type sum [sha256.Size]byte

func (p *player) canonical(req *llm.Request) (document, error) { return canonical(req, p.hide) }

func canonical(req *llm.Request, hide *redactor) (document, error) {
	raw, err := json.Marshal(req)
	if err != nil {
		return document{}, err
	}
	dec := json.NewDecoder(bytes.NewReader(hide.json(raw)))
	dec.UseNumber()
	var d document
	if err := dec.Decode(&d.value); err != nil {
		return document{}, err
	}
	d.text, err = json.Marshal(d.value)
	return d, err
}

func (d document) sum() sum { return sha256.Sum256(d.text) }

// sketch is a short form of a text whose equal parts say how much two texts have in common: the least hash of
// all groups of three words, for each of so many hash functions.
type sketch [64]uint64

func (d document) sketch() sketch {
	var s sketch
	for i := range s {
		s[i] = ^uint64(0)
	}
	words := bytes.FieldsFunc(d.text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) })
	for i := range words {
		f := fnv.New64a() // the same in every process
		for _, w := range words[i:min(i+3, len(words))] {
			_, _ = f.Write(w)
			_, _ = f.Write([]byte{0})
		}
		h := f.Sum64()
		for k := range s {
			h = mix(h + uint64(k)*0x9e3779b97f4a7c15)
			s[k] = min(s[k], h)
		}
	}
	return s
}

// mix makes another hash of a hash.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// like is about the share of what two texts have in common in what they have at all.
func (s *sketch) like(o sketch) float64 {
	n := 0
	for i := range s {
		if s[i] == o[i] {
			n++
		}
	}
	return float64(n) / float64(len(s))
}

// maxChanges bounds the changes that are told of one call.
const maxChanges = 20

// absent is the value of a field that is not there, which is not null.
type absent struct{}

// differences lists the fields in which two requests differ: one at least if their texts do.
func differences(was, is document) []Change {
	var out []Change
	walk("", was.value, is.value, &out)
	return out
}

func walk(path string, was, is any, out *[]Change) {
	if len(*out) >= maxChanges {
		return
	}
	switch a := was.(type) {
	case map[string]any:
		if b, ok := is.(map[string]any); ok {
			keys := slices.Sorted(maps.Keys(a))
			for key := range b {
				if _, ok := a[key]; !ok {
					keys = append(keys, key)
				}
			}
			slices.Sort(keys)
			of := func(m map[string]any, key string) any {
				if v, ok := m[key]; ok {
					return v
				}
				return absent{}
			}
			for _, key := range keys {
				walk(strings.TrimPrefix(path+"."+key, "."), of(a, key), of(b, key), out)
			}
			return
		}
	case []any:
		if b, ok := is.([]any); ok {
			for i := range max(len(a), len(b)) {
				var x, y any = absent{}, absent{}
				if i < len(a) {
					x = a[i]
				}
				if i < len(b) {
					y = b[i]
				}
				walk(fmt.Sprintf("%s[%d]", path, i), x, y, out)
			}
			return
		}
	}
	x, y := shown(was), shown(is)
	if x != y {
		x, y = around(x, y)
		*out = append(*out, Change{Field: path, Recorded: x, Asked: y})
	}
}

func shown(v any) string {
	if v == (absent{}) {
		return ""
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return string(raw)
}

// window is how much of two texts is shown around their first difference.
const window = 60

// around cuts two texts to what is near their first difference.
func around(a, b string) (string, string) {
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	from := max(0, at-window)
	cut := func(s string) string {
		if len(s) <= 2*window {
			return s
		}
		start := min(from, len(s))
		lead := ""
		if start > 0 {
			lead = "…"
		}
		return lead + errs.Clip(strings.ToValidUTF8(s[start:], ""), 2*window)
	}
	return cut(a), cut(b)
}
