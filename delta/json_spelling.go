package delta

import "bytes"

// spelling is how objects of one kind are written: the keys in their order, with what stands between the values before and
// behind. A writer spells all of a log alike, so that this need not be read token by token. The zero value knows nothing.
type spelling [8]struct {
	text     [48]byte
	n        int // bytes of text; 0: not known
	from, to int // of the key within text
}

// spelled is object for objects of which there are many of one kind.
func (r *jsonReader) spelled(as *spelling, field func(key []byte) error) error {
	if r.null() {
		return nil
	}
	more, err := r.begin('{', '}')
	for i := 0; more && err == nil; i++ {
		var key []byte
		if key, more, err = r.spelledKey(as, i); more && err == nil {
			err = field(key)
		}
	}
	return err
}

// spelledKey consumes what stands before the value of the i-th field, or the bracket that closes the object in its place. The
// key is there until it is called again.
func (r *jsonReader) spelledKey(as *spelling, i int) (key []byte, more bool, err error) {
	if i < len(as) && as[i].n > 0 {
		if known := &as[i]; bytes.HasPrefix(r.data[r.pos:], known.text[:known.n]) {
			r.pos += known.n
			return known.text[known.from:known.to], true, nil
		}
	}
	start := r.pos
	if i > 0 {
		if more, err = r.goesOn('}'); !more || err != nil {
			return nil, false, err
		}
	}
	key, plain, err := r.plain()
	end := r.pos - 1 // of a plain key
	if err == nil && !plain {
		key, err = r.unescape(nil)
	}
	if err != nil {
		return nil, false, err
	}
	if err := r.expect(':'); err != nil {
		return nil, false, err
	}
	r.peek()
	if i < len(as) && plain && r.pos-start <= len(as[i].text) {
		known := &as[i]
		known.n = copy(known.text[:], r.data[start:r.pos])
		known.from, known.to = end-len(key)-start, end-start
	}
	return key, true, nil
}
