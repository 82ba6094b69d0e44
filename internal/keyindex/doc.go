// Package keyindex keeps, on local disk, where each key of a table lies: a map from key to (data file, row),
// for the keys of one table at one version.
//
// It is a cache and never the truth. It may be deleted at any moment, and whatever is wrong with it is an
// error that says so (ErrNone, ErrForeign, ErrCorrupt), to which the answer is always the same: Create and
// load anew (an open one is closed first). It knows nothing of Delta: who owns it brings it forward, one
// Change a version of the table, and tells by himself that a row which the index names was deleted by a
// deletion vector.
//
// # What it answers
//
// A key is the values of its columns, of any type a Delta column may have but for nested ones. A Hasher turns
// it into a Fingerprint of 128 bits under a random secret of the index, so that two keys of one index never
// meet by chance and nobody can make them meet. A look-up answers with the Position that was given last for
// the key; a position whose file has been removed since, and a deleted key, answer with the zero Position,
// never with an older one. A key that was buried answers with the sequence of its end, and with Tombstone for a
// file.
//
// # What it guarantees
//
// An answer is right or it is an error: every byte that is read of an entry was checked against its checksum
// in the same look-up. A Change is seen whole or not at all, by look-ups and after a crash at any point.
// Look-ups wait for nothing: not for a Change, not for the merges behind it. Memory is bounded whatever the
// number of keys: entries are mapped from files and live in the page cache; the process itself holds the
// filters of the smaller runs (a byte an entry, at most 16 MiB each), the paths of the files, and some MiB of
// a batch under way.
//
// # How it lies on disk
//
//	MANIFEST       table, version, secret, files, runs; replaced whole by a rename, which is what commits
//	00000017.run   entries sorted by fingerprint, immutable; one of each Change, fewer once merged
//	LOCK           held by the process that has it open
//
// # Limits
//
// One process has an index open, and one Change is open at a time. A run holds fewer than 2³² entries, a file
// fewer than 2⁴⁰ rows. A commit writes the paths of all files: it is meant for tables of up to some 100,000
// of them. A merge needs room on the disk for what it writes before what it has read goes.
//
// # Example
//
//	x, err := keyindex.Open(dir, identity)
//	if errors.Is(err, keyindex.ErrRebuild) { // none, of another table, or damaged
//		x, err = keyindex.Create(dir, identity) // at version None: the first change brings the whole table
//	}
//	keys, err := x.Hasher().Append(nil, columns)
//	at := make([]keyindex.Position, len(keys))
//	err = x.Lookup(keys, at, nil)
//
//	c, err := x.Begin(version)
//	c.Remove("part-0.parquet")
//	err = c.Add("part-1.parquet", keys, rows, nil)
//	_, err = c.Commit(ctx)
package keyindex
