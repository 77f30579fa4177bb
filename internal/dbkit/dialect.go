package dbkit

import (
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// Dialect renders the fragments in which the SQL of PostgreSQL and SQLite differs. Both databases understand
// everything between them, including LIMIT, window functions, upserts, RETURNING and row values.
type Dialect uint8

// The dialects.
const (
	DialectPostgres Dialect = iota
	DialectSQLite
)

func (d Dialect) choose(postgres, sqlite string) string {
	if d == DialectSQLite {
		return sqlite
	}
	return postgres
}

// Now is the database's clock at the start of the statement. SQLite's counts milliseconds, so that two
// moments in a row may be equal: what is ordered by it needs a second key.
func (d Dialect) Now() string {
	return d.choose(`statement_timestamp()`, `CAST(unixepoch('subsec') * 1000000 AS INTEGER)`)
}

// Span is a parameter that is a time.Duration, to be added to a time or subtracted from one.
func (d Dialect) Span(param string) string { return d.choose(param+`::interval`, param) }

// Unset holds for a time that is not set.
func (d Dialect) Unset(column string) string { return d.choose(column+` IS NULL`, column+` = 0`) }

// Set holds for a time that is set.
func (d Dialect) Set(column string) string { return d.choose(column+` IS NOT NULL`, column+` > 0`) }

// Ago is the time that was so long before Now.
func (d Dialect) Ago(age time.Duration) string {
	us := age.Microseconds()
	return d.Now() + d.choose(fmt.Sprintf(` - interval '%d microseconds'`, us), fmt.Sprintf(` - %d`, us))
}

// Day is the UTC day of a time, counted from 1970.
func (d Dialect) Day(column string) string {
	return d.choose(`CAST(floor(extract(epoch FROM `+column+`) / 86400) AS bigint)`,
		// Division rounds to zero, which is up before 1970.
		`((`+column+` - ((`+column+` % 86400000000) + 86400000000) % 86400000000) / 86400000000)`)
}

// HasText holds for a text that has another one in it.
func (d Dialect) HasText(text, part string) string {
	return d.choose(`strpos(`+text+`, `+part+`)`, `instr(`+text+`, `+part+`)`) + ` > 0`
}

// Stamp is a time as a text of RFC 3339, in whole seconds and UTC.
func (d Dialect) Stamp(column string) string {
	return d.choose(`to_char(`+column+` AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')`,
		`strftime('%Y-%m-%dT%H:%M:%SZ', `+column+` / 1000000, 'unixepoch')`)
}

// Overlap holds for a column that is a list of texts if one of them is in a parameter, which is such a list.
func (d Dialect) Overlap(column, param string) string {
	return d.choose(column+` && `+param+`::text[]`, `EXISTS (SELECT 1 FROM json_each(`+column+`) WHERE value IN (SELECT value FROM json_each(`+param+`)))`)
}

// Without is a column that is a list of texts, without those that are equal to a parameter.
func (d Dialect) Without(column, param string) string {
	return d.choose(`array_remove(`+column+`, `+param+`)`, `(SELECT json_group_array(value ORDER BY key) FROM json_each(`+column+`) WHERE value <> `+param+`)`)
}

// Contains holds for a column that is a JSON object of texts if it has all pairs of a parameter, which is
// such an object.
func (d Dialect) Contains(column, param string) string {
	return d.choose(column+` @> `+param+`::jsonb`, `NOT EXISTS (SELECT 1 FROM json_each(`+param+`) w
		WHERE NOT EXISTS (SELECT 1 FROM json_each(`+column+`) h WHERE h.key = w.key AND h.value = w.value))`)
}

// In holds for an expression that is one of the values of a parameter, which is a list.
func (d Dialect) In(expr, param string) string {
	return d.choose(expr+` = ANY (`+param+`)`, expr+` IN (SELECT value FROM json_each(`+param+`))`)
}

// Values is a select of the values of a parameter, which is a list of texts. Unlike In, an expression that is
// compared with it by NOT IN is looked up in a hash table or an index, however long the list is.
func (d Dialect) Values(param string) string {
	return d.choose(`SELECT unnest(`+param+`::text[])`, `SELECT value FROM json_each(`+param+`)`)
}

// InSelect holds for an expression that is one of the values of a select. The select runs once, before
// anything is looked up.
func (d Dialect) InSelect(expr, query string) string {
	return d.choose(expr+` = ANY (ARRAY (`+query+`))`, expr+` IN (`+query+`)`)
}

// DeleteSome deletes the rows of a table whose keys, one column or several, are those of a select. Unlike a
// sub-select it runs once, so that its limit bounds what is deleted.
func (d Dialect) DeleteSome(table, keys, query string) string {
	return `WITH gone AS MATERIALIZED (` + query + `) DELETE FROM ` + table + ` WHERE (` + keys + `) IN (SELECT * FROM gone)`
}

// LookUp joins the rows of a table for which the condition holds, as an alias. They are looked up for each
// row of the left side, whatever the database estimates about sizes.
func (d Dialect) LookUp(table, alias, cond string) string {
	return d.choose(
		fmt.Sprintf(` CROSS JOIN LATERAL (SELECT * FROM %[1]s %[2]s WHERE %[3]s OFFSET 0) %[2]s`, table, alias, cond),
		fmt.Sprintf(` CROSS JOIN %s %s ON %s`, table, alias, cond))
}

// Holds is a condition: a row of a table is there for which cond holds. It is looked up for each row,
// whatever the database believes about sizes. Unlike joins, of which SQLite takes 64, there may be any
// number.
func (d Dialect) Holds(table, alias, cond string) string {
	return fmt.Sprintf(`EXISTS (SELECT 1 FROM %s %s WHERE %s%s)`, table, alias, cond, d.choose(` OFFSET 0`, ``))
}

// Lists is a table of an alias with one column, whose values are those of $1, which is a list. A column is
// its name and its type, text or bigint. What has several columns is Rows: SQLite would join lists in an
// order of its own, and for seven of them in one that takes the sixth power of their length.
func (d Dialect) Lists(alias string, column [2]string) string {
	name := column[0]
	if d == DialectSQLite {
		return "(SELECT value AS " + name + " FROM json_each($1)) " + alias
	}
	as := name
	if column[1] == "text" {
		as += ` COLLATE "C" AS ` + name
	}
	return "(SELECT " + as + " FROM unnest($1::" + column[1] + "[]) AS u (" + name + ")) " + alias
}

// Rows is a table of an alias whose rows are parameters: those of RowArgs, from $first on. A column is its
// name and its type on PostgreSQL. A table that is joined must be so by its whole key, or SQLite may go over
// the table instead of the rows.
func (d Dialect) Rows(alias string, first int, columns ...[2]string) string {
	var outer, lists, names []string
	for i, c := range columns {
		name := c[0]
		names = append(names, name)
		lists = append(lists, fmt.Sprintf("$%d::%s[]", first+i, c[1]))
		switch {
		case d == DialectSQLite:
			name = fmt.Sprintf("r.value ->> %d AS %s", i, name)
		case c[1] == "text":
			name += ` COLLATE "C" AS ` + name
		}
		outer = append(outer, name)
	}
	from := d.choose("unnest("+strings.Join(lists, ", ")+") AS u ("+strings.Join(names, ", ")+")",
		// A row is parsed once, and the limit keeps SQLite from doing so again for each row of a table that
		// is joined.
		fmt.Sprintf("(SELECT jsonb(value) AS value FROM json_each($%d) LIMIT -1) r", first))
	return "(SELECT " + strings.Join(outer, ", ") + " FROM " + from + ") " + alias
}

// RowArgs are the arguments of Rows. Values are texts, numbers, booleans, times, and pointers to them, of
// which nil is null.
func (d Dialect) RowArgs(columns int, rows [][]any) []any {
	if d == DialectSQLite {
		for _, r := range rows {
			sqliteArgs(r)
		}
		return []any{jsonList(rows)}
	}
	args := make([]any, columns)
	for i := range args {
		column := make([]any, len(rows))
		for j, r := range rows {
			column[j] = r[i]
		}
		args[i] = postgresArgs(column)
	}
	return args
}

// Text is a text parameter in a place where its type and its order, by bytes, must be stated.
func (d Dialect) Text(param string) string { return d.choose(param+`::text COLLATE "C"`, param) }

// Greatest is the larger of two values, neither of which is null.
func (d Dialect) Greatest(a, b string) string {
	return d.choose(`greatest`, `max`) + `(` + a + `, ` + b + `)`
}

// Least is the smaller of two values, of which none is null.
func (d Dialect) Least(a, b string) string {
	return d.choose(`least`, `min`) + `(` + a + `, ` + b + `)`
}

// Position is where a piece lies in a text or in bytes, from 1; 0 means that it is not there.
func (d Dialect) Position(piece, bytes string) string {
	return d.choose(`position(`+piece+` IN `+bytes+`)`, `instr(`+bytes+`, `+piece+`)`)
}

// Locked ends a select whose rows stay locked until the end of the transaction. On SQLite a writing
// transaction is alone from its start.
func (d Dialect) Locked() string { return d.choose(` FOR UPDATE`, ``) }

// LockedToUpdate is Locked as an update that leaves keys alone locks its rows: others may keep them
// meanwhile.
func (d Dialect) LockedToUpdate() string { return d.choose(` FOR NO KEY UPDATE`, ``) }

// LockedFree is Locked for those rows that no other transaction has locked.
func (d Dialect) LockedFree() string { return d.choose(` FOR UPDATE SKIP LOCKED`, ``) }

// Kept is Locked against a delete of the rows only.
func (d Dialect) Kept() string { return d.choose(` FOR KEY SHARE`, ``) }

// Instant reads a time of either database into a time.Time: in UTC, and zero for one that is not set.
type Instant time.Time

var _ sql.Scanner = (*Instant)(nil)

// At is the destination of a time.
func At(t *time.Time) *Instant { return (*Instant)(t) }

// Scan implements sql.Scanner.
func (i *Instant) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*i = Instant{}
	case time.Time:
		*i = Instant(v.UTC())
	case int64:
		*i = Instant(FromUnixMicros(v))
	default:
		return fmt.Errorf("%T is no time", v)
	}
	return nil
}

// Passing is the destination of bytes that are there until the next row is read: it is called with them, and
// keeps them no longer. PostgreSQL's driver makes no copy of them.
type Passing func([]byte)

var _ sql.Scanner = Passing(nil)

// Scan implements sql.Scanner.
func (p Passing) Scan(v any) error {
	b, ok := v.([]byte)
	if !ok && v != nil {
		return fmt.Errorf("%T are no bytes", v)
	}
	p(b)
	return nil
}

// ScanBytes implements BytesScanner of pgx, so that its bytes are not copied.
func (p Passing) ScanBytes(v []byte) error {
	p(v)
	return nil
}

// Exact is a time as an argument that is set whatever it is, the zero time and 1970 included.
type Exact time.Time

// Scan implements sql.Scanner.
func (e *Exact) Scan(v any) error {
	if us, ok := v.(int64); ok {
		*e = Exact(time.UnixMicro(us).UTC())
		return nil
	}
	return (*Instant)(e).Scan(v)
}
