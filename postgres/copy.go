package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
)

// copyRows reads what a query selects into rows, one column of the query for each of the table, and calls full between two
// rows whenever rows holds so many bytes of text, and once at the end if it holds any row. full takes what is there. A row
// that cannot be taken goes to reject, with its line as the server sent it, lent for the call.
// Errors: those of the connection, the server, full and reject.
func copyRows(ctx context.Context, conn *pgconn.PgConn, query string, r *rows, bytes int, full func() error,
	reject func(line []byte, why *freshet.RejectError) error) error {
	w := &copyReader{rows: r, bytes: bytes, full: full, reject: reject}
	if _, err := conn.CopyTo(ctx, w, "copy ("+query+") to stdout"); err != nil {
		return err
	}
	if len(w.part) > 0 {
		return fmt.Errorf("the server ended in the middle of a row: %d bytes", len(w.part))
	}
	if r.len() > 0 {
		return full()
	}
	return nil
}

// selectOf is the query that copyRows wants for the table's columns, of one of its leaves or of the table itself.
func selectOf(table *Table, from, where string) string {
	var q strings.Builder
	q.WriteString("select ")
	for i, c := range table.Columns {
		if i > 0 {
			q.WriteString(", ")
		}
		q.WriteString(quoteName(c.Name))
	}
	q.WriteString(" from " + from)
	if where != "" {
		q.WriteString(" where " + where)
	}
	return q.String()
}

// copyReader takes the text format of COPY: a line a row, columns parted by tabs, \N for null. Source: "COPY", "Text
// Format".
type copyReader struct {
	rows   *rows
	bytes  int
	full   func() error
	reject func(line []byte, why *freshet.RejectError) error

	part    []byte // of a line that has not ended
	scratch []byte
}

// Write takes some of what the server sends: mostly one line.
func (c *copyReader) Write(b []byte) (int, error) {
	n := len(b)
	if len(c.part) > 0 {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			c.part = append(c.part, b...)
			return n, nil
		}
		c.part = append(c.part, b[:end+1]...)
		b = b[end+1:]
		if _, err := c.lines(c.part); err != nil {
			return 0, err
		}
		c.part = c.part[:0]
	}
	rest, err := c.lines(b)
	if err != nil {
		return 0, err
	}
	c.part = append(c.part, rest...)
	return n, nil
}

// lines takes all lines of b that end, and returns what is behind the last.
func (c *copyReader) lines(b []byte) (rest []byte, err error) {
	for len(b) > 0 {
		line := b
		c.rows.begin()
		b, err = c.line(b)
		switch {
		case err != nil:
			c.rows.undo()
			if b, err = c.refuse(line, err); b == nil || err != nil {
				return line, err
			}
		case b == nil:
			c.rows.undo()
			return line, nil
		default:
			c.rows.end()
		}
		if c.rows.bytes() >= c.bytes && c.rows.len() > 0 {
			if err := c.full(); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// refuse hands the line at the front of b to reject if why is a reason for that, and returns what is behind it, which is
// not nil; nil when the line does not end.
func (c *copyReader) refuse(b []byte, why error) (rest []byte, err error) {
	var reject *freshet.RejectError
	if !errors.As(why, &reject) {
		return nil, why
	}
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		return nil, nil
	}
	return b[end+1:], c.reject(b[:end], reject)
}

// line takes the row at the front of b and returns what is behind it, which is not nil; nil when b ends before the row. What
// a backslash stands for is no end: the server writes those as letters.
func (c *copyReader) line(b []byte) (rest []byte, err error) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		return nil, nil
	}
	line, columns := b[:end], len(c.rows.places)
	plain, ascii := bytes.IndexByte(line, '\\') < 0, isASCII(line)
	for column := 0; ; column++ {
		value, tab := line, bytes.IndexByte(line, '\t')
		if tab >= 0 {
			value, line = line[:tab], line[tab+1:]
		}
		switch {
		case column == columns || tab < 0 && column != columns-1:
			return nil, fmt.Errorf("the server sent a row of another number of columns, want %d", columns)
		case !plain && bytes.IndexByte(value, '\\') >= 0:
			err = c.escaped(column, value)
		case ascii:
			err = c.rows.ascii(column, value)
		default:
			err = c.rows.text(column, value)
		}
		if err != nil || tab < 0 {
			return b[end+1:], err
		}
	}
}

// escaped takes a value with a backslash.
func (c *copyReader) escaped(column int, value []byte) error {
	if len(value) == 2 && value[1] == 'N' {
		c.rows.null(column)
		return nil
	}
	c.scratch = unescape(c.scratch[:0], value)
	return c.rows.text(column, c.scratch)
}

// isASCII reports whether no byte is above 0x7f.
func isASCII(b []byte) bool {
	var all uint64
	for ; len(b) >= 8; b = b[8:] {
		all |= binary.LittleEndian.Uint64(b)
	}
	for _, c := range b {
		all |= uint64(c)
	}
	return all&0x8080808080808080 == 0
}

// unescape appends a value with what its backslashes stand for.
func unescape(out, value []byte) []byte {
	for {
		at := bytes.IndexByte(value, '\\')
		if at < 0 || at+1 == len(value) {
			return append(out, value...)
		}
		out = append(out, value[:at]...)
		escaped := value[at+1]
		if i := strings.IndexByte("bfnrtv", escaped); i >= 0 {
			escaped = "\b\f\n\r\t\v"[i]
		}
		out = append(out, escaped)
		value = value[at+2:]
	}
}
