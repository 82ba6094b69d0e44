package postgres

import (
	"strings"
	"testing"

	"github.com/freshet-io/freshet"
)

func TestParseAddress_Secrets_NeverShown(t *testing.T) {
	for address, want := range map[string]Address{
		"postgres://me@db:5432/shop?sslmode=disable":                     {"shop", "postgres://me@db:5432/shop?sslmode=disable", false},
		"postgres://me:secret@db/shop":                                   {"shop", "postgres://me@db/shop", true},
		"postgresql://me@db/shop?password=secret&sslmode=disable":        {"shop", "postgresql://me@db/shop?sslmode=disable", true},
		"host=db user=me dbname=shop sslmode=disable":                    {"shop", "host=db user=me dbname=shop sslmode=disable", false},
		"host=db port=77 user=me dbname=shop password=secret":            {"shop", "postgres://me@db:77/shop", true},
		"host=db user=me dbname=shop password = 'sec ret'":               {"shop", "postgres://me@db:5432/shop", true},
		"postgres://me:secret@one:1,two:2/shop?target_session_attrs=any": {"shop", "postgres://me@one:1,two:2/shop?target_session_attrs=any", true},
	} {
		got, err := ParseAddress(address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if *got != want || strings.Contains(got.Shown, "sec") {
			t.Errorf("%s: got %+v, want %+v", address, *got, want)
		}
	}
	if _, err := ParseAddress("postgres://me:secret@db:port/shop"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want an error without the secret", err)
	}
}

// A pattern never publishes a table whose updates the server would refuse to applications then; such a table by its name is an error.
func TestOpen_TableWithoutIdentity_NotPublished(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, mirroredDDL)
		do(t, conn, "create table public.bare (a int); create table public.whole_rows (a int); "+
			"alter table public.whole_rows replica identity full; create unlogged table public.scratch (id int primary key)")
		m := newMirror(t, address)
		m.options.Tables, m.options.Keyed = []string{"public.bare", "public.keyed"}, true
		m.fails(t, freshet.CodeBadValue, "not to be published: no primary key")
		m.options.Tables = []string{"public.whole_rows"}
		m.fails(t, freshet.CodeBadValue, "no key, and the mode")
		m.options.Tables = []string{"public.*"}
		m.catchUp(t)
		do(t, conn, "insert into public.bare values (1); update public.bare set a = 2; insert into public.keyed (id) values (1)")
		m.catchUp(t)
		if got := m.rows(t, "public_keyed", "id"); len(got) != 1 {
			t.Errorf("got %v, want the row", got)
		}
		p, err := readPublication(t.Context(), conn, m.options.Slot, serverVersion(conn))
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"public.bare", "public.whole_rows", "public.scratch"} {
			if _, in := p.Tables[table]; in {
				t.Errorf("got %s in the publication, want it left out", table)
			}
		}
	})
}
