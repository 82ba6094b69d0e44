package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/postgres"
	"github.com/freshet-io/freshet/spec"
)

// initFrom are the flags of init that are about a database.
type initFrom struct {
	address string
	schemas []string
	tables  []string
}

func (f *initFrom) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.address, "from", "", "a database to write the pipeline for: postgres://USER@HOST:PORT/DATABASE")
	fs.StringSliceVar(&f.schemas, "schema", nil, "with --from: all tables of this schema, also later ones; may be repeated")
	fs.StringSliceVar(&f.tables, "table", nil, "with --from: this table, as public.orders; may be repeated (default: all)")
}

func (f *initFrom) check() error {
	if f.address == "" && len(f.schemas)+len(f.tables) > 0 {
		return usageError("found --schema or --table without --from", "name the database: --from postgres://USER@HOST:PORT/DATABASE")
	}
	var faults []error
	for _, s := range f.schemas {
		if s == "" || strings.Contains(s, ".") {
			faults = append(faults, usageError("--schema: found "+strconv.Quote(s)+", wanted the name of a schema", ""))
		}
	}
	for _, t := range f.tables {
		if schema, name, ok := strings.Cut(t, "."); !ok || schema == "" || name == "" {
			faults = append(faults, usageError("--table: found "+strconv.Quote(t)+", wanted SCHEMA.TABLE", ""))
		}
	}
	return errors.Join(faults...)
}

// patterns are the tables that the flags choose.
func (f *initFrom) patterns() []string {
	var all []string
	for _, s := range f.schemas {
		all = append(all, s+".*")
	}
	return append(all, f.tables...)
}

// initFrom writes a pipeline for a database. Files of the project that are there stay as they are.
func (c *cli) initFrom(ctx context.Context, dir string, from *initFrom, force bool) error {
	here := dir
	if _, err := os.Stat(filepath.Join(dir, spec.ProjectFile)); err != nil {
		here = ""
	}
	project, err := c.usable(spec.OpenProject(here, "", true))
	if err != nil {
		return err
	}
	d, err := spec.DraftPostgres(ctx, project, from.address, from.patterns())
	if err != nil {
		return err
	}
	name := "pipelines/" + d.Name + ".yaml"
	if err := writeFiles(dir, map[string]string{name: initModeline + d.Text}, force); err != nil {
		return err
	}
	files, err := projectFiles(dir, "")
	if err != nil {
		return err
	}
	for file := range files {
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			delete(files, file)
		}
	}
	if err := writeFiles(dir, files, false); err != nil {
		return err
	}
	c.sayDraft(dir, filepath.Join(dir, filepath.FromSlash(name)), d)
	return nil
}

// sayDraft says what was written, what stands in the way, and what to do next.
func (c *cli) sayDraft(dir, file string, d *spec.Draft) {
	left := 0
	for _, t := range d.Survey.Tables {
		if t.LeftOut != "" {
			left++
		}
	}
	c.say("✓ %s: %s of %s, each mirrored, with a table of its changes", file, plural(len(d.Survey.Tables)-left, "table"), d.Shown)
	if left > 0 {
		c.say("⚠ %s left out; the file tells why", plural(left, "table"))
	}
	s := c.style(c.err)
	for _, f := range d.Survey.Findings {
		if f.Severity != postgres.Notes {
			printFinding(c.err, s, f)
		}
	}
	if d.Secret != "" {
		c.say("  set   %s to the address with its password, which is not in the file", d.Secret)
	}
	c.say("  edit  %s", file)
	c.say("  check freshet check %s", dir)
	c.say("  run   freshet run %s", dir)
}
