package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// The command timeout signals its child, and then the child's group.
func TestSignal_SentTwiceAtOnce_StopsAsIfSentOnce(t *testing.T) {
	ctx, stop := untilSignal(context.Background())
	defer stop()
	seen := make(chan os.Signal, 2)
	signal.Notify(seen, syscall.SIGTERM)
	defer signal.Stop(seen)
	for range 2 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-seen
	}
	<-ctx.Done()
}
