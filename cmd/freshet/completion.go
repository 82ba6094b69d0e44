package main

import "github.com/spf13/cobra"

func (c *cli) completionCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a script that completes commands and flags in a shell",
		Long: "Print a script for a shell, which completes commands and flags of freshet once the shell has " +
			"read it.",
		Example: `  source <(freshet completion bash)                            for this session
  freshet completion zsh > "${fpath[1]}/_freshet"              for good
  freshet completion fish > ~/.config/fish/completions/freshet.fish`,
		Args:      args(1, 1, "one of bash, zsh, fish and powershell"),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(_ *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(c.out, true)
			case "zsh":
				return root.GenZshCompletion(c.out)
			case "fish":
				return root.GenFishCompletion(c.out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(c.out)
			}
			return oneOf("shell", args[0], "bash", "zsh", "fish", "powershell")
		},
	}
}
