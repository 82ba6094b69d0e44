package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/spec"
)

const initProject = `# yaml-language-server: $schema=.freshet/project.schema.json
version: 1
project: NAME
lake:
  root: ./lake                     # table ns.name is <root>/ns/name; a folder, or s3://, gs://, az://…
CONNECTIONSdefaults:
  commit: {every: 10s}
  quarantine: {stop_above: 5% per 5m}
environments:
  prod: {lake: {root: "s3://CHANGE-ME/lake"}}
`

const initConnections = `connections:
  events: {kafka: {brokers: ["${KAFKA_BROKERS:-localhost:9092}"]}}
  # With TLS and a login:
  # events:
  #   kafka:
  #     brokers: ["broker:9093"]
  #     tls: true
  #     sasl: {mechanism: SCRAM-SHA-512, username: app, password: "${secret:env:KAFKA_PASSWORD}"}
`

// projectFiles are the files of a project in a folder, but for its pipelines.
func projectFiles(dir, connections string) (map[string]string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		spec.ProjectFile: strings.NewReplacer("NAME", cleanName(filepath.Base(abs)), "CONNECTIONS",
			connections).Replace(initProject),
		".gitignore":                    initIgnore,
		".freshet/project.schema.json":  string(spec.JSONSchema(true)),
		".freshet/pipeline.schema.json": string(spec.JSONSchema(false)),
	}, nil
}

// initModeline tells editors of the schema of pipeline files.
const initModeline = "# yaml-language-server: $schema=../.freshet/pipeline.schema.json\n"

const initPipeline = initModeline + `pipeline: clicks
namespace: bronze
trigger: continuous                # continuous | once
source:
  kafka:
    connection: events
    topics: [web.clicks]
    start: earliest                # earliest | latest | a time | {offsets: {topic: {0: 42}}}
    format: json                   # json | raw
    metadata: [partition, offset]  # columns _partition and _offset
  schema:
    columns: {event_id: string not null, ts: timestamp not null, user_id: bigint, url: string, props: json}
    new_fields: add                # add | rescue (as JSON into _rescued) | ignore | fail
steps:
  - derive: {event_date: CAST(ts AS DATE), host: "regexp_extract(url, '://([^/]+)', 1)"}
  - filter: "host NOT LIKE '%.internal'"
target:
  delta: {table: bronze.clicks, mode: append, partition_by: [event_date]}
`

const initIgnore = "/lake/\n/.freshet/\n"

func (c *cli) initCommand() *cobra.Command {
	var template string
	var from initFrom
	var force bool
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Make a project to start from",
		Long: `Write the files of a project into DIR (default: the current folder): freshet.yaml, a pipeline in pipelines/, and JSON
Schemas that editors complete and check the files with. Files that exist are left alone unless --force.

--from looks at a PostgreSQL database and writes a pipeline for it, into the project that is in DIR, or a new one: each table
becomes a Delta table that is as the source has it, and a second one that keeps every change. Comments in the file tell which
tables were found, by what key, which are left out and why, which values do not arrive as they are, and the SQL of what is to
be mended on the server. Nothing is changed there: the pipeline makes its slot and its publication when it starts first.
A password is not written down: where the address has one, the file refers to an environment variable. Better is to give
none here, and to have it in PGPASSWORD, or in ~/.pgpass, which freshet run reads as well.`,
		Example: `  freshet init shop
  freshet init shop --from postgres://freshet@db:5432/shop
  freshet init --from "$SHOP_URL" --schema sales --table public.customers
  freshet lint shop`,
		Args: args(0, 1, "at most one folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			if err := errors.Join(oneOf("--template", template, "kafka-to-delta"), exclude(cmd, "template", "from"),
				from.check()); err != nil {
				return err
			}
			if from.address != "" {
				return c.initFrom(cmd.Context(), dir, &from, force)
			}
			files, err := projectFiles(dir, initConnections)
			if err != nil {
				return err
			}
			files["pipelines/clicks.yaml"] = initPipeline
			if err := writeFiles(dir, files, force); err != nil {
				return err
			}
			c.say("✓ a project in %s", dir)
			c.say("  edit  %s", filepath.Join(dir, "pipelines", "clicks.yaml"))
			c.say("  check freshet lint %s", dir)
			c.say("  run   freshet run %s", dir)
			return nil
		},
	}
	cmd.Flags().StringVarP(&template, "template", "t", "kafka-to-delta", "kafka-to-delta")
	cmd.Flags().BoolVar(&force, "force", false, "write over files that exist; with --from over the pipeline's alone")
	from.flags(cmd)
	return cmd
}

// writeFiles writes files below dir; unless force, none if one of them is there already.
func writeFiles(dir string, files map[string]string, force bool) error {
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil && !force {
			return &freshet.Error{Code: freshet.CodeUsage, Class: freshet.ClassInput, Place: path,
				Msg: "the file exists already",
				Fix: "choose another folder, or write over it with --force"}
		}
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(files[name]), 0o644)
		}
		if err != nil {
			e := &freshet.Error{Code: freshet.CodeUsage, Class: freshet.ClassEnvironment, Place: path,
				Msg: "the file cannot be written", Err: err}
			var p *fs.PathError
			if errors.As(err, &p) {
				e.Err = p.Err
			}
			return e
		}
	}
	return nil
}

func (c *cli) schemaCommand() *cobra.Command {
	var kind string
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of pipeline files, for editors",
		Long: `Print the JSON Schema of pipeline files, or of project files, for editors and other checkers. It is made of what
freshet lint reads with, so the two agree.`,
		Example: `  freshet schema > pipeline.schema.json
  freshet schema --kind project > project.schema.json`,
		Args: args(0, 0, "none"),
		RunE: func(*cobra.Command, []string) error {
			if err := oneOf("--kind", kind, "pipeline", "project"); err != nil {
				return err
			}
			_, err := fmt.Fprint(c.out, string(spec.JSONSchema(kind == "project")))
			return err
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "pipeline", "pipeline or project")
	return cmd
}
