package postgres

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// tripsColumns is a table of 29 columns of which most are numeric, as taxi trips have them.
const tripsColumns = `id bigint, cab_type_id int, vendor_id int, pickup_datetime timestamp, dropoff_datetime timestamp,
store_and_fwd_flag text, rate_code_id NUM, pickup_longitude NUM, pickup_latitude NUM, dropoff_longitude NUM,
dropoff_latitude NUM, passenger_count NUM, trip_distance NUM, fare_amount NUM, extra NUM, mta_tax NUM, tip_amount NUM,
tolls_amount NUM, ehail_fee NUM, improvement_surcharge NUM, congestion_surcharge NUM, airport_fee NUM,
total_amount NUM, payment_type NUM, trip_type NUM, pickup_nyct2010_gid NUM, dropoff_nyct2010_gid NUM,
pickup_location_id NUM, dropoff_location_id NUM`

// tripsTable is the table with numerics of a precision or without.
func tripsTable(modifier int32) *Table {
	types := map[string]uint32{"bigint": 20, "int": 23, "timestamp": 1114, "text": 25, "NUM": 1700}
	t := &Table{Schema: "public", Name: "trips"}
	for _, c := range strings.Split(tripsColumns, ",") {
		name, of, _ := strings.Cut(strings.TrimSpace(c), " ")
		column := Column{Name: name, Type: types[of], Modifier: -1}
		if of == "NUM" {
			column.Modifier = modifier
		}
		t.Columns = append(t.Columns, column)
	}
	return t
}

// tripsText is rows of the table as COPY writes them, and tripsRow the SQL of one in the server, for the number i.
func tripsText(rows int) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	for i := range rows {
		at := time.Date(2015, 1, 1, 0, 0, i*7, 0, time.UTC)
		fmt.Fprintf(&b, "%d\t1\t%d\t%s\t%s\tN\t1.00\t-73.%02d\t40.%02d\t-73.%02d\t40.%02d\t%d.00", i, i%2+1,
			at.Format("2006-01-02 15:04:05"), at.Add(11*time.Minute).Format("2006-01-02 15:04:05"),
			random.IntN(100), random.IntN(100), random.IntN(100), random.IntN(100), i%6)
		for range 11 {
			fmt.Fprintf(&b, "\t%d.%02d", random.IntN(60), random.IntN(100))
		}
		fmt.Fprintf(&b, "\t1.00\t\\N\t%d.00\t%d.00\t%d.00\t%d.00\n", random.IntN(2000), random.IntN(2000),
			random.IntN(265), random.IntN(265))
	}
	return b.Bytes()
}

// used is the processor time of this process.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCopy_Trips decodes rows of text, without a server: of decimals, of texts and of floats; and writes them to a
// Delta table in memory. It reports rows a second of processor time.
func BenchmarkCopy_Trips(b *testing.B) {
	const count = 100_000
	text := tripsText(count)
	for _, c := range []struct {
		name     string
		modifier int32
		choices  Types
		write    bool
	}{
		{"decode decimal(10,2)", numeric(10, 2), Types{}, false},
		{"decode text", -1, Types{}, false},
		{"decode double", -1, Types{Numeric: NumericDouble}, false},
		{"to Delta decimal(10,2)", numeric(10, 2), Types{}, true},
		{"to Delta text", -1, Types{}, true},
		{"to Delta double", -1, Types{Numeric: NumericDouble}, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			began := used()
			for b.Loop() {
				sink, end := newSink(b, c.write)
				readTrips(b, c.modifier, c.choices, sink, func(w *copyReader) error {
					for rest := text; len(rest) > 0; {
						n := bytes.IndexByte(rest, '\n') + 1 // one message a row, as the server sends them
						if _, err := w.Write(rest[:n]); err != nil {
							return err
						}
						rest = rest[n:]
					}
					return nil
				})
				end()
			}
			b.ReportMetric(float64(count)*float64(b.N)/(used()-began).Seconds(), "rows/cpu-s")
		})
	}
}

// BenchmarkCopy_TripsOfAServer copies a million rows of the first server that POSTGRES_URLS names to a Delta table in memory.
func BenchmarkCopy_TripsOfAServer(b *testing.B) {
	addresses := strings.Fields(os.Getenv("POSTGRES_URLS"))
	if len(addresses) == 0 {
		b.Skip("POSTGRES_URLS names no server")
	}
	conn := connect(b, addresses[0])
	const count = 1_000_000
	values := "i, 1, i % 2, timestamp '2015-01-01' + i * interval '7 s', timestamp '2015-01-01' + i * interval '8 s', 'N'" +
		strings.Repeat(", (i::int8 * 7919 % 6151)::numeric / 100", 23)
	do(b, conn, "drop schema if exists bench cascade; create schema bench; create unlogged table bench.trips ("+
		strings.ReplaceAll(tripsColumns, "NUM", "numeric(10,2)")+"); insert into bench.trips select "+values+
		" from generate_series(1, "+strconv.Itoa(count)+") i")
	b.Cleanup(func() { do(b, connect(b, addresses[0]), "drop schema bench cascade") })
	began := used()
	for b.Loop() {
		sink, end := newSink(b, true)
		readTrips(b, numeric(10, 2), Types{}, sink, func(w *copyReader) error {
			query := selectOf(w.rows.table, "bench.trips", "")
			return copyRows(context.Background(), conn, query, w.rows, w.bytes, w.full, w.reject)
		})
		end()
	}
	b.ReportMetric(float64(count)*float64(b.N)/(used()-began).Seconds(), "rows/cpu-s")
	b.ReportMetric(float64(count)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// readTrips collects the rows that read gives to a reader and hands them to sink.
func readTrips(b *testing.B, modifier int32, choices Types, sink func(arrow.RecordBatch), read func(*copyReader) error) {
	m, table := newTypeMap(choices), tripsTable(modifier)
	schema, err := m.schema(table)
	if err != nil {
		b.Fatal(err)
	}
	r, err := newRows(m, table, schema)
	if err != nil {
		b.Fatal(err)
	}
	full := func() error {
		batch, _ := r.take()
		sink(batch)
		batch.Release()
		return nil
	}
	reject := func(_ []byte, why *freshet.RejectError) error { return why }
	if err := read(&copyReader{rows: r, bytes: 8 << 20, full: full, reject: reject}); err != nil {
		b.Fatal(err)
	}
	if r.len() > 0 {
		_ = full()
	}
}

// newSink takes batches: into a Delta table in memory, or nowhere. end ends it.
func newSink(b *testing.B, write bool) (sink func(arrow.RecordBatch), end func()) {
	if !write {
		return func(arrow.RecordBatch) {}, func() {}
	}
	ctx := context.Background()
	st := store.NewMem()
	var w *delta.Writer
	sink = func(batch arrow.RecordBatch) {
		if w == nil {
			schema, err := delta.SchemaFromArrow(batch.Schema())
			if err != nil {
				b.Fatal(err)
			}
			m := &delta.Metadata{ID: "trips", Provider: "parquet", SchemaString: schema.String()}
			p := &delta.Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"timestampNtz"},
				WriterFeatures: []string{"timestampNtz"}}
			if w, err = delta.NewWriter(st, m, p, nil); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.Write(ctx, batch); err != nil {
			b.Fatal(err)
		}
	}
	return sink, func() {
		if _, err := w.Close(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
