package page_test

import (
	"encoding/base64"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/page"
)

var query = page.Query{Method: "ListRuns", Parent: "default", Filter: "state=RUNNING", Order: "create_time"}

func TestSize(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want int32 }{{0, 50}, {1, 1}, {1000, 1000}, {1001, 1000}, {1 << 30, 1000}} {
		p, err := page.Parse(c.in, "", query)
		require.NoError(t, err)
		require.Equal(t, int(c.want), p.Limit)
		require.True(t, p.After.IsZero())
	}
	_, err := page.Parse(-1, "", query)
	require.True(t, errs.Is(err, errs.InvalidArgument))
	require.Equal(t, page.ReasonSize, errs.ReasonOf(err))
}

func TestToken(t *testing.T) {
	t.Parallel()
	first, err := page.Parse(2, "", query)
	require.NoError(t, err)
	cur := page.Cursor{CreateTime: time.Date(2026, 3, 4, 5, 6, 7, 891011000, time.UTC), ID: "run_01"}
	token := first.Token(cur)

	t.Run("Token/RoundTripAndSizeMayChange", func(t *testing.T) {
		p, err := page.Parse(7, token, query)
		require.NoError(t, err)
		require.Equal(t, cur, p.After)
		require.Equal(t, 7, p.Limit)
	})
	t.Run("Token/OtherQueryIsAMismatch", func(t *testing.T) {
		for _, mutate := range []func(*page.Query){
			func(q *page.Query) { q.Method = "ListVisits" },
			func(q *page.Query) { q.Parent = "other" },
			func(q *page.Query) { q.Filter = "" },
			func(q *page.Query) { q.Order = "create_time desc" },
			func(q *page.Query) { q.Parent, q.Filter = q.Parent+q.Filter, "" },
		} {
			q := query
			mutate(&q)
			_, err := page.Parse(2, token, q)
			require.Equal(t, page.ReasonMismatch, errs.ReasonOf(err))
			require.True(t, errs.Is(err, errs.InvalidArgument))
		}
	})
	t.Run("Token/WhatNoDatabaseComparesWithIsInvalid", func(t *testing.T) {
		for name, c := range map[string]page.Cursor{
			"NUL":         {CreateTime: cur.CreateTime, ID: "run\x00"},
			"EarlierYear": {CreateTime: time.UnixMicro(math.MinInt64), ID: "run_01"},
			"YearZero":    {CreateTime: time.Date(0, 12, 31, 0, 0, 0, 0, time.UTC), ID: "run_01"},
			"LaterYear":   {CreateTime: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), ID: "run_01"},
		} {
			_, err := page.Parse(2, first.Token(c), query)
			require.Equal(t, page.ReasonInvalid, errs.ReasonOf(err), name)
		}
	})
	t.Run("Token/NoTimeIsKept", func(t *testing.T) {
		p, err := page.Parse(2, first.Token(page.Cursor{ID: "actor/x"}), query)
		require.NoError(t, err)
		require.Equal(t, page.Cursor{ID: "actor/x"}, p.After)
	})
	t.Run("Token/DamageIsInvalid", func(t *testing.T) {
		raw, err := base64.RawURLEncoding.DecodeString(token)
		require.NoError(t, err)
		for i := range raw {
			bad := append([]byte(nil), raw...)
			bad[i] ^= 0x10
			_, err := page.Parse(2, base64.RawURLEncoding.EncodeToString(bad), query)
			require.Equal(t, page.ReasonInvalid, errs.ReasonOf(err), "byte %d", i)
		}
		for _, s := range []string{"x", "!!!", token + "=", token[:len(token)-3], strings.Repeat("A", 5000)} {
			_, err := page.Parse(2, s, query)
			require.Equal(t, page.ReasonInvalid, errs.ReasonOf(err), s)
		}
	})
}

type row struct {
	id   string
	size int
}

func (r row) Size() int { return r.size }

func TestCut(t *testing.T) {
	t.Parallel()
	at := func(r row) page.Cursor { return page.Cursor{CreateTime: time.UnixMicro(5).UTC(), ID: r.id} }
	parse := func(size int32, token string) page.Page {
		p, err := page.Parse(size, token, query)
		require.NoError(t, err)
		return p
	}
	const half, whole = page.MaxBytes/2 + 1, page.MaxBytes
	for name, c := range map[string]struct {
		rows  []row
		items int
		more  bool
	}{
		"Fits":                       {[]row{{"a", 1}, {"b", 1}}, 2, false},
		"OneMoreThanTheLimit":        {[]row{{"a", 1}, {"b", 1}, {"c", 1}}, 2, true},
		"NoRoomForTheSecond":         {[]row{{"a", half}, {"b", half}}, 1, true},
		"ExactlyFull":                {[]row{{"a", whole - 1}, {"b", 1}}, 2, false},
		"OneIsThereHoweverLarge":     {[]row{{"a", 9 * whole}}, 1, false},
		"AndWhatFollowsIsForTheNext": {[]row{{"a", 9 * whole}, {"b", 1}}, 1, true},
	} {
		items, next := page.Cut(parse(2, ""), c.rows, at)
		require.Equal(t, c.rows[:c.items], items, name)
		require.Equal(t, c.more, next != "", name)
		if c.more {
			require.Equal(t, at(c.rows[c.items-1]), parse(2, next).After, name)
		}
	}
}

func TestCutAt(t *testing.T) {
	t.Parallel()
	p, err := page.Parse(2, "", query)
	require.NoError(t, err)
	at := func(r row) page.Cursor { return page.Cursor{CreateTime: time.UnixMicro(5).UTC(), ID: r.id} }
	stopped := page.Cursor{CreateTime: time.UnixMicro(9).UTC(), ID: "z"}
	for name, c := range map[string]struct {
		rows    []row
		stopped page.Cursor
		items   int
		next    string
	}{
		"LookedToTheEnd":        {[]row{{"a", 1}}, page.Cursor{}, 1, ""},
		"StoppedWithoutARow":    {nil, stopped, 0, "z"},
		"StoppedBehindItsRows":  {[]row{{"a", 1}, {"b", 1}}, stopped, 2, "z"},
		"CutBeforeWhereStopped": {[]row{{"a", 1}, {"b", 1}, {"c", 1}}, stopped, 2, "b"},
	} {
		items, token := page.CutAt(p, c.rows, c.stopped, at)
		require.Len(t, items, c.items, name)
		next, err := page.Parse(2, token, query)
		require.NoError(t, err, name)
		require.Equal(t, c.next, next.After.ID, name)
	}
}

func TestTokenProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := page.Query{Method: rapid.String().Draw(t, "m"), Parent: rapid.String().Draw(t, "p"), Filter: rapid.String().Draw(t, "f")}
		c := page.Cursor{
			CreateTime: time.UnixMicro(rapid.Int64Range(-62_000_000_000_000_000, 250_000_000_000_000_000).Draw(t, "us")).UTC(),
			ID:         strings.ReplaceAll(rapid.StringN(1, 40, 160).Draw(t, "id"), "\x00", "0"),
		}
		p, err := page.Parse(0, "", q)
		require.NoError(t, err)
		got, err := page.Parse(0, p.Token(c), q)
		require.NoError(t, err)
		require.Equal(t, c, got.After)
	})
}

func FuzzParse(f *testing.F) {
	p, err := page.Parse(0, "", query)
	require.NoError(f, err)
	f.Add(int32(0), p.Token(page.Cursor{CreateTime: time.UnixMicro(1), ID: "run_1"}))
	f.Add(int32(-4), "AQ")
	f.Fuzz(func(t *testing.T, size int32, token string) {
		got, err := page.Parse(size, token, query)
		if err != nil {
			require.True(t, errs.Is(err, errs.InvalidArgument))
			return
		}
		require.Positive(t, got.Limit)
		require.LessOrEqual(t, got.Limit, page.MaxSize)
		if token != "" {
			require.Equal(t, token, got.Token(got.After), "a token has one spelling")
		}
	})
}
