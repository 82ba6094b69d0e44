package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// buildVersion is set when the binary is linked.
var buildVersion = "dev"

func (c *cli) versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the version, the revision it was built from, and the Go that built it.",
		Example: "  freshet version\n  freshet version -o json",
		Args:    args(0, 0, "none"),
		RunE: func(*cobra.Command, []string) error {
			if output == "table" {
				fmt.Fprintf(c.out, "freshet %s  %s  %s  %s/%s\n", buildVersion, revision(), runtime.Version(),
					runtime.GOOS, runtime.GOARCH)
				return nil
			}
			return c.describe(output, record{{name: "version", value: buildVersion}, {name: "revision",
				value: revision()},
				{name: "go", value: runtime.Version()}, {name: "os", value: runtime.GOOS},
				{name: "arch", value: runtime.GOARCH}})
		},
	}
	c.outputFlag(cmd, &output)
	return cmd
}

// revision is the commit that the binary was built from, as far as Go tells.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	found, changed := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			found = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+changes"
		}
	}
	return found + changed
}
