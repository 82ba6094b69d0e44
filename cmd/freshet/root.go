package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/spec"
)

// streams are the process's standard streams: data goes to out, everything else to err.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// cli is what all commands share: the streams and the global flags.
type cli struct {
	streams
	project   string
	env       string
	quiet     bool
	verbose   bool
	logFormat string
	logLevel  string
	color     string
}

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, args []string, s streams) int {
	c := &cli{streams: s}
	root := c.root()
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var silent *exitError
	if errors.As(err, &silent) {
		return silent.code
	}
	c.printError(usage(cmd, err))
	return exitCode(err)
}

// exitError ends the command with a code when all has been said.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "freshet",
		Short: "Kafka topics and PostgreSQL databases into Delta tables, exactly once",
		Long: `Freshet moves the records of Kafka topics, and the rows of PostgreSQL databases with every change to them, into Delta Lake
tables, each exactly once, and looks after such tables.

Data goes to standard output; progress, logs and errors go to standard error.

Exit codes: 0 done; 1 failed while working; 2 bad input: usage, files, names, a gap in the origin; 3 environment:
unreachable, refused, full; 4 checks did not pass; 130 and 143 after a second SIGINT or SIGTERM.

Every flag can also be set by a variable: FRESHET_ and its name in capitals, so --log-format by FRESHET_LOG_FORMAT.`,
		Example: `  freshet quickstart                                              a demo with everything in one process
  freshet ingest kafka://localhost:9092/orders ./lake/orders      one topic into one table
  freshet init shop && freshet run shop                           a project of pipeline files
  freshet init shop --from postgres://freshet@db/shop             one that mirrors a database
  freshet table read ./lake/orders --limit 5                      rows of any Delta table`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return c.prepare(cmd) },
		Args: func(cmd *cobra.Command, args []string) error {
			return unknownCommand(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f := root.PersistentFlags()
	f.StringVarP(&c.project, "project", "C", "", "the project's folder (default: the nearest one at or above "+
		"with a freshet.yaml)")
	f.StringVarP(&c.env, "env", "e", "", "the project's environment")
	f.BoolVarP(&c.quiet, "quiet", "q", false, "only problems")
	f.BoolVarP(&c.verbose, "verbose", "v", false, "also what is for looking into problems")
	f.StringVar(&c.logFormat, "log-format", "text", "text or json")
	f.StringVar(&c.logLevel, "log-level", "", "debug, info, warn or error (default: info, warn with -q, debug "+
		"with -v)")
	f.StringVar(&c.color, "color", "auto", "auto, always or never")
	root.AddCommand(
		c.quickstartCommand(), c.ingestCommand(), c.runCommand(), c.lintCommand(), c.checkCommand(), c.initCommand(),
		c.doctorCommand(), c.schemaCommand(), c.statusCommand(), c.pipelineCommand(), c.verifyCommand(), c.traceCommand(),
		c.tableCommand(), c.cutCommand(), c.progressCommand(), c.quarantineCommand(), c.explainCommand(),
		c.completionCommand(root), c.versionCommand(),
	)
	root.SetHelpCommand(&cobra.Command{Hidden: true, Use: "no-help"})
	root.SetFlagErrorFunc(flagError)
	return root
}

// flagError says what is wrong with a flag, and which was meant.
func flagError(cmd *cobra.Command, err error) error {
	fix := cmd.CommandPath() + " --help"
	if name, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := spec.Nearest(name, names); len(near) > 0 {
			fix = "did you mean --" + near[0] + "?"
		}
	}
	return usageError(err.Error(), fix)
}

// prepare takes flags from the environment and checks the global ones.
func (c *cli) prepare(cmd *cobra.Command) error {
	var faults []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := "FRESHET_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := os.LookupEnv(name)
		if !ok || f.Changed || f.Name == "help" {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			faults = append(faults, usageError(fmt.Sprintf("%s: %v", name, err), ""))
		}
	})
	faults = append(faults, oneOf("--log-format", c.logFormat, "text", "json"),
		oneOf("--log-level", c.logLevel, "", "debug", "info", "warn", "error"),
		oneOf("--color", c.color, "auto", "always", "never"))
	return errors.Join(faults...)
}

// oneOf checks a flag with a few values.
func oneOf(flag, value string, values ...string) error {
	for _, v := range values {
		if v == value {
			return nil
		}
	}
	if values[0] == "" {
		values = values[1:]
	}
	return usageError(fmt.Sprintf("%s: found %q, wanted %s", flag, value, strings.Join(values, ", ")), "")
}

// exclude is an error when both flags are given.
func exclude(cmd *cobra.Command, one, other string) error {
	if cmd.Flags().Changed(one) && cmd.Flags().Changed(other) {
		return usageError(fmt.Sprintf("--%s and --%s exclude each other", one, other), "keep one of them")
	}
	return nil
}

func usageError(msg, fix string) error {
	return &freshet.Error{Code: freshet.CodeUsage, Class: freshet.ClassInput, Msg: msg, Fix: fix}
}

// usage gives errors of the command-line parser their code and remedy.
func usage(cmd *cobra.Command, err error) error {
	var known *freshet.Error
	var found spec.Findings
	if errors.As(err, &found) {
		return err
	}
	if errors.As(err, &known) {
		if known.Code == freshet.CodeUsage && known.Fix == "" && known.Place == "" {
			known.Fix = cmd.CommandPath() + " --help"
		}
	}
	return err
}

// args checks the number of arguments.
func args(least, most int, wanted string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) >= least && (most < 0 || len(given) <= most) {
			return nil
		}
		return usageError(fmt.Sprintf("%s: found %s, wanted %s", cmd.CommandPath(), plural(len(given), "argument"),
			wanted),
			cmd.CommandPath()+" --help")
	}
}

// group is the parent of a noun's commands.
func group(use, short, long string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(subs...)
	return cmd
}

func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	fix := cmd.CommandPath() + " --help"
	if near := spec.Nearest(args[0], names); len(near) > 0 {
		fix = "did you mean " + cmd.CommandPath() + " " + near[0] + "?"
	}
	return usageError(fmt.Sprintf("%s: unknown command %q", cmd.CommandPath(), args[0]), fix)
}

// openProject opens the project of -C, or the nearest one at or above dir ("" for the current folder).
func (c *cli) openProject(dir string, lenient bool) (*spec.Project, error) {
	found := c.project
	if found == "" {
		var err error
		if found, err = spec.FindProject(dir); err != nil {
			return nil, err
		}
	}
	return c.usable(spec.OpenProject(found, c.env, lenient))
}

// usable prints warnings and lets the project pass if there is nothing else.
func (c *cli) usable(p *spec.Project, err error) (*spec.Project, error) {
	var found spec.Findings
	if errors.As(err, &found) && len(found.Errors()) == 0 {
		return p, nil
	}
	return p, err
}

// tableArgument is a table as a person names it on the command line: relative paths are so to the current
// folder. A name without a dot, which no table of a lake has, is the folder of that name, if there is one.
func tableArgument(arg string) string {
	path := strings.ContainsAny(arg, `/\`) || arg == "." || arg == ".."
	if !path && !strings.ContainsAny(arg, ".:") {
		info, err := os.Stat(arg)
		path = err == nil && info.IsDir()
	}
	if strings.Contains(arg, "://") || filepath.IsAbs(arg) || !path {
		return arg
	}
	if abs, err := filepath.Abs(arg); err == nil {
		return abs
	}
	return arg
}

// shownPath is an absolute path as people see it: relative to the current folder if it is below.
func shownPath(path string) string {
	wd, err := os.Getwd()
	if err != nil || !filepath.IsAbs(path) {
		return path
	}
	rel, err := filepath.Rel(wd, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		return path
	}
	return "./" + rel
}

// logger writes to standard error.
func (c *cli) logger() *slog.Logger {
	level := slog.LevelInfo
	switch {
	case c.logLevel != "":
		_ = level.UnmarshalText([]byte(c.logLevel)) // prepare has checked it
	case c.verbose:
		level = slog.LevelDebug
	case c.quiet:
		level = slog.LevelWarn
	}
	opts := &slog.HandlerOptions{Level: level}
	if c.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(c.err, opts))
	}
	return slog.New(slog.NewTextHandler(c.err, opts))
}

// isTerminal tells whether a person looks at the stream.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
