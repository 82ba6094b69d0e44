package delta

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/freshet-io/freshet/store"
)

// vectorOf is a deletion vector of some rows: magic and bitmap.
func vectorOf(t testing.TB, rows ...uint64) []byte {
	t.Helper()
	data, err := roaring64.BitmapOf(rows...).ToBytes()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.LittleEndian.AppendUint32(nil, dvMagic), data...)
}

func TestParseVector_MoreBucketsThanBytes_IsRefusedWithinTheBound(t *testing.T) {
	data := vectorOf(t, 3)
	binary.LittleEndian.PutUint64(data[4:], 1<<30)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := parseVector(data)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrCorrupt) || took > 64<<20 {
		t.Errorf("got %v and %d bytes of memory, want ErrCorrupt and 64 MiB at the most", err, took)
	}
}

// TestParseVector_NoBitmap_IsRefused has forms of which the library would make bitmaps that panic, or tell rows twice.
func TestParseVector_NoBitmap_IsRefused(t *testing.T) {
	runs := "\x01\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x3b\x30\x00\x00\x01" + "\x00\x00\x01\x00"
	values := "\x01\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x3a\x30\x00\x00\x01\x00\x00\x00" + "\x00\x00\x01\x00" + "\x00\x00\x00\x00"
	for name, c := range map[string]struct {
		data string
		rows uint64 // 0: an error
	}{
		"runs":                    {runs + "\x01\x00" + "\x07\x00\x01\x00", 2},
		"no run":                  {runs + "\x00\x00", 0},
		"run beyond the end":      {runs + "\x01\x00" + "\xff\xff\x01\x00", 0},
		"runs that overlap":       {runs + "\x02\x00" + "\x07\x00\x01\x00" + "\x08\x00\x01\x00", 0},
		"runs that adjoin":        {runs + "\x02\x00" + "\x07\x00\x01\x00" + "\x09\x00\x01\x00", 4},
		"values":                  {values + "\x03\x00\x04\x00", 2},
		"values out of order":     {values + "\x04\x00\x03\x00", 0},
		"fewer values":            {values + "\x03\x00", 0},
		"no buckets":              {"\x00\x00\x00\x00\x00\x00\x00\x00", 0},
		"fewer buckets":           {"\x02" + values[1:] + "\x03\x00\x04\x00", 0},
		"an empty bucket, others": {"\x02\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00\x3a\x30\x00\x00\x00\x00\x00\x00" + "\x01" + values[9:] + "\x03\x00\x04\x00", 2},
		"a bucket twice":          {"\x02" + values[1:] + "\x03\x00\x04\x00" + values[8:] + "\x03\x00\x04\x00", 0},
		"another cookie":          {"\x01\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x39\x30\x00\x00\x00\x00\x00\x00", 0},
	} {
		rows, err := parseVector(append(binary.LittleEndian.AppendUint32(nil, dvMagic), c.data...))
		if name == "no buckets" {
			if err != nil || !rows.IsEmpty() {
				t.Errorf("%s: got %v, %v", name, rows, err)
			}
			continue
		}
		if c.rows == 0 && !errors.Is(err, ErrCorrupt) || c.rows > 0 && (err != nil || rows.GetCardinality() != c.rows) {
			t.Errorf("%s: got %v, %v; want %d rows", name, rows, err, c.rows)
		}
	}
}

// TestVectorName_NotAUUID_IsRefused has names of which the last group is padded, so that they hold fewer bytes.
func TestVectorName_NotAUUID_IsRefused(t *testing.T) {
	for _, name := range []string{"000000000000000###01", "ab000000000000000#0001", "####1", ""} {
		if got, err := vectorName(&DeletionVector{StorageType: "u", PathOrInlineDv: name}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%q: got %q, %v", name, got, err)
		}
	}
}

// FuzzDeletionVector reads hostile vectors, and does with them what scans and commits do: an error, or a bitmap that can
// be counted, walked, united and written.
func FuzzDeletionVector(f *testing.F) {
	f.Add(vectorOf(f))
	f.Add(vectorOf(f, 0, 9))
	runs := roaring64.New()
	runs.AddRange(100, 70_000)
	runs.AddRange(1<<33, 1<<33+10)
	runs.RunOptimize()
	f.Add(vectorOf(f, runs.ToArray()...))
	goldenVectors(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var rows *roaring64.Bitmap
		var err error
		spend(t, len(data), func() { rows, err = parseVector(data) })
		if err != nil {
			return
		}
		_ = rows.GetCardinality()
		for from, it := int64(0), (&fileRows{rows: rows.Iterator()}); from < 200_000; from += 50_000 {
			_ = it.spans(from, from+50_000)
		}
		both := roaring64.Or(rows, roaring64.BitmapOf(1, 70_000))
		both.AndNot(roaring64.BitmapOf(2))
		if _, err := both.ToBytes(); err != nil {
			t.Fatal(err)
		}
	})
}

// goldenVectors adds the vectors of files that other engines wrote, where these are at hand.
func goldenVectors(f *testing.F) {
	root := os.Getenv("FRESHET_TESTDATA")
	if root == "" {
		return
	}
	for _, pattern := range []string{"*deletion_vector*.bin", filepath.Join("*", "*deletion_vector*.bin")} {
		paths, err := filepath.Glob(filepath.Join(root, "delta", "*", "*", "*", "delta", pattern))
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range paths {
			file, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			for at := 1; at+4 < len(file); { // size, data, checksum
				size := int(binary.BigEndian.Uint32(file[at:]))
				if size < 0 || size > len(file)-at-8 {
					break
				}
				if size < 16<<10 {
					f.Add(file[at+4 : at+4+size])
				}
				at += size + 8
			}
		}
	}
}

// FuzzVectorDescriptor reads the vectors of hostile descriptors, over a file that holds one.
func FuzzVectorDescriptor(f *testing.F) {
	f.Add("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", int32(0), int32(40), int64(6))
	f.Add("u", "ab^-aqEH.-t@S}K{vb[*k^", int32(1), int32(36), int64(2))
	f.Add("p", "file:///dv.bin", int32(1), int32(36), int64(2))
	f.Add("u", "000000000000000###01", int32(-1), int32(1<<30), int64(-1))
	st := store.NewMem()
	table, err := Create(context.Background(), st, &CreateOptions{Schema: &Schema{Fields: []Field{nullable("id", Long)}}})
	if err != nil {
		f.Fatal(err)
	}
	snap, err := table.Snapshot(context.Background())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, storage, path string, offset, size int32, rows int64) {
		v := &DeletionVector{StorageType: storage, PathOrInlineDv: path, Offset: &offset, SizeInBytes: size, Cardinality: rows}
		if got, err := loadDeletionVector(context.Background(), snap, v); err == nil && int64(got.GetCardinality()) != rows {
			t.Errorf("%d rows, the descriptor says %d", got.GetCardinality(), rows)
		}
	})
}

// FuzzZ85 decodes hostile text: four bytes for each five characters, but for the last ones, which may stand for fewer.
func FuzzZ85(f *testing.F) {
	for _, text := range []string{"", "HelloWorld", "Hell", "#####", "00000###01", "%nSc0", "%nSc1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := decodeZ85(text)
		if most := len(text) / 5 * 4; err == nil && (len(got) > most || len(got) < most-3) {
			t.Errorf("%q: got %d bytes, want %d or up to three fewer", text, len(got), most)
		}
	})
}
