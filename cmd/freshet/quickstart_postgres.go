package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/demo"
	"github.com/freshet-io/freshet/postgres"
	"github.com/freshet-io/freshet/spec"
)

const shopProject = `version: 1
project: shop
lake: {root: ./lake}          # shop.orders is ./lake/shop/orders
`

const shopPipeline = `pipeline: shop
namespace: shop
source:
  postgres:
    # The server of the demo lives while the quickstart runs; for another one set SHOP_URL.
    url: "${SHOP_URL:-%s}"
    tables: ["shop.*"]
target:
  delta:
    table: "shop.{table}"                # each table as it is
    mode: mirror
    changelog: "shop_changes.{table}"    # and every change to it
    commit: {every: 1s}
`

// tour is the quickstart with a database.
type tour struct {
	c    *cli
	dir  string
	bin  string
	stay bool
}

func (c *cli) quickstartPostgres() *cobra.Command {
	t := tour{c: c}
	cmd := &cobra.Command{
		Use:   "postgres",
		Short: "A tour with a PostgreSQL server that is found on this machine",
		Long: `Start a PostgreSQL server of its own, if one is installed on this machine, fill it with a small shop, mirror that into Delta
tables, change rows, and show what became of them. Each step is printed as the command or the SQL that does it.

The server is on a port of this machine alone, its data are in a temporary folder, and both go when the quickstart ends; with --stay that is at Ctrl-C,
and until then the pipeline goes on: change rows yourself and look. DIR is left as a project with its tables.

Where there is no server, it says how to get one.`,
		Example: `  freshet quickstart postgres
  freshet quickstart postgres --dir /tmp/shop --stay
  freshet table read ./quickstart-postgres/lake/shop/orders --limit 5      afterwards`,
		Args: args(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error { return t.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&t.dir, "dir", "./quickstart-postgres", "the folder of the project, which is made")
	f.StringVar(&t.bin, "bin", "", "the folder of the server's programs (default: on the path, or in the usual places)")
	f.BoolVar(&t.stay, "stay", false, "go on until Ctrl-C")
	return cmd
}

func (t *tour) run(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(t.dir, spec.ProjectFile)); !errors.Is(err, os.ErrNotExist) {
		return usageError(fmt.Sprintf("--dir: found a project in %s, wanted a folder that is to be made", t.dir), "name another one, or delete it")
	}
	server, err := demo.StartPostgres(ctx, t.bin, func(ctx context.Context, address string) error {
		return postgres.Execute(ctx, address, "create database shop")
	})
	if err != nil {
		return err
	}
	defer server.Stop()
	address := strings.TrimSuffix(server.Address, "postgres") + "shop"
	t.c.say("PostgreSQL %s of %s, at %s, while this runs", server.Version, server.Bin, address)
	if err := postgres.Execute(ctx, address, demo.Shop); err != nil {
		return err
	}
	t.c.say("It has a shop: %s", strings.Join(demo.ShopTables(), ", "))
	if err := writeFiles(t.dir, map[string]string{spec.ProjectFile: shopProject, "pipelines/shop.yaml": fmt.Sprintf(shopPipeline, address),
		".gitignore": "/lake/\n"}, false); err != nil {
		return err
	}
	if err := t.show(ctx, address); err != nil {
		return err
	}
	return t.compare(ctx, address)
}

// show loads the tables, changes rows, and shows both.
func (t *tour) show(ctx context.Context, address string) error {
	file, lake := filepath.Join(t.dir, "pipelines", "shop.yaml"), filepath.Join(t.dir, "lake")
	orders, changes := filepath.Join(lake, "shop", "orders"), filepath.Join(lake, "shop_changes", "orders")
	follow := []string{"run", file, "--until-caught-up", "--progress", "off", "--log-level", "warn"}
	t.c.say("\nThe rows that are there are loaded:")
	if err := t.do(ctx, follow, []string{"table", "read", orders, "--where", "id <= 3"}); err != nil {
		return err
	}
	t.c.say("\nThen they change, and a table gets a column:")
	for _, sql := range demo.ShopChanges {
		t.c.say("shop=# %s;", sql)
		if err := postgres.Execute(ctx, address, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return t.do(ctx, follow, []string{"table", "read", orders, "--where", "id <= 3"},
		[]string{"table", "read", filepath.Join(lake, "shop", "articles"), "--where", "id >= 50"},
		[]string{"table", "read", changes, "--where", "_change_type <> 'insert'", "--columns", "_change_type,_source_tx,id,state"})
}

// compare has the pipeline go on while its tables are compared with the database, and until Ctrl-C if that is wanted.
func (t *tour) compare(ctx context.Context, address string) error {
	file := filepath.Join(t.dir, "pipelines", "shop.yaml")
	running, stop := context.WithCancel(ctx)
	defer stop()
	t.c.say("\nEvery row is compared, while the pipeline runs:")
	var code int
	var beside sync.WaitGroup
	beside.Go(func() {
		code = execute(running, []string{"run", file, "--progress", "off", "--log-level", "warn"}, t.c.streams)
		stop()
	})
	err := t.do(running, []string{"verify", file})
	if err == nil && t.stay {
		t.c.say("\nIt goes on until Ctrl-C. Change rows, and look:\n  psql %s\n  freshet table read %s --limit 5", address,
			filepath.Join(t.dir, "lake", "shop", "orders"))
		<-running.Done()
	}
	stop()
	beside.Wait()
	if err == nil && code != 0 {
		err = &exitError{code}
	}
	if err == nil {
		t.c.say("\nThe project stays in %s. For a database of yours: freshet init shop --from postgres://USER@HOST/DATABASE", t.dir)
	}
	return err
}

// do runs commands as a person would type them, and shows them.
func (t *tour) do(ctx context.Context, commands ...[]string) error {
	for _, args := range commands {
		words := make([]string, len(args))
		for i, arg := range args {
			if words[i] = arg; strings.ContainsAny(arg, " <>'") {
				words[i] = `"` + arg + `"`
			}
		}
		t.c.say("$ freshet %s", strings.Join(words, " "))
		if code := execute(ctx, args, t.c.streams); code != 0 {
			return &exitError{code}
		}
	}
	return nil
}
