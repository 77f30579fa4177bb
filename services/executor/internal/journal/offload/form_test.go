package offload

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSqueeze(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, err := newCodec(rapid.SampledFrom([]int{0, 16, 1 << 10}).Draw(t, "over"))
		require.NoError(t, err)
		b := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "bytes")
		b = bytes.Repeat(b, rapid.IntRange(1, 30).Draw(t, "times"))
		out := c.compress(b)
		require.LessOrEqual(t, len(out), len(b)+1)
		require.Equal(t, c.idle(b), !isForm(b) && (c.over == 0 || len(b) < c.over))
		back, err := c.expand(out)
		require.NoError(t, err)
		require.True(t, bytes.Equal(b, back))
	})
}

func TestSpans(t *testing.T) {
	t.Parallel()
	long := `"` + strings.Repeat(`x\"`, 20) + `"`
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"small":         {`{"a":[1,2,"three"]}`, nil},
		"string":        {`{"a":` + long + `}`, []string{long}},
		"two":           {`[` + long + ` , {"b": ` + long + `}]`, []string{long, long}},
		"key is none":   {`{` + long + `  : 1, "a":{"b":[` + strings.Repeat("1,", 40) + `1]}}`, []string{`[` + strings.Repeat("1,", 40) + `1]`}},
		"object":        {`{"v":{` + strings.Repeat(`"k":1,`, 20) + `"z":0}}`, []string{`{` + strings.Repeat(`"k":1,`, 20) + `"z":0}`}},
		"whole":         {long, []string{long}},
		"torn":          {`{"a":"` + strings.Repeat("x", 90), nil},
		"closed only":   {`]]]`, nil},
		"backslash end": {`["` + strings.Repeat("y", 60) + `\\",1]`, []string{`"` + strings.Repeat("y", 60) + `\\"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, s := range spans([]byte(c.in), 50) {
				got = append(got, c.in[s.from:s.to])
			}
			require.Equal(t, c.want, got)
		})
	}
}

func FuzzParts(f *testing.F) {
	c, err := newCodec(16)
	require.NoError(f, err)
	f.Add(c.cut([]piece{{skip: 3, size: 9}, {skip: 0, size: 1}}, []byte(`{"a":}`)))
	f.Add([]byte{formCut})
	f.Add([]byte{formCut, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || b[0] != formCut || len(b) > 1<<16 {
			return
		}
		pieces, rest, err := c.parts(b)
		if err == nil {
			again, rest2, err := c.parts(c.cut(pieces, rest))
			require.NoError(t, err)
			require.Equal(t, pieces, again)
			require.True(t, bytes.Equal(rest, rest2))
		}
	})
}

func FuzzSpans(f *testing.F) {
	f.Add([]byte(`{"a":["b",{"c":"`+strings.Repeat("d", 40)+`"}]}`), 16)
	f.Fuzz(func(t *testing.T, b []byte, over int) {
		at := 0
		over = max(over, 0)
		for _, s := range spans(b, over) {
			require.True(t, s.from >= at && s.to > s.from+over && s.to <= len(b))
			if json.Valid(b) {
				require.True(t, json.Valid(b[s.from:s.to]))
			}
			at = s.to
		}
	})
}
