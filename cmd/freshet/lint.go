package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/spec"
)

func (c *cli) lintCommand() *cobra.Command {
	var strict bool
	var output string
	cmd := &cobra.Command{
		Use:   "lint [PIPELINE|DIR…]",
		Short: "Find what is wrong with pipeline files, without running them",
		Long: `Check pipeline files and their projects: keys, values, names, and the types of expressions where the columns are given.
Nothing is connected to. Without a file: the files of the project.

Variables that are not set are warnings, since they may be set where the pipeline runs; with --strict warnings make
exit code 4. Errors make exit code 2.`,
		Example: `  freshet lint
  freshet lint pipelines/orders.yaml --strict
  freshet lint -o json | jq '.result[].code'`,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := oneOf("--output", output, "table", "json"); err != nil {
				return err
			}
			files, found, err := c.lint(args)
			if err != nil {
				return err
			}
			if output == "json" {
				err = c.lintJSON(found)
			} else {
				c.lintText(files, found)
			}
			if err != nil {
				return err
			}
			warnings := len(found) - len(found.Errors())
			switch {
			case len(found.Errors()) > 0:
				return &exitError{freshet.ClassInput.ExitCode()}
			case strict && warnings > 0:
				return &exitError{freshet.ClassCheck.ExitCode()}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "warnings make exit code 4")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, or json: {command, ok, summary, result}")
	return cmd
}

// lint checks files and their projects, these in all environments. It returns how many files there were.
func (c *cli) lint(args []string) (int, spec.Findings, error) {
	files, err := c.pipelineFiles(args)
	if err != nil {
		return 0, nil, err
	}
	var found spec.Findings
	seen := map[string]bool{}
	take := func(err error) error {
		var some spec.Findings
		if !errors.As(err, &some) {
			return err
		}
		for _, f := range some {
			if key := f.Error(); !seen[key] {
				seen[key] = true
				found = append(found, f)
			}
		}
		return nil
	}
	projects := map[string]*spec.Project{}
	for _, file := range files {
		dir := c.project
		if dir == "" {
			if dir, err = spec.FindProject(filepath.Dir(file)); err != nil {
				return 0, nil, err
			}
		}
		if projects[dir] == nil {
			if projects[dir], err = lintProject(dir, c.env, take); err != nil {
				return 0, nil, err
			}
		}
		if projects[dir] == nil {
			continue
		}
		_, err := spec.Load(projects[dir], file, &spec.LoadOptions{Lenient: true})
		if err := take(err); err != nil {
			return 0, nil, err
		}
	}
	count := len(files)
	for dir := range projects {
		if _, err := os.Stat(filepath.Join(dir, spec.ProjectFile)); dir != "" && err == nil {
			count++
		}
	}
	return count, found, nil
}

// lintProject checks a project in the environment that is given, or else in all of them.
func lintProject(dir, env string, take func(error) error) (*spec.Project, error) {
	p, err := spec.OpenProject(dir, env, true)
	if err := take(err); err != nil || p == nil {
		return p, err
	}
	if env != "" {
		return p, nil
	}
	for _, name := range p.Environments() {
		_, err := spec.OpenProject(dir, name, true)
		if err := take(err); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (c *cli) lintText(files int, found spec.Findings) {
	for _, f := range found {
		c.printOne(c.out, f)
	}
	errs := len(found.Errors())
	s := c.style(c.out)
	if len(found) == 0 {
		fmt.Fprintf(c.out, "%s %s\n", s.paint(green, "✓"), plural(files, "file"))
		return
	}
	fmt.Fprintf(c.out, "\n%s\n", s.text(fmt.Sprintf("%s · %s · %s", plural(files, "file"), plural(errs, "error"),
		plural(len(found)-errs, "warning"))))
}

func (c *cli) lintJSON(found spec.Findings) error {
	type fault struct {
		Code    freshet.Code `json:"code"`
		Level   string       `json:"level"`
		Place   string       `json:"place"`
		Message string       `json:"message"`
		Fix     string       `json:"fix,omitempty"`
	}
	result := []fault{}
	for _, f := range found {
		level := "error"
		if f.Warning {
			level = "warning"
		}
		result = append(result, fault{f.Fault.Code, level, f.Fault.Place, f.Fault.Msg, f.Fault.Fix})
	}
	errs := len(found.Errors())
	data, err := record{{name: "command", value: "lint"}, {name: "ok", value: errs == 0},
		{name: "summary", value: map[string]int{"errors": errs, "warnings": len(found) - errs}},
		{name: "result", value: result}}.json()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "%s\n", data)
	return err
}
