package delta

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/store"
)

// compactedFile is a file of the log that says what the commits of a range of versions say together. Spec: "Log Compaction
// Files".
type compactedFile struct {
	first, last int64 // inclusive
	key         string
}

// logPiece is a commit, or a compacted file in place of several.
type logPiece struct {
	compactedFile
	compacted bool
	data      []byte
}

// logPieces covers the versions from one to another, ascending, with compacted files where there are some, the longest
// first, and commits between.
func logPieces(from, to int64, compacted []compactedFile) []logPiece {
	best := make(map[int64]compactedFile, len(compacted))
	for _, c := range compacted {
		if c.last <= to && c.last > c.first && c.last > best[c.first].last {
			best[c.first] = c
		}
	}
	var pieces []logPiece
	for v := from; v <= to; {
		if c, ok := best[v]; ok {
			pieces = append(pieces, logPiece{compactedFile: c, compacted: true})
			v = c.last + 1
			continue
		}
		pieces = append(pieces, logPiece{compactedFile: compactedFile{v, v, commitKey(v)}})
		v++
	}
	return pieces
}

// piecesBytes bounds, by a guess, what is fetched side by side of the log, and nearBytes where that is only for many small
// pieces: what is read into less memory stays near the processor.
const (
	piecesBytes = 16 << 20
	nearBytes   = 4 << 20
)

// fetchPieces yields the pieces with their texts, fetching a few side by side: fewer where they are large. bytes is what
// they weigh together, as far as it is known. A text is there until the next piece is asked for. A compacted file that
// cannot be read, is damaged or says nothing gives way to its commits; backwards tells in which order these come. A
// missing commit is store.ErrNotFound.
func (t *Table) fetchPieces(ctx context.Context, pieces []logPiece, bytes int64, backwards bool,
) iter.Seq2[logPiece, error] {
	most := int64(piecesBytes)
	if store.Near(t.st) {
		most = nearBytes
	}
	atOnce := int(min(max(most*int64(len(pieces))/max(bytes, 1), 1), commitsAtOnce))
	return func(yield func(logPiece, error) bool) {
		buffers := make([][]byte, atOnce)
		for batch := range slices.Chunk(pieces, atOnce) {
			group, gctx := errgroup.WithContext(ctx)
			for i := range batch {
				group.Go(func() error { return t.fetchPiece(gctx, &batch[i], buffers[i]) })
			}
			if err := group.Wait(); err != nil {
				yield(logPiece{}, err)
				return
			}
			for i := range batch {
				if batch[i].data != nil {
					if !yield(batch[i], nil) {
						return
					}
					buffers[i], batch[i].data = batch[i].data, nil
					continue
				}
				for c, err := range t.fetchCommits(ctx, batch[i].begin(backwards), batch[i].begin(!backwards)) {
					at := compactedFile{c.version, c.version, commitKey(c.version)}
					if !yield(logPiece{compactedFile: at, data: c.data}, err) || err != nil {
						return
					}
				}
			}
		}
	}
}

func (c compactedFile) begin(backwards bool) int64 {
	if backwards {
		return c.last
	}
	return c.first
}

// fetchPiece leaves the data of a compacted file that is no use nil.
func (t *Table) fetchPiece(ctx context.Context, p *logPiece, buffer []byte) error {
	data, err := store.GetInto(ctx, t.st, p.key, buffer)
	switch {
	case p.compacted && ctx.Err() == nil && (err != nil || !wellFormed(data)):
		return nil
	case err != nil:
		return fmt.Errorf("read version %d of the log: %w", p.first, err)
	}
	p.data = data
	if data == nil {
		p.data = []byte{}
	}
	return nil
}

// wellFormed reports whether the file holds actions from its first byte to its last.
func wellFormed(data []byte) bool {
	n := 0
	for _, err := range parseLog("", data, kindState|kindFiles) {
		if err != nil {
			return false
		}
		n++
	}
	return n > 0
}
