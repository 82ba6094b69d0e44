package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/spec"
)

func (c *cli) runCommand() *cobra.Command {
	var flags runFlags
	var set []string
	cmd := &cobra.Command{
		Use:   "run [PIPELINE|DIR…]",
		Short: "Run pipelines from their files",
		Long: `Run the pipelines of files, of all files of folders, or of the project by their names, in this process. Without any: those of the
project.

It runs until it is told to stop, unless --until-caught-up, or trigger: once in a file, lets it end by itself. SIGINT and
SIGTERM make it stop reading and commit what was read, within --shutdown-timeout; what could not be committed is read
again the next time. A second one ends it at once. When one of several pipelines fails, the others are stopped in the
same way.

Several processes may run the same file of Kafka topics: they share the partitions. The log of a database goes to one of them: a second
one waits for its slot, 75 seconds, and ends then.`,
		Example: `  freshet run pipelines/orders.yaml
  freshet run orders                                     the project's pipeline of this name
  freshet run ./shop --until-caught-up                   all pipelines of the project in shop, then end
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

// load reads the pipelines of files, of folders, or of names within the project, each with its project. All faults of all files are found.
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
func (c *cli) pipelineFiles(args []string) (files []string, err error) {
	for _, arg := range args {
		found := make([]string, 1)
		if _, fault := os.Stat(arg); fault != nil && pipelineName(arg) {
			found[0], err = c.pipelineCalled(arg)
		} else {
			found, err = spec.Files([]string{arg})
		}
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	if len(args) > 0 {
		return files, nil
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

// pipelineName reports whether an argument can be the name of a pipeline, and is no path.
func pipelineName(arg string) bool {
	return !strings.ContainsAny(arg, `/\:`) && filepath.Ext(arg) != ".yaml" && filepath.Ext(arg) != ".yml"
}

// meansPipeline reports whether an argument that may also be a table is a pipeline: its file, or its name without a namespace.
func (c *cli) meansPipeline(arg string) bool {
	if ext := filepath.Ext(arg); ext == ".yaml" || ext == ".yml" {
		return true
	}
	_, err := os.Stat(arg)
	return err != nil && pipelineName(arg) && !strings.Contains(arg, ".")
}

// pipelineCalled is the file of the project's pipeline of this name, with or without its namespace. Files that are wrong are passed over,
// unless it may be one of them.
func (c *cli) pipelineCalled(name string) (string, error) {
	files, err := c.pipelineFiles(nil)
	if err != nil { // there is no project
		_, err := spec.Files([]string{name})
		return "", err
	}
	var names []string
	var faults []error
	for _, file := range files {
		some, err := c.load([]string{file}, nil)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if p := some[0]; p.FullName() == name || p.Name.Value == name {
			return file, nil
		}
		names = append(names, some[0].FullName())
	}
	if err := errors.Join(faults...); err != nil {
		return "", err
	}
	return "", usageError(fmt.Sprintf("found no file and no pipeline %q", name), "the project has "+strings.Join(names, ", "))
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
