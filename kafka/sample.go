package kafka

import (
	"slices"
	"time"

	"github.com/freshet-io/freshet"
)

// sampleBytes bounds what is held of a table until its columns are known.
const sampleBytes = 4 << 20

// hold keeps the job until the columns of its table are known.
func (r *reader) hold(t *table, j *job) {
	r.sampling[t] = true
	with := r.payloads(j)
	if with == 0 {
		// Nothing but tombstones and markers: they only make the lane's job before them longer, and so take no
		// room.
		for _, last := range slices.Backward(t.held) {
			if last.lane == j.lane {
				last.last = j.last
				r.inflight.Add(-j.bytes)
				recycle(j.records)
				return
			}
		}
	}
	if t.records == 0 {
		t.since = j.read
	}
	t.held = append(t.held, j)
	t.records += with
	t.bytes += j.bytes
}

// payloads is the number of the job's records that are not dropped unseen.
func (r *reader) payloads(j *job) int {
	n := 0
	for _, rec := range j.records {
		if !rec.Attrs.IsControl() && (rec.Value != nil || r.o.Tombstones != Skip) {
			n++
		}
	}
	return n
}

// sample begins to infer the columns of tables that hold enough records: as many as are wanted, all there
// are, what came within the time to wait, or, with force, whatever.
func (r *reader) sample(force bool) {
	for t := range r.sampling {
		if t.inferring {
			continue
		}
		r.forget(t)
		if t.records == 0 || t.records == t.tried {
			continue
		}
		enough := force || t.records >= r.o.SampleRecords || t.bytes >= sampleBytes ||
			time.Since(t.since) >= r.o.SampleWait || r.caughtUp(t)
		if enough {
			r.startInference(t)
		}
	}
}

// forget drops what is held of lanes that are no longer ours.
func (r *reader) forget(t *table) {
	t.held = slices.DeleteFunc(t.held, func(j *job) bool {
		if !j.lane.gone.Load() {
			return false
		}
		t.records -= r.payloads(j)
		t.bytes -= j.bytes
		r.inflight.Add(-j.bytes)
		return true
	})
	t.tried = min(t.tried, t.records)
}

// caughtUp reports whether all of the table's lanes were read as far as there is something.
func (r *reader) caughtUp(t *table) bool {
	for _, l := range r.owned(t) {
		if !l.gone.Load() && l.next < l.log.Load() && !l.done() {
			return false
		}
	}
	return true
}

func (r *reader) startInference(t *table) {
	var payloads []freshet.Payload
	for _, j := range t.held {
		for _, rec := range j.records {
			if r.decodes(rec) && len(payloads) < r.o.SampleRecords {
				payloads = append(payloads, freshet.Payload{Key: rec.Key, Value: rec.Value})
			}
		}
	}
	t.inferring, t.tried = true, t.records
	r.wg.Go(func() {
		if _, err := t.infer(r.life, r.Source, payloads); err != nil && r.life.Err() == nil {
			r.fail(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.inferred = append(r.inferred, t)
		r.wakeLocked()
	})
}

// takeInferred settles the tables whose inference has ended.
func (r *reader) takeInferred() {
	r.mu.Lock()
	ended := r.inferred
	r.inferred = nil
	r.mu.Unlock()
	for _, t := range ended {
		r.settle(t)
	}
}

// settle passes on what the table holds, if its columns are known now.
func (r *reader) settle(t *table) {
	t.inferring = false
	if t.columns.Load() == nil {
		r.giveUp(t)
		return
	}
	r.forget(t)
	for _, j := range t.held {
		r.send(j)
	}
	t.held, t.records, t.bytes = nil, 0, 0
	delete(r.sampling, t)
}

// giveUp ends the run when so much is held that tells nothing that more would not help.
func (r *reader) giveUp(t *table) {
	full := t.records >= r.o.SampleRecords || t.bytes >= sampleBytes || r.inflight.Load() >= r.o.FetchMemory/2
	if full || r.o.Bounded && r.caughtUp(t) {
		r.fail(nothingError(t.name, t.records))
	}
}
