package main

import (
	"bufio"
	"fmt"
	"strings"
)

// confirm asks a person before something that cannot be undone. Where nobody looks, --yes must have been
// given.
func (c *cli) confirm(what string, yes bool) error {
	if yes {
		return nil
	}
	if !isTerminal(c.in) {
		return usageError("found no --yes, and nobody to ask: "+what, "give --yes")
	}
	fmt.Fprintf(c.err, "%s Go on? [y/N] ", what)
	answer, _ := bufio.NewReader(c.in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return usageError("not done", "")
}
