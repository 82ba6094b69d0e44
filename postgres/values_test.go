package postgres

import (
	"slices"
	"sync"
	"testing"

	"github.com/freshet-io/freshet/lake"
)

// A key is never null instead of what it cannot hold, whatever the replica identity; other columns are, and that is told.
func TestStream_ValuesBeyondTheirColumn_KeysRejectedOthersCounted(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.part (id numeric(6, 2), n numeric(6, 2), primary key (id));
create table public.full (id numeric(6, 2), n numeric(6, 2), primary key (id));
alter table public.full replica identity full;`)
		m := newMirror(t, address)
		var mu sync.Mutex
		lossy := map[string]int64{}
		m.options.Observer.Lossy = func(table, column string, n int64) {
			mu.Lock()
			defer mu.Unlock()
			lossy[table+"."+column] += n
		}
		m.catchUp(t)
		for _, table := range []string{"part", "full"} {
			do(t, conn, "insert into public."+table+" values (1, 'nan'), ('nan', 1), (2, 2)")
		}
		m.catchUp(t)
		for _, table := range []string{"public_part", "public_full"} {
			want := []string{"|1|(null)", "|2|2"}
			if got := m.rows(t, table, "id", "n"); !slices.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", table, got, want)
			}
			if n := len(m.rows(t, lake.QuarantineName(table), "code")); n != 1 {
				t.Errorf("%s: got %d rows in quarantine, want that whose key is NaN", table, n)
			}
			if lossy[table+".n"] != 1 || lossy[table+".id"] != 0 {
				t.Errorf("%s: got the counts %v, want one of n", table, lossy)
			}
		}
	})
}

// Two numbers that a double does not tell apart are two keys.
func TestStream_NumericKeyAsDouble_StaysText(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, "create table public.exact (id numeric primary key, n numeric)")
		m := newMirror(t, address)
		m.options.Types.Numeric = NumericDouble
		m.catchUp(t)
		do(t, conn, "insert into public.exact values (1.00000000000000000001, 0.5), (1.00000000000000000002, 0.25)")
		m.catchUp(t)
		want := []string{"|1.00000000000000000001|0.5", "|1.00000000000000000002|0.25"}
		if got := m.rows(t, "public_exact", "id", "n"); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}
