package interop_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	pq "github.com/parquet-go/parquet-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

const maskSalt = "0f5f0c1e8e9a4b7c-of-a-test"

// maskOf is the hash of a value, made by other code than ours.
func maskOf(value string) string {
	mac := hmac.New(sha256.New, []byte(maskSalt))
	mac.Write([]byte(value))
	return hex.EncodeToString(mac.Sum(nil))
}

// findClear fails for each file below a folder that has one of the texts: in its bytes, or, of Parquet, in a value once a reader that is not
// ours has unpacked it. It returns how many values it has looked at.
func findClear(t *testing.T, dir string, texts ...string) (values int) {
	t.Helper()
	look := func(file string, b []byte) {
		for _, text := range texts {
			if bytes.Contains(b, []byte(text)) {
				t.Errorf("%s has %q", file, text)
			}
		}
	}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		look(file, b)
		if filepath.Ext(file) != ".parquet" {
			return nil
		}
		f, err := pq.OpenFile(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, g := range f.RowGroups() {
			rows := g.Rows()
			buffer := make([]pq.Row, 64)
			for {
				n, err := rows.ReadRows(buffer)
				for _, row := range buffer[:n] {
					for _, v := range row {
						values++
						look(file, []byte(v.String()))
					}
				}
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
			}
			if err := rows.Close(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// project writes a project of one pipeline and returns its folder.
func maskProject(t *testing.T, pipeline string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"freshet.yaml": "version: 1\nproject: masks\nlake: {root: ./lake}\n", "p.yaml": pipeline} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const maskDDL = `
create table public.people (id int primary key, email varchar(100), pin char(8), born date, note text, kind text);
create table public.visits (id int primary key, who text);
create table public.logins (login text primary key, n int);
insert into public.people select g, 'secret' || g || '@example.org', 'pin' || g, '2000-01-01', 'note-secret' || g, 'k' from generate_series(1, 20) g;
insert into public.people values (100, null, null, null, null, null), (101, 'secret101@example.org', 'pin101', 'infinity', 'note-secret101', 'k');
insert into public.visits select g, 'secret' || g || '@example.org' from generate_series(1, 20) g;
insert into public.logins select 'secret' || g || '@example.org', g from generate_series(1, 50) g`

const maskFile = `pipeline: masks
namespace: l
source:
  postgres: {url: "%s", tables: ["public.*"], beyond: reject, history: {chunk_rows: 7}, memory: 1MiB}
target:
  delta: {table: "l.{table}", mode: mirror, changelog: "l.{table}_log", index_dir: ./index, commit: {every: 50ms}}
  overrides:
    - match: "public.*"
      salt: "${secret:env:SALT}"
      columns: {email: {mask: sha256}, pin: {mask: sha256}, note: {drop: true}, who: {mask: sha256}, login: {mask: sha256}}
    - {match: public.people, partition_by: [kind], properties: {delta.appendOnly: "false"}}
`

// Hashes are the same in all tables, after a restart too, and what was hidden is nowhere: neither in tables and change logs nor in
// quarantine, nor in what is kept of a load.
func TestMasks_OfADatabase_NoValueAnywhere(t *testing.T) {
	onPostgres(t, "masks_shop", func(t *testing.T, db *database) {
		db.do(maskDDL)
		dir := maskProject(t, fmt.Sprintf(maskFile, db.url.String()))
		env := []string{"SALT=" + maskSalt}
		file := filepath.Join(dir, "p.yaml")
		command(t, 0, env, "check", file)
		said := command(t, 0, env, "run", file, "--until-caught-up", "--progress", "off", "--log-level", "debug")
		db.do(`update public.people set email = 'secret-new@example.org' where id = 2;
update public.people set kind = 'z' where id = 3;
insert into public.people values (102, 'secret102@example.org', 'pin102', '-infinity', 'note-secret102', 'k');
alter table public.people add phone text; alter table public.people drop note;
insert into public.people values (103, 'secret103@example.org', 'pin103', null, 'k', '1');
delete from public.people where id = 5;
update public.logins set login = 'secret-moved@example.org' where n = 1;
delete from public.logins where n = 2;
update public.logins set n = 1003 where n = 3`)
		said += command(t, 0, env, "run", file, "--until-caught-up", "--progress", "off", "--log-level", "debug")

		read := func(table string, args ...string) string {
			return command(t, 0, nil, append([]string{"table", "read", filepath.Join(dir, "lake", "l", table), "-q"}, args...)...)
		}
		people := read("people")
		for _, want := range []string{maskOf("secret1@example.org"), maskOf("secret-new@example.org"), maskOf("pin1"), `"email":null`,
			maskOf("secret103@example.org")} {
			if !strings.Contains(people, want) {
				t.Errorf("people: found no %s in\n%s", want, people)
			}
		}
		if strings.Contains(people, `"note"`) || strings.Contains(people, maskOf("secret2@example.org")) {
			t.Errorf("people: found the column that is left out, or an email that is gone:\n%s", people)
		}
		if visits := read("visits"); !strings.Contains(visits, maskOf("secret7@example.org")) {
			t.Errorf("visits: found no hash that people have:\n%s", visits)
		}
		logins := read("logins")
		if n := strings.Count(logins, "\n"); n != 49 || !strings.Contains(logins, maskOf("secret-moved@example.org")) ||
			strings.Contains(logins, maskOf("secret1@example.org")) || strings.Contains(logins, maskOf("secret2@example.org")) {
			t.Errorf("logins: found %d rows, wanted 49, by their hashes:\n%s", n, logins)
		}

		said += command(t, 0, env, "quarantine", "list", file, "-o", "json")
		if !strings.Contains(said, "FRE-3005") {
			t.Errorf("no row is in quarantine: %s", said)
		}
		said += maskVerify(t, db, env, file)
		said += command(t, 0, env, "trace", file, "--table", "l.logins", "--key", "secret-moved@example.org")
		if hash := maskOf("secret-moved@example.org")[:50]; !strings.Contains(said, "present     login="+hash) {
			t.Errorf("the trace of a masked key has no %s:\n%s", hash, said)
		}
		if strings.Contains(strings.ReplaceAll(said, "--key secret-moved@example.org", ""), "secret1@") {
			t.Errorf("a value was told: %s", said)
		}
		if n := findClear(t, filepath.Join(dir, "lake"), "secret", "pin1"); n < 500 {
			t.Errorf("looked at %d values, wanted all of the tables", n)
		}
		findClear(t, filepath.Join(dir, "index"), "secret")

		if err := os.WriteFile(file, []byte(strings.Replace(readText(t, file), "beyond: reject", `beyond: "null"`, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		command(t, 0, env, "quarantine", "replay", file, "--table", "l.people")
		if people := read("people"); !strings.Contains(people, maskOf("secret101@example.org")) || !strings.Contains(people, maskOf("pin102")) {
			t.Errorf("people: found no rows out of quarantine, by their hashes:\n%s", people)
		}
		findClear(t, filepath.Join(dir, "lake"), "secret", "pin1")
		maskChanged(t, db, dir, env)
	})
}

// maskVerify compares the tables while the pipeline runs, before and behind a row that somebody changes in the lake.
func maskVerify(t *testing.T, db *database, env []string, file string) string {
	t.Helper()
	run := start(t, env, "run", file, "--progress", "off")
	said := command(t, 0, env, "verify", file)
	if strings.Count(said, "✓") != 3 {
		t.Errorf("got %s, want three tables that equal their source", said)
	}
	table := filepath.Join(filepath.Dir(file), "lake", "l", "logins")
	command(t, 0, nil, "table", "delete", table, "--where", "login = '"+maskOf("secret9@example.org")+"'")
	found := command(t, 4, env, "verify", file, "--table", "l.logins", "--repair")
	if !strings.Contains(found, "missing") || !strings.Contains(found, "resync") {
		t.Errorf("got %s, want the row that is missing, and what mends it", found)
	}
	run.signal(syscall.SIGTERM)
	run.mustEnd(patience)
	command(t, 0, env, "pipeline", "resync", file, "--table", "l.logins", "--yes")
	run = start(t, env, "run", file, "--progress", "off")
	said += command(t, 0, env, "verify", file, "--table", "l.logins")
	run.signal(syscall.SIGTERM)
	run.mustEnd(patience)
	return said
}

// maskChanged masks another column of a table that has its values, which is refused until the table is loaded again.
func maskChanged(t *testing.T, db *database, dir string, env []string) {
	t.Helper()
	file := filepath.Join(dir, "p.yaml")
	text := strings.Replace(readText(t, file), "email: {mask: sha256}", "email: {mask: sha256}, born: {mask: sha256}", 1)
	text = strings.Replace(text, `changelog: "l.{table}_log"`, `changelog: "l.{table}_log2"`, 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	said := command(t, 2, env, "run", file, "--until-caught-up", "--progress", "off", "--take-plan")
	if !strings.Contains(said, "FRE-3023") || !strings.Contains(said, "the column born has the values themselves") {
		t.Errorf("got %s, want an error that names the column", said)
	}
	command(t, 0, env, "pipeline", "resync", file, "--table", "l.people", "--yes")
	command(t, 0, env, "run", file, "--until-caught-up", "--progress", "off", "--take-plan")
	people := command(t, 0, nil, "table", "read", filepath.Join(dir, "lake", "l", "people"), "-q")
	if !strings.Contains(people, maskOf("2000-01-01")) || strings.Contains(people, `"2000-01-01"`) {
		t.Errorf("got %s, want the hashes of dates", people)
	}
}

const maskTopicFile = `pipeline: masks
namespace: l
source:
  kafka: {brokers: ["%s"], topics: [people], metadata: [key], key_as: string}
  schema: {columns: {id: bigint, email: string, age: int, note: string}, new_fields: ignore}
steps:
  - derive: {older: "age + 2147483600"}
target:
  delta: {table: "l.{topic}", mode: upsert, key: [email], index_dir: ./index, commit: {every: 50ms}}
  overrides:
    - {match: people, salt: "${secret:env:SALT}", columns: {email: {mask: sha256}, note: {drop: true}, _key: {mask: sha256}}}
`

// What a topic's records have that is masked is nowhere either: those in quarantine are sealed, and a replay opens them.
func TestMasks_OfATopic_NoValueAnywhere(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	broker := cluster.ListenAddrs()[0]
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(context.Background(), 1, 1, nil, "people"); err != nil {
		t.Fatal(err)
	}
	send := func(values ...string) {
		for _, v := range values {
			r := &kgo.Record{Topic: "people", Key: []byte("secret-key"), Value: []byte(v),
				Headers: []kgo.RecordHeader{{Key: "from", Value: []byte("secret-header")}}}
			if err := client.ProduceSync(context.Background(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	send(`{"id":1,"email":"secret1@example.org","age":1,"note":"secret note"}`,
		`{"id":2,"email":"secret2@example.org","age":"secret-age","note":"n"}`, // of another type
		`{"id":3,"email":"secret3@example.org",`,                               // no JSON
		`{"id":4,"email":"secret4@example.org","age":2000,"note":"secret"}`,    // a step fails on it
		`{"id":5,"email":null,"age":5}`,                                        // a key that is null
		`{"id":6,"email":"secret1@example.org","age":6,"note":"n"}`)            // the key of the first
	dir := maskProject(t, fmt.Sprintf(maskTopicFile, broker))
	env, file := []string{"SALT=" + maskSalt}, filepath.Join(dir, "p.yaml")
	said := command(t, 0, env, "run", file, "--until-caught-up", "--progress", "off", "--log-level", "debug")
	rows := func() string {
		return command(t, 0, nil, "table", "read", filepath.Join(dir, "lake", "l", "people"), "-q")
	}
	if got := rows(); strings.Count(got, "\n") != 1 || !strings.Contains(got, maskOf("secret1@example.org")) ||
		!strings.Contains(got, maskOf("secret-key")) || !strings.Contains(got, `"id":6`) || strings.Contains(got, "note") {
		t.Errorf("got %s, want one row, by the hash of its email", got)
	}
	said += command(t, 0, env, "quarantine", "list", file, "-o", "json")
	if strings.Contains(said, "secret") {
		t.Errorf("a value was told: %s", said)
	}
	if n := strings.Count(said, "sealed with the record"); n < 2 {
		t.Errorf("got %s, want entries that say that they are sealed", said)
	}
	if opened := command(t, 0, env, "quarantine", "show", file, "people[0]@1"); !strings.Contains(opened, "secret2@example.org") ||
		!strings.Contains(opened, "secret-age") {
		t.Errorf("got %s, want the record, opened by the pipeline's salt", opened)
	}
	if findClear(t, dir, "secret1", "secret2", "secret3", "secret4", "secret-", "secret note") == 0 {
		t.Error("looked at no value")
	}

	text := strings.Replace(readText(t, file), "age: int,", "age: string,", 1)
	text = strings.Replace(text, `"age + 2147483600"`, `"TRY_CAST(age AS int)"`, 1)
	text = strings.Replace(text, "{older:", "{age: \"TRY_CAST(age AS int)\", older:", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, 4, env, "quarantine", "replay", file, "--table", "l.people")
	got := strings.Split(strings.TrimSpace(rows()), "\n")
	if len(got) != 3 || !slices.ContainsFunc(got, func(l string) bool { return strings.Contains(l, maskOf("secret4@example.org")) }) {
		t.Errorf("got %s, want the rows of the records that can be taken now", got)
	}
	findClear(t, filepath.Join(dir, "lake"), "secret")
}
