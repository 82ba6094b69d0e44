//go:build !unix

package demo

import "os/exec"

func unprivileged(cmd *exec.Cmd, dir string) error {
	cmd.Dir = dir
	return nil
}
