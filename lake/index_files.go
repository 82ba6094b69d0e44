package lake

import (
	"context"
	"fmt"
	"strings"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// fileCacheMax bounds the files that are remembered, of one or two KB each: more than a stream has in use. A file that is
// forgotten costs a look through the snapshot's files when it is wanted again.
const fileCacheMax = 8192

// fileCache remembers data files by their path as the newest known version has them: what our commits added and marked,
// and what was wanted for them. The zero value is empty.
type fileCache struct{ adds map[string]delta.Add }

// put remembers a file. When there are too many, some other one is forgotten.
func (f *fileCache) put(add delta.Add) {
	if f.adds == nil {
		f.adds = map[string]delta.Add{}
	}
	add.Path, add.Stats = strings.Clone(add.Path), strings.Clone(add.Stats) // which may be pieces of a large text
	f.adds[add.Path] = add
	for path := range f.adds {
		if len(f.adds) <= fileCacheMax {
			return
		}
		if path != add.Path {
			delete(f.adds, path)
		}
	}
}

func (f *fileCache) drop(path string) { delete(f.adds, path) }
func (f *fileCache) clear()           { clear(f.adds) }

// find finds files of the index in the snapshot that it shows. Errors: keyindex.ErrCorrupt for one that is not there; of
// the store.
func (r *rowIndex) find(ctx context.Context, snap *delta.Snapshot, ids map[keyindex.FileID]bool) (
	map[keyindex.FileID]delta.Add, error) {
	found := make(map[keyindex.FileID]delta.Add, len(ids))
	missing := map[string]keyindex.FileID{}
	for id := range ids {
		path, _ := r.x.Path(id)
		if add, ok := r.files.adds[path]; ok {
			found[id] = add
		} else {
			missing[path] = id
		}
	}
	if len(missing) == 0 {
		return found, nil
	}
	for add, err := range snap.Files(ctx, &delta.FilesOptions{Stats: true}) {
		if err != nil {
			return nil, err
		}
		id, wanted := missing[add.Path]
		if !wanted {
			continue
		}
		found[id] = *add
		r.files.put(*add)
		delete(missing, add.Path)
		if len(missing) == 0 {
			return found, nil
		}
	}
	for path := range missing {
		return nil, fmt.Errorf("%w: it names a file that the table has not: %q", keyindex.ErrCorrupt, path)
	}
	return found, nil
}
