package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/spec"
)

func (c *cli) runCommand() *cobra.Command {
	var flags runFlags
	var set []string
	cmd := &cobra.Command{
		Use:   "run [FILE|DIR…]",
		Short: "Run pipelines from their files",
		Long: `Run the pipelines of files, or of all files of folders, in this process. Without a file: those of the project.

It runs until it is told to stop, unless --until-caught-up, or trigger: once in a file, lets it end by itself. SIGINT and
SIGTERM make it stop reading and commit what was read, within --shutdown-timeout; what could not be committed is read
again the next time. A second one ends it at once. When one of several pipelines fails, the others are stopped in the
same way.

Several processes may run the same file of Kafka topics: they share the partitions. The log of a database goes to one of them: a second
one waits for its slot, 75 seconds, and ends then.`,
		Example: `  freshet run pipelines/orders.yaml
  freshet run shop --until-caught-up                     all pipelines of the project in shop, then end
  freshet run orders.yaml --set target.delta.commit.every=5s
  freshet run orders.yaml --http 127.0.0.1:7070          with /metrics, /livez and /readyz`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			pipelines, err := c.load(args, set)
			if err != nil {
				return err
			}
			return c.runAll(cmd.Context(), pipelines, flags)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringArrayVar(&set, "set", nil, "PATH=VALUE: a value instead of the file's, such as "+
		"target.delta.commit.every=5s")
	return cmd
}

func (c *cli) runAll(ctx context.Context, pipelines []*spec.Pipeline, flags runFlags) error {
	r := c.newRunner(flags)
	defer r.close()
	err := r.run(ctx, pipelines)
	r.summarise()
	return err
}

// load reads pipeline files, each with its project. All faults of all files are found.
func (c *cli) load(args, set []string) ([]*spec.Pipeline, error) {
	files, err := c.pipelineFiles(args)
	if err != nil {
		return nil, err
	}
	var faults []error
	opts := &spec.LoadOptions{}
	for _, s := range set {
		setting, err := spec.ParseSetting(s, "--set")
		if err != nil {
			return nil, err
		}
		opts.Set = append(opts.Set, setting)
	}
	var pipelines []*spec.Pipeline
	projects := map[string]*spec.Project{}
	for _, file := range files {
		dir := filepath.Dir(file)
		project, ok := projects[dir]
		if !ok {
			if project, err = c.openProject(dir, false); err != nil {
				return nil, err
			}
			projects[dir] = project
		}
		p, err := spec.Load(project, file, opts)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		pipelines = append(pipelines, p)
	}
	return pipelines, errors.Join(append(faults, sameApp(pipelines))...)
}

// pipelineFiles are the files that arguments name; without any, those of the project.
func (c *cli) pipelineFiles(args []string) ([]string, error) {
	if len(args) > 0 {
		return spec.Files(args)
	}
	dir := c.project
	if dir == "" {
		var err error
		if dir, err = spec.FindProject(""); err != nil {
			return nil, err
		}
	}
	if dir == "" {
		return nil, usageError("no file is named, and there is no project ("+spec.ProjectFile+") here or above",
			"name a file or folder, or make a project with `freshet init`")
	}
	return spec.Files([]string{dir})
}

// sameApp finds two pipelines that would keep their progress under one name in one table.
func sameApp(pipelines []*spec.Pipeline) error {
	seen := map[string]*spec.Pipeline{}
	var faults []error
	for _, p := range pipelines {
		if p.Target.Delta == nil {
			continue
		}
		key := strings.Join([]string{p.App, p.TargetTable(), p.Project.Dir}, "\x00")
		if other, ok := seen[key]; ok {
			faults = append(faults, usageError(fmt.Sprintf("%s and %s: both write to %s as app %q", other.File,
				p.File, p.TargetTable(), p.App),
				"give them different names"))
		}
		seen[key] = p
	}
	return errors.Join(faults...)
}
