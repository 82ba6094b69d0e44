package format

import (
	"bytes"
	"encoding/base64"
	"math"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/column"
)

// value appends the value at i. What most values are is dealt with here; the rest is other's.
func (d *jsonDecoder) value(n *node, b []byte, i int) int {
	if i >= len(b) {
		return d.unexpected(b, i, "a value")
	}
	c := b[i]
	if c == 'n' {
		return d.null(n, b, i)
	}
	switch n.kind {
	case kindString:
		if c == '"' {
			return d.string(n.store.(*column.Text), b, i+1)
		}
	case kindLong:
		if v, end := quickInt(b, i); end != failed {
			n.store.(*column.Fixed[int64]).Append(v)
			return end
		}
	case kindDouble:
		if v, end := quickFloat(b, i); end != failed {
			n.store.(*column.Fixed[float64]).Append(v)
			return end
		}
	case kindBool:
		if v, end := quickBool(b, i); end != failed {
			n.store.(*column.Bools).Append(v)
			return end
		}
	case kindTimestamp, kindTimestampNTZ:
		if c == '"' {
			if us, end := quickMoment(n, b, i+1); end != failed {
				n.store.(*column.Fixed[int64]).Append(us)
				return end
			}
		}
	case kindStruct:
		if c == '{' {
			return d.object(n, b, i)
		}
	case kindList:
		if c == '[' {
			return d.list(n, b, i)
		}
	case kindMap:
		if c == '{' {
			return d.dictionary(n, b, i)
		}
	case kindWire:
		return d.wired(n, b, i)
	case kindCapture:
		return d.capture(n, b, i)
	case kindImage:
		return d.image(n, b, i)
	}
	return d.other(n, b, i)
}

func (d *jsonDecoder) null(n *node, b []byte, i int) int {
	end := i + len("null")
	if end > len(b) || string(b[i:end]) != "null" {
		return d.unexpected(b, i, "a value")
	}
	if !n.nullable {
		return d.fail(freshet.CodeNull, i, "found null, wanted %s: the column is not nullable", n.typeName)
	}
	n.store.AppendNull()
	return end
}

// string appends the text behind whose opening quote i is.
func (d *jsonDecoder) string(store *column.Text, b []byte, i int) int {
	if end := quickText(store, b, i); end != failed {
		return end
	}
	j, ascii := plainEnd(b, i)
	if j < len(b) && b[j] == '"' && (ascii || utf8.Valid(b[i:j])) {
		store.Append(b[i:j])
		return j + 1
	}
	var end int
	if store.Data, end = d.unescape(store.Data, b, i); end != failed {
		store.Finish()
	}
	return end
}

// other appends the value at i, which is not null and may be of the wrong type.
func (d *jsonDecoder) other(n *node, b []byte, i int) int {
	if b[i] == '"' && n.kind != kindJSON {
		content, end := d.text(b, i+1)
		if end == failed || d.fromText(n, content, i) == failed {
			return failed
		}
		return end
	}
	end := d.skip(b, i)
	if end == failed {
		return failed
	}
	found := b[i:end]
	ok := end
	switch {
	case n.kind == kindJSON || n.kind == kindString:
		n.store.(*column.Text).Append(found)
	case n.kind == kindBool:
		ok = d.fromBool(n, found, i)
	case (n.kind == kindDouble || n.kind == kindFloat) && isBareFloat(found):
		v, _ := parseNoNumber(found)
		appendFloat(n, v)
	case found[0] == '-' || found[0]-'0' <= 9:
		ok = d.fromNumber(n, found, found, i)
	default:
		ok = d.wrongType(n, found, i)
	}
	if ok == failed {
		return failed
	}
	return end
}

// wrongType sets the fault, unless the value only stands for one that was not sent.
func (d *jsonDecoder) wrongType(n *node, found []byte, at int) int {
	if d.changes.isPlaceholder(found) {
		n.store.AppendNull()
		d.changes.standIns = append(d.changes.standIns, n)
		return at
	}
	return d.fail(freshet.CodeWrongType, at, "found %s, wanted %s", describe(found), n.typeName)
}

func (d *jsonDecoder) fromBool(n *node, found []byte, at int) int {
	switch string(found) {
	case "true", "1":
		n.store.(*column.Bools).Append(true)
	case "false", "0":
		n.store.(*column.Bools).Append(false)
	default:
		return d.wrongType(n, found, at)
	}
	return at
}

// fromText appends the content of a string that is at at, or of a map's key.
func (d *jsonDecoder) fromText(n *node, content []byte, at int) int {
	if n.kind == kindString || n.kind == kindJSON {
		n.store.(*column.Text).Append(content)
		return at
	}
	trimmed := bytes.Trim(content, " \t\r\n")
	quoted := func() []byte { return appendQuoted(nil, string(content[:min(len(content), 2*clipAt)])) }
	switch n.kind {
	case kindBool:
		v, ok := parseBool(trimmed)
		if !ok {
			return d.wrongType(n, quoted(), at)
		}
		n.store.(*column.Bools).Append(v)
		return at
	case kindBinary:
		return d.fromBase64(n, trimmed, at)
	case kindDate:
		day, _, ok := parseDate(trimmed)
		if !ok {
			return d.wrongType(n, quoted(), at)
		}
		n.store.(*column.Fixed[int32]).Append(day)
		return at
	case kindTimestamp, kindTimestampNTZ:
		m, ok := parseMoment(trimmed)
		if ok && (n.kind == kindTimestamp || m.zone != offset) {
			rememberDate(n, trimmed)
			n.store.(*column.Fixed[int64]).Append(m.us)
			return at
		}
	case kindFloat, kindDouble:
		if v, ok := parseNoNumber(trimmed); ok {
			appendFloat(n, v)
			return at
		}
	case kindVoid, kindStruct, kindList, kindMap:
		return d.wrongType(n, quoted(), at)
	}
	return d.fromNumber(n, trimmed, quoted(), at)
}

// isBareFloat reports whether a value, which was scanned, is one of the floats that JSON has no numbers for.
func isBareFloat(found []byte) bool {
	return found[0] == 'N' || found[0] == 'I' || len(found) > 1 && found[1] == 'I'
}

// parseNoNumber reads the floats that JSON has no numbers for.
func parseNoNumber(b []byte) (v float64, ok bool) {
	switch string(b) {
	case "NaN":
		return math.NaN(), true
	case "Infinity", "+Infinity":
		return math.Inf(1), true
	case "-Infinity":
		return math.Inf(-1), true
	}
	return 0, false
}

func parseBool(b []byte) (v, ok bool) {
	switch string(bytes.ToLower(b)) {
	case "true", "t", "yes", "y", "1":
		return true, true
	case "false", "f", "no", "n", "0":
		return false, true
	}
	return false, false
}

func (d *jsonDecoder) fromBase64(n *node, b []byte, at int) int {
	store := n.store.(*column.Text)
	encoding := base64.RawStdEncoding
	if bytes.ContainsAny(b, "-_") {
		encoding = base64.RawURLEncoding
	}
	trimmed := bytes.TrimRight(b, "=")
	padding := len(b) - len(trimmed)
	data, err := encoding.Strict().AppendDecode(store.Data, trimmed)
	if err != nil || padding > 2 || padding > 0 && len(b)%4 != 0 || bytes.ContainsAny(b, "\r\n") {
		return d.wrongType(n, appendQuoted(nil, string(b[:min(len(b), 2*clipAt)])), at)
	}
	store.Data = data
	store.Finish()
	return at
}

// fromNumber appends a number, given as its text; found is how it stood in the record.
func (d *jsonDecoder) fromNumber(n *node, number, found []byte, at int) int {
	v, ok := parseDecimal(number)
	if !ok {
		return d.wrongType(n, found, at)
	}
	f := overflow
	switch n.kind {
	case kindByte, kindShort, kindInt, kindLong:
		f = appendInt(n, &v)
	case kindFloat, kindDouble:
		var float float64
		if float, f = parseFloat(number, &v, floatSize(n)); f == fits {
			appendFloat(n, float)
		}
	case kindDecimal:
		var num decimal128.Num
		if num, f = v.decimal128(n.precision, n.scale); f == fits {
			n.store.(*column.Fixed[decimal128.Num]).Append(num)
		}
	case kindTimestamp, kindTimestampNTZ:
		return d.fromEpoch(n, &v, found, at)
	default:
		return d.wrongType(n, found, at)
	}
	switch f {
	case inexact:
		return d.fail(freshet.CodeOutOfRange, at, "found %s, wanted %s, which cannot hold it exactly",
			describe(found), n.typeName)
	case overflow:
		return d.fail(freshet.CodeOutOfRange, at, "found %s, wanted %s, for which it is too large",
			describe(found), n.typeName)
	}
	return at
}

func (d *jsonDecoder) fromEpoch(n *node, v *decimal, found []byte, at int) int {
	scale := 0
	switch d.opts.EpochUnit {
	case Seconds:
		scale = 6
	case Millis:
		scale = 3
	case NoEpoch:
		return d.fail(freshet.CodeWrongType, at,
			"found %s, wanted %s as text; say what numbers count: s, ms or us", describe(found), n.typeName)
	}
	us, f := v.int64(scale)
	if f == inexact && v.negative {
		us-- // it was cut off towards zero
	}
	if f == overflow || us < firstUs || us > lastUs {
		return d.fail(freshet.CodeOutOfRange, at, "found %s, wanted %s of the years 1 to 9999, in %s since 1970",
			describe(found), n.typeName, d.opts.EpochUnit)
	}
	n.store.(*column.Fixed[int64]).Append(us)
	return at
}

func appendInt(n *node, d *decimal) fit {
	v, f := d.int64(0)
	if f != fits {
		return f
	}
	switch n.kind {
	case kindByte:
		return appendNarrow(n.store.(*column.Fixed[int8]), v)
	case kindShort:
		return appendNarrow(n.store.(*column.Fixed[int16]), v)
	case kindInt:
		return appendNarrow(n.store.(*column.Fixed[int32]), v)
	}
	return appendNarrow(n.store.(*column.Fixed[int64]), v)
}

func appendNarrow[T int8 | int16 | int32 | int64](store *column.Fixed[T], v int64) fit {
	if int64(T(v)) != v {
		return overflow
	}
	store.Append(T(v))
	return fits
}

func floatSize(n *node) int {
	if n.kind == kindFloat {
		return 32
	}
	return 64
}

func appendFloat(n *node, v float64) {
	if n.kind == kindFloat {
		n.store.(*column.Fixed[float32]).Append(float32(v))
	} else {
		n.store.(*column.Fixed[float64]).Append(v)
	}
}
