package keyindex

import "context"

// cursor walks the records of a run in their order and checks each bucket before it enters it. What it is past it forgets, so
// that a walk of a large run does not bring all of it into memory.
type cursor struct {
	run     *run
	age     int // runs that are newer
	bucket  uint64
	records []byte // of the bucket, from the current one on
	fp      Fingerprint
	kept    uint64 // up to where in the body the pages were forgotten
}

// cursorKeeps is how much of a run a cursor is past and has in memory, at most.
const cursorKeeps = 1 << 20

// next goes to the next record; more is false behind the last.
func (c *cursor) next() (more bool, err error) {
	if len(c.records) > 0 {
		c.records = c.records[c.run.width:]
	}
	for len(c.records) == 0 {
		if c.bucket == c.run.buckets() {
			c.forget(uint64(len(c.run.body)))
			return false, nil
		}
		s := c.run.span(c.bucket)
		if s.start >= c.kept+cursorKeeps {
			c.forget(s.start)
		}
		if c.records, err = c.run.check(c.bucket, s); err != nil {
			return false, err
		}
		c.bucket++
	}
	c.fp = Fingerprint{c.run.prefix(c.bucket-1) | c.run.recordHi(c.records), c.run.recordLo(c.records)}
	return true, nil
}

// forget forgets what is before a place in the body.
func (c *cursor) forget(before uint64) {
	if before = min(before, uint64(len(c.run.body))); before > c.kept {
		first := len(c.run.dir)
		forgetMapped(c.run.data, first+int(c.kept), first+int(before))
		c.kept = before
	}
}

func (c *cursor) before(o *cursor) bool {
	if c.fp == o.fp {
		return c.age < o.age
	}
	return c.fp.compare(o.fp) < 0
}

// union walks several runs at once; all holds their cursors, the one that comes first in front.
type union struct{ all []*cursor }

// newUnion starts before the first record of the runs, which go from the newest to the oldest.
func newUnion(runs []*run) (*union, error) {
	u := &union{}
	for age, r := range runs {
		c := &cursor{run: r, age: age}
		more, err := c.next()
		if err != nil {
			return nil, err
		}
		if more {
			u.all = append([]*cursor{c}, u.all...)
			u.settle()
		}
	}
	return u, nil
}

// settle moves the first cursor to where it belongs.
func (u *union) settle() {
	for i := 1; i < len(u.all) && u.all[i].before(u.all[i-1]); i++ {
		u.all[i], u.all[i-1] = u.all[i-1], u.all[i]
	}
}

// advance moves the first cursor on.
func (u *union) advance() error {
	more, err := u.all[0].next()
	if err != nil {
		return err
	}
	if !more {
		u.all = u.all[1:]
		return nil
	}
	u.settle()
	return nil
}

// each passes on the newest record of each fingerprint, in order. seq is valid until take returns.
func (u *union) each(ctx context.Context, take func(fp Fingerprint, at Position, seq []byte) error) error {
	for n := 0; len(u.all) > 0; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		first := u.all[0]
		fp := first.fp
		if err := take(fp, first.run.position(first.records), first.run.sequence(first.records)); err != nil {
			return err
		}
		for len(u.all) > 0 && u.all[0].fp == fp {
			if err := u.advance(); err != nil {
				return err
			}
		}
	}
	return nil
}
