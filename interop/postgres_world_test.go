package interop_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// kindOf is a type of columns: how its values are written down, and how they look in a canonical row (readers/README.md).
type kindOf struct {
	sql       string
	value     func(*rand.Rand) string
	canonical string // an SQL expression, with %s for the column
	wider     string // what the type may become: a kind
	large     bool   // values may be kept out of line
}

var kinds = map[string]kindOf{
	"int":     {"int", func(r *rand.Rand) string { return fmt.Sprint(r.IntN(2_000_000) - 1_000_000) }, "%s::text", "bigint", false},
	"bigint":  {"bigint", func(r *rand.Rand) string { return fmt.Sprint(r.Int64() - 1<<62) }, "%s::text", "", false},
	"numeric": {"numeric(8,2)", decimal(999_999, 2), sixDigits, "wide", false},
	"wide":    {"numeric(14,4)", decimal(999_999_999, 4), sixDigits, "", false},
	"boolean": {"boolean", func(r *rand.Rand) string { return fmt.Sprint(r.IntN(2) == 0) }, "%s::text", "", false},
	"double":  {"double precision", func(r *rand.Rand) string { return fmt.Sprint(float64(r.IntN(8000)-4000) / 8) }, "%s::text", "", false},
	"date": {"date", func(r *rand.Rand) string { return fmt.Sprintf("date '2024-01-01' + %d", r.IntN(9000)-4000) },
		`'"' || %s::text || '"'`, "", false},
	"instant": {"timestamptz", func(r *rand.Rand) string {
		return fmt.Sprintf("timestamptz '2024-02-29 12:34:56.789012+02' + %d * interval '1 minute'", r.IntN(1_000_000)-500_000)
	}, `'"' || to_char(%s at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US') || 'Z"'`, "", false},
	"words": {"varchar(20)", func(r *rand.Rand) string { return fmt.Sprintf(`E'w%d\\n"é'`, r.IntN(1000)) }, "to_json(%s)::text", "text", false},
	"text":  {"text", text, "to_json(%s)::text", "", true},
	"bytes": {"bytea", func(r *rand.Rand) string { return "convert_to(" + text(r) + ", 'UTF8')" }, `'"' || translate(encode(%s, 'base64'), E'\n', '') || '"'`, "", true},
	"json": {"jsonb", func(r *rand.Rand) string {
		return fmt.Sprintf(`jsonb_build_object('n', %d, 's', %s)`, r.IntN(99), text(r))
	}, "to_json(%s::text)::text", "", true},
	"strings": {"text[]", func(r *rand.Rand) string { return fmt.Sprintf("array[%s, null, 'null', '']", text(r)) }, "to_json(%s)::text", "", true},
	"uuid": {"uuid", func(r *rand.Rand) string { return fmt.Sprintf("'%08x-0000-4000-8000-000000000000'", r.Uint32()) },
		"to_json(%s)::text", "", false},
}

const sixDigits = `'"' || %s::numeric(38,6)::text || '"'`

func decimal(most, scale int) func(*rand.Rand) string {
	return func(r *rand.Rand) string { return fmt.Sprintf("%d::numeric / 1%0*d", r.IntN(2*most)-most, scale, 0) }
}

// text is short, or too long to be kept in its row.
func text(r *rand.Rand) string {
	if r.IntN(3) > 0 {
		return fmt.Sprintf("'short %d'", r.IntN(1000))
	}
	return fmt.Sprintf("repeat(md5('%d'), %d)", r.IntN(1000), 80+r.IntN(200))
}

// relation is a table of a world.
type relation struct {
	name     string
	key      []string // of the types that keyTypes has
	identity string   // default, full or index: one over the column code, which tells rows apart
	parts    int      // partitions that it is made with, of the four that the first column of its key needs; 0: none
	loose    bool     // it has no key: the columns of key are like others, and rows may be alike

	mu      sync.Mutex
	columns []column // behind the key
	made    int      // columns, ever
}

type column struct{ name, kind string }

// keyTypes are how a number becomes a value of a key, and that value a canonical text.
var keyTypes = map[string]struct{ sql, value, canonical string }{
	"bigint": {"bigint", "%d", "%s::text"},
	"text":   {`text collate "C"`, "'k%05d'", "to_json(%s)::text"},
	"icu":    {`text`, "'Ä%05d'", "to_json(%s)::text"},
	"uuid":   {"uuid", "lpad(abs(%d)::text, 32, '0')::uuid", "to_json(%s)::text"},
	"list":   {"int", "%d", "%s::text"},
}

// keys are how many numbers keys are made of.
const keys = 60

// world is a random schema, and what happens in it.
type world struct {
	t       *testing.T
	address string
	random  *rand.Rand

	mu        sync.Mutex
	relations []*relation
}

// newWorld makes tables that have rows in the database at the address.
func newWorld(t *testing.T, address string, random *rand.Rand) *world {
	t.Helper()
	w := &world{t: t, address: address, random: random}
	db := dialPostgres(t, address)
	db.do("create schema parts")
	for range 3 + random.IntN(3) {
		r := w.invent(random)
		db.do(r.ddl(random))
		w.relations = append(w.relations, r)
	}
	return w
}

// mostRelations is how many tables there are at most.
const mostRelations = 8

// invent thinks of one more table; nil: there are enough.
func (w *world) invent(random *rand.Rand) *relation {
	w.mu.Lock()
	r := &relation{name: fmt.Sprintf("t%d", len(w.relations))}
	enough := len(w.relations) >= mostRelations
	w.mu.Unlock()
	if enough {
		return nil
	}
	r.key = [][]string{{"bigint"}, {"text"}, {"icu"}, {"uuid"}, {"bigint", "text"}, {"list", "uuid"}, {"list", "bigint"}}[random.IntN(7)]
	r.identity = []string{"default", "default", "full", "index"}[random.IntN(4)]
	if r.key[0] == "list" {
		r.parts, r.identity = 3, "default"
	}
	if random.IntN(4) == 0 {
		r.loose, r.identity = true, "full"
	}
	for range 2 + random.IntN(4) {
		r.columns = append(r.columns, r.column(random))
	}
	r.columns = append(r.columns, column{r.next(), "int"}, column{r.next(), "text"})
	return r
}

func (r *relation) next() string {
	r.made++
	return fmt.Sprintf("c%d", r.made)
}

// column is a new one of a random type.
func (r *relation) column(random *rand.Rand) column {
	names := slices.Sorted(maps.Keys(kinds))
	return column{r.next(), names[random.IntN(len(names))]}
}

// ddl makes the table, with rows.
func (r *relation) ddl(random *rand.Rand) string {
	var b strings.Builder
	fmt.Fprintf(&b, "create table public.%s (", r.name)
	for i, kind := range r.key {
		fmt.Fprintf(&b, "k%d %s, ", i, keyTypes[kind].sql)
	}
	if r.identity == "index" {
		b.WriteString("code text not null unique, ")
	}
	for _, c := range r.columns {
		fmt.Fprintf(&b, "%s %s, ", c.name, kinds[c.kind].sql)
	}
	if r.loose {
		b.WriteString("loose boolean)")
	} else {
		fmt.Fprintf(&b, "primary key (%s))", strings.Join(r.keyNames(), ", "))
	}
	if r.parts > 0 {
		b.WriteString(" partition by list (k0)")
	}
	b.WriteString(";\n")
	for part := range r.parts {
		fmt.Fprintf(&b, "create table parts.%s_%d partition of public.%[1]s for values in (%[2]d);\n", r.name, part)
		if r.loose {
			fmt.Fprintf(&b, "alter table parts.%s_%d replica identity full;\n", r.name, part)
		}
	}
	for _, c := range r.columns {
		if kinds[c.kind].large && random.IntN(2) == 0 && r.parts == 0 {
			fmt.Fprintf(&b, "alter table public.%s alter %s set storage external;\n", r.name, c.name)
		}
	}
	switch r.identity {
	case "full":
		fmt.Fprintf(&b, "alter table public.%s replica identity full;\n", r.name)
	case "index":
		fmt.Fprintf(&b, "alter table public.%s replica identity using index %[1]s_code_key;\n", r.name)
	}
	for n := range keys {
		if n%3 > 0 && (r.parts == 0 || n%4 < r.parts) {
			b.WriteString(r.insert(random, n) + ";\n")
		}
	}
	return b.String()
}

// keyNames are the columns of the primary key.
func (r *relation) keyNames() (names []string) {
	for i := range r.key {
		names = append(names, fmt.Sprintf("k%d", i))
	}
	return names
}

// identifies are the columns by which a mirror of the table tells rows apart.
func (r *relation) identifies() []string {
	switch {
	case r.loose:
		return []string{}
	case r.identity == "index":
		return []string{"code"}
	}
	return r.keyNames()
}

// values are those of the key of this number.
func (r *relation) values(n int) (values []string) {
	for i, kind := range r.key {
		of := n
		if i == 0 && len(r.key) > 1 {
			of = n % 4
		}
		values = append(values, fmt.Sprintf(keyTypes[kind].value, of))
	}
	return values
}

// is is the row with the key of this number.
func (r *relation) is(n int) string {
	var all []string
	for i, v := range r.values(n) {
		all = append(all, fmt.Sprintf("k%d = %s", i, v))
	}
	return strings.Join(all, " and ")
}

// become gives a row the key of this number.
func (r *relation) become(n int) string {
	return strings.ReplaceAll(r.is(n), " and ", ", ")
}

// shape are the columns as they are now.
func (r *relation) shape() []column {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.columns)
}

// insert inserts a row, or gives the one that is there other values.
func (r *relation) insert(random *rand.Rand, n int) string {
	names, values := r.keyNames(), r.values(n)
	if r.identity == "index" {
		names, values = append(names, "code"), append(values, fmt.Sprintf("'of %d-%d'", n, random.IntN(1<<30)))
	}
	var sets []string
	for _, c := range r.shape() {
		names, values = append(names, c.name), append(values, oneOf(random, c.kind))
		if random.IntN(2) == 0 {
			sets = append(sets, c.name+" = excluded."+c.name)
		}
	}
	if r.loose {
		return fmt.Sprintf("insert into public.%s (%s) select %s from generate_series(1, %d)", r.name, strings.Join(names, ", "),
			strings.Join(values, ", "), 1+max(0, random.IntN(8)-5))
	}
	conflict := "nothing"
	if len(sets) > 0 {
		conflict = "update set " + strings.Join(sets, ", ")
	}
	return fmt.Sprintf("insert into public.%s (%s) values (%s) on conflict (%s) do %s", r.name, strings.Join(names, ", "),
		strings.Join(values, ", "), strings.Join(r.keyNames(), ", "), conflict)
}

// oneOf is a value of this kind, now and then null.
func oneOf(random *rand.Rand, kind string) string {
	if random.IntN(6) == 0 {
		return "null"
	}
	return kinds[kind].value(random)
}

// set changes one column that is not of a key.
func (r *relation) set(random *rand.Rand) string {
	columns := r.shape()
	c := columns[random.IntN(len(columns))]
	return c.name + " = " + oneOf(random, c.kind)
}

// canonical selects the rows of the table as canonical text, and its columns, both sorted.
func (r *relation) canonical() (sql string, columns []string) {
	of := map[string]string{}
	for i, kind := range r.key {
		of[fmt.Sprintf("k%d", i)] = keyTypes[kind].canonical
	}
	if r.identity == "index" {
		of["code"] = keyTypes["text"].canonical
	}
	for _, c := range r.shape() {
		of[c.name] = kinds[c.kind].canonical
	}
	var cells []string
	columns = slices.Sorted(maps.Keys(of))
	for _, name := range columns {
		cells = append(cells, fmt.Sprintf(`'"%s":' || coalesce(%s, 'null')`, name, fmt.Sprintf(of[name], name)))
	}
	return fmt.Sprintf(`set timezone = 'UTC'; select '{' || %s || '}' from public.%s`, strings.Join(cells, " || ',' || "), r.name), columns
}

// anyOf is one of the tables.
func (w *world) anyOf(random *rand.Rand) *relation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.relations[random.IntN(len(w.relations))]
}

// live has several connections change everything at once until stop is called, which returns how many transactions were committed.
func (w *world) live() (stop func() int) {
	ctx, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := 0
	for range 3 {
		l := &life{w: w, random: rand.New(rand.NewPCG(w.random.Uint64(), 1))}
		wg.Go(func() {
			l.run(ctx)
			mu.Lock()
			defer mu.Unlock()
			total += l.committed
		})
	}
	stop = sync.OnceValue(func() int {
		end()
		wg.Wait()
		return total
	})
	w.t.Cleanup(func() { stop() })
	return stop
}

// life is one connection that changes things.
type life struct {
	w         *world
	random    *rand.Rand
	conn      *pgconn.PgConn
	committed int
}

func (l *life) run(ctx context.Context) {
	for ctx.Err() == nil {
		if l.conn == nil || l.conn.IsClosed() {
			var err error
			if l.conn, err = pgconn.Connect(ctx, l.w.address); err != nil {
				pause(50*time.Millisecond, ctx.Done()) // the server is away
				continue
			}
		}
		l.transaction()
		pause(2*time.Millisecond, ctx.Done())
	}
	if l.conn != nil {
		_ = l.conn.Close(context.Background())
	}
}

// do runs statements, which may fail, and reports whether they did not.
func (l *life) do(sql string) bool {
	_, err := l.conn.Exec(context.Background(), sql).ReadAll()
	return err == nil
}

func (l *life) transaction() {
	r := l.w.anyOf(l.random)
	switch l.random.IntN(40) {
	case 0, 1, 2: // changes of tables are by themselves: see docs/postgres.md on "could not map filenode"
		l.reshape(r)
		return
	case 3:
		l.do("truncate public." + r.name)
		return
	case 4:
		l.found()
		return
	case 5:
		l.attach(r)
		return
	}
	l.do("begin")
	for range 1 + l.random.IntN(5) {
		r := l.w.anyOf(l.random)
		if l.random.IntN(3) > 0 {
			l.do(l.statement(r))
			continue
		}
		l.do("savepoint a; " + l.statement(r))
		l.do("savepoint b; " + l.statement(r))
		l.do([]string{"rollback to a", "rollback to b", "release a", l.statement(r)}[l.random.IntN(4)])
	}
	if l.do([]string{"commit", "commit", "commit", "commit", "rollback"}[l.random.IntN(5)]) {
		l.committed++
	}
}

// statement changes rows of the table.
func (l *life) statement(r *relation) string {
	n, other := l.random.IntN(keys), l.random.IntN(keys)
	update := func(sets, where string) string {
		return fmt.Sprintf("update public.%s set %s where %s", r.name, sets, where)
	}
	switch l.random.IntN(10) {
	case 0, 1, 2:
		return r.insert(l.random, n)
	case 3, 4:
		return update(r.set(l.random), r.is(n))
	case 5:
		return update(r.set(l.random), "true")
	case 6:
		if r.loose { // one of those that are alike
			return fmt.Sprintf("delete from public.%[1]s where (tableoid, ctid) in (select tableoid, ctid from public.%[1]s where %[2]s limit 1)",
				r.name, r.is(n))
		}
		return fmt.Sprintf("delete from public.%s where %s", r.name, r.is(n))
	case 7: // two rows change places
		away := 1_000_000 + n
		return strings.Join([]string{update(r.become(away), r.is(n)), update(r.become(n), r.is(other)), update(r.become(other), r.is(away))}, "; ")
	case 8:
		if r.identity == "index" {
			return update(fmt.Sprintf("code = 'new %d-%d'", n, l.random.IntN(1<<30)), r.is(n))
		}
		return update(r.become(other)+", "+r.set(l.random), r.is(n))
	}
	var all []string // a large transaction, which the server sends in parts
	for i := range 200 {
		all = append(all, r.insert(l.random, 1000+i%keys))
	}
	return strings.Join(append(all, fmt.Sprintf("delete from public.%s where %s", r.name, r.is(1000+n))), "; ")
}

// reshape adds a column to the table, drops one, or gives one a wider type. What it became is noted only then: meanwhile other
// connections may hold what this one waits for.
func (l *life) reshape(r *relation) {
	columns := r.shape()
	c := columns[l.random.IntN(len(columns))]
	alter := "alter table public." + r.name
	switch wider := kinds[c.kind].wider; {
	case wider != "" && l.random.IntN(2) == 0:
		if l.do(fmt.Sprintf("%s alter %s type %s", alter, c.name, kinds[wider].sql)) {
			r.became(c.name, wider)
		}
	case len(columns) > 3 && l.random.IntN(2) == 0:
		if l.do(alter + " drop " + c.name) {
			r.became(c.name, "")
		}
	default:
		r.mu.Lock()
		added := r.column(l.random)
		r.mu.Unlock()
		if l.do(fmt.Sprintf("%s add %s %s", alter, added.name, kinds[added.kind].sql)) {
			r.became(added.name, added.kind)
		}
	}
}

// became notes the kind of a column, new or not; "": it is gone.
func (r *relation) became(name, kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.columns = slices.DeleteFunc(r.columns, func(c column) bool { return c.name == name })
	if kind != "" {
		r.columns = append(r.columns, column{name, kind})
	}
}

// attach gives a table the partition that it lacks, made as a table by itself.
func (l *life) attach(r *relation) {
	if r.parts > 0 {
		identity := ""
		if r.loose {
			identity = fmt.Sprintf("alter table parts.%s_%d replica identity full; ", r.name, r.parts)
		}
		l.do(fmt.Sprintf("begin; create table parts.%[1]s_%[2]d (like public.%[1]s including all); "+identity+
			"alter table public.%[1]s attach partition parts.%[1]s_%[2]d for values in (%[2]d); commit", r.name, r.parts))
		l.do("rollback")
	}
}

// found makes a table.
func (l *life) found() {
	r := l.w.invent(l.random)
	if r == nil || !l.do("begin; "+r.ddl(l.random)+"commit") {
		l.do("rollback")
		return
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.w.relations = append(l.w.relations, r)
}
