//go:build unix

package demo

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// unprivileged has the command run as another user where we are root, as whom PostgreSQL refuses to run, and gives that user the folder.
// A signal of the terminal is ours alone.
func unprivileged(cmd *exec.Cmd, dir string) error {
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.ParseUint(u.Uid, 10, 32)
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil || uid == 0 {
			continue
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return os.Chown(dir, int(uid), int(gid))
	}
	return fmt.Errorf("PostgreSQL does not run as root, and there is no user postgres or nobody")
}
