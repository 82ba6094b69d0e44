package postgres

import (
	"encoding/hex"
	"unicode/utf8"

	"github.com/freshet-io/freshet/internal/column"
)

// textDecoder keeps text as it stands. Bytes that are not UTF-8, which a database of the encoding SQL_ASCII may hold,
// become U+FFFD.
type textDecoder struct {
	store    *column.Text
	padded   bool  // blanks at the end are no part of it
	replaced int64 // values with bytes that are not UTF-8
}

func (d *textDecoder) text(b []byte) verdict {
	for d.padded && len(b) > 0 && b[len(b)-1] == ' ' {
		b = b[:len(b)-1]
	}
	if utf8.Valid(b) {
		d.store.Append(b)
		return taken
	}
	d.replaced++
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		d.store.Data = utf8.AppendRune(d.store.Data, r)
		b = b[n:]
	}
	d.store.Finish()
	return taken
}

// boolDecoder reads t and f.
type boolDecoder struct{ store *column.Bools }

func (d *boolDecoder) text(b []byte) verdict {
	if len(b) != 1 || b[0] != 't' && b[0] != 'f' {
		return malformed
	}
	d.store.Append(b[0] == 't')
	return taken
}

// bytesDecoder reads hexadecimal digits, behind \x where they are those of a bytea.
type bytesDecoder struct {
	store  *column.Text
	marked bool
}

func (d *bytesDecoder) text(b []byte) verdict {
	if d.marked {
		if len(b) < 2 || b[0] != '\\' || b[1] != 'x' {
			return malformed
		}
		b = b[2:]
	}
	data, err := hex.AppendDecode(d.store.Data, b)
	if err != nil {
		return malformed
	}
	d.store.Data = data
	d.store.Finish()
	return taken
}
