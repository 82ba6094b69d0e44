package format

import (
	"encoding/base64"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/column"
)

// wire is how Kafka Connect writes values of a column, where that is not what the column's type takes anyway.
type wire struct {
	form   form
	scale  int // of a decimal; of a time or timestamp: how many digits of the second its unit has
	length int // of bits; 0: whole bytes
}

// form is a kind of wire.
type form uint8

const (
	asPlain   form = iota
	asDays         // days since 1970
	asMoment       // units since 1970
	asTime         // units since midnight; may be negative, and more than a day
	asDecimal      // base64 of the coefficient, two's complement, most significant byte first
	asNumber       // {"scale": …, "value": …}, the value as of asDecimal
	asBits         // base64, least significant byte first
	asIsoDate      // text of a date with a Z behind it
	asPairs        // a map as an array of arrays of key and value
)

// setWire has values of the node read in a form.
func (n *node) setWire(w wire) {
	n.wire, n.kind = w, kindWire
	if w.form == asPlain {
		n.kind = n.plain
	}
}

// wired appends the value at i, which is not null, in the form of the node. What does not look like that form
// is taken as any column of the type takes it.
func (d *jsonDecoder) wired(n *node, b []byte, i int) int {
	c := b[i]
	if size := d.changes.placeholderAt(b, i); size > 0 {
		n.store.AppendNull()
		d.changes.standIns = append(d.changes.standIns, n)
		return i + size
	}
	isNumber := c == '-' || c-'0' <= 9
	switch form := n.wire.form; {
	case form == asDays && isNumber && n.isTimeOrText():
		return d.units(n, b, i, d.fromDays)
	case form == asMoment && isNumber && n.isTimeOrText():
		return d.units(n, b, i, d.fromMoment)
	case form == asTime && isNumber && n.plain == kindString:
		return d.units(n, b, i, d.fromTimeOfDay)
	case form == asDecimal && c == '"':
		return d.decimal(n, b, i)
	case form == asNumber && c == '{':
		return d.scaledNumber(n, b, i)
	case form == asBits && c == '"' && n.plain == kindString:
		return d.bits(n, b, i)
	case form == asPairs && c == '[' && n.plain == kindMap:
		return d.pairs(n, b, i)
	case form == asIsoDate && c == '"':
		content, end := d.text(b, i+1)
		if end == failed {
			return failed
		}
		if size := len(content); size > 0 && content[size-1] == 'Z' {
			content = content[:size-1]
		}
		return d.plainText(n, content, i, end)
	}
	n.kind = n.plain
	end := d.value(n, b, i)
	n.kind = kindWire
	return end
}

func (n *node) isTimeOrText() bool {
	return n.plain == kindDate || n.plain == kindTimestamp || n.plain == kindTimestampNTZ || n.plain == kindString
}

// plainText appends text as the column takes it, and returns end.
func (d *jsonDecoder) plainText(n *node, content []byte, at, end int) int {
	d.appended += len(content) // it can be much larger than the payload
	n.kind = n.plain
	ok := d.fromText(n, content, at)
	n.kind = kindWire
	if ok == failed {
		return failed
	}
	return end
}

// units appends the whole number at i by a function that says whether it can be.
func (d *jsonDecoder) units(n *node, b []byte, i int, appendTo func(*node, int64) bool) int {
	v, end := quickInt(b, i)
	if end == failed {
		if end = d.number(b, i); end == failed {
			return failed
		}
		number, ok := parseDecimal(b[i:end])
		f := overflow
		if ok {
			v, f = number.int64(0)
		}
		if f != fits {
			return d.fail(freshet.CodeOutOfRange, i, "found %s, wanted %s as a whole number of 64 bits",
				describe(b[i:end]), n.typeName)
		}
	}
	if !appendTo(n, v) {
		return d.fail(freshet.CodeOutOfRange, i, "found %s, wanted %s of the years 1 to 9999", describe(b[i:end]),
			n.typeName)
	}
	return end
}

func (d *jsonDecoder) fromDays(n *node, days int64) bool {
	if days < firstUs/usPerDay || days > lastUs/usPerDay {
		return false
	}
	return n.appendMoment(days*usPerDay, true)
}

func (d *jsonDecoder) fromMoment(n *node, v int64) bool {
	us := v
	switch n.wire.scale {
	case 3:
		if v > math.MaxInt64/1000 || v < math.MinInt64/1000 {
			return false
		}
		us = v * 1000
	case 9:
		us = floorDiv(v, 1000)
	}
	return us >= firstUs && us <= lastUs && n.appendMoment(us, false)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// appendMoment appends a time in range to a column of a date, a timestamp or text. It returns false when a
// date would have to forget the time of day.
func (n *node) appendMoment(us int64, date bool) bool {
	switch n.plain {
	case kindDate:
		if us%usPerDay != 0 {
			return false
		}
		n.store.(*column.Fixed[int32]).Append(int32(us / usPerDay))
	case kindString:
		store := n.store.(*column.Text)
		store.Data = appendDate(store.Data, floorDiv(us, usPerDay))
		if !date {
			store.Data = append(store.Data, 'T')
			store.Data = appendClock(store.Data, us-floorDiv(us, usPerDay)*usPerDay, 6)
		}
		store.Finish()
	default:
		n.store.(*column.Fixed[int64]).Append(us)
	}
	return true
}

// appendDate appends YYYY-MM-DD of a day since 1970 of the years 1 to 9999.
func appendDate(dst []byte, day int64) []byte {
	day += 719_468 // since 0000-03-01
	era := floorDiv(day, 146_097)
	ofEra := day - era*146_097
	year := (ofEra - ofEra/1460 + ofEra/36_524 - ofEra/146_096) / 365
	ofYear := ofEra - (365*year + year/4 - year/100)
	month := (5*ofYear + 2) / 153
	dayOfMonth := ofYear - (153*month+2)/5 + 1
	year += era * 400
	if month += 3; month > 12 {
		month -= 12
		year++
	}
	return fmt.Appendf(dst, "%04d-%02d-%02d", year, month, dayOfMonth)
}

// appendClock appends HH:MM:SS and the digits behind the second that are not 0; the hour may be more than 23.
func appendClock(dst []byte, v int64, digits int) []byte {
	unit := int64(1)
	for range digits {
		unit *= 10
	}
	if v < 0 {
		dst = append(dst, '-')
	}
	abs := func(v int64) int64 { return max(v, -v) }
	second := abs(v / unit)
	dst = fmt.Appendf(dst, "%02d:%02d:%02d", second/3600, second/60%60, second%60)
	fraction := abs(v % unit)
	if fraction == 0 {
		return dst
	}
	dst = fmt.Appendf(dst, ".%0*d", digits, fraction)
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	return dst
}

func (d *jsonDecoder) fromTimeOfDay(n *node, v int64) bool {
	store := n.store.(*column.Text)
	store.Data = appendClock(store.Data, v, n.wire.scale)
	store.Finish()
	return true
}

// base64Text returns the bytes of the text at i in base64. They are valid until the next call.
func (d *jsonDecoder) base64Text(n *node, b []byte, i int) (data []byte, end int) {
	content, end := d.text(b, i+1)
	if end == failed {
		return nil, failed
	}
	var err error
	d.plainBytes, err = base64.StdEncoding.Strict().AppendDecode(d.plainBytes[:0], content)
	if err != nil {
		return nil, d.fail(freshet.CodeWrongType, i, "found %s, wanted base64 of %s", describe(b[i:end]), n.typeName)
	}
	return d.plainBytes, end
}

// decimal appends the decimal at i, which is text: base64, as a rule.
func (d *jsonDecoder) decimal(n *node, b []byte, i int) int {
	data, end := d.base64Text(n, b, i)
	if end == failed {
		return failed
	}
	if n.plain == kindDecimal && n.scale == n.wire.scale && len(data) <= 16 {
		v := twosComplement(data)
		if v.FitsInPrecision(int32(n.precision)) {
			n.store.(*column.Fixed[decimal128.Num]).Append(v)
			return end
		}
	}
	return d.plainText(n, decimalText(data, n.wire.scale), i, end)
}

// twosComplement returns the number of at most 16 bytes, most significant first.
func twosComplement(data []byte) decimal128.Num {
	var high, low uint64
	if len(data) > 0 && data[0] >= 0x80 {
		high, low = math.MaxUint64, math.MaxUint64
	}
	for _, c := range data {
		high = high<<8 | low>>56
		low = low<<8 | uint64(c)
	}
	return decimal128.New(int64(high), low)
}

// decimalText returns the number with this coefficient and so many digits behind the point.
func decimalText(data []byte, scale int) []byte {
	v := new(big.Int).SetBytes(data)
	if len(data) > 0 && data[0] >= 0x80 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(data))))
	}
	digits := v.Append(nil, 10)
	var sign []byte
	if digits[0] == '-' {
		sign, digits = digits[:1], digits[1:]
	}
	switch {
	case scale < 0 && string(digits) != "0":
		digits = append(digits, slices.Repeat([]byte{'0'}, -scale)...)
	case scale > 0:
		if missing := scale + 1 - len(digits); missing > 0 {
			digits = append(slices.Repeat([]byte{'0'}, missing), digits...)
		}
		digits = slices.Insert(digits, len(digits)-scale, '.')
	}
	return append(slices.Clone(sign), digits...)
}

// mostScale bounds the zeros that a scale stands for.
const mostScale = 20_000

// scaledNumber appends the number of a scale of its own at i.
func (d *jsonDecoder) scaledNumber(n *node, b []byte, i int) int {
	scale, coefficient := -mostScale-1, failed
	end := d.skip(b, i)
	if end == failed {
		return failed
	}
	members(b[i:end], func(key, value []byte) {
		switch string(key) {
		case "scale":
			if v, err := strconv.Atoi(string(value)); err == nil {
				scale = v
			}
		case "value":
			if value[0] == '"' {
				coefficient = cap(b) - cap(value) // where it begins in b
			}
		}
	})
	if scale < -mostScale || scale > mostScale || coefficient == failed {
		return d.fail(freshet.CodeWrongType, i, "found an object, wanted a number: its scale, at most %d, and its value",
			mostScale)
	}
	data, ok := d.base64Text(n, b, coefficient)
	if ok == failed {
		return failed
	}
	return d.plainText(n, decimalText(data, scale), i, end)
}

// mostZeros bounds the bits that a length adds to those that there are.
const mostZeros = 1 << 16

// bits appends the string of bits at i, most significant first.
func (d *jsonDecoder) bits(n *node, b []byte, i int) int {
	data, end := d.base64Text(n, b, i)
	if end == failed {
		return failed
	}
	length := n.wire.length
	if length == 0 {
		length = 8 * len(data)
	}
	if most := 8*len(data) + mostZeros; length > most {
		return d.fail(freshet.CodeTooLarge, i, "found %d bits in %d bytes, wanted at most %d", length, len(data), most)
	}
	d.appended += length // it can be much larger than the payload
	store := n.store.(*column.Text)
	for k := length - 1; k >= 0; k-- {
		bit := byte('0')
		if k/8 < len(data) && data[k/8]>>(k%8)&1 == 1 {
			bit = '1'
		}
		store.Data = append(store.Data, bit)
	}
	store.Finish()
	return end
}

// pairs appends the map that is the array of arrays at i.
func (d *jsonDecoder) pairs(n *node, b []byte, i int) int {
	if !d.open(i) {
		return failed
	}
	more := true
	if i = skipSpace(b, i+1); i < len(b) && b[i] == ']' {
		i, more = i+1, false
	}
	for k := 0; more; k++ {
		if i = d.pair(n, b, i); i == failed {
			return d.inElement(k)
		}
		if i, more = d.more(b, i, ']'); i == failed {
			return failed
		}
	}
	n.store.(*column.Lists).Finish()
	d.close()
	return i
}

// pair appends the key and the value in the array at i.
func (d *jsonDecoder) pair(n *node, b []byte, i int) int {
	if i >= len(b) || b[i] != '[' {
		return d.unexpected(b, i, "an array of a key and a value")
	}
	i = d.value(n.first, b, skipSpace(b, i+1))
	if i == failed {
		return failed
	}
	i, more := d.more(b, i, ']')
	if i == failed {
		return failed
	}
	if !more {
		return d.unexpected(b, i, "a value behind the key")
	}
	if i = d.value(n.second, b, i); i == failed {
		return failed
	}
	next, more := d.more(b, i, ']')
	if next != failed && more {
		return d.unexpected(b, i, "the end of the pair")
	}
	return next
}
