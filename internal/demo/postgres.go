package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	freshet "github.com/freshet-io/freshet"
)

// oldestPostgres is the first version of which a table's log can be read.
const oldestPostgres = 12

// Postgres is a PostgreSQL server that lives as long as the process, with data of its own that go with it.
type Postgres struct {
	Version string // "15.18"
	Bin     string // the folder of its programs
	Address string // of its database postgres; nobody is asked for a password

	dir  string
	cmd  *exec.Cmd
	done chan struct{}
}

// FindPostgres returns the folder of the newest PostgreSQL server's programs on this machine: in bin, or, where that is "", on the path
// and in the usual places. Errors: CodeUnavailable, with how to get one.
func FindPostgres(bin string) (folder, version string, err error) {
	folders := []string{bin}
	if bin == "" {
		folders = postgresFolders()
	}
	best := 0
	for _, dir := range folders {
		text, major := postgresVersion(dir)
		if major > best && major >= oldestPostgres {
			folder, version, best = dir, text, major
		}
	}
	if best > 0 {
		return folder, version, nil
	}
	return "", "", &freshet.Error{Code: freshet.CodeUnavailable, Class: freshet.ClassEnvironment,
		Place: strings.Join(folders, string(os.PathListSeparator)),
		Msg:   fmt.Sprintf("found no PostgreSQL server of version %d or later, with the programs postgres and initdb", oldestPostgres),
		Fix: "install one (apt install postgresql; dnf install postgresql-server; brew install postgresql), or name its folder with --bin; for a " +
			"server that runs already: freshet init shop --from postgres://USER@HOST/DATABASE"}
}

// postgresFolders are where the programs may be.
func postgresFolders() []string {
	var all []string
	if path, err := exec.LookPath("postgres"); err == nil {
		all = append(all, filepath.Dir(path))
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin", "/usr/local/opt/postgresql*/bin",
		"/opt/homebrew/opt/postgresql*/bin", "/Applications/Postgres.app/Contents/Versions/*/bin", `C:\Program Files\PostgreSQL\*\bin`} {
		found, _ := filepath.Glob(pattern) // the patterns are good
		all = append(all, found...)
	}
	return all
}

// postgresVersion is what the server in the folder says it is; 0: there is none, or not all of it.
func postgresVersion(dir string) (text string, major int) {
	if _, err := os.Stat(program(dir, "initdb")); err != nil {
		return "", 0
	}
	out, err := exec.Command(program(dir, "postgres"), "--version").Output()
	if err != nil {
		return "", 0
	}
	for _, word := range strings.Fields(string(out)) {
		if n, err := strconv.Atoi(strings.SplitN(word, ".", 2)[0]); err == nil {
			return word, n
		}
	}
	return "", 0
}

func program(dir, name string) string {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(dir, name)
}

// StartPostgres starts the server that FindPostgres finds, on a free port of this machine alone, ready for logical replication. Stop it.
// Until it answers, ready is asked.
func StartPostgres(ctx context.Context, bin string, ready func(ctx context.Context, address string) error) (_ *Postgres, err error) {
	p := &Postgres{done: make(chan struct{})}
	if p.Bin, p.Version, err = FindPostgres(bin); err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp("", "freshet-postgres-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.Stop()
			err = &freshet.Error{Code: freshet.CodeUnavailable, Class: freshet.ClassEnvironment, Place: p.Bin, Err: err,
				Msg: "the PostgreSQL server does not start", Fix: "name another one with --bin"}
		}
	}()
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p.Address = fmt.Sprintf("postgres://freshet@127.0.0.1:%d/postgres", port)
	data := filepath.Join(p.dir, "data")
	if err := p.run(ctx, "initdb", "-D", data, "-U", "freshet", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"); err != nil {
		return nil, err
	}
	if err := p.serve(data, port); err != nil {
		return nil, err
	}
	return p, p.await(ctx, ready)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// run runs one of the server's programs to its end.
func (p *Postgres) run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, program(p.Bin, name), args...)
	if err := unprivileged(cmd, p.dir); err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}

func (p *Postgres) serve(data string, port int) error {
	args := []string{"-D", data}
	for _, setting := range []string{"listen_addresses=127.0.0.1", fmt.Sprint("port=", port), "unix_socket_directories=", "wal_level=logical",
		"fsync=off", "max_wal_size=256MB"} {
		args = append(args, "-c", setting)
	}
	p.cmd = exec.Command(program(p.Bin, "postgres"), args...)
	if err := unprivileged(p.cmd, p.dir); err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return err
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ended says nothing: await finds that it has
	}()
	return nil
}

// startPatience is how long a server may take to answer.
const startPatience = 30 * time.Second

func (p *Postgres) await(ctx context.Context, ready func(ctx context.Context, address string) error) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := ready(ctx, p.Address)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return errors.New("it has ended")
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}

// Stop ends the server and deletes its data.
func (p *Postgres) Stop() {
	if p.cmd != nil {
		if p.cmd.Process.Signal(os.Interrupt) != nil { // a fast shutdown; Windows has no such signal
			_ = p.cmd.Process.Kill()
		}
		<-p.done
	}
	_ = os.RemoveAll(p.dir)
}

// ShopTables are the tables of Shop.
func ShopTables() []string { return slices.Clone(shopTables) }

var shopTables = []string{"articles", "customers", "lines", "orders"}

// Shop is SQL that makes a small shop: tables with keys of one and two columns, money, times, arrays and JSON.
const Shop = `create schema shop;
create table shop.customers (id int primary key, name text not null, town text, since date, tags text[]);
create table shop.articles (id int primary key, name text not null, price numeric(10,2) not null, details jsonb);
create table shop.orders (id bigint primary key, customer int references shop.customers, placed_at timestamptz not null, state text not null);
create table shop.lines (order_id bigint references shop.orders, line int, article int references shop.articles, pieces int not null,
  primary key (order_id, line));
insert into shop.customers select g, 'Customer ' || g, (array['Basel', 'Bremen', 'Brno'])[1 + g % 3], date '2020-01-01' + g,
  array['t' || g % 5] from generate_series(1, 500) g;
insert into shop.articles select g, 'Article ' || g, g * 1.25, jsonb_build_object('weight', g) from generate_series(1, 50) g;
insert into shop.orders select g, 1 + g % 500, timestamptz '2026-01-01 08:00+00' + g * interval '1 minute',
  (array['new', 'paid', 'sent'])[1 + g % 3] from generate_series(1, 10000) g;
insert into shop.lines select 1 + g % 10000, 1 + g / 10000, 1 + g % 50, 1 + g % 4 from generate_series(0, 29999) g`

// ShopChanges are statements that change it, each told of in the tour.
var ShopChanges = []string{
	"update shop.orders set state = 'sent' where id <= 3",
	"delete from shop.lines where order_id = 2",
	"insert into shop.customers values (501, 'Customer 501', 'Bern', '2026-02-01', null)",
	"alter table shop.articles add column stock int default 10",
	"insert into shop.articles (id, name, price, stock) values (51, 'Article 51', 99.95, 3)",
}
