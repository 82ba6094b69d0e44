package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/docs"
	"github.com/freshet-io/freshet/spec"
)

func (c *cli) explainCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "explain [CODE]",
		Short: "Explain an error code",
		Long: "Print the page of an error code: what it means, why it comes, and what to do. Without a code: " +
			"the list of all.",
		Example: `  freshet explain FRE-2101
  freshet explain 2101
  freshet explain`,
		Args: args(0, 1, "at most one code"),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.listCodes(output)
			}
			code := strings.ToUpper(args[0])
			if !strings.HasPrefix(code, "FRE-") {
				code = "FRE-" + code
			}
			page, ok := docs.Page(code)
			if !ok {
				fix := "freshet explain lists all codes"
				if near := spec.Nearest(code, docs.Codes()); len(near) > 0 {
					fix = "did you mean " + strings.Join(near, " or ") + "? freshet explain lists all codes"
				}
				return usageError(fmt.Sprintf("explain: there is no code %q", args[0]), fix)
			}
			_, err := fmt.Fprint(c.out, page)
			return err
		},
	}
	c.outputFlag(cmd, &output)
	return cmd
}

func (c *cli) listCodes(output string) error {
	var records []record
	for _, code := range docs.Codes() {
		page, _ := docs.Page(code)
		title, _, _ := strings.Cut(page, "\n")
		records = append(records, record{{name: "code", value: code},
			{name: "title", value: strings.TrimPrefix(strings.TrimPrefix(title, "# "+code), " ")}})
	}
	return c.list(output, records)
}
