// Package page owns pagination: page sizes and the opaque tokens that carry a keyset cursor from
// one List call to the next. A token is bound to the query it came from, so it cannot be used with
// another filter, order or parent. It must not know what is listed nor how it is stored.
package page

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/errs"
)

const (
	// DefaultSize is used when a request asks for no size.
	DefaultSize = 50
	// MaxSize is what larger sizes are lowered to.
	MaxSize = 1000
	// MaxBytes is what the rows of a page may take together, unless it is one row alone.
	MaxBytes = 8 << 20
	// ReasonInvalid is the reason of a token that is not one of ours.
	ReasonInvalid = "PAGE_TOKEN_INVALID"
	// ReasonMismatch is the reason of a token that belongs to another query.
	ReasonMismatch = "PAGE_TOKEN_MISMATCH"
	// ReasonSize is the reason of a negative page size.
	ReasonSize = "PAGE_SIZE_INVALID"

	version   = 1
	hashLen   = 8
	headLen   = 1 + hashLen + 8
	sumLen    = 4
	maxIDLen  = 512
	maxTokLen = 1024

	// The years of times that a request can name; all databases have them.
	minYear = 1
	maxYear = 9999
)

// Cursor is the position after one row in (create_time, id) order. The zero value is the start.
type Cursor struct {
	// CreateTime is kept in whole microseconds, UTC.
	CreateTime time.Time
	ID         string
}

// IsZero reports whether the cursor stands at the start.
func (c Cursor) IsZero() bool { return c.ID == "" && c.CreateTime.IsZero() }

// Query is what a token is bound to. Everything that changes which rows are listed or in which
// order belongs in it; the page size does not, so callers may change it between pages.
type Query struct {
	// Method names the List method, so that a token of one cannot be used with another.
	Method string
	// Parent is the collection that is listed, namespace included.
	Parent string
	Filter string
	Order  string
}

func (q Query) hash() [hashLen]byte {
	h := sha256.New()
	var n [8]byte
	for _, s := range []string{q.Method, q.Parent, q.Filter, q.Order} {
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	return [hashLen]byte(h.Sum(nil))
}

// Page is a request for one page after its checks.
type Page struct {
	// Limit is between 1 and MaxSize. Ask the store for Limit+1 rows and give them to Cut.
	Limit int
	// After is where the page starts; the zero value is the beginning.
	After Cursor

	query Query
}

// Parse checks the paging fields of a List request. Size 0 means DefaultSize and more than MaxSize
// means MaxSize. Errors are InvalidArgument.
func Parse(size int32, token string, q Query) (Page, error) {
	p := Page{Limit: int(size), query: q}
	switch {
	case size < 0:
		return Page{}, errs.New(errs.InvalidArgument, ReasonSize, "page_size must not be negative").
			Violate("page_size", ReasonSize, "must not be negative")
	case size == 0:
		p.Limit = DefaultSize
	case size > MaxSize:
		p.Limit = MaxSize
	}
	if token == "" {
		return p, nil
	}
	c, err := decode(token, q)
	if err != nil {
		return Page{}, err
	}
	p.After = c
	return p, nil
}

// Token returns the token that continues after c in the query that p was parsed with.
func (p Page) Token(c Cursor) string {
	h := p.query.hash()
	b := make([]byte, 0, headLen+len(c.ID)+sumLen)
	b = append(b, version)
	b = append(b, h[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(c.CreateTime.UnixMicro()))
	b = append(b, c.ID...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

// Row is an item of a list.
type Row interface {
	// Size is about how many bytes the row adds to an answer.
	Size() int
}

// Gauge reports when a page is full. The zero value is that of an empty page.
type Gauge struct{ rows, bytes int }

// Add counts a row, and reports whether it is one too many: it belongs on the next page, and no row after it
// needs to be read.
func (g *Gauge) Add(r Row) (full bool) {
	g.rows++
	g.bytes += r.Size()
	return g.rows > 1 && g.bytes > MaxBytes
}

// Cut turns up to Limit+1 rows into a page and the token of the next one, which is empty on the last page. A
// page ends at MaxBytes.
func Cut[T Row](p Page, rows []T, cursor func(T) Cursor) (items []T, nextToken string) {
	n := min(len(rows), p.Limit)
	var g Gauge
	for i := range n {
		if g.Add(rows[i]) {
			n = i
			break
		}
	}
	if n == len(rows) {
		return rows, ""
	}
	return rows[:n], p.Token(cursor(rows[n-1]))
}

// CutAt is Cut for rows that were looked for only up to a place, the zero Cursor if to the end. A page that
// holds all of the rows, which may be none, goes on from there.
func CutAt[T Row](p Page, rows []T, stopped Cursor, cursor func(T) Cursor) (items []T, nextToken string) {
	items, nextToken = Cut(p, rows, cursor)
	if nextToken == "" && !stopped.IsZero() {
		nextToken = p.Token(stopped)
	}
	return items, nextToken
}

func decode(token string, q Query) (Cursor, error) {
	invalid := errs.New(errs.InvalidArgument, ReasonInvalid, "page_token is not valid").
		Hint("pass next_page_token of the previous response unchanged, or leave it out to start again").
		Violate("page_token", ReasonInvalid, "not a token of this service")
	if len(token) > maxTokLen {
		return Cursor{}, invalid
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return Cursor{}, invalid.With(err)
	}
	if len(b) < headLen+1+sumLen || len(b) > headLen+maxIDLen+sumLen || b[0] != version {
		return Cursor{}, invalid
	}
	body := b[:len(b)-sumLen]
	if binary.BigEndian.Uint32(b[len(body):]) != crc32.ChecksumIEEE(body) {
		return Cursor{}, invalid
	}
	if [hashLen]byte(body[1:1+hashLen]) != q.hash() {
		return Cursor{}, errs.New(errs.InvalidArgument, ReasonMismatch, "page_token belongs to another query").
			Hint("keep parent, filter and order_by as they were on the first page").
			Violate("page_token", ReasonMismatch, "parent, filter or order_by changed since the first page")
	}
	id := string(body[headLen:])
	// The sum detects damage, not forgery: values that no database can compare with are refused here.
	if !utf8.ValidString(id) || strings.IndexByte(id, 0) >= 0 {
		return Cursor{}, invalid
	}
	at := time.UnixMicro(int64(binary.BigEndian.Uint64(body[1+hashLen : headLen]))).UTC()
	if year := at.Year(); year < minYear || year > maxYear {
		return Cursor{}, invalid
	}
	return Cursor{CreateTime: at, ID: id}, nil
}
