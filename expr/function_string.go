package expr

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
)

// appendRow is a row function that appends its result.
type appendRow func(k *kernel, i int, dst []byte) ([]byte, result)

// plain makes an appendRow of a function of the first argument that is never null.
func plain(f func(s, dst []byte) []byte) appendRow {
	return func(k *kernel, i int, dst []byte) ([]byte, result) { return f(k.args[0].bytes(i), dst), isValue }
}

// Characters are Unicode code points; positions count from 1.
var stringFunctions = map[string]function{
	"lower":       {"s", of(typeString, mapBytes(plain(appendLower)))},
	"upper":       {"s", of(typeString, mapBytes(plain(appendUpper)))},
	"trim":        {"s?s", of(typeString, mapBytes(trimmer(true, true)))},
	"ltrim":       {"s?s", of(typeString, mapBytes(trimmer(true, false)))},
	"rtrim":       {"s?s", of(typeString, mapBytes(trimmer(false, true)))},
	"length":      {"y", of(typeInt32, mapInts(length))},
	"char_length": {"s", of(typeInt32, mapInts(length))},
	"substr":      {"si?i", of(typeString, mapBytes(substring))},
	"substring":   {"si?i", of(typeString, mapBytes(substring))},
	"left":        {"si", of(typeString, mapBytes(left))},
	"right":       {"si", of(typeString, mapBytes(right))},
	"replace":     {"sss", of(typeString, mapBytes(replace))},
	"reverse":     {"s", of(typeString, mapBytes(plain(appendReverse)))},
	"split_part":  {"ssi", of(typeString, mapBytes(splitPart))},
	"lpad":        {"si?s", of(typeString, mapBytes(padder(true)))},
	"rpad":        {"si?s", of(typeString, mapBytes(padder(false)))},
	"starts_with": {"ss", of(typeBool, mapBools(bytesTest(bytes.HasPrefix)))},
	"startswith":  {"ss", of(typeBool, mapBools(bytesTest(bytes.HasPrefix)))},
	"ends_with":   {"ss", of(typeBool, mapBools(bytesTest(bytes.HasSuffix)))},
	"endswith":    {"ss", of(typeBool, mapBools(bytesTest(bytes.HasSuffix)))},
	"contains":    {"ss", of(typeBool, mapBools(bytesTest(bytes.Contains)))},
	"instr":       {"ss", of(typeInt32, mapInts(position))},
	"strpos":      {"ss", of(typeInt32, mapInts(position))},
	"concat":      {"x*", func(c *callSite) (node, error) { return joinNode(c, false), nil }},
	"concat_ws":   {"sx*", func(c *callSite) (node, error) { return joinNode(c, true), nil }},
	"md5":         {"y", of(typeString, mapBytes(plain(appendMD5)))},
	"sha256":      {"y", of(typeString, mapBytes(plain(appendSHA256)))},
	"sha2":        {"y?i", newSHA2},
	"hex":         {"a", newHex},
}

func isASCII(s []byte) bool {
	for _, c := range s {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func appendLower(s, dst []byte) []byte {
	if !isASCII(s) {
		return append(dst, strings.ToLower(string(s))...)
	}
	return appendSwapped(dst, s, 'A')
}

func appendUpper(s, dst []byte) []byte {
	if !isASCII(s) {
		return append(dst, strings.ToUpper(string(s))...)
	}
	return appendSwapped(dst, s, 'a')
}

// appendSwapped changes the case of the 26 letters from first on.
func appendSwapped(dst, s []byte, first byte) []byte {
	before := len(dst)
	dst = append(dst, s...)
	for i, c := range dst[before:] {
		if c-first < 26 {
			dst[before+i] = c ^ ('a' - 'A')
		}
	}
	return dst
}

// trimmer removes spaces, or any of the characters of the second argument.
func trimmer(front, back bool) appendRow {
	return func(k *kernel, i int, dst []byte) ([]byte, result) {
		s, cut := k.args[0].bytes(i), " "
		if len(k.args) > 1 {
			cut = k.args[1].str(i)
		}
		if front {
			s = bytes.TrimLeft(s, cut)
		}
		if back {
			s = bytes.TrimRight(s, cut)
		}
		return append(dst, s...), isValue
	}
}

// length counts characters, of binary bytes.
func length(k *kernel, i int) (int64, result) {
	if kindOf(k.args[0].t) == kindBinary {
		return int64(len(k.args[0].bytes(i))), isValue
	}
	return int64(utf8.RuneCount(k.args[0].bytes(i))), isValue
}

// runeAt is the byte at which the n-th character begins, from 0; the end when there are fewer.
func runeAt(s []byte, n int64) int {
	at := 0
	for ; n > 0 && at < len(s); n-- {
		_, size := utf8.DecodeRune(s[at:])
		at += size
	}
	return at
}

// substring takes from a position, from the end when it is negative; 0 is the same as 1.
func substring(k *kernel, i int, dst []byte) ([]byte, result) {
	s, from := k.args[0].bytes(i), k.args[1].int(i)
	count := int64(len(s))
	if len(k.args) > 2 {
		count = min(k.args[2].int(i), count)
	}
	if from < 0 {
		before := int64(utf8.RuneCount(s)) + from
		if before < 0 {
			count += before
			before = 0
		}
		from = before + 1
	}
	if count <= 0 {
		return dst, isValue
	}
	s = s[runeAt(s, max(from-1, 0)):]
	return append(dst, s[:runeAt(s, count)]...), isValue
}

// left takes the first characters, for a negative number all but the last.
func left(k *kernel, i int, dst []byte) ([]byte, result) {
	s, n := k.args[0].bytes(i), k.args[1].int(i)
	if n < 0 {
		n = max(int64(utf8.RuneCount(s))+n, 0)
	}
	return append(dst, s[:runeAt(s, n)]...), isValue
}

// right takes the last characters, for a negative number all but the first.
func right(k *kernel, i int, dst []byte) ([]byte, result) {
	s, n := k.args[0].bytes(i), k.args[1].int(i)
	skip := -n
	if n >= 0 {
		skip = max(int64(utf8.RuneCount(s))-n, 0)
	}
	return append(dst, s[runeAt(s, skip):]...), isValue
}

// tooLong faults a row whose result would be beyond the limit, before it is made.
func tooLong(k *kernel, i, bytes int) bool {
	if bytes <= maxValueBytes {
		return false
	}
	k.fault(i, "the result has %d bytes, more than %d", bytes, maxValueBytes)
	return true
}

func replace(k *kernel, i int, dst []byte) ([]byte, result) {
	s, old, by := k.args[0].bytes(i), k.args[1].bytes(i), k.args[2].bytes(i)
	if len(old) == 0 {
		return append(dst, s...), isValue
	}
	if len(by) > len(old) && tooLong(k, i, len(s)+bytes.Count(s, old)*(len(by)-len(old))) {
		return dst, isFault
	}
	for {
		at := bytes.Index(s, old)
		if at < 0 {
			return append(dst, s...), isValue
		}
		dst = append(append(dst, s[:at]...), by...)
		s = s[at+len(old):]
	}
}

func appendReverse(s, dst []byte) []byte {
	for len(s) > 0 {
		_, size := utf8.DecodeLastRune(s)
		dst = append(dst, s[len(s)-size:]...)
		s = s[:len(s)-size]
	}
	return dst
}

// splitPart takes the n-th part between delimiters, from the end when n is negative; "" when there is none.
func splitPart(k *kernel, i int, dst []byte) ([]byte, result) {
	s, delimiter, n := k.args[0].bytes(i), k.args[1].bytes(i), k.args[2].int(i)
	switch {
	case n == 0:
		k.fault(i, "split_part has no part 0; the first is 1, the last -1")
		return dst, isFault
	case len(delimiter) == 0:
		if n == 1 || n == -1 {
			dst = append(dst, s...)
		}
		return dst, isValue
	case n < 0:
		n += int64(bytes.Count(s, delimiter)) + 2
	}
	for ; n > 1; n-- {
		at := bytes.Index(s, delimiter)
		if at < 0 {
			return dst, isValue
		}
		s = s[at+len(delimiter):]
	}
	if n < 1 {
		return dst, isValue
	}
	part, _, _ := bytes.Cut(s, delimiter)
	return append(dst, part...), isValue
}

// padder brings strings to a length in characters, cutting longer ones at their end.
func padder(front bool) appendRow {
	return func(k *kernel, i int, dst []byte) ([]byte, result) {
		s, want, fill := k.args[0].bytes(i), max(k.args[1].int(i), 0), []byte(" ")
		if len(k.args) > 2 {
			fill = k.args[2].bytes(i)
		}
		missing := want - int64(utf8.RuneCount(s))
		if missing <= 0 || len(fill) == 0 {
			return append(dst, s[:runeAt(s, want)]...), isValue
		}
		if missing > maxValueBytes || tooLong(k, i, len(s)+int(missing)*len(fill)) {
			tooLong(k, i, maxValueBytes+1)
			return dst, isFault
		}
		if !front {
			dst = append(dst, s...)
		}
		whole := int64(utf8.RuneCount(fill))
		for ; missing > whole; missing -= whole {
			dst = append(dst, fill...)
		}
		dst = append(dst, fill[:runeAt(fill, missing)]...)
		if front {
			dst = append(dst, s...)
		}
		return dst, isValue
	}
}

func bytesTest(f func(s, part []byte) bool) func(k *kernel, i int) (bool, result) {
	return func(k *kernel, i int) (bool, result) { return f(k.args[0].bytes(i), k.args[1].bytes(i)), isValue }
}

// position is where the second string begins in the first, 0 when it does not occur.
func position(k *kernel, i int) (int64, result) {
	s := k.args[0].bytes(i)
	at := bytes.Index(s, k.args[1].bytes(i))
	if at < 0 {
		return 0, isValue
	}
	return int64(utf8.RuneCount(s[:at])) + 1, isValue
}

func appendMD5(s, dst []byte) []byte {
	sum := md5.Sum(s)
	return hex.AppendEncode(dst, sum[:])
}

func appendSHA256(s, dst []byte) []byte {
	sum := sha256.Sum256(s)
	return hex.AppendEncode(dst, sum[:])
}

// newSHA2 is sha2(x, bits); 0 and none mean 256.
func newSHA2(c *callSite) (node, error) {
	bits := int64(0)
	if len(c.args) > 1 {
		var err error
		if bits, err = c.constInt(1, "the number of bits"); err != nil {
			return nil, err
		}
	}
	c.args = c.args[:1]
	switch bits {
	case 0, 256:
		return c.node(typeString, mapBytes(plain(appendSHA256)))
	case 224:
		return c.node(typeString, mapBytes(plain(func(s, dst []byte) []byte {
			sum := sha256.Sum224(s)
			return hex.AppendEncode(dst, sum[:])
		})))
	case 384:
		return c.node(typeString, mapBytes(plain(func(s, dst []byte) []byte {
			sum := sha512.Sum384(s)
			return hex.AppendEncode(dst, sum[:])
		})))
	case 512:
		return c.node(typeString, mapBytes(plain(func(s, dst []byte) []byte {
			sum := sha512.Sum512(s)
			return hex.AppendEncode(dst, sum[:])
		})))
	}
	err := c.typeFault("sha2 has no such number of bits")
	err.Found, err.Wanted = string(appendInt(nil, bits)), "224, 256, 384 or 512"
	return nil, err
}

// newHex gives the hexadecimal digits of bytes, or of an integer.
func newHex(c *callSite) (node, error) {
	switch kindOf(c.args[0].typ()) {
	case kindString, kindBinary:
		return c.node(typeString, mapBytes(plain(func(s, dst []byte) []byte {
			before := len(dst)
			dst = hex.AppendEncode(dst, s)
			copy(dst[before:], bytes.ToUpper(dst[before:]))
			return dst
		})))
	case kindInt:
		return c.node(typeString, mapBytes(func(k *kernel, i int, dst []byte) ([]byte, result) {
			return append(dst, strings.ToUpper(strconv.FormatUint(uint64(k.args[0].int(i)), 16))...), isValue
		}))
	case kindNull:
		return nullConst(c.place, typeString), nil
	}
	err := c.typeFault("argument 1 of hex is of the wrong type")
	err.Found, err.Wanted = typeName(c.args[0].typ()), "string, binary or an integer"
	return nil, err
}

// newConcat is ||: null where any part is.
func newConcat(at place, args []node) (node, error) {
	for i, n := range args {
		text, wanted, err := accept(at, 'x', n)
		if err != nil {
			return nil, err
		}
		if wanted != "" {
			fault := at.typeFault("|| joins strings")
			fault.Found, fault.Wanted = typeName(n.typ()), wanted
			return nil, fault
		}
		args[i] = text
	}
	return fold(&mapNode{t: typeString, at: at, args: args,
		run: mapBytes(func(k *kernel, i int, dst []byte) ([]byte, result) {
			for _, v := range k.args {
				dst = append(dst, v.bytes(i)...)
			}
			return dst, isValue
		})}), nil
}

// joinNodes are concat and concat_ws, which leave nulls out.
type joinNodes struct {
	place
	separator node // nil for concat
	parts     []node
}

func joinNode(c *callSite, separated bool) node {
	if separated {
		return &joinNodes{c.place, c.args[0], c.args[1:]}
	}
	return &joinNodes{c.place, nil, c.args}
}

func (n *joinNodes) typ() arrow.DataType { return typeString }
func (n *joinNodes) nullable() bool      { return n.separator != nil && n.separator.nullable() }

func (n *joinNodes) eval(r *run, active bitset) *vector {
	k := &kernel{r: r, at: n.place, live: active, out: &vector{t: typeString, rows: r.rows, mask: -1}}
	var separator *vector
	if n.separator != nil {
		separator = n.separator.eval(r, active)
		k.out.valid = separator.valid
		k.live = andBits(active, separator.valid)
	}
	for _, p := range n.parts {
		k.args = append(k.args, p.eval(r, active))
	}
	mapBytes(func(k *kernel, i int, dst []byte) ([]byte, result) {
		first := true
		for _, v := range k.args {
			if !v.valid.has(i) {
				continue
			}
			if !first && separator != nil {
				dst = append(dst, separator.bytes(i)...)
			}
			dst, first = append(dst, v.bytes(i)...), false
		}
		return dst, isValue
	})(k)
	return k.out
}
